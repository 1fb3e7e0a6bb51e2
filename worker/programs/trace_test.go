package programs_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/traceparent"
	"github.com/jobq-dev/jobq/worker"
	"github.com/jobq-dev/jobq/worker/programs"
)

const parentOfJob = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// Programs and servers get the trace of their job, or of the run if that is a span of its
// own. One that is invalid is not passed on, and the job runs; a variable that the
// configuration sets stays.
func TestTraceparent(t *testing.T) {
	t.Parallel()
	ofRun := traceparent.Context{Parent: strings.ReplaceAll(parentOfJob, "b7", "c8"), State: "run=1"}
	traced := func(ctx context.Context, run *worker.Run, next func(context.Context) error) error {
		if len(run.Tags()) > 0 {
			ctx = traceparent.With(ctx, ofRun)
		}
		return next(ctx)
	}
	client := newClient(t)
	w := newWorker(t, client, worker.Config{Middleware: []worker.Middleware{traced}})
	p := programs.New(w)
	const script = `env | grep -E '^TRACE(PARENT|STATE)=' | sort; true`
	require.NoError(t, p.HandleCommand("plain", shellCommand(script), nil))
	own := shellCommand(script)
	own.Env = map[string]string{"TRACEPARENT": "mine"}
	require.NoError(t, p.HandleCommand("own", own, nil))
	headers := make(chan http.Header, 1)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { headers <- r.Header }))
	t.Cleanup(server.Close)
	require.NoError(t, p.HandleHTTP("server", programs.HTTP{URL: server.URL, Header: http.Header{"Tracestate": {"static=1"}}}, nil))
	run(t, w)
	for _, test := range []struct {
		kind, metadata    string
		isSpan            bool
		wantParent, state string
	}{
		{"plain", ``, false, "", ""},
		{"plain", `{"traceparent": "` + parentOfJob + `"}`, false, parentOfJob, ""},
		{"plain", `{"traceparent": "` + parentOfJob + `", "tracestate": "a=1"}`, false, parentOfJob, "a=1"},
		{"plain", `{"traceparent": "` + parentOfJob + `", "tracestate": "a=1\nLD_PRELOAD=x"}`, false, parentOfJob, ""},
		{"plain", `{"traceparent": "` + parentOfJob + `\nLD_PRELOAD=x"}`, false, "", ""},
		{"plain", `{"traceparent": 1}`, false, "", ""},
		{"plain", `{"traceparent": "` + parentOfJob + `"}`, true, ofRun.Parent, ofRun.State},
		{"plain", ``, true, ofRun.Parent, ofRun.State},
		{"own", `{"traceparent": "` + parentOfJob + `", "tracestate": "a=1"}`, false, "mine", ""},
		{"server", ``, false, "", "static=1"},
		{"server", `{"traceparent": "` + parentOfJob + `"}`, false, parentOfJob, ""},
		{"server", `{"traceparent": "` + parentOfJob + `", "tracestate": "a=1"}`, false, parentOfJob, "a=1"},
		{"server", `{"traceparent": "` + parentOfJob + `\nX: y"}`, false, "", "static=1"},
		{"server", `{"traceparent": "` + parentOfJob + `"}`, true, ofRun.Parent, ofRun.State},
	} {
		options := &jobq.EnqueueOptions{}
		if test.metadata != "" {
			options.Metadata = json.RawMessage(test.metadata)
		}
		if test.isSpan {
			options.Tags = []string{"traced"}
		}
		id := enqueueRaw(t, client, test.kind, "{}", options)
		awaitState(t, client, id, jobq.StateCompleted)
		if test.kind == "server" {
			header := receive(t, headers, "the request")
			require.Equal(t, []string{test.wantParent, test.state}, []string{header.Get("Traceparent"), header.Get("Tracestate")}, test.metadata)
			continue
		}
		var want string
		if test.wantParent != "" {
			want = "TRACEPARENT=" + test.wantParent + "\n"
		}
		if test.state != "" {
			want += "TRACESTATE=" + test.state + "\n"
		}
		require.Equal(t, want, attempts(t, client, id)[0].Output, test.metadata)
	}
}
