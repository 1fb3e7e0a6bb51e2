package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/jobq-dev/jobq"
)

func newEnqueueCommand(a *app) *cobra.Command {
	var options jobq.EnqueueOptions
	var runAt momentFlag
	var ndjson, exec, graph, wait bool
	var failure, metadata string
	var table csvFlags
	var waitTimeout time.Duration
	var keys keysFlag
	command := &cobra.Command{
		Use:   "enqueue KIND [ARGS | @FILE | -]",
		Short: "Add jobs",
		Long: `Add a job of a kind. Its args are JSON: on the command line, in a file, or "-" for
many on standard input, one job's args a line. With --ndjson, each line of standard
input is a whole job: {"kind": "resize", "args": {"id": 1}, "queue": "images"}.
With --exec, the job is a program and its arguments, for workers with --allow-exec: on
the command line, or many on standard input, one command a line (cut as a shell cuts
it, nothing is expanded), or with --ndjson {"cmd": ["ls", "-l"], "env": {}, "cwd": "/"}.
With --csv, each row of a file is a job of the kind: the first line names the columns, which
become args. 0.10, -3 and 1e5 become numbers with all their digits, and true or TRUE becomes
true. An empty cell gives no arg. All else becomes a text, such as 007, and so does each cell
in a column of --csv-text, such as 12e5. The other flags are for all rows.
With --after, the job waits for other jobs. With --graph, the lines are whole jobs that may
wait for one another: they have names, and in "after" the names, or ids, of the jobs that
they wait for. A job without a name is called by its line, such as "line 2". All of them are
added at once, or none.
The id of each job is printed; with a unique key that is taken, the id of its holder. With
--on-conflict replace, a holder that has not begun gets the new args, priority and start; --json
says whether it did. With --on-conflict fail, nothing is added, and the exit code is 4.
docs/unique.md has examples.
With --keys-file or JOBQ_KEYS, args are encrypted: docs/encryption.md.
With --wait, one job is added and waited for: its id goes to standard error, and its result
to standard output, with the exit codes of "jobq wait".`,
		Example: `  jobq enqueue resize '{"id": 1}' --queue images --max-attempts 5
  jobq enqueue report @args.json --delay 10m --unique-key monthly
  jobq enqueue sync '{"id": 7, "at": "now"}' --unique-by id --unique-window 1h
  jobq enqueue index '{"page": 7}' --unique-by page --on-conflict replace
  jobq enqueue export '{"id": 7}' --partition-key customer-17
  jobq enqueue report --run-at 'tomorrow 09:00'       # in your time zone
  jobq enqueue resize '{"id": 1}' --wait --wait-timeout 1m | jq .width
  jq -c '.[]' images.json | jobq enqueue resize -
  jobq enqueue --ndjson < jobs.ndjson
  jobq enqueue simulate --csv sweep.csv --tag sweep1 --csv-text commit
  jobq enqueue report --after 12,13                   # when both have completed
  jobq enqueue --graph < import.ndjson
  jobq enqueue --exec -- convert big.png small.jpg
  ls *.png | sed 's/.*/pngquant -- &/' | jobq enqueue --exec -`,
		Args: func(_ *cobra.Command, args []string) error {
			if wait && (graph || table.file != "" || isEnqueueOfMany(args, exec, ndjson)) {
				return usagef("--wait is for one job; of many, give the ids to jobq wait: jobq enqueue ... | xargs -n 1000 jobq wait")
			}
			if table.file != "" {
				return checkCSVArgs(args, exec || ndjson || graph)
			}
			return checkEnqueueArgs(args, exec, ndjson, graph)
		},
		PreRunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("run-at") && cmd.Flags().Changed("delay") {
				return usagef("give --run-at or --delay, and not both")
			}
			if cmd.Flags().Changed("wait-timeout") && !wait {
				return usagef("--wait-timeout is for --wait")
			}
			if cmd.Flags().Changed("csv-text") && table.file == "" {
				return usagef("--csv-text is for --csv")
			}
			if err := refuseZero(cmd, "max-attempts", "max-lost", "backoff-base", "backoff-max", "timeout", "wait-timeout", "unique-for", "unique-window"); err != nil {
				return err
			}
			var err error
			if metadata != "" {
				if options.Metadata, err = jsonArgument("metadata", metadata); err != nil {
					return err
				}
			}
			a.codec, err = keys.codec("")
			return err
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			connect := a.client
			if wait {
				connect = a.notifiedClient
			}
			client, err := connect(cmd.Context())
			if err != nil {
				return err
			}
			defer client.Pool().Close()
			runAt.say(cmd)
			options.RunAt, options.OnParentFailure = runAt.at, jobq.ParentFailure(failure)
			switch {
			case table.file != "":
				return a.enqueueCSV(cmd, client, args[0], table, options)
			case graph:
				return a.enqueueGraph(cmd, client, options)
			case isEnqueueOfMany(args, exec, ndjson) && exec:
				return a.enqueueExecLines(cmd, client, ndjson, options)
			case isEnqueueOfMany(args, exec, ndjson):
				return a.enqueueLines(cmd, client, func(line []byte) (jobq.EnqueueParams, error) { return parseLine(line, args, options) })
			}
			job, err := enqueueArgs(args, exec)
			if err != nil {
				return err
			}
			enqueued, err := client.Enqueue(cmd.Context(), job, &options)
			if err != nil {
				return err
			}
			work := added{}
			work.add(options.Queue, job.Kind())
			if wait {
				fmt.Fprintf(cmd.ErrOrStderr(), "job %d\n", enqueued.ID)
				work.say(cmd, client)
				return a.awaitJobs(cmd, client, []int64{enqueued.ID}, waitTimeout)
			}
			err = a.printEnqueued(cmd.OutOrStdout(), []jobq.Enqueued{enqueued})
			work.say(cmd, client)
			return err
		},
	}
	flags := command.Flags()
	flags.StringVarP(&options.Queue, "queue", "q", "", `queue (default "default")`)
	flags.Int16Var(&options.Priority, "priority", 0, "lower runs first")
	flags.Var(&runAt, "run-at", runAtUsage)
	durationVar(flags, &options.Delay, "delay", 0, "earliest start, from now")
	flags.IntVar(&options.MaxAttempts, "max-attempts", 0, "attempts before the job fails for good (default 25)")
	flags.IntVar(&options.MaxLost, "max-lost", 0, "runs that may be lost with their worker or host without using an attempt (default as in the queue; none: each uses one)")
	backoffVars(flags, &options.BackoffBase, &options.BackoffMax)
	durationVar(flags, &options.Timeout, "timeout", 0, "longest run (default no limit)")
	uniqueVars(flags, &options)
	flags.StringVar(&options.PartitionKey, "partition-key", "", "what the job belongs to, such as a customer: keys take turns (docs/partition-keys.md)")
	tagsVar(flags, &options.Tags, "tag, may be repeated")
	flags.StringVar(&metadata, "metadata", "", "JSON to keep with the job, for you alone, or @FILE")
	table.add(flags)
	flags.BoolVar(&exec, "exec", false, "the job is a program to run: its words, or many on standard input")
	flags.Int64SliceVar(&options.After, "after", nil, "id of a job to wait for, may be repeated")
	flags.StringVar(&failure, "after-failure", "", "when a job of --after fails: cancel, run or wait (default cancel)")
	flags.BoolVar(&graph, "graph", false, "read whole jobs that wait for one another from standard input, one a line")
	flags.BoolVar(&wait, "wait", false, "wait until the job has ended, and print its result")
	durationVar(flags, &waitTimeout, "wait-timeout", 0, "with --wait, give up after so long (default: wait for ever)")
	flags.BoolVar(&ndjson, "ndjson", false, "read whole jobs from standard input, one a line")
	keys.add(flags, keysEncryptUsage)
	a.addJSONFlag(command)
	return command
}

// checkEnqueueArgs says what is missing, and what is too much.
func checkEnqueueArgs(args []string, exec, ndjson, graph bool) error {
	switch {
	case graph && (exec || ndjson):
		return usagef("give one of --graph, --ndjson and --exec")
	case graph && len(args) > 0:
		return usagef("--graph takes whole jobs from standard input, and no KIND")
	case graph:
		return nil
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

// checkCSVArgs is checkEnqueueArgs of --csv.
func checkCSVArgs(args []string, others bool) error {
	switch {
	case others:
		return usagef("give one of --csv, --graph, --ndjson and --exec")
	case len(args) != 1 || args[0] == "-":
		return usagef("usage: jobq enqueue KIND --csv FILE; the args are in the file")
	}
	return nil
}

// isEnqueueOfMany says whether the jobs come on standard input.
func isEnqueueOfMany(args []string, exec, ndjson bool) bool {
	return ndjson || len(args) > 0 && args[len(args)-1] == "-" && (len(args) == 1) == exec
}

// enqueueArgs are the args of the one job on the command line.
func enqueueArgs(args []string, exec bool) (jobq.Args, error) {
	if exec {
		return execJob{Command: args}.args()
	}
	raw := jobq.RawArgs{Name: args[0]}
	if len(args) < 2 {
		return raw, nil
	}
	var err error
	raw.JSON, err = jsonArgument("args", args[1])
	return raw, err
}

// jsonArgument is JSON of the command line, or of a file that it names with @.
func jsonArgument(name, text string) (json.RawMessage, error) {
	content := []byte(text)
	if file, ok := strings.CutPrefix(text, "@"); ok {
		var err error
		if content, err = os.ReadFile(file); err != nil { // #nosec G304 -- the caller's own file
			return nil, err
		}
		if content, err = unmarked(content); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
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
