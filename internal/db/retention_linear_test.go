package db_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/pgtest"
)

// A step that goes on where the one before has ended costs the same however much
// those before have deleted, while some transaction still sees all of it, as a
// backup would.
func TestPruneStepsAreLinear(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	q := setUp(t)
	q.withoutAutovacuum()
	// The rows lie in another order than that of their times, as a page each for
	// those that a step walks through: their pages are what the buffers count.
	const rows, batch = 10_000, 500
	require.NoError(t, pgtest.InsertFinished(ctx, q.pool, rows, pgtest.Columns{
		"id": "i", "finished_at": fmt.Sprintf("timestamptz '2020-01-01 UTC' + (i * 7919) %% %d * interval '1 ms'", rows),
	}))
	q.exec(`insert into jobq.attempt (job_id, finished_at, started_at, lease_token, outcome, number, worker_id)
		select i, timestamptz '2020-01-01 UTC' + (i * 7919) % $1::integer * interval '1 ms', now(), 1, 'lost', 1, 'w' from generate_series(1, $1::integer) i`, rows)
	q.exec(`insert into jobq.output (job_id, lease_token, begins_at, ends_at, written_at, content)
		select i, 1, i, i + 1, timestamptz '2020-01-01 UTC' + (i * 7919) % $1::integer * interval '1 ms', 'x' from generate_series(1, $1::integer) i`, rows)
	backup, err := q.pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	require.NoError(t, err)
	defer func() { _ = backup.Rollback(ctx) }()
	_, err = backup.Exec(ctx, "select from jobq.job limit 1")
	require.NoError(t, err)
	conn, err := q.pool.Acquire(ctx)
	require.NoError(t, err)
	defer conn.Release()

	for _, c := range []struct{ table, sql, before string }{
		{pgtest.History + "_default", db.DefaultPrune, "'" + pgtest.History + "', "},
		{"attempt_default", db.DefaultPrune, "'attempt', "},
		{"output", db.OutputPrune, ""},
	} {
		_, err = conn.Exec(ctx, "prepare prune_"+c.table+" as "+q.schema.SQL(c.sql))
		require.NoError(t, err)
		first, last := 0, 0
		for after := 0; after < rows; after += batch {
			last = explainBuffers(t, conn, fmt.Sprintf("execute prune_%s(%stimestamptz '2020-01-01 UTC' + %d * interval '1 ms', %d)", c.table, c.before, after, batch))
			if first == 0 {
				first = last
			}
			require.Less(t, last, 2*first+100, "%s after row %d", c.table, after)
		}
		t.Logf("%s: %d buffers in the first step, %d in the last", c.table, first, last)
		// The janitor's next run of steps begins at the start.
		_, err = conn.Exec(ctx, fmt.Sprintf("execute prune_%s(%s'-infinity', %d)", c.table, c.before, batch))
		require.NoError(t, err)
		require.Zero(t, q.number("select count(*) from jobq."+c.table), c.table)
	}
}

// A step looks at so many pieces of output, also when it has to keep all of
// them, and drops those of runs that have ended: of an earlier run of a job that
// runs, too. What was written in the last minutes it does not look at.
func TestOutputPruneSteps(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	q := setUp(t)
	q.exec("select jobq.enqueue('k')")
	job := q.claim("a", 1)[0]
	q.exec(`insert into jobq.output (job_id, lease_token, begins_at, ends_at, written_at, content)
		select $1::bigint, case when i <= 25 then $2::bigint else $2::bigint - 1 end, i, i + 1,
			case when i <= 40 then now() - interval '6 minutes' else now() - interval '4 minutes' end + i * interval '1 ms', 'x'
		from generate_series(1, 45) i`, job.ID, job.LeaseToken)
	after := beginning
	for _, want := range []db.OutputPruneRow{{Looked: 10}, {Looked: 10}, {Looked: 10, Dropped: 5}, {Looked: 10, Dropped: 10}, {}} {
		row, err := q.queries.OutputPrune(ctx, after, 10)
		require.NoError(t, err)
		after = row.Last
		row.Last = want.Last
		require.Equal(t, want, row)
	}
	require.Equal(t, 30, q.number("select count(*) from jobq.output"))

	q.exec("delete from jobq.output")
	q.exec(`insert into jobq.output (job_id, lease_token, begins_at, ends_at, written_at, content)
		select 0, 1, i, i + 1, timestamptz '2020-01-01 UTC', 'x' from generate_series(1, 25) i`)
	for range 3 { // of exactly one moment
		_, err := q.queries.OutputPrune(ctx, beginning, 10)
		require.NoError(t, err)
	}
	require.Zero(t, q.number("select count(*) from jobq.output"))
}
