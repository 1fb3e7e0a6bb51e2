package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/steps"
	"github.com/jobq-dev/jobq/internal/when"
)

const (
	// exitSuspended is the exit code of a step that has ended its run, with which a
	// script has to exit as well: EX_TEMPFAIL of sysexits.h, as for a worker.
	exitSuspended = 75
	// exitEventTimeout is the exit code when an event has not come in time, as that of
	// timeout(1).
	exitEventTimeout = 124
	// stepTextMax and stepBinaryMax bound the output of a step in bytes: as text, and as what
	// is stored in base64. Either is below the limit of the table, 1 MiB as stored.
	stepTextMax   = 1_000_000
	stepBinaryMax = 750_000
	// stepTimeout bounds how long it is tried to ask for a step, and to store its output.
	stepTimeout = time.Minute
)

// stepOutput is what is stored of the output of a command: a JSON string, or an object
// for what is no text.
type stepOutput struct {
	Base64 []byte `json:"base64"`
}

func newJobStepCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "step NAME -- COMMAND [ARGS...]",
		Short: "Run a command once, and write again what it wrote",
		Long: `Run a command as a durable step of the job. When it has ended with exit code 0, its
standard output is stored with the job and written: 1,000,000 bytes of text at most, or
750,000 of anything else. If the job runs again later, because the script failed further
on or its worker died, the command is not run: what is stored is written.

A command that fails stores nothing, and its exit code is passed on. Killed after its
effect and before its output is stored, it runs again: make the effect idempotent, for
instance by $JOBQ_IDEMPOTENCY_KEY.

Needs a kind with "steps: true", and a database: DATABASE_URL, for a login in the role
jobq_runner. See docs/steps.md.`,
		Example: `  order=$(jobq job step order -- ./order.sh "$JOBQ_IDEMPOTENCY_KEY")
  jobq job step "resize $file" -- convert "$file" small.png`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) < 2 {
				return usagef("an argument is missing; usage: %s", cmd.UseLine())
			}
			return nil
		},
		RunE: a.withSteps(func(cmd *cobra.Command, args []string, open openSteps) error {
			output, err := stepOutputOf(cmd, args[0], args[1:], open)
			if err != nil {
				return err
			}
			_, err = cmd.OutOrStdout().Write(output)
			return err
		}),
	}
}

// stepOutputOf is the output of the step: what is stored, or what the command writes. No
// connection is kept open while that runs.
func stepOutputOf(cmd *cobra.Command, name string, words []string, open openSteps) ([]byte, error) {
	answer, err := beginStep(cmd.Context(), name, open)
	if err != nil {
		return nil, err
	}
	if answer.Done {
		return decodeOutput(answer.Result)
	}
	output, err := runStep(cmd, words)
	if err != nil {
		return nil, err
	}
	// The effect has happened: an interrupt does not keep it from being stored.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(cmd.Context()), stepTimeout)
	defer cancel()
	run, end, err := open(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	return output, run.Store(ctx, nil, name, encodeOutput(output))
}

// beginStep asks what is stored of a step.
func beginStep(ctx context.Context, name string, open openSteps) (steps.Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	run, end, err := open(ctx)
	if err != nil {
		return steps.Answer{}, err
	}
	defer end()
	return run.Begin(ctx, name)
}

// outputHead keeps the beginning of what a command writes, one byte more than can be
// stored, and counts the rest.
type outputHead struct {
	kept    []byte
	written int
}

func (h *outputHead) Write(piece []byte) (int, error) {
	h.written += len(piece)
	room := stepTextMax + 1 - len(h.kept)
	h.kept = append(h.kept, piece[:min(len(piece), room)]...)
	return len(piece), nil
}

// check says why the output cannot be stored.
func (h *outputHead) check() error {
	most, what := stepTextMax, "of text"
	if !isText(h.kept) && h.written <= stepTextMax {
		most, what = stepBinaryMax, "of what is no text"
	}
	if h.written <= most {
		return nil
	}
	return fmt.Errorf("the command has written %d bytes, and %d %s can be stored: it has run, and will run again; write the output to a file", h.written, most, what)
}

// runStep runs the command and returns what it has written.
func runStep(cmd *cobra.Command, words []string) ([]byte, error) {
	var output outputHead
	command := exec.CommandContext(cmd.Context(), words[0], words[1:]...) // #nosec G204 -- the script's own command
	command.Stdin, command.Stdout, command.Stderr = cmd.InOrStdin(), &output, cmd.ErrOrStderr()
	// The worker signals the whole process group. What has come to this process alone is
	// passed on, and the command ends as it likes.
	command.Cancel = func() error { return command.Process.Signal(syscall.SIGTERM) }
	err := command.Run()
	if command.ProcessState != nil && command.ProcessState.Success() {
		err = nil // it was interrupted, and has come to its end all the same
	}
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		code := exit.ExitCode()
		if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
			code = 128 + int(status.Signal()) // as shells have it
		}
		_, _ = cmd.OutOrStdout().Write(output.kept) // of a failure, so that it can be read; its own exit code counts
		if cut := output.written - len(output.kept); cut > 0 {
			_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "jobq: %d more bytes of output were cut\n", cut)
		}
		return nil, errors.Join(errSilent, exitStatus(code))
	case err != nil:
		return nil, err
	}
	return output.kept, output.check()
}

// isText says whether the output is stored as a JSON string: PostgreSQL stores no NUL.
func isText(output []byte) bool { return utf8.Valid(output) && !bytes.ContainsRune(output, 0) }

func encodeOutput(output []byte) json.RawMessage {
	var value any = stepOutput{output}
	if isText(output) {
		value = string(output)
	}
	encoded, _ := json.Marshal(value) // strings and bytes always encode
	return encoded
}

func decodeOutput(stored json.RawMessage) ([]byte, error) {
	var text string
	if json.Unmarshal(stored, &text) == nil {
		return []byte(text), nil
	}
	var output stepOutput
	if err := json.Unmarshal(stored, &output); err != nil {
		return stored, nil // stored by another program, as it is
	}
	return output.Base64, nil
}

func newJobSleepCommand(a *app) *cobra.Command {
	var name string
	command := &cobra.Command{
		Use:   "sleep DURATION",
		Short: "End the run; the job goes on after a time",
		Long: `Make the job wait without holding a slot, as a durable step. The first time, this ends
the run and exits with 75, with which the script must exit as well: "set -e" does that.
When the time is over, the job runs again, and this command does nothing and exits with 0.

The time counts from the first call. The name is "sleep DURATION" unless --name gives
another; each sleep of a job needs a name of its own.`,
		Example: "  jobq job sleep 1h\n  jobq job sleep 2d --name 'before the reminder'",
		Args:    exactArgs(1),
		RunE: a.withSteps(func(cmd *cobra.Command, args []string, open openSteps) error {
			duration, err := when.ParseDuration(args[0])
			if err != nil {
				return usagef("sleep %q: %w", args[0], err)
			}
			if name == "" {
				name = "sleep " + args[0]
			}
			run, end, err := open(cmd.Context())
			if err != nil {
				return err
			}
			defer end()
			answer, err := run.Sleep(cmd.Context(), name, duration)
			if err != nil || answer.Done {
				return err
			}
			return errors.Join(errSilent, exitStatus(exitSuspended))
		}),
	}
	command.Flags().StringVar(&name, "name", "", `name of the step (default "sleep DURATION")`)
	return command
}

func newJobWaitEventCommand(a *app) *cobra.Command {
	var timeout time.Duration
	command := &cobra.Command{
		Use:   "wait-event NAME",
		Short: "End the run, and have the job run again when an event has happened",
		Long: `Wait for an event, as a durable step that holds no slot. If "jobq emit NAME" has been
called, what it brought is written as JSON. If not, this ends the run and exits with 75,
with which the script must exit as well: "set -e" does that. The job runs again when the
event happens, without using an attempt.

After --timeout, counted from the first call, this exits with 124.`,
		Example: `  payment=$(jobq job wait-event "paid order $order" --timeout 3d)`,
		Args:    exactArgs(1),
		RunE: a.withSteps(func(cmd *cobra.Command, args []string, open openSteps) error {
			run, end, err := open(cmd.Context())
			if err != nil {
				return err
			}
			defer end()
			answer, err := run.Wait(cmd.Context(), args[0], timeout)
			switch {
			case err != nil:
				return err
			case !answer.Done:
				return errors.Join(errSilent, exitStatus(exitSuspended))
			case answer.TimedOut:
				return eventTimeoutError{fmt.Errorf("event %q: %w", args[0], jobq.ErrEventTimeout)}
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s\n", answer.Result)
			return err
		}),
	}
	durationVar(command.Flags(), &timeout, "timeout", 0, "how long to wait for the event (default for ever)")
	return command
}

// eventTimeoutError is told, and has an exit code of its own.
type eventTimeoutError struct{ error }

func (e eventTimeoutError) Unwrap() []error { return []error{e.error, exitStatus(exitEventTimeout)} }

func newEmitCommand(a *app) *cobra.Command {
	command := &cobra.Command{
		Use:   "emit NAME [JSON | @FILE | -]",
		Short: "Say that an event has happened, for jobs that wait for it",
		Long: `Say that an event has happened. Jobs that wait for it, by jobq.WaitEvent or
"jobq job wait-event", run at once and get the JSON; those that come to wait for it later
find it, for as long as finished jobs are kept. The first event of a name counts: put
into the name what it is about.`,
		Example: `  jobq emit 'paid order 4711' '{"amount": 12}'`,
		Args:    rangeArgs(1, 2),
		RunE: a.withClient(func(cmd *cobra.Command, args []string, client *jobq.Client) error {
			var payload any
			if len(args) == 2 {
				value, err := readJSON(cmd, args[1])
				if err != nil {
					return err
				}
				payload = value
			}
			first, err := client.Emit(cmd.Context(), args[0], payload)
			if err != nil {
				return err
			}
			if a.json {
				return writeJSON(cmd.OutOrStdout(), map[string]any{"name": args[0], "first": first})
			}
			said := "emitted"
			if !first {
				said = "emitted before: the first one counts"
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), said)
			return err
		}),
	}
	a.addJSONFlag(command)
	return command
}

// openSteps connects for the steps of the run that the environment names, until end is
// called.
type openSteps func(ctx context.Context) (run steps.Calls, end func(), err error)

// withSteps runs the work of a command that does a step of the job that runs it. It
// asks for no version of the tables, which a runner may not read.
func (a *app) withSteps(work func(cmd *cobra.Command, args []string, open openSteps) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		calls := steps.Calls{Token: os.Getenv("JOBQ_RUN_TOKEN")}
		var err error
		if calls.JobID, err = strconv.ParseInt(os.Getenv("JOBQ_JOB_ID"), 10, 64); err != nil || calls.Token == "" {
			return usagef("JOBQ_JOB_ID or JOBQ_RUN_TOKEN is not set: this command is for programs that a worker runs, of a kind with steps: true")
		}
		if calls.Schema, err = db.NewSchema(a.schema); err != nil {
			return usageError{err}
		}
		calls.Schema.Assume(db.SessionsShared)
		return work(cmd, args, func(ctx context.Context) (steps.Calls, func(), error) {
			pool, err := a.pool(ctx)
			if err != nil {
				return calls, nil, err
			}
			calls.DB = pool
			return calls, pool.Close, nil
		})
	}
}
