package worker_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	osexec "os/exec"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/operator"
	"github.com/jobq-dev/jobq/worker"
)

// limitChild is the variable that makes the test program a worker: the URL of its database.
const limitChild = "JOBQ_LIMIT_CHILD"

// runLimitChild is a worker process. Its handler takes one of three locks of the database
// while it runs, of the job's partition key if it has one, and writes a row when all are taken: more than three run. A job with a
// number below 0 runs until the table proceed has that number.
//
// Each session has a lock with the number of the process: when nobody has that, all that
// a killed process had begun in the database is over.
func runLimitChild(url string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	go func() { // ends with the test, even one that is killed
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return err
	}
	config.MaxConns = 2 // as many as the worker has slots; it makes a pool of its own
	config.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, "select pg_advisory_lock_shared(78, $1)", os.Getpid())
		return err
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return err
	}
	defer pool.Close()
	client, err := jobq.NewClient(pool, nil)
	if err != nil {
		return err
	}
	w, err := worker.New(client, &worker.Config{
		NoJanitor: true,
		Queues:    map[string]worker.QueueConfig{"default": {Slots: 2}}, PollInterval: 100 * time.Millisecond,
		Reconcile: worker.ReconcileOff, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return err
	}
	err = worker.Handle(w, func(ctx context.Context, job *worker.Job[task]) error {
		return pool.AcquireFunc(ctx, func(conn *pgxpool.Conn) error {
			var place int
			first := 1 // each key has its own three locks
			if key := job.PartitionKey(); key != "" {
				first = 10 * int(key[0])
			}
			err := conn.QueryRow(ctx, "select coalesce((select i from generate_series($1::integer, $1::integer + 2) i where pg_try_advisory_lock(77, i) limit 1), 0)", first).Scan(&place)
			if err == nil && place == 0 {
				_, err = conn.Exec(ctx, "insert into violation values ($1)", job.Args.N)
			}
			for proceed := false; err == nil && !proceed; {
				err = conn.QueryRow(ctx, "select $1 >= 0 or exists (select from proceed where n = $1) from pg_sleep(0.01)", job.Args.N).Scan(&proceed)
			}
			_, unlocked := conn.Exec(context.WithoutCancel(ctx), "select pg_advisory_unlock(77, $1) where $1 > 0", place)
			return errors.Join(err, unlocked)
		})
	}, nil)
	if err != nil {
		return err
	}
	return w.Run(ctx)
}

// startLimitChildren starts worker processes that end with the test.
func startLimitChildren(t *testing.T, client *jobq.Client, count int) []*osexec.Cmd {
	t.Helper()
	exec(t, client.Pool(), "create table violation (n integer); create table proceed (n integer)")
	children := make([]*osexec.Cmd, count)
	for i := range children {
		child := osexec.Command(os.Args[0]) // #nosec G204 -- this test program
		child.Env, child.Stderr = append(os.Environ(), limitChild+"="+client.Pool().Config().ConnString()), os.Stderr
		_, err := child.StdinPipe() // which this process holds open
		require.NoError(t, err)
		require.NoError(t, child.Start())
		t.Cleanup(func() {
			_ = child.Process.Signal(syscall.SIGTERM)
			_ = child.Wait()
		})
		children[i] = child
	}
	return children
}

func number(t *testing.T, client *jobq.Client, sql string, args ...any) (number int) {
	t.Helper()
	require.NoError(t, client.Pool().QueryRow(context.Background(), sql, args...).Scan(&number))
	return number
}

// setQueue changes settings of the queue default.
func setQueue(t *testing.T, client *jobq.Client, change operator.QueueChange) {
	t.Helper()
	_, err := operator.New(client, "test").SetQueue(context.Background(), "default", change)
	require.NoError(t, err)
}

// locksOf counts the sessions that have a lock of the class, and, but for 0, of the number.
const locksOf = `select count(*) from pg_locks where locktype = 'advisory' and classid = $1::integer and $2::bigint in (0, objid::bigint) and granted
	and database = (select oid from pg_database where datname = current_database())`

// violations are the jobs that began when three ran.
const violations = "select count(*) from violation"

// drained makes jobs due whose handler has failed, as a janitor would, and says whether
// no job is left.
func drained(t *testing.T, client *jobq.Client) bool {
	t.Helper()
	exec(t, client.Pool(), "update jobq.pending set run_at = now(), position = nextval('jobq.position_seq') where position is null")
	return number(t, client, "select (select count(*) from jobq.pending) + (select count(*) from jobq.lease)") == 0
}

// A limit of 3 over 8 processes, of which half are killed while they run a job: as the
// handlers see it, never do 4 run, and when the leases of the dead are reaped, 3 run again.
func TestLimitOverKilledProcesses(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	client := newClient(t)
	schema, err := db.NewSchema(client.Schema())
	require.NoError(t, err)
	setQueue(t, client, operator.QueueChange{MaxRunning: new(3)})
	children := startLimitChildren(t, client, 8)
	for kill := 1; kill <= 4; kill++ {
		together(t, client, 20)
		hold := enqueue(t, client, -kill, nil)
		var owners []string
		var victim *osexec.Cmd
		require.Eventually(t, func() bool {
			drained(t, client)
			// No other job runs: so whoever has its lease runs it, and the one place taken is its.
			require.NoError(t, client.Pool().QueryRow(ctx, `select coalesce(array_agg(l.owner) filter (where $1 = any(l.job_ids)), '{}') from jobq.lease l
				having sum(cardinality(l.job_ids) - cardinality(l.ended_slots)) = 1 and (select count(*) from jobq.pending) = 0
				union all select '{}' limit 1`, hold).Scan(&owners))
			for _, child := range children {
				if len(owners) > 0 && strings.Contains(owners[0], fmt.Sprintf("-%d-", child.Process.Pid)) {
					victim = child
				}
			}
			return victim != nil && number(t, client, locksOf, 77, 0) == 1 || number(t, client, violations) > 0
		}, patience, time.Millisecond, "the job to kill does not run")
		require.Zero(t, number(t, client, violations))
		require.NoError(t, victim.Process.Kill())
		_ = victim.Wait()
		require.Eventually(t, func() bool { return number(t, client, locksOf, 78, victim.Process.Pid) == 0 }, patience, time.Millisecond)
		_, err := schema.Reap(ctx, client.Pool(), owners, 100, "test")
		require.NoError(t, err)
		exec(t, client.Pool(), "insert into proceed values ($1)", -kill)
	}
	for range 6 {
		enqueue(t, client, -5, nil)
	}
	require.Eventually(t, func() bool {
		drained(t, client)
		return number(t, client, locksOf, 77, 0) == 3 && number(t, client, "select count(*) from jobq.pending") == 3
	}, patience, time.Millisecond, "stuck below the limit")
	exec(t, client.Pool(), "insert into proceed values (-5)")
	require.Eventually(t, func() bool { return drained(t, client) }, patience, time.Millisecond)
	require.Equal(t, 90, number(t, client, "select count(*) from jobq.job where state = 'completed'"))
	require.Zero(t, number(t, client, violations))
}

// A rate over 4 processes: between any two claims, by their moments, no more start than
// it and its burst allow.
func TestRateOverProcesses(t *testing.T) {
	t.Parallel()
	client := newClient(t)
	setQueue(t, client, operator.QueueChange{Rate: &jobq.Rate{Jobs: 100, Period: time.Second, Burst: 10}})
	together(t, client, 200)
	startLimitChildren(t, client, 4)
	require.Eventually(t, func() bool { return drained(t, client) }, patience, time.Millisecond)
	const starts = `with c as (select l.claimed_at, count(*) as jobs from jobq.past_lease l join jobq.run r on r.lease_id = l.id group by l.claimed_at),
		s as (select claimed_at, jobs, sum(jobs) over (order by claimed_at) as total from c) `
	require.Equal(t, 200, number(t, client, starts+"select max(total)::integer from s"))
	require.Zero(t, number(t, client, starts+`select count(*) from s a join s b on b.claimed_at >= a.claimed_at
		where b.total - a.total + a.jobs > 100 * extract(epoch from b.claimed_at - a.claimed_at) + 10`))
	require.Zero(t, number(t, client, "select coalesce(sum(attempts), 0) from jobq.run"), "to be throttled is no attempt")
}

// A rate of 100 a second over 4 processes is met within 1 %, by the moments of the claims: over 500 starts or more that come
// after the burst is used up. More than the rate and its burst never start, and throttled jobs start in their order.
// The burst is what the processes can be late by and catch up with: a busy machine costs time, and nothing else. On one that
// runs fewer than 400 such jobs a second without a rate, the rate is a quarter of that, and 200 starts are enough.
func TestRateIsMetOverProcesses(t *testing.T) {
	t.Parallel()
	client := newClient(t)
	together(t, client, 200)
	startLimitChildren(t, client, 4)
	require.Eventually(t, func() bool { return drained(t, client) }, patience, time.Millisecond)
	capacity := number(t, client, "select (200 / extract(epoch from max(l.claimed_at) - min(l.claimed_at)))::integer from jobq.past_lease l")
	rate := min(max(capacity/4, 5), 100)
	exec(t, client.Pool(), "create table beginning as select clock_timestamp() as at")
	setQueue(t, client, operator.QueueChange{Rate: &jobq.Rate{Jobs: rate, Period: time.Second, Burst: 4 * rate}})
	together(t, client, 600)
	// rate_left is what the rate and its burst allowed up to a claim, less what had started. It is least where the burst is used up.
	claims := strings.ReplaceAll(`with l as (
	    select x.id, x.claimed_at from jobq.lease x union all select x.id, x.claimed_at from jobq.past_lease x
	  ), c as (
	    select l.claimed_at as at, count(*) as jobs from l join jobq.run r on r.lease_id = l.id
	      where l.claimed_at > (select b.at from beginning b) group by l.claimed_at
	  ), s as (
	    select c.at, c.jobs, sum(c.jobs) over (order by c.at) as total, min(c.at) over () as first from c
	  ), claim as (
	    select s.*, 4 * RATE + RATE * extract(epoch from s.at - s.first) - s.total as rate_left from s
	  ) `, "RATE", strconv.Itoa(rate))
	met := func() bool {
		if number(t, client, "select count(*) from jobq.pending") < 300 {
			exec(t, client.Pool(), "vacuum jobq.pending") // so that jobs are stored in another order than that of their line
			together(t, client, 200)
		}
		return number(t, client, claims+`, used_up as (
		    select * from claim c where c.rate_left <= (select min(x.rate_left) from claim x) + 2 order by c.at limit 1
		  )
		  select count(*) from used_up a join claim b on b.total - a.total >= $2
		    where abs(b.total - a.total - $1 * extract(epoch from b.at - a.at)) <= 0.01 * (b.total - a.total)`, rate, max(5*rate, 200)) > 0
	}
	require.Eventually(t, met, patience, 50*time.Millisecond, "a rate of %d/s, where %d/s ran without one", rate, capacity)
	exec(t, client.Pool(), "delete from jobq.pending")
	require.Eventually(t, func() bool { return drained(t, client) }, patience, time.Millisecond)
	require.Zero(t, number(t, client, claims+`select count(*) from claim a join claim b on b.at >= a.at
		where b.total - a.total + a.jobs > $1 * extract(epoch from b.at - a.at) + 4 * $1`, rate))
	require.Zero(t, number(t, client, "select coalesce(sum(attempts), 0) from jobq.run"), "to be throttled is no attempt")
	// One that a worker gives back, since it has waited there for too long, starts later. The slots of a lease are in no order.
	require.Zero(t, number(t, client, `select count(*) from (
	    select r.id < lag(r.id) over (order by l.claimed_at, r.lease_id, r.id) as late from jobq.run r join jobq.past_lease l on l.id = r.lease_id
	      where l.claimed_at > (select b.at from beginning b) and not exists (select from jobq.attempt a where a.job_id = r.id)
	  ) x where x.late`))
}

// Whatever way jobs end in a limited queue, no more than the limit run, and in the end
// its count is 0. The polls are far too slow to be the reason.
func TestLimitBesideAllEnds(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	client := newClient(t)
	setQueue(t, client, operator.QueueChange{MaxRunning: new(3)})
	var running, most atomic.Int64
	var snoozed sync.Map
	begun := make(chan int64, 1)
	for range 3 {
		start(t, client, &worker.Config{Queues: map[string]worker.QueueConfig{"default": {Slots: 4}}, PollInterval: time.Hour}, func(ctx context.Context, job *worker.Job[task]) error {
			now := running.Add(1)
			for before := most.Load(); now > before && !most.CompareAndSwap(before, now); before = most.Load() {
			}
			defer running.Add(-1)
			switch job.Args.N % 6 {
			case 0:
				return nil
			case 1:
				return errors.New("fails")
			case 2:
				if _, again := snoozed.LoadOrStore(job.ID(), true); again {
					return nil
				}
				return worker.Snooze(time.Millisecond)
			case 3:
				return pgx.BeginFunc(ctx, client.Pool(), func(tx pgx.Tx) error { return job.CompleteTx(ctx, tx) })
			case 4:
				panic("no luck")
			}
			if job.Args.N == 5 {
				begun <- job.ID()
				<-ctx.Done()
			}
			return context.Cause(ctx)
		})
	}
	batch := make([]jobq.EnqueueParams, 120)
	for i := range batch {
		batch[i] = jobq.EnqueueParams{Args: task{i}, EnqueueOptions: jobq.EnqueueOptions{MaxAttempts: 1}}
	}
	_, err := client.EnqueueMany(ctx, batch)
	require.NoError(t, err)
	_, err = client.Cancel(ctx, receive(t, begun, "the job to cancel"))
	require.NoError(t, err)
	require.Eventually(t, func() bool { return drained(t, client) }, patience, 5*time.Millisecond)
	require.LessOrEqual(t, most.Load(), int64(3))
	require.Equal(t, 120, number(t, client, "select count(*) from jobq.job where state in ('completed', 'failed', 'cancelled')"))
}

// A limit is set, changed and taken away while workers are idle or at work. It holds at
// once, and they hear of it: the polls are far too slow to be the reason.
func TestLimitsChangeAtWork(t *testing.T) {
	t.Parallel()
	client := newClient(t)
	begun, proceed := make(chan int, 100), make(chan struct{})
	w := start(t, client, &worker.Config{Queues: map[string]worker.QueueConfig{"default": {Slots: 10}}, PollInterval: time.Hour}, func(_ context.Context, job *worker.Job[task]) error {
		begun <- job.Args.N
		<-proceed
		return nil
	})
	require.Eventually(t, func() bool { return worker.IsPresent(w.Worker) }, patience, time.Millisecond)
	setQueue(t, client, operator.QueueChange{MaxRunning: new(2)})
	together(t, client, 20)
	runs := func(count int) {
		t.Helper()
		receive(t, begun, "another start")
		require.Eventually(t, func() bool {
			return number(t, client, "select coalesce(sum(cardinality(job_ids)), 0) from jobq.lease") == count
		}, patience, time.Millisecond)
		for range count - 1 {
			receive(t, begun, "a start")
		}
	}
	runs(2)
	setQueue(t, client, operator.QueueChange{MaxRunning: new(5)})
	receive(t, begun, "a start after the limit was raised")
	receive(t, begun, "a start after the limit was raised")
	receive(t, begun, "a start after the limit was raised")
	require.Equal(t, 5, number(t, client, "select sum(cardinality(job_ids) - cardinality(ended_slots)) from jobq.lease"))
	setQueue(t, client, operator.QueueChange{MaxRunning: new(0), Rate: &jobq.Rate{Jobs: 1, Period: 24 * time.Hour, Burst: 2}})
	receive(t, begun, "a start at the rate")
	receive(t, begun, "a start at the rate")
	require.Equal(t, 7, number(t, client, "select sum(cardinality(job_ids) - cardinality(ended_slots)) from jobq.lease"))
	setQueue(t, client, operator.QueueChange{Rate: new(jobq.Rate)})
	for range 3 {
		receive(t, begun, "a start without limits")
	}
	close(proceed)
	require.Eventually(t, func() bool { return w.Counts().Completed == 20 }, patience, time.Millisecond)
}

// blockedOther starts a worker of another kind that polls once an hour, with a job for it
// that its queue's limit keeps from starting. It tells when that has run.
func blockedOther(t *testing.T, client *jobq.Client) (ran chan struct{}) {
	t.Helper()
	w, err := worker.New(client, &worker.Config{NoJanitor: true, PollInterval: time.Hour, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	ran = make(chan struct{}, 1)
	require.NoError(t, worker.HandleRaw(w, "other", func(context.Context, *worker.Job[jobq.RawArgs]) error {
		ran <- struct{}{}
		return nil
	}, nil))
	_, err = client.Enqueue(context.Background(), jobq.RawArgs{Name: "other"}, nil)
	require.NoError(t, err)
	run(t, w)
	require.Eventually(t, func() bool { return worker.IsPresent(w) && worker.IsBlocked(w) }, patience, time.Millisecond)
	return ran
}

// An end makes room for another worker, of other kinds, that was refused. The polls are far
// too slow to be the reason.
func TestRoomWakesOthers(t *testing.T) {
	t.Parallel()
	client := newClient(t)
	setQueue(t, client, operator.QueueChange{MaxRunning: new(1)})
	begun, proceed := make(chan int, 1), make(chan struct{})
	first := start(t, client, &worker.Config{PollInterval: time.Hour}, func(_ context.Context, job *worker.Job[task]) error {
		begun <- job.Args.N
		<-proceed
		return nil
	})
	enqueue(t, client, 1, nil)
	receive(t, begun, "the first start")
	ran := blockedOther(t, client)
	close(proceed)
	awaitRun(t, ran)
	require.NoError(t, first.drain())
}
