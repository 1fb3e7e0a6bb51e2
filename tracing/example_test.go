package tracing_test

import (
	"context"
	"fmt"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/pgtest"
	"github.com/jobq-dev/jobq/tracing"
	"github.com/jobq-dev/jobq/worker"
)

// Resize is the args of the example's job.
type Resize struct {
	Image string `json:"image"`
}

// Kind names the handler that runs the job.
func (Resize) Kind() string { return "resize" }

// An enqueue within a request, and the run of its job, which is linked to it.
func ExampleNew() {
	ctx := context.Background()
	pool, done := pgtest.ExamplePool() // a program gets its pool from pgxpool.New
	defer done()
	spans := tracetest.NewInMemoryExporter() // a program sends its spans to a collector
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))
	defer func() { _ = provider.Shutdown(ctx) }()

	traces := tracing.New(provider)
	client, err := jobq.NewClient(pool, &jobq.Config{Middleware: []jobq.EnqueueMiddleware{traces.Enqueue}})
	if err != nil {
		fmt.Println(err)
		return
	}
	w, err := worker.New(client, &worker.Config{
		Middleware: []worker.Middleware{traces.Run},
		Batch:      worker.Batch{ExitWhenEmpty: true},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	err = worker.Handle(w, func(context.Context, *worker.Job[Resize]) error { return nil }, nil)
	if err != nil {
		fmt.Println(err)
		return
	}

	inRequest, request := provider.Tracer("shop").Start(ctx, "POST /images")
	if _, err := client.Enqueue(inRequest, Resize{"cat.jpg"}, nil); err != nil {
		fmt.Println(err)
		return
	}
	request.End()
	if err := w.Run(ctx); err != nil {
		fmt.Println(err)
		return
	}

	names := make(map[string]string) // of spans, by their ids
	for _, span := range spans.GetSpans() {
		names[span.SpanContext.SpanID().String()] = span.Name
	}
	for _, span := range spans.GetSpans() {
		fmt.Printf("%s of %q", span.Name, names[span.Parent.SpanID().String()])
		for _, link := range span.Links {
			fmt.Printf(", linked to %q", names[link.SpanContext.SpanID().String()])
		}
		fmt.Println()
	}
	// Output:
	// send resize of "POST /images"
	// POST /images of ""
	// process resize of "", linked to "send resize"
}
