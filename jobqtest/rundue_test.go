package jobqtest_test

import (
	"context"
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/jobqtest"
	"github.com/jobq-dev/jobq/worker"
)

// What RunDue returns has all that its workers have counted.
func TestCountsOfAllWorkers(t *testing.T) {
	t.Parallel()
	var one worker.Counts
	fields := reflect.ValueOf(&one).Elem()
	for i := range fields.NumField() {
		fields.Field(i).SetInt(1)
	}
	total := reflect.ValueOf(jobqtest.Sum(one, one))
	for i := range total.NumField() {
		require.EqualValues(t, 2, total.Field(i).Int(), total.Type().Field(i).Name)
	}
}

// RunDue runs what is due, of all queues and what that enqueues, one after another, and
// leaves what is not due and what has no handler.
func TestRunDue(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	database := newDatabase(t)
	client := database.Client
	var greeted []string
	handle := func(w *worker.Worker) error {
		return worker.Handle(w, func(ctx context.Context, job *worker.Job[Greeting]) error {
			greeted = append(greeted, job.Args.Name) // without a lock: they do not run at once
			switch job.Args.Name {
			case "fails":
				return worker.Retry(time.Hour, errors.New("not today"))
			case "asks for another":
				_, err := client.Enqueue(ctx, Greeting{"another, in another queue"}, &jobq.EnqueueOptions{Queue: "another"})
				return err
			}
			return nil
		}, nil)
	}
	require.Zero(t, jobqtest.RunDue(t, client, handle, nil), "nothing to do, and no queue that anybody knows")

	enqueue(t, client, Greeting{"asks for another"}, nil)
	enqueue(t, client, Greeting{"fails"}, nil)
	due := enqueue(t, client, Greeting{"due"}, &jobq.EnqueueOptions{Delay: time.Hour})
	later := enqueue(t, client, Greeting{"later"}, &jobq.EnqueueOptions{Delay: 3 * time.Hour})
	farewell := enqueue(t, client, Farewell{}, nil)
	_, err := database.Pool.Exec(ctx, "update jobq.pending set run_at = now() - interval '1 s' where id = $1", due) // its hour is over
	require.NoError(t, err)
	counts := jobqtest.RunDue(t, client, handle, nil)
	require.Equal(t, []string{"asks for another", "fails", "due", "another, in another queue"}, greeted)
	require.Equal(t, worker.Counts{Claimed: 4, Completed: 3, Failed: 1}, counts)
	require.Equal(t, jobq.StateScheduled, stateOf(t, client, later))
	require.Equal(t, jobq.StateAvailable, stateOf(t, client, farewell))

	greeted = nil
	require.Zero(t, jobqtest.RunDue(t, client, handle, &jobqtest.RunOptions{Ahead: 50 * time.Minute}))
	counts = jobqtest.RunDue(t, client, handle, &jobqtest.RunOptions{Ahead: 90 * time.Minute})
	require.Equal(t, []string{"fails"}, greeted, "its retry")
	require.EqualValues(t, 1, counts.Failed)
	greeted = nil
	jobqtest.RunDue(t, client, handle, &jobqtest.RunOptions{Ahead: 4 * time.Hour, Worker: worker.Config{Queues: map[string]worker.QueueConfig{"other": {}}}})
	require.Empty(t, greeted, "the queues are those that were named")
	jobqtest.RunDue(t, client, handle, nil)
	require.ElementsMatch(t, []string{"fails", "later"}, greeted)
}

// RunDue runs what waits for other jobs when these are over, also in queues that had no
// job before, and what waited for one that had ended before. It leaves what waits for a
// job that does not end.
func TestRunDueOfJobsThatWait(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	client := newDatabase(t).Client
	var greeted []string
	handle := func(w *worker.Worker) error {
		return worker.Handle(w, func(_ context.Context, job *worker.Job[Greeting]) error {
			greeted = append(greeted, job.Args.Name) // without a lock: they do not run at once
			return nil
		}, nil)
	}
	var graph jobq.Graph
	graph.Add("last", Greeting{"last"}, &jobq.EnqueueOptions{Queue: "another"}, "second", "third")
	graph.Add("third", Greeting{"third"}, nil, "second")
	graph.Add("second", Greeting{"second"}, nil, "first")
	graph.Add("first", Greeting{"first"}, nil)
	jobs, err := client.EnqueueGraph(ctx, &graph)
	require.NoError(t, err)
	farewell := enqueue(t, client, Farewell{}, nil)
	left := enqueue(t, client, Greeting{"left"}, &jobq.EnqueueOptions{After: []int64{farewell}})
	counts := jobqtest.RunDue(t, client, handle, nil)
	require.Equal(t, []string{"first", "second", "third", "last"}, greeted)
	require.EqualValues(t, 4, counts.Completed)
	require.Equal(t, jobq.StateWaiting, stateOf(t, client, left))

	greeted = nil
	after := enqueue(t, client, Greeting{"after"}, &jobq.EnqueueOptions{After: []int64{jobs["last"].ID}}) // it has completed
	require.Equal(t, jobq.StateAvailable, stateOf(t, client, after))
	_, err = client.Cancel(ctx, farewell)
	require.NoError(t, err)
	jobqtest.RunDue(t, client, handle, nil)
	require.Equal(t, []string{"after"}, greeted)
	require.Equal(t, jobq.StateCancelled, stateOf(t, client, left))
}

// A retry is left for the next call, also if its time has come before the call ends.
func TestRunDueLeavesRetries(t *testing.T) {
	t.Parallel()
	database := newDatabase(t)
	client := database.Client
	handle := func(w *worker.Worker) error {
		return worker.Handle(w, func(ctx context.Context, job *worker.Job[Greeting]) error {
			if job.Args.Name == "fails" {
				return worker.Retry(20*time.Millisecond, errors.New("not today"))
			}
			for isDue := false; !isDue; {
				if err := database.Pool.QueryRow(ctx, "select exists (select from jobq.pending where attempts = 1 and run_at <= clock_timestamp())").Scan(&isDue); err != nil {
					return err
				}
			}
			return nil
		}, nil)
	}
	fails := enqueue(t, client, Greeting{"fails"}, nil)
	enqueue(t, client, Greeting{"waits until that is due"}, nil)
	require.Equal(t, worker.Counts{Claimed: 2, Completed: 1, Failed: 1}, jobqtest.RunDue(t, client, handle, nil))
	require.Equal(t, jobq.StateScheduled, stateOf(t, client, fails))
}

// RunDue leaves what a key holds by its order: the job that failed is to run later, and the next one of its key behind it.
func TestRunDueOfOrderedKeys(t *testing.T) {
	t.Parallel()
	database := newDatabase(t)
	client := database.Client
	_, err := database.Pool.Exec(context.Background(), `select jobq.act_queue_set('test', 'default', '{"key_order": "hold"}')`)
	require.NoError(t, err)
	var greeted []string
	failing := true
	handle := func(w *worker.Worker) error {
		return worker.Handle(w, func(ctx context.Context, job *worker.Job[Greeting]) error {
			greeted = append(greeted, job.Args.Name) // without a lock: they do not run at once
			switch {
			case job.Args.Name == "first" && failing:
				return errors.New("not today")
			case job.Args.Name == "adds another key":
				_, err := client.Enqueue(ctx, Greeting{"of another key"}, &jobq.EnqueueOptions{PartitionKey: "b"})
				return err
			}
			return nil
		}, nil)
	}
	ofKey := &jobq.EnqueueOptions{PartitionKey: "a", Queue: "default"}
	enqueue(t, client, Greeting{"first"}, ofKey)
	next := enqueue(t, client, Greeting{"next"}, ofKey)
	other := enqueue(t, client, Farewell{}, &jobq.EnqueueOptions{PartitionKey: "c"})
	behind := enqueue(t, client, Greeting{"behind a kind that is not handled"}, &jobq.EnqueueOptions{PartitionKey: "c"})
	enqueue(t, client, Greeting{"adds another key"}, nil)
	counts := jobqtest.RunDue(t, client, handle, nil)
	require.ElementsMatch(t, []string{"first", "adds another key", "of another key"}, greeted)
	require.EqualValues(t, 1, counts.Failed)
	for _, id := range []int64{next, other, behind} {
		require.Equal(t, jobq.StateAvailable, stateOf(t, client, id))
	}

	greeted, failing = nil, false
	jobqtest.RunDue(t, client, handle, &jobqtest.RunOptions{Ahead: time.Hour})
	require.Equal(t, []string{"first", "next"}, greeted)
	require.Equal(t, jobq.StateAvailable, stateOf(t, client, behind))
}

// RunDue frees what waits for other jobs whatever isolation the role has.
func TestRunDueInRepeatableRead(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	database := newDatabase(t)
	_, err := database.Pool.Exec(ctx, `do $$ begin execute format('alter database %I set default_transaction_isolation = %L', current_database(), 'repeatable read'); end $$`)
	require.NoError(t, err)
	database.Pool.Reset() // its connections have the default of before
	var graph jobq.Graph
	graph.Add("second", Greeting{"second"}, nil, "first")
	graph.Add("first", Greeting{"first"}, nil)
	_, err = database.Client.EnqueueGraph(ctx, &graph)
	require.NoError(t, err)
	counts := jobqtest.RunDue(t, database.Client, func(w *worker.Worker) error {
		return worker.Handle(w, func(context.Context, *worker.Job[Greeting]) error { return nil }, nil)
	}, nil)
	require.EqualValues(t, 2, counts.Completed)
}

func stateOf(t *testing.T, client *jobq.Client, id int64) jobq.State {
	t.Helper()
	job, err := client.Get(context.Background(), id)
	require.NoError(t, err)
	return job.State
}

// What keeps the worker from running fails the test.
func TestRunDueFails(t *testing.T) {
	t.Parallel()
	database := newDatabase(t)
	enqueue(t, database.Client, Greeting{}, nil)
	none := func(*worker.Worker) error { return nil }
	for want, test := range map[string]func(tb jobqtest.TB){
		"no handlers": func(tb jobqtest.TB) { jobqtest.RunDue(tb, database.Client, none, nil) },
		"handlers: out of stock": func(tb jobqtest.TB) {
			jobqtest.RunDue(tb, database.Client, func(*worker.Worker) error { return errors.New("out of stock") }, nil)
		},
		"slots": func(tb jobqtest.TB) {
			jobqtest.RunDue(tb, database.Client, none, &jobqtest.RunOptions{Worker: worker.Config{Queues: map[string]worker.QueueConfig{"mail": {Slots: -1}}}})
		},
	} {
		require.Contains(t, attempt(test).fatal, want)
	}
}
