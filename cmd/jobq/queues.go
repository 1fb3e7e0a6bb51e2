package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/catalogue"
	"github.com/jobq-dev/jobq/internal/format"
	"github.com/jobq-dev/jobq/monitor"
)

func newQueuesCommand(a *app) *cobra.Command {
	command := &cobra.Command{
		Use:   "queues",
		Short: "List queues; pause, resume and set them",
		Long: `List queues; pause, resume and set them. How long jobs are kept that have ended is one
setting of all queues: "jobq settings".`,
		Example: `  jobq queues list
  jobq queues show email
  jobq queues keys reports
  jobq queues pause email --reason "smtp is down"
  jobq queues pause reports --key customer-17
  jobq queues resume email
  jobq queues set video lease=10m heartbeat=progress
  jobq queues set mail limit=10 rate=100/s`,
	}
	list := &cobra.Command{
		Short: "List queues with what waits and runs in them", Args: exactArgs(0),
		RunE: a.withClient(a.listQueues),
	}
	a.addJSONFlag(list)
	return asList(command, list, newQueuesShowCommand(a), newQueuesKeysCommand(a), newQueuesPauseCommand(a), newQueuesResumeCommand(a), newQueuesSetCommand(a))
}

// hintMax is how long unknownQueue looks for a similar name.
const hintMax = 10 * time.Second

// unknownQueue is the error for a queue that Monitor.QueueKnown does not know. It
// offers a similar name, if one is found in time: the lists for that are long
// reads, and whether they fail does not matter to who asked for something else.
func unknownQueue(ctx context.Context, client *jobq.Client, name string) error {
	ctx, cancel := context.WithTimeout(ctx, hintMax)
	defer cancel()
	var names []string
	if queues, err := monitor.New(client).Queues(ctx); err == nil {
		for _, queue := range queues {
			names = append(names, queue.Name)
		}
	}
	if ended, err := monitor.New(client).Stats(ctx, 24*time.Hour); err == nil {
		for _, stats := range ended {
			names = append(names, stats.Queue)
		}
	}
	hint := didYouMean(name, names)
	if hint == "" {
		hint = `; "jobq queues list" shows those there are`
	}
	return notFoundf("no queue %q is known: no job, no worker and no settings name it%s", name, hint)
}

func (a *app) listQueues(cmd *cobra.Command, _ []string, client *jobq.Client) error {
	queues, err := monitor.New(client).Queues(cmd.Context())
	if err != nil {
		return err
	}
	if a.json {
		return writeJSON(cmd.OutOrStdout(), queues)
	}
	t := newTable(cmd.OutOrStdout(), "QUEUE", "AVAILABLE", "SCHEDULED", "RUNNING", "PAUSED", "SETTINGS")
	for _, queue := range queues {
		paused := ""
		if queue.PausedAt != nil {
			paused = ago(*queue.PausedAt) + " by " + format.PausedBy(queue)
		}
		t.row(queue.Name, format.Available(queue), format.CappedAt(queue.Scheduled, jobq.CountMax), format.Number(queue.Running),
			paused, catalogue.Set(&queue.QueueSettings))
	}
	return t.flush()
}
