package main

import (
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/printable"
	"github.com/jobq-dev/jobq/monitor"
)

// weightFlags are those of the weight of a partition key.
type weightFlags struct {
	key    string
	weight int
}

func (w *weightFlags) add(command *cobra.Command) {
	flags := command.Flags()
	flags.StringVar(&w.key, "key", "", "the partition key that gets a --weight")
	flags.IntVar(&w.weight, "weight", 0, "how many jobs of the --key start where one of a key without a weight does, 1 to 100; 1 takes it away")
}

// setKeyWeight gives a partition key of a queue a weight.
func (a *app) setKeyWeight(cmd *cobra.Command, client *jobq.Client, queue string, w weightFlags) error {
	var others []string
	own := cmd.LocalNonPersistentFlags()
	cmd.Flags().Visit(func(flag *pflag.Flag) {
		if flag.Name != "key" && flag.Name != "weight" && own.Lookup(flag.Name) != nil {
			others = append(others, "--"+flag.Name)
		}
	})
	given := cmd.Flags().Changed
	switch {
	case !given("weight"):
		return usagef("--key needs --weight: other settings are of the whole queue")
	case !given("key"):
		return usagef("--weight needs --key: it is that of one partition key")
	case len(others) > 0:
		return usagef("%s is about the whole queue: set it in a command of its own, without --key", others[0])
	case w.weight < 1 || w.weight > jobq.KeyWeightMax:
		return usagef("--weight must be 1 to %d, not %d; \"jobq queues pause %s --key\" stops the key", jobq.KeyWeightMax, w.weight, printable.Line(queue))
	}
	known, err := monitor.New(client).QueueKnown(cmd.Context(), queue)
	if err != nil {
		return err
	}
	var unknown error
	if !known {
		unknown = unknownQueue(cmd.Context(), client, queue)
	}
	acted, err := a.operator(client).SetKeyWeight(cmd.Context(), queue, w.key, w.weight)
	if err != nil {
		return err
	}
	name, note := printable.Line(w.key), ""
	if !acted.HasJobs { // it may be misspelt
		note = "; no job of it is available"
	}
	if acted.Changed {
		fmt.Fprintf(cmd.OutOrStdout(), "key %s of queue %s has weight %d%s; take it back with: jobq undo %d\n", name, printable.Line(queue), w.weight, note, acted.AuditID)
	} else {
		fmt.Fprintf(cmd.OutOrStdout(), "key %s of queue %s has weight %d already%s\n", name, printable.Line(queue), w.weight, note)
	}
	if unknown != nil { // as it should be where settings come before the first job
		fmt.Fprintf(cmd.ErrOrStderr(), "note: before this, %s\n", printable.Line(unknown.Error()))
	}
	return nil
}
