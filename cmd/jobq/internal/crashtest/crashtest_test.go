package crashtest_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/cmd/jobq/internal/crashtest"
	"github.com/jobq-dev/jobq/internal/pgtest"
	"github.com/jobq-dev/jobq/monitor"
	"github.com/jobq-dev/jobq/worker"
)

// asWorker names the handler of this program, when it is to be a worker.
const asWorker = "JOBQ_TEST_AS_WORKER"

func TestMain(m *testing.M) {
	if name := os.Getenv(asWorker); name != "" {
		if err := runWorker(name); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	pgtest.Main(m)
}

// Charge is the job of the workers here. Its effect is a row in the table charge.
type Charge struct {
	Order int64 `json:"order"`
}

func (Charge) Kind() string { return "charge" }

const insert = "insert into public.charge (job_id, order_id) values ($1, $2)"

// handlers are the ways to have the effect.
var handlers = map[string]func(ctx context.Context, pool *pgxpool.Pool, job *worker.Job[Charge]) error{
	"effect by itself": func(ctx context.Context, pool *pgxpool.Pool, job *worker.Job[Charge]) error {
		_, err := pool.Exec(ctx, insert, job.ID(), job.Args.Order)
		return err
	},
	"effect by itself, with a result": func(ctx context.Context, pool *pgxpool.Pool, job *worker.Job[Charge]) error {
		if _, err := pool.Exec(ctx, insert, job.ID(), job.Args.Order); err != nil {
			return err
		}
		return job.SetResult("charged")
	},
	"one transaction": func(ctx context.Context, pool *pgxpool.Pool, job *worker.Job[Charge]) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, insert, job.ID(), job.Args.Order); err != nil {
				return err
			}
			return job.CompleteTx(ctx, tx)
		})
	},
	// It notes that it has begun, and takes a note of an earlier run for the effect.
	"note before the effect": func(ctx context.Context, pool *pgxpool.Pool, job *worker.Job[Charge]) error {
		tag, err := pool.Exec(ctx, "insert into public.note (job_id) values ($1) on conflict do nothing", job.ID())
		if err != nil || tag.RowsAffected() == 0 {
			return err
		}
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, insert, job.ID(), job.Args.Order); err != nil {
				return err
			}
			return job.CompleteTx(ctx, tx)
		})
	},
	"fails for good": func(context.Context, *pgxpool.Pool, *worker.Job[Charge]) error {
		return worker.Discard(errors.New("no such order"))
	},
	"fails at first": func(ctx context.Context, pool *pgxpool.Pool, job *worker.Job[Charge]) error {
		if job.Attempt() == 1 {
			return errors.New("the bank does not answer")
		}
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, insert, job.ID(), job.Args.Order); err != nil {
				return err
			}
			return job.CompleteTx(ctx, tx)
		})
	},
	"hangs": func(ctx context.Context, _ *pgxpool.Pool, _ *worker.Job[Charge]) error {
		<-ctx.Done()
		return context.Cause(ctx)
	},
}

// runWorker is a worker of a user, as a program of its own.
func runWorker(name string) error {
	handler, ok := handlers[name]
	if !ok {
		return errors.New("out of order")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		return err
	}
	defer pool.Close()
	client, err := jobq.NewClient(pool, nil)
	if err != nil {
		return err
	}
	w, err := worker.New(client, &worker.Config{NoJanitor: true, Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)), DrainTimeout: -1})
	if err != nil {
		return err
	}
	err = worker.Handle(w, func(ctx context.Context, job *worker.Job[Charge]) error { return handler(ctx, pool, job) }, nil)
	if err != nil {
		return err
	}
	return w.Run(ctx)
}

// config is a test of this program as a worker with that handler.
func config(t *testing.T, handler string) crashtest.Config {
	t.Helper()
	url := pgtest.URL(t)
	pool := pgtest.Connect(t, url)
	_, err := pool.Exec(context.Background(), "create table public.charge (job_id bigint, order_id bigint); create table public.note (job_id bigint primary key)")
	require.NoError(t, err)
	client, err := jobq.NewClient(pool, nil)
	require.NoError(t, err)
	self, err := os.Executable()
	require.NoError(t, err)
	return crashtest.Config{
		Client: client, Command: []string{self}, Env: []string{asWorker + "=" + handler, "DATABASE_URL=" + url},
		Kind: "charge", Queue: jobq.DefaultQueue, Args: `{"order": {{n}}}`,
		EffectQuery: "select job_id, count(*) from public.charge where job_id = any($1) group by 1",
		Jobs:        3, Forced: 2, Random: 1, Within: time.Millisecond, Timeout: 5 * time.Minute, Seed: 1,
		Progress: t.Logf,
	}
}

func numbers(jobs []crashtest.Job) (numbers []int) {
	for _, job := range jobs {
		numbers = append(numbers, job.Number)
	}
	return numbers
}

// An effect in a transaction of its own is there twice after a forced kill, of each job,
// whether the job plainly succeeds or has a result.
func TestFindsDoubleEffect(t *testing.T) {
	t.Parallel()
	for _, handler := range []string{"effect by itself", "effect by itself, with a result"} {
		t.Run(handler, func(t *testing.T) {
			t.Parallel()
			config := config(t, handler)
			result, err := crashtest.Run(context.Background(), config)
			require.NoError(t, err)
			require.False(t, result.OK)
			require.Equal(t, 2, result.Forced)
			require.GreaterOrEqual(t, len(result.Twice), 2)
			for i, job := range result.Twice[:2] {
				require.Equal(t, crashtest.Job{ID: job.ID, Number: i + 1, Effects: 2, Crashes: 1, Forced: true, State: jobq.StateCompleted, Error: job.Error}, job)
			}
			require.Empty(t, result.Never)
			require.Empty(t, result.Failed)
		})
	}
}

// An effect in the transaction that completes the job is there once, whenever the
// worker is killed, also for a job whose first run has failed.
func TestPassesOneTransaction(t *testing.T) {
	t.Parallel()
	for _, handler := range []string{"one transaction", "fails at first"} {
		t.Run(handler, func(t *testing.T) {
			t.Parallel()
			config := config(t, handler)
			config.Jobs, config.Random = 12, 3
			result, err := crashtest.Run(context.Background(), config)
			require.NoError(t, err)
			require.True(t, result.OK, "%+v", result)
			require.Equal(t, 12, result.Jobs)
			require.Equal(t, 2, result.Forced)
			var charged int
			require.NoError(t, config.Client.Pool().QueryRow(context.Background(),
				"select count(distinct order_id) from public.charge where order_id between 1 and 12").Scan(&charged))
			require.Equal(t, 12, charged, "{{n}} is the number of the job")
		})
	}
}

// More forced kills in a row than pause a kind as one that crashes its workers are done.
func TestManyForcedKills(t *testing.T) {
	t.Parallel()
	config := config(t, "one transaction")
	config.Jobs, config.Forced, config.Random = 7, 7, 0
	result, err := crashtest.Run(context.Background(), config)
	require.NoError(t, err)
	require.True(t, result.OK, "%+v", result)
	require.Equal(t, 7, result.Forced)
}

// A handler that notes the job before its effect, and skips what it has noted, never has
// the effect when it is killed between the two.
func TestFindsLostEffect(t *testing.T) {
	t.Parallel()
	config := config(t, "note before the effect")
	result, err := crashtest.Run(context.Background(), config)
	require.NoError(t, err)
	require.False(t, result.OK)
	require.Equal(t, []int{1, 2}, numbers(result.Never)[:2])
	require.Zero(t, result.Never[0].Effects)
	require.Empty(t, result.Twice)
}

// A job that ends without success is reported as such, with its error.
func TestReportsFailed(t *testing.T) {
	t.Parallel()
	config := config(t, "fails for good")
	result, err := crashtest.Run(context.Background(), config)
	require.NoError(t, err)
	require.False(t, result.OK)
	require.Equal(t, []int{1, 2, 3}, numbers(result.Failed))
	require.Equal(t, jobq.StateFailed, result.Failed[0].State)
	require.Equal(t, "no such order", result.Failed[2].Error)
}

// What ignores SIGTERM is killed with its group when all jobs have ended, be it the worker or
// what it has started. The result is there all the same, with a warning.
func TestStopsWhole(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]string{
		"what the worker has started": `(trap '' TERM; exec sleep 1000) & echo $! >>"$PIDS"; "$0" & wait`,
		"the worker":                  `trap '' TERM; echo $$ >>"$PIDS"; "$0"; sleep 1000`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config := config(t, "one transaction")
			pids := t.TempDir() + "/pids"
			config.Command = []string{"sh", "-c", script, config.Command[0]}
			config.Env = append(config.Env, "PIDS="+pids)
			config.Forced, config.Random, config.StopTimeout = 1, 0, time.Second
			var told []string
			config.Progress = func(format string, args ...any) { told = append(told, fmt.Sprintf(format, args...)) }
			result, err := crashtest.Run(context.Background(), config)
			require.NoError(t, err)
			require.True(t, result.OK, "%+v", result)
			require.Regexp(t, "^warning: .* not ended 1s after SIGTERM, and w.* killed", told[len(told)-1])
			content, err := os.ReadFile(pids)
			require.NoError(t, err)
			started := strings.Fields(string(content))
			require.Len(t, started, 2)
			for _, pid := range started {
				stat, err := os.ReadFile("/proc/" + pid + "/stat")
				require.True(t, err != nil || strings.Contains(string(stat), ") Z "), "runs: %s", stat)
			}
		})
	}
}

// What makes no sense, or would hit others, is refused before anything is done, and a test that
// cannot go on says why.
func TestRefuses(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for name, each := range map[string]struct {
		change func(c *crashtest.Config)
		want   string
		is     error
	}{
		"another's job": {func(c *crashtest.Config) {
			_, err := c.Client.Enqueue(ctx, jobq.RawArgs{Name: "other"}, &jobq.EnqueueOptions{Delay: time.Hour})
			require.NoError(t, err)
		}, "unfinished jobs that this test did not make, such as job 1 of kind other", jobq.ErrConflict},
		"job of an aborted test": {func(c *crashtest.Config) {
			_, err := c.Client.Enqueue(ctx, jobq.RawArgs{Name: "other"}, &jobq.EnqueueOptions{Delay: time.Hour, Tags: []string{"crash-test-01234567"}})
			require.NoError(t, err)
		}, "`jobq cancel --filter tag:crash-test-01234567 --yes`", jobq.ErrConflict},
		"another worker": {func(c *crashtest.Config) {
			_, err := c.Client.Pool().Exec(ctx, "insert into jobq.worker (id, hostname, pid, version, queues, kinds) values ('host-1-x', 'host', 1, 'v', '{}', '{}')")
			require.NoError(t, err)
		}, "worker host-1-x may run", jobq.ErrConflict},
		"args":              {func(c *crashtest.Config) { c.Args = "{n}" }, "args are not JSON", jobq.ErrInvalid},
		"query":             {func(c *crashtest.Config) { c.EffectQuery = "select 1" }, "it must return two columns", jobq.ErrInvalid},
		"query of no table": {func(c *crashtest.Config) { c.EffectQuery = "select a, b from nowhere" }, `relation "nowhere" does not exist`, nil},
		"query that writes": {func(c *crashtest.Config) {
			c.EffectQuery = "insert into public.charge values (1, 2) returning 1::bigint, 2::bigint"
		}, "read-only transaction", nil},
		"no such program": {func(c *crashtest.Config) { c.Command = []string{"/nowhere/worker"} }, "start the worker: ", nil},
		"broken program":  {func(c *crashtest.Config) { c.Env[0] = asWorker + "=broken" }, "the worker has ended by itself: exit status 1; it wrote:\nout of order", nil},
		"hangs": {func(c *crashtest.Config) {
			c.Env[0], c.Timeout = asWorker+"=hangs", 15*time.Second
		}, "job 1 does not get on for 15s: it is ", nil},
		"worker of another database": {func(c *crashtest.Config) {
			c.Env, c.Timeout = append(c.Env, "DATABASE_URL="+pgtest.URL(t)), time.Second
		}, "no worker has registered in the database 1s after the start", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config := config(t, "one transaction")
			each.change(&config)
			_, err := crashtest.Run(ctx, config)
			require.ErrorContains(t, err, each.want)
			if each.is != nil {
				require.ErrorIs(t, err, each.is)
			}
			if each.is == jobq.ErrConflict { //nolint:errorlint // of the table above
				config.BesideOthers = true
				result, err := crashtest.Run(ctx, config)
				require.NoError(t, err)
				require.True(t, result.OK)
			}
		})
	}
}

// Who waits for the row is taken for the worker, and who waits for the table is not, such as
// a migration.
func TestWaitingFor(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(context.Background())
	pool := pgtest.Connect(t, pgtest.URL(t))
	_, err := pool.Exec(ctx, "create table public.charge as select 1 as id")
	require.NoError(t, err)
	tx, err := pool.Begin(ctx)
	require.NoError(t, err)
	_, err = tx.Exec(ctx, "select from public.charge for update")
	require.NoError(t, err)
	var waiting sync.WaitGroup
	defer func() {
		cancel()
		waiting.Wait()
		require.NoError(t, tx.Rollback(context.Background()))
	}()
	// wait begins the statement in a session of its own, and returns when it waits.
	wait := func(sql string) int32 {
		pid := make(chan int32, 1)
		waiting.Go(func() {
			_ = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
				pid <- int32(tx.Conn().PgConn().PID())
				_, err := tx.Exec(ctx, sql)
				return err // of the end of the test
			})
		})
		session := <-pid
		require.Eventually(t, func() bool {
			var waits bool
			err := tx.QueryRow(ctx, "select exists (select from pg_locks where pid = $1 and not granted)", session).Scan(&waits)
			return err == nil && waits
		}, 5*time.Minute, 5*time.Millisecond)
		return session
	}
	row := wait("delete from public.charge")
	wait("do $$ begin perform from public.charge; lock table public.charge; end $$")
	sessions, err := crashtest.WaitingFor(ctx, tx)
	require.NoError(t, err)
	require.Equal(t, []int32{row}, sessions)
}

// An interrupted test leaves no worker, no lock and no unfinished job behind. Method: it is interrupted while the
// handler of its first job runs.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	config := config(t, "hangs")
	ended := make(chan error, 1)
	go func() {
		_, err := crashtest.Run(ctx, config)
		ended <- err
	}()
	require.Eventually(t, func() bool {
		count, err := config.Client.Count(context.Background(), jobq.Filter{States: []jobq.State{jobq.StateRunning}}, 1)
		return err == nil && count == 1
	}, 5*time.Minute, 5*time.Millisecond)
	cancel()
	require.ErrorIs(t, <-ended, context.Canceled)
	count, err := config.Client.Count(context.Background(), jobq.Filter{States: []jobq.State{jobq.StateCancelled}}, 2)
	require.NoError(t, err)
	require.EqualValues(t, 1, count)
	left, err := monitor.New(config.Client).Workers(context.Background())
	require.NoError(t, err)
	require.Empty(t, left, "for which the next test would be refused")
	require.Eventually(t, func() bool {
		var others int
		err := config.Client.Pool().QueryRow(context.Background(), `select count(*) from pg_stat_activity
			where datname = current_database() and (application_name like 'jobq-worker%' or state like 'idle in transaction%')`).Scan(&others)
		return err == nil && others == 0
	}, 5*time.Minute, 5*time.Millisecond)
}
