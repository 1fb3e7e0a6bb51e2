package worker_test

import (
	"context"
	"fmt"
	"log/slog"
	osexec "os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/operator"
	"github.com/jobq-dev/jobq/worker"
)

// addOfKey adds so many jobs of a key together.
func addOfKey(t *testing.T, client *jobq.Client, key string, n, count int) {
	t.Helper()
	jobs := make([]jobq.EnqueueParams, count)
	for i := range jobs {
		jobs[i] = jobq.EnqueueParams{Args: task{n}, EnqueueOptions: *ofKey(key)}
	}
	_, err := client.EnqueueMany(context.Background(), jobs)
	require.NoError(t, err)
}

// keyStarts are the starts of jobs by their keys: those of the runs that count, and of those before that an attempt tells of.
const keyStarts = `with l as (
    select x.id, x.claimed_at from jobq.lease x union all select x.id, x.claimed_at from jobq.past_lease x
  ), start as (
    select j.partition_key as key, l.claimed_at as at
      from jobq.job j
      cross join lateral (select j.lease_token as token union select a.lease_token from jobq.attempt a where a.job_id = j.id) x
      join l on l.id = x.token
  ), c as (select s.key, s.at, count(*) as jobs from start s group by s.key, s.at
  ), s as (select c.*, sum(c.jobs) over (partition by c.key order by c.at) as total from c) `

// aboveKeyRate counts the spans from one claim of a key to another in which more of its jobs started than $1 a second and a burst of $2.
const aboveKeyRate = keyStarts + `select count(*) from s a join s b on b.key = a.key and b.at >= a.at
	where b.total - a.total + a.jobs > $1::integer * extract(epoch from b.at - a.at) + $2::integer`

// A rate for each of two keys over 6 processes, of which some are killed while they run a job: never do more of a key start than its
// rate and burst allow, and all of them run. The lost jobs have used the rate, and use it again.
func TestKeyRateOverKilledProcesses(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	client := newClient(t)
	schema, err := db.NewSchema(client.Schema())
	require.NoError(t, err)
	setQueue(t, client, operator.QueueChange{KeyRate: &jobq.Rate{Jobs: 50, Period: time.Second, Burst: 5}})
	children := startLimitChildren(t, client, 6)
	total := 0
	for kill := 1; kill <= 3; kill++ {
		hold := enqueue(t, client, -kill, ofKey("a"))
		addOfKey(t, client, "a", kill, 20)
		addOfKey(t, client, "b", kill, 20)
		total += 41
		var victim *osexec.Cmd
		var owner string
		require.Eventually(t, func() bool {
			require.NoError(t, client.Pool().QueryRow(ctx, "select coalesce((select l.owner from jobq.lease l where $1 = any(l.job_ids)), '')", hold).Scan(&owner))
			for _, child := range children {
				if owner != "" && strings.Contains(owner, fmt.Sprintf("-%d-", child.Process.Pid)) {
					victim = child
				}
			}
			return victim != nil
		}, patience, time.Millisecond, "the job to kill does not run")
		require.NoError(t, victim.Process.Kill())
		_ = victim.Wait()
		require.Eventually(t, func() bool { return number(t, client, locksOf, 78, victim.Process.Pid) == 0 }, patience, time.Millisecond)
		_, err := schema.Reap(ctx, client.Pool(), []string{owner}, 100, "test")
		require.NoError(t, err)
		exec(t, client.Pool(), "insert into proceed values ($1)", -kill)
	}
	require.Eventually(t, func() bool { return drained(t, client) }, patience, 5*time.Millisecond)
	require.Equal(t, total, number(t, client, "select count(*) from jobq.job where state = 'completed'"))
	require.Positive(t, number(t, client, "select count(*) from jobq.attempt where outcome = 'lost'"))
	require.Equal(t, number(t, client, "select count(*) from jobq.attempt where outcome <> 'completed'")+total, number(t, client, keyStarts+"select count(*) from start"))
	require.Zero(t, number(t, client, aboveKeyRate, 50, 5))
	require.Zero(t, number(t, client, "select count(*) from jobq.run where attempts > 0 and id not in (select job_id from jobq.attempt)"), "to be throttled is no attempt")
}

// An idle worker starts the next job of a throttled key when it may start, and needs neither a poll nor a notification for
// that: nobody but the worker itself does anything meanwhile.
func TestThrottledKeyStartsByItself(t *testing.T) {
	t.Parallel()
	for name, config := range map[string]*worker.Config{"listening": {PollInterval: time.Hour}, "polling": {PollInterval: time.Hour, PollOnly: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := newClient(t)
			setQueue(t, client, operator.QueueChange{KeyRate: &jobq.Rate{Jobs: 20, Period: time.Second, Burst: 1}})
			addOfKey(t, client, "a", 1, 10)
			addOfKey(t, client, "b", 1, 5)
			ran := make(chan string, 15)
			start(t, client, config, func(_ context.Context, job *worker.Job[task]) error {
				ran <- job.PartitionKey()
				return nil
			})
			for range 15 {
				receive(t, ran, "a start")
			}
			require.Zero(t, number(t, client, aboveKeyRate, 20, 1))
		})
	}
}

// While the worker that has throttled a key is full, an idle one starts the key's next job: it was told of the first jobs, and of nothing
// since.
func TestThrottledKeyStartsElsewhere(t *testing.T) {
	t.Parallel()
	client := newClient(t)
	setQueue(t, client, operator.QueueChange{KeyRate: &jobq.Rate{Jobs: 5, Period: time.Second, Burst: 1}})
	begun, proceed := make(chan int, 2), make(chan struct{})
	defer close(proceed)
	for i := range 2 {
		startIdle(t, client, func(context.Context, *worker.Job[task]) error {
			begun <- i
			<-proceed
			return nil
		})
	}
	addOfKey(t, client, "a", 1, 2)
	first := receive(t, begun, "the first start")
	require.NotEqual(t, first, receive(t, begun, "a start in the other worker"))
}

// startIdle runs a worker, and returns when it is told of new jobs.
func startIdle(t *testing.T, client *jobq.Client, handler worker.Handler[task]) {
	t.Helper()
	w, err := worker.New(client, &worker.Config{
		NoJanitor: true,
		Queues:    map[string]worker.QueueConfig{"default": {Slots: 1}}, PollInterval: time.Hour, Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	require.NoError(t, worker.Handle(w, handler, nil))
	run(t, w)
	require.Eventually(t, func() bool {
		_, still := worker.LastNotification(w)
		return still && worker.IsPresent(w)
	}, patience, time.Millisecond)
}

// Where workers are many, whoever has left nothing after a notification tells the others, and these do not look. With a throttled key it does
// not: they are to learn when its next job may start, since the worker that knows it may be full then, or gone.
func TestThrottledKeyIsLookedAtByAll(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	client := newClient(t)
	pretendFleet(t, client, 5000)
	setQueue(t, client, operator.QueueChange{KeyRate: &jobq.Rate{Jobs: 2, Period: time.Second, Burst: 1}})
	conn, err := client.Pool().Acquire(ctx)
	require.NoError(t, err)
	defer conn.Release()
	_, err = conn.Exec(ctx, "listen "+db.Channel("jobq", db.TopicTaken)+"; listen done")
	require.NoError(t, err)
	// told says whether others were told that nothing is left after a notification of new jobs.
	told := func(notification string) (told bool) {
		exec(t, client.Pool(), "notify done")
		for {
			received, err := conn.Conn().WaitForNotification(ctx)
			require.NoError(t, err)
			if received.Channel == "done" {
				return told
			}
			told = told || strings.HasPrefix(received.Payload, notification+" ")
		}
	}
	ran := make(chan int, 3)
	w := start(t, client, &worker.Config{PollInterval: time.Hour}, func(context.Context, *worker.Job[task]) error {
		ran <- 1
		return nil
	})
	var before string
	require.Eventually(t, func() bool { // nobody is told of what comes before the worker has said that it waits
		if !worker.IsAtRest(w.Worker) {
			return false
		}
		enqueue(t, client, 1, nil)
		receive(t, ran, "a start")
		before, _ = worker.LastNotification(w.Worker)
		return before != ""
	}, patience, time.Millisecond)
	addOfKey(t, client, "a", 1, 3)
	receive(t, ran, "the first start")
	receive(t, ran, "the second start, half a second later")
	notification, _ := worker.LastNotification(w.Worker)
	require.NotEqual(t, before, notification)
	require.False(t, told(notification), "one more waits for the rate")
	receive(t, ran, "the last start")
	require.Eventually(t, func() bool { return told(notification) }, patience, 10*time.Millisecond, "nothing waits any more")
}

// One throttled key with very many jobs delays no other key, and no job without one.
func TestThrottledKeyDelaysNobody(t *testing.T) {
	t.Parallel()
	client := newClient(t)
	setQueue(t, client, operator.QueueChange{KeyRate: &jobq.Rate{Jobs: 1, Period: time.Hour, Burst: 1}})
	exec(t, client.Pool(), "insert into jobq.pending (kind, args, partition_key) select 'task', '{}', 'a' from generate_series(1, 50000)")
	for n := 1; n <= 20; n++ {
		enqueue(t, client, n, ofKey(fmt.Sprint("small ", n)))
		enqueue(t, client, n, nil)
	}
	ran := make(chan string, 50)
	start(t, client, &worker.Config{PollInterval: time.Hour}, func(_ context.Context, job *worker.Job[task]) error {
		ran <- job.PartitionKey()
		return nil
	})
	for range 41 {
		receive(t, ran, "a start")
	}
	require.Equal(t, 49_999, number(t, client, "select count(*) from jobq.pending"))
}
