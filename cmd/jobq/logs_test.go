package main

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5/pgtype"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/pgtest"
)

// Once a run has ended, retention takes its first pieces before its last ones:
// logs shows the output that was kept with the run then, and says what is missing
// of a run that has left none.
func TestLogsOfPrunedPieces(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	url := pgtest.URL(t)
	pool := pgtest.Connect(t, url)
	id := query[int64](t, pool, "select jobq.enqueue('task')")
	query[string](t, pool, "select jobq.cancel($1)::text", id)
	require.NoError(t, pgtest.UpdateFinished(ctx, pool, pgtest.Columns{"lease_token": "7"}, "id = $1", id))
	for _, statement := range []string{
		"insert into jobq.attempt (job_id, finished_at, started_at, lease_token, outcome, number, worker_id) values ($1, now(), now(), 7, 'lost', 1, 'w')",
		`insert into jobq.output (job_id, lease_token, begins_at, ends_at, written_at, content)
			values ($1, 7, 0, 6, now() - interval '6 minutes', 'first '), ($1, 7, 6, 10, now(), 'last')`,
	} {
		_, err := pool.Exec(ctx, statement, id)
		require.NoError(t, err)
	}
	logs := func() string {
		out, stderr, code := invoke(t, "", "logs", fmt.Sprint(id), "--database-url", url)
		require.Zero(t, code, stderr)
		return out
	}
	require.Equal(t, "first last", logs())

	schema, err := db.NewSchema("")
	require.NoError(t, err)
	pruned, err := schema.Queries(pool).OutputPrune(ctx, pgtype.Timestamptz{InfinityModifier: pgtype.NegativeInfinity, Valid: true}, 100)
	require.NoError(t, err)
	require.EqualValues(t, 1, pruned.Dropped)
	require.Equal(t, "\n[6 bytes left out]\nlast", logs())

	_, err = pool.Exec(ctx, "update jobq.attempt set output = 'first last' where job_id = $1", id)
	require.NoError(t, err)
	require.Equal(t, "first last", logs())
}

// A run that was lost has no time, and so is left out of the average.
func TestStatsAverage(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	_, err := pgtest.Connect(t, url).Exec(context.Background(), `insert into jobq.stat_delta
			(minute, queue, kind, completed, failed, retried, lost, cancelled, run_seconds, wait_seconds)
		values (date_trunc('minute', now()), 'mail', 'k', 1, 0, 0, 0, 0, 1, 0), (date_trunc('minute', now()), 'mail', 'k', 0, 1, 2, 3, 0, 0, 0)`)
	require.NoError(t, err)
	out, stderr, code := invoke(t, "", "stats", "--database-url", url)
	require.Zero(t, code, stderr)
	require.Regexp(t, `mail +0 +0 +0 +1 +1 +2 +3 +0 +<1\.0s +0ms`, out)
}
