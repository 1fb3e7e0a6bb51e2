// Package traceparent reads the trace that a job belongs to, in the form of W3C Trace
// Context: the metadata of a job have it as "traceparent" and "tracestate", whoever has
// added the job. It links nothing of OpenTelemetry.
package traceparent

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
)

// The members of the metadata. HTTP headers have the same names, and variables of an
// environment too, in capitals.
const (
	ParentName = "traceparent"
	StateName  = "tracestate"
)

// length is that of a Parent: "00-", 32 digits of the trace, "-", 16 of the span, "-",
// and 2 of the flags.
const length = 55

// StateBytesMax bounds a State. W3C asks for 512 at least.
const StateBytesMax = 512

// Context is a span, as one process tells another. The zero value is none.
type Context struct {
	// Parent is the trace, the span and its flags, in 55 characters of version 00.
	Parent string
	// State is what tracing systems add, in printable ASCII. "" for nothing.
	State string
}

// TraceID is the trace, in hexadecimal digits.
func (c Context) TraceID() string { return c.Parent[3:35] }

// SpanID is the span.
func (c Context) SpanID() string { return c.Parent[36:52] }

// Flags are the flags of the span.
func (c Context) Flags() string { return c.Parent[53:] }

// Of returns what the metadata of a job say. Nothing, or what is invalid, is the zero
// value: anybody who adds jobs may write it.
func Of(metadata json.RawMessage) Context {
	if !bytes.Contains(metadata, []byte(ParentName)) { // most have none
		return Context{}
	}
	var members map[string]json.RawMessage
	if json.Unmarshal(metadata, &members) != nil {
		return Context{}
	}
	parent, ok := parse(text(members[ParentName]))
	if !ok {
		return Context{}
	}
	context := Context{Parent: parent}
	if state := text(members[StateName]); isState(state) {
		context.State = state
	}
	return context
}

// text is a string of JSON, or "" for anything else.
func text(value json.RawMessage) (text string) {
	if json.Unmarshal(value, &text) != nil {
		return ""
	}
	return text
}

// parse returns a traceparent in the form of version 00. Later versions may have more at
// the end, which is left out, as W3C says.
func parse(parent string) (string, bool) {
	if len(parent) < length || parent[2] != '-' || parent[35] != '-' || parent[52] != '-' {
		return "", false
	}
	version, more := parent[:2], parent[length:]
	trace, span, flags := parent[3:35], parent[36:52], parent[53:length]
	for _, digits := range []string{version, trace, span, flags} {
		if strings.Trim(digits, "0123456789abcdef") != "" {
			return "", false
		}
	}
	switch {
	case version == "ff", strings.Trim(trace, "0") == "", strings.Trim(span, "0") == "":
		return "", false
	case more != "" && (version == "00" || more[0] != '-'):
		return "", false
	}
	return "00" + parent[2:length], true
}

// isState says whether the text can be a tracestate: it goes into headers and
// environments.
func isState(text string) bool {
	return len(text) <= StateBytesMax && strings.IndexFunc(text, func(r rune) bool { return r < ' ' || r > '~' }) < 0
}

// contextKey is the key of a Context in a context.Context.
type contextKey struct{}

// With returns a context for a run that is a span itself.
func With(ctx context.Context, run Context) context.Context {
	return context.WithValue(ctx, contextKey{}, run)
}

// OfRun is the span that what a run starts belongs to: the run's own, if With has told
// it, and else what the metadata of its job say.
func OfRun(ctx context.Context, metadata json.RawMessage) Context {
	if run, ok := ctx.Value(contextKey{}).(Context); ok {
		return run
	}
	return Of(metadata)
}
