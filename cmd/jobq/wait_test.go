package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/pgtest"
)

// The command prints results, and says by its exit code how the jobs have ended; so does
// an enqueue that waits. What cannot be a job is refused before the database is asked.
func TestWaitCommand(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	url := pgtest.URL(t)
	pool := pgtest.Connect(t, url)
	wait := func(args ...string) (out, stderr string, code int) {
		return invoke(t, "", append([]string{"wait", "--database-url", url}, args...)...)
	}
	worker := startProcess(t, "worker", "--database-url", url, "--run", `good=sh -c 'echo "{\"result\": {\"text\": \"\\u001b[31m\"}}" >&3'`,
		"--run", "plain=true", "--run", "bad=sh -c 'echo no luck >&2; exit 65'")
	worker.awaitLog(t, "worker started")
	enqueue := func(kind string, args ...string) (out, stderr string, code int) {
		return invoke(t, "", append([]string{"enqueue", kind, "--database-url", url}, args...)...)
	}

	out, stderr, code := enqueue("good", "--wait")
	require.Equal(t, exitOK, code, stderr)
	require.Equal(t, `{"text":"\u001b[31m"}`+"\n", out)
	require.Equal(t, "job 1\n", stderr)
	out, stderr, code = enqueue("plain", "--wait", "--wait-timeout", "10m")
	require.Equal(t, exitOK, code, stderr)
	require.Empty(t, out, "there is no result")
	out, _, code = enqueue("plain", "--wait", "--json")
	require.Equal(t, exitOK, code)
	require.Regexp(t, `^\{"id":3,"state":"completed","finished_at":"[^"]*Z"\}\n$`, out)
	out, stderr, code = enqueue("bad", "--wait", "--max-attempts", "1")
	require.Equal(t, exitFailed, code)
	require.Empty(t, out)
	require.Contains(t, stderr, "jobq: job 4 is failed: exit code 65: no luck\n")
	out, _, code = invoke(t, "", "enqueue", "--database-url", url, "--exec", "--wait", "--wait-timeout", "10ms", "--", "ls")
	require.Equal(t, exitNotEnded, code, "no worker takes it")
	require.Empty(t, out)

	never := query[int64](t, pool, "select jobq.enqueue('never')")
	cancelled := query[int64](t, pool, "select jobq.enqueue('never')")
	_, err := pool.Exec(ctx, "select jobq.cancel($1)", cancelled)
	require.NoError(t, err)
	for _, test := range []struct {
		ids  string
		code int
		says []string
	}{
		{"1", exitOK, nil},
		{"1 2 2 3", exitOK, nil},
		{"1 4", exitFailed, []string{"job 4 is failed: exit code 65"}},
		{fmt.Sprint(cancelled), exitCancelled, []string{fmt.Sprintf("job %d is cancelled", cancelled)}},
		{fmt.Sprintf("%d 4 1", cancelled), exitFailed, []string{"job 4 is failed", fmt.Sprintf("job %d is cancelled", cancelled)}},
		{"4711 4", exitNotFound, []string{"wait for job 4711: there has never been such a job here", "job 4 is failed"}},
		{fmt.Sprintf("4711 4 --timeout 500ms %d", never), exitNotEnded, []string{fmt.Sprintf("job %d has not ended within 500ms; to see why: jobq why %d", never, never)}},
	} {
		words := strings.Fields(test.ids)
		out, stderr, code := wait(words...)
		require.Equal(t, test.code, code, "%s: %s", test.ids, stderr)
		for _, text := range test.says {
			require.Contains(t, stderr, text)
		}
		if len(words) == 1 {
			continue
		}
		for _, id := range []string{"1", "2", "3", "4"} {
			want := 0
			if slices.Contains(words, id) {
				want = 1
			}
			require.Equal(t, want, strings.Count(out, `{"id":`+id+`,"state":"`), "%s: %s", test.ids, out)
		}
	}

	// It hears of an end that is to come.
	answer := make(chan string, 1)
	go func() {
		out, _, code := wait("--json", fmt.Sprint(never))
		answer <- fmt.Sprint(code, out)
	}()
	eventually(t, pool, true, "select exists (select from jobq.awaited where job_id = $1)", never)
	_, err = pool.Exec(ctx, "select jobq.cancel($1)", never)
	require.NoError(t, err)
	require.Contains(t, <-answer, fmt.Sprintf(`%d{"id":%d,"state":"cancelled"`, exitCancelled, never))

	for _, args := range [][]string{
		{"wait"},
		{"wait", "x"},
		{"wait", "0"},
		{"wait", "1", "--timeout", "0"},
		append([]string{"wait"}, strings.Fields(strings.Repeat("1 ", waitIDsMax+1))...),
		{"enqueue", "good", "-", "--wait"},
		{"enqueue", "--ndjson", "--wait"},
		{"enqueue", "--exec", "-", "--wait"},
		{"enqueue", "good", "--wait-timeout", "1s"},
		{"enqueue", "good", "--wait", "--wait-timeout", "0"},
	} {
		out, stderr, code := invoke(t, "", append(args, "--database-url", "postgres://nowhere.invalid/x")...)
		require.Equal(t, exitUsage, code, "%s: %s", args, stderr)
		require.Empty(t, out)
		require.NotContains(t, stderr, "nowhere")
	}
}
