package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/pgtest"
)

// Times are taken as people write them, and the answer says what for, in which
// zone; what says so itself has no answer.
func TestRunAt(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	pool := pgtest.Connect(t, url)
	jobq := func(args ...string) string {
		t.Helper()
		p := startProcessWith(t, []string{"TZ=Asia/Kolkata"}, append(args, "--database-url", url)...) // a zone without summer time
		require.NoError(t, p.Wait(), p.log)
		return p.log.String()
	}
	runAt := func(id int) string {
		return query[string](t, pool, "select (run_at at time zone 'Asia/Kolkata')::text from jobq.job where id = $1", id)
	}
	log := jobq("enqueue", "a", "--run-at", "2030-12-31 23:59")
	require.Contains(t, log, "earliest start: 2030-12-31 23:59:00 IST (UTC+05:30), in ")
	require.Contains(t, log, "\n1\n")
	require.Equal(t, "2030-12-31 23:59:00", runAt(1))
	require.NotContains(t, jobq("enqueue", "a", "--run-at", "2030-12-31T23:59:00Z"), "start", "nothing to say")
	require.Contains(t, jobq("enqueue", "a", "--run-at", "2020-01-01T00:00:00Z"), "ago: it can start at once")
	require.Contains(t, jobq("edit", "2", "--run-at", "in 2d"), "IST (UTC+05:30), in ")
	require.True(t, query[bool](t, pool, "select run_at between now() + interval '47 h' and now() + interval '48 h' from jobq.job where id = 2"))
	require.Contains(t, jobq("clone", "1", "--run-at", "tomorrow 09:00"), " 09:00:00 IST (UTC+05:30)")
	require.Equal(t, "09:00:00", runAt(4)[11:])
	jobq("enqueue", "a", "--delay", "3d", "--timeout", "1w")
	require.True(t, query[bool](t, pool, "select run_at > now() + interval '71 h' and timeout = interval '7 d' from jobq.pending where id = 5"))
}
