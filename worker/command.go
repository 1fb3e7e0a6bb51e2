package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jobq-dev/jobq/internal/printable"
	"github.com/jobq-dev/jobq/internal/subproc"
)

// Exit codes of programs that mean something of their own, from sysexits.h.
const (
	exitDataError = 65 // EX_DATAERR: the args are wrong, and will be next time
	exitTempFail  = 75 // EX_TEMPFAIL: not now
)

const (
	// tempFailDelay is how long a job waits whose program said "not now".
	tempFailDelay = time.Minute
	// commandGrace is how long a program has between SIGTERM and SIGKILL. It is
	// below stopGrace, so that a drain sees programs end.
	commandGrace = 3 * time.Second
	// checkpointEnvBytesMax keeps JOBQ_CHECKPOINT below what Linux takes for one
	// variable (MAX_ARG_STRLEN, 128 KiB).
	checkpointEnvBytesMax = 96 << 10
	// errorTailBytes is how much of standard error becomes a failure's text.
	errorTailBytes = 4 << 10
)

// Command is a program that runs jobs. The program gets the args as JSON on
// standard input; docs/subprocess.md is its side of the contract.
type Command struct {
	// Args is the program and its arguments. No shell is involved.
	Args []string
	// Dir is the working directory. Default: the worker's.
	Dir string
	// Environ names variables of the worker's environment that the program gets
	// besides PATH, HOME, LANG and TZ. Database variables must be named to be
	// passed.
	Environ []string
	// Grace is how long the program has between SIGTERM and SIGKILL when it is
	// stopped. Default 3 seconds. A lost lease means SIGKILL at once.
	Grace time.Duration
}

// MaybeRunShim must be the first call in main of a program that uses
// HandleCommand: between a worker and the programs it runs stands this
// executable once more, to end them when the worker dies, and then this call
// does not return.
func MaybeRunShim() { subproc.MaybeRunShim() }

// HandleCommand makes the worker run jobs of a kind with a program, in a
// process group and session of its own. See MaybeRunShim.
func HandleCommand(w *Worker, kind string, command Command) error {
	if len(command.Args) == 0 {
		return fmt.Errorf("handler of kind %q: the command is empty", kind)
	}
	if command.Grace == 0 {
		command.Grace = commandGrace
	}
	return w.handle(kind, command.run)
}

// run is the handler.
func (c Command) run(ctx context.Context, r *Run) error {
	environ, err := c.environ(r)
	if err != nil {
		return err
	}
	said := &said{run: r}
	stop, cancel := killOnLostLease(ctx)
	defer cancel()
	ended, err := subproc.Run(stop, subproc.Command{
		Args: c.Args, Dir: c.Dir, Env: environ, Stdin: r.row.Args, Grace: c.Grace,
		Control: func(message subproc.Message) { said.hear(ctx, message) }, ControlError: said.complain,
	})
	r.mu.Lock()
	r.output = storable(printable.Text(string(ended.Output)), outputBytesMax)
	r.mu.Unlock()
	if err != nil {
		return err // it could not be started
	}
	return said.verdict(ended)
}

// environ is the program's whole environment.
func (c Command) environ(r *Run) ([]string, error) {
	if len(r.row.Checkpoint) > checkpointEnvBytesMax {
		return nil, fmt.Errorf("checkpoint has %d bytes, a program can take %d", len(r.row.Checkpoint), checkpointEnvBytesMax)
	}
	return subproc.Environ(c.Environ, map[string]string{
		"JOBQ_JOB_ID":       strconv.FormatInt(r.row.ID, 10),
		"JOBQ_KIND":         r.row.Kind,
		"JOBQ_QUEUE":        r.row.Queue,
		"JOBQ_ATTEMPT":      strconv.Itoa(r.Attempt()),
		"JOBQ_MAX_ATTEMPTS": strconv.Itoa(r.MaxAttempts()),
		"JOBQ_LEASE_TOKEN":  strconv.FormatInt(r.row.LeaseToken, 10),
		"JOBQ_CHECKPOINT":   string(r.row.Checkpoint),
		"JOBQ_CLEAR_REASON": r.ClearReason(),
		"JOBQ_CONTROL_FD":   "3",
	})
}

// killOnLostLease returns a context that ends with ctx, and tells subproc
// whether there is time to ask the program first.
func killOnLostLease(ctx context.Context) (context.Context, func()) {
	stop, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	unhook := context.AfterFunc(ctx, func() {
		cause := context.Cause(ctx)
		if errors.Is(cause, ErrLeaseLost) {
			cause = subproc.ErrKill
		}
		cancel(cause)
	})
	return stop, func() {
		unhook()
		cancel(nil)
	}
}

// said is what a program has told on its control channel. One goroutine of
// subproc calls it, and is done before subproc.Run returns.
type said struct {
	run      *Run
	snooze   *time.Duration
	cancel   *string
	problems []error
}

func (s *said) hear(ctx context.Context, message subproc.Message) {
	if p := message.Progress; p != nil || message.Stage != "" || message.Message != "" {
		s.run.reportProgress(p, message.Stage, message.Message)
	}
	if message.Checkpoint != nil {
		if err := s.checkpoint(ctx, message.Checkpoint); err != nil {
			s.complain(err)
		}
	}
	if message.Result != nil {
		if err := s.run.SetResult(message.Result); err != nil {
			s.complain(err)
		}
	}
	if message.Snooze != nil {
		s.snooze = message.Snooze
	}
	if message.Cancel != nil {
		s.cancel = message.Cancel
	}
}

func (s *said) checkpoint(ctx context.Context, checkpoint json.RawMessage) error {
	if len(checkpoint) > checkpointEnvBytesMax {
		return fmt.Errorf("checkpoint has %d bytes, a program's may have %d", len(checkpoint), checkpointEnvBytesMax)
	}
	ctx, cancel := context.WithTimeout(ctx, killMarginMax)
	defer cancel()
	return s.run.SaveCheckpoint(ctx, checkpoint)
}

// complain remembers the first few problems of the control channel.
func (s *said) complain(err error) {
	if len(s.problems) < 5 {
		s.problems = append(s.problems, err)
	}
}

// verdict is what the handler returns for how the program has ended.
func (s *said) verdict(ended subproc.Result) error {
	if ended.ExitCode == 0 && ended.Signal == "" && !ended.Stopped {
		switch {
		case s.cancel != nil:
			return &cancelError{*s.cancel}
		case s.snooze != nil:
			return Snooze(*s.snooze)
		case len(s.problems) > 0:
			return fmt.Errorf("control channel: %w", errors.Join(s.problems...))
		}
		return nil
	}
	err := errors.New(failure(ended))
	if len(s.problems) > 0 {
		err = fmt.Errorf("%w\ncontrol channel: %w", err, errors.Join(s.problems...))
	}
	switch {
	case ended.Signal != "":
		return err
	case ended.ExitCode == exitTempFail:
		return Snooze(tempFailDelay)
	case ended.ExitCode == exitDataError:
		return Discard(err)
	}
	return err
}

// failure says in words how a program failed, with the end of what it wrote
// to standard error.
func failure(ended subproc.Result) string {
	how := "exit code " + strconv.Itoa(ended.ExitCode)
	if ended.Signal != "" {
		how = "killed by " + ended.Signal
	}
	tail := ended.Stderr[max(0, len(ended.Stderr)-errorTailBytes):]
	if len(tail) == 0 {
		return how
	}
	return how + ": " + printable.Text(string(tail))
}

// outputBytesMax bounds the output kept of a run; the table has the same limit.
const outputBytesMax = 64 << 10
