package programs_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/jobtest"
	"github.com/jobq-dev/jobq/internal/pgtest"
	"github.com/jobq-dev/jobq/keyring"
	"github.com/jobq-dev/jobq/worker"
	"github.com/jobq-dev/jobq/worker/programs"
)

// Programs of all three sorts are given plain args and checkpoints, and what they say is stored
// encrypted: results, checkpoints, and the jobs that they add.
func TestCodec(t *testing.T) {
	t.Parallel()
	ctx, pool := context.Background(), pgtest.Pool(t)
	keys, err := keyring.New(keyring.Key{Name: "k1", Secret: bytes.Repeat([]byte{7}, 32)})
	require.NoError(t, err)
	client, err := jobq.NewClient(pool, &jobq.Config{Codec: keys})
	require.NoError(t, err)
	plain, err := jobq.NewClient(pool, nil)
	require.NoError(t, err)

	server := httptest.NewServer(http.HandlerFunc(func(writer http.ResponseWriter, request *http.Request) {
		var job struct{ Args json.RawMessage }
		body, err := io.ReadAll(request.Body)
		if err != nil || json.Unmarshal(body, &job) != nil {
			writer.WriteHeader(http.StatusInternalServerError)
			return
		}
		writer.Header().Set("Content-Type", "application/json")
		_, _ = writer.Write([]byte(`{"was": ` + string(job.Args) + `}`))
	}))
	defer server.Close()
	w := newWorker(t, client, worker.Config{})
	p := programs.New(w)
	require.NoError(t, p.HandleCommand("command", shellCommand(`
		args=$(cat)
		if [ -z "$JOBQ_CHECKPOINT" ]; then
			echo '{"checkpoint": {"at": 7}}' >&3
			echo '{"enqueue": {"kind": "added", "args": {"secret": 2}}}' >&3
			exit 1
		fi
		echo "{\"result\": {\"was\": $args, \"from\": $JOBQ_CHECKPOINT}}" >&3`), nil))
	require.NoError(t, p.HandleCommand("words", programs.Command{Args: []string{"/bin/sh", "-c", `echo "{\"result\": $0}" >&3`, "${args.secret}"}}, nil))
	require.NoError(t, p.HandleStream("stream", programs.Stream{Command: shellCommand(`
		while read -r line; do
			id=${line#*\"id\":}; args=${line#*\"args\":}
			echo "{\"id\": ${id%%,*}, \"done\": true, \"result\": {\"was\": ${args%%\}*}}}}"
		done`)}, nil))
	require.NoError(t, p.HandleHTTP("http", programs.HTTP{URL: server.URL}, nil))
	run(t, w)

	for kind, want := range map[string]string{
		"command": `{"was": {"secret": 1}, "from": {"at": 7}}`, "words": `1`, "stream": `{"was": {"secret": 1}}`, "http": `{"was": {"secret": 1}}`,
	} {
		id := enqueueRaw(t, client, kind, `{"secret": 1}`, &jobq.EnqueueOptions{BackoffBase: jobtest.AtOnce, BackoffMax: jobtest.AtOnce})
		require.Eventually(t, func() bool {
			job, err := plain.Get(ctx, id)
			return err == nil && job.State == jobq.StateCompleted
		}, patience, tick, kind)
		stored, err := plain.Get(ctx, id)
		require.NoError(t, err)
		for field, value := range map[string]json.RawMessage{"args": stored.Args, "result": stored.Result} {
			_, encrypted := jobq.EncryptedWith(value)
			require.True(t, encrypted, "%s: %s is %s", kind, field, value)
		}
		job, err := client.Get(ctx, id)
		require.NoError(t, err)
		require.JSONEq(t, want, string(job.Result), kind)
		if kind == "command" {
			_, encrypted := jobq.EncryptedWith(stored.Checkpoint)
			require.True(t, encrypted, string(stored.Checkpoint))
		}
	}
	var added int64
	require.NoError(t, pool.QueryRow(ctx, "select id from jobq.job where kind = 'added'").Scan(&added))
	stored, err := plain.Get(ctx, added)
	require.NoError(t, err)
	_, encrypted := jobq.EncryptedWith(stored.Args)
	require.True(t, encrypted)
}
