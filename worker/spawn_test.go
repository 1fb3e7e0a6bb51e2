package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/jobtest"
	"github.com/jobq-dev/jobq/internal/pgtest"
	"github.com/jobq-dev/jobq/monitor"
	"github.com/jobq-dev/jobq/operator"
	"github.com/jobq-dev/jobq/worker"
)

// spawnedPart is a kind of jobs that tasks spawn, in a queue of its own. What it works on says how it ends.
type spawnedPart struct {
	Of string `json:"of"`
}

func (spawnedPart) Kind() string { return "part" }

func (spawnedPart) EnqueueDefaults() jobq.EnqueueOptions {
	return jobq.EnqueueOptions{Queue: "parts", MaxAttempts: 1}
}

// What parts do.
const (
	partFails  = "fails"
	partEmpty  = "has no result"
	partHeld   = "is not run"
	partCancel = "cancels itself"
)

// startParts runs a worker with a slot for tasks and one for parts, and a janitor.
func startParts(t *testing.T, client *jobq.Client, handler worker.Handler[task]) *running {
	t.Helper()
	startJanitor(t, client)
	w, err := worker.New(client, &worker.Config{
		NoJanitor: true,
		Logger:    slog.New(slog.DiscardHandler),
		Queues:    map[string]worker.QueueConfig{"default": {Slots: 1}, "parts": {Slots: 1}},
	})
	require.NoError(t, err)
	require.NoError(t, worker.Handle(w, handler, nil))
	require.NoError(t, worker.Handle(w, func(_ context.Context, job *worker.Job[spawnedPart]) error {
		switch job.Args.Of {
		case partFails:
			return errors.New("no luck")
		case partCancel:
			return worker.Cancel(errors.New("not wanted"))
		case partEmpty:
			return nil
		}
		return job.SetResult(map[string]string{"of": job.Args.Of})
	}, nil))
	return run(t, w)
}

// A job spawns another one, in another queue and of another kind, once, and awaits it without
// a slot and without an attempt; then it has the result.
func TestSpawnAndAwait(t *testing.T) {
	t.Parallel()
	client := newClient(t)
	var runs atomic.Int64
	results := make(chan spawnedPart, 10)
	ids := make(chan int64, 10)
	w := startParts(t, client, func(ctx context.Context, job *worker.Job[task]) error {
		if job.Args.N == 2 {
			return nil
		}
		runs.Add(1)
		spawned, err := jobq.Spawn(ctx, "part", spawnedPart{"a"}, nil)
		if err != nil {
			return err
		}
		ids <- spawned.ID
		result, err := jobq.Await[spawnedPart](ctx, "its end", spawned.ID)
		if err != nil {
			return err
		}
		results <- result
		return nil
	})
	exec(t, client.Pool(), "insert into jobq.queue (name, paused_at) values ('parts', now())")
	id := enqueue(t, client, 1, nil)
	require.Zero(t, awaitState(t, client, id, jobq.StateWaiting).Attempts)
	awaitState(t, client, enqueue(t, client, 2, nil), jobq.StateCompleted) // in the only slot
	exec(t, client.Pool(), "update jobq.queue set paused_at = null")
	require.Equal(t, spawnedPart{"a"}, receive(t, results, "the result"))
	require.Zero(t, awaitState(t, client, id, jobq.StateCompleted).Attempts)
	first := receive(t, ids, "the id")
	require.Equal(t, first, receive(t, ids, "the id of the second run"))
	require.Equal(t, 1, number(t, client, "select count(*) from jobq.job where kind = 'part'"))
	require.EqualValues(t, 2, runs.Load())
	require.NoError(t, w.drain())
	counts := w.Counts()
	require.Zero(t, counts.Lost+counts.Failed)

	listed, err := monitor.New(client).Steps(context.Background(), id)
	require.NoError(t, err)
	require.Len(t, listed, 2)
	require.JSONEq(t, fmt.Sprintf(`[{"id": %d, "duplicate": false}]`, first), string(listed[0].Result))
	require.Equal(t, monitor.StepAwait, listed[1].Type)
}

// Many jobs are spawned by one step and awaited by one, in whatever way each ends.
func TestSpawnMany(t *testing.T) {
	t.Parallel()
	client := newClient(t)
	var runs atomic.Int64
	outcomes := make(chan string, 1)
	startParts(t, client, func(ctx context.Context, _ *worker.Job[task]) error {
		runs.Add(1)
		var jobs []jobq.EnqueueParams
		for _, of := range []string{"a", partFails, partEmpty, partCancel, "b"} {
			jobs = append(jobs, jobq.EnqueueParams{Args: spawnedPart{of}})
		}
		spawned, err := jobq.SpawnMany(ctx, "parts", jobs)
		if err != nil {
			return err
		}
		ids := make([]int64, len(spawned))
		for i := range spawned {
			ids[i] = spawned[i].ID
		}
		slices.Reverse(ids)
		ended, err := jobq.AwaitMany(ctx, "their ends", ids)
		if err != nil {
			return err
		}
		all := ""
		for _, each := range ended {
			var result spawnedPart
			all += fmt.Sprintf("%s %v %q; ", each.State, each.Decode(&result), result.Of)
		}
		if none, err := jobq.AwaitMany(ctx, "none", nil); err != nil || len(none) > 0 {
			return errors.Join(errors.New("there are some"), err)
		}
		outcomes <- all
		return nil
	})
	exec(t, client.Pool(), "insert into jobq.queue (name, paused_at) values ('parts', now())")
	id := enqueue(t, client, 1, nil)
	awaitState(t, client, id, jobq.StateWaiting)
	exec(t, client.Pool(), "update jobq.queue set paused_at = null")
	awaitState(t, client, id, jobq.StateCompleted)
	require.Equal(t, `completed <nil> "b"; cancelled job 5 is cancelled ""; completed <nil> ""; failed job 3 is failed: no luck ""; completed <nil> "a"; `, receive(t, outcomes, "the ends"))
	require.EqualValues(t, 2, runs.Load())
	require.Equal(t, 1, number(t, client, "select count(*) from jobq.attempt where outcome = 'snoozed'"))
}

// What has become of an awaited job that has not completed: its error says so, and one that is gone
// is not found.
func TestAwaitOfWhatDidNotComplete(t *testing.T) {
	t.Parallel()
	client := newClient(t)
	errs := make(chan error, 10)
	startParts(t, client, func(ctx context.Context, job *worker.Job[task]) error {
		_, err := jobq.Await[spawnedPart](ctx, "other", int64(job.Args.N))
		if errors.Is(err, jobq.ErrSuspended) {
			return err
		}
		errs <- err
		return nil
	})
	add := func(of string) int {
		enqueued, err := client.Enqueue(context.Background(), spawnedPart{of}, nil)
		require.NoError(t, err)
		return int(enqueued.ID)
	}
	awaits := func(id int) error {
		t.Helper()
		enqueue(t, client, id, nil)
		return receive(t, errs, "the await")
	}
	var ended *jobq.NotCompletedError
	require.ErrorAs(t, awaits(add(partFails)), &ended)
	require.Equal(t, jobq.StateFailed, ended.Ended.State)
	require.Equal(t, "no luck", ended.Ended.Error)
	require.ErrorAs(t, awaits(add(partCancel)), &ended)
	require.Equal(t, jobq.StateCancelled, ended.Ended.State)
	gone := add("a")
	awaitState(t, client, int64(gone), jobq.StateCompleted)
	require.NoError(t, jobtest.Delete(client, int64(gone)))
	err := awaits(gone)
	require.ErrorIs(t, err, jobq.ErrNotFound)
	require.ErrorContains(t, err, fmt.Sprintf(`await "other": job %d: it is gone: it was deleted, or its retention has ended`, gone))
	require.ErrorIs(t, awaits(4711), jobq.ErrNotFound)
}

// With a unique key that another job holds, nothing is added, and that one is awaited.
func TestSpawnOfAUniqueJob(t *testing.T) {
	t.Parallel()
	client := newClient(t)
	seen := make(chan jobq.Enqueued, 10)
	exec(t, client.Pool(), "insert into jobq.queue (name, paused_at) values ('parts', now())")
	holder, err := client.Enqueue(context.Background(), spawnedPart{"held"}, &jobq.EnqueueOptions{UniqueKey: "u"})
	require.NoError(t, err)
	startParts(t, client, func(ctx context.Context, _ *worker.Job[task]) error {
		spawned, err := jobq.Spawn(ctx, "part", spawnedPart{"mine"}, &jobq.EnqueueOptions{UniqueKey: "u"})
		if err != nil {
			return err
		}
		seen <- spawned
		result, err := jobq.Await[spawnedPart](ctx, "its end", spawned.ID)
		if err == nil && result.Of != "held" {
			err = worker.Discard(errors.New("another result"))
		}
		return err
	})
	id := enqueue(t, client, 1, nil)
	awaitState(t, client, id, jobq.StateWaiting)
	exec(t, client.Pool(), "update jobq.queue set paused_at = null")
	awaitState(t, client, id, jobq.StateCompleted)
	for range 2 {
		require.Equal(t, jobq.Enqueued{ID: holder.ID, Duplicate: true}, receive(t, seen, "what was spawned"))
	}
	require.Equal(t, 1, number(t, client, "select count(*) from jobq.job where kind = 'part'"))
}

// A run whose lease is lost while it spawns adds nothing, and the next one adds the job. One that
// fails after that has spawned it all the same.
func TestSpawnIsStoredWithItsStep(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	plain := clientWith(t, pool, nil)
	var spawns atomic.Int64
	client, err := jobq.NewClient(pool, &jobq.Config{Middleware: []jobq.EnqueueMiddleware{
		func(ctx context.Context, jobs []jobq.EnqueueParams, next func(context.Context) ([]jobq.Enqueued, error)) ([]jobq.Enqueued, error) {
			added, err := next(ctx)
			if jobs[0].Args.Kind() == "part" && spawns.Add(1) == 1 {
				reap(t, plain, 1)
			}
			return added, err
		},
	}})
	require.NoError(t, err)
	errs := make(chan error, 10)
	start(t, client, nil, func(ctx context.Context, job *worker.Job[task]) error {
		spawned, err := jobq.Spawn(ctx, "part", spawnedPart{partHeld}, nil)
		if err == nil && spawned.ID == 0 {
			err = errors.New("no id")
		}
		if ctx.Err() != nil { // the worker has heard of it before the database was asked
			err = context.Cause(ctx)
		}
		errs <- err
		if err == nil && job.Attempt() < 3 {
			return worker.Retry(jobtest.AtOnce, errors.New("once more"))
		}
		return err
	})
	id := enqueue(t, plain, 1, nil)
	require.EqualValues(t, 1, id)
	require.ErrorIs(t, receive(t, errs, "the first run"), worker.ErrLeaseLost)
	awaitState(t, plain, id, jobq.StateCompleted)
	require.EqualValues(t, 2, spawns.Load())
	require.Equal(t, 1, number(t, plain, "select count(*) from jobq.job where kind = 'part'"))
}

// A job that is requeued from the step that has spawned another one spawns and awaits a new one. The
// first one goes on.
func TestRequeueFromASpawn(t *testing.T) {
	t.Parallel()
	client := newClient(t)
	exec(t, client.Pool(), "insert into jobq.queue (name, paused_at) values ('parts', now())")
	startParts(t, client, func(ctx context.Context, _ *worker.Job[task]) error {
		spawned, err := jobq.Spawn(ctx, "part", spawnedPart{"a"}, nil)
		if err != nil {
			return err
		}
		_, err = jobq.Await[spawnedPart](ctx, "its end", spawned.ID)
		return err
	})
	id := enqueue(t, client, 1, nil)
	awaitState(t, client, id, jobq.StateWaiting)
	_, forgotten, err := operator.New(client, "test").RequeueFromStep(context.Background(), operator.Target{ID: id}, "part")
	require.NoError(t, err)
	require.Equal(t, 2, forgotten)
	require.Eventually(t, func() bool {
		return number(t, client, "select count(*) from jobq.job where kind = 'part'") == 2 && number(t, client, "select count(*) from jobq.job where id = $1 and state = 'waiting'", id) == 1
	}, patience, jobtest.Tick)
	require.Equal(t, 1, number(t, client, "select count(*) from jobq.dependency where child = $1 and parent_state is null", id), "it waits for the second alone")
	exec(t, client.Pool(), "update jobq.queue set paused_at = null")
	awaitState(t, client, id, jobq.StateCompleted)
	require.Equal(t, 2, number(t, client, "select count(*) from jobq.job where kind = 'part' and state = 'completed'"))
}

// Results of awaited jobs are stored encrypted, as they are with these jobs, and args of spawned ones
// too. One that cannot be decrypted makes the job wait, without using an attempt.
func TestAwaitEncoded(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	plain := clientWith(t, pool, nil)
	handler := func(results chan<- string) worker.Handler[task] {
		return func(ctx context.Context, _ *worker.Job[task]) error {
			spawned, err := jobq.Spawn(ctx, "part", spawnedPart{"secret 4711"}, nil)
			if err != nil {
				return err
			}
			result, err := jobq.Await[spawnedPart](ctx, "its end", spawned.ID)
			if err != nil {
				return err
			}
			if _, misfit := jobq.Await[int](ctx, "its end as a number", spawned.ID); misfit != nil {
				results <- result.Of + " " + misfit.Error()
			}
			return nil
		}
	}
	results := make(chan string, 10)
	r := startParts(t, clientWith(t, pool, newKeyring(t, "k1")), handler(results))
	id := enqueue(t, plain, 1, nil)
	awaitState(t, plain, id, jobq.StateCompleted)
	require.Equal(t, `secret 4711 await "its end as a number": decode result of job 2: it does not fit *int (why is not shown, since it is stored encoded)`, receive(t, results, "the result"))
	requireEncrypted(t, "k1", column(t, pool, "args", 2))
	var ends []struct{ Result json.RawMessage }
	require.NoError(t, json.Unmarshal(stepResult(t, pool, id, "its end"), &ends))
	requireEncrypted(t, "k1", ends[0].Result)
	require.NoError(t, r.drain())

	job, err := plain.Get(context.Background(), id)
	require.NoError(t, err)
	listed, err := monitor.New(plain).Steps(context.Background(), id)
	require.NoError(t, err)
	require.ErrorIs(t, listed[1].Decode(context.Background(), newKeyring(t, "k9"), job), jobq.ErrUnreadable)
	require.NotContains(t, string(listed[1].Result), "4711")
	require.NoError(t, listed[1].Decode(context.Background(), newKeyring(t, "k1"), job))
	require.Contains(t, string(listed[1].Result), "secret 4711")

	require.NoError(t, jobtest.Requeue(plain, id))
	startParts(t, plain, handler(results))
	job = awaitState(t, plain, id, jobq.StateScheduled)
	require.Zero(t, job.Attempts)
	require.Contains(t, job.LastError, `await "its end": job 2: result cannot be decoded: encrypted with key "k1"`)
}

// Outside of a run nothing is spawned or awaited; nor are more than are allowed.
func TestSpawnIsRefused(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	_, err := jobq.Spawn(ctx, "a", spawnedPart{}, nil)
	require.ErrorIs(t, err, jobq.ErrNoRun)
	_, err = jobq.Await[int](ctx, "a", 1)
	require.ErrorIs(t, err, jobq.ErrNoRun)
	test := worker.NewTestJob(task{1}, nil)
	_, err = jobq.SpawnMany(test.Context(ctx), "a", make([]jobq.EnqueueParams, jobq.SpawnManyMax+1))
	require.ErrorIs(t, err, jobq.ErrInvalid)
}

// Few runs add jobs at once: each has a connection that others need, while it may have to wait for
// somebody's unique key.
func TestFewSpawnAtOnce(t *testing.T) {
	t.Parallel()
	client := newClient(t)
	w, err := worker.New(client, &worker.Config{NoJanitor: true, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	makeRoom := worker.TakeSpawns(w)
	refused := make(chan error, 1)
	require.NoError(t, worker.Handle(w, func(ctx context.Context, _ *worker.Job[task]) error {
		short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
		defer cancel()
		_, err := jobq.Spawn(short, "part", spawnedPart{"a"}, &jobq.EnqueueOptions{Queue: "elsewhere"})
		refused <- err
		makeRoom()
		_, err = jobq.Spawn(ctx, "part", spawnedPart{"a"}, &jobq.EnqueueOptions{Queue: "elsewhere"})
		return err
	}, nil))
	run(t, w)
	id := enqueue(t, client, 1, nil)
	require.ErrorIs(t, receive(t, refused, "the spawn"), context.DeadlineExceeded)
	awaitState(t, client, id, jobq.StateCompleted)
	require.Equal(t, 1, number(t, client, "select count(*) from jobq.job where kind = 'part'"))
}

// A handler that spawns and awaits can be tested without a database.
func TestSpawnOfATestJob(t *testing.T) {
	t.Parallel()
	handler := func(ctx context.Context, _ *worker.Job[task]) (spawnedPart, error) {
		spawned, err := jobq.Spawn(ctx, "part", spawnedPart{"a"}, &jobq.EnqueueOptions{Priority: 7})
		if err != nil {
			return spawnedPart{}, err
		}
		return jobq.Await[spawnedPart](ctx, "its end", spawned.ID)
	}
	first := worker.NewTestJob(task{1}, &worker.TestJobOptions{ID: 5})
	_, err := handler(first.Context(context.Background()), first.Job)
	require.ErrorIs(t, err, jobq.ErrSuspended)
	require.Equal(t, map[string][]jobq.EnqueueParams{"part": {{Args: spawnedPart{"a"}, EnqueueOptions: jobq.EnqueueOptions{Priority: 7}}}}, first.Spawned())
	done := first.Steps()
	require.JSONEq(t, `[{"id": 6, "duplicate": false}]`, string(done["part"]))
	done["its end"] = jobtest.JSON(t, []jobq.Ended{{ID: 6, State: jobq.StateCompleted, Result: json.RawMessage(`{"of": "a"}`)}})
	second := worker.NewTestJob(task{1}, &worker.TestJobOptions{Steps: done})
	result, err := handler(second.Context(context.Background()), second.Job)
	require.NoError(t, err)
	require.Equal(t, spawnedPart{"a"}, result)
	require.Empty(t, second.Spawned())
	done["its end"] = jobtest.JSON(t, []jobq.Ended{{ID: 6, State: jobq.StateFailed, Error: "no luck"}})
	third := worker.NewTestJob(task{1}, &worker.TestJobOptions{Steps: done})
	_, err = handler(third.Context(context.Background()), third.Job)
	require.ErrorContains(t, err, "job 6 is failed: no luck")
}
