package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/jobq-dev/jobq"
)

func newEnqueueCommand(a *app) *cobra.Command {
	var options jobq.EnqueueOptions
	var runAt momentFlag
	var ndjson, exec bool
	command := &cobra.Command{
		Use:   "enqueue KIND [ARGS | @FILE | -]",
		Short: "Add jobs",
		Long: `Add a job of a kind. Its args are JSON: on the command line, in a file, or "-" for
many on standard input, one job's args a line. With --ndjson, each line of standard
input is a whole job: {"kind": "resize", "args": {"id": 1}, "queue": "images"}.
With --exec, the job is a program and its arguments, for workers with --allow-exec: on
the command line, or many on standard input, one command a line (cut as a shell cuts
it, nothing is expanded), or with --ndjson {"cmd": ["ls", "-l"], "env": {}, "cwd": "/"}.
The id of each job is printed; with a unique key that is taken, the id of its holder.`,
		Example: `  jobq enqueue resize '{"id": 1}' --queue images --max-attempts 5
  jobq enqueue report @args.json --delay 10m --unique-key monthly
  jobq enqueue export '{"id": 7}' --partition-key customer-17
  jobq enqueue report --run-at 'tomorrow 09:00'       # in your time zone, which the answer names
  jq -c '.[]' images.json | jobq enqueue resize -
  jobq enqueue --ndjson < jobs.ndjson
  jobq enqueue --exec -- convert big.png small.jpg    # for workers with --allow-exec
  ls *.png | sed 's/.*/pngquant -- &/' | jobq enqueue --exec -`,
		Args: func(_ *cobra.Command, args []string) error { return checkEnqueueArgs(args, exec, ndjson) },
		PreRunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("run-at") && cmd.Flags().Changed("delay") {
				return usagef("give --run-at or --delay, and not both")
			}
			return refuseZero(cmd, "max-attempts", "timeout")
		},
		RunE: a.withClient(func(cmd *cobra.Command, args []string, client *jobq.Client) error {
			runAt.say(cmd)
			options.RunAt = runAt.at
			if exec {
				return a.enqueueExec(cmd, client, args, ndjson, options)
			}
			if ndjson || (len(args) == 2 && args[1] == "-") {
				return a.enqueueLines(cmd, client, func(line []byte) (jobq.EnqueueParams, error) { return parseLine(line, args, options) })
			}
			return a.enqueueOne(cmd, client, args, options)
		}),
	}
	flags := command.Flags()
	flags.StringVarP(&options.Queue, "queue", "q", "", `queue (default "default")`)
	flags.Int16Var(&options.Priority, "priority", 0, "lower runs first")
	flags.Var(&runAt, "run-at", runAtUsage)
	durationVar(flags, &options.Delay, "delay", 0, "earliest start, from now")
	flags.IntVar(&options.MaxAttempts, "max-attempts", 0, "attempts before the job fails for good (default 25)")
	durationVar(flags, &options.Timeout, "timeout", 0, "longest run (default no limit)")
	flags.StringVar(&options.UniqueKey, "unique-key", "", "at most one unfinished job of the kind with this key")
	flags.StringVar(&options.PartitionKey, "partition-key", "", "what the job belongs to, such as a customer: keys take turns (docs/partition-keys.md)")
	flags.StringSliceVar(&options.Tags, "tag", nil, "tag, may be repeated")
	flags.BoolVar(&exec, "exec", false, "the job is a program to run: its words, or many on standard input")
	flags.BoolVar(&ndjson, "ndjson", false, "read whole jobs from standard input, one a line")
	a.addJSONFlag(command)
	return command
}

// checkEnqueueArgs says what is missing, and what is too much.
func checkEnqueueArgs(args []string, exec, ndjson bool) error {
	switch {
	case ndjson && len(args) > 0:
		return usagef("--ndjson takes whole jobs from standard input, and no KIND")
	case ndjson:
		return nil
	case exec && len(args) == 0:
		return usagef("usage: jobq enqueue --exec -- PROGRAM ARGS..., or - for many on standard input, or --ndjson")
	case !exec && (len(args) < 1 || len(args) > 2):
		return usagef("usage: jobq enqueue KIND [ARGS | @FILE | -]")
	}
	return nil
}

func (a *app) enqueueOne(cmd *cobra.Command, client *jobq.Client, args []string, options jobq.EnqueueOptions) error {
	raw := jobq.RawArgs{Name: args[0]}
	if len(args) == 2 {
		var err error
		if raw.JSON, err = jsonArgument("args", args[1]); err != nil {
			return err
		}
	}
	enqueued, err := client.Enqueue(cmd.Context(), raw, &options)
	if err != nil {
		return err
	}
	return a.printEnqueued(cmd.OutOrStdout(), []jobq.Enqueued{enqueued})
}

// jsonArgument is JSON of the command line, or of a file that it names with @.
func jsonArgument(name, text string) (json.RawMessage, error) {
	content := []byte(text)
	if file, ok := strings.CutPrefix(text, "@"); ok {
		var err error
		if content, err = os.ReadFile(file); err != nil { // #nosec G304 -- the caller's own file
			return nil, err
		}
		content = bytes.TrimSpace(content)
	}
	if !json.Valid(content) {
		return nil, usagef("%s are not JSON: %s", name, cut(string(content)))
	}
	return content, nil
}

func (a *app) printEnqueued(out io.Writer, enqueued []jobq.Enqueued) error {
	for _, job := range enqueued {
		var err error
		if a.json {
			err = writeLine(out, job)
		} else {
			_, err = fmt.Fprintln(out, job.ID)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
