package tests

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/db"
)

// awaitedEnd is what step_await says of a job.
type awaitedEnd struct {
	ID     int64
	Kind   string
	State  string
	Result json.RawMessage
	Error  string
}

func stepAwait(conn db.DBTX, job db.JobClaimRow, name string, jobs ...int64) (done bool, ends []awaitedEnd, err error) {
	jobs = append([]int64{}, jobs...)
	err = conn.QueryRow(context.Background(), "select done, coalesce(result, '[]') from jobq.step_await($1, $2, $3, $4)", job.ID, runToken(job), name, jobs).Scan(&done, &ends)
	return done, ends, err
}

// await is a step of the stepper's run that awaits jobs.
func (s *stepper) await(name string, jobs ...int64) (done bool, ends []awaitedEnd) {
	s.Helper()
	done, ends, err := stepAwait(s.pool, s.job, name, jobs...)
	require.NoError(s, err)
	return done, ends
}

func (s *stepper) requireAwaits(name string, jobs ...int64) {
	s.Helper()
	done, _ := s.await(name, jobs...)
	require.False(s, done)
	require.Equal(s, "waiting", s.state())
}

// completesWith ends a job with a result.
func (s *stepper) completesWith(job db.JobClaimRow, result string) {
	s.Helper()
	s.exec("select jobq.complete($1, $2, $3)", job.ID, runToken(job), json.RawMessage(result))
}

// A job that awaits another one goes on when that ends, in whatever order the end and the
// await are done and committed, and not before; and then knows how it has ended.
func TestAwaitMeetsEnd(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for name, way := range jobEnds {
		// E1 and E2 are the end and its commit, A1 and A2 the await's; S is what the janitor does
		// in between.
		for _, order := range []string{"A1 A2 E1 E2", "E1 E2 A1 A2", "A1 E1 E2 A2", "A1 E1 A2 S E2", "E1 A1 E2 A2", "E1 A1 A2 S E2", "A1 A2 S E1 E2"} {
			t.Run(name+"/"+order, func(t *testing.T) {
				t.Parallel()
				s := newStepper(t)
				s.exec("select nextval('jobq.dependency_seq')") // as if it were not the first one
				var other db.JobClaimRow
				if way.waits {
					other.ID = int64(s.number("select jobq.enqueue('k', queue => 'others')"))
				} else {
					other = s.parent()
				}
				awaits, err := s.pool.Begin(ctx)
				require.NoError(t, err)
				defer func() { _ = awaits.Rollback(ctx) }()
				ends, err := s.pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: way.isolation})
				require.NoError(t, err)
				defer func() { _ = ends.Rollback(ctx) }()
				_, err = ends.Exec(ctx, "select count(*) from jobq.dependency") // it has its snapshot, where that stays
				require.NoError(t, err)
				over := false
				for _, step := range strings.Fields(order) {
					switch step {
					case "A1":
						var done bool
						done, _, err = stepAwait(awaits, s.job, "other", other.ID)
						require.Equal(t, over, done)
					case "A2":
						err = awaits.Commit(ctx)
					case "E1":
						err = way.end(ctx, s.queue, ends, other)
					case "E2":
						err, over = ends.Commit(ctx), true
					case "S":
						for range 5 {
							s.settleStep(500)
						}
						if !over {
							require.Equal(t, "waiting", s.state())
						}
					}
					require.NoError(t, err, step)
				}
				if s.state() == "running" {
					s.reap()
				} else {
					s.settleNew(s.job.ID)
				}
				require.Equal(t, "available", s.state())
				s.next()
				done, all := s.await("other", other.ID)
				require.True(t, done)
				require.Len(t, all, 1)
				require.Equal(t, other.ID, all[0].ID)
				if way.state != "gone" {
					require.Equal(t, way.state, all[0].State)
				} else {
					require.NotEqual(t, "completed", all[0].State)
					require.Contains(t, all[0].Error, "it is gone")
				}
				require.Zero(t, s.number("select attempts from jobq.job where id = $1", s.job.ID)-s.number("select count(*) from jobq.attempt where job_id = $1 and outcome = 'lost'", s.job.ID))
			})
		}
	}
}

// Jobs that are over are answered at once, the run goes on, and later runs get the same,
// whatever has become of them.
func TestAwaitOfJobsThatAreOver(t *testing.T) {
	t.Parallel()
	s := newStepper(t)
	good, plain, bad, cancelled := s.parent(), s.parent(), s.parent(), int64(s.number("select jobq.enqueue('c')"))
	s.completesWith(good, `{"n": 1}`)
	s.completes(plainly(plain))
	require.Equal(t, "failed", s.end(bad, db.Ending{Outcome: "failed", Error: "no luck"}))
	s.exec("select jobq.cancel($1)", cancelled)
	want := []awaitedEnd{
		{good.ID, "k", "completed", json.RawMessage(`{"n": 1}`), ""},
		{plain.ID, "k", "completed", json.RawMessage("null"), ""},
		{bad.ID, "k", "failed", json.RawMessage("null"), "no luck"},
		{cancelled, "c", "cancelled", json.RawMessage("null"), ""},
	}
	done, ends := s.await("all", cancelled, good.ID, bad.ID, plain.ID, good.ID)
	require.True(t, done)
	require.Equal(t, want, ends)
	done, ends = s.await("none")
	require.True(t, done)
	require.Empty(t, ends)
	require.Equal(t, "running", s.state())
	require.Zero(t, s.number("select count(*) from jobq.dependency"))
	_, _, err := stepAwait(s.pool, s.job, "all", good.ID)
	require.ErrorContains(t, err, "job 1 has two steps with the name 'all' in one run")
	s.exec("select jobq.delete_job($1)", good.ID)
	s.exec("select jobq.requeue($1)", bad.ID)
	s.exec("select jobq.cancel($1)", bad.ID)
	s.reap()
	s.next()
	_, _, err = stepAwait(s.pool, s.job, "all", good.ID, plain.ID)
	require.ErrorContains(t, err, "step 'all' of job 1 has awaited other jobs (SQLSTATE JQ003)")
	done, ends = s.await("all", good.ID, bad.ID, plain.ID, cancelled)
	require.True(t, done)
	require.Equal(t, want, ends)
}

// Many jobs are awaited by one call and in one wait, which lasts until the last of them is over.
func TestAwaitOfManyJobs(t *testing.T) {
	t.Parallel()
	const count = 1000
	s := newStepper(t)
	s.exec("select jobq.enqueue('c', queue => 'others') from generate_series(1, $1)", count)
	jobs := make([]int64, count)
	for i := range jobs {
		jobs[i] = int64(i + 2)
	}
	s.requireAwaits("all", jobs...)
	require.Equal(t, count, s.number("select count(*) from jobq.dependency where child = 1"))
	s.exec("select jobq.cancel(j) from unnest($1::bigint[]) j", jobs[1:])
	s.settle()
	require.Equal(t, "waiting", s.state())
	s.exec("select jobq.cancel($1)", jobs[0])
	s.settle()
	require.Equal(t, "available", s.state())
	s.next()
	done, ends := s.await("all", jobs...)
	require.True(t, done)
	require.Len(t, ends, count)
	for i, end := range ends {
		require.Equal(t, awaitedEnd{jobs[i], "c", "cancelled", json.RawMessage("null"), ""}, end)
	}
	require.Equal(t, 1, s.number("select count(*) from jobq.attempt where outcome = 'snoozed'"))
}

// What cannot be awaited is refused, and the run goes on.
func TestAwaitIsRefused(t *testing.T) {
	t.Parallel()
	s := newStepper(t)
	other := s.parent()
	s.completesWith(other, `"a result that is not short"`)
	s.requireUndone("taken")
	for call, want := range map[string]string{
		"jobq.step_await($1, $2, 's', null)":                                     "jobs must be ids of jobs, not null (SQLSTATE JQ001)",
		"jobq.step_await($1, $2, 's', '{2, null}')":                              "jobs must be ids of jobs, not null (SQLSTATE JQ001)",
		"jobq.step_await($1, $2, 's', array[2, $1::bigint])":                     "job 1 cannot wait for itself (SQLSTATE JQ001)",
		"jobq.step_await($1, $2, 's', '{2, 4711}')":                              "no such job: 4711 (SQLSTATE JQ002)",
		"jobq.step_await($1, $2, 's', '{0}')":                                    "no such job: 0 (SQLSTATE JQ002)",
		"jobq.step_await($1, $2, '', '{2}')":                                     "the name of a step must be 1 to 255 characters, not 0 (SQLSTATE JQ001)",
		"jobq.step_await($1, $2, 'taken', '{2}')":                                "has used the name 'taken' for a step, and now uses it for jobs that it awaits (SQLSTATE JQ003)",
		"jobq.step_await($1, $2, 's', array(select generate_series(10, 10010)))": "jobs must be at most 10000 in one call, not 10001 (SQLSTATE JQ001)",
	} {
		require.ErrorContains(t, s.refusal("select "+call, s.job.ID, runToken(s.job)), want, call)
	}
	s.exec("create or replace function jobq.awaited_bytes_max() returns integer language sql immutable return 60")
	_, _, err := stepAwait(s.pool, s.job, "large", other.ID)
	require.ErrorContains(t, err, "the results of the jobs that step 'large' awaits must be at most 16 MiB together (SQLSTATE JQ001)")
	s.exec("create or replace function jobq.awaited_bytes_max() returns integer language sql immutable return 20")
	_, _, err = stepAwait(s.pool, s.job, "large", other.ID)
	require.ErrorContains(t, err, "must be at most 16 MiB together (SQLSTATE JQ001)", "before they are put together")
	require.Equal(t, "running", s.state())
}

// Of a job that is gone it is said, as far as it is known, how it had ended.
func TestAwaitOfJobsThatAreGone(t *testing.T) {
	t.Parallel()
	s := newStepper(t)
	unknown, completed, failed, last := s.parent(), s.parent(), s.parent(), int64(s.number("select jobq.enqueue('c', queue => 'others')"))
	s.completesWith(unknown, "1")
	s.exec("select jobq.delete_job($1)", unknown.ID)
	jobs := []int64{unknown.ID, completed.ID, failed.ID, last}
	s.completesWith(completed, "2")
	s.requireAwaits("all", jobs...)
	require.Equal(t, "failed", s.end(failed, db.Ending{Outcome: "failed"}))
	s.settle()
	s.exec("select jobq.delete_job(j) from unnest($1::bigint[]) j", []int64{completed.ID, failed.ID})
	s.settle()
	require.Equal(t, "waiting", s.state())
	s.exec("select jobq.delete_job($1)", last)
	s.settle()
	s.next()
	const gone = "it is gone: it was deleted, or its retention has ended"
	done, ends := s.await("all", jobs...)
	require.True(t, done)
	null := json.RawMessage("null")
	require.Equal(t, []awaitedEnd{
		{unknown.ID, "", "", null, gone}, {completed.ID, "", "", null, gone + "; it had completed"}, {failed.ID, "", "failed", null, gone}, {last, "", "cancelled", null, gone},
	}, ends)
}

// Jobs that are over when their awaiter begins to wait for others are kept for it.
func TestRetentionKeepsAwaitedJobs(t *testing.T) {
	t.Parallel()
	s := newStepper(t)
	over, open := s.parent(), s.parent()
	s.completesWith(over, "1")
	s.requireAwaits("both", over.ID, open.ID)
	require.Equal(t, 1, s.number("select count(*) from jobq.dependency d join jobq.run r on r.id = d.parent and r.lease_id = d.parent_lease where d.parent = $1 and d.parent_state = 'completed'", over.ID))
}

// A job that awaits others is cancelled, deleted or requeued as any that waits. The others go on, and
// when it runs again, it waits for them again.
func TestActingOnAJobThatAwaits(t *testing.T) {
	t.Parallel()
	for action, after := range map[string]string{"cancel": "cancelled", "delete": "deleted", "requeue": "available"} {
		for when, want := range map[string]string{"runs": "waiting", "completes": "available", "fails": "available"} {
			t.Run(action+", the other "+when, func(t *testing.T) {
				t.Parallel()
				s := newStepper(t)
				other := s.parent()
				s.requireAwaits("other", other.ID)
				s.settle()
				audit, jobs := s.act(action, nil, s.job.ID)
				require.Equal(t, acted{audit, s.job.ID, "waiting", after, true, "", ""}, jobs[0])
				require.Equal(t, "running", s.queue.state(other.ID))
				switch when {
				case "completes":
					s.completes(plainly(other))
				case "fails":
					s.end(other, db.Ending{Outcome: "failed"})
				}
				s.settle()
				require.Equal(t, 1, s.number("select count(*) from jobq.undo('ann', $1) u where u.state_after = 'waiting' and u.problem is null", audit))
				s.settle()
				require.Equal(t, want, s.state())
				if want == "waiting" {
					s.exec("select jobq.requeue($1)", s.job.ID)
					s.next()
					s.requireAwaits("other", other.ID)
					s.completes(plainly(other))
					s.settle()
					require.Equal(t, "available", s.state())
				}
			})
		}
	}
}

// An event for which the job has waited, in a step that it never came back to, leaves it alone while
// it awaits others.
func TestEventOfAJobThatAwaits(t *testing.T) {
	t.Parallel()
	s := newStepper(t)
	other := s.parent()
	s.requireAwaits("other", other.ID)
	s.exec(`insert into jobq.step (job_id, name, type, number, attempts, lease_token, claimed_at, started_at, wake_at)
		select x.job_id, 'paid', 'event', 2, 1, p.lease_token, x.claimed_at, x.started_at, 'infinity' from jobq.step x join jobq.pending p on p.id = x.job_id`)
	s.exec("select jobq.emit('paid')")
	require.Equal(t, "waiting", s.state())
	s.exec("select jobq.event_look_again($1)", s.job.ID)
	require.Equal(t, "waiting", s.state())
}

// runsAnyway requeues a child, and claims it, as the job whose steps these are.
func (s *stepper) runsAnyway(id int64) {
	s.Helper()
	s.exec("update jobq.pending set queue = 'default' where id = $1", id)
	s.exec("update jobq.run set queue = 'default' where id = $1", id)
	s.exec("select jobq.requeue($1)", id)
	s.job = s.claim("a", 1)[0]
	require.Equal(s, id, s.job.ID)
}

// A job that awaits others waits for these alone: what was to be of its own parents, without
// which an operator has made it run, has no say any more.
func TestAwaitForgetsParents(t *testing.T) {
	t.Parallel()
	for name, state := range map[string]string{"runs": "", "fails": "cancelled"} {
		t.Run("a parent "+name, func(t *testing.T) {
			t.Parallel()
			s := newStepper(t)
			s.exec("select jobq.cancel($1)", s.job.ID)
			s.end(s.job, db.Ending{Outcome: "cancelled"})
			parent, other := s.parent(), s.parent()
			id := s.child("cancel", parent.ID)
			if state != "" {
				s.end(parent, db.Ending{Outcome: "failed"})
				s.settle()
				require.Equal(t, state, s.queue.state(id))
			}
			s.runsAnyway(id)
			s.requireAwaits("other", other.ID)
			audit, _ := s.act("cancel", nil, id)
			s.exec("select * from jobq.undo('ann', $1)", audit)
			s.settle()
			require.Equal(t, "waiting", s.state())
			s.completes(plainly(other))
			s.settle()
			require.Equal(t, "available", s.state())
		})
	}
}

// A job that is gone is not waited for, also where there is a dependency on it from before, at which
// nobody looks any more.
func TestAwaitForgetsParentsThatAreGone(t *testing.T) {
	t.Parallel()
	s := newStepper(t)
	s.exec("select jobq.cancel($1)", s.job.ID)
	s.end(s.job, db.Ending{Outcome: "cancelled"})
	gone, other := s.parent(), s.parent()
	id := s.child("wait", gone.ID)
	s.exec("select jobq.cancel($1)", gone.ID)
	s.end(gone, db.Ending{Outcome: "cancelled"})
	s.exec("select jobq.delete_job($1)", gone.ID)
	s.settle()
	require.Equal(t, "waiting", s.queue.state(id))
	s.runsAnyway(id)
	s.requireAwaits("both", gone.ID, other.ID)
	s.settle()
	require.Equal(t, "waiting", s.state())
	s.completes(plainly(other))
	s.settle()
	require.Equal(t, "available", s.state())
}

// A job that has failed, and was requeued while its awaiter waits for others, is awaited again.
func TestAwaitOfARequeuedJob(t *testing.T) {
	t.Parallel()
	s := newStepper(t)
	first, second := s.parent(), s.parent()
	jobs := []int64{first.ID, second.ID}
	s.requireAwaits("both", jobs...)
	s.end(first, db.Ending{Outcome: "failed"})
	s.settle()
	s.exec("select jobq.requeue($1)", first.ID)
	s.completes(plainly(second))
	s.settle()
	require.Equal(t, "available", s.state())
	again := s.claim("a", 1)[0]
	require.Equal(t, first.ID, again.ID)
	s.next()
	s.requireAwaits("both", jobs...)
	s.completes(plainly(again))
	s.settle()
	s.next()
	done, ends := s.await("both", jobs...)
	require.True(t, done)
	require.Equal(t, "completed completed", fmt.Sprint(ends[0].State, " ", ends[1].State))
}

// A job that is to be cancelled does not begin to wait.
func TestAwaitOfACancelledRun(t *testing.T) {
	t.Parallel()
	s := newStepper(t)
	other := s.parent()
	s.exec("select jobq.cancel($1)", s.job.ID)
	done, _ := s.await("other", other.ID)
	require.False(t, done)
	require.Equal(t, "cancelled", s.state())
	s.completes(plainly(other))
	s.settle()
	require.Equal(t, "cancelled", s.state())
}

// A job whose await is forgotten waits for what it then awaits, and for nothing else.
func TestStepForgetOfAnAwait(t *testing.T) {
	t.Parallel()
	s := newStepper(t)
	first, second := s.parent(), s.parent()
	require.NoError(t, s.put("spawn", fmt.Sprint(first.ID)))
	s.requireAwaits("spawned", first.ID)
	require.Equal(t, 2, s.number("select jobq.step_forget($1, 'spawn')", s.job.ID))
	s.exec("select jobq.requeue($1)", s.job.ID)
	s.next()
	s.requireUndone("spawn")
	require.NoError(t, s.put("spawn", fmt.Sprint(second.ID)))
	s.requireAwaits("spawned", second.ID)
	s.completes(plainly(second))
	s.settle()
	require.Equal(t, "available", s.state())
	require.Equal(t, "running", s.queue.state(first.ID))
}
