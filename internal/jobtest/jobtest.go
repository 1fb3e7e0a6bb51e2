// Package jobtest makes jobs and runs them for the tests of packages jobq, monitor
// and operator.
package jobtest

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/pgtest"
	"github.com/jobq-dev/jobq/operator"
)

// AtOnce is a backoff that is over before the job is stored again. After a longer one, of
// a millisecond too, a job is now and then stored as scheduled, and without a janitor it stays so.
const AtOnce = time.Microsecond

// Eventually ends a test that hangs: no promise is about it. Tick is the time
// between two looks at what a test waits for.
const (
	Eventually = 5 * time.Minute
	Tick       = 5 * time.Millisecond
)

// Greeting is the kind of job that tests enqueue.
type Greeting struct {
	Name string `json:"name"`
}

// Kind is "greeting".
func (Greeting) Kind() string { return "greeting" }

// Client returns a client on a database of the test's own.
func Client(t *testing.T) *jobq.Client {
	t.Helper()
	client, err := jobq.NewClient(pgtest.Pool(t), nil)
	require.NoError(t, err)
	return client
}

// Enqueue adds a greeting.
func Enqueue(t *testing.T, client *jobq.Client, options *jobq.EnqueueOptions) int64 {
	t.Helper()
	enqueued, err := client.Enqueue(context.Background(), Greeting{"world"}, options)
	require.NoError(t, err)
	return enqueued.ID
}

// Raw is a job of EnqueueMany.
func Raw(kind, args string, options *jobq.EnqueueOptions) jobq.EnqueueParams {
	params := jobq.EnqueueParams{Args: jobq.RawArgs{Name: kind, JSON: json.RawMessage(args)}}
	if options != nil {
		params.EnqueueOptions = *options
	}
	return params
}

// State is the state that a job is in.
func State(t *testing.T, client *jobq.Client, id int64) jobq.State {
	t.Helper()
	job, err := client.Get(context.Background(), id)
	require.NoError(t, err)
	return job.State
}

// Requeue requeues a job.
func Requeue(client *jobq.Client, id int64) error { return act(client, jobq.ActionRequeue, id) }

// Delete deletes a job.
func Delete(client *jobq.Client, id int64) error { return act(client, jobq.ActionDelete, id) }

func act(client *jobq.Client, action jobq.Action, id int64) error {
	acted, err := operator.New(client, "test").Act(context.Background(), action, operator.Target{ID: id})
	if err != nil {
		return err
	}
	return acted.Jobs[0].Err()
}

// ErrorOf is the error of a call of which nothing else matters.
func ErrorOf[T any](_ T, err error) error { return err }

// JSON is the value in JSON.
func JSON(t *testing.T, value any) json.RawMessage {
	t.Helper()
	content, err := json.Marshal(value)
	require.NoError(t, err)
	return content
}

// LongText is a text of that many bytes, which does not compress to nothing.
func LongText(length int) string {
	text := make([]byte, length)
	for i := range text {
		text[i] = byte('a' + i%26)
	}
	return string(text)
}

// AwaitWaiting waits until so many sessions of the database wait for a lock.
func AwaitWaiting(t *testing.T, pool *pgxpool.Pool, want int) {
	t.Helper()
	require.Eventually(t, func() bool {
		var waiting int
		err := pool.QueryRow(context.Background(), `select count(distinct l.pid) from pg_locks l
			join pg_stat_activity a on a.pid = l.pid where not l.granted and a.datname = current_database()`).Scan(&waiting)
		return err == nil && waiting == want
	}, Eventually, Tick)
}
