package failure_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/subproc"
	"github.com/jobq-dev/jobq/worker/programs/internal/failure"
)

// pythonTrace is what Python writes when a deep call fails: its message is the
// last line.
var pythonTrace = "Traceback (most recent call last):\n" +
	strings.Repeat("  File \"/srv/app/resize.py\", line 42, in shrink\n    shrink(image, depth + 1)\n", 40) +
	"ValueError: image 7 has no pixels\n"

// The first line of an error is what lists and groups show: it says what went
// wrong, whichever language the program is in.
func TestSummaries(t *testing.T) {
	t.Parallel()
	for summary, words := range map[string]string{
		"ValueError: image 7 has no pixels":    pythonTrace,
		"disk full":                            "copying\ndisk full\n",
		"panic: index out of range [3]":        "starting\npanic: index out of range [3]\n\ngoroutine 1 [running]:\nmain.main()\n\t/srv/main.go:7 +0x1d\nexit status 2\n",
		"Error: Cannot find module 'x'":        "node:internal/modules:1080\n  throw err;\n  ^\n\nError: Cannot find module 'x'\n    at load (node:internal:1) {\n  code: 'MODULE_NOT_FOUND'\n}\n\nNode.js v18.19.0\n",
		"no such image":                        "thread 'main' panicked at src/main.rs:2:5:\nno such image\nnote: run with `RUST_BACKTRACE=1` environment variable to display a backtrace\n",
		"Caused by: java.io.IOException: x":    "Exception in thread \"main\" java.lang.RuntimeException: y\n\tat Job.run(Job.java:3)\nCaused by: java.io.IOException: x\n\tat Job.read(Job.java:9)\n\t... 1 more\n",
		"job.rb:1:in `run': x (ArgumentError)": "job.rb:1:in `run': x (ArgumentError)\n\tfrom job.rb:4:in `<main>'\n",
		"all of it indented":                   "  all of it indented\n\n",
		"123":                                  "\n123\n",
	} {
		text := failure.OfProgram("", subproc.Result{ExitCode: 1, Stderr: []byte(words)})
		first, _, _ := strings.Cut(text, "\n")
		require.Equal(t, "exit code 1: "+summary, first)
		require.Contains(t, text, strings.TrimSpace(words)[max(0, len(strings.TrimSpace(words))-1000):])
	}
	require.Equal(t, "exit code 1", failure.OfProgram("", subproc.Result{ExitCode: 1, Stderr: []byte(" \n")}))
}
