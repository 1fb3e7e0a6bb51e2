package main

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/when"
)

// controlVariable names the file descriptor on which a program tells its
// worker about the job.
const controlVariable = "JOBQ_CONTROL_FD"

func newJobCommand(a *app) *cobra.Command {
	command := &cobra.Command{
		Use:   "job",
		Short: "For scripts that a worker runs: say how far the job is",
		Long: `Tell the worker about the job that runs this script: how far it is, what the next run
may resume from, its result. Only for programs that a worker runs. They need no database
for that, but for durable steps: step, sleep, wait-event, spawn and await (docs/steps.md).`,
		Example: `  jobq job progress 40 --stage resize
  jobq job checkpoint '{"page": 7}'
  jobq job result @summary.json
  jobq job snooze 10m && exit 0
  jobq job step charge -- ./charge.sh && jobq job sleep 1d`,
	}
	return asGroup(command, newJobProgressCommand(), newJobSnoozeCommand(), newJobEnqueueCommand(),
		newJobStepCommand(a), newJobSleepCommand(a), newJobWaitEventCommand(a), newJobSpawnCommand(a), newJobAwaitCommand(a),
		newJobValueCommand("checkpoint", "Store what the next run may resume from, at once"),
		newJobValueCommand("result", "Keep a result with the job when it completes"),
		&cobra.Command{
			Use: "cancel WHY", Short: "End the job as cancelled, when the program exits with 0", Args: exactArgs(1),
			RunE: func(_ *cobra.Command, args []string) error { return tellWorker(map[string]any{"cancel": args[0]}) },
		})
}

func newJobProgressCommand() *cobra.Command {
	var stage, text string
	command := &cobra.Command{
		Use: "progress [PERCENT]", Short: "Say how far the job is", Args: rangeArgs(0, 1),
		RunE: func(_ *cobra.Command, args []string) error {
			message := make(map[string]any)
			if len(args) == 1 {
				percent, err := strconv.ParseFloat(strings.TrimSuffix(args[0], "%"), 32)
				if err != nil || !(percent >= 0 && percent <= 100) {
					return usagef("progress %q: must be 0 to 100", args[0])
				}
				message["progress"] = percent
			}
			if stage != "" {
				message["stage"] = stage
			}
			if text != "" {
				message["message"] = text
			}
			if len(message) == 0 {
				return usagef("progress: give a percentage, --stage or --message")
			}
			return tellWorker(message)
		},
	}
	command.Flags().StringVar(&stage, "stage", "", "what it does now, in one word")
	command.Flags().StringVar(&text, "message", "", "what it does now, in a sentence")
	return command
}

// newJobValueCommand makes a command that tells one JSON value.
func newJobValueCommand(name, short string) *cobra.Command {
	return &cobra.Command{
		Use: name + " JSON | @FILE | -", Short: short, Args: exactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			value, err := readJSON(cmd, args[0])
			if err != nil {
				return err
			}
			return tellWorker(map[string]any{name: value})
		},
	}
}

func newJobSnoozeCommand() *cobra.Command {
	return &cobra.Command{
		Use: "snooze DURATION", Short: "Run the job again later, when the program exits with 0",
		Args: exactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			after, err := when.ParseDuration(args[0])
			if err != nil {
				return usagef("snooze %q: %w", args[0], err)
			}
			return tellWorker(map[string]any{"snooze": after.String()})
		},
	}
}

func newJobEnqueueCommand() *cobra.Command {
	var options jobq.EnqueueOptions
	command := &cobra.Command{
		Use: "enqueue KIND [JSON | @FILE | -]", Short: "Add another job", Args: rangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, text := range append([]string{args[0], options.Queue, options.UniqueKey, string(options.OnConflict), options.PartitionKey}, options.UniqueBy...) {
				if !utf8.ValidString(text) { // JSON has no other text: it would be replaced
					return usagef("not valid UTF-8: %q", text)
				}
			}
			job := map[string]any{"kind": args[0], "queue": options.Queue, "unique_key": options.UniqueKey, "partition_key": options.PartitionKey}
			if uniqueness := uniquenessMessage(&options); len(uniqueness) > 0 {
				job["uniqueness"] = uniqueness
			}
			if len(args) == 2 {
				value, err := readJSON(cmd, args[1])
				if err != nil {
					return err
				}
				job["args"] = value
			}
			return tellWorker(map[string]any{"enqueue": job})
		},
	}
	command.Flags().StringVarP(&options.Queue, "queue", "q", "", `queue (default "default")`)
	uniqueVars(command.Flags(), &options)
	command.Flags().StringVar(&options.PartitionKey, "partition-key", "", "what the job belongs to, such as a customer: keys take turns (docs/partition-keys.md)")
	return command
}

// readJSON reads a value from the command line, a file or standard input.
func readJSON(cmd *cobra.Command, source string) (json.RawMessage, error) {
	content := []byte(source)
	var err error
	if name, isFile := strings.CutPrefix(source, "@"); isFile {
		content, err = os.ReadFile(name) // #nosec G304 -- the caller's own file
	} else if source == "-" {
		content, err = awaitInput(cmd.Context(), func() ([]byte, error) { return io.ReadAll(io.LimitReader(cmd.InOrStdin(), lineBytesMax)) })
	}
	if err == nil {
		content, err = unmarked(content)
	}
	if err != nil {
		return nil, err
	}
	var line bytes.Buffer // a message is one line
	if err := json.Compact(&line, content); err != nil {
		return nil, usagef("not JSON: %s", cut(string(content)))
	}
	return line.Bytes(), nil
}

// tellWorker writes a line on the control channel, whole.
func tellWorker(message map[string]any) error {
	descriptor, err := strconv.ParseUint(os.Getenv(controlVariable), 10, 16)
	if err != nil {
		return usagef("%s is not set: this command is for programs that a worker runs", controlVariable)
	}
	line, err := json.Marshal(message)
	if err != nil {
		return err
	}
	control := os.NewFile(uintptr(descriptor), "control channel")
	_, err = control.Write(append(line, '\n'))
	return err
}
