package main

import (
	"github.com/spf13/pflag"

	"github.com/jobq-dev/jobq"
)

// uniqueVars adds the flags that say how a new job is unique.
func uniqueVars(flags *pflag.FlagSet, options *jobq.EnqueueOptions) {
	flags.StringVar(&options.UniqueKey, "unique-key", "", "at most one unfinished job of the kind with this key")
	namesVar(flags, &options.UniqueBy, "unique-by", "make the unique key of these fields of args, such as id,customer, or of all with '*'")
	durationVar(flags, &options.UniqueFor, "unique-for", 0, "hold the unique key so long from now on, even if the job has ended")
	durationVar(flags, &options.UniqueWindow, "unique-window", 0, "at most one job with the unique key in each window of this length, such as 1h")
	flags.StringVar((*string)(&options.OnConflict), "on-conflict", "", "when the unique key is held: skip, replace or fail (default skip)")
}

// uniquenessMessage is what a message to a worker says of them beside the key; nil for nothing.
func uniquenessMessage(options *jobq.EnqueueOptions) map[string]any {
	message := make(map[string]any)
	if len(options.UniqueBy) > 0 {
		message["by"] = options.UniqueBy
	}
	if options.UniqueFor > 0 {
		message["for"] = options.UniqueFor.String()
	}
	if options.UniqueWindow > 0 {
		message["window"] = options.UniqueWindow.String()
	}
	if options.OnConflict != "" {
		message["on_conflict"] = options.OnConflict
	}
	return message
}
