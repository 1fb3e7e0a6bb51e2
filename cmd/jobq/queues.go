package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/jobq-dev/jobq"
)

func newQueuesCommand(a *app) *cobra.Command {
	command := &cobra.Command{
		Use:   "queues",
		Short: "List queues; pause, resume and set them",
		Example: `  jobq queues list
  jobq queues pause email --reason "smtp is down"
  jobq queues resume email
  jobq queues set video --lease 10m --heartbeat progress`,
		Args: usageArgs(cobra.NoArgs),
	}
	list := &cobra.Command{
		Use: "list", Short: "List queues with what waits and runs in them", Args: exactArgs(0),
		RunE: a.withClient(a.listQueues),
	}
	a.addJSONFlag(list)
	var reason string
	pause := &cobra.Command{
		Use: "pause NAME", Short: "Let workers claim nothing more from a queue", Args: exactArgs(1),
		RunE: a.withClient(func(cmd *cobra.Command, args []string, client *jobq.Client) error {
			changed, err := client.PauseQueue(cmd.Context(), args[0], "", reason)
			return sayChange(cmd, args[0], "paused", changed, err)
		}),
	}
	pause.Flags().StringVar(&reason, "reason", "", "why, for others to read")
	resume := &cobra.Command{
		Use: "resume NAME", Short: "Let workers claim from a queue again", Args: exactArgs(1),
		RunE: a.withClient(func(cmd *cobra.Command, args []string, client *jobq.Client) error {
			changed, err := client.ResumeQueue(cmd.Context(), args[0])
			return sayChange(cmd, args[0], "running", changed, err)
		}),
	}
	command.AddCommand(list, pause, resume, newQueuesSetCommand(a))
	return command
}

func sayChange(cmd *cobra.Command, queue, state string, changed bool, err error) error {
	if err != nil {
		return err
	}
	already := ""
	if !changed {
		already = " already"
	}
	fmt.Fprintf(cmd.OutOrStdout(), "queue %s is%s %s\n", queue, already, state)
	return nil
}

func (a *app) listQueues(cmd *cobra.Command, _ []string, client *jobq.Client) error {
	queues, err := client.Queues(cmd.Context())
	if err != nil {
		return err
	}
	if a.json {
		return writeJSON(cmd.OutOrStdout(), queues)
	}
	t := newTable(cmd.OutOrStdout(), "QUEUE", "AVAILABLE", "SCHEDULED", "RUNNING", "LEASE", "HEARTBEAT", "PAUSED")
	for _, queue := range queues {
		paused := ""
		if queue.PausedAt != nil {
			paused = strings.TrimSpace(fmt.Sprintf("%s by %s %s", ago(*queue.PausedAt), queue.PausedBy, queue.PauseReason))
		}
		t.row(queue.Name, count(queue.Available), count(queue.Scheduled), strconv.FormatInt(queue.Running, 10),
			queue.Lease.String(), string(queue.Heartbeat), paused)
	}
	return t.flush()
}

// count shows a count that stops at jobq.CountMax.
func count(n int64) string {
	if n >= jobq.CountMax {
		return strconv.Itoa(jobq.CountMax) + "+"
	}
	return strconv.FormatInt(n, 10)
}

func newWorkersCommand(a *app) *cobra.Command {
	command := &cobra.Command{
		Use: "workers", Short: "List worker processes; drain them", Args: exactArgs(0),
		Example: `  jobq workers
  jobq workers drain web-1-4711-0a1b2c3d`,
		RunE: a.withClient(func(cmd *cobra.Command, _ []string, client *jobq.Client) error {
			workers, err := client.Workers(cmd.Context())
			if err != nil {
				return err
			}
			if a.json {
				return writeJSON(cmd.OutOrStdout(), workers)
			}
			t := newTable(cmd.OutOrStdout(), "WORKER", "RUNNING", "HEARTBEAT", "UP", "VERSION", "QUEUES", "KINDS")
			for _, w := range workers {
				queues := make([]string, 0, len(w.Slots))
				for name, slots := range w.Slots {
					queues = append(queues, fmt.Sprintf("%s=%d", name, slots))
				}
				name := w.ID
				if w.Draining {
					name += " (draining)"
				}
				t.row(name, strconv.FormatInt(w.Running, 10), ago(w.HeartbeatAt), strings.TrimSuffix(ago(w.StartedAt), " ago"),
					w.Version, strings.Join(queues, ","), strings.Join(w.Kinds, ","))
			}
			return t.flush()
		}),
	}
	a.addJSONFlag(command)
	command.AddCommand(newWorkersDrainCommand(a))
	return command
}

func newWorkersDrainCommand(a *app) *cobra.Command {
	command := &cobra.Command{
		Use: "drain ID...", Short: "Ask workers to take no new work, and to leave when what they run has ended",
		Long: `Ask workers to take no new work, and to leave when what they run has ended, as SIGUSR1
does on their host. A worker hears of it at once, or within ten seconds where it cannot
listen; it has drained when "jobq workers" does not list it any more. What supervises
it may start another one. It is in the audit, and cannot be undone.`,
		Example: `  jobq workers drain web-1-4711-0a1b2c3d`,
		Args:    usageArgs(cobra.MinimumNArgs(1)),
		RunE: a.withClient(func(cmd *cobra.Command, args []string, client *jobq.Client) error {
			var failures []error
			for _, id := range args {
				asked, err := client.DrainWorker(cmd.Context(), id)
				switch {
				case err != nil:
					failures = append(failures, err)
				case asked:
					fmt.Fprintf(cmd.OutOrStdout(), "worker %s was asked to drain\n", id)
				default:
					fmt.Fprintf(cmd.OutOrStdout(), "worker %s drains already\n", id)
				}
			}
			return errors.Join(failures...)
		}),
	}
	return command
}
