package main

import (
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/catalogue"
	"github.com/jobq-dev/jobq/internal/format"
	"github.com/jobq-dev/jobq/internal/when"
	"github.com/jobq-dev/jobq/monitor"
)

func newQueuesShowCommand(a *app) *cobra.Command {
	command := &cobra.Command{
		Use: "show NAME", Short: "Show all settings of a queue, and what waits and runs in it", Args: exactArgs(1),
		Long: `Show all settings of a queue, and what waits and runs in it. "jobq queues set" changes
its own settings, and "jobq settings" those of all queues.`,
		Example: "  jobq queues show email",
		RunE: a.withClient(func(cmd *cobra.Command, args []string, client *jobq.Client) error {
			queues, err := monitor.New(client).Queues(cmd.Context())
			if err != nil {
				return err
			}
			at := slices.IndexFunc(queues, func(queue monitor.Queue) bool { return queue.Name == args[0] })
			if at < 0 {
				known, err := monitor.New(client).QueueKnown(cmd.Context(), args[0])
				switch {
				case err != nil:
					return err
				case !known:
					return unknownQueue(cmd.Context(), client, args[0])
				}
				return notFoundf("queue %q has neither settings nor live jobs, or is not among the 1000 that are listed", args[0])
			}
			if a.json {
				return writeJSON(cmd.OutOrStdout(), queues[at])
			}
			settings, err := monitor.New(client).Settings(cmd.Context())
			if err != nil {
				return err
			}
			return writeQueue(cmd.OutOrStdout(), queues[at], settings)
		}),
	}
	a.addJSONFlag(command)
	return command
}

func writeQueue(out io.Writer, queue monitor.Queue, settings monitor.Settings) error {
	paused := "no"
	if queue.PausedAt != nil {
		paused = ago(*queue.PausedAt) + " by " + format.PausedBy(queue)
	}
	fields := newFields(out)
	for _, row := range [][2]string{
		{"queue", queue.Name},
		{"available", format.Available(queue)},
		{"scheduled", fmt.Sprintf("%s, of which %s failed before", format.CappedAt(queue.Scheduled, jobq.CountMax), format.CappedAt(queue.Retrying, jobq.CountMax))},
		{"waiting", format.CappedAt(queue.Waiting, jobq.CountMax) + " for other jobs"},
		{"running", fmt.Sprintf("%s in %s", format.Number(queue.Running), format.Count(queue.Slots, "slot"))},
		{"claimed", format.Number(queue.Claimed) + " ahead, which have not begun"},
		{"paused", paused},
		{"throttled", formatThrottled(queue.ThrottledUntil)},
		{"ended jobs kept", formatKept(&queue.QueueSettings, settings)},
	} {
		fields.row(row[0], row[1])
	}
	for _, setting := range catalogue.QueueSettings() {
		fields.row(setting.Name, setting.Text(&queue.QueueSettings))
	}
	return fields.flush()
}

// formatKept says how long finished jobs of a queue are kept, and whose settings say so.
func formatKept(queue *monitor.QueueSettings, settings monitor.Settings) string {
	completed, failed := queue.Kept(settings)
	text := when.FormatDuration(completed)
	if failed != completed {
		text += ", failed and cancelled ones " + when.FormatDuration(failed)
	}
	if queue.Retention == 0 && queue.FailedRetention == 0 {
		text += ", as in all queues: jobq settings"
	}
	return text
}

// formatThrottled says until when the rate keeps jobs from starting.
func formatThrottled(until *time.Time) string {
	if until == nil {
		return "no"
	}
	return "for " + when.FormatDuration(max(time.Until(*until).Round(time.Millisecond), 0))
}
