package tracing_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/jobtest"
)

// settled is a kind whose metadata have a default.
type settled struct{ jobtest.Greeting }

func (settled) EnqueueDefaults() jobq.EnqueueOptions {
	return jobq.EnqueueOptions{Metadata: json.RawMessage(`{"team": "billing"}`)}
}

// Metadata get a trace where that is safe, and else stay as they are: no job is refused
// for its trace, and none is added whose metadata were refused without one.
func TestMetadata(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	d := newTraced(t)
	// What is largest in the database beside its length here.
	numbers := func(length int) string {
		return `{"n":[1` + strings.Repeat(",1", (length-len(`{"n":[1]}`))/2) + `]}`
	}
	for name, test := range map[string]struct {
		metadata string
		traced   bool
	}{
		"none":             {``, true},
		"no members":       {`{}`, true},
		"blanks":           {" \n{ }\t", true},
		"members":          {` {"a": {"b": "}{"}, "c": [1]} `, true},
		"inner":            {`{"inner": {"traceparent": "x"}}`, true},
		"own":              {`{"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "a": 1}`, false},
		"own, invalid":     {`{"traceparent": null}`, false},
		"own state":        {`{"tracestate": "a=1"}`, false},
		"array":            {`[{"a": 1}]`, false},
		"text":             {`"{}"`, false},
		"null":             {`null`, false},
		"largest with one": {numbers(9_999), true},
		"longest with one": {`{"t": "` + strings.Repeat("x", 9_991) + `"}`, true},
		"too long for one": {`{"t": "` + strings.Repeat("x", 9_992) + `"}`, false},
		"largest of all":   {`{"t": "` + strings.Repeat("x", 65_516) + `"}`, false},
	} {
		var options jobq.EnqueueOptions
		if test.metadata != "" {
			options.Metadata = json.RawMessage(test.metadata)
		}
		enqueued, err := d.client.Enqueue(ctx, jobtest.Greeting{}, &options)
		require.NoError(t, err, name)
		job, err := d.client.Get(ctx, enqueued.ID)
		require.NoError(t, err, name)
		if !test.traced {
			require.JSONEq(t, test.metadata, string(job.Metadata), name)
			continue
		}
		members := d.metadataOf(enqueued.ID)
		send := d.ofJob("send greeting", enqueued.ID)
		require.Equal(t, parentOf(send.SpanContext), members["traceparent"], name)
		delete(members, "traceparent")
		want := test.metadata
		if want == "" {
			want = "{}"
		}
		require.JSONEq(t, want, jsonText(t, members), name)
		require.Equal(t, test.metadata, string(options.Metadata), "the caller's own")
	}
	for _, metadata := range []string{`{`, `{"a": 1} x`, ``, "{\"a\": \"\xff\"}", `{"a": "\u0000"}`, `{"t": "` + strings.Repeat("x", 65_537) + `"}`} {
		_, err := d.client.Enqueue(ctx, jobtest.Greeting{}, &jobq.EnqueueOptions{Metadata: json.RawMessage(metadata)})
		require.ErrorIs(t, err, jobq.ErrInvalid, metadata[:min(len(metadata), 20)])
	}
	enqueued, err := d.client.Enqueue(ctx, settled{}, nil)
	require.NoError(t, err)
	members := d.metadataOf(enqueued.ID)
	require.Equal(t, "billing", members["team"])
	require.NotEmpty(t, members["traceparent"])
}

// A trace's state that is longer than W3C asks for is left out, so that no job is refused
// for it.
func TestLongState(t *testing.T) {
	t.Parallel()
	d := newTraced(t)
	for _, length := range []int{512, 513} {
		text := "a=" + strings.Repeat("x", 200) + ",b=" + strings.Repeat("y", 200) + ",c=" + strings.Repeat("z", length-408)
		require.Len(t, text, length)
		state, err := trace.ParseTraceState(text)
		require.NoError(t, err)
		ctx := trace.ContextWithRemoteSpanContext(context.Background(), trace.NewSpanContext(trace.SpanContextConfig{
			TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: trace.FlagsSampled, TraceState: state,
		}))
		enqueued, err := d.client.Enqueue(ctx, jobtest.Greeting{}, nil)
		require.NoError(t, err)
		members := d.metadataOf(enqueued.ID)
		require.NotEmpty(t, members["traceparent"])
		require.Equal(t, length == 512, members["tracestate"] == text)
		require.Equal(t, length == 512, members["tracestate"] != nil)
	}
}

// An enqueue of several kinds and queues names none; one that is refused says so; and a
// duplicate names the job that was there.
func TestEnqueueSpans(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	d := newTraced(t)
	_, err := d.client.EnqueueMany(ctx, []jobq.EnqueueParams{
		{Args: jobtest.Greeting{}}, {Args: jobq.RawArgs{Name: "other"}}, {Args: jobq.RawArgs{Name: "other"}, EnqueueOptions: jobq.EnqueueOptions{Queue: "q"}},
	})
	require.NoError(t, err)
	several := d.spans("send")
	require.Len(t, several, 1)
	require.Equal(t, map[attribute.Key]any{
		"messaging.system": "jobq", "messaging.operation.name": "send", "messaging.operation.type": "send", "messaging.batch.message_count": int64(3),
	}, attributesOf(several[0]))

	_, err = d.client.EnqueueMany(ctx, []jobq.EnqueueParams{{Args: jobq.RawArgs{Name: "\xff"}}, {Args: jobq.RawArgs{Name: "\xff"}}})
	require.ErrorIs(t, err, jobq.ErrInvalid)
	_, err = d.client.Enqueue(ctx, jobq.RawArgs{Name: strings.Repeat("\xff", 4711)}, nil)
	require.ErrorIs(t, err, jobq.ErrInvalid)
	for _, refused := range d.exporter.GetSpans()[1:] {
		require.Equal(t, codes.Error, refused.Status.Code)
		require.Equal(t, "invalid", attributesOf(refused)["error.type"])
		require.Len(t, refused.Events, 1)
		require.Equal(t, "exception", refused.Events[0].Name)
		require.Contains(t, refused.Status.Description, "enqueue: ")
	}
	require.Len(t, d.exporter.GetSpans(), 3)

	keyed := &jobq.EnqueueOptions{UniqueKey: "k"}
	first, err := d.client.Enqueue(ctx, jobtest.Greeting{}, keyed)
	require.NoError(t, err)
	parent := d.metadataOf(first.ID)["traceparent"]
	second, err := d.client.Enqueue(ctx, jobtest.Greeting{}, keyed)
	require.NoError(t, err)
	require.Equal(t, jobq.Enqueued{ID: first.ID, Duplicate: true}, second)
	sends := d.spans("send greeting")
	require.Len(t, sends, 2)
	for i, send := range sends {
		require.Equal(t, jsonText(t, first.ID), attributesOf(send)["messaging.message.id"])
		require.Equal(t, i == 1, attributesOf(send)["jobq.job.duplicate"])
	}
	require.Equal(t, parent, d.metadataOf(first.ID)["traceparent"], "the first one's")
}
