package programs

import (
	"context"
	"net/http"
	"strings"

	"github.com/jobq-dev/jobq/internal/traceparent"
	"github.com/jobq-dev/jobq/worker"
)

// addTrace adds the trace that the program's spans belong to, unless its environment names
// one already.
func addTrace(ctx context.Context, run worker.ExternalRun, environ map[string]string) {
	parent, state := strings.ToUpper(traceparent.ParentName), strings.ToUpper(traceparent.StateName)
	trace := traceparent.OfRun(ctx, run.Metadata())
	if _, ok := environ[parent]; ok || trace.Parent == "" {
		return
	}
	environ[parent] = trace.Parent
	if trace.State != "" {
		environ[state] = trace.State
	}
}

// setTrace does the same for a server's spans.
func setTrace(ctx context.Context, run worker.ExternalRun, header http.Header) {
	trace := traceparent.OfRun(ctx, run.Metadata())
	if trace.Parent == "" {
		return
	}
	header.Set(traceparent.ParentName, trace.Parent)
	if trace.State != "" {
		header.Set(traceparent.StateName, trace.State)
	} else {
		header.Del(traceparent.StateName) // one of the configuration would be of another trace
	}
}
