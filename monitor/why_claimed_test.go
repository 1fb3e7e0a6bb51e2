package monitor_test

import (
	"context"
	"fmt"
	"time"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/jobtest"
	"github.com/jobq-dev/jobq/internal/pgtest"
	"github.com/jobq-dev/jobq/monitor"
	"github.com/jobq-dev/jobq/operator"
	"github.com/stretchr/testify/require"
)

func claimedCases() []whyCase {
	type codes = []monitor.ReasonCode
	ctx := context.Background()
	running := func(p planted) int64 {
		p.serve("w", 4, "greeting")
		id := p.enqueue(jobq.EnqueueOptions{})
		require.Len(p, p.Claim("q", 1), 1)
		return id
	}
	return []whyCase{
		{"running", running, codes{monitor.ReasonRunning}, []string{"it runs on w, or waits there for a slot to come free: claimed at ", "its lease ends in 59m unless extended; it has reported no progress"}, ""},
		{"running with progress", func(p planted) int64 {
			id := running(p)
			p.exec("insert into jobq.progress (job_id, lease_id, progressed_at, percent, stage) values ($1, $2, now() - interval '5 min', 40, 'resize')", id, p.Claimed(id).LeaseToken)
			return id
		}, codes{monitor.ReasonRunning}, []string{"it runs on w: claimed at ", "last progress 5m ago: 40% resize"}, ""},
		{"claimed ahead", func(p planted) int64 {
			id := running(p)
			p.exec("update jobq.lease set begun = 0")
			job, err := p.Client.Get(ctx, id)
			require.NoError(p, err)
			require.Nil(p, job.StartedAt)
			return id
		}, codes{monitor.ReasonRunning}, []string{"w has claimed it and has not begun it: it waits there for a slot: claimed at "}, ""},
		{"running on a silent worker", func(p planted) int64 {
			id := running(p)
			p.exec("update jobq.worker set heartbeat_at = now() - interval '3 min'")
			return id
		}, codes{monitor.ReasonRunning}, []string{"its worker last reported 3m ago"}, ""},
		{"running on a stopping worker", func(p planted) int64 {
			id := running(p)
			p.exec("update jobq.worker set draining = true")
			return id
		}, codes{monitor.ReasonRunning}, []string{"its worker is stopping"}, ""},
		{"running on a worker that is gone", func(p planted) int64 {
			id := running(p)
			p.exec("delete from jobq.worker")
			return id
		}, codes{monitor.ReasonRunning}, []string{"its worker is not registered any more"}, ""},
		{"asked to stop", func(p planted) int64 {
			id := running(p)
			p.act(jobq.ActionCancel, id)
			return id
		}, codes{monitor.ReasonRunning, monitor.ReasonCancelRequested}, nil, ""},
		{"lease expired", func(p planted) int64 {
			id := running(p)
			require.NoError(p, pgtest.ExpireLeases(ctx, p.Client.Pool()))
			return id
		}, codes{monitor.ReasonLeaseExpired}, []string{"its worker w has not extended the lease, which ended at ", "a janitor is to take it back; no janitor holds its lock"}, "jobq janitor"},
		{"lease expired, in its grace", func(p planted) int64 {
			id := running(p)
			p.janitor()
			grace := time.Hour
			require.NoError(p, jobtest.ErrorOf(p.Operator.SetQueue(ctx, "q", operator.QueueChange{StaleGrace: &grace})))
			require.NoError(p, pgtest.ExpireLeases(ctx, p.Client.Pool()))
			return id
		}, codes{monitor.ReasonLeaseExpired}, []string{"by the queue's stale grace a janitor takes it back from ", "in 59m"}, ""},
		{"lease lost, and the run locked", func(p planted) int64 {
			id := running(p)
			p.hold(fmt.Sprintf("select from jobq.run where id = %d for update", id))
			p.Lose()
			return id
		}, codes{monitor.ReasonLeaseExpired, monitor.ReasonRowLocked}, []string{"a janitor has taken it from the worker and is not done with all of its jobs"}, ""},
		{"no lease", func(p planted) int64 {
			id := running(p)
			p.exec("delete from jobq.lease")
			return id
		}, codes{monitor.ReasonNoLease}, []string{"its row says that it runs, but there is no lease "}, ""},
		{
			"completed", func(p planted) int64 { return p.InState(jobq.StateCompleted, jobq.EnqueueOptions{}) },
			codes{monitor.ReasonCompleted},
			[]string{"it has completed at ", "on w"},
			"run it again: jobq requeue ",
		},
		{
			"failed for good", func(p planted) int64 { return p.end("failed", 0) },
			codes{monitor.ReasonFailed},
			[]string{"it failed for good at ", "after 1 attempt of 25: no luck"},
			"run it again: jobq requeue ",
		},
		{"cancelled by an operator", func(p planted) int64 {
			id := p.enqueue(jobq.EnqueueOptions{})
			p.act(jobq.ActionCancel, id)
			return id
		}, codes{monitor.ReasonCancelled}, []string{"it was cancelled at ", " by test"}, "jobq requeue "},
		{"cancelled by an operator while it ran", func(p planted) int64 {
			id := running(p)
			p.act(jobq.ActionCancel, id)
			p.Lose()
			return id
		}, codes{monitor.ReasonCancelled}, []string{"it was cancelled at ", " by test"}, "jobq requeue "},
		{"cancelled by a program after an operator did", func(p planted) int64 {
			id := p.enqueue(jobq.EnqueueOptions{})
			p.act(jobq.ActionCancel, id)
			p.act(jobq.ActionRequeue, id)
			require.NoError(p, jobtest.ErrorOf(p.Client.Cancel(ctx, id)))
			return id
		}, codes{monitor.ReasonCancelled}, []string{"the audit does not know by whom"}, "jobq requeue "},
		{
			"cancelled by a program", func(p planted) int64 { return p.InState(jobq.StateCancelled, jobq.EnqueueOptions{}) },
			codes{monitor.ReasonCancelled},
			[]string{"the audit does not know by whom"},
			"jobq requeue ",
		},
		{"cancelled with its parent", func(p planted) int64 {
			parent := p.enqueue(jobq.EnqueueOptions{MaxAttempts: 1})
			id := p.enqueue(jobq.EnqueueOptions{After: []int64{parent}})
			p.End(p.Claim("q", 1)[0], "failed", true)
			p.settle(id)
			return id
		}, codes{monitor.ReasonCancelled}, []string{"it was cancelled at ", " ago: job ", ", for which it waited, has failed: no luck"}, " --with-dependents"},
		{"cancelled with its parent's parent", func(p planted) int64 {
			first := p.enqueue(jobq.EnqueueOptions{})
			id := p.enqueue(jobq.EnqueueOptions{After: []int64{p.enqueue(jobq.EnqueueOptions{After: []int64{first}})}})
			p.act(jobq.ActionCancel, first)
			p.settle(id)
			return id
		}, codes{monitor.ReasonCancelled}, []string{", for which it waited, was cancelled; that began with job ", ", which was cancelled by test"}, " --with-dependents"},
		{"cancelled with a parent that runs again", func(p planted) int64 {
			parent := p.enqueue(jobq.EnqueueOptions{MaxAttempts: 1})
			id := p.enqueue(jobq.EnqueueOptions{After: []int64{parent}})
			p.End(p.Claim("q", 1)[0], "failed", true)
			p.settle(id)
			p.act(jobq.ActionRequeue, parent)
			return id
		}, codes{monitor.ReasonCancelled}, []string{", for which it waited, has failed; that job is available now"}, "run it again: jobq requeue "},
		{"ended, and its args gone", func(p planted) int64 {
			id := p.InState(jobq.StateCompleted, jobq.EnqueueOptions{})
			p.exec("update jobq.run set args = null, args_apart = true where id = $1", id)
			return id
		}, codes{monitor.ReasonCompleted}, nil, "its args are gone"},
		{"ended, and its unique key taken", func(p planted) int64 {
			id := p.InState(jobq.StateCompleted, jobq.EnqueueOptions{UniqueKey: "cat"})
			p.enqueue(jobq.EnqueueOptions{UniqueKey: "cat"})
			return id
		}, codes{monitor.ReasonCompleted}, nil, "while job 2 has its unique key"},
		{"ended, and its unique key kept", func(p planted) int64 {
			return p.InState(jobq.StateCompleted, jobq.EnqueueOptions{UniqueKey: "cat", UniqueFor: time.Hour})
		}, codes{monitor.ReasonCompleted}, []string{"; it keeps its unique key until 2"}, "run it again: jobq requeue "},
		{"ended, and its unique key kept by another that has ended", func(p planted) int64 {
			id := p.InState(jobq.StateCompleted, jobq.EnqueueOptions{UniqueKey: "cat"})
			p.InState(jobq.StateFailed, jobq.EnqueueOptions{UniqueKey: "cat", UniqueFor: time.Hour})
			return id
		}, codes{monitor.ReasonCompleted}, nil, " UTC: until then job 2 keeps its unique key, although it is over"},
		{"deleted", func(p planted) int64 {
			id := p.enqueue(jobq.EnqueueOptions{})
			p.act(jobq.ActionDelete, id)
			return id
		}, codes{monitor.ReasonDeleted}, []string{"it was deleted at ", "by test"}, "jobq undo 1"},
		{"deleted, and brought back", func(p planted) int64 {
			p.serve("w", 4, "greeting")
			id := p.enqueue(jobq.EnqueueOptions{})
			p.act(jobq.ActionDelete, id)
			require.NoError(p, jobtest.ErrorOf(p.Operator.Undo(ctx, 1)))
			return id
		}, codes{monitor.ReasonNextInLine}, nil, ""},
		{"deleted, brought back, and gone", func(p planted) int64 {
			id := p.enqueue(jobq.EnqueueOptions{})
			p.act(jobq.ActionDelete, id)
			require.NoError(p, jobtest.ErrorOf(p.Operator.Undo(ctx, 1)))
			p.exec("delete from jobq.pending where id = $1", id)
			return id
		}, codes{monitor.ReasonGone}, nil, ""},
		{"gone", func(p planted) int64 {
			id := p.enqueue(jobq.EnqueueOptions{})
			p.exec("delete from jobq.pending where id = $1", id)
			return id
		}, codes{monitor.ReasonGone}, []string{"there is no such job any more, if there ever was", "kept for 7d"}, ""},
		{
			"never given", func(p planted) int64 { return p.enqueue(jobq.EnqueueOptions{}) + 1 },
			codes{monitor.ReasonUnknown},
			[]string{"there has never been such a job here: the last id that was given is 1"},
			"check the id",
		},
		{
			"none given at all", func(planted) int64 { return 1 },
			codes{monitor.ReasonUnknown},
			[]string{"the last id that was given is 0"},
			"",
		},
	}
}
