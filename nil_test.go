package jobq_test

import (
	"context"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/jobtest"
	"github.com/jobq-dev/jobq/janitor"
	"github.com/jobq-dev/jobq/keyring"
	"github.com/jobq-dev/jobq/migrate"
	"github.com/jobq-dev/jobq/monitor"
	"github.com/jobq-dev/jobq/operator"
	"github.com/jobq-dev/jobq/worker"
	"github.com/jobq-dev/jobq/worker/programs"
)

// withKindDefaults are args whose methods panic for a nil pointer.
type withKindDefaults struct{ Queue string }

func (w withKindDefaults) Kind() string { return "k" + w.Queue }

func (w withKindDefaults) EnqueueDefaults() jobq.EnqueueOptions {
	return jobq.EnqueueOptions{Queue: w.Queue}
}

// What is nil is refused with an error, also by a client with middleware that looks at the args; nil options
// are the defaults.
func TestNilArguments(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	plain := jobtest.Client(t)
	looks := func(ctx context.Context, jobs []jobq.EnqueueParams, next func(context.Context) ([]jobq.Enqueued, error)) ([]jobq.Enqueued, error) {
		for _, job := range jobs {
			_ = job.Args.Kind()
		}
		return next(ctx)
	}
	wrapped, err := jobq.NewClient(plain.Pool(), &jobq.Config{Middleware: []jobq.EnqueueMiddleware{looks}})
	require.NoError(t, err)
	for name, client := range map[string]*jobq.Client{"plain": plain, "with middleware": wrapped} {
		for _, args := range []jobq.Args{nil, (*withKindDefaults)(nil)} {
			var graph jobq.Graph
			graph.Add("first", args, nil)
			for call, err := range map[string]error{
				"Enqueue": jobtest.ErrorOf(client.Enqueue(ctx, args, nil)),
				"EnqueueMany": jobtest.ErrorOf(client.EnqueueMany(ctx, []jobq.EnqueueParams{
					{Args: jobtest.Greeting{}}, {Args: args},
				})),
				"EnqueueGraph":   jobtest.ErrorOf(client.EnqueueGraph(ctx, &graph)),
				"EnqueueAndWait": jobtest.ErrorOf(client.EnqueueAndWait(ctx, args, nil)),
			} {
				require.ErrorIs(t, err, jobq.ErrInvalid, "%s %s", name, call)
				require.ErrorContains(t, err, "args are nil", "%s %s", name, call)
			}
		}
		require.ErrorIs(t, jobtest.ErrorOf(client.EnqueueGraph(ctx, nil)), jobq.ErrInvalid)
	}
	require.ErrorIs(t, jobtest.ErrorOf(jobq.WaitResult[int](ctx, nil, 1)), jobq.ErrInvalid)
	jobtest.RequireNothingStored(t, plain)
	_, err = plain.Enqueue(ctx, jobtest.Greeting{}, nil)
	require.NoError(t, err)
}

// So are nil clients, handlers, middleware and codecs, where a worker, a janitor or a client is made.
func TestNilParts(t *testing.T) {
	t.Parallel()
	client := jobtest.Client(t)
	w, err := worker.New(client, &worker.Config{Queues: map[string]worker.QueueConfig{"q": {Slots: 1}}})
	require.NoError(t, err)
	for want, err := range map[string]error{
		"jobq client: the pool is nil":              jobtest.ErrorOf(jobq.NewClient(nil, nil)),
		"jobq client: Middleware[0] is nil":         jobtest.ErrorOf(jobq.NewClient(client.Pool(), &jobq.Config{Middleware: []jobq.EnqueueMiddleware{nil}})),
		"jobq client: the Codec is a nil pointer":   jobtest.ErrorOf(jobq.NewClient(client.Pool(), &jobq.Config{Codec: (*keyring.Keyring)(nil)})),
		"worker: the client is nil":                 jobtest.ErrorOf(worker.New(nil, nil)),
		"janitor: the client is nil":                jobtest.ErrorOf(janitor.New(nil, nil)),
		`handler of kind "greeting": it is nil`:     worker.Handle[jobtest.Greeting](w, nil, nil),
		`handler of kind "k": it is nil`:            worker.HandleRaw(w, "k", nil, nil),
		`handler of kind "raw": the worker is nil`:  worker.HandleRaw(nil, "raw", func(context.Context, *worker.Job[jobq.RawArgs]) error { return nil }, nil),
		"handler: the args have the type jobq.Args": worker.Handle(w, func(context.Context, *worker.Job[jobq.Args]) error { return nil }, nil),
		"worker: middleware 0 is nil": jobtest.ErrorOf(worker.New(client, &worker.Config{
			Queues: map[string]worker.QueueConfig{"q": {Slots: 1}}, Middleware: []worker.Middleware{nil},
		})),
	} {
		require.ErrorContains(t, err, want)
	}
	require.NoError(t, worker.Handle(w, func(context.Context, *worker.Job[*withKindDefaults]) error { return nil }, nil))
}

// What is made of a nil client or worker returns errors, and does not panic. Method: call each method of it, with zero
// values: they are refused, or the client is. A method without arguments must name what is nil.
func TestMethodsOfNilParts(t *testing.T) {
	t.Parallel()
	for name, part := range map[string]any{
		"monitor": monitor.New(nil), "operator": operator.New(nil, ""), "programs": programs.New(nil),
	} {
		methods := reflect.TypeOf(part)
		require.NotZero(t, methods.NumMethod())
		for i := range methods.NumMethod() {
			method := methods.Method(i)
			if strings.HasPrefix(method.Name, "Declare") { // called with no queues or kinds, for which it asks nothing
				continue
			}
			arguments := []reflect.Value{reflect.ValueOf(part)}
			count := method.Type.NumIn()
			if method.Type.IsVariadic() {
				count--
			}
			for j := 1; j < count; j++ {
				argument := reflect.Zero(method.Type.In(j))
				if method.Type.In(j) == reflect.TypeFor[context.Context]() {
					argument = reflect.ValueOf(context.Background())
				}
				arguments = append(arguments, argument)
			}
			var returned []reflect.Value
			require.NotPanics(t, func() { returned = method.Func.Call(arguments) }, "%s.%s", name, method.Name)
			require.NotEmpty(t, returned, "%s.%s", name, method.Name)
			err, _ := returned[len(returned)-1].Interface().(error)
			require.Error(t, err, "%s.%s", name, method.Name)
			if len(arguments) == 2 && name != "programs" {
				require.ErrorIs(t, err, jobq.ErrInvalid, "%s.%s", name, method.Name)
			}
		}
	}
	for call, err := range map[string]error{
		"migrate.Up":        jobtest.ErrorOf(migrate.Up(context.Background(), nil, nil)),
		"migrate.Down":      jobtest.ErrorOf(migrate.Down(context.Background(), nil, nil)),
		"migrate.GetStatus": jobtest.ErrorOf(migrate.GetStatus(context.Background(), nil, nil)),
	} {
		require.ErrorContains(t, err, "the pool is nil", call)
	}
}
