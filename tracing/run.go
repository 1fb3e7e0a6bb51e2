package tracing

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/traceparent"
	"github.com/jobq-dev/jobq/worker"
)

// messageBytesMax bounds the text of an error in a span.
const messageBytesMax = 4 << 10

// Run makes a trace of a run, which the handler's context carries. It is a
// worker.Middleware: put it first in worker.Config.Middleware, so that the others and what
// they do belong to the span. Whatever happens to spans, the run goes on.
//
// Programs and HTTP servers that run the job get the span as their traceparent.
func (t *Tracer) Run(ctx context.Context, run *worker.Run, next func(ctx context.Context) error) error {
	inner, span := t.tracer.Start(ctx, process+" "+run.Kind(),
		trace.WithNewRoot(), trace.WithSpanKind(trace.SpanKindConsumer), trace.WithLinks(linksOf(run)...),
		trace.WithAttributes(append(common(process),
			semconv.MessagingOperationTypeProcess, semconv.MessagingDestinationName(run.Queue()),
			semconv.MessagingMessageID(strconv.FormatInt(run.ID(), 10)), kindKey.String(run.Kind()),
			attemptKey.Int(run.Attempt()), maxAttemptsKey.Int(run.MaxAttempts()), tokenKey.Int64(run.LeaseToken()))...))
	defer span.End() // which also records a panic
	returned := false
	defer func() {
		if !returned { // a panic, or runtime.Goexit
			span.SetAttributes(outcomeKey.String(string(jobq.OutcomeFailed)), semconv.ErrorTypeKey.String("panic"))
			span.SetStatus(codes.Error, "the handler has panicked, or ended its goroutine")
		}
	}()
	err := next(withSpan(inner))
	returned = true
	outcome := worker.OutcomeOf(ctx, err)
	span.SetAttributes(outcomeKey.String(string(outcome)))
	switch outcome {
	case jobq.OutcomeFailed, jobq.OutcomeTimedOut:
		record(span, err, string(outcome))
	case jobq.OutcomeLost: // what the handler says does not count
		record(span, worker.ErrLeaseLost, string(outcome))
	default: // nobody's fault
	}
	return err
}

// linksOf is the link to what has enqueued the job, if its metadata say it.
func linksOf(run *worker.Run) []trace.Link {
	enqueued := traceparent.Of(run.Metadata())
	if enqueued.Parent == "" {
		return nil
	}
	config := trace.SpanContextConfig{Remote: true}
	var err error
	if config.TraceID, err = trace.TraceIDFromHex(enqueued.TraceID()); err != nil {
		return nil // never: it was looked at
	}
	if config.SpanID, err = trace.SpanIDFromHex(enqueued.SpanID()); err != nil {
		return nil // never
	}
	if flags, err := strconv.ParseUint(enqueued.Flags(), 16, 8); err == nil {
		config.TraceFlags = trace.TraceFlags(flags) & trace.FlagsSampled
	}
	config.TraceState, _ = trace.ParseTraceState(enqueued.State) // one that is invalid does not count, as W3C says
	return []trace.Link{{SpanContext: trace.NewSpanContext(config)}}
}

// withSpan tells programs which span they belong to.
func withSpan(ctx context.Context) context.Context {
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	if len(carrier) == 0 { // without a provider
		return ctx
	}
	return traceparent.With(ctx, traceparent.Context{Parent: carrier[traceparent.ParentName], State: carrier[traceparent.StateName]})
}

// record makes a span one that has failed.
func record(span trace.Span, err error, kind string) {
	text := textOf(err)
	summary, _, _ := strings.Cut(text, "\n")
	span.SetStatus(codes.Error, summary)
	span.SetAttributes(semconv.ErrorTypeKey.String(kind))
	span.AddEvent(semconv.ExceptionEventName, trace.WithAttributes(semconv.ExceptionType(fmt.Sprintf("%T", err)), semconv.ExceptionMessage(text)))
}

// textOf is the text of the error, of at most messageBytesMax bytes. Its method may panic,
// which must not become the end of the run.
func textOf(err error) (text string) {
	defer func() {
		if recover() != nil {
			text = fmt.Sprintf("%T, whose text panics", err)
		}
	}()
	text = err.Error()
	return strings.ToValidUTF8(text[:min(len(text), messageBytesMax)], "")
}
