package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/printable"
)

// jobStory is a job with its runs.
type jobStory struct {
	*jobq.Job
	Runs []jobq.Attempt `json:"runs"`
}

func newShowCommand(a *app) *cobra.Command {
	command := &cobra.Command{
		Use:     "show ID",
		Short:   "Show a job: its state, args, runs, errors and output",
		Example: "  jobq show 4711\n  jobq show 4711 --json | jq .result",
		Args:    exactArgs(1),
		RunE: a.withClient(func(cmd *cobra.Command, args []string, client *jobq.Client) error {
			id, err := parseID(args[0])
			if err != nil {
				return err
			}
			job, err := client.Get(cmd.Context(), id)
			if err != nil {
				return err
			}
			runs, err := client.Attempts(cmd.Context(), id)
			if err != nil {
				return err
			}
			if a.json {
				return writeJSON(cmd.OutOrStdout(), jobStory{job, runs})
			}
			return writeStory(cmd.OutOrStdout(), job, runs)
		}),
	}
	a.addJSONFlag(command)
	return command
}

func writeStory(out io.Writer, job *jobq.Job, runs []jobq.Attempt) error {
	var story strings.Builder
	field := func(name, format string, args ...any) {
		fmt.Fprintf(&story, "%-12s %s\n", name, printable.Line(fmt.Sprintf(format, args...)))
	}
	moment := func(name string, at *time.Time) {
		if at != nil {
			field(name, "%s (%s)", at.Format(time.RFC3339Nano), ago(*at))
		}
	}
	value := func(name string, raw json.RawMessage) {
		if len(raw) > 0 {
			field(name, "%s", raw)
		}
	}
	field("job", "%d", job.ID)
	field("state", "%s", stateText(job))
	field("queue", "%s", job.Queue)
	field("kind", "%s", job.Kind)
	field("priority", "%d", job.Priority)
	field("attempts", "%d of %d, %d crashed", job.Attempts, job.MaxAttempts, job.Crashes)
	moment("created", &job.CreatedAt)
	moment("run at", &job.RunAt)
	moment("started", job.StartedAt)
	moment("finished", job.FinishedAt)
	if job.LeaseOwner != "" {
		field("worker", "%s, token %d", job.LeaseOwner, job.LeaseToken)
	}
	if job.LeaseExpiresAt != nil {
		field("lease", "ends in %s unless extended", short(time.Until(*job.LeaseExpiresAt)))
	}
	moment("cancel asked", job.CancelRequestedAt)
	if p := job.Progress; p != nil {
		field("progress", "%.0f%% %s %s (%s)", p.Percent, p.Stage, p.Message, ago(p.At))
	}
	if job.UniqueKey != "" {
		field("unique key", "%s", job.UniqueKey)
	}
	if len(job.Tags) > 0 {
		field("tags", "%s", strings.Join(job.Tags, ", "))
	}
	value("args", job.Args)
	value("metadata", job.Metadata)
	value("checkpoint", job.Checkpoint)
	value("result", job.Result)
	for _, run := range runs {
		writeRun(&story, run)
	}
	_, err := io.WriteString(out, story.String())
	return err
}

func writeRun(story *strings.Builder, run jobq.Attempt) {
	fmt.Fprintf(story, "\nrun %d  %s after %s, %s, on %s\n", run.Number, run.Outcome,
		short(run.FinishedAt.Sub(run.StartedAt)), run.FinishedAt.Format(time.RFC3339), printable.Line(run.WorkerID))
	indent := func(text string) {
		for line := range strings.Lines(printable.Text(strings.TrimRight(text, "\n"))) {
			fmt.Fprintf(story, "    %s\n", strings.TrimRight(line, "\n"))
		}
	}
	if run.Error != "" {
		indent(run.Error)
	}
	if run.Output != "" {
		story.WriteString("  output:\n")
		indent(run.Output)
	}
}
