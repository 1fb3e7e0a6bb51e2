package tests

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/db"
)

// acted is what act or undo says of a job.
type acted struct {
	Audit, JobID  int64
	Before, After string
	Changed       bool
	Code, Problem string
}

// act acts on jobs and returns the audit's id and what has come of each.
func (q *queue) act(action string, expected []string, ids ...int64) (audit int64, jobs []acted) {
	q.Helper()
	rows, err := q.pool.Query(context.Background(), `select a.audit, a.job_id, coalesce(a.state_before, ''), coalesce(a.state_after, ''), a.changed, coalesce(a.code, ''), coalesce(a.problem, '')
		from jobq.act('ann', $1, $2::bigint[], $3::text[], null, null, null, case when $1 = 'edit' then '{"priority": 7}'::jsonb end) a`, action, ids, expected)
	require.NoError(q, err)
	jobs, err = pgx.CollectRows(rows, pgx.RowToStructByPos[acted])
	require.NoError(q, err)
	return jobs[0].Audit, jobs
}

// changes acts on jobs, which must change to this state.
func (q *queue) changes(action, state string, ids ...int64) (audit int64) {
	q.Helper()
	audit, jobs := q.act(action, nil, ids...)
	require.Len(q, jobs, len(ids))
	for _, job := range jobs {
		require.Equal(q, acted{audit, job.JobID, "completed", state, true, "", ""}, job, action)
	}
	return audit
}

// undo takes an action back, on all of its jobs.
func (q *queue) undo(audit int64, count int) {
	q.Helper()
	require.Equal(q, count, q.number("select count(*) from jobq.undo('ann', $1) u where u.state_after = 'completed' and u.problem is null", audit))
}

// seen is a row of a table or view as JSON, null when there is none.
func (q *queue) seen(table string, id int64) (row string) {
	q.Helper()
	require.NoError(q, q.pool.QueryRow(context.Background(), "select coalesce((select to_jsonb(r) from jobq."+table+" r where r.id = $1), 'null')::text", id).Scan(&row))
	return row
}

// Trap 8: a job that completed with its lease is requeued, deleted, cloned and
// put back as any other, alone and in bulk, and cannot be edited or cancelled;
// while others of the lease run, when the lease is past, and when retention has dropped it.
func TestActionsOnWhatCompletedWithItsLease(t *testing.T) {
	t.Parallel()
	for name, past := range map[string]bool{"live": false, "past": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := setUp(t)
			q.exec(`insert into jobq.pending (kind, args, priority, timeout, backoff_base, backoff_max, max_attempts, last_error, clear_reason, checkpoint, metadata, tags, run_at)
				select 'k', args, 3, '1 min', '2 s', '3 min', 9, 'e', 'c', '{"p": 1}', '{"m": 1}', '{t}', now() - interval '1 min'
				from unnest(array['{"a": 1}', 'null', to_jsonb((select string_agg(md5(i::text), '') from generate_series(1, 100) i)), '1', '2']::jsonb[]) args`)
			jobs := sorted(q.claim("a", 5))
			one, two, large, other, last := jobs[0].ID, jobs[1].ID, jobs[2].ID, jobs[3], jobs[4]
			q.completes(plainly(jobs[0]), plainly(jobs[1]), plainly(jobs[2]))
			if past {
				q.completes(plainly(other), plainly(last))
			}
			require.Equal(t, 1, q.number("select count(*) from jobq.lease")+q.number("select count(*) from jobq.past_lease"))
			same := func(do func()) {
				t.Helper()
				var before []string
				for _, id := range []int64{one, two, large} {
					before = append(before, q.seen("job", id))
				}
				do()
				for i, id := range []int64{one, two, large} {
					require.JSONEq(t, before[i], q.seen("job", id))
				}
			}

			same(func() {
				for _, action := range []string{"requeue", "delete"} {
					_, jobs := q.act(action, []string{"completed/1"}, one)
					require.Equal(t, "it has changed meanwhile, and is completed now", jobs[0].Problem)
				}
				_, jobs := q.act("edit", nil, one)
				require.Equal(t, "JQ003", jobs[0].Code)
				require.Contains(t, jobs[0].Problem, "is completed")
				_, jobs = q.act("cancel", nil, one, two)
				for _, job := range jobs {
					require.Equal(t, []any{"completed", "completed", false, ""}, []any{job.Before, job.After, job.Changed, job.Problem})
				}
				require.Equal(t, 1, q.number("select count(*) from jobq.cancel($1) state where state = 'completed'", one))
			})
			for action, state := range map[string]string{"requeue": "available", "delete": "deleted"} {
				same(func() {
					audit := q.changes(action, state, one, two, large)
					require.Equal(t, map[bool]int{true: 3}[action == "requeue"], q.number("select count(*) from jobq.job where state = 'available'"))
					q.undo(audit, 3)
				})
			}
			same(func() {
				clone := q.number("select clone_id from jobq.act_clone('ann', $1, '{}')", large)
				require.Equal(t, 1, q.number("select count(*) from jobq.job c, jobq.job j where c.id = $1 and j.id = $2 and (c.args, c.priority, c.tags, c.state) = (j.args, 3, j.tags, 'available')", clone, large))
				q.exec("select jobq.delete_job($1)", clone)
			})
			if !past {
				for _, action := range []string{"requeue", "delete"} {
					_, jobs := q.act(action, nil, other.ID)
					require.Equal(t, "JQ003", jobs[0].Code)
				}
			}

			// What was requeued runs again beside the lease that it had, whose owner goes on.
			q.changes("requeue", "available", one)
			again := q.claim("b", 1)
			require.Equal(t, one, again[0].ID)
			require.Greater(t, again[0].LeaseToken, jobs[0].LeaseToken)
			if !past {
				q.completes(plainly(other), onRow(last))
				require.Equal(t, 1, q.number("select count(*) from jobq.lease"), "that of the second run")
			}
			require.Equal(t, 4, q.number("select count(*) from jobq.job where state = 'completed'"))

			// Retention has dropped the lease since.
			var before map[string]any
			require.NoError(t, json.Unmarshal([]byte(q.seen("job", two)), &before))
			audit := q.changes("delete", "deleted", two, large)
			q.exec("delete from jobq.past_lease")
			q.undo(audit, 2)
			var after map[string]any
			require.NoError(t, json.Unmarshal([]byte(q.seen("job", two)), &after))
			require.Equal(t, before, after)
		})
	}
}

// A job that runs when somebody acts on it may end with its lease at the same
// moment: it is not requeued or deleted as what it was, and a cancel that comes
// too late changes nothing.
func TestActionMeetsAPlainEnd(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	q := setUp(t)
	q.exec("select jobq.enqueue('k') from generate_series(1, 2)")
	jobs := sorted(q.claim("a", 2))
	holder, err := q.pool.Begin(ctx)
	require.NoError(t, err)
	defer func() { _ = holder.Rollback(ctx) }()
	_, err = holder.Exec(ctx, "select from jobq.run where id = $1 for update", jobs[0].ID)
	require.NoError(t, err)
	cancelled := make(chan []acted, 1)
	go func() {
		_, answers := q.act("cancel", nil, jobs[0].ID)
		cancelled <- answers
	}()
	require.Eventually(t, func() bool {
		return q.number("select count(*) from pg_stat_activity where wait_event_type = 'Lock' and query like '%jobq.act%' and datname = current_database()") > 0
	}, patience, time.Millisecond)
	q.completes(plainly(jobs[0]))
	require.NoError(t, holder.Commit(ctx))
	answer := <-cancelled
	require.Equal(t, []any{"completed", "completed", false, ""}, []any{answer[0].Before, answer[0].After, answer[0].Changed, answer[0].Problem})
	require.Zero(t, q.number("select count(*) from jobq.run where cancel_requested_at is not null"))
}

// Trap 9: finished_at is of the server's clock and exact to the millisecond, by
// both kinds of end, in the view and in the audit.
func TestFinishedAtIsExact(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	clock := func() (now time.Time) {
		require.NoError(t, q.pool.QueryRow(context.Background(), "select clock_timestamp()").Scan(&now))
		return now
	}
	q.exec("select jobq.enqueue('k') from generate_series(1, 3)")
	jobs := q.claim("a", 3)
	q.exec("update jobq.lease set claimed_at = claimed_at - interval '1234 ms'")
	for i := range jobs {
		jobs[i].StartedAt.Time = jobs[i].StartedAt.Time.Add(-1234 * time.Millisecond)
	}
	for i, completion := range []db.Completion{plainly(jobs[0]), onRow(jobs[1]), plainly(jobs[2])} {
		before := clock()
		q.completes(completion)
		after := clock()
		job, err := q.queries.JobGet(context.Background(), completion.ID)
		require.NoError(t, err)
		require.WithinRange(t, *job.FinishedAt, before.Add(-time.Millisecond), after.Add(time.Millisecond), i)
		require.Greater(t, job.FinishedAt.Sub(*job.StartedAt), 1234*time.Millisecond)
		// What the audit has is the same, before and after the lease moved to the history.
		audit := q.changes("requeue", "available", job.ID)
		require.Equal(t, 1, q.number("select count(*) from jobq.audit_job t where t.audit_id = $1 and (t.before -> 'row' ->> 'finished_at')::timestamptz = $2", audit, *job.FinishedAt))
		q.undo(audit, 1)
		again, err := q.queries.JobGet(context.Background(), completion.ID)
		require.NoError(t, err)
		require.Equal(t, job, again)
	}
	require.Equal(t, 1, q.number("select count(*) from jobq.past_lease"))
}

// Who acts on a job finds its lease by the key: the cost is the same with many
// leases, held and past, in several days, with statistics and without.
func TestActionsLookLeasesUp(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	q := setUp(t)
	q.withoutAutovacuum()
	const jobs, each, most = 40_000, 4, 150 // the leases alone have 400 pages
	q.exec("select jobq.partition_add(parent, (now() at time zone 'UTC')::date - ago) from unnest(array['run', 'past_lease']) as parent, generate_series(1, 4) as ago")
	q.exec(`with ended as (
			select i, jobq.lease_day((now() at time zone 'UTC')::date - i / ($1::integer / 5 + 1)) + i / $2::integer as lease_id, i % $2::integer + 1 as slot from generate_series(1, $1::integer) i
		), job as (
			insert into jobq.run (id, lease_id, slot, run_at, created_at, priority, attempts, max_attempts, crashes, args_apart, queue, kind, args)
				select i, lease_id, slot, now(), now(), 0, 0, 25, 0, false, 'q', 'k', '{}' from ended
		), held as (
			insert into jobq.lease (id, claimed_at, expires_at, owner, queue, job_ids, ended_slots, ended_ms)
				select lease_id, now(), now(), repeat('w', 250), 'q', array_agg(i), array_agg(slot), array_agg(5) from ended where lease_id % 10 = 0 group by lease_id
		)
		insert into jobq.past_lease (id, claimed_at, owner, ended)
			select lease_id, now(), repeat('w', 250), array[5, 5, 5, 5] from ended where lease_id % 10 <> 0 group by lease_id`, jobs, each)
	require.Equal(t, jobs, q.number("select count(*) from jobq.job where state = 'completed'"))
	conn, err := q.pool.Acquire(ctx)
	require.NoError(t, err)
	defer conn.Release()
	for _, statistics := range []string{"absent", "fresh"} {
		for try := range 7 { // beyond the fifth call PostgreSQL may plan for any parameters
			for i, sql := range []string{"select jobq.requeue($1)", "select jobq.delete_job($1)", "select jobq.cancel($1)", "select jobq.job_lock($1, true)"} {
				id := (try*7+i)*101 + len(statistics)*1000
				buffers := explainBuffers(t, conn, sql, id)
				if try > 0 { // the first one reads catalogs, too
					require.Less(t, buffers, most, "%s, statistics %s", sql, statistics)
				}
			}
		}
		q.exec("analyze")
	}
}

// An undo that puts back a job of a lease that retention is about to drop, since it
// does not see the job yet: the job has ended all the same, and does not run for ever.
func TestUndoBesideThePruneOfItsLease(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for _, action := range []string{"delete", "requeue"} {
		t.Run(action, func(t *testing.T) {
			t.Parallel()
			q := setUp(t)
			q.exec("select jobq.enqueue('k')")
			jobs := q.claim("a", 1)
			q.completes(plainly(jobs[0]))
			q.age(20, jobs) // to where there is no partition
			require.Equal(t, 1, q.number("select count(*) from jobq.past_lease_default"))
			audit, _ := q.act(action, nil, jobs[0].ID)
			tx, err := q.pool.Begin(ctx)
			require.NoError(t, err)
			defer func() { _ = tx.Rollback(ctx) }()
			_, err = tx.Exec(ctx, "select * from jobq.undo('ann', $1)", audit)
			require.NoError(t, err)
			_, err = q.queries.DefaultPrune(ctx, db.DefaultPruneParams{Parent: "past_lease", RowCount: 100})
			require.NoError(t, err)
			require.Zero(t, q.number("select count(*) from jobq.past_lease"), "it does not see the job")
			require.NoError(t, tx.Commit(ctx))
			require.Equal(t, 1, q.number("select count(*) from jobq.job where state = 'completed' and finished_at < now() - interval '19 days'"))
		})
	}
}
