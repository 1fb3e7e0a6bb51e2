package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/jobq-dev/jobq"
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
	reset := "no"
	if queue.ResetOnReap {
		reset = "yes"
	}
	ages := "never"
	if queue.AgeAfter > 0 {
		ages = when.FormatDuration(queue.AgeAfter)
	}
	limit, keyLimit, rate, keyRate := "none", "none", "none", "none"
	keyOrder, keySeparator := cmp.Or(string(queue.KeyOrder), "none"), "none"
	if queue.KeySeparator != "" {
		keySeparator = format.KeyGroups(queue.KeySeparator)
	}
	if queue.MaxRunning > 0 {
		limit = fmt.Sprintf("%s of %s run", format.Number(queue.Held()), format.Number(int64(queue.MaxRunning)))
	}
	if queue.KeyLimit > 0 {
		keyLimit = fmt.Sprintf("%d of each partition key", queue.KeyLimit)
	}
	if queue.Rate != nil {
		rate = fmt.Sprintf("%s, burst %d; throttled: %s", format.QueueRate(queue.Rate), queue.Rate.Burst, formatThrottled(queue.ThrottledUntil))
	}
	if queue.KeyRate != nil {
		keyRate = fmt.Sprintf("%s of each partition key, burst %d", format.QueueRate(queue.KeyRate), queue.KeyRate.Burst)
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
		{"limit", limit},
		{"key limit", keyLimit},
		{"key order", keyOrder},
		{"key separator", keySeparator},
		{"rate", rate},
		{"key rate", keyRate},
		{"lease", when.FormatDuration(queue.Lease)},
		{"extend every", when.FormatDuration(queue.ExtendEvery)},
		{"heartbeat", string(queue.Heartbeat)},
		{"stale grace", when.FormatDuration(queue.StaleGrace)},
		{"redelivery", string(queue.Redelivery)},
		{"redelivery delay", when.FormatDuration(queue.RedeliveryDelay)},
		{"reset on reap", reset},
		{"priorities age after", ages},
		{"ended jobs kept", formatKept(&queue.QueueSettings, settings)},
	} {
		fields.row(row[0], row[1])
	}
	return fields.flush()
}
