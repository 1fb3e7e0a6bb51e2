package tests

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/db"
)

// lostRun has the only job claimed, by a worker that runs nothing else where it has to be, and lost. It returns the job as it was
// claimed, and its state afterwards.
func (q *queue) lostRun() (claimed db.JobClaimRow, state string) {
	q.Helper()
	jobs := q.claim("a", 1)
	if len(jobs) == 0 {
		q.due()
		alone := q.alone("k")
		require.Len(q, alone, 1)
		jobs = []db.JobClaimRow{alone[0].JobClaimRow}
	}
	lost := states(q.lose())
	require.Len(q, lost, 1)
	return jobs[0], lost[0]
}

// With max_lost, of the job or of its queue, a lost run counts apart and uses no attempt, so a job with one attempt runs again.
// One loss more than that fails it, and its error says so. The run is in the history as the attempt that it was. A requeue
// begins to count anew.
func TestMaxLost(t *testing.T) {
	t.Parallel()
	const ofQueue = "select jobq.act_queue_set('ann', 'default', '{\"max_lost\": 3}')"
	for name, given := range map[string]string{
		"enqueue":        "select jobq.enqueue('k', max_attempts => 1, max_lost => 3)",
		"enqueue, json":  "select jobq.enqueue('k', '{}'::json, max_attempts => 1, max_lost => 3)",
		"enqueue, text":  "select jobq.enqueue('k', '{}', max_attempts => 1, max_lost => 3)",
		"enqueue_many":   `select * from jobq.enqueue_many('[{"kind": "k", "max_attempts": 1, "max_lost": 3}]'::jsonb)`,
		"enqueue_arrays": "select jobq.enqueue('k', max_attempts => 1, max_lost => 3, uniqueness => '{\"by\": [\"a\"]}'::jsonb, args => '{\"a\": 1}'::jsonb)",
		"insert":         "insert into jobq.pending (kind, max_attempts, max_lost) values ('k', 1, 3)",
		"queue":          "select jobq.enqueue('k', max_attempts => 1)",
		"job and queue":  "select jobq.enqueue('k', max_attempts => 1, max_lost => 3)",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := setUp(t)
			switch name {
			case "queue":
				q.exec(ofQueue)
			case "job and queue":
				q.set(`{"max_lost": 1}`)
			}
			q.exec(given)
			for lost := 1; lost <= 3; lost++ {
				job, state := q.lostRun()
				require.EqualValues(t, lost-1, job.Lost)
				require.Equal(t, []int{0, lost, 3}, []int{
					q.number("select attempts from jobq.job"), q.number("select lost from jobq.job"), q.number("select max_lost from jobq.job"),
				})
				if lost == 1 {
					require.Equal(t, "available", state, "the only attempt is not used: nothing says that the job is the cause")
				} else {
					require.Equal(t, "scheduled", state, "a suspect, as any job that was lost twice in a row")
				}
			}
			_, state := q.lostRun()
			require.Equal(t, "failed", state)
			require.Equal(t, "failed 0 4 4", q.text("select concat_ws(' ', state, attempts, lost, crashes) from jobq.job"))
			require.Contains(t, q.text("select last_error from jobq.job"), "; it was lost 4 times, and max_lost is 3")
			require.Equal(t, "0 1 4 3", q.text("select concat_ws(' ', facts ->> 'attempts', facts ->> 'max_attempts', facts ->> 'lost', facts ->> 'max_lost') from jobq.why((select id from jobq.job))"))
			require.Equal(t, 4, q.number("select count(*) from jobq.attempt where outcome = 'lost' and number = 1"))
			require.Equal(t, "1 3 4", q.text("select concat_ws(' ', sum(failed), sum(retried), sum(lost)) from jobq.stats"))
			q.exec("select jobq.requeue((select id from jobq.job))")
			require.Equal(t, "scheduled 0 0", q.text("select concat_ws(' ', state, attempts, lost) from jobq.job"), "still a suspect")
			_, state = q.lostRun()
			require.Equal(t, "scheduled", state)
		})
	}
}

// What is no loss of a run counts as before: an error uses an attempt, an end takes the suspicion away, a worker that an operator
// says to be lost costs nothing, and a job that was asked to stop is cancelled. Without max_lost a loss uses an attempt again.
func TestMaxLostBesideOtherEnds(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	ctx := context.Background()
	now := db.DelayOf(0)
	const counted = "select concat_ws(' ', state, attempts, lost, crashes) from jobq.job"
	q.set(`{"max_lost": 2}`)
	q.exec("select jobq.enqueue('k', max_attempts => 3)")
	q.lostRun()
	require.Equal(t, "available 0 1 1", q.text(counted))
	require.Equal(t, "available", q.end(q.claim("a", 1)[0], db.Ending{Outcome: "failed", Error: "e", Delay: now}))
	require.Equal(t, "available 1 1 0", q.text(counted))
	q.claim("a", 1)
	q.lostWorker("a")
	_, err := q.schema.Reap(ctx, q.pool, nil, 100, "test")
	require.NoError(t, err)
	require.Equal(t, "available 1 1 0", q.text(counted))
	require.Equal(t, 1, q.number("select count(*) from jobq.attempt where error like '%says ann%' and number = 2"))
	q.set(`{"max_lost": null}`)
	q.lostRun()
	require.Equal(t, "available 2 1 1", q.text(counted))
	q.set(`{"max_lost": 1}`)
	job := q.claim("a", 1)[0]
	q.exec("select jobq.cancel($1)", job.ID)
	require.Equal(t, []string{"cancelled"}, states(q.lose()), "even if it was the last loss")
	require.Equal(t, "cancelled 2 2 2", q.text(counted))
}

// A job that was lost may fail at its next loss, so it does not count as begun before it begins, whatever attempts it has left. What
// has not begun is not counted.
func TestMaxLostOfJobsThatHaveNotBegun(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	q.set(`{"max_lost": 1}`)
	q.exec("select jobq.enqueue('k', priority => i) from generate_series(0, 1) i")
	for _, lost := range []string{"null", "1"} {
		q.exec("update jobq.pending set crashes = 0, lost = " + lost + " where priority = 1")
		jobs := q.exchange(db.Exchange{Owner: "a", ClaimsAhead: true, SlotsFree: 1, BeginSoon: 2, Claim: &db.JobClaimParams{
			Lease: hour, Owner: "a", Queue: "default", Kinds: []string{"k"}, JobCount: 2,
		}}).Claimed
		require.Len(t, jobs, 2)
		begun := map[string]int{"null": 2, "1": 1}[lost]
		require.Equal(t, begun, q.number("select begun from jobq.lease"), fmt.Sprintf("lost %s", lost))
		q.exec("update jobq.lease set begun = 1")
		require.ElementsMatch(t, []string{"available", "available"}, states(q.lose()))
		q.exec("update jobq.pending set crashes = 0, lost = null where priority = 0")
		require.Equal(t, map[string]int{"null": 0, "1": 1}[lost], q.number("select lost from jobq.job where priority = 1"))
	}
}

// Limits of max_lost, whichever way it comes in.
func TestMaxLostLimits(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	for call, problem := range map[string]string{
		"select jobq.enqueue('k', max_lost => 0)":                              "max_lost must be 1 to 32767, not 0",
		"select jobq.enqueue('k', max_lost => 32768)":                          "max_lost must be 1 to 32767, not 32768",
		`select * from jobq.enqueue_many('[{"kind": "k", "max_lost": 0}]')`:    "jobs[0]: max_lost must be 1 to 32767, not 0",
		`select * from jobq.enqueue_many('[{"kind": "k", "max_lost": "x"}]')`:  "max_lost must be a whole number, 1 to 32767",
		"insert into jobq.pending (kind, max_lost) values ('k', 0)":            "max_lost must be 1 to 32767",
		"select jobq.act_queue_set('ann', 'default', '{\"max_lost\": 0}')":     "max_lost must be 1 to 32767",
		"select jobq.act_queue_set('ann', 'default', '{\"max_lost\": 32768}')": "max_lost must be 1 to 32767",
	} {
		require.ErrorContains(t, q.refusal(call), problem, call)
	}
	q.exec("select jobq.enqueue('k', max_lost => 32767)")
	q.exec("update jobq.pending set lost = 32767, crashes = 32767, position = null")
	_, state := q.lostRun()
	require.Equal(t, "failed", state)
	require.Contains(t, q.text("select last_error from jobq.job"), "it was lost 32768 times, and max_lost is 32767")
}
