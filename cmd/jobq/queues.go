package main

import (
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
			acted, err := client.PauseQueue(cmd.Context(), args[0], "", reason)
			return sayChange(cmd, args[0], "paused", acted.Changed, err)
		}),
	}
	pause.Flags().StringVar(&reason, "reason", "", "why, for others to read")
	resume := &cobra.Command{
		Use: "resume NAME", Short: "Let workers claim from a queue again", Args: exactArgs(1),
		RunE: a.withClient(func(cmd *cobra.Command, args []string, client *jobq.Client) error {
			acted, err := client.ResumeQueue(cmd.Context(), args[0])
			return sayChange(cmd, args[0], "running", acted.Changed, err)
		}),
	}
	return asGroup(command, list, pause, resume, newQueuesSetCommand(a))
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
		t.row(queue.Name, count(queue.Available, queue.AvailableMax), count(queue.Scheduled, jobq.CountMax), strconv.FormatInt(queue.Running, 10),
			queue.Lease.String(), string(queue.Heartbeat), paused)
	}
	return t.flush()
}

// count shows a count that stops at a limit.
func count(n, limit int64) string {
	if n >= limit {
		return strconv.FormatInt(limit, 10) + "+"
	}
	return strconv.FormatInt(n, 10)
}
