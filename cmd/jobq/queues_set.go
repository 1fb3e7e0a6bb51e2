package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/printable"
	"github.com/jobq-dev/jobq/monitor"
	"github.com/jobq-dev/jobq/operator"
)

func newQueuesSetCommand(a *app) *cobra.Command {
	var lease, extendEvery, staleGrace, redeliveryDelay, ageAfter time.Duration
	var heartbeat, redelivery string
	var resetOnReap bool
	var limits limitFlags
	var weight weightFlags
	var kept retentionFlags
	command := &cobra.Command{
		Use:   "set NAME",
		Short: "Change how many jobs of a queue run, how its leases are kept, or the weight of one of its partition keys",
		Long: `Change settings of a queue. They are kept in the database, and every worker and
janitor obeys them within seconds. What is not given stays as it is. Combinations that
cannot work are refused. docs/internals/guarantees.md shows settings for five ways of recovery,
docs/limits.md what --limit and --rate promise, and docs/partition-keys.md what --key-limit,
--key-rate, --key-order and --key-separator do: they hold from the next claim on.
docs/internals/guarantees.md says what --age-after does for jobs of low priority, and
docs/configuration.md how long finished jobs are kept.
A shorter --retention deletes jobs that are kept now, and needs --yes.

With --key and --weight it sets nothing of the queue, but the weight of one of its partition
keys: of a key of weight 3, three jobs start where one of a key without a weight does.
"jobq queues keys" lists the weights, and 1 takes one away. In a queue with a --key-separator,
the weight of the key that is named as a group is that of the group.`,
		Example: `  jobq queues set thumbnails --limit 3
  jobq queues set mail --rate 100/s --burst 20
  jobq queues set mail --no-rate
  jobq queues set export --key-limit 1               # one job of each partition key at a time
  jobq queues set mail --key-rate 5/s --key-rate-burst 2   # of each partition key
  jobq queues set ledger --key-order hold            # and in the order in which they were added
  jobq queues set exports --key-separator /          # keys such as acme/17: one share for all of acme
  jobq queues set exports --key acme --weight 3      # and three times the share for this group
  jobq queues set reports --key customer-17 --weight 3
  jobq queues set reports --age-after 1m
  jobq queues set audit --retention 90d --failed-retention 365d
  jobq queues set audit --no-retention --yes
  jobq queues set video --lease 45m --extend-every 2m --stale-grace 45m
  jobq queues set import --lease 5m --heartbeat progress --reset-on-reap
  jobq queues set mail --lease 30s --heartbeat off --redelivery head`,
		Args: exactArgs(1),
		RunE: a.withClient(func(cmd *cobra.Command, args []string, client *jobq.Client) error {
			given := cmd.Flags().Changed
			if given("key") || given("weight") {
				return a.setKeyWeight(cmd, client, args[0], weight)
			}
			change := operator.QueueChange{
				Lease: ifGiven(given("lease"), lease), ExtendEvery: ifGiven(given("extend-every"), extendEvery),
				Heartbeat:  ifGiven(given("heartbeat"), jobq.Heartbeat(heartbeat)),
				StaleGrace: ifGiven(given("stale-grace"), staleGrace), Redelivery: ifGiven(given("redelivery"), jobq.Redelivery(redelivery)),
				RedeliveryDelay: ifGiven(given("redelivery-delay"), redeliveryDelay), ResetOnReap: ifGiven(given("reset-on-reap"), resetOnReap),
				AgeAfter: ifGiven(given("age-after"), ageAfter),
			}
			if err := limits.change(given, &change); err != nil {
				return err
			}
			if err := kept.change(given, &change); err != nil {
				return err
			}
			if change == (operator.QueueChange{}) {
				return usagef("nothing to set: give at least one flag")
			}
			if err := kept.refuse(cmd.Context(), client, args[0], change); err != nil {
				return err
			}
			var unknown error
			if known, err := monitor.New(client).QueueKnown(cmd.Context(), args[0]); err == nil && !known { // only a note depends on it
				unknown = unknownQueue(cmd.Context(), client, args[0])
			}
			id, err := a.operator(client).SetQueue(cmd.Context(), args[0], change)
			switch {
			case err != nil:
				return err
			case id == 0:
				fmt.Fprintf(cmd.OutOrStdout(), "queue %s is set so already\n", printable.Line(args[0]))
			default:
				fmt.Fprintf(cmd.OutOrStdout(), "queue %s is set; take it back with: jobq undo %d\n", printable.Line(args[0]), id)
			}
			if unknown != nil { // as it should be where settings come before the first job
				fmt.Fprintf(cmd.ErrOrStderr(), "note: before this, %s\n", printable.Line(unknown.Error()))
			}
			return nil
		}),
	}
	flags := command.Flags()
	durationVar(flags, &lease, "lease", 0, "how long a worker may hold a job without a heartbeat, 1s to 720h")
	durationVar(flags, &extendEvery, "extend-every", 0, "time between two heartbeats, at most half of the lease")
	flags.StringVar(&heartbeat, "heartbeat", "", "what extends a lease: ticker, progress, both or off")
	durationVar(flags, &staleGrace, "stale-grace", 0, "how long a lease that has ended is left alone")
	flags.StringVar(&redelivery, "redelivery", "", "where a job goes whose lease was taken away: head or tail of the line")
	durationVar(flags, &redeliveryDelay, "redelivery-delay", 0, "how long it waits first; needs the tail")
	flags.BoolVar(&resetOnReap, "reset-on-reap", false, "begin the next run without the lost one's checkpoint")
	durationVar(flags, &ageAfter, "age-after", 0, "how long the first job of a priority waits before the priority has its turns among more urgent ones; 0 for ever")
	limits.add(command)
	weight.add(command)
	kept.add(command)
	return command
}

func ifGiven[T any](given bool, value T) *T {
	if !given {
		return nil
	}
	return &value
}
