package tests

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/db"
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
	q.exec(`insert into jobq.run (id, finished_at, lease_id, slot, run_at, created_at, state, priority, attempts, max_attempts, crashes, args_apart, queue, kind)
		select i, timestamptz '2026-01-02 UTC', jobq.lease_day('2026-01-02') + (i * 7919) % $1::integer, 1, now(), now(), 'completed', 0, 0, 25, 0, false, 'q', 'k'
		from generate_series(1, $1::integer) i`, rows)
	q.exec("insert into jobq.past_lease (id, claimed_at, owner, ended) select r.lease_id, r.finished_at, 'w', '{-1}' from jobq.run r")
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

	// The place before the n-th row, from 0 on, in the order in which the steps go.
	lease := func(n int) string { return fmt.Sprintf("jobq.lease_day('2026-01-02') + %d, %d", n-1, rows) }
	moment := func(n int) string { return fmt.Sprintf("timestamptz '2020-01-01 UTC' + %d * interval '1 ms'", n) }
	micros := func(n int) string {
		return fmt.Sprintf("(extract(epoch from %s) * 1000000)::bigint, 0", moment(n))
	}
	for _, c := range []struct {
		table, sql, parent string
		place              func(n int) string
	}{
		{"run_default", db.DefaultPrune, "'run', ", lease},
		{"past_lease_default", db.DefaultPrune, "'past_lease', ", lease},
		{"attempt_default", db.DefaultPrune, "'attempt', ", micros},
		{"output", db.OutputPrune, "", moment},
	} {
		_, err = conn.Exec(ctx, "prepare prune_"+c.table+" as "+q.schema.SQL(c.sql))
		require.NoError(t, err)
		first, last := 0, 0
		for after := 0; after < rows; after += batch {
			last = explainBuffers(t, conn, fmt.Sprintf("execute prune_%s(%s%s, %d)", c.table, c.parent, c.place(after), batch))
			if first == 0 {
				first = last
			}
			require.Less(t, last, 2*first+100, "%s after row %d", c.table, after)
		}
		t.Logf("%s: %d buffers in the first step, %d in the last", c.table, first, last)
		// The janitor's next run of steps begins at the start.
		_, err = conn.Exec(ctx, fmt.Sprintf("execute prune_%s(%s%s, %d)", c.table, c.parent, c.place(-1), batch))
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
