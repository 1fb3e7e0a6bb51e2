package worker_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	osexec "os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/operator"
	"github.com/jobq-dev/jobq/worker"
)

// ofKey are the options of a job with a partition key.
func ofKey(key string) *jobq.EnqueueOptions { return &jobq.EnqueueOptions{PartitionKey: key} }

// A limit of 3 for each of two keys over 6 processes, of which some are killed while they
// run a job: as the handlers see it, never do 4 of a key run, and when the leases of the
// dead are reaped, 3 of each run again.
func TestKeyLimitOverKilledProcesses(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	client := newClient(t)
	schema, err := db.NewSchema(client.Schema())
	require.NoError(t, err)
	setQueue(t, client, operator.QueueChange{KeyLimit: new(3)})
	children := startLimitChildren(t, client, 6)
	add := func(key string, n, count int) {
		t.Helper()
		jobs := make([]jobq.EnqueueParams, count)
		for i := range jobs {
			jobs[i] = jobq.EnqueueParams{Args: task{n}, EnqueueOptions: *ofKey(key)}
		}
		_, err := client.EnqueueMany(ctx, jobs)
		require.NoError(t, err)
	}
	total := 0
	for kill := 1; kill <= 3; kill++ {
		add("a", kill, 20)
		add("b", kill, 20)
		hold := enqueue(t, client, -kill, ofKey("a"))
		total += 41
		var owner string
		var victim *osexec.Cmd
		require.Eventually(t, func() bool {
			drained(t, client)
			require.NoError(t, client.Pool().QueryRow(ctx, `select coalesce((select l.owner from jobq.lease l
				where $1 = any(l.job_ids) and (select count(*) from jobq.pending) = 0
				and (select sum(cardinality(x.job_ids) - cardinality(x.ended_slots)) from jobq.lease x) = 1), '')`, hold).Scan(&owner))
			for _, child := range children {
				if owner != "" && strings.Contains(owner, fmt.Sprintf("-%d-", child.Process.Pid)) {
					victim = child
				}
			}
			return victim != nil && number(t, client, locksOf, 77, 0) == 1 || number(t, client, violations) > 0
		}, patience, time.Millisecond, "the job to kill does not run")
		require.Zero(t, number(t, client, violations))
		require.NoError(t, victim.Process.Kill())
		_ = victim.Wait()
		require.Eventually(t, func() bool { return number(t, client, locksOf, 78, victim.Process.Pid) == 0 }, patience, time.Millisecond)
		_, err := schema.Reap(ctx, client.Pool(), []string{owner}, 100, "test")
		require.NoError(t, err)
		exec(t, client.Pool(), "insert into proceed values ($1)", -kill)
	}
	add("a", -5, 4)
	add("b", -5, 4)
	total += 8
	require.Eventually(t, func() bool {
		drained(t, client)
		return number(t, client, locksOf, 77, 0) == 6 && number(t, client, "select count(*) from jobq.pending") == 2
	}, patience, time.Millisecond, "stuck below the limits")
	exec(t, client.Pool(), "insert into proceed values (-5)")
	require.Eventually(t, func() bool { return drained(t, client) }, patience, time.Millisecond)
	require.Equal(t, total, number(t, client, "select count(*) from jobq.job where state = 'completed'"))
	require.Zero(t, number(t, client, violations))
}

// Whatever way jobs end, no more of a key run than its limit, and all of them run. The
// polls are far too slow to be the reason.
func TestKeyLimitBesideAllEnds(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	client := newClient(t)
	setQueue(t, client, operator.QueueChange{KeyLimit: new(2)})
	var mu sync.Mutex
	running, most := make(map[string]int), make(map[string]int)
	snoozed := make(map[int64]bool)
	for range 3 {
		start(t, client, &worker.Config{Queues: map[string]worker.QueueConfig{"default": {Slots: 4}}, PollInterval: time.Hour}, func(ctx context.Context, job *worker.Job[task]) error {
			key := job.PartitionKey()
			mu.Lock()
			running[key]++
			most[key] = max(most[key], running[key])
			again := snoozed[job.ID()]
			snoozed[job.ID()] = true
			mu.Unlock()
			defer func() {
				mu.Lock()
				running[key]--
				mu.Unlock()
			}()
			switch job.Args.N % 5 {
			case 0:
				return errors.New("fails")
			case 1:
				if !again {
					return worker.Snooze(time.Millisecond)
				}
			case 2:
				return pgx.BeginFunc(ctx, client.Pool(), func(tx pgx.Tx) error { return job.CompleteTx(ctx, tx) })
			case 3:
				panic("no luck")
			}
			return nil
		})
	}
	batch := make([]jobq.EnqueueParams, 120)
	for i := range batch {
		batch[i] = jobq.EnqueueParams{Args: task{i}, EnqueueOptions: jobq.EnqueueOptions{MaxAttempts: 1}}
		if i%4 > 0 {
			batch[i].PartitionKey = fmt.Sprint("key ", i%4)
		}
	}
	_, err := client.EnqueueMany(ctx, batch)
	require.NoError(t, err)
	require.Eventually(t, func() bool { return drained(t, client) }, patience, 5*time.Millisecond)
	require.Equal(t, 120, number(t, client, "select count(*) from jobq.job where state in ('completed', 'failed')"))
	mu.Lock()
	defer mu.Unlock()
	for _, key := range []string{"key 1", "key 2", "key 3"} {
		require.LessOrEqual(t, most[key], 2, key)
	}
}

// The first job with a key that a queue ever has runs soon, and so does a later one of
// another key. The polls are far too slow to be the reason.
func TestFirstKeyOfAQueue(t *testing.T) {
	t.Parallel()
	client := newClient(t)
	ran := make(chan int, 10)
	w := start(t, client, &worker.Config{PollInterval: time.Hour}, func(_ context.Context, job *worker.Job[task]) error {
		ran <- job.Args.N
		return nil
	})
	require.Eventually(t, func() bool {
		_, still := worker.LastNotification(w.Worker)
		return still && worker.IsPresent(w.Worker)
	}, patience, time.Millisecond)
	for n := 1; n <= 3; n++ {
		enqueue(t, client, n, ofKey(fmt.Sprint("key ", n)))
		require.Equal(t, n, receive(t, ran, "the job with a key"))
	}
}

// A tenant with many jobs does not delay one with three.
func TestBigTenantDelaysNobody(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	client := newClient(t)
	jobs := make([]jobq.EnqueueParams, 0, 203)
	for i := range 203 {
		key := "big"
		if i >= 200 {
			key = "small"
		}
		jobs = append(jobs, jobq.EnqueueParams{Args: task{i}, EnqueueOptions: *ofKey(key)})
	}
	_, err := client.EnqueueMany(ctx, jobs)
	require.NoError(t, err)
	order := make(chan string, len(jobs))
	start(t, client, &worker.Config{Queues: map[string]worker.QueueConfig{"default": {Slots: 2}}, PollInterval: time.Hour}, func(_ context.Context, job *worker.Job[task]) error {
		order <- job.PartitionKey()
		return nil
	})
	before, small := 0, 0
	for small < 3 {
		if receive(t, order, "a start") == "small" {
			small++
		} else {
			before++
		}
	}
	require.LessOrEqual(t, before, 12)
	for range 200 - before {
		receive(t, order, "a start")
	}
}

// A tenant whose jobs are spread over many keys starts as many as one with a single key, where the queue has groups of keys.
func TestTenantOfManyKeysGainsNothing(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	client := newClient(t)
	setQueue(t, client, operator.QueueChange{KeySeparator: new("/"), KeyLimit: new(2)})
	const big, small = 300, 60
	jobs := make([]jobq.EnqueueParams, 0, big+small)
	for i := range big {
		jobs = append(jobs, jobq.EnqueueParams{Args: task{i}, EnqueueOptions: *ofKey(fmt.Sprint("big/", i))})
	}
	for i := range small {
		jobs = append(jobs, jobq.EnqueueParams{Args: task{i}, EnqueueOptions: *ofKey("small/1")})
	}
	_, err := client.EnqueueMany(ctx, jobs)
	require.NoError(t, err)
	order := make(chan string, len(jobs))
	start(t, client, &worker.Config{Queues: map[string]worker.QueueConfig{"default": {Slots: 3}}, PollInterval: time.Hour}, func(_ context.Context, job *worker.Job[task]) error {
		order <- job.PartitionKey()
		return nil
	})
	before := 0
	for started := 0; started < small; {
		if receive(t, order, "a start") == "small/1" {
			started++
		} else {
			before++
		}
	}
	require.InDelta(t, small, before, 20)
	for range big - before {
		receive(t, order, "a start")
	}
}

// An end makes room in its key for a job that another worker alone can run, which sleeps. The
// polls are far too slow to be the reason.
func TestRoomOfAKeyWakesOthers(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	client := newClient(t)
	setQueue(t, client, operator.QueueChange{KeyLimit: new(1)})
	begun, proceed := make(chan int, 1), make(chan struct{})
	start(t, client, &worker.Config{PollInterval: time.Hour}, func(_ context.Context, job *worker.Job[task]) error {
		begun <- job.Args.N
		<-proceed
		return nil
	})
	enqueue(t, client, 1, ofKey("a"))
	receive(t, begun, "the first start")
	other, err := worker.New(client, &worker.Config{NoJanitor: true, PollInterval: time.Hour, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	ran := make(chan struct{}, 1)
	require.NoError(t, worker.HandleRaw(other, "other", func(context.Context, *worker.Job[jobq.RawArgs]) error {
		ran <- struct{}{}
		return nil
	}, nil))
	run(t, other)
	_, err = client.Enqueue(ctx, jobq.RawArgs{Name: "other"}, ofKey("a"))
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		_, still := worker.LastNotification(other)
		return still && worker.IsPresent(other) && number(t, client, "select count(*) from jobq.lane where full_limit = 1") == 1 && number(t, client, "select count(*) from jobq.lane_hint") == 0
	}, patience, time.Millisecond)
	close(proceed)
	awaitRun(t, ran)
}

// A limit of the keys that is raised holds at once, and idle workers hear of it. The polls are
// far too slow to be the reason.
func TestKeyLimitRaisedAtWork(t *testing.T) {
	t.Parallel()
	client := newClient(t)
	setQueue(t, client, operator.QueueChange{KeyLimit: new(1)})
	begun, proceed := make(chan int, 10), make(chan struct{})
	w := start(t, client, &worker.Config{Queues: map[string]worker.QueueConfig{"default": {Slots: 8}}, PollInterval: time.Hour}, func(_ context.Context, job *worker.Job[task]) error {
		begun <- job.Args.N
		<-proceed
		return nil
	})
	for n := range 4 {
		enqueue(t, client, n, ofKey("a"))
	}
	receive(t, begun, "the first start")
	require.Eventually(t, func() bool { return worker.IsPresent(w.Worker) }, patience, time.Millisecond)
	require.Equal(t, 3, number(t, client, "select count(*) from jobq.pending"))
	setQueue(t, client, operator.QueueChange{KeyLimit: new(3)})
	receive(t, begun, "a start after the limit was raised")
	receive(t, begun, "a start after the limit was raised")
	require.Equal(t, 1, number(t, client, "select count(*) from jobq.pending"))
	close(proceed)
	require.Eventually(t, func() bool { return w.Counts().Completed == 4 }, patience, time.Millisecond)
}

// Keys that have only jobs which no worker of this kind can run keep none from those behind
// them. The polls are far too slow to be the reason.
func TestKeysOfOtherWorkersAreNoObstacle(t *testing.T) {
	t.Parallel()
	client := newClient(t)
	exec(t, client.Pool(), "select jobq.enqueue('other', partition_key => 'other ' || i) from generate_series(1, 250) i")
	ran := make(chan int, 10)
	start(t, client, &worker.Config{PollInterval: time.Hour}, func(_ context.Context, job *worker.Job[task]) error {
		ran <- job.Args.N
		return nil
	})
	for n := 1; n <= 3; n++ {
		enqueue(t, client, n, ofKey(fmt.Sprint("key ", n)))
		require.Equal(t, n, receive(t, ran, "the job behind them"))
	}
}
