package main

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/monitor"
)

// Of a handler that panics again and again, the newest run comes first, the stack is there once, and the frames
// of jobq and of Go are one line.
func TestRunsThatPanicAlike(t *testing.T) {
	t.Parallel()
	stack := func(address string) string {
		return "panic: no such customer\n\ngoroutine 1" + address + " [running]:\nruntime/debug.Stack()\n\t/go/debug/stack.go:26 +0x5e\n" +
			"github.com/jobq-dev/jobq/worker.guard.func1()\n\t/src/worker/guard.go:20 +0x5e\npanic({0x1" + address + "})\n\t/go/runtime/panic.go:792 +0x132\n" +
			"example.com/shop.charge(0x" + address + ")\n\t/src/shop/charge.go:12 +0x1d\ngithub.com/jobq-dev/jobq/worker.(*Run).call()\n\t/src/worker/run.go:9 +0x1d\n"
	}
	begun := time.Now()
	var runs []monitor.Attempt
	for _, text := range []string{stack("11"), "other", stack("22"), stack("33"), "other"} {
		runs = append(runs, monitor.Attempt{Error: text, StartedAt: begun, FinishedAt: begun, WorkerID: "w"})
	}
	var story strings.Builder
	writeRuns(&story, runs)
	said := story.String()
	require.Less(t, strings.Index(said, "run 5 "), strings.Index(said, "run 4 "))
	require.Equal(t, 1, strings.Count(said, "example.com/shop.charge"))
	require.Equal(t, 2, strings.Count(said, "the same error as in run 4\n"))
	require.Equal(t, 2, strings.Count(said, "    other\n"), "a line is said again")
	require.NotContains(t, said, "jobq-dev")
	require.Contains(t, said, "… 3 frames of jobq and of Go\n")
	require.Contains(t, said, "… 1 frame of jobq and of Go\n")
}
