package tests

import (
	"context"
	"encoding/json"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/db"
)

// stepper is a queue with one job, and what its current run says of steps.
type stepper struct {
	*queue
	job db.JobClaimRow
}

func newStepper(t *testing.T) *stepper {
	t.Helper()
	s := &stepper{queue: setUp(t)}
	s.exec("select jobq.enqueue('k', backoff_base => '1 hour')")
	s.next()
	return s
}

// next makes the next run begin.
func (s *stepper) next() {
	s.Helper()
	if s.job.ID > 0 {
		s.exec("update jobq.pending set run_at = now(), position = nextval('jobq.position_seq') where id = $1 and position is null", s.job.ID)
	}
	claimed := s.claim("a", 1)
	require.Len(s, claimed, 1)
	s.job = claimed[0]
}

func (s *stepper) get(name string) (done bool, result string, err error) {
	s.Helper()
	row, err := s.queries.StepGet(context.Background(), s.job.ID, runToken(s.job), name)
	return row.Done, string(row.Result), err
}

func (s *stepper) put(name, result string) error {
	return s.queries.StepPut(context.Background(), db.StepPutParams{JobID: s.job.ID, Token: runToken(s.job), Name: name, Result: json.RawMessage(result)})
}

// requireDone checks that an earlier run has done the step.
func (s *stepper) requireDone(name, want string) {
	s.Helper()
	done, result, err := s.get(name)
	require.NoError(s, err)
	require.True(s, done)
	require.Equal(s, want, result)
}

func (s *stepper) requireUndone(name string) {
	s.Helper()
	done, result, err := s.get(name)
	require.NoError(s, err)
	require.False(s, done)
	require.Empty(s, result)
}

func (s *stepper) sleep(name, delay string) (passed bool) {
	s.Helper()
	require.NoError(s, s.pool.QueryRow(context.Background(), "select jobq.step_sleep($1, $2, $3, $4::text::interval)", s.job.ID, runToken(s.job), name, delay).Scan(&passed))
	return passed
}

func (s *stepper) wait(name string, timeout any) db.StepWaitRow {
	s.Helper()
	row, err := stepWait(s.pool, s.job, name, timeout)
	require.NoError(s, err)
	return row
}

func stepWait(conn db.DBTX, job db.JobClaimRow, name string, timeout any) (row db.StepWaitRow, err error) {
	err = conn.QueryRow(context.Background(), "select done, coalesce(timed_out, false), result from jobq.step_wait($1, $2, $3, $4::text::interval)", job.ID, runToken(job), name, timeout).
		Scan(&row.Done, &row.TimedOut, &row.Result)
	return row, err
}

func (s *stepper) emit(name, payload string) (first bool) {
	s.Helper()
	first, err := s.queries.EventEmit(context.Background(), name, json.RawMessage(payload))
	require.NoError(s, err)
	return first
}

func (s *stepper) state() (state string) {
	s.Helper()
	return s.text("select state::text from jobq.job where id = $1", s.job.ID)
}

// A step is done once, whatever run asks; and a run that comes to a name twice is told
// so, also for a step that an earlier run has done.
func TestStepIsStoredOnce(t *testing.T) {
	t.Parallel()
	s := newStepper(t)
	s.requireUndone("a")
	s.requireUndone("a") // it has failed, and is tried again by the same run
	require.NoError(t, s.put("a", `{"n": 1}`))
	require.ErrorContains(t, s.put("a", "2"), "step 'a' of job 1 is done already")
	_, _, err := s.get("a")
	require.ErrorContains(t, err, "job 1 has two steps with the name 'a' in one run")
	require.NoError(t, s.put("b", "null")) // nobody has asked for it before
	s.requireUndone("c")
	s.reap()
	s.next()
	require.ErrorContains(t, s.put("a", "3"), "done already")
	s.requireDone("a", `{"n": 1}`)
	_, _, err = s.get("a")
	require.ErrorContains(t, err, "two steps with the name 'a' in one run")
	require.ErrorContains(t, err, "SQLSTATE JQ003")
	s.requireDone("b", "null")
	s.requireUndone("c")
	require.NoError(t, s.put("c", "3"))
	require.Equal(t, "a 1 2, b 2 1, c 3 2", s.text("select string_agg(concat_ws(' ', name, number, attempts), ', ' order by number) from jobq.step"))
	require.Equal(t, 3, s.number("select count(*) from jobq.step where lease_token = $1 and finished_at >= started_at", s.job.LeaseToken))
}

// A step that a run begins, and another one stores without having asked, counts as used
// by that one.
func TestStepPutWithoutGet(t *testing.T) {
	t.Parallel()
	s := newStepper(t)
	s.requireUndone("a")
	s.reap()
	s.next()
	require.NoError(t, s.put("a", "1"))
	_, _, err := s.get("a")
	require.ErrorContains(t, err, "two steps")
}

// A name is of a step, a sleep or an event, and of one only.
func TestStepNamesHaveOneType(t *testing.T) {
	t.Parallel()
	s := newStepper(t)
	s.requireUndone("a")
	for call, want := range map[string]string{
		"jobq.step_sleep($1, $2, 'a', '1 s')":                                            "has used the name 'a' for a step, and now uses it for a sleep",
		"jobq.step_wait($1, $2, 'a')":                                                    "has used the name 'a' for a step, and now uses it for an event",
		"jobq.step_get($1, $2, '')":                                                      "the name of a step must be 1 to 255 characters, not 0",
		"jobq.step_get($1, $2, null)":                                                    "the name of a step must be 1 to 255 characters, not null",
		"jobq.step_put($1, $2, repeat('x', 256))":                                        "must be 1 to 255 characters, not 256",
		"jobq.step_put($1, $2, 'a', to_jsonb(repeat('x', 1100000)))":                     "the result of a step 'a' must be at most 1048576 bytes",
		"jobq.step_sleep($1, $2, 's', null)":                                             "delay must not be null",
		"jobq.step_sleep($1, $2, 's', '-1 s')":                                           "delay must be 0 to 10 years",
		"jobq.step_wait($1, $2, 's', '11 years')":                                        "timeout must be 0 to 10 years",
		"jobq.emit('')::text || $1::bigint || $2::text":                                  "the name of an event must be 1 to 255 characters",
		"jobq.emit('e', to_jsonb(repeat('x', 1100000)))::text || $1::bigint || $2::text": "the payload of an event 'e' must be at most 1048576 bytes",
	} {
		require.ErrorContains(t, s.refusal("select "+call, s.job.ID, runToken(s.job)), want, call)
	}
	s.exec("update jobq.step set number = jobq.steps_max()")
	_, _, err := s.get("b")
	require.ErrorContains(t, err, "job 1 has 10000 steps, which is the limit")
}

// A sleep ends the run, holds no slot, uses no attempt, and lasts from its first call,
// whoever makes the job run before it is over.
func TestStepSleep(t *testing.T) {
	t.Parallel()
	s := newStepper(t)
	require.False(t, s.sleep("night", "8 hours"))
	require.Equal(t, "scheduled", s.state())
	wakes := func() string {
		require.Equal(t, 1, s.number("select count(*) from jobq.job j join jobq.step s on s.job_id = j.id where j.attempts = 0 and s.name = 'night' and j.run_at - s.wake_at between '-1 ms' and '1 min'"))
		return s.text("select wake_at::text from jobq.step")
	}
	until := wakes()
	s.next()
	require.False(t, s.sleep("night", "1 second"))
	require.Equal(t, until, wakes(), "the first call counts")
	s.exec("update jobq.step set wake_at = now()")
	s.next()
	require.True(t, s.sleep("night", "8 hours"))
	s.reap()
	s.next()
	require.True(t, s.sleep("night", "8 hours"), "over once is over for good")
	require.True(t, s.sleep("moment", "0"))
	require.Equal(t, 2, s.number("select count(*) from jobq.attempt where outcome = 'snoozed'"))
}

// Of long results, a list of steps has only how long they are: long as text, or as stored.
func TestStepListCutsResults(t *testing.T) {
	t.Parallel()
	s := newStepper(t)
	s.exec("select jobq.step_put($1, $2, 'small', '{\"a\": 1}')", s.job.ID, runToken(s.job))
	s.exec("select jobq.step_put($1, $2, 'long', to_jsonb((select string_agg(md5(i::text), '') from generate_series(1, 200) i)))", s.job.ID, runToken(s.job))
	s.exec("select jobq.step_put($1, $2, 'packed', to_jsonb(repeat('x', 100000)))", s.job.ID, runToken(s.job))
	s.requireUndone("begun")
	list, err := s.queries.StepList(context.Background(), 4096, s.job.ID, 4)
	require.NoError(t, err)
	require.Len(t, list, 4)
	slices.Reverse(list)
	require.JSONEq(t, `{"a": 1}`, string(list[0].Result))
	require.Greater(t, list[1].ResultBytes, int32(4096))
	require.Less(t, list[2].ResultBytes, int32(4096))
	require.Positive(t, list[2].ResultBytes)
	for _, step := range list[1:] {
		require.Nil(t, step.Result, step.Name)
	}
	require.Zero(t, list[3].ResultBytes)
}

// Operators make a job do a step again, and those after it; not of a job that runs.
func TestStepForget(t *testing.T) {
	t.Parallel()
	s := newStepper(t)
	for _, name := range []string{"a", "b", "c"} {
		require.NoError(t, s.put(name, "1"))
	}
	require.ErrorContains(t, s.refusal("select jobq.step_forget($1, 'b')", s.job.ID), "job 1 is running")
	s.end(s.job, db.Ending{Outcome: "failed", Error: "e", Final: true})
	require.ErrorContains(t, s.refusal("select jobq.step_forget($1, 'd')", s.job.ID), "job 1 has no step 'd'")
	require.ErrorContains(t, s.refusal("select jobq.step_forget(99, 'd')"), "no job 99")
	require.Equal(t, 2, s.number("select jobq.step_forget($1, 'b')", s.job.ID))
	s.exec("select jobq.requeue($1)", s.job.ID)
	s.next()
	s.requireDone("a", "1")
	s.requireUndone("b")
	require.NoError(t, s.put("b", "2"))
	require.Equal(t, "a 1, b 2", s.text("select string_agg(concat_ws(' ', name, number), ', ' order by number) from jobq.step"))
}

// A job whose step is forgotten while it waits for an event still waits for it, and comes to it
// after the steps that it does again.
func TestStepForgetKeepsTheWait(t *testing.T) {
	t.Parallel()
	s := newStepper(t)
	require.NoError(t, s.put("charge", "1"))
	require.False(t, s.wait("paid", "1 hour").Done)
	require.Equal(t, 2, s.number("select jobq.step_forget($1, 'charge')", s.job.ID))
	s.next()
	s.requireUndone("charge")
	require.NoError(t, s.put("charge", "2"))
	require.False(t, s.wait("paid", "1 hour").Done)
	require.Equal(t, 1, s.number("select jobq.step_forget($1, 'paid')", s.job.ID))
	require.True(t, s.emit("paid", "7"))
	require.Equal(t, "available", s.state())
	s.next()
	require.Equal(t, db.StepWaitRow{Done: true, Result: json.RawMessage("7")}, s.wait("paid", nil))
	s.requireDone("charge", "2")
}

// Steps go when their job is gone: of one that was deleted only when no undo can bring
// it back, of one that retention has dropped, and of no other.
func TestStepPrune(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	q := setUp(t)
	q.exec("select jobq.enqueue('k') from generate_series(1, 5)")
	running := q.claim("a", 1)[0].ID
	q.exec("select jobq.cancel(2)")
	q.exec("select * from jobq.act('ann', 'delete', '{3}', '{}', '{}', null, 0, null)")
	q.exec("select jobq.delete_job(4)")
	q.exec(`insert into jobq.step (job_id, started_at, lease_token, claimed_at, number, type, name)
		select j, now() - interval '8 days', 0, now(), n, 'step', 'step ' || n from unnest(array[1, 2, 3, 4, 5, 77, 78]) j, generate_series(1, 3) n`)
	q.exec("update jobq.step set started_at = now() where job_id = 78 and number = 3")
	require.EqualValues(t, 1, running)
	kept := func() string {
		return q.text("select string_agg(s.job_id || ': ' || s.steps, ', ' order by s.job_id) from (select s.job_id, count(*) as steps from jobq.step s group by 1) s")
	}
	prune := func(count int32) (looks int) {
		var place db.StepPruneRow
		for {
			var err error
			place, err = q.queries.StepPrune(ctx, place.LastJob, place.LastName, count)
			require.NoError(t, err)
			if looks++; place.Looked < int64(count) {
				return looks
			}
		}
	}
	require.Equal(t, 5, prune(5))
	require.Equal(t, "1: 3, 2: 3, 3: 3, 5: 3, 78: 1", kept(), "the last page has the step of 78 that is too young to ask")
	q.exec("delete from jobq.audit")
	prune(100)
	require.Equal(t, "1: 3, 2: 3, 5: 3, 78: 1", kept())
	q.exec("update jobq.step set started_at = now() - interval '8 days'")
	prune(100)
	require.Equal(t, "1: 3, 2: 3, 5: 3", kept())
}
