package monitor_test

import (
	"context"
	"fmt"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/jobtest"
	"github.com/jobq-dev/jobq/monitor"
)

// suspended has a job end its run by a call of the functions for durable steps, of which call
// has the name and what follows the run token: "step_wait '%s', 'paid'".
func (p planted) suspended(function, rest string) int64 {
	p.Helper()
	p.serve("w", 4, "greeting")
	p.janitor()
	id := p.enqueue(jobq.EnqueueOptions{})
	p.step(id, function, rest)
	return id
}

// step claims the job and makes the call.
func (p planted) step(id int64, function, rest string) {
	p.Helper()
	job := p.Claim("q", 1)[0]
	require.Equal(p, id, job.ID)
	p.exec(fmt.Sprintf("select jobq.%s($1, $2, %s)", function, rest), id, jobtest.RunToken(job))
	require.Equal(p, jobq.StateScheduled, jobtest.State(p.T, p.Client, id))
}

// suspendedCases are of jobs that sleep or wait for an event.
func suspendedCases() []whyCase {
	type codes = []monitor.ReasonCode
	ctx := context.Background()
	return []whyCase{
		{"sleeping", func(p planted) int64 {
			return p.suspended("step_sleep", "'night', '8 h'")
		}, codes{monitor.ReasonSleeping}, []string{"it sleeps in step night until 2", "in 7h"}, "after a requeue it would sleep on"},
		{"sleeping, and no janitor, in a paused queue", func(p planted) int64 {
			p.serve("w", 4, "greeting")
			id := p.enqueue(jobq.EnqueueOptions{})
			p.step(id, "step_sleep", "'night', '8 h'")
			p.pause()
			return id
		}, codes{monitor.ReasonSleeping, monitor.ReasonQueuePaused}, []string{"no janitor holds its lock at this moment"}, "jobq janitor"},
		{"sleeping after a failure, its attempts forgotten", func(p planted) int64 {
			p.serve("w", 4, "greeting")
			p.janitor()
			id := p.end("failed", time.Hour)
			p.act(jobq.ActionRequeue, id)
			p.step(id, "step_sleep", "'night', '8 h'")
			p.exec("with gone as (delete from jobq.attempt returning 1) select count(*) from gone")
			return id
		}, codes{monitor.ReasonSleeping}, []string{"it sleeps in step night"}, ""},
		{"sleeping, and its time changed", func(p planted) int64 {
			id := p.suspended("step_sleep", "'night', '8 h'")
			p.exec("update jobq.pending set run_at = now() + interval '3 days' where id = $1", id)
			return id
		}, codes{monitor.ReasonSleeping}, []string{"it sleeps in step night until 2", "in 7h", "; its next run, which looks again, is at 2", "in 2d"}, ""},
		{"waits for an event", func(p planted) int64 {
			return p.suspended("step_wait", "'paid order 4711', '3 days'")
		}, codes{monitor.ReasonWaitsForEvent}, []string{"it waits for event paid order 4711 until 2", "in 2d"}, "let the event happen: jobq emit 'paid order 4711'; after a requeue it would wait on"},
		{"waits for an event without a timeout", func(p planted) int64 {
			return p.suspended("step_wait", "'paid'")
		}, codes{monitor.ReasonWaitsForEvent}, []string{"it waits for event paid without a timeout"}, "jobq emit paid"},
		{"waits for an event that is about to be emitted", func(p planted) int64 {
			p.hold("select jobq.emit('paid')")
			return p.suspended("step_wait", "'paid'")
		}, codes{monitor.ReasonWaitsForEvent}, []string{"it waits for event paid without a timeout; its next run, which looks again, is at 2"}, "jobq emit paid"},
		{"waits for one event after another", func(p planted) int64 {
			require.NoError(p, jobtest.ErrorOf(p.Client.Emit(ctx, "paid", nil)))
			p.serve("w", 4, "greeting")
			p.janitor()
			id := p.enqueue(jobq.EnqueueOptions{})
			job := p.Claim("q", 1)[0]
			for _, event := range []string{"paid", "sent"} {
				p.exec("select jobq.step_wait($1, $2, $3)", id, jobtest.RunToken(job), event)
			}
			return id
		}, codes{monitor.ReasonWaitsForEvent}, []string{"it waits for event sent without"}, "jobq emit sent"},
		{"put off after a sleep that was over", func(p planted) int64 {
			p.serve("w", 4, "greeting")
			p.janitor()
			id := p.enqueue(jobq.EnqueueOptions{})
			token := jobtest.RunToken(p.Claim("q", 1)[0])
			p.exec("select jobq.step_sleep($1, $2, 'moment', '0')", id, token)
			p.exec("select jobq.step_get($1, $2, 'begun')", id, token)
			p.exec("select jobq.snooze($1, $2, '1 h')", id, token)
			return id
		}, codes{monitor.ReasonScheduled}, []string{"its last run has asked to run again later"}, "jobq requeue"},
		{"failed after it had waited for an event", func(p planted) int64 {
			id := p.suspended("step_wait", "'paid'")
			p.act(jobq.ActionRequeue, id)
			answer, err := p.Schema.Exchange(ctx, p.Client.Pool(), db.Exchange{Owner: "w", Endings: []db.Ending{{
				Slot: jobtest.At(p.Claim("q", 1)[0]), Outcome: "failed", Error: "no luck", Delay: db.DelayOf(time.Hour), Started: true,
			}}})
			require.NoError(p, err)
			require.Len(p, answer.Ended, 1)
			return id
		}, codes{monitor.ReasonRetry}, []string{"attempt 1 of 25 failed with no luck"}, "jobq requeue"},
		{"woken by its event", func(p planted) int64 {
			id := p.suspended("step_wait", "'paid'")
			require.NoError(p, jobtest.ErrorOf(p.Client.Emit(ctx, "paid", nil)))
			return id
		}, codes{monitor.ReasonNextInLine}, nil, ""},
		{"its sleep is over, and no janitor", func(p planted) int64 {
			p.serve("w", 4, "greeting")
			id := p.enqueue(jobq.EnqueueOptions{})
			p.step(id, "step_sleep", "'night', '8 h'")
			p.exec("update jobq.pending set run_at = now() - interval '5 min' where id = $1", id)
			return id
		}, codes{monitor.ReasonDue}, []string{"it was due at "}, "jobq janitor"},
	}
}
