package tracing

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/traceparent"
)

// metadataBytesMax is how long metadata may be that get a trace. At most 64 KiB of metadata
// are stored, in a form in which they are up to six times as long as here: [1,1,1] has 2
// bytes a number here, and 12 there. The trace itself has at most 650. So no job is refused
// for its trace.
const metadataBytesMax = 10_000

// Enqueue makes a span of an enqueue, and writes it into the metadata of the jobs. It is a
// jobq.EnqueueMiddleware, for jobq.Config.Middleware. A job keeps its metadata as they are
// if they have a traceparent or tracestate already, are no object, or are longer than
// 10,000 bytes. A job that was there already, with the same unique key, keeps its trace.
func (t *Tracer) Enqueue(ctx context.Context, jobs []jobq.EnqueueParams, next func(context.Context) ([]jobq.Enqueued, error)) ([]jobq.Enqueued, error) {
	title, attributes := describe(jobs)
	ctx, span := t.tracer.Start(ctx, title, trace.WithSpanKind(trace.SpanKindProducer), trace.WithAttributes(attributes...))
	defer span.End() // which also records a panic
	if members := membersOf(ctx); members != nil {
		for i := range jobs {
			jobs[i].Metadata = withMembers(jobs[i].Metadata, members)
		}
	}
	enqueued, err := next(ctx)
	switch {
	case err != nil:
		record(span, err, typeOf(err))
	case len(enqueued) == 1:
		span.SetAttributes(semconv.MessagingMessageID(strconv.FormatInt(enqueued[0].ID, 10)), duplicateKey.Bool(enqueued[0].Duplicate))
	}
	return enqueued, err
}

// describe is the name of the span of an enqueue, and its attributes: what all jobs have
// in common.
func describe(jobs []jobq.EnqueueParams) (title string, attributes []attribute.KeyValue) {
	kind, queue := kindOf(jobs[0]), queueOf(jobs[0])
	for _, job := range jobs[1:] {
		if kind != "" && kindOf(job) != kind {
			kind = ""
		}
		if queue != "" && queueOf(job) != queue {
			queue = ""
		}
	}
	title = send
	attributes = append(common(send), semconv.MessagingOperationTypeSend)
	if kind != "" {
		title += " " + kind
		attributes = append(attributes, kindKey.String(kind))
	}
	if queue != "" {
		attributes = append(attributes, semconv.MessagingDestinationName(queue))
	}
	if len(jobs) > 1 {
		attributes = append(attributes, semconv.MessagingBatchMessageCount(len(jobs)))
	}
	return title, attributes
}

func kindOf(job jobq.EnqueueParams) string {
	if job.Args == nil { // which is refused
		return ""
	}
	return name(job.Args.Kind())
}

func queueOf(job jobq.EnqueueParams) string {
	if job.Queue == "" {
		return "default"
	}
	return name(job.Queue)
}

// nameBytesMax bounds a name: it has at most 128 characters, or the job is refused.
const nameBytesMax = 4 * 128

// name is the name as exporters take it.
func name(name string) string {
	return strings.ToValidUTF8(name[:min(len(name), nameBytesMax)], "")
}

// typeOf is the type of an error of an enqueue.
func typeOf(err error) string {
	if errors.Is(err, jobq.ErrInvalid) {
		return "invalid"
	}
	return semconv.ErrorTypeOther.Value.AsString()
}

// membersOf are the members of metadata that name the span of the context, without the
// braces; nil if it has none, as without a provider.
func membersOf(ctx context.Context) []byte {
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	if len(carrier) == 0 {
		return nil
	}
	if len(carrier[traceparent.StateName]) > traceparent.StateBytesMax {
		delete(carrier, traceparent.StateName)
	}
	members, err := json.Marshal(carrier)
	if err != nil {
		return nil // texts always encode
	}
	return bytes.Trim(members, "{}")
}

// withMembers adds the members to metadata, where they may be added.
func withMembers(metadata json.RawMessage, members []byte) json.RawMessage {
	if len(metadata) > metadataBytesMax {
		return metadata
	}
	var present map[string]json.RawMessage
	if metadata != nil && (json.Unmarshal(metadata, &present) != nil || present == nil) {
		return metadata // no object: null, say, or refused as it is
	}
	if _, ok := present[traceparent.ParentName]; ok {
		return metadata
	}
	if _, ok := present[traceparent.StateName]; ok {
		return metadata
	}
	merged := append([]byte{'{'}, members...)
	if len(present) == 0 {
		return append(merged, '}')
	}
	_, rest, _ := bytes.Cut(metadata, []byte{'{'}) // only blanks can stand before
	return append(append(merged, ','), rest...)
}
