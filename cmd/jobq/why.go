package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/format"
	"github.com/jobq-dev/jobq/internal/printable"
	"github.com/jobq-dev/jobq/monitor"
)

// jobReasons is why a job is not running.
type jobReasons struct {
	ID      int64        `json:"id"`
	Reasons []toldReason `json:"reasons"`
}

// toldReason is a reason with its words.
type toldReason struct {
	monitor.Reason
	Says   string `json:"says"`
	Advice string `json:"advice,omitempty"`
}

// whyIDsMax bounds the jobs of one call.
const whyIDsMax = 1000

func newWhyCommand(a *app) *cobra.Command {
	command := &cobra.Command{
		Use:   "why ID...",
		Short: "Say why jobs are not running, and what to do about it",
		Long: `Say why jobs are not running, and what to do about it: each reason that holds, from the
rows that a worker's claim looks at. Of a job that runs or has ended it says that. A job
that nothing holds up is next in line, or has so many jobs before it. What this database
role may not see is said to be hidden.

docs/why.md explains each answer. With --json, "reason" and "facts" are for programs.`,
		Example: "  jobq why 4711\n  jobq why 4711 4712 --json | jq '.[].reasons[].reason'",
		Args:    jobIDArgs(whyIDsMax),
		RunE: a.withClient(func(cmd *cobra.Command, args []string, client *jobq.Client) error {
			told := make([]jobReasons, len(args))
			var missing []error
			for i, arg := range args {
				id, err := parseID("job", arg)
				if err != nil {
					return err
				}
				reasons, err := monitor.New(client).Why(cmd.Context(), id)
				if err != nil {
					return err
				}
				told[i] = tellReasons(id, reasons, time.Now())
				if len(reasons) > 0 && reasons[0].Code.Missing() {
					missing = append(missing, fmt.Errorf("job %d: %w", id, jobq.ErrNotFound))
				}
			}
			write := func(out io.Writer) error { return writeReasons(out, told) }
			if a.json {
				write = func(out io.Writer) error { return writeJSON(out, told) }
			}
			return cmp.Or(write(cmd.OutOrStdout()), errors.Join(missing...))
		}),
	}
	a.addJSONFlag(command)
	return command
}

func tellReasons(id int64, reasons []monitor.Reason, now time.Time) jobReasons {
	told := jobReasons{ID: id, Reasons: make([]toldReason, len(reasons))}
	for i, reason := range reasons {
		says, advice := format.Why(id, reason, now)
		told.Reasons[i] = toldReason{reason, says, advice}
	}
	return told
}

// writeReasons writes each reason on a line of its own below its job, with what to do.
func writeReasons(out io.Writer, told []jobReasons) error {
	var text strings.Builder
	for _, job := range told {
		fmt.Fprintf(&text, "job %d\n", job.ID)
		for _, reason := range job.Reasons {
			fmt.Fprintf(&text, "  %s\n", printable.Line(reason.Says))
			if reason.Advice != "" {
				fmt.Fprintf(&text, "    -> %s\n", printable.Line(reason.Advice))
			}
		}
	}
	_, err := io.WriteString(out, text.String())
	return err
}
