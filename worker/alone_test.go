package worker_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	osexec "os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/format"
	"github.com/jobq-dev/jobq/internal/pgtest"
	"github.com/jobq-dev/jobq/internal/sleep"
	"github.com/jobq-dev/jobq/monitor"
	"github.com/jobq-dev/jobq/worker"
)

// poisonChild is the variable that makes the test program a worker of this database, which the job
// with the number poison ends.
const poisonChild = "JOBQ_POISON_CHILD"

const poison = -1

func runPoisonChild(url string) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() { // it ends with its parent
		_, _ = os.Stdin.Read(make([]byte, 1))
		os.Exit(4)
	}()
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return err
	}
	defer pool.Close()
	client, err := jobq.NewClient(pool, nil)
	if err != nil {
		return err
	}
	w, err := worker.New(client, &worker.Config{Logger: slog.New(slog.NewTextHandler(os.Stderr, nil))})
	if err != nil {
		return err
	}
	err = worker.Handle(w, func(ctx context.Context, job *worker.Job[task]) error {
		if job.Args.N == poison {
			_ = sleep.For(ctx, 20*time.Millisecond) // others are in the middle of theirs
			os.Exit(3)
		}
		if job.Args.N == vanishing && job.Lost() < 3 {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			<-ctx.Done()
		}
		return sleep.For(ctx, 50*time.Millisecond)
	}, nil)
	if err != nil {
		return err
	}
	return w.Run(ctx)
}

// startPoisonChild starts a worker process and returns its exit code when it has ended.
func startPoisonChild(t *testing.T, client *jobq.Client, log *logBuffer) (child *osexec.Cmd, ended chan int) {
	t.Helper()
	child, ended = osexec.Command(os.Args[0]), make(chan int, 1) // #nosec G204 -- this test program
	child.Env, child.Stderr = append(os.Environ(), poisonChild+"="+client.Pool().Config().ConnString()), log
	_, err := child.StdinPipe() // which this process holds open
	require.NoError(t, err)
	require.NoError(t, child.Start())
	go func() {
		_ = child.Wait()
		ended <- child.ProcessState.ExitCode()
	}()
	return child, ended
}

// A job ends its worker's process, and the worker is restarted at once, 50 times, with other jobs that
// come all the time. None of these fails, not even those with two attempts; the poison does, and the log
// and `jobq why` name it.
func TestPoisonJobTakesNoInnocents(t *testing.T) {
	t.Parallel()
	const restarts = 50
	ctx := context.Background()
	client, log := newClient(t), &logBuffer{}
	add := func(n, maxAttempts int) int64 {
		// No janitor makes a suspect available: its worker sees when it is due.
		return enqueue(t, client, n, &jobq.EnqueueOptions{MaxAttempts: maxAttempts, BackoffBase: time.Millisecond, BackoffMax: 10 * time.Millisecond})
	}
	id := add(poison, restarts)
	for n := range 20 {
		add(n, 2+n%7)
	}
	for restart := 1; ; restart++ {
		require.LessOrEqual(t, restart, 2*restarts)
		_, ended := startPoisonChild(t, client, log)
		code := 0
		select {
		case code = <-ended:
		case <-time.After(patience):
			require.Fail(t, "no worker ends any more", "jobs: %s\n%s", states(t, client), log)
		}
		require.Equal(t, 3, code, log)
		job, err := client.Get(ctx, id)
		require.NoError(t, err)
		if job.State == jobq.StateRunning && job.Attempts == restarts-1 {
			break // the next worker finds out that this was its last attempt
		}
		for n := range 5 {
			add(n, 2+n)
		}
	}
	child, ended := startPoisonChild(t, client, log)
	require.Eventually(t, func() bool {
		return number(t, client, "select count(*) from jobq.job where state not in ('completed', 'failed')") == 0
	}, patience, 10*time.Millisecond)
	require.NoError(t, child.Process.Signal(syscall.SIGTERM))
	<-ended
	require.Zero(t, number(t, client, "select count(*) from jobq.job where state <> 'completed' and id <> $1", id), "innocents that have failed")
	require.LessOrEqual(t, number(t, client, "select coalesce(max(attempts), 0) from jobq.job where id <> $1", id), 2, "attempts that innocents have lost")
	job := awaitState(t, client, id, jobq.StateFailed)
	require.Equal(t, restarts, job.Attempts)
	require.Equal(t, restarts, job.Crashes)
	require.Contains(t, job.LastError, fmt.Sprintf("alone in its worker when that was lost, %d times in a row", restarts-2))
	require.Contains(t, log.String(), `msg="a job was alone in its worker when that was lost" worker=`)
	require.Contains(t, log.String(), fmt.Sprintf("job_id=%d", id))
	reasons, err := monitor.New(client).Why(ctx, id)
	require.NoError(t, err)
	says, _ := format.Why(id, reasons[0], time.Now())
	require.Contains(t, says, "alone in its worker when that was lost", "jobq why")
}

// A worker that waits in vain to be alone does so for a tenth of its time: 5 s, 10 s at 50 s, 20 s at 150 s, and so on. After a
// suspect it rests for as long as that kept others from beginning, which is 10 minutes at most, and begins with 5 s again.
func TestScheduleOfSuspects(t *testing.T) {
	t.Parallel()
	const s = time.Second
	holds, rests, last := worker.Schedule(7, 30*s)
	require.Equal(t, []time.Duration{5 * s, 10 * s, 20 * s, 40 * s, 80 * s, 160 * s, 320 * s, 5 * s}, holds)
	require.Equal(t, []time.Duration{45 * s, 90 * s, 180 * s, 360 * s, 720 * s, 1440 * s, 2880 * s}, rests)
	require.Equal(t, 30*s, last)
	_, _, last = worker.Schedule(0, 3*time.Hour)
	require.Equal(t, 10*time.Minute, last)
}

// suspect adds a job that was lost with its worker twice in a row. No worker is told.
func suspect(t *testing.T, client *jobq.Client, n int) int64 {
	t.Helper()
	var id int64
	require.NoError(t, client.Pool().QueryRow(context.Background(),
		"insert into jobq.pending (kind, args, attempts, crashes) values ('task', jsonb_build_object('n', $1::integer), 2, 2) returning id", n).Scan(&id))
	return id
}

// A worker of 2 slots with a run that does not end claims nothing at first, so that it comes to be alone, and
// then goes on beside that run. The suspect begins when the run has ended, and nothing runs beside it until it
// has kept others from beginning for long enough.
func TestSuspectWaitsAndOthersWaitForIt(t *testing.T) {
	t.Parallel()
	const long, other, suspected, next = 1, 2, 3, 4
	for name, aloneMax := range map[string]time.Duration{"it ends": time.Hour, "it does not end": 50 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := newClient(t)
			w, err := worker.New(client, &worker.Config{
				Queues: map[string]worker.QueueConfig{"default": {Slots: 2}}, NoJanitor: true, Logger: slog.New(slog.DiscardHandler),
			})
			require.NoError(t, err)
			worker.PaceSuspects(w, 20*time.Millisecond, aloneMax)
			began, goOn := make(chan int, 10), map[int]chan struct{}{long: make(chan struct{}), other: make(chan struct{}), suspected: make(chan struct{}), next: make(chan struct{})}
			var suspectRuns, isBeside atomic.Bool
			require.NoError(t, worker.Handle(w, func(_ context.Context, job *worker.Job[task]) error {
				switch job.Args.N {
				case suspected:
					suspectRuns.Store(true)
					defer suspectRuns.Store(false)
				case next:
					isBeside.Store(suspectRuns.Load())
				}
				began <- job.Args.N
				<-goOn[job.Args.N]
				return nil
			}, nil))
			enqueue(t, client, long, nil)
			run(t, w)
			require.Eventually(t, func() bool { return worker.IsPresent(w) }, patience, time.Millisecond)
			require.Equal(t, long, receive(t, began, "the long run"))
			id := suspect(t, client, suspected)
			tell(t, client)
			enqueue(t, client, other, nil)
			require.Equal(t, other, receive(t, began, "another one, since the long run does not end"))
			close(goOn[other])
			close(goOn[long])
			require.Equal(t, suspected, receive(t, began, "the suspect"))
			require.Equal(t, 2, number(t, client, "select count(*) from jobq.job where state = 'completed'"), "nothing runs beside it")
			enqueue(t, client, next, nil)
			if aloneMax == time.Hour {
				close(goOn[suspected])
			}
			require.Equal(t, next, receive(t, began, "the next one"))
			require.Equal(t, aloneMax != time.Hour, isBeside.Load())
			if aloneMax != time.Hour {
				close(goOn[suspected])
			}
			close(goOn[next])
			awaitState(t, client, id, jobq.StateCompleted)
		})
	}
}

// Jobs of a claim whose answer was lost would be lost with a suspect. So it does not begin before the worker
// has found out that it has none.
func TestSuspectWaitsForClaimWithoutAnswer(t *testing.T) {
	t.Parallel()
	client := newClient(t)
	var log logBuffer
	w, err := worker.New(client, &worker.Config{NoJanitor: true, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	require.NoError(t, err)
	worker.PaceSuspects(w, 20*time.Millisecond, time.Hour)
	search := worker.LoseAnswer(w)
	began := make(chan int64, 1)
	require.NoError(t, worker.Handle(w, func(_ context.Context, job *worker.Job[task]) error {
		began <- job.ID()
		return nil
	}, nil))
	id := suspect(t, client, 1)
	run(t, w)
	require.Eventually(t, func() bool { return strings.Contains(log.String(), "a job is to run alone and waits") }, patience, time.Millisecond)
	require.Empty(t, began)
	search()
	require.Equal(t, id, receive(t, began, "the suspect"))
}

// tell tells the workers of the default queue that its suspects have changed, as a reap does.
func tell(t *testing.T, client *jobq.Client) {
	t.Helper()
	_, err := client.Pool().Exec(context.Background(), "select pg_notify(jobq.channel('settings'), 'default')")
	require.NoError(t, err)
}

// A worker that is alone learns of a suspect when it is reaped: the heartbeat is far too slow to be the reason.
func TestSuspectIsNoticedAtOnce(t *testing.T) {
	t.Parallel()
	client := newClient(t)
	id := enqueue(t, client, 1, &jobq.EnqueueOptions{BackoffBase: time.Millisecond, BackoffMax: time.Millisecond})
	schema, err := db.NewSchema("")
	require.NoError(t, err)
	ctx := context.Background()
	_, err = client.Pool().Exec(ctx, "update jobq.pending set crashes = 1, attempts = 1 where id = $1", id)
	require.NoError(t, err)
	answer, err := schema.Exchange(ctx, client.Pool(), db.Exchange{Owner: "lost", Claim: &db.JobClaimParams{Queue: "default", Kinds: []string{"task"}, JobCount: 1, Lease: db.Interval(time.Minute)}})
	require.NoError(t, err)
	require.Len(t, answer.Claimed, 1)
	w, err := worker.New(client, &worker.Config{NoJanitor: true, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	worker.BeatEvery(w, time.Hour)
	require.NoError(t, worker.Handle(w, func(context.Context, *worker.Job[task]) error { return nil }, nil))
	run(t, w)
	require.Eventually(t, func() bool { return worker.IsPresent(w) && worker.IsAtRest(w) }, patience, time.Millisecond)
	require.NoError(t, pgtest.ExpireLeases(ctx, client.Pool()))
	reaped, err := schema.Reap(ctx, client.Pool(), nil, 10, "test")
	require.NoError(t, err)
	require.Len(t, reaped, 1)
	awaitState(t, client, id, jobq.StateCompleted)
}

// states are the jobs that have not completed, as the database has them.
func states(t *testing.T, client *jobq.Client) (all string) {
	t.Helper()
	require.NoError(t, client.Pool().QueryRow(context.Background(), `select coalesce(string_agg(format('%s %s, attempts %s of %s, crashes %s, due %s', j.id, j.state, j.attempts, j.max_attempts,
		p.crashes, j.run_at), '; '), 'none') from jobq.job j left join jobq.pending p using (id) where j.state <> 'completed'`).Scan(&all))
	return all
}
