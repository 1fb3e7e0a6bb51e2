package jobtest_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/jobtest"
	"github.com/jobq-dev/jobq/internal/pgtest"
	"github.com/jobq-dev/jobq/internal/sleep"
	"github.com/jobq-dev/jobq/janitor"
	"github.com/jobq-dev/jobq/monitor"
	"github.com/jobq-dev/jobq/operator"
	"github.com/jobq-dev/jobq/worker"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// warnings collects what a worker and a janitor warn of.
type warnings struct {
	mu   sync.Mutex
	said []string // guarded by mu
}

func (w *warnings) Write(line []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	// Not the failure of the kind that fails at first, nor that the machine is slow.
	if !strings.Contains(string(line), `msg="run ended"`) && !strings.Contains(string(line), "too late, or too many") {
		w.said = append(w.said, string(line))
	}
	return len(line), nil
}

func (w *warnings) all() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Join(w.said, "")
}

// runFeatures runs a job of every feature of jobq on a pool: it enqueues them as an application, runs them with a worker and
// a janitor, looks at all that the terminal UI shows, and acts on jobs as an operator. It returns what did not work. Nothing of it may
// depend on the settings of the session that the pool's connections get.
func runFeatures(ctx context.Context, pool *pgxpool.Pool) error {
	client, err := jobq.NewClient(pool, nil)
	if err != nil {
		return err
	}
	if err := client.Check(ctx); err != nil {
		return fmt.Errorf("check: %w", err)
	}
	said := &warnings{}
	logger := slog.New(slog.NewTextHandler(said, &slog.HandlerOptions{Level: slog.LevelWarn}))
	w, err := newFeatureWorker(client, logger)
	if err != nil {
		return err
	}
	j, err := janitor.New(client, &janitor.Config{Logger: logger, ScanInterval: time.Second})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	var running sync.WaitGroup
	for _, run := range []func(context.Context) error{w.Run, j.Run} {
		running.Go(func() {
			if err := run(ctx); err != nil {
				cancel(err)
			}
		})
	}
	err = errors.Join(useFeatures(ctx, client), context.Cause(ctx))
	cancel(nil)
	running.Wait()
	if text := said.all(); text != "" {
		err = errors.Join(err, errors.New(text))
	}
	return err
}

func newFeatureWorker(client *jobq.Client, logger *slog.Logger) (*worker.Worker, error) {
	w, err := worker.New(client, &worker.Config{
		Queues: map[string]worker.QueueConfig{"default": {Slots: 10}, "keyed": {Slots: 4}, "limited": {Slots: 2}}, Logger: logger,
		PollInterval: 200 * time.Millisecond,
	})
	if err != nil {
		return nil, err
	}
	handlers := map[string]worker.Handler[jobq.RawArgs]{
		"plain": func(context.Context, *worker.Job[jobq.RawArgs]) error { return nil },
		"flaky": func(_ context.Context, job *worker.Job[jobq.RawArgs]) error {
			if job.Attempt() == 1 {
				return errors.New("the first time it's \\ wrong")
			}
			return nil
		},
		"report": func(ctx context.Context, job *worker.Job[jobq.RawArgs]) error {
			job.Progress(50, "stage", "a message with 'quotes' and \\")
			if err := job.SaveCheckpoint(ctx, map[string]string{"at": `\x41 'b'`}); err != nil {
				return err
			}
			return job.SetResult(map[string]string{"said": `\x41 'b'`})
		},
		"own": func(ctx context.Context, job *worker.Job[jobq.RawArgs]) error {
			return pgx.BeginFunc(ctx, client.Pool(), func(tx pgx.Tx) error { return job.CompleteTx(ctx, tx) })
		},
		"steps": func(ctx context.Context, _ *worker.Job[jobq.RawArgs]) error {
			if _, err := jobq.Step(ctx, "one", func(context.Context) (string, error) { return `\`, nil }); err != nil {
				return err
			}
			if err := jobq.Sleep(ctx, "nap", 10*time.Millisecond); err != nil {
				return err
			}
			child, err := jobq.Spawn(ctx, "child", jobq.RawArgs{Name: "report", JSON: json.RawMessage(`{}`)}, nil)
			if err != nil {
				return err
			}
			if _, err := jobq.Await[map[string]string](ctx, "child's end", child.ID); err != nil {
				return err
			}
			_, err = jobq.WaitEvent[string](ctx, "go", time.Minute)
			return err
		},
	}
	for kind, handler := range handlers {
		if err := worker.HandleRaw(w, kind, handler, nil); err != nil {
			return nil, err
		}
	}
	return w, nil
}

// useFeatures enqueues jobs of all sorts and waits for their ends.
func useFeatures(ctx context.Context, client *jobq.Client) error {
	person := operator.New(client, "test")
	one, rate := 1, jobq.Rate{Jobs: 1000, Period: time.Second}
	minutes := 10 * time.Minute
	if _, err := person.SetQueue(ctx, "keyed", operator.QueueChange{KeyLimit: &one, KeyRate: &rate, Lease: &minutes}); err != nil {
		return fmt.Errorf("set keyed: %w", err)
	}
	if _, err := person.SetQueue(ctx, "limited", operator.QueueChange{MaxRunning: &one, Rate: &rate}); err != nil {
		return fmt.Errorf("set limited: %w", err)
	}
	options := []jobq.EnqueueOptions{
		{},
		{Queue: "keyed", PartitionKey: `a'b\c`},
		{Queue: "keyed", PartitionKey: "d"},
		{Queue: "limited"},
		{UniqueKey: `k'\`, UniqueFor: time.Hour},
		{UniqueBy: []string{"n"}, UniqueWindow: time.Hour},
		{Tags: []string{`a,b`, `NULL`, `"q"`, ``}, Metadata: json.RawMessage(`{"a": "\\u0041 '"}`), Priority: -3, Timeout: time.Minute, BackoffBase: time.Second, BackoffMax: time.Hour},
		{RunAt: time.Now().Add(-time.Hour), MaxAttempts: 3},
		{Delay: 50 * time.Millisecond},
	}
	var ids []int64
	add := func(kind, args string, o jobq.EnqueueOptions) error {
		added, err := client.Enqueue(ctx, jobq.RawArgs{Name: kind, JSON: json.RawMessage(args)}, &o)
		if err != nil {
			return fmt.Errorf("enqueue %s: %w", kind, err)
		}
		ids = append(ids, added.ID)
		return nil
	}
	large := `{"n": "` + jobtest.LongText(20_000) + `"}`
	for i, o := range options {
		if err := add("plain", fmt.Sprintf(`{"n": %d, "text": "it's \\ 1e3"}`, i), o); err != nil {
			return err
		}
	}
	for kind, args := range map[string]string{"flaky": `{}`, "report": `{}`, "own": `{}`, "steps": `{}`, "plain": large} {
		if err := add(kind, args, jobq.EnqueueOptions{BackoffBase: jobtest.AtOnce}); err != nil {
			return err
		}
	}
	if err := add("plain", `{}`, jobq.EnqueueOptions{After: []int64{ids[0], ids[len(ids)-1]}}); err != nil {
		return err
	}
	many, err := client.EnqueueMany(ctx, []jobq.EnqueueParams{jobtest.Raw("plain", `{"many": 1}`, nil), jobtest.Raw("plain", `{"many": 2}`, &options[6]), jobtest.Raw("plain", `{"many": 3}`, &options[1])})
	if err != nil {
		return fmt.Errorf("enqueue many: %w", err)
	}
	for _, added := range many {
		ids = append(ids, added.ID)
	}
	if _, err := client.Emit(ctx, "go", "now"); err != nil {
		return fmt.Errorf("emit: %w", err)
	}
	if err := useSchedule(ctx, client, person); err != nil {
		return err
	}
	for _, id := range ids {
		if err := awaitCompleted(ctx, client, id); err != nil {
			return err
		}
	}
	if err := lookAround(ctx, client, ids); err != nil {
		return err
	}
	return operate(ctx, client, person, ids)
}

// awaitCompleted waits until a job has completed. What keeps it is said.
func awaitCompleted(ctx context.Context, client *jobq.Client, id int64) error {
	bounded, cancel := context.WithTimeout(ctx, featurePatience)
	defer cancel()
	ended, err := client.Wait(bounded, id)
	if err == nil {
		err = ended.Err()
	}
	if err == nil {
		return nil
	}
	job, getErr := client.Get(ctx, id)
	why, whyErr := monitor.New(client).Why(ctx, id)
	return errors.Join(fmt.Errorf("wait for job %d: %w; it is %+v, and %v", id, err, job, why), getErr, whyErr)
}

// featurePatience bounds a wait for one job, on a machine with much else to do.
const featurePatience = 2 * time.Minute

func useSchedule(ctx context.Context, client *jobq.Client, person *operator.Operator) error {
	if _, err := person.SetSchedule(ctx, jobq.Schedule{Name: "every", Every: time.Second, Kind: "plain", Queue: "default", Metadata: json.RawMessage(`{"by": "'"}`)}); err != nil {
		return fmt.Errorf("set schedule: %w", err)
	}
	if _, err := person.RunSchedule(ctx, "every"); err != nil {
		return fmt.Errorf("run schedule: %w", err)
	}
	watch := monitor.New(client)
	bounded, cancel := context.WithTimeout(ctx, featurePatience)
	defer cancel()
	for {
		ticks, err := watch.Ticks(bounded, "every", 10)
		if err != nil {
			return fmt.Errorf("ticks: %w", err)
		}
		if len(ticks) > 0 {
			break
		}
		if err := sleep.For(bounded, jobtest.Tick); err != nil {
			return fmt.Errorf("no tick of the schedule: %w", err)
		}
	}
	_, err := person.RemoveSchedule(ctx, "every")
	return err
}

// lookAround asks all that the terminal UI and the commands ask.
func lookAround(ctx context.Context, client *jobq.Client, ids []int64) error {
	watch := monitor.New(client)
	looks := map[string]func() error{
		"get": func() error { _, err := client.Get(ctx, ids[0]); return err },
		"list": func() error {
			_, err := client.List(ctx, jobq.Filter{Kind: "plain", Tag: "a,b", Match: `state:completed err:"x" age:<2h`})
			return err
		},
		"count":     func() error { _, err := client.Count(ctx, jobq.Filter{Kind: "plain"}, 100); return err },
		"day":       func() error { _, err := client.JobsOfDay(ctx, time.Now(), 0); return err },
		"attempts":  func() error { _, err := watch.Attempts(ctx, ids[9]); return err },
		"audit":     func() error { _, err := watch.Audit(ctx, 0, 10); return err },
		"actions":   func() error { _, err := watch.JobActions(ctx, ids[0]); return err },
		"events":    func() error { _, err := watch.Events(ctx, 0, 10); return err },
		"of a day":  func() error { _, err := watch.AttemptsOfDay(ctx, time.Now(), nil); return err },
		"export":    func() error { _, err := watch.Export(ctx); return err },
		"failures":  func() error { _, err := watch.Failures(ctx, monitor.FailureQuery{Span: time.Hour}); return err },
		"graph":     func() error { _, err := watch.Graph(ctx, ids[0]); return err },
		"keys":      func() error { _, err := watch.Keys(ctx, monitor.KeyQuery{Queue: "keyed"}); return err },
		"kinds":     func() error { _, err := watch.Kinds(ctx); return err },
		"output":    func() error { _, err := watch.Output(ctx, ids[0], monitor.OutputPiece{}); return err },
		"queues":    func() error { _, err := watch.Queues(ctx); return err },
		"schedules": func() error { _, err := watch.Schedules(ctx, "", 10); return err },
		"leader":    func() error { _, err := watch.Leader(ctx); return err },
		"session":   func() error { _, err := watch.Session(ctx); return err },
		"settings":  func() error { _, err := watch.Settings(ctx); return err },
		"silent":    func() error { _, err := watch.Silent(ctx); return err },
		"stats":     func() error { _, err := watch.Stats(ctx, time.Hour); return err },
		"minutes":   func() error { _, err := watch.Minutes(ctx, time.Hour); return err },
		"added":     func() error { _, err := watch.Added(ctx); return err },
		"steps":     func() error { _, err := watch.Steps(ctx, ids[12]); return err },
		"why":       func() error { _, err := watch.Why(ctx, ids[0]); return err },
		"workers":   func() error { _, err := watch.Workers(ctx); return err },
	}
	for name, look := range looks {
		if err := look(); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// operate does what a person does to jobs, and takes it back.
func operate(ctx context.Context, client *jobq.Client, person *operator.Operator, ids []int64) error {
	later, err := client.Enqueue(ctx, jobq.RawArgs{Name: "plain", JSON: json.RawMessage(`{}`)}, &jobq.EnqueueOptions{Delay: time.Hour})
	if err != nil {
		return err
	}
	if _, err := client.Cancel(ctx, later.ID); err != nil {
		return fmt.Errorf("cancel: %w", err)
	}
	acted, err := person.Act(ctx, jobq.ActionRequeue, operator.Target{ID: later.ID})
	if err != nil {
		return fmt.Errorf("requeue: %w", err)
	}
	if err := awaitCompleted(ctx, client, later.ID); err != nil {
		return err
	}
	if _, err := person.Act(ctx, jobq.ActionDelete, operator.Target{ID: ids[0]}); err != nil {
		return fmt.Errorf("delete: %w", err)
	}
	if _, err := person.Undo(ctx, acted.AuditID); err != nil && !errors.Is(err, jobq.ErrInvalid) {
		return fmt.Errorf("undo: %w", err)
	}
	if _, err := person.PauseKind(ctx, "plain", "it's"); err != nil {
		return fmt.Errorf("pause: %w", err)
	}
	_, err = person.ResumeKind(ctx, "plain")
	return err
}

// On a database with the settings of PostgreSQL, all features work, in each way in which pgx sends statements.
func TestFeatures(t *testing.T) {
	t.Parallel()
	for _, mode := range queryModes {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			require.NoError(t, runFeatures(context.Background(), modePool(t, pgtest.URL(t), mode)))
		})
	}
}

var queryModes = []pgx.QueryExecMode{
	pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
}

// modePool is a pool that sends statements in this way.
func modePool(t *testing.T, url string, mode pgx.QueryExecMode) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(url)
	require.NoError(t, err)
	config.ConnConfig.DefaultQueryExecMode = mode
	return pgtest.ConnectConfig(t, config)
}
