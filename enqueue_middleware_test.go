package jobq_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/jobtest"
	"github.com/jobq-dev/jobq/internal/pgtest"
)

// middleClient is a client with middleware on a database of the test's own.
func middleClient(t *testing.T, middleware ...jobq.EnqueueMiddleware) *jobq.Client {
	t.Helper()
	client, err := jobq.NewClient(pgtest.Pool(t), &jobq.Config{Middleware: middleware})
	require.NoError(t, err)
	return client
}

// Every way to enqueue goes through the middleware once, the first one outermost. It sees
// the defaults of the kind, and what it changes is stored, while the caller's own values
// stay as they are.
func TestEnqueueMiddleware(t *testing.T) {
	t.Parallel()
	type place struct{}
	ctx := context.Background()
	var calls []string
	outer := func(ctx context.Context, jobs []jobq.EnqueueParams, next func(context.Context) ([]jobq.Enqueued, error)) ([]jobq.Enqueued, error) {
		calls = append(calls, "outer")
		enqueued, err := next(context.WithValue(ctx, place{}, "from outside"))
		calls = append(calls, "back")
		return enqueued, err
	}
	inner := func(ctx context.Context, jobs []jobq.EnqueueParams, next func(context.Context) ([]jobq.Enqueued, error)) ([]jobq.Enqueued, error) {
		calls = append(calls, "inner")
		require.Equal(t, "from outside", ctx.Value(place{}))
		for i := range jobs {
			require.Equal(t, "billing", jobs[i].Queue, "the default of the kind")
			require.JSONEq(t, `{"team": "billing"}`, string(jobs[i].Metadata))
			jobs[i].Metadata = json.RawMessage(`{"team": "billing", "by": "middleware"}`)
		}
		enqueued, err := next(ctx)
		require.NoError(t, err)
		require.Len(t, enqueued, len(jobs))
		return enqueued, err
	}
	client := middleClient(t, outer, inner)
	options, many := &jobq.EnqueueOptions{UniqueKey: "own"}, []jobq.EnqueueParams{{Args: invoice{Number: "3"}}, {Args: invoice{Number: "4"}}}
	graph := func(numbers ...string) *jobq.Graph {
		var graph jobq.Graph
		for i, number := range numbers {
			graph.Add(number, invoice{Number: number}, nil, numbers[i+1:]...)
		}
		return &graph
	}
	inTx := func(call func(tx pgx.Tx) error) error { return pgx.BeginFunc(ctx, client.Pool(), call) }
	for name, call := range map[string]func() error{
		"Enqueue":     func() error { return jobtest.ErrorOf(client.Enqueue(ctx, invoice{Number: "1"}, nil)) },
		"a key":       func() error { return jobtest.ErrorOf(client.Enqueue(ctx, invoice{Number: "1"}, options)) },
		"EnqueueMany": func() error { return jobtest.ErrorOf(client.EnqueueMany(ctx, many)) },
		"EnqueueTx": func() error {
			return inTx(func(tx pgx.Tx) error { return jobtest.ErrorOf(client.EnqueueTx(ctx, tx, invoice{Number: "5"}, nil)) })
		},
		"EnqueueManyTx": func() error {
			return inTx(func(tx pgx.Tx) error {
				return jobtest.ErrorOf(client.EnqueueManyTx(ctx, tx, []jobq.EnqueueParams{{Args: invoice{Number: "6"}}, {Args: invoice{Number: "7"}}}))
			})
		},
		"EnqueueGraph": func() error { return jobtest.ErrorOf(client.EnqueueGraph(ctx, graph("8", "9"))) },
		"EnqueueGraphTx": func() error {
			return inTx(func(tx pgx.Tx) error { return jobtest.ErrorOf(client.EnqueueGraphTx(ctx, tx, graph("10", "11"))) })
		},
	} {
		calls = nil
		require.NoError(t, call(), name)
		require.Equal(t, []string{"outer", "inner", "back"}, calls, name)
	}
	var jobs, changed int
	require.NoError(t, client.Pool().QueryRow(ctx, "select count(*), count(*) filter (where metadata ->> 'by' = 'middleware') from jobq.job").Scan(&jobs, &changed))
	require.Equal(t, []int{11, 11}, []int{jobs, changed})
	require.Equal(t, &jobq.EnqueueOptions{UniqueKey: "own"}, options)
	require.Equal(t, []jobq.EnqueueParams{{Args: invoice{Number: "3"}}, {Args: invoice{Number: "4"}}}, many)
}

// Middleware can refuse an enqueue, sees why one was refused, and cannot make up answers.
// Where nothing is to be added, it is not called.
func TestEnqueueMiddlewareErrors(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	errRefused := errors.New("not today")
	refuse, forget := false, false
	var seen error
	client := middleClient(t, func(ctx context.Context, _ []jobq.EnqueueParams, next func(context.Context) ([]jobq.Enqueued, error)) ([]jobq.Enqueued, error) {
		switch {
		case refuse:
			return nil, errRefused
		case forget:
			return nil, nil
		}
		enqueued, err := next(ctx)
		seen = err
		return enqueued, err
	})
	_, err := client.Enqueue(ctx, jobtest.Greeting{}, &jobq.EnqueueOptions{MaxAttempts: 40_000})
	require.ErrorIs(t, err, jobq.ErrInvalid)
	require.Equal(t, err, seen)
	_, err = client.EnqueueMany(ctx, []jobq.EnqueueParams{{Args: jobtest.Greeting{}}, {Args: jobtest.Greeting{}, EnqueueOptions: jobq.EnqueueOptions{MaxAttempts: 40_000}}})
	require.ErrorContains(t, err, "jobs[1]: max_attempts")
	require.Equal(t, err, seen)
	_, err = client.EnqueueMany(ctx, []jobq.EnqueueParams{{Args: jobtest.Greeting{}}, {}})
	require.ErrorContains(t, err, "jobs[1]: args are nil")
	require.NotEqual(t, err, seen)

	refuse = true
	_, err = client.Enqueue(ctx, jobtest.Greeting{}, nil)
	require.Equal(t, errRefused, err)
	var graph jobq.Graph
	graph.Add("only", jobtest.Greeting{}, nil)
	_, err = client.EnqueueGraph(ctx, &graph)
	require.Equal(t, errRefused, err)
	none, err := client.EnqueueMany(ctx, nil)
	require.NoError(t, err)
	require.Nil(t, none)
	_, err = client.EnqueueMany(ctx, make([]jobq.EnqueueParams, jobq.EnqueueManyMax+1))
	require.ErrorIs(t, err, jobq.ErrInvalid)

	refuse, forget = false, true
	_, err = client.Enqueue(ctx, jobtest.Greeting{}, nil)
	require.EqualError(t, err, "enqueue: the middleware answers for 0 jobs instead of 1")
	jobtest.RequireNothingStored(t, client)
}
