package monitor_test

import (
	"context"
	"fmt"
	"time"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/jobtest"
	"github.com/jobq-dev/jobq/monitor"
	"github.com/jobq-dev/jobq/operator"
	"github.com/stretchr/testify/require"
)

// whyCase is a planted reason. All that is to be found is in reasons, in this order, and
// says are parts of the words of the first.
type whyCase struct {
	name    string
	plant   func(p planted) int64
	reasons []monitor.ReasonCode
	says    []string
	advice  string
}

func waitingCases() []whyCase {
	type codes = []monitor.ReasonCode
	ctx := context.Background()
	return []whyCase{
		{"waits for jobs", func(p planted) int64 {
			parent := p.enqueue(jobq.EnqueueOptions{Queue: "parents"})
			later := p.enqueue(jobq.EnqueueOptions{Queue: "parents", Delay: time.Hour})
			return p.enqueue(jobq.EnqueueOptions{After: []int64{parent, later}})
		}, codes{monitor.ReasonWaitsForJobs}, []string{"it waits for job ", " (available) and job ", " (scheduled)"}, ""},
		{"waits for a job that has failed", func(p planted) int64 {
			parent := p.enqueue(jobq.EnqueueOptions{Queue: "parents"})
			id := p.enqueue(jobq.EnqueueOptions{After: []int64{parent}, OnParentFailure: jobq.ParentFailureWait})
			_, err := p.Client.Cancel(ctx, parent)
			require.NoError(p, err)
			return id
		}, codes{monitor.ReasonWaitsForJobs}, []string{"it waits for job ", " (cancelled)"}, "run job "},
		{"waits for a job that is gone", func(p planted) int64 {
			parent := p.enqueue(jobq.EnqueueOptions{Queue: "parents"})
			id := p.enqueue(jobq.EnqueueOptions{After: []int64{parent}, OnParentFailure: jobq.ParentFailureWait})
			require.NoError(p, jobtest.Delete(p.Client, parent))
			return id
		}, codes{monitor.ReasonWaitsForJobs}, []string{"it waits for job ", " (gone)"}, "cannot run again: jobq requeue "},
		{"waits, and no janitor sees that it need not", func(p planted) int64 {
			parent := p.enqueue(jobq.EnqueueOptions{Queue: "parents"})
			id := p.enqueue(jobq.EnqueueOptions{After: []int64{parent}})
			_, err := p.Client.Cancel(ctx, parent)
			require.NoError(p, err)
			return id
		}, codes{monitor.ReasonWaitsForJobs}, []string{"no janitor holds its lock at this moment"}, "run one: jobq janitor"},
		{"scheduled", func(p planted) int64 {
			p.serve("w", 4, "greeting")
			p.janitor()
			return p.enqueue(jobq.EnqueueOptions{Delay: time.Hour})
		}, codes{monitor.ReasonScheduled}, []string{"it is scheduled for 2", "in 59m"}, "run it now: jobq requeue "},
		{"scheduled, and no janitor", func(p planted) int64 {
			p.serve("w", 4, "greeting")
			return p.enqueue(jobq.EnqueueOptions{Delay: time.Hour})
		}, codes{monitor.ReasonScheduled}, []string{"no janitor holds its lock at this moment"}, "jobq janitor"},
		{"retry", func(p planted) int64 {
			p.serve("w", 4, "greeting")
			p.janitor()
			return p.end("failed", time.Hour)
		}, codes{monitor.ReasonRetry}, []string{"it waits for a retry at ", "attempt 1 of 25 failed with no luck"}, "jobq requeue"},
		{"retry after a timeout", func(p planted) int64 {
			p.serve("w", 4, "greeting")
			return p.end("timed_out", time.Hour)
		}, codes{monitor.ReasonRetry}, []string{"attempt 1 of 25 timed out: no luck"}, "jobq requeue"},
		{"snoozed after a failure", func(p planted) int64 {
			p.serve("w", 4, "greeting")
			id := p.end("failed", time.Hour)
			p.act(jobq.ActionRequeue, id)
			answer, err := p.Schema.Exchange(ctx, p.Client.Pool(), db.Exchange{Owner: "w", Endings: []db.Ending{{
				Slot: jobtest.At(p.Claim("q", 1)[0]), Outcome: "snoozed", Delay: db.DelayOf(time.Hour), Started: true,
			}}})
			require.NoError(p, err)
			require.Len(p, answer.Ended, 1)
			return id
		}, codes{monitor.ReasonScheduled}, []string{"its last run has asked to run again later"}, "jobq requeue"},
		{"snoozed", func(p planted) int64 {
			p.serve("w", 4, "greeting")
			p.janitor()
			return p.end("snoozed", time.Hour)
		}, codes{monitor.ReasonScheduled}, []string{"its last run has asked to run again later: it is scheduled for "}, "jobq requeue"},
		{"unreadable after a failure", func(p planted) int64 {
			p.serve("w", 4, "greeting")
			id := p.end("failed", time.Hour)
			p.act(jobq.ActionRequeue, id)
			answer, err := p.Schema.Exchange(ctx, p.Client.Pool(), db.Exchange{Owner: "w", Endings: []db.Ending{{
				Slot: jobtest.At(p.Claim("q", 1)[0]), Outcome: "unreadable", Error: "no key k9", Delay: db.DelayOf(time.Hour), Started: true,
			}}})
			require.NoError(p, err)
			require.Len(p, answer.Ended, 1)
			return id
		}, codes{monitor.ReasonScheduled}, []string{"its last worker could not read it, which has used no attempt: no key k9; it is tried again at "}, "jobq worker --keys-file"},
		{"lost with its worker twice", func(p planted) int64 {
			p.serve("w", 4, "greeting")
			p.exec("insert into jobq.pending (queue, kind, attempts, crashes, last_error, run_at) values ('q', 'greeting', 2, 2, 'lost', now() - interval '1 min')")
			return p.newest()
		}, codes{monitor.ReasonAlone}, []string{"it was lost with its worker, 2 times in a row, so only a worker that runs nothing else takes it, since "}, "start one more: it takes this job first"},
		{"lost with its worker twice, in its backoff", func(p planted) int64 {
			p.serve("w", 4, "greeting")
			p.exec("insert into jobq.pending (queue, kind, attempts, crashes, last_error, run_at) values ('q', 'greeting', 2, 2, 'lost', now() + interval '1 hour')")
			return p.newest()
		}, codes{monitor.ReasonAlone}, []string{"takes it, not before ", "in 59m"}, ""},
		{"lost while it was alone", func(p planted) int64 {
			p.serve("w", 4, "greeting")
			p.exec("insert into jobq.pending (queue, kind, attempts, crashes, last_error, run_at) values ('q', 'greeting', 5, 5, 'lost', now() - interval '1 min')")
			return p.newest()
		}, codes{monitor.ReasonAlone}, []string{"it seems to end its workers: it was lost with them 5 times in a row, and nothing else ran beside it at the last 3"}, "mend its handler, or jobq cancel "},
		{"lost once, with one attempt left", func(p planted) int64 {
			p.serve("w", 4, "greeting")
			p.exec("insert into jobq.pending (queue, kind, attempts, max_attempts, crashes, last_error) values ('q', 'greeting', 1, 2, 1, 'lost')")
			return p.newest()
		}, codes{monitor.ReasonAlone}, []string{"it was lost with its worker, and only its last attempt is left, so only a worker that runs nothing else takes it"}, ""},
		{"due, and no janitor", func(p planted) int64 {
			p.serve("w", 4, "greeting")
			p.lock(db.LockMigrate)
			id := p.enqueue(jobq.EnqueueOptions{Delay: time.Hour})
			p.exec("update jobq.pending set run_at = now() - interval '5 min' where id = $1", id)
			return id
		}, codes{monitor.ReasonDue}, []string{"it was due at ", "5m ago", "no janitor holds its lock at this moment"}, "start one: jobq janitor"},
		{"due, and a janitor is alive", func(p planted) int64 {
			p.serve("w", 4, "greeting")
			p.janitor()
			id := p.enqueue(jobq.EnqueueOptions{Delay: time.Hour})
			p.exec("update jobq.pending set run_at = now() - interval '5 min' where id = $1", id)
			return id
		}, codes{monitor.ReasonDue}, []string{"no janitor has put it in the line yet; one is alive"}, "jobq janitor events"},
		{"paused", func(p planted) int64 {
			p.serve("w", 4, "greeting")
			p.pause()
			return p.enqueue(jobq.EnqueueOptions{})
		}, codes{monitor.ReasonQueuePaused}, []string{"the queue is paused by test: books are closed, for "}, "jobq queues resume q"},
		{"kind paused", func(p planted) int64 {
			p.serve("w", 4, "greeting")
			require.NoError(p, jobtest.ErrorOf(p.Operator.PauseKind(ctx, "greeting", "the provider is down")))
			return p.enqueue(jobq.EnqueueOptions{})
		}, codes{monitor.ReasonKindPaused}, []string{"kind greeting is paused by test: the provider is down, for "}, "let it go on: jobq kinds resume greeting"},
		{"kind in quarantine", func(p planted) int64 {
			p.serve("w", 4, "greeting")
			p.exec("update jobq.setting set quarantine_crashes = 1")
			p.exec("select jobq.kinds_crashed('{greeting}', array[now()], '{gone}', 'janitor')")
			return p.enqueue(jobq.EnqueueOptions{})
		}, codes{monitor.ReasonKindPaused}, []string{"kind greeting is paused by jobq: quarantine: workers that ran it crashed 1 times in a row, for "}, "mend what crashes its workers, then let it go on: jobq kinds resume greeting"},
		{"key paused", func(p planted) int64 {
			p.serve("w", 4, "greeting")
			require.NoError(p, jobtest.ErrorOf(p.Operator.PauseKey(ctx, "q", "customer 17", "they ask for it")))
			return p.enqueue(jobq.EnqueueOptions{PartitionKey: "customer 17"})
		}, codes{monitor.ReasonKeyPaused}, []string{"the partition key customer 17 is paused by test: they ask for it, for "}, "let it go on: jobq queues resume q --key 'customer 17'"},
		{"another key paused, and that of another queue", func(p planted) int64 {
			p.serve("w", 4, "greeting")
			require.NoError(p, jobtest.ErrorOf(p.Operator.PauseKey(ctx, "q", "a", "")))
			require.NoError(p, jobtest.ErrorOf(p.Operator.PauseKey(ctx, "other", "b", "")))
			return p.enqueue(jobq.EnqueueOptions{PartitionKey: "b"})
		}, codes{monitor.ReasonNextInLine}, []string{"it is next in line"}, ""},
		{"key paused, and full", func(p planted) int64 {
			p.serve("w", 9, "greeting")
			p.limit(operator.QueueChange{KeyLimit: new(1)})
			p.enqueue(jobq.EnqueueOptions{PartitionKey: "a"})
			p.claimKeyed(1)
			require.NoError(p, jobtest.ErrorOf(p.Operator.PauseKey(ctx, "q", "a", "")))
			return p.enqueue(jobq.EnqueueOptions{PartitionKey: "a"})
		}, codes{monitor.ReasonKeyPaused, monitor.ReasonKeyLimit}, nil, ""},
		{"another kind paused, and one that has crashed", func(p planted) int64 {
			p.serve("w", 4, "greeting")
			require.NoError(p, jobtest.ErrorOf(p.Operator.PauseKind(ctx, "resize", "")))
			p.exec("insert into jobq.kind (name, crashes, crashed_at) values ('greeting', 2, now())")
			p.exec("insert into jobq.pending (kind, queue) values ('resize', 'q')")
			return p.enqueue(jobq.EnqueueOptions{})
		}, codes{monitor.ReasonNextInLine}, []string{"1 job is before it in the line"}, ""},
		{"queue at its limit", func(p planted) int64 {
			p.serve("w", 4, "greeting")
			for range 4 {
				p.enqueue(jobq.EnqueueOptions{})
			}
			p.Complete(p.Claim("q", 3)[0])
			p.limit(operator.QueueChange{MaxRunning: new(2)})
			return p.enqueue(jobq.EnqueueOptions{})
		}, codes{monitor.ReasonQueueLimit}, []string{"the queue is at its limit: 2 of 2 jobs run, the oldest is job 2, claimed ", " by w; 1 job is before it in the line"}, "jobq queues set q limit=N; what the oldest does: jobq why 2"},
		{"queue below its limit and its rate", func(p planted) int64 {
			p.serve("w", 4, "greeting")
			for range 2 {
				p.enqueue(jobq.EnqueueOptions{})
			}
			require.Len(p, p.Claim("q", 2), 2)
			p.limit(operator.QueueChange{MaxRunning: new(3), Rate: &jobq.Rate{Jobs: 1, Period: time.Hour}})
			return p.enqueue(jobq.EnqueueOptions{})
		}, codes{monitor.ReasonNextInLine}, []string{"it is next in line"}, ""},
		{"limit held by a worker that is lost", func(p planted) int64 {
			p.serve("w", 4, "greeting")
			p.enqueue(jobq.EnqueueOptions{})
			require.Len(p, p.Claim("q", 1), 1)
			p.exec("update jobq.lease set lost_at = now()")
			p.limit(operator.QueueChange{MaxRunning: new(1)})
			return p.enqueue(jobq.EnqueueOptions{})
		}, codes{monitor.ReasonQueueLimit}, []string{"1 of 1 job run, the oldest is job 1, claimed "}, "jobq why 1"},
		{"partition key at its limit", func(p planted) int64 {
			p.serve("w", 9, "greeting")
			for range 4 {
				p.enqueue(jobq.EnqueueOptions{PartitionKey: "a"})
			}
			p.enqueue(jobq.EnqueueOptions{})
			p.limit(operator.QueueChange{KeyLimit: new(2)})
			p.claimKeyed(2)
			return p.enqueue(jobq.EnqueueOptions{PartitionKey: "a"})
		}, codes{monitor.ReasonKeyLimit}, []string{"the partition key a is at its limit: 2 of 2 jobs run, the oldest is job 1; 2 jobs of its key are before it in the line"}, "jobq queues set q key_limit=N; what the oldest does: jobq why 1"},
		{"partition key at its rate", func(p planted) int64 {
			p.serve("w", 9, "greeting")
			p.throttleKey("a")
			p.enqueue(jobq.EnqueueOptions{})
			return p.enqueue(jobq.EnqueueOptions{PartitionKey: "a"})
		}, codes{monitor.ReasonKeyRate}, []string{"the partition key a is at its rate of 1/h: its next job may start at ", "in 59m", "; 1 job of its key is before it in the line"}, "wait, or raise the rate: jobq queues set q key_rate=N/s"},
		{"partition key below its rate", func(p planted) int64 {
			p.serve("w", 9, "greeting")
			p.throttleKey("a")
			p.exec("update jobq.lane set rate_ready_at = rate_ready_at - interval '2 h', throttled_until = throttled_until - interval '2 h' where key <> ''")
			return p.enqueue(jobq.EnqueueOptions{PartitionKey: "a"})
		}, codes{monitor.ReasonNextInLine}, nil, ""},
		{"another partition key at its rate", func(p planted) int64 {
			p.serve("w", 9, "greeting")
			p.throttleKey("a")
			return p.enqueue(jobq.EnqueueOptions{PartitionKey: "b"})
		}, codes{monitor.ReasonNextInLine}, nil, ""},
		{"partition key paused, full, and at its rate", func(p planted) int64 {
			p.serve("w", 9, "greeting")
			p.throttleKey("a")
			p.limit(operator.QueueChange{KeyLimit: new(1)})
			p.claimNothing()
			require.NoError(p, jobtest.ErrorOf(p.Operator.PauseKey(ctx, "q", "a", "")))
			return p.enqueue(jobq.EnqueueOptions{PartitionKey: "a"})
		}, codes{monitor.ReasonKeyPaused, monitor.ReasonKeyLimit, monitor.ReasonKeyRate}, nil, ""},
		{"partition key below its limit", func(p planted) int64 {
			p.serve("w", 9, "greeting")
			for range 3 {
				p.enqueue(jobq.EnqueueOptions{PartitionKey: "a"})
			}
			p.limit(operator.QueueChange{KeyLimit: new(3)})
			claimed := p.claimKeyed(3)
			p.Complete(claimed[0].JobClaimRow)
			return p.enqueue(jobq.EnqueueOptions{PartitionKey: "a"})
		}, codes{monitor.ReasonNextInLine}, []string{"it is next in line, and workers have room"}, ""},
		{"partition key of new jobs among others", func(p planted) int64 {
			p.serve("w", 9, "greeting")
			p.turns("first", "second")
			p.enqueue(jobq.EnqueueOptions{PartitionKey: "new"})
			p.enqueue(jobq.EnqueueOptions{PartitionKey: "second"})
			p.enqueue(jobq.EnqueueOptions{PartitionKey: "a"})
			return p.enqueue(jobq.EnqueueOptions{PartitionKey: "a"})
		}, codes{monitor.ReasonNextInLine}, []string{"1 job of its key is before it in the line, 2 keys are before its key in the turn, and it gets its turn with the next claim, " +
			"together with 1 key that came in since the last claim, and workers have room"}, ""},
		{"more partition keys before its own than are counted", func(p planted) int64 {
			p.serve("w", 9, "greeting")
			p.exec("insert into jobq.lane (queue, key, turn) select 'q', 'key ' || i, nextval('jobq.lane_turn_seq') from generate_series(1, 1002) i")
			return p.enqueue(jobq.EnqueueOptions{PartitionKey: "a"})
		}, codes{monitor.ReasonNextInLine}, []string{"no job of its key is before it in the line, and more than 1,000 keys are before its key in the turn, and workers have room"}, ""},
		{"more new partition keys than are counted", func(p planted) int64 {
			p.serve("w", 9, "greeting")
			p.exec("insert into jobq.pending (kind, queue, partition_key) select 'greeting', 'q', 'key ' || i from generate_series(1, 1002) i")
			return p.enqueue(jobq.EnqueueOptions{PartitionKey: "a"})
		}, codes{monitor.ReasonNextInLine}, []string{"no key is before its key in the turn, and it gets its turn with the next claim, together with more than 1,000 keys that came in"}, ""},
		{"partition key whose turn is not known", func(p planted) int64 {
			p.serve("w", 9, "greeting")
			id := p.enqueue(jobq.EnqueueOptions{PartitionKey: "a"})
			p.exec("delete from jobq.lane_hint")
			return id
		}, codes{monitor.ReasonNextInLine}, []string{"no job of its key is before it in the line, and workers have room"}, ""},
		{"no partition key, beside some", func(p planted) int64 {
			p.serve("w", 9, "greeting")
			p.enqueue(jobq.EnqueueOptions{PartitionKey: "a"})
			p.enqueue(jobq.EnqueueOptions{})
			return p.enqueue(jobq.EnqueueOptions{})
		}, codes{monitor.ReasonNextInLine}, []string{"1 job without a key is before it in the line, and keys take turns with these, and workers have room"}, ""},
		{"no partition key, beside one that has its turn", func(p planted) int64 {
			p.serve("w", 9, "greeting")
			p.turns("first")
			return p.enqueue(jobq.EnqueueOptions{})
		}, codes{monitor.ReasonNextInLine}, []string{"no job without a key is before it in the line, and keys take turns with these"}, ""},
		{"partition key and workers that are full", func(p planted) int64 {
			p.serve("w", 2, "greeting")
			p.claimPlain()
			p.turns("first", "second")
			return p.enqueue(jobq.EnqueueOptions{PartitionKey: "second"})
		}, codes{monitor.ReasonWorkersFull}, []string{"1 job of its key is before it in the line, and 1 key is before its key in the turn"}, "jobq why "},
		{"partition key with a head that runs", func(p planted) int64 {
			p.serve("w", 9, "greeting")
			p.limit(operator.QueueChange{KeyOrder: new(jobq.KeyOrderHold)})
			p.enqueue(jobq.EnqueueOptions{PartitionKey: "a"})
			p.enqueue(jobq.EnqueueOptions{PartitionKey: "b"})
			p.claimKeyed(2)
			return p.enqueue(jobq.EnqueueOptions{PartitionKey: "a"})
		}, codes{monitor.ReasonKeyHead}, []string{"the jobs of the partition key a run in order, and its head is job 1, which runs; no job of its key is before it in the line"}, "what the head does: jobq why 1"},
		{"partition key with a head that waits for its retry", func(p planted) int64 {
			p.serve("w", 9, "greeting")
			p.limit(operator.QueueChange{KeyOrder: new(jobq.KeyOrderHold)})
			p.endKeyed(false)
			return p.enqueue(jobq.EnqueueOptions{PartitionKey: "a"})
		}, codes{monitor.ReasonKeyHead}, []string{"its head is job 1, which waits for its retry at "}, "wait, or let the head run now: jobq requeue 1"},
		{"partition key with a head that awaits another job", func(p planted) int64 {
			p.serve("w", 9, "greeting")
			p.limit(operator.QueueChange{KeyOrder: new(jobq.KeyOrderHold)})
			p.endKeyed(false)
			p.exec("update jobq.pending set waits = true")
			return p.enqueue(jobq.EnqueueOptions{PartitionKey: "a"})
		}, codes{monitor.ReasonKeyHead}, []string{"its head is job 1, which waits for other jobs; "}, "what the head does: jobq why 1"},
		{"partition key with a head that has failed", func(p planted) int64 {
			p.serve("w", 9, "greeting")
			p.limit(operator.QueueChange{KeyOrder: new(jobq.KeyOrderStop)})
			p.endKeyed(true)
			return p.enqueue(jobq.EnqueueOptions{PartitionKey: "a"})
		}, codes{monitor.ReasonKeyHead}, []string{"its head is job 1, which has failed: that stops the key"}, "mend what made it fail, and jobq requeue 1; or go on without it: jobq delete 1"},
		{"partition key with another head in the line", func(p planted) int64 {
			p.serve("w", 9, "greeting")
			p.limit(operator.QueueChange{KeyOrder: new(jobq.KeyOrderPass)})
			p.enqueue(jobq.EnqueueOptions{PartitionKey: "a"})
			return p.enqueue(jobq.EnqueueOptions{PartitionKey: "a"})
		}, codes{monitor.ReasonKeyHead}, []string{"its head is job 1; 1 job of its key is before it in the line"}, "what the head does: jobq why 1"},
		{"head of its partition key", func(p planted) int64 {
			p.serve("w", 9, "greeting")
			p.limit(operator.QueueChange{KeyOrder: new(jobq.KeyOrderStop)})
			id := p.enqueue(jobq.EnqueueOptions{PartitionKey: "a"})
			p.enqueue(jobq.EnqueueOptions{PartitionKey: "a"})
			return id
		}, codes{monitor.ReasonNextInLine}, []string{"it is next in line"}, ""},
		{"queue at its limit, with partition keys", func(p planted) int64 {
			p.serve("w", 9, "greeting")
			p.claimPlain()
			p.turns("first", "second")
			p.limit(operator.QueueChange{MaxRunning: new(2), Rate: &jobq.Rate{Jobs: 1000, Period: time.Second}})
			return p.enqueue(jobq.EnqueueOptions{PartitionKey: "second"})
		}, codes{monitor.ReasonQueueLimit}, []string{"2 of 2 jobs run", "1 job of its key is before it in the line, and 1 key is before its key in the turn"}, "limit=N"},
		{"queue at its rate, with partition keys", func(p planted) int64 {
			p.serve("w", 9, "greeting")
			p.turns("first", "second")
			p.throttle()
			return p.enqueue(jobq.EnqueueOptions{PartitionKey: "first"})
		}, codes{monitor.ReasonQueueRate}, []string{"1 job of its key is before it in the line, and no key is before its key in the turn"}, "rate=N/s"},
		{"queue at its rate", func(p planted) int64 {
			p.serve("w", 4, "greeting")
			p.throttle()
			p.enqueue(jobq.EnqueueOptions{})
			return p.enqueue(jobq.EnqueueOptions{})
		}, codes{monitor.ReasonQueueRate}, []string{"the queue is at its rate of 1/h: the next job may start at ", "in 58m; 1 job is before it in the line"}, "jobq queues set q rate=N/s"},
		{"all that limits at once", func(p planted) int64 {
			p.serve("w", 1, "greeting")
			p.enqueue(jobq.EnqueueOptions{})
			require.Len(p, p.Claim("q", 1), 1)
			p.limit(operator.QueueChange{MaxRunning: new(1)})
			p.throttle()
			return p.enqueue(jobq.EnqueueOptions{})
		}, codes{monitor.ReasonQueueLimit, monitor.ReasonQueueRate, monitor.ReasonWorkersFull}, nil, ""},
		{"paused in all ways and at its rate", func(p planted) int64 {
			p.pause()
			require.NoError(p, jobtest.ErrorOf(p.Operator.PauseKind(ctx, "greeting", "")))
			p.throttle()
			return p.enqueue(jobq.EnqueueOptions{})
		}, codes{monitor.ReasonQueuePaused, monitor.ReasonKindPaused, monitor.ReasonNoWorker, monitor.ReasonQueueRate}, nil, ""},
		{"scheduled in a queue at its rate, of a paused kind", func(p planted) int64 {
			p.serve("w", 4, "greeting")
			require.NoError(p, jobtest.ErrorOf(p.Operator.PauseKind(ctx, "greeting", "")))
			p.throttle()
			return p.enqueue(jobq.EnqueueOptions{Delay: time.Hour})
		}, codes{monitor.ReasonScheduled, monitor.ReasonKindPaused}, nil, ""},
		{"scheduled in a paused queue without workers", func(p planted) int64 {
			p.pause()
			return p.enqueue(jobq.EnqueueOptions{Delay: time.Hour})
		}, codes{monitor.ReasonScheduled, monitor.ReasonQueuePaused, monitor.ReasonNoWorker}, nil, ""},
		{"no worker", func(p planted) int64 {
			p.exec(`insert into jobq.worker (id, pid, hostname, version, queues, kinds) values ('w', 1, 'h', 'v', '{"other": 4}', '{greeting}')`)
			return p.enqueue(jobq.EnqueueOptions{})
		}, codes{monitor.ReasonNoWorker}, []string{"no live worker takes jobs from the queue"}, "jobq worker --queue q"},
		{"silent and stopping workers", func(p planted) int64 {
			p.serve("silent", 4, "greeting")
			p.exec("update jobq.worker set heartbeat_at = now() - interval '3 min' where id = 'silent'")
			p.serve("stopping", 4, "greeting")
			p.exec("update jobq.worker set draining = true where id = 'stopping'")
			p.serve("told", 4, "greeting")
			p.exec("update jobq.worker set drain_requested_at = now() where id = 'told'")
			return p.enqueue(jobq.EnqueueOptions{})
		}, codes{monitor.ReasonNoWorker}, []string{"2 workers of it will take no more", "1 worker of it stopped reporting"}, "jobq worker"},
		{"no worker of the kind", func(p planted) int64 {
			p.serve("w", 4, "resize", "crop")
			return p.enqueue(jobq.EnqueueOptions{})
		}, codes{monitor.ReasonNoWorkerOfKind}, []string{"no live worker has kind greeting", "handle crop, resize"}, "correct the kind's name"},
		{"workers of held hosts", func(p planted) int64 {
			p.serve("w", 4, "greeting")
			p.serve("v", 4, "greeting")
			p.serve("of another kind", 4, "resize")
			p.exec("update jobq.worker set hostname = 'gpu w' where id = 'w'")
			p.exec("update jobq.worker set hostname = 'gpu v' where id = 'v'")
			p.exec("select jobq.act_host('ana', 'host_hold', 'gpu w', null), jobq.act_host('ana', 'host_hold', 'gpu v', 'bad disk')")
			return p.enqueue(jobq.EnqueueOptions{})
		}, codes{monitor.ReasonWorkersHeld}, []string{"its workers are held, 2 in all: host gpu v by ana: bad disk, for "}, "jobq workers release 'gpu v'"},
		{"one of two hosts is held", func(p planted) int64 {
			p.serve("w", 4, "greeting")
			p.serve("v", 4, "greeting")
			p.exec("update jobq.worker set hostname = 'gpu v' where id = 'v'")
			p.exec("select jobq.act_host('ana', 'host_hold', 'gpu v', 'bad disk')")
			return p.enqueue(jobq.EnqueueOptions{})
		}, codes{monitor.ReasonNextInLine}, []string{"next in line"}, ""},
		{"kind in trouble", func(p planted) int64 {
			p.serve("w", 4, "greeting")
			p.exec(`update jobq.worker set programs = '{"greeting": {"trouble": "connection refused"}}'`)
			return p.enqueue(jobq.EnqueueOptions{})
		}, codes{monitor.ReasonKindInTrouble}, []string{"the workers with kind greeting do not start it now: connection refused on w"}, "no attempt"},
		{"workers full", func(p planted) int64 {
			p.serve("w", 2, "greeting")
			p.serve("of another kind", 4, "resize")
			first := p.enqueue(jobq.EnqueueOptions{})
			p.enqueue(jobq.EnqueueOptions{})
			require.Len(p, p.Claim("q", 2), 2)
			require.Positive(p, first)
			p.enqueue(jobq.EnqueueOptions{})
			return p.enqueue(jobq.EnqueueOptions{})
		}, codes{monitor.ReasonWorkersFull}, []string{"the workers are full: 2 jobs in 2 slots of 1 worker, the oldest is job 1, claimed ", "by w; 1 job is before it in the line"}, "jobq why 1"},
		{"next in line", func(p planted) int64 {
			p.serve("w", 4, "greeting")
			return p.enqueue(jobq.EnqueueOptions{})
		}, codes{monitor.ReasonNextInLine}, []string{"it is next in line, and workers have room"}, ""},
		{"jobs before it", func(p planted) int64 {
			p.serve("w", 4, "greeting")
			p.enqueue(jobq.EnqueueOptions{})
			p.enqueue(jobq.EnqueueOptions{Priority: 1}) // behind it
			id := p.enqueue(jobq.EnqueueOptions{})
			p.enqueue(jobq.EnqueueOptions{}) // behind it
			p.enqueue(jobq.EnqueueOptions{Priority: -1})
			p.enqueue(jobq.EnqueueOptions{Priority: -1})
			p.enqueue(jobq.EnqueueOptions{Delay: time.Hour})
			jobtest.Enqueue(p.T, p.Client, &jobq.EnqueueOptions{Queue: "other", Priority: -1})
			return id
		}, codes{monitor.ReasonNextInLine}, []string{"3 jobs are before it in the line, and workers have room"}, ""},
		{"many jobs before it", func(p planted) int64 {
			p.serve("w", 4, "greeting")
			p.exec("insert into jobq.pending (kind, queue) select 'greeting', 'q' from generate_series(1, 10002)")
			return p.enqueue(jobq.EnqueueOptions{})
		}, codes{monitor.ReasonNextInLine}, []string{"more than 10,000 jobs are before it in the line"}, ""},
		{"table locked", func(p planted) int64 {
			p.serve("w", 4, "greeting")
			id := p.enqueue(jobq.EnqueueOptions{})
			p.hold("lock table jobq.pending in share mode")
			return id
		}, codes{monitor.ReasonTableLocked}, []string{"the table pending is locked in mode ShareLock by pid "}, "pg_terminate_backend("},
		{"table locked for readers too", func(p planted) int64 {
			p.serve("w", 4, "greeting")
			id := p.enqueue(jobq.EnqueueOptions{})
			p.hold("lock table jobq.run in access exclusive mode")
			return id
		}, codes{monitor.ReasonTableLocked}, []string{"the table run is locked in mode AccessExclusiveLock by pid "}, "pg_terminate_backend("},
		{"row locked", func(p planted) int64 {
			p.serve("w", 4, "greeting")
			id := p.enqueue(jobq.EnqueueOptions{})
			p.lockRow(id)
			return id
		}, codes{monitor.ReasonRowLocked}, []string{"its row is locked, and claims pass it by: pid ", "idle in transaction", "its transaction began "}, "pg_terminate_backend("},
		{"row locked by a prepared transaction", func(p planted) int64 {
			p.serve("w", 4, "greeting")
			id := p.enqueue(jobq.EnqueueOptions{})
			_, err := p.Client.Pool().Exec(ctx, fmt.Sprintf("begin; select from jobq.pending where id = %d for update; prepare transaction 'lost in a crash'", id))
			require.NoError(p, err)
			p.Cleanup(func() {
				_, err := p.Client.Pool().Exec(ctx, "rollback prepared 'lost in a crash'")
				require.NoError(p, err)
			})
			return id
		}, codes{monitor.ReasonRowLocked}, []string{`its row is locked, and claims pass it by: the prepared transaction "lost in a crash" of role `}, "rollback prepared"},
		{"another row locked", func(p planted) int64 {
			p.serve("w", 4, "greeting")
			p.lockRow(p.enqueue(jobq.EnqueueOptions{}))
			return p.enqueue(jobq.EnqueueOptions{})
		}, codes{monitor.ReasonNextInLine}, []string{"1 job is before it"}, ""},
		{"locked once, and free again", func(p planted) int64 {
			p.serve("w", 4, "greeting")
			id := p.enqueue(jobq.EnqueueOptions{})
			p.exec("select from jobq.pending where id = $1 for update", id)
			return id
		}, codes{monitor.ReasonNextInLine}, []string{"it is next in line"}, ""},
	}
}
