package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/pgtest"
)

// How many runs were lost without using an attempt is shown beside the attempts wherever jobs are: in a list, as CSV and JSON, by show
// and why. It is set by a flag, by a line of NDJSON, and for a queue.
func TestMaxLostIsShown(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	pool := pgtest.Connect(t, url)
	command := func(input string, args ...string) string {
		out, stderr, code := invoke(t, input, append(args, "--database-url", url)...)
		require.Zero(t, code, out+stderr)
		return out
	}
	flag := strings.TrimSpace(command("", "enqueue", "k", "--max-attempts", "1", "--max-lost", "20"))
	command(`{"kind": "k", "max_lost": 30}`+"\n", "enqueue", "--ndjson")
	command("", "queues", "set", "sweep", "max_lost=7")
	require.Contains(t, command("", "queues", "show", "sweep"), "max_lost")
	require.Contains(t, command("", "queues", "list", "--json"), `"max_lost": 7`)
	ofQueue := strings.TrimSpace(command("", "enqueue", "k", "-q", "sweep"))
	require.Equal(t, "20 30 0", query[string](t, pool, "select string_agg(coalesce(max_lost, 0)::text, ' ' order by id) from jobq.job"))
	require.Contains(t, command("", "show", flag), "lost         0/20\n")
	require.NotContains(t, command("", "show", ofQueue), "\nlost ")
	require.NotContains(t, command("", "list"), "lost")

	query[int](t, pool, "with u as (update jobq.pending set lost = 3, last_error = 'gone', position = null, run_at = now() + interval '1 hour' where kind = 'k' returning 1) select count(*)::integer from u")
	query[int](t, pool, `with a as (insert into jobq.attempt (job_id, finished_at, started_at, lease_token, outcome, number, worker_id, error)
		select id, now(), now(), 1, 'lost', 1, 'w', 'gone' from jobq.pending returning 1) select count(*)::integer from a`)
	for id, lost := range map[string]string{flag: "3/20", ofQueue: "3/7"} {
		require.Contains(t, command("", "show", id), fmt.Sprintf("lost         %s, without using an attempt\n", lost))
		require.Contains(t, command("", "show", id, "--json"), `"lost": 3`)
		require.Contains(t, command("", "list"), ", lost "+lost)
	}
	require.Contains(t, command("", "why", flag), "its last run was lost, after 0 attempts of 1 and 3 lost runs of 20: gone")
	require.Contains(t, command("", "why", ofQueue, "--json"), `"max_lost": 7`)
	require.Equal(t, []string{"id,lost,max_lost", flag + ",3,20"},
		strings.Split(strings.TrimSpace(command("", "list", "-o", "csv", "--columns", "id,lost,max_lost", "id:"+flag)), "\n"))
}
