package main

import (
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/jobq-dev/jobq/internal/format"
	"github.com/jobq-dev/jobq/internal/printable"
	"github.com/jobq-dev/jobq/monitor"
)

// differing is what differs between two stacks of the same panic: addresses, and goroutines' numbers.
var differing = regexp.MustCompile(`0x[0-9a-f]+|goroutine [0-9]+`)

// ownFrame is the first line of a frame that tells nothing of the handler: of jobq, or of Go's runtime.
var ownFrame = regexp.MustCompile(`^(created by )?(github\.com/jobq-dev/jobq/|runtime\.|runtime/|sync\.|panic\()`)

// writeRuns writes the runs of a job, the newest first. An error that several have is written once.
func writeRuns(story *strings.Builder, runs []monitor.Attempt) {
	shown := make(map[string]int, len(runs)) // the number of the run that has the error
	for i := len(runs) - 1; i >= 0; i-- {
		key, sameAs := differing.ReplaceAllString(runs[i].Error, ""), 0
		if strings.Contains(key, "\n") { // one line is said as fast as where it was said before
			sameAs = shown[key]
		}
		if sameAs == 0 {
			shown[key] = i + 1
		}
		writeRun(story, i+1, sameAs, runs[i])
	}
}

// foldFrames has one line for the frames of jobq and of the runtime that follow one another in a Go stack.
func foldFrames(text string) string {
	var out strings.Builder
	lines := strings.SplitAfter(text, "\n")
	folded := 0
	fold := func() {
		if folded > 0 {
			fmt.Fprintf(&out, "… %s of jobq and of Go\n", format.Count(int64(folded), "frame"))
		}
		folded = 0
	}
	for i := 0; i < len(lines); i++ {
		isFrame := i+1 < len(lines) && strings.HasPrefix(lines[i+1], "\t") && strings.Contains(lines[i+1], ".go:")
		if isFrame && ownFrame.MatchString(lines[i]) {
			folded++
			i++ // where it is
			continue
		}
		fold()
		out.WriteString(lines[i])
	}
	fold()
	return out.String()
}

// writeRun has the number of the run among all of the job: attempts begin anew
// after a requeue. sameAs is the run above that has the same error; 0 for none.
func writeRun(story *strings.Builder, number, sameAs int, run monitor.Attempt) {
	fmt.Fprintf(story, "\nrun %d  %s after %s, %s, on %s\n", number, run.Outcome,
		format.Took(run.FinishedAt.Sub(run.StartedAt)), run.FinishedAt.Format(time.RFC3339), printable.Line(run.WorkerID))
	if usage := run.Usage; usage != nil {
		how := fmt.Sprintf("exit code %d", usage.ExitCode)
		if usage.Signal != "" {
			how = "killed by " + usage.Signal
		}
		fmt.Fprintf(story, "  %s, %s of CPU, at most %.1f MiB of memory\n", how, format.Took(time.Duration(usage.CPUSeconds*float64(time.Second))), float64(usage.MaxRSSBytes)/(1<<20))
	}
	switch {
	case sameAs > 0:
		fmt.Fprintf(story, "    the same error as in run %d\n", sameAs)
	case run.Error != "":
		writeIndented(story, foldFrames(run.Error))
	}
	if run.Output != "" {
		story.WriteString("  output:\n")
		writeIndented(story, run.Output)
	}
}
