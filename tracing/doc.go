// Package tracing makes OpenTelemetry traces of enqueues and runs. [Tracer.Enqueue] is
// middleware of a client, [Tracer.Run] of a worker:
//
//	traces := tracing.New(nil)
//	client, err := jobq.NewClient(pool, &jobq.Config{Middleware: []jobq.EnqueueMiddleware{traces.Enqueue}})
//	w, err := worker.New(client, &worker.Config{Middleware: []worker.Middleware{traces.Run}})
//
// An enqueue is a span of the caller's trace, and is written into the metadata of its jobs
// as W3C Trace Context: {"traceparent": "00-…-…-01"}. A run is a trace of its own. It has a
// link to the span that has enqueued its job, and so have further attempts. Whoever adds
// jobs in SQL can write the same metadata. docs/tracing.md has the spans and their
// attributes.
//
// Only this package links OpenTelemetry: programs that do not import it do without.
package tracing
