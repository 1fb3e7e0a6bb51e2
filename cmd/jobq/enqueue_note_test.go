package main

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/pgtest"
)

// An enqueue to a queue, or of a kind, that no worker has ever had says so on standard error, in each way
// to enqueue, and adds the job all the same. What a worker has, or had within 30 days, is not told of.
func TestEnqueueNotesWhatNoWorkerHas(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	pool := pgtest.Connect(t, url)
	_, err := pool.Exec(context.Background(), `insert into jobq.worker (id, pid, hostname, version, queues, kinds) values ('w', 1, 'h', 'v', '{"mail": 5}', '{Send}');
		insert into jobq.stat (minute, queue, kind, completed, failed, retried, lost, cancelled, run_seconds, wait_seconds)
			values (now() - interval '20 days', 'monthly', 'Report', 1, 0, 0, 0, 0, 1, 1), (now(), 'monthly', 'Cancelled', 0, 0, 0, 0, 1, 0, 0)`)
	require.NoError(t, err)
	for _, test := range []struct {
		input string
		args  []string
		note  string
	}{
		{"", []string{"Send", "-q", "mail"}, ""},
		{"", []string{"Report", "-q", "monthly"}, ""},
		{"", []string{"Cancelled", "-q", "monthly"}, "note: no worker of queue monthly has ever had kind Cancelled\n"},
		{"", []string{"Sned", "-q", "mail"}, "note: no worker of queue mail has ever had kind Sned; did you mean Send?\n"},
		{"", []string{"Send", "-q", "mial"}, "note: no worker has ever had queue mial; did you mean mail?\n"},
		{"", []string{"Send"}, "note: no worker has ever had queue default\n"},
		{"{}\n{}", []string{"Sned", "-", "-q", "mail"}, "note: no worker of queue mail has ever had kind Sned; did you mean Send?\n"},
		{`{"kind": "b", "queue": "mail"}` + "\n" + `{"kind": "Send", "queue": "mail"}` + "\n" + `{"kind": "a", "queue": "mail"}`, []string{"--ndjson"}, "note: no worker of queue mail has ever had the kinds a and b\n"},
		{`{"kind": "a\u001b", "queue": "mail"}`, []string{"--graph"}, "note: no worker of queue mail has ever had kind a␛\n"},
	} {
		before := query[int](t, pool, "select count(*)::int from jobq.pending")
		_, stderr, code := invoke(t, test.input, append(append([]string{"enqueue"}, test.args...), "--database-url", url)...)
		require.Zero(t, code, stderr)
		require.Equal(t, test.note, stderr, test.args)
		require.Greater(t, query[int](t, pool, "select count(*)::int from jobq.pending"), before)
	}
}
