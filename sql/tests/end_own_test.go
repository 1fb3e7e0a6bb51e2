package tests

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/pgtest"
)

// runToken is what a program calls jobq.complete and its like with.
func runToken(job db.JobClaimRow) string {
	return db.RunToken(pgtest.RunKey, job.LeaseToken, job.StartedAt.Time, job.Slot)
}

// ownCalls are what a program may say of its run.
var ownCalls = map[string]string{
	"complete":   "select jobq.complete($1, $2, '{\"a\": 1}')",
	"fail":       "select jobq.fail($1, $2, 'e')",
	"snooze":     "select jobq.snooze($1, $2, until => now() + interval '1 h')",
	"progress":   "select jobq.progress($1, $2, 50, 's', 'm')",
	"checkpoint": "select jobq.checkpoint($1, $2, '{\"p\": 1}')",
	"step_get":   "select jobq.step_get($1, $2, 's')",
	"step_put":   "select jobq.step_put($1, $2, 's', '1')",
	"step_sleep": "select jobq.step_sleep($1, $2, 's', '1 h')",
	"step_wait":  "select jobq.step_wait($1, $2, 's', '1 h')",
	"step_await": "select jobq.step_await($1, $2, 's', array[jobq.enqueue('k', queue => 'elsewhere')])",
}

// goesOn says whether the run goes on after a call of ownCalls.
func goesOn(name string) bool {
	return slices.Contains([]string{"progress", "checkpoint", "step_get", "step_put"}, name)
}

// refusal is what a call of these is answered with.
func (q *queue) refusal(sql string, args ...any) error {
	q.Helper()
	_, err := q.pool.Exec(context.Background(), sql, args...)
	return err
}

// A program's call is refused, and leaves no trace, when its token is not that of the
// run: after a reap, while the job runs again, of a lease with the same id that was claimed at
// another time, of another lease, and when the run has ended in whatever way.
func TestOwnCallsAreFenced(t *testing.T) {
	t.Parallel()
	for name, call := range ownCalls {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := setUp(t)
			refused := func(why string, id int64, token, code string) {
				t.Helper()
				before := q.everything()
				require.ErrorContains(t, q.refusal(call, id, token), "SQLSTATE "+code, why)
				require.Equal(t, before, q.everything(), why)
			}
			q.exec("select jobq.enqueue('k')")
			first := q.claim("a", 1)[0]
			q.reap()
			refused("after the reap", first.ID, runToken(first), "JQ005")
			q.exec("select jobq.enqueue('k')") // another job of the lease, which keeps that open
			together := sorted(q.claim("a", 2))
			require.Len(t, together, 2)
			second := together[0]
			refused("the run before", second.ID, runToken(first), "JQ005")
			other := second
			other.StartedAt.Time = other.StartedAt.Time.Add(time.Microsecond)
			refused("claimed at another time", second.ID, runToken(other), "JQ005")
			other = second
			other.LeaseToken++
			refused("another lease", second.ID, runToken(other), "JQ005")
			refused("another job", second.ID+7, runToken(second), "JQ005")
			refused("a job of the same claim", second.ID, runToken(together[1]), "JQ005")
			other = second
			other.Slot = 0
			refused("no slot", second.ID, runToken(other), "JQ005")
			for _, bad := range []string{"", "7", fmt.Sprint(second.LeaseToken), runToken(second) + "00000", strings.ToUpper(runToken(second)), "0" + runToken(second), fmt.Sprintf("%d.%d", second.LeaseToken, second.StartedAt.Time.UnixMicro()), "a.b", "-1.2", runToken(second) + "\n"} {
				refused("token "+bad, second.ID, bad, "JQ001")
			}
			require.ErrorContains(t, q.refusal(call, nil, runToken(second)), "job_id must not be null")
			require.ErrorContains(t, q.refusal(call, second.ID, nil), "token must be a run token")
			q.exec("update jobq.lease set lost_at = now()")
			refused("lease lost", second.ID, runToken(second), "JQ005")
			q.exec("update jobq.lease set lost_at = null")

			q.exec(call, second.ID, runToken(second)) // with the right one it is accepted
			if q.number("select count(*) from jobq.job where id = $1 and state = 'running'", second.ID) == 1 {
				require.True(t, writes["complete"](q, at(second), "a"), "plainly: the lease alone knows")
			}
			refused("the run is over", second.ID, runToken(second), "JQ005")
		})
	}
}

// An end that a program stores itself is as one that its worker stores: what becomes of
// the job, what is kept of the attempt, and what is counted.
func TestOwnEndsAreAsTheWorkers(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 1500) + "\nend"
	later, now := db.DelayOf(time.Hour), db.DelayOf(0)
	for name, test := range map[string]struct {
		maxAttempts int
		cancelled   bool
		call        string
		ending      db.Ending
	}{
		"complete":                   {25, false, "jobq.complete($1, $2, '1')", db.Ending{Outcome: "completed"}},
		"complete, to be cancelled":  {25, true, "jobq.complete($1, $2, '1')", db.Ending{Outcome: "completed"}},
		"fail":                       {25, false, "jobq.fail($1, $2, 'e')", db.Ending{Outcome: "failed", Error: "e"}},
		"fail, a long error":         {25, false, "jobq.fail($1, $2, '" + long + "')", db.Ending{Outcome: "failed", Error: long}},
		"fail, at once":              {25, false, "jobq.fail($1, $2, 'e', '0')", db.Ending{Outcome: "failed", Error: "e", Delay: now}},
		"fail, later":                {25, false, "jobq.fail($1, $2, 'e', delay => '1 h')", db.Ending{Outcome: "failed", Error: "e", Delay: later}},
		"fail, last attempt":         {1, false, "jobq.fail($1, $2, 'e')", db.Ending{Outcome: "failed", Error: "e"}},
		"fail, for good":             {25, false, "jobq.fail($1, $2, 'e', final => true)", db.Ending{Outcome: "failed", Error: "e", Final: true}},
		"fail, to be cancelled":      {25, true, "jobq.fail($1, $2, 'e')", db.Ending{Outcome: "failed", Error: "e"}},
		"last fail, to be cancelled": {1, true, "jobq.fail($1, $2, 'e')", db.Ending{Outcome: "failed", Error: "e"}},
		"fail without a reason":      {25, false, "jobq.fail($1, $2, '')", db.Ending{Outcome: "failed", Error: "the handler gave no reason"}},
		"snooze":                     {25, false, "jobq.snooze($1, $2, '1 h')", db.Ending{Outcome: "snoozed", Delay: later}},
		"snooze until":               {25, false, "jobq.snooze($1, $2, until => now() + interval '1 h')", db.Ending{Outcome: "snoozed", Delay: later}},
		"snooze until before":        {25, false, "jobq.snooze($1, $2, until => '2001-01-01')", db.Ending{Outcome: "snoozed", Delay: now}},
		"snooze, last attempt":       {1, false, "jobq.snooze($1, $2, '1 h')", db.Ending{Outcome: "snoozed", Delay: later}},
		"snooze, to be cancelled":    {25, true, "jobq.snooze($1, $2, '1 h')", db.Ending{Outcome: "snoozed", Delay: later}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := setUp(t)
			// Of each, what does not tell when it was, nor which of the two jobs it is.
			seen := func(queue string) (is string) {
				require.NoError(t, q.pool.QueryRow(context.Background(), `select jsonb_pretty(jsonb_build_object(
					'job', (select to_jsonb(j) - '{id, queue, unique_key, run_at, created_at, started_at, finished_at, lease_token, cancel_requested_at}'::text[]
						|| jsonb_build_object('ten minutes', case when $2 and j.state in ('available', 'scheduled') then round(extract(epoch from j.run_at - now()) / 600) end,
							'finished', j.finished_at is not null) from jobq.job j where j.queue = $1),
					'attempts', (select jsonb_agg(to_jsonb(a) - '{job_id, finished_at, started_at, lease_token}'::text[])
						from jobq.attempt a where a.outcome <> 'completed' and a.job_id = (select j.id from jobq.job j where j.queue = $1)),
					'stats', (select to_jsonb(s) - '{minute, queue, run_seconds, wait_seconds}'::text[] from jobq.stats s where s.queue = $1),
					'keys', (select count(*) from jobq.unique_key u where u.key = $1),
					'progress', (select count(*) from jobq.progress p join jobq.job j on j.id = p.job_id where j.queue = $1 and j.state <> 'running')))`, queue, test.ending.Delay != db.Delay{}).Scan(&is))
				return is
			}
			run := func(queue string) db.JobClaimRow {
				q.exec("select jobq.enqueue('k', queue => $1, max_attempts => $2::integer, unique_key => $1, backoff_base => '1 hour')", queue, test.maxAttempts)
				job := q.exchange(db.Exchange{Owner: "a", Claim: &db.JobClaimParams{Lease: hour, Owner: "a", Queue: queue, Kinds: []string{"k"}, JobCount: 1}}).Claimed[0]
				_, err := q.queries.RunCheckpoint(context.Background(), db.RunCheckpointParams{Checkpoint: []byte(`{"p": 2}`), ID: job.ID, Token: job.LeaseToken, Owner: "a", ClaimedAt: job.StartedAt})
				require.NoError(t, err)
				if test.cancelled {
					q.exec("select jobq.cancel($1)", job.ID)
				}
				return job
			}
			own, workers := run("own"), run("worker")
			q.exec("select "+test.call, own.ID, runToken(own))
			if test.ending.Outcome == "completed" {
				q.exchange(db.Exchange{Owner: "a", Completions: []db.Completion{{Slot: at(workers), Kind: "k", OnRow: true, Result: []byte("1")}}})
			} else {
				q.end(workers, test.ending)
			}
			require.JSONEq(t, seen("worker"), seen("own"))
			require.Equal(t, 1, q.number("select count(*) from jobq.attempt where job_id = $1 and lease_token = $2 and worker_id = 'a' and outcome = $3::jobq.attempt_outcome and started_at = $4",
				own.ID, own.LeaseToken, test.ending.Outcome, own.StartedAt), "the worker looks for it")

			// What the worker says of it afterwards is refused, and its lease is told.
			answer := q.exchange(db.Exchange{Owner: "a", Endings: []db.Ending{{Slot: at(own), Outcome: "failed", Error: "late", Started: true}}})
			require.Empty(t, answer.Ended)
			require.Empty(t, answer.Busy)
			require.Empty(t, answer.Unrecorded)
			require.Zero(t, q.leases())
			require.JSONEq(t, seen("worker"), seen("own"))
		})
	}
}

// While a program's transaction is open, its lease is extended, what its worker reports
// of the run does not wait, and reapers pass the run by. Whether it commits or not, the
// job ends once.
func TestOwnCallsHoldUpNobody(t *testing.T) {
	t.Parallel()
	for name, call := range ownCalls {
		for _, commits := range []bool{true, false} {
			t.Run(fmt.Sprint(name, ", commit ", commits), func(t *testing.T) {
				t.Parallel()
				ctx := context.Background()
				l := leaseOf(setUp(t), 2)
				job := l.jobs[1]
				require.True(t, writes["checkpoint"](l.queue, at(job), "a"))
				tx, err := l.pool.Begin(ctx)
				require.NoError(t, err)
				defer func() { _ = tx.Rollback(ctx) }()
				_, err = tx.Exec(ctx, call, job.ID, runToken(job))
				require.NoError(t, err)
				require.Equal(t, db.LeaseOK, l.extend("a", at(job), time.Hour))
				require.False(t, writes["progress"](l.queue, at(job), "a"), "it would wait for the row of progress")
				_, err = l.schema.Exchange(ctx, l.pool, db.Exchange{Owner: "a", Endings: []db.Ending{{Slot: at(job), Outcome: "failed", Error: "e", Started: true}}})
				require.ErrorIs(t, err, db.ErrBusy, "who knows what becomes of it")
				require.Equal(t, 1, l.lose(100), "the other job is taken, the lease waits")
				require.Equal(t, 1, l.leases())
				require.Zero(t, l.lose(100))
				if commits {
					require.NoError(t, tx.Commit(ctx))
				} else {
					require.NoError(t, tx.Rollback(ctx))
				}
				ends := commits && !goesOn(name)
				taken := 1
				if ends {
					taken = 0
				}
				require.Equal(t, taken, l.lose(100))
				require.Zero(t, l.leases())
				require.Equal(t, 1, l.number("select count(*) from jobq.attempt where job_id = $1", job.ID))
				fate, err := l.queries.RunFate(ctx, fateOf(job))
				require.NoError(t, err)
				require.Equal(t, ends, fate.Outcome != "")
				require.Equal(t, ends && name == "complete", fate.Completed)
				plain := fateOf(job)
				plain.EndsItself = false
				unlooked, err := l.queries.RunFate(ctx, plain)
				require.NoError(t, err)
				require.Equal(t, db.RunFateRow{Held: fate.Held, Completed: fate.Completed}, unlooked, "no attempt is looked for")
				require.False(t, fate.Held)
				if name == "checkpoint" && commits {
					require.Equal(t, 1, l.number("select count(*) from jobq.job where id = $1 and checkpoint = '{\"p\": 1}'", job.ID), "the next run begins with it")
				}
			})
		}
	}
}

// A program's call between a reaper's snapshot and its locks counts: the run is
// left for the next pass, which finds what was stored.
func TestReapMeetsOwnCalls(t *testing.T) {
	t.Parallel()
	for name, call := range ownCalls {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := leaseOf(setUp(t), 1)
			job := l.jobs[1]
			l.expire()
			taken := l.reapMeanwhile(func() { l.exec(call, job.ID, runToken(job)) })
			switch name {
			case "checkpoint":
				require.Zero(t, taken)
				require.Equal(t, 1, l.lose(100))
				require.Equal(t, 1, l.number("select count(*) from jobq.job where state = 'available' and checkpoint = '{\"p\": 1}'"))
			case "progress": // of which nothing is kept
				require.Equal(t, 1, taken)
			case "step_get", "step_put": // the next run finds what was stored
				require.Equal(t, 1, taken)
				require.Equal(t, 1, l.number("select count(*) from jobq.step where name = 's' and (finished_at is not null) = $1", name == "step_put"))
			default:
				require.Zero(t, taken)
				require.Zero(t, l.lose(100))
				require.Equal(t, 1, l.number("select count(*) from jobq.attempt where outcome <> 'lost'"))
			}
			require.Zero(t, l.leases())
		})
	}
}

// A program's call waits for a reaper that has the run, and is then refused.
func TestOwnCallAfterReaper(t *testing.T) {
	t.Parallel()
	for name, call := range ownCalls {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := context.Background()
			l := leaseOf(setUp(t), 1)
			l.expire()
			tx, err := l.pool.Begin(ctx)
			require.NoError(t, err)
			reaped, err := l.schema.Reap(ctx, tx, nil, 10, "test")
			require.NoError(t, err)
			require.Len(t, reaped, 1)
			refusal := make(chan error, 1)
			go func() { refusal <- l.refusal(call, l.jobs[1].ID, runToken(l.jobs[1])) }()
			l.awaitLock()
			require.NoError(t, tx.Commit(ctx))
			require.ErrorContains(t, <-refusal, "SQLSTATE JQ005")
			require.Equal(t, "available", l.state(1))
		})
	}
}

// A lost lease aborts the program's transaction, and with it the effect.
func TestOwnEndAndEffect(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := leaseOf(setUp(t), 2)
	l.exec("create table public.effect (n bigint)")
	effect := func(slot int16) error {
		return pgx.BeginFunc(ctx, l.pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, "insert into public.effect values ($1)", l.jobs[slot].ID); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, "select jobq.complete($1, $2)", l.jobs[slot].ID, runToken(l.jobs[slot]))
			return err
		})
	}
	require.NoError(t, effect(1))
	require.Equal(t, 1, l.lose(100), "only the other one is open")
	require.ErrorContains(t, effect(2), "this run has ended, or its lease is lost")
	require.Equal(t, 1, l.number("select count(*) from public.effect where n = $1", l.jobs[1].ID))
	require.Equal(t, 1, l.number("select count(*) from public.effect"))
	require.Equal(t, []string{"completed", "available"}, l.states())
}

// What is beyond its limit is refused in one line that says what the limit is.
func TestOwnCallLimits(t *testing.T) {
	t.Parallel()
	l := leaseOf(setUp(t), 1)
	for call, want := range map[string]string{
		"jobq.complete($1, $2, to_jsonb(repeat('x', 1100000)))":  "result must be at most 1048576 bytes",
		"jobq.checkpoint($1, $2, to_jsonb(repeat('x', 100000)))": "checkpoint must be at most 98304 bytes",

		"jobq.fail($1, $2, 'e', '-1 s')":                                     "delay must be 0 to 10 years",
		"jobq.fail($1, $2, 'e', '11 years')":                                 "delay must be 0 to 10 years",
		"jobq.snooze($1, $2)":                                                "either a delay or until",
		"jobq.snooze($1, $2, '1 s', now())":                                  "either a delay or until",
		"jobq.snooze($1, $2, '-1 s')":                                        "delay must be 0 to 10 years",
		"jobq.snooze($1, $2, until => now() + interval '11 years')":          "the time to until must be 0 to 10 years",
		"jobq.progress($1, $2, 'NaN', repeat('s', 9999), repeat('m', 9999))": "",
		"jobq.progress($1, $2, 1e300)":                                       "",
	} {
		err := l.refusal("select "+call, l.jobs[1].ID, runToken(l.jobs[1]))
		if want == "" {
			require.NoError(t, err, call)
			continue
		}
		require.ErrorContains(t, err, want, call)
		require.ErrorContains(t, err, "SQLSTATE JQ001", call)
	}
	require.Equal(t, 1, l.number("select count(*) from jobq.progress where percent = 100 and char_length(stage) = 128 and char_length(message) = 1024"))
	require.Equal(t, "running", l.state(1))
}
