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
