package tests

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/db"
)

// today is the day in the database, in UTC.
func (q *queue) today() (day time.Time) {
	q.Helper()
	require.NoError(q, q.pool.QueryRow(context.Background(), "select (now() at time zone 'UTC')::date").Scan(&day))
	return day
}

// addDay makes the days of the history so many days from today.
func (q *queue) addDay(days int) {
	q.Helper()
	q.exec("select jobq.partition_add(p, (now() at time zone 'UTC')::date + $1::integer) from unnest(array['run', 'past_lease', 'attempt']) p", days)
}

// attemptsOn adds recorded runs that ended so many days from today, of jobs with these ids.
func (q *queue) attemptsOn(days, first, last int) {
	q.Helper()
	q.exec(`insert into jobq.attempt (job_id, finished_at, started_at, lease_token, outcome, number, worker_id)
		select i / 2, (date_trunc('day', now() at time zone 'UTC') at time zone 'UTC') + $1::integer * interval '1 day' + interval '1 hour' + i % 2 * interval '1 us',
			now(), 1, 'failed', 1, 'w' from generate_series($2::integer, $3::integer) i`, days, first, last)
}

// refused requires that the error is a refusal with the text.
func refused(t *testing.T, err error, text string) {
	t.Helper()
	var refusal *pgconn.PgError
	require.True(t, errors.As(err, &refusal), "%v", err)
	require.Equal(t, "JQ003", refusal.Code)
	require.Contains(t, refusal.Message, text)
}

// With keep_until_exported no day is dropped before it was exported, however old it is; nor
// what the default partitions have of it.
func TestRetentionWaitsForExport(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	q := setUp(t)
	parents := []string{"run", "past_lease", "attempt"}
	q.addDay(-20)
	q.finishedOn(-20, false)
	q.finishedOn(-22, false)
	q.attemptsOn(-20, 2, 2)
	q.attemptsOn(-22, 4, 4)
	left := func() (partitions, defaults int) {
		for range 3 { // the runs go before their leases
			for _, parent := range parents {
				_, err := q.queries.PartitionPrune(ctx, parent)
				require.NoError(t, err)
				_, err = q.queries.DefaultPrune(ctx, db.DefaultPruneParams{Parent: parent, RowCount: 100})
				require.NoError(t, err)
			}
		}
		day := q.today().AddDate(0, 0, -20).Format("20060102")
		return q.number("select count(*) from pg_class c join pg_inherits i on i.inhrelid = c.oid where c.relname ~ $1", "^(run|past_lease|attempt)_"+day+"$"),
			q.number("select (select count(*) from jobq.run_default) + (select count(*) from jobq.attempt_default)")
	}
	for _, step := range []struct {
		exported             int // before so many days from today
		partitions, defaults int
	}{{-23, 3, 2}, {-22, 3, 2}, {-21, 3, 0}, {-20, 3, 0}, {-19, 0, 0}} {
		q.exec("select jobq.act_settings('test', null, keep_until_exported => true, exported_before => (now() at time zone 'UTC')::date + $1::integer)", step.exported)
		partitions, defaults := left()
		require.Equal(t, step.partitions, partitions, "exported before %d", step.exported)
		require.Equal(t, step.defaults, defaults, "exported before %d", step.exported)
	}
}

// An export begins when nothing can be added to the day any more: not before it is over, nor
// while one of its jobs runs; and after every transaction that has written to it.
func TestExportBegins(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	q := setUp(t)
	q.addDay(-3)
	q.addDay(-4)
	begin := func(days int) error {
		_, err := q.queries.ExportBegin(ctx, db.Date(q.today().AddDate(0, 0, days)))
		return err
	}
	refused(t, begin(0), "is not over")
	refused(t, begin(1), "is not over")
	q.exec("insert into jobq.lease (id, claimed_at, expires_at, owner, queue, job_ids) values (jobq.lease_day((now() at time zone 'UTC')::date - 3) + 1, now(), now(), 'w', 'q', '{1}')")
	refused(t, begin(-3), "still run")
	require.NoError(t, begin(-4))

	tx, err := q.pool.Begin(ctx)
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(ctx) }()
	_, err = tx.Exec(ctx, `insert into jobq.attempt (job_id, finished_at, started_at, lease_token, outcome, number, worker_id)
		values (7, (date_trunc('day', now() at time zone 'UTC') at time zone 'UTC') - interval '94 hours', now(), 1, 'failed', 1, 'w')`)
	require.NoError(t, err)
	begun := make(chan error, 1)
	go func() { begun <- begin(-4) }()
	q.awaitLock()
	require.Empty(t, begun)
	require.NoError(t, tx.Commit(ctx))
	require.NoError(t, <-begun)
	attempts, err := q.schema.AttemptsOfDay(ctx, q.pool, q.today().AddDate(0, 0, -4), db.AttemptPlace{})
	require.NoError(t, err)
	require.Len(t, attempts, 1)
}

// What an undo brings back into a day is not lost: an export of the day that is under way
// does not count then, and of one that was made before, the day is to be exported again.
func TestExportAfterUndo(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	q := setUp(t)
	day := q.today().AddDate(0, 0, -3)
	q.addDay(-4)
	q.addDay(-3)
	id := int64(q.finishedOn(-3, false))
	begin := func(day time.Time) (end func() error) {
		began, err := q.queries.ExportBegin(ctx, db.Date(day))
		require.NoError(t, err)
		return func() error {
			_, err := q.queries.ExportEnd(ctx, db.ExportEndParams{Actor: "a", Day: db.Date(day), BeganAt: began, Jobs: 1})
			return err
		}
	}
	exported := func() time.Time {
		row, err := q.queries.SettingGet(ctx)
		require.NoError(t, err)
		return row.ExportedBefore.Time
	}
	next := func() time.Time {
		row, err := q.queries.ExportNext(ctx)
		require.NoError(t, err)
		return row.Day.Time
	}
	there := func(action string) {
		audit, jobs := q.act(action, nil, id)
		require.True(t, jobs[0].Changed, jobs[0].Problem)
		require.Equal(t, 1, q.number("select count(*) from jobq.undo('ann', $1) u where u.state_after = 'cancelled' and u.problem is null", audit))
	}
	require.Equal(t, day.AddDate(0, 0, -1), next())
	refused(t, begin(day)(), "is to be exported before")
	require.NoError(t, begin(day.AddDate(0, 0, -1))())
	require.Equal(t, day, exported())

	for _, action := range []string{"requeue", "delete"} {
		end := begin(day)
		there(action)
		refused(t, end(), "does not count")
		first := begin(day)
		second := begin(day)
		refused(t, first(), "does not count")
		require.NoError(t, second())
		require.Equal(t, day.AddDate(0, 0, 1), exported())
		refused(t, second(), "does not count")
		there(action)
		require.Equal(t, day, exported(), action)
		require.Equal(t, day, next())
		row := q.text("select ctid::text from jobq.setting")
		there(action)
		require.Equal(t, row, q.text("select ctid::text from jobq.setting"), "the row is not written for each job")
	}
	// Attempts that a delete has taken come back into their own days.
	require.NoError(t, begin(day)())
	q.exec(`insert into jobq.attempt (job_id, finished_at, started_at, lease_token, outcome, number, worker_id)
		values ($1, (date_trunc('day', now() at time zone 'UTC') at time zone 'UTC') - interval '94 hours', now(), 1, 'failed', 1, 'w')`, id)
	there("delete")
	require.Equal(t, day.AddDate(0, 0, -1), exported())
}

// The pages of a day have each of its jobs and recorded runs once, and none of other days,
// whether the day has a partition or the default partition has caught it.
func TestPagesOfDay(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	q := setUp(t)
	const jobs, attempts = 250, 1200
	q.addDay(-3)
	// -20 is in the default partition. The ids of today lie between those of -3.
	ids := map[int]string{-20: "10000 + i", -3: "i + case when i > 125 then 1000 else 0 end", 0: "500 + i"}
	for days, id := range ids {
		q.exec(`insert into jobq.run (id, lease_id, slot, state, finished_at, run_at, created_at, priority, attempts, max_attempts, crashes, args_apart, queue, kind, args)
			select `+id+`, jobq.lease_day((now() at time zone 'UTC')::date + $1::integer) + i % 7, 1, 'failed', now(), now(), now(), 0, 1, 1, 0, false, 'q', 'k', '{}'
			from generate_series(1, $2::integer) i`, days, jobs)
		q.attemptsOn(days, 1, attempts)
	}
	for _, days := range []int{-20, -3} {
		day := q.today().AddDate(0, 0, days)
		seen := make(map[int64]bool)
		for after := int64(0); ; {
			page, err := q.schema.JobsOfDay(ctx, q.pool, day, after)
			require.NoError(t, err)
			if len(page) == 0 {
				break
			}
			for _, job := range page {
				require.Greater(t, job.ID, after)
				require.Equal(t, q.number("select jobq.lease_day($1::date) >> 40", day), int(job.LeaseToken>>40))
				require.JSONEq(t, "{}", string(job.Args))
				after, seen[job.ID] = job.ID, true
			}
		}
		require.Len(t, seen, jobs, "day %d", days)
		runs := make(map[db.AttemptPlace]bool)
		for after := (db.AttemptPlace{}); ; {
			page, err := q.schema.AttemptsOfDay(ctx, q.pool, day, after)
			require.NoError(t, err)
			if len(page) == 0 {
				break
			}
			for _, attempt := range page {
				after = db.AttemptPlace{JobID: attempt.JobID, LeaseToken: attempt.LeaseToken, FinishedAt: attempt.FinishedAt.Time}
				require.False(t, runs[after])
				require.Equal(t, day, after.FinishedAt.UTC().Truncate(24*time.Hour))
				runs[after] = true
			}
		}
		require.Len(t, runs, attempts)
	}
}

// An undo of a setting does not say again that days were exported: jobs may have come back into
// them since. It takes back that they were.
func TestUndoOfExportedBefore(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	set := func(days int) (audit int) {
		return q.number("select jobq.act_settings('test', null, exported_before => (now() at time zone 'UTC')::date + $1::integer)", days)
	}
	exported := func() int {
		return q.number("select s.exported_before - (now() at time zone 'UTC')::date from jobq.setting s")
	}
	set(-5)
	lowered := set(-10)
	q.exec("select jobq.undo('ann', $1)", lowered)
	require.Equal(t, -10, exported())
	raised := set(-3)
	q.exec("select jobq.undo('ann', $1)", raised)
	require.Equal(t, -10, exported())
	kept := q.number("select jobq.act_settings('test', '2 days')")
	q.exec("select jobq.undo('ann', $1)", kept)
	require.Equal(t, -10, exported())
}

// A day that comes to be needed while it is about to be dropped stays: days are to be kept until
// they are exported, or an undo has brought a job back. Method: the table is locked, so that what
// drops waits after it has looked which days are old.
func TestDayNeededAtTheLastMoment(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for name, test := range map[string]struct {
		table string
		prune func(q *queue) error
	}{
		"a partition of run": {"jobq.run", func(q *queue) error {
			_, err := q.queries.PartitionPrune(ctx, "run")
			return err
		}},
		"the default partition of run": {"jobq.run_default", func(q *queue) error {
			_, err := q.queries.DefaultPrune(ctx, db.DefaultPruneParams{Parent: "run", RowCount: 100})
			return err
		}},
		"that of attempt": {"jobq.attempt_default", func(q *queue) error {
			_, err := q.queries.DefaultPrune(ctx, db.DefaultPruneParams{Parent: "attempt", RowCount: 100})
			return err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := setUp(t)
			q.addDay(-20)
			q.finishedOn(-20, false)
			q.finishedOn(-22, false)
			q.attemptsOn(-22, 4, 4)
			all := func() string {
				return q.text("select concat((select count(*) from jobq.run), ' ', (select count(*) from jobq.attempt))")
			}
			before := all()
			pruned := make(chan error, 1)
			for waits := false; !waits; { // it does not wait for a transaction that is a second old
				tx, err := q.pool.Begin(ctx)
				require.NoError(t, err)
				_, err = tx.Exec(ctx, "lock table only "+test.table+" in access exclusive mode")
				require.NoError(t, err)
				_, err = tx.Exec(ctx, "select jobq.act_settings('test', null, keep_until_exported => true, exported_before => (now() at time zone 'UTC')::date - 30)")
				require.NoError(t, err)
				go func() { pruned <- test.prune(q) }()
				require.Eventually(t, func() bool {
					waits = q.number("select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'") > 0
					return waits || len(pruned) > 0
				}, eventually, tick)
				if !waits {
					early := <-pruned
					require.True(t, db.IsLockTimeout(early), "%v", early)
					require.NoError(t, tx.Rollback(ctx))
					continue
				}
				require.NoError(t, tx.Commit(ctx))
			}
			require.NoError(t, <-pruned)
			require.Equal(t, before, all())
		})
	}
}
