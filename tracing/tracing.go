package tracing

import (
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
)

// scope is the name of the instrumentation scope of all spans.
const scope = "github.com/jobq-dev/jobq/tracing"

// What the conventions for messaging leave to each system: its name, those of its
// operations, and attributes.
const (
	system  = "jobq"
	send    = "send"
	process = "process"

	kindKey        = attribute.Key("jobq.job.kind")
	attemptKey     = attribute.Key("jobq.job.attempt")
	maxAttemptsKey = attribute.Key("jobq.job.max_attempts")
	duplicateKey   = attribute.Key("jobq.job.duplicate")
	outcomeKey     = attribute.Key("jobq.run.outcome")
	tokenKey       = attribute.Key("jobq.run.lease_token")
)

// Tracer makes the spans. It is safe for concurrent use. Its zero value is of no use.
type Tracer struct{ tracer trace.Tracer }

// New returns a Tracer whose spans go to the provider. Nil means the global one, that of
// otel.GetTracerProvider, also if that is set later.
func New(provider trace.TracerProvider) *Tracer {
	if provider == nil {
		provider = otel.GetTracerProvider()
	}
	return &Tracer{provider.Tracer(scope, trace.WithSchemaURL(semconv.SchemaURL))}
}

// common are the attributes of every span.
func common(operation string) []attribute.KeyValue {
	return []attribute.KeyValue{semconv.MessagingSystemKey.String(system), semconv.MessagingOperationName(operation)}
}
