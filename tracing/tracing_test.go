package tracing_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/jobtest"
	"github.com/jobq-dev/jobq/internal/pgtest"
	"github.com/jobq-dev/jobq/monitor"
	"github.com/jobq-dev/jobq/tracing"
	"github.com/jobq-dev/jobq/worker"
	"github.com/jobq-dev/jobq/worker/programs"
)

func TestMain(m *testing.M) {
	programs.MaybeRunShim()
	pgtest.Main(m)
}

// traced is a client whose enqueues and runs are traced, into memory.
type traced struct {
	*testing.T
	client   *jobq.Client
	traces   *tracing.Tracer
	tracer   trace.Tracer // of the application
	exporter *tracetest.InMemoryExporter
}

func newTraced(t *testing.T) *traced {
	t.Helper()
	d := withoutDatabase(t)
	client, err := jobq.NewClient(pgtest.Pool(t), &jobq.Config{Middleware: []jobq.EnqueueMiddleware{d.traces.Enqueue}})
	require.NoError(t, err)
	d.client = client
	return d
}

// withoutDatabase has no client.
func withoutDatabase(t *testing.T) *traced {
	t.Helper()
	exporter := tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter))
	t.Cleanup(func() { require.NoError(t, provider.Shutdown(context.Background())) })
	return &traced{T: t, traces: tracing.New(provider), tracer: provider.Tracer("application"), exporter: exporter}
}

// run runs greetings until none is available.
func (d *traced) run(handler worker.Handler[jobtest.Greeting]) {
	d.Helper()
	d.runWith(func(w *worker.Worker) { require.NoError(d, worker.Handle(w, handler, nil)) })
}

func (d *traced) runWith(register func(w *worker.Worker)) {
	d.Helper()
	w, err := worker.New(d.client, &worker.Config{
		NoJanitor: true,
		Logger:    slog.New(slog.DiscardHandler), Batch: worker.Batch{ExitWhenEmpty: true},
		Queues:     map[string]worker.QueueConfig{"default": {}, "mail": {}},
		Middleware: []worker.Middleware{d.traces.Run},
	})
	require.NoError(d, err)
	register(w)
	require.NoError(d, w.Run(context.Background()))
}

// spans are those that have ended with the name.
func (d *traced) spans(name string) (found []tracetest.SpanStub) {
	for _, span := range d.exporter.GetSpans() {
		if span.Name == name {
			found = append(found, span)
		}
	}
	return found
}

// ofJob is the only span of the job with the name.
func (d *traced) ofJob(name string, id int64) tracetest.SpanStub {
	d.Helper()
	var found []tracetest.SpanStub
	for _, span := range d.spans(name) {
		if text, _ := attributesOf(span)["messaging.message.id"].(string); text == jsonText(d.T, id) {
			found = append(found, span)
		}
	}
	require.Len(d, found, 1, "spans %q of job %d", name, id)
	return found[0]
}

func jsonText(t *testing.T, value any) string {
	t.Helper()
	return string(jobtest.JSON(t, value))
}

func attributesOf(span tracetest.SpanStub) map[attribute.Key]any {
	attributes := make(map[attribute.Key]any)
	for _, each := range span.Attributes {
		attributes[each.Key] = each.Value.AsInterface()
	}
	return attributes
}

// metadataOf are the members of a job's metadata.
func (d *traced) metadataOf(id int64) (members map[string]any) {
	d.Helper()
	job, err := d.client.Get(context.Background(), id)
	require.NoError(d, err)
	if job.Metadata != nil {
		require.NoError(d, json.Unmarshal(job.Metadata, &members))
	}
	return members
}

// parentOf is the span as a traceparent.
func parentOf(span trace.SpanContext) string {
	return "00-" + span.TraceID().String() + "-" + span.SpanID().String() + "-" + span.TraceFlags().String()
}

// In each way to enqueue, the enqueue is a span of the caller's trace; the run is a trace
// of its own with a link to it; and what the handler does belongs to the run.
func TestEnqueueToRun(t *testing.T) {
	t.Parallel()
	d := newTraced(t)
	state, err := trace.ParseTraceState("vendor=1,other=<2>")
	require.NoError(t, err)
	ctx := trace.ContextWithRemoteSpanContext(context.Background(), trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: trace.FlagsSampled, TraceState: state,
	}))
	ctx, request := d.tracer.Start(ctx, "request")
	mail := &jobq.EnqueueOptions{Queue: "mail", Metadata: json.RawMessage(`{"tenant": 7}`)}
	many := []jobq.EnqueueParams{{Args: jobtest.Greeting{}, EnqueueOptions: *mail}, {Args: jobtest.Greeting{}}}
	var ids []int64
	one, err := d.client.Enqueue(ctx, jobtest.Greeting{}, mail)
	require.NoError(t, err)
	two, err := d.client.EnqueueMany(ctx, many)
	require.NoError(t, err)
	require.NoError(t, pgx.BeginFunc(ctx, d.client.Pool(), func(tx pgx.Tx) error {
		inTx, err := d.client.EnqueueTx(ctx, tx, jobtest.Greeting{}, mail)
		require.NoError(t, err)
		manyInTx, err := d.client.EnqueueManyTx(ctx, tx, many)
		ids = append(ids, inTx.ID, manyInTx[0].ID, manyInTx[1].ID)
		return err
	}))
	ids = append(ids, one.ID, two[0].ID, two[1].ID)
	request.End()
	d.run(func(ctx context.Context, _ *worker.Job[jobtest.Greeting]) error {
		_, span := d.tracer.Start(ctx, "work")
		span.End()
		return nil
	})

	sends := make(map[string]tracetest.SpanStub) // by their traceparent
	for _, span := range d.spans("send greeting") {
		require.Equal(t, trace.SpanKindProducer, span.SpanKind)
		require.Equal(t, request.SpanContext().SpanID(), span.Parent.SpanID())
		require.Equal(t, codes.Unset, span.Status.Code)
		sends[parentOf(span.SpanContext)] = span
	}
	require.Len(t, sends, 4)
	linked := make(map[string]int) // runs, by the traceparent that they are linked with
	for _, id := range ids {
		metadata := d.metadataOf(id)
		parent, _ := metadata["traceparent"].(string)
		send, found := sends[parent]
		require.True(t, found, metadata)
		require.Equal(t, "vendor=1,other=<2>", metadata["tracestate"])
		run := d.ofJob("process greeting", id)
		require.Equal(t, trace.SpanKindConsumer, run.SpanKind)
		require.False(t, run.Parent.IsValid(), "a run is a trace of its own")
		require.NotEqual(t, request.SpanContext().TraceID(), run.SpanContext.TraceID())
		require.Len(t, run.Links, 1)
		link := run.Links[0].SpanContext
		require.True(t, link.Equal(send.SpanContext.WithRemote(true)), "%v is not %v", link, send.SpanContext)
		linked[parent]++
		queue := "default"
		if metadata["tenant"] != nil {
			queue = "mail"
		}
		require.Equal(t, map[attribute.Key]any{
			"messaging.system": "jobq", "messaging.operation.name": "process", "messaging.operation.type": "process",
			"messaging.destination.name": queue, "messaging.message.id": jsonText(t, id),
			"jobq.job.kind": "greeting", "jobq.job.attempt": int64(1), "jobq.job.max_attempts": int64(25),
			"jobq.run.lease_token": attributesOf(run)["jobq.run.lease_token"], "jobq.run.outcome": "completed",
		}, attributesOf(run))
		require.Positive(t, attributesOf(run)["jobq.run.lease_token"])
		works := 0
		for _, work := range d.spans("work") {
			if work.Parent.Equal(run.SpanContext) {
				works++
			}
		}
		require.Equal(t, 1, works, "what the handler does belongs to its run")
	}
	counts := make(map[int]int) // enqueues, by how many jobs they have added
	for parent, jobs := range linked {
		counts[jobs]++
		want := map[attribute.Key]any{
			"messaging.system": "jobq", "messaging.operation.name": "send", "messaging.operation.type": "send", "jobq.job.kind": "greeting",
		}
		if jobs == 1 {
			want["messaging.destination.name"], want["jobq.job.duplicate"] = "mail", false
			want["messaging.message.id"] = attributesOf(sends[parent])["messaging.message.id"]
		} else {
			want["messaging.batch.message_count"] = int64(2) // of two queues
		}
		require.Equal(t, want, attributesOf(sends[parent]))
	}
	require.Equal(t, map[int]int{1: 2, 2: 2}, counts)
	d.ofJob("send greeting", one.ID)
}

// Each attempt is linked to the enqueue, and says how it has ended.
func TestRetriesAreLinked(t *testing.T) {
	t.Parallel()
	d := newTraced(t)
	id := jobtest.Enqueue(t, d.client, &jobq.EnqueueOptions{BackoffBase: jobtest.AtOnce, BackoffMax: jobtest.AtOnce})
	d.run(func(_ context.Context, job *worker.Job[jobtest.Greeting]) error {
		if job.Attempt() < 3 {
			return errNoLuck
		}
		return nil
	})
	send := d.ofJob("send greeting", id)
	runs := d.spans("process greeting")
	require.Len(t, runs, 3)
	for i, run := range runs {
		require.Len(t, run.Links, 1)
		require.Equal(t, send.SpanContext.SpanID(), run.Links[0].SpanContext.SpanID())
		require.Equal(t, int64(i+1), attributesOf(run)["jobq.job.attempt"])
		outcome, status := "failed", sdktrace.Status{Code: codes.Error, Description: "no luck"}
		if i == 2 {
			outcome, status = "completed", sdktrace.Status{}
		}
		require.Equal(t, outcome, attributesOf(run)["jobq.run.outcome"])
		require.Equal(t, status, run.Status)
	}
}

// A job that SQL has added with a traceparent is linked likewise. What is invalid there
// costs the job nothing.
func TestSQLInserts(t *testing.T) {
	t.Parallel()
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"
	ctx := context.Background()
	d := newTraced(t)
	links := make(map[int64]string)
	for metadata, want := range map[string]string{
		`{"traceparent": "` + parent + `"}`:                                                      parent,
		`{"traceparent": "` + parent + `", "tracestate": "a=1"}`:                                 parent + " a=1",
		`{"traceparent": "` + parent + `", "tracestate": "no list"}`:                             parent,
		`{"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-03", "other": 1}`: parent[:53] + "01",
		`{"traceparent": "00-00000000000000000000000000000000-b7ad6b7169203331-01"}`:             "",
		`{"traceparent": "nonsense"}`:                                                            "",
		`{"traceparent": {"a": 1}}`:                                                              "",
		`["traceparent"]`:                                                                        "",
		`{}`:                                                                                     "",
	} {
		var id int64
		require.NoError(t, d.client.Pool().QueryRow(ctx, "select jobq.enqueue('greeting', '{}'::jsonb, metadata => $1::jsonb)", metadata).Scan(&id))
		links[id] = want
	}
	_, err := d.client.Pool().Exec(ctx, "insert into jobq.pending (kind, args, metadata) values ('greeting', '{}', $1)", `{"traceparent": "`+parent+`"}`)
	require.NoError(t, err)
	d.run(func(context.Context, *worker.Job[jobtest.Greeting]) error { return nil })
	require.Len(t, d.spans("process greeting"), len(links)+1)
	for id, want := range links {
		run := d.ofJob("process greeting", id)
		require.Equal(t, "completed", attributesOf(run)["jobq.run.outcome"])
		require.Equal(t, jobq.StateCompleted, jobtest.State(t, d.client, id))
		var got string
		for _, link := range run.Links {
			got += parentOf(link.SpanContext)
			if state := link.SpanContext.TraceState().String(); state != "" {
				got += " " + state
			}
		}
		require.Equal(t, want, got)
	}
}

// A program that runs a job belongs to its run, and so does what it adds.
func TestProgramsBelongToTheRun(t *testing.T) {
	t.Parallel()
	d := newTraced(t)
	id := jobtest.Enqueue(t, d.client, nil)
	d.runWith(func(w *worker.Worker) {
		script := `echo "$TRACEPARENT"; echo '{"enqueue": {"kind": "next", "queue": "later"}}' >&3`
		require.NoError(t, programs.New(w).HandleCommand("greeting", programs.Command{Args: []string{"/bin/sh", "-c", script}}, nil))
	})
	run := d.ofJob("process greeting", id)
	attempts, err := monitor.New(d.client).Attempts(context.Background(), id)
	require.NoError(t, err)
	require.Equal(t, parentOf(run.SpanContext)+"\n", attempts[0].Output)
	sends := d.spans("send next")
	require.Len(t, sends, 1)
	require.Equal(t, run.SpanContext.SpanID(), sends[0].Parent.SpanID())
}

// Without a provider, nothing is written into metadata, and jobs run.
func TestWithoutProvider(t *testing.T) {
	t.Parallel()
	d := newTraced(t)
	d.traces = tracing.New(nil) // of this test's program, which has set none
	client, err := jobq.NewClient(d.client.Pool(), &jobq.Config{Middleware: []jobq.EnqueueMiddleware{d.traces.Enqueue}})
	require.NoError(t, err)
	id := jobtest.Enqueue(t, client, nil)
	require.Nil(t, d.metadataOf(id))
	d.run(func(context.Context, *worker.Job[jobtest.Greeting]) error { return nil })
	require.Equal(t, jobq.StateCompleted, jobtest.State(t, client, id))
	require.Empty(t, d.exporter.GetSpans())
}

// A handler that panics ends its span, and its attempt has the panic's text and stack as
// without a trace.
func TestPanic(t *testing.T) {
	t.Parallel()
	d := newTraced(t)
	id := jobtest.Enqueue(t, d.client, &jobq.EnqueueOptions{MaxAttempts: 1})
	d.run(func(context.Context, *worker.Job[jobtest.Greeting]) error { panic("aaah") })
	run := d.ofJob("process greeting", id)
	require.Equal(t, codes.Error, run.Status.Code)
	require.Equal(t, "failed", attributesOf(run)["jobq.run.outcome"])
	require.Equal(t, "panic", attributesOf(run)["error.type"])
	require.Len(t, run.Events, 1)
	require.Contains(t, run.Events[0].Attributes, attribute.String("exception.message", "aaah"))
	attempts, err := monitor.New(d.client).Attempts(context.Background(), id)
	require.NoError(t, err)
	require.Contains(t, attempts[0].Error, "panic: aaah")
	require.Contains(t, attempts[0].Error, "tracing_test.TestPanic", "the stack of the handler")
}
