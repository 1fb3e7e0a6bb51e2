package worker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"time"

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
	// commandGrace is how long a program has between SIGTERM and SIGKILL.
	commandGrace = 3 * time.Second
	// checkpointEnvBytesMax keeps JOBQ_CHECKPOINT below what Linux takes for one
	// variable (MAX_ARG_STRLEN, 128 KiB).
	checkpointEnvBytesMax = 96 << 10
)

// Command is a program that runs jobs. The program gets the args as JSON on
// standard input; docs/subprocess.md is its side of the contract.
type Command struct {
	// Args is the program and its arguments. No shell is involved. In them,
	// ${args.NAME} stands for a member of the job's args, ${args.NAME.NAME} for one
	// of its members, and ${job.id}, kind, queue, attempt and lease_token for what
	// they say. A job that lacks what is named fails for good.
	Args []string
	// Dir is the working directory. Default: the worker's.
	Dir string
	// Environ names variables of the worker's environment that the program gets
	// besides PATH, HOME, LANG and TZ. Database variables must be named to be
	// passed.
	Environ []string
	// Env is added to the program's environment.
	Env map[string]string
	// Attributes are the user, resource limits and niceness of the program.
	Attributes Attributes
	// Grace is how long the program has between SIGTERM and SIGKILL when it is
	// stopped. Default 3 seconds. A lost lease means SIGKILL at once.
	Grace time.Duration
	// LostTerminates makes a lost lease mean SIGTERM first, and SIGKILL before
	// the lease ends by the database's clock.
	LostTerminates bool

	literal bool // Args are the program's as they are
}

// Attributes are what a program has that the worker has not. The zero value
// changes nothing. They cost some milliseconds for each start.
type Attributes struct {
	// UID and GID are who the program runs as, without supplementary groups, for
	// a worker that runs as root. A UID needs a GID beside it. Nil is the worker's.
	// A worker that is not root may name only its own, which changes nothing.
	UID, GID *uint32
	// Nice is the program's niceness: 19 runs when nobody else wants to. Zero is
	// the worker's.
	Nice int
	// Limits are resource limits, hard and soft alike: address_space, core, data,
	// file_size and stack in bytes, cpu_seconds, open_files.
	Limits map[string]uint64
}

func (a *Attributes) subproc() *subproc.Attributes {
	return &subproc.Attributes{UID: a.UID, GID: a.GID, Nice: a.Nice, Limits: a.Limits}
}

// MaybeRunShim must be the first call in main of a program that uses
// HandleCommand: between a worker and the programs it runs stands this
// executable once more, to end them when the worker dies, and then this call
// does not return.
func MaybeRunShim() { subproc.MaybeRunShim() }

// HandleCommand makes the worker run jobs of a kind with a program, in a
// process group and session of its own. See MaybeRunShim.
func HandleCommand(w *Worker, kind string, command Command) error {
	if err := command.complete(); err != nil {
		return fmt.Errorf("handler of kind %q: %w", kind, err)
	}
	w.programs.graceMax = max(w.programs.graceMax, command.Grace)
	return w.handle(kind, func(ctx context.Context, r *Run) error { return command.run(ctx, r) })
}

func (c *Command) complete() error {
	if len(c.Args) == 0 {
		return errors.New("the command is empty")
	}
	if err := c.Attributes.subproc().Check(); err != nil {
		return err
	}
	if c.Grace == 0 {
		c.Grace = commandGrace
	}
	return nil
}

// run is the handler.
func (c Command) run(ctx context.Context, r *Run) error {
	environ, err := c.environ(r)
	if err != nil {
		return err
	}
	args := c.Args
	if !c.literal {
		if args, err = r.expand(args); err != nil {
			return err
		}
	}
	try, err := r.worker.absences.try(r.row.Kind)
	if err != nil {
		return err
	}
	defer try.end()
	said := &said{run: r}
	output := subproc.NewTail(outputBytesMax)
	live := r.showOutput(output)
	leash := newLeash(ctx, r, c.LostTerminates)
	defer leash.drop()
	ended, err := r.worker.runProgram(leash.ctx, try, subproc.Command{
		Args: args, Dir: c.Dir, Env: environ, Attributes: c.Attributes.subproc(), Stdin: r.row.Args, Grace: c.Grace, Kill: leash.kill, Output: output,
		Deadline: r.deadline, DeadlineEvery: r.deadlineEvery(),
		Control: func(message subproc.Message) { said.hear(leash.held, message) }, ControlError: said.complain,
	})
	r.live.Store(nil)
	live.flushRest(ctx)
	r.keepOutput(ended.Output)
	if err != nil {
		return err // it could not be started
	}
	r.keepUsage(ended)
	if ended.Expired { // the worker was stopped: the lease is lost, and nobody has failed
		r.worker.keeper.held.Lose(&r.hold)
		return ErrLeaseLost
	}
	return said.verdict(ended)
}

// environ is the program's whole environment.
func (c Command) environ(r *Run) ([]string, error) {
	checkpoint, err := checkpointEnv(r.checkpoint())
	if err != nil {
		return nil, err
	}
	additions := maps.Clone(c.Env)
	if additions == nil {
		additions = make(map[string]string)
	}
	maps.Copy(additions, map[string]string{
		"JOBQ_JOB_ID":       strconv.FormatInt(r.row.ID, 10),
		"JOBQ_KIND":         r.row.Kind,
		"JOBQ_QUEUE":        r.row.Queue,
		"JOBQ_ATTEMPT":      strconv.Itoa(r.Attempt()),
		"JOBQ_MAX_ATTEMPTS": strconv.Itoa(r.MaxAttempts()),
		"JOBQ_LEASE_TOKEN":  strconv.FormatInt(r.row.LeaseToken, 10),
		"JOBQ_CHECKPOINT":   checkpoint,
		"JOBQ_CLEAR_REASON": r.ClearReason(),
		"JOBQ_CONTROL_FD":   "3",
	})
	return subproc.Environ(c.Environ, additions)
}

// verdict is what the handler returns for how the program has ended.
func (s *said) verdict(ended subproc.Result) error {
	if ended.ExitCode == 0 && ended.Signal == "" && !ended.Stopped {
		return s.ended()
	}
	err := errors.New(failure("", ended))
	if problem := s.problem(); problem != nil {
		err = fmt.Errorf("%w\n%w", err, problem)
	}
	switch {
	case ended.Stopped: // why it was stopped decides, not what it says then
		return err
	case ended.Signal == "SIGTERM" && s.run.worker.draining.Load():
		// Whoever stops the worker has stopped its programs too, as systemd does
		// with KillMode=control-group.
		return fmt.Errorf("%w: %w", ErrDrained, err)
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
func failure(who string, ended subproc.Result) string {
	how := who + "exit code " + strconv.Itoa(ended.ExitCode)
	if ended.Signal != "" {
		how = who + "killed by " + ended.Signal
	}
	return lastWords(how, ended.Stderr)
}
