package monitor_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/format"
	"github.com/jobq-dev/jobq/internal/jobtest"
	"github.com/jobq-dev/jobq/monitor"
	"github.com/jobq-dev/jobq/operator"
)

// planted is a database in which a job does not run for a reason.
type planted struct {
	*jobtest.Worker
}

func (p planted) exec(sql string, args ...any) {
	p.Helper()
	tag, err := p.Client.Pool().Exec(context.Background(), sql, args...)
	require.NoError(p, err)
	require.True(p, tag.RowsAffected() == 1 || !tag.Update() && !tag.Delete(), "changed %d rows: %s", tag.RowsAffected(), sql)
}

// serve registers a live worker of the queue q.
func (p planted) serve(id string, slots int, kinds ...string) {
	p.Helper()
	p.exec(`insert into jobq.worker (id, pid, hostname, version, queues, kinds, kind_slots) values ($1, 1, 'h', 'v', jsonb_build_object('q', $2::integer), $3, '{}')`, id, slots, kinds)
}

func (p planted) enqueue(options jobq.EnqueueOptions) int64 {
	p.Helper()
	options.Queue = "q"
	return jobtest.Enqueue(p.T, p.Client, &options)
}

// claimKeyed claims so many jobs that have partition keys.
func (p planted) claimKeyed(count int) []db.KeyedJob {
	p.Helper()
	answer, err := p.Schema.Exchange(context.Background(), p.Client.Pool(), db.Exchange{
		Owner: "w", Queue: "q", HasKeys: true, OnlyKeyed: true, Claim: &db.JobClaimParams{
			Lease: db.Interval(time.Hour), Owner: "w", Queue: "q", Kinds: []string{"greeting"}, JobCount: int32(count), // #nosec G115 -- small
		},
	})
	require.NoError(p, err)
	require.Len(p, answer.Keyed, count)
	return answer.Keyed
}

// turns enqueues a job of each key and has them take their turns in this order, as a claim does that leaves the jobs.
func (p planted) turns(keys ...string) {
	p.Helper()
	for _, key := range keys {
		p.enqueue(jobq.EnqueueOptions{PartitionKey: key})
		p.exec("insert into jobq.lane (queue, key, turn) values ('q', $1, nextval('jobq.lane_turn_seq'))", key)
	}
	p.exec("truncate jobq.lane_hint")
}

// claimPlain enqueues two jobs without a key and claims them.
func (p planted) claimPlain() {
	p.Helper()
	p.enqueue(jobq.EnqueueOptions{})
	p.enqueue(jobq.EnqueueOptions{})
	require.Len(p, p.Claim("q", 2), 2)
}

// endKeyed enqueues a job of the key a and ends its run as failed, for good or with an hour until its retry.
func (p planted) endKeyed(final bool) {
	p.Helper()
	p.enqueue(jobq.EnqueueOptions{PartitionKey: "a"})
	job := p.claimKeyed(1)[0]
	_, err := p.Schema.Exchange(context.Background(), p.Client.Pool(), db.Exchange{
		Owner: "w", Queue: "q", EndedKeys: []string{"a"}, Endings: []db.Ending{{
			Slot:    db.Slot{ID: job.ID, Token: job.LeaseToken, Slot: job.Slot, ClaimedAt: job.StartedAt.Time},
			Outcome: "failed", Error: "e", Started: true, Final: final, Delay: db.DelayOf(time.Hour),
		}},
	})
	require.NoError(p, err)
}

// end enqueues a job and ends its first run in the way given.
func (p planted) end(outcome string, delay time.Duration) int64 {
	p.Helper()
	id := p.enqueue(jobq.EnqueueOptions{})
	answer, err := p.Schema.Exchange(context.Background(), p.Client.Pool(), db.Exchange{Owner: "w", Endings: []db.Ending{{
		Slot: jobtest.At(p.Claim("q", 1)[0]), Outcome: outcome, Error: "no luck", Delay: db.DelayOf(delay), Final: delay == 0, Started: true,
	}}})
	require.NoError(p, err)
	require.Len(p, answer.Ended, 1)
	return id
}

// hold runs statements in a transaction that stays open until the test ends, and
// returns its session.
func (p planted) hold(statements ...string) (pid int) {
	p.Helper()
	ctx := context.Background()
	tx, err := p.Client.Pool().Begin(ctx)
	require.NoError(p, err)
	p.Cleanup(func() { require.NoError(p, tx.Rollback(ctx)) })
	for _, statement := range statements {
		_, err := tx.Exec(ctx, statement)
		require.NoError(p, err)
	}
	require.NoError(p, tx.QueryRow(ctx, "select pg_backend_pid()").Scan(&pid))
	return pid
}

// newest is the job that was inserted last.
func (p planted) newest() (id int64) {
	p.Helper()
	require.NoError(p, p.Client.Pool().QueryRow(context.Background(), "select max(id) from jobq.pending").Scan(&id))
	return id
}

// janitor holds the janitor's lock, as a janitor does that is alive.
func (p planted) janitor() { p.lock(db.LockJanitor) }

func (p planted) lock(role db.LockRole) {
	p.Helper()
	class, object := p.Schema.AdvisoryKey(role)
	p.hold(fmt.Sprintf("select pg_advisory_xact_lock(%d, %d)", class, object))
}

func (p planted) act(action jobq.Action, id int64) {
	p.Helper()
	acted, err := p.Operator.Act(context.Background(), action, operator.Target{ID: id})
	require.NoError(p, err)
	require.Empty(p, acted.Jobs[0].Problem)
}

// settle does what a janitor does, until the job does not wait.
func (p planted) settle(id int64) {
	p.Helper()
	require.Eventually(p, func() bool {
		require.NoError(p, jobtest.ErrorOf(p.Queries.DependencyStep(context.Background(), db.DueFrom(time.Time{}), 500)))
		return jobtest.State(p.T, p.Client, id) != jobq.StateWaiting
	}, time.Minute, time.Millisecond)
}

func (p planted) pause() {
	p.Helper()
	require.NoError(p, jobtest.ErrorOf(p.Operator.PauseQueue(context.Background(), "q", "books are closed")))
}

// limit sets a limit or a rate of the queue.
func (p planted) limit(change operator.QueueChange) {
	p.Helper()
	require.NoError(p, jobtest.ErrorOf(p.Operator.SetQueue(context.Background(), "q", change)))
}

// requireAgrees claims as a worker with room does, and requires that it gets the job if that is
// next in line, and not if a reason of the claim's own keeps it from being taken.
func (p planted) requireAgrees(id int64, reason monitor.Reason) {
	p.Helper()
	says, _ := format.Why(id, reason, time.Now())
	next := reason.Code == monitor.ReasonNextInLine && strings.HasPrefix(says, "it is next in line")
	refused := []monitor.ReasonCode{
		monitor.ReasonQueuePaused, monitor.ReasonKindPaused, monitor.ReasonKeyPaused, monitor.ReasonQueueLimit, monitor.ReasonQueueRate, monitor.ReasonKeyRate, monitor.ReasonKeyLimit, monitor.ReasonKeyHead, monitor.ReasonRowLocked,
	}
	if !next && !slices.Contains(refused, reason.Code) {
		return
	}
	answer, err := p.Schema.Exchange(context.Background(), p.Client.Pool(), db.Exchange{Owner: "w", Queue: "q", HasLimits: true, HasKeys: true, SlotsFree: 10, Claim: &db.JobClaimParams{
		Lease: db.Interval(time.Hour), Owner: "w", Queue: "q", Kinds: []string{"greeting"}, JobCount: 10,
	}})
	require.NoError(p, err)
	for _, job := range answer.Keyed {
		answer.Claimed = append(answer.Claimed, job.JobClaimRow)
	}
	require.Equal(p, next, slices.ContainsFunc(answer.Claimed, func(job db.JobClaimRow) bool { return job.ID == id }), "claimed")
}

// throttle gives the queue a rate of one job an hour, and has that used a minute ago.
func (p planted) throttle() {
	p.Helper()
	p.limit(operator.QueueChange{Rate: &jobq.Rate{Jobs: 1, Period: time.Hour, Burst: 1}})
	p.exec("insert into jobq.throttle (queue, number, step_us, ready_at) values ('q', 1, 3600000000, now() + interval '59 min')")
}

// throttleKey has a key use up its rate with one of two jobs.
func (p planted) throttleKey(key string) {
	p.Helper()
	p.limit(operator.QueueChange{KeyRate: &jobq.Rate{Jobs: 1, Period: time.Hour, Burst: 1}})
	p.add(key, 2)
	p.claimKeyed(1)
}

// lockRow locks the row of a job that waits.
func (p planted) lockRow(id int64) (pid int) {
	return p.hold(fmt.Sprintf("select from jobq.pending where id = %d for update", id))
}

// Each reason, planted once, is found with its facts, and none is found that does not
// hold. A claim agrees.
func TestWhy(t *testing.T) {
	t.Parallel()
	found := make(map[monitor.ReasonCode]bool)
	for _, c := range slices.Concat(waitingCases(), slotCases(), suspendedCases(), claimedCases()) {
		for _, code := range c.reasons {
			found[code] = true
		}
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p := planted{jobtest.NewWorker(t)}
			id := c.plant(p)
			reasons, err := p.Monitor.Why(context.Background(), id)
			require.NoError(t, err)
			var codes []monitor.ReasonCode
			for _, reason := range reasons {
				codes = append(codes, reason.Code)
				says, _ := format.Why(id, reason, time.Now())
				require.NotEqual(t, string(reason.Code), says, "has no words")
			}
			require.Equal(t, c.reasons, codes)
			says, advice := format.Why(id, reasons[0], time.Now())
			for _, part := range c.says {
				require.Contains(t, says, part)
			}
			require.Contains(t, advice, c.advice)
			p.requireAgrees(id, reasons[0])
			require.Equal(t, codes[0] == monitor.ReasonDeleted || codes[0] == monitor.ReasonGone || codes[0] == monitor.ReasonUnknown, codes[0].Missing())
		})
	}
	require.Len(t, found, 34, "every reason has a case")
}

// The session that holds a lock is told with what it does, and of a lock on a run of a
// lost lease as well.
func TestWhyNamesSessions(t *testing.T) {
	t.Parallel()
	p := planted{jobtest.NewWorker(t)}
	p.serve("w", 4, "greeting")
	id := p.enqueue(jobq.EnqueueOptions{})
	pid := p.lockRow(id)
	reasons, err := p.Monitor.Why(context.Background(), id)
	require.NoError(t, err)
	require.Len(t, reasons, 1)
	lock := reasons[0].Facts.Session
	require.Equal(t, pid, lock.PID)
	require.Equal(t, "idle in transaction", lock.State)
	require.Contains(t, lock.Query, "select pg_backend_pid()")
	require.NotNil(t, lock.Since)
	require.False(t, lock.Hidden)
}

// The keys that have their turn before a job's are as many as the claims of one job that come before its own.
func TestWhyCountsTurns(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	p := planted{jobtest.NewWorker(t)}
	p.serve("w", 99, "greeting")
	keys := []string{"a", "b", "c", "d", "e"}
	ids := make(map[string]int64)
	for _, key := range keys {
		p.enqueue(jobq.EnqueueOptions{PartitionKey: key})
		ids[key] = p.enqueue(jobq.EnqueueOptions{PartitionKey: key})
	}
	facts := func(key string) monitor.ReasonFacts {
		reasons, err := p.Monitor.Why(ctx, ids[key])
		require.NoError(t, err)
		require.Equal(t, monitor.ReasonNextInLine, reasons[0].Code)
		return reasons[0].Facts
	}
	require.EqualValues(t, 4, *facts("a").KeysNew)
	p.claimKeyed(len(keys)) // one of each, and then all have their turns, in an order of the claim's
	var order []string
	for i := range keys {
		for _, key := range keys {
			if !slices.Contains(order, key) && *facts(key).KeysBefore == 0 {
				require.Zero(t, *facts(key).KeysNew)
				order = append(order, key)
				break
			}
		}
		require.Len(t, order, i+1, "no key is the next one")
		for _, key := range keys {
			if !slices.Contains(order, key) {
				require.Positive(t, *facts(key).KeysBefore)
			}
		}
		key := order[len(order)-1]
		require.Equal(t, ids[key], p.claimKeyed(1)[0].ID, "the next one is of key %s", key)
	}
}

// An answer is of one moment, even if it has to wait on its way: what is committed
// meanwhile is not in it. Method: it waits for a lock on the workers, which it reads before
// it counts what is in the line.
func TestWhyIsOfOneSnapshot(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	p := planted{jobtest.NewWorker(t)}
	p.serve("w", 4, "greeting")
	first, id := p.enqueue(jobq.EnqueueOptions{}), p.enqueue(jobq.EnqueueOptions{})
	tx, err := p.Client.Pool().Begin(ctx)
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(ctx) }()
	_, err = tx.Exec(ctx, "lock table jobq.worker in access exclusive mode")
	require.NoError(t, err)
	type answer struct {
		reasons []monitor.Reason
		err     error
	}
	answered := make(chan answer, 1)
	go func() {
		reasons, err := p.Monitor.Why(ctx, id)
		answered <- answer{reasons, err}
	}()
	jobtest.AwaitWaiting(t, p.Client.Pool(), 1)
	p.exec("delete from jobq.pending where id = $1", first)
	require.NoError(t, tx.Rollback(ctx))
	then := <-answered
	require.NoError(t, then.err)
	require.Len(t, then.reasons, 1)
	require.Equal(t, monitor.ReasonNextInLine, then.reasons[0].Code)
	require.EqualValues(t, 1, *then.reasons[0].Facts.Before)
	now, err := p.Monitor.Why(ctx, id)
	require.NoError(t, err)
	require.Zero(t, *now[0].Facts.Before)
	require.Zero(t, p.Count("select count(*) from pg_proc where pronamespace = 'jobq'::regnamespace and proname like 'why%' and provolatile <> 's'"),
		"a volatile one has a snapshot for each of its statements")
}

// What is no id is refused.
func TestWhyRefusesNoID(t *testing.T) {
	t.Parallel()
	m := monitor.New(jobtest.Client(t))
	for _, id := range []int64{0, -1} {
		_, err := m.Why(context.Background(), id)
		require.ErrorIs(t, err, jobq.ErrInvalid)
	}
}

// The weight of a job's key is told beside the keys that are before it.
func TestWhyTellsTheWeight(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	p := planted{jobtest.NewWorker(t)}
	p.serve("w", 99, "greeting")
	for _, key := range []string{"a", "b"} {
		p.enqueue(jobq.EnqueueOptions{PartitionKey: key})
	}
	require.NoError(t, jobtest.ErrorOf(p.Operator.SetKeyWeight(ctx, "q", "a", 3)))
	require.NoError(t, jobtest.ErrorOf(p.Operator.SetKeyWeight(ctx, "q", "gone", 5)))
	id := p.enqueue(jobq.EnqueueOptions{PartitionKey: "a"})
	plain := p.enqueue(jobq.EnqueueOptions{PartitionKey: "b"})
	told := func(id int64) (int64, string) {
		reasons, err := p.Monitor.Why(ctx, id)
		require.NoError(t, err)
		require.Equal(t, monitor.ReasonNextInLine, reasons[0].Code)
		says, _ := format.Why(id, reasons[0], time.Now())
		return reasons[0].Facts.KeyWeight, says
	}
	weight, says := told(id)
	require.EqualValues(t, 3, weight)
	require.Contains(t, says, "before its key, of weight 3, in the turn")
	weight, says = told(plain)
	require.Zero(t, weight)
	require.NotContains(t, says, "weight")
}

// In a queue with groups of keys, the group of a job's key is told with its weight, and no number of keys before it: one that comes later
// may have its turn first.
func TestWhyTellsTheGroup(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	p := planted{jobtest.NewWorker(t)}
	p.serve("w", 99, "greeting")
	require.NoError(t, jobtest.ErrorOf(p.Operator.SetQueue(ctx, "q", operator.QueueChange{KeySeparator: new("/")})))
	p.enqueue(jobq.EnqueueOptions{PartitionKey: "acme/1"})
	id := p.enqueue(jobq.EnqueueOptions{PartitionKey: "acme/1"})
	told := func() (monitor.ReasonFacts, string) {
		reasons, err := p.Monitor.Why(ctx, id)
		require.NoError(t, err)
		require.Equal(t, monitor.ReasonNextInLine, reasons[0].Code)
		says, _ := format.Why(id, reasons[0], time.Now())
		return reasons[0].Facts, says
	}
	facts, says := told()
	require.Equal(t, "acme", facts.KeyGroup)
	require.Nil(t, facts.KeysBefore)
	require.Contains(t, says, "1 job of its key is before it in the line, and its key has a share of the turns of the group acme, and workers have room")
	p.claimKeyed(1)
	require.NoError(t, jobtest.ErrorOf(p.Operator.SetKeyWeight(ctx, "q", "acme", 3)))
	facts, says = told()
	require.EqualValues(t, 3, facts.KeyGroupWeight)
	require.Contains(t, says, "no job of its key is before it in the line, and its key has a share of the turns of the group acme, of weight 3, and workers have room")
}
