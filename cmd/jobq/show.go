package main

import (
	"encoding/json"
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

// jobStory is a job with its runs.
type jobStory struct {
	*jobq.Job
	Runs   []monitor.Attempt     `json:"runs"`
	Steps  []monitor.Step        `json:"steps,omitempty"`
	Output []monitor.OutputPiece `json:"output,omitempty"` // of the run that runs
}

func newShowCommand(a *app) *cobra.Command {
	var graph bool
	var keys keysFlag
	command := &cobra.Command{
		Use:   "show ID",
		Short: "Show a job: its state, args, steps, runs, errors and output",
		Long: `Show a job: its state, args, steps, runs, errors and output. Encrypted args,
checkpoints, and results of jobs and steps are shown as plain text with --keys-file alone.
With --graph, show which jobs wait for which: the job, marked with a star, those for which
it waits or has waited, those for which these have, and so on; and those that wait for it,
and so on. At most 1000 each way.`,
		Example: "  jobq show 4711\n  jobq show 4711 --json | jq .result\n  jobq show 4711 --keys-file /etc/jobq/keys\n  jobq show 4711 --graph",
		Args:    exactArgs(1),
		PreRunE: func(*cobra.Command, []string) (err error) {
			a.codec, err = keys.fromFile()
			return err
		},
		RunE: a.withClient(func(cmd *cobra.Command, args []string, client *jobq.Client) error {
			id, err := parseID("job", args[0])
			if err != nil {
				return err
			}
			job, err := client.Get(cmd.Context(), id)
			if errors.Is(err, jobq.ErrUnreadable) { // what cannot be read is shown as encrypted
				fmt.Fprintln(cmd.ErrOrStderr(), "warning:", printable.Line(err.Error()))
				err = nil
			}
			if err != nil {
				return err
			}
			if graph {
				return a.showGraph(cmd, client, job)
			}
			runs, err := monitor.New(client).Attempts(cmd.Context(), id)
			if err != nil {
				return err
			}
			steps, err := monitor.New(client).Steps(cmd.Context(), id)
			if err != nil {
				return err
			}
			for i := range steps {
				if a.codec == nil {
					break // shown as they are stored
				}
				if err := steps[i].Decode(cmd.Context(), a.codec, job); err != nil {
					fmt.Fprintln(cmd.ErrOrStderr(), "warning:", printable.Line(err.Error()))
				}
			}
			story := jobStory{Job: job, Runs: runs, Steps: steps}
			if job.State == jobq.StateRunning {
				story.Output, err = monitor.New(client).Output(cmd.Context(), id, monitor.OutputPiece{LeaseToken: job.LeaseToken, BeginsAt: -1})
				if errors.Is(err, monitor.ErrOutputOnPrimary) {
					fmt.Fprintln(cmd.ErrOrStderr(), "note:", err)
				} else if err != nil {
					return err
				}
			}
			if a.json {
				return writeJSON(cmd.OutOrStdout(), story)
			}
			return writeStory(cmd.OutOrStdout(), story)
		}),
	}
	command.Flags().BoolVar(&graph, "graph", false, "show which jobs wait for which")
	keys.add(command.Flags(), keysShowUsage)
	a.addJSONFlag(command)
	return command
}

func writeStory(out io.Writer, whole jobStory) error {
	job := whole.Job
	var story strings.Builder
	field := func(name, text string, args ...any) {
		fmt.Fprintf(&story, "%-12s %s\n", name, printable.Line(fmt.Sprintf(text, args...)))
	}
	moment := func(name string, at *time.Time) {
		if at != nil {
			field(name, "%s (%s)", at.Format(time.RFC3339Nano), ago(*at))
		}
	}
	value := func(name string, raw json.RawMessage) {
		if len(raw) > 0 {
			field(name, "%s", format.Value(raw))
		}
	}
	field("job", "%d", job.ID)
	field("state", "%s", format.State(job))
	field("queue", "%s", job.Queue)
	field("kind", "%s", job.Kind)
	field("priority", "%d", job.Priority)
	field("attempt", "%d of %d, %d crashed", format.Attempt(job), job.MaxAttempts, job.Crashes)
	if lost := format.Lost(job); lost != "" {
		field("lost", "%s, without using an attempt", lost)
	} else if job.MaxLost > 0 {
		field("lost", "0/%d", job.MaxLost)
	}
	moment("created", &job.CreatedAt)
	moment("run at", &job.RunAt)
	moment("started", job.StartedAt)
	if job.State == jobq.StateRunning && job.StartedAt == nil {
		field("started", "not yet: its worker has claimed it ahead")
	}
	moment("finished", job.FinishedAt)
	if job.LeaseOwner != "" {
		field("worker", "%s, token %d", job.LeaseOwner, job.LeaseToken)
	}
	if job.LeaseExpiresAt != nil {
		field("lease", "ends in %s unless extended", format.Ago(time.Until(*job.LeaseExpiresAt)))
	}
	moment("cancel asked", job.CancelRequestedAt)
	if p := job.Progress; p != nil {
		field("progress", "%.0f%% %s %s (%s)", p.Percent, p.Stage, p.Message, ago(p.At))
	}
	if job.UniqueKey != "" {
		field("unique key", "%s", job.UniqueKey)
	}
	if job.PartitionKey != "" {
		field("partition key", "%s", job.PartitionKey)
	}
	if len(job.Tags) > 0 {
		field("tags", "%s", strings.Join(job.Tags, ", "))
	}
	value("args", job.Args)
	value("metadata", job.Metadata)
	value("checkpoint", job.Checkpoint)
	value("result", job.Result)
	writeSteps(&story, whole.Steps)
	writeRuns(&story, whole.Runs)
	if len(whole.Output) > 0 {
		story.WriteString("\noutput so far\n")
		var output strings.Builder
		for _, piece := range whole.Output {
			output.WriteString(piece.Content)
		}
		writeIndented(&story, output.String())
	}
	_, err := io.WriteString(out, story.String())
	return err
}

// writeSteps has a line for each step, in the order in which the job came to them.
func writeSteps(story *strings.Builder, steps []monitor.Step) {
	if len(steps) > 0 {
		story.WriteString("\nsteps\n")
	}
	for _, step := range steps {
		line := fmt.Sprintf("%s  %s", step.Name, format.Step(step, time.Now()))
		if result := format.StepResult(step); result != "" {
			line += "  " + result
		}
		fmt.Fprintf(story, "  %s\n", printable.Line(line))
	}
}

func writeIndented(story *strings.Builder, text string) {
	for line := range strings.Lines(printable.Text(strings.TrimRight(text, "\n"))) {
		fmt.Fprintf(story, "    %s\n", strings.TrimRight(line, "\n"))
	}
}
