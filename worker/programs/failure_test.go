package programs_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/monitor"
	"github.com/jobq-dev/jobq/worker"
	"github.com/jobq-dev/jobq/worker/programs"
)

// pythonTrace is what Python writes when a deep call fails: its message is the
// last line.
var pythonTrace = "Traceback (most recent call last):\n" +
	strings.Repeat("  File \"/srv/app/resize.py\", line 42, in shrink\n    shrink(image, depth + 1)\n", 40) +
	"ValueError: image 7 has no pixels\n"

// A long traceback leaves its message: as the summary by which failures are
// listed, found and grouped, and at the end of what the job keeps; from a
// program, a kept process and an HTTP server alike.
func TestTracebackKeepsItsMessage(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	client := newClient(t)
	w, err := worker.New(client, &worker.Config{NoJanitor: true, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	p := programs.New(w)
	script := []string{"/bin/sh", "-c", `[ -n "$JOBQ_PROTOCOL" ] && read job; printf '%s' "$TRACE" >&2; exit 1`}
	program := programs.Command{Args: script, Env: map[string]string{"TRACE": pythonTrace}}
	require.NoError(t, p.HandleCommand("p", program, nil))
	require.NoError(t, p.HandleStream("s", programs.Stream{Command: program}, nil))
	server := serveText(t, 500, pythonTrace)
	require.NoError(t, p.HandleHTTP("h", programs.HTTP{URL: server}, nil))
	run(t, w)
	for kind, how := range map[string]string{"p": "exit code 1", "s": "handler process ended, exit code 1", "h": "HTTP 500"} {
		id := enqueueRaw(t, client, kind, "{}", &jobq.EnqueueOptions{MaxAttempts: 1})
		job := awaitState(t, client, id, jobq.StateFailed)
		first, rest, _ := strings.Cut(job.LastError, "\n")
		require.Equal(t, how+": ValueError: image 7 has no pixels", first)
		require.True(t, strings.HasSuffix(rest, "ValueError: image 7 has no pixels"), job.LastError)
		require.Regexp(t, `… \d+ characters cut …`, rest)
	}
	failures, err := monitor.New(client).Failures(ctx, monitor.FailureQuery{Span: time.Hour})
	require.NoError(t, err)
	require.Len(t, failures.Groups, 3)
	for _, failure := range failures.Groups {
		require.Contains(t, failure.Error, "ValueError: image #")
	}
}
