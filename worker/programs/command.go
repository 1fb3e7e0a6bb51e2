package programs

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jobq-dev/jobq/internal/subproc"
	"github.com/jobq-dev/jobq/monitor"
	"github.com/jobq-dev/jobq/worker"
	"github.com/jobq-dev/jobq/worker/programs/internal/failure"
	"github.com/jobq-dev/jobq/worker/programs/internal/template"
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
	// outputBytesMax bounds the output of a program that is kept in memory, as much
	// as the worker keeps with the attempt.
	outputBytesMax = worker.OutputBytesMax
)

// Command is a program that runs jobs. The program gets the args as JSON on
// standard input; docs/subprocess.md is its side of the contract.
type Command struct {
	// Args is the program and its arguments: one at least. No shell is involved. In them,
	// ${args.NAME} stands for a member of the job's args, ${args.NAME.NAME} for one
	// of its members, and ${job.id}, ${job.kind}, ${job.queue}, ${job.attempt},
	// ${job.lease_token} and ${job.idempotency_key} for these values of the job. If the job lacks one of them, it
	// fails for good. Required, except for HandleExec.
	Args []string
	// Dir is the working directory. Default: the worker's.
	Dir string
	// Environ names variables of the worker's environment that the program gets
	// besides PATH, HOME, LANG and TZ. Database variables must be named to be
	// passed. Default: none.
	Environ []string
	// Env is added to the program's environment, and wins over Environ. The
	// variables that begin with JOBQ_ are jobq's own. Default: nothing.
	Env map[string]string
	// Attributes are the user, resource limits and niceness of the program. Default:
	// the worker's.
	Attributes Attributes
	// Grace is how long the program has between SIGTERM and SIGKILL when it is
	// stopped. Default 3 seconds; not negative. A lost lease means SIGKILL at once.
	Grace time.Duration
	// LostTerminates makes a lost lease mean SIGTERM first, and SIGKILL before
	// the lease ends by the database's clock. Default: SIGKILL at once.
	LostTerminates bool
	// LostFreezes makes a lease that could not be extended in time mean SIGSTOP to all processes of the
	// program. When the database answers, they go on if nobody has taken the job meanwhile; else they get
	// SIGKILL, as they do if the lease was taken before, if the worker ends, and if the program is told to end while it is
	// frozen. Only if all jobs that the worker has claimed together have such programs, and heartbeats extend
	// their leases: others get SIGKILL. docs/program-contract.md says what the program sees. Linux only, and not with
	// LostTerminates. Default: SIGKILL at once.
	LostFreezes bool
	// TellsDrain makes the program hear at once when the worker drains, with Config.DrainTimeout left, by DrainSignal to
	// its process group. A file that the variable JOBQ_NOTICE_FILE names then says why, and how long it has; and likewise
	// before each other SIGTERM: docs/program-contract.md. Default: a drain lets it run until the time is over. For
	// programs that are not kept.
	TellsDrain bool
	// DrainSignal is that signal. Default SIGTERM.
	DrainSignal syscall.Signal
	// EndsItself says that the program ends its jobs itself, in transactions of its own
	// that call jobq.complete or its like with the token in JOBQ_RUN_TOKEN:
	// docs/transactional-completion.md. Its success is then believed only if such an end is stored; without, it is
	// a failed attempt. Default: the exit code or answer ends the job.
	EndsItself bool
	// Steps says that the program does durable steps, such as those of jobq job step, with
	// the token in JOBQ_RUN_TOKEN: docs/steps.md. A sleep, or a wait for an event, ends its
	// run. If no step has ended the run, its exit code or answer does. Default: it gets no
	// token.
	Steps bool

	literal bool // Args are the program's as they are
}

// Attributes are properties of the program's process that differ from the worker's. The
// zero value changes nothing. They cost some milliseconds for each start.
type Attributes struct {
	// UID and GID are who the program runs as, without supplementary groups, for
	// a worker that runs as root. A UID needs a GID beside it. Default nil: the worker's.
	// A worker that is not root may name only its own, which changes nothing.
	UID, GID *uint32
	// Nice is the program's niceness, -20 to 19: 19 runs when nobody else wants to.
	// Default 0, which is the worker's.
	Nice int
	// Limits are resource limits, hard and soft alike: address_space, core, data,
	// file_size and stack in bytes, cpu_seconds, open_files. Default: the worker's.
	Limits map[string]uint64
}

func (a *Attributes) subproc() *subproc.Attributes {
	return &subproc.Attributes{UID: a.UID, GID: a.GID, Nice: a.Nice, Limits: a.Limits}
}

// HandleCommand makes the worker run jobs of a kind with a program, in a
// process group and session of its own. See MaybeRunShim.
func (p *Programs) HandleCommand(kind string, command Command, options *worker.HandleOptions) error {
	if err := command.complete(); err != nil {
		return fmt.Errorf("handler of kind %q: %w", kind, err)
	}
	return p.handleProgram(kind, command, func(ctx context.Context, run worker.ExternalRun, args []byte) error {
		return p.runCommand(ctx, command, run, args)
	}, options)
}

func (c *Command) complete() error {
	if len(c.Args) == 0 {
		return errors.New("the command is empty")
	}
	if err := c.Attributes.subproc().Check(); err != nil {
		return err
	}
	if c.LostFreezes && c.LostTerminates {
		return errors.New("a program whose lease is lost is either asked to end or frozen")
	}
	if c.LostFreezes && !subproc.CanFreeze {
		return errors.New("programs can be frozen on Linux only")
	}
	if c.Grace < 0 {
		return fmt.Errorf("the grace must not be negative, as %s is", c.Grace)
	}
	if c.DrainSignal == 0 {
		c.DrainSignal = syscall.SIGTERM
	}
	if c.Grace == 0 {
		c.Grace = commandGrace
	}
	return nil
}

// runCommand is the handler.
func (p *Programs) runCommand(ctx context.Context, c Command, run worker.ExternalRun, args []byte) error {
	c.announce(run)
	told, err := p.newNotice(c, run)
	if err != nil {
		return err
	}
	environ, err := c.environ(ctx, run, told)
	if err != nil {
		return err
	}
	words, err := c.words(run, args)
	if err != nil {
		return worker.Discard(err) // the args are wrong, and will be next time
	}
	try, err := p.breaker.Begin(run.Kind())
	if err != nil {
		return err
	}
	defer try.End()
	said := &messages{run: run}
	output := subproc.NewTail(outputBytesMax)
	endOutput := run.ShowOutput(output)
	stop := newStopper(ctx, run, c, make(chan struct{}, 1), told.tell)
	defer stop.end()
	defer told.listen(p.host)()
	ended, err := p.start(stop.asked, run.Kind(), try, c.isOwn(), subproc.Command{
		Args: words, Dir: c.Dir, Env: environ, Attributes: c.Attributes.subproc(), Stdin: args, Grace: c.Grace, Kill: stop.kill, Notice: told.signal(), Output: output, Started: try.Reached,
		Deadline: stop.deadline, DeadlineEvery: deadlineEvery(run), Freezes: c.LostFreezes, Renew: stop.renew,
		Control: func(message subproc.Message) { said.take(stop.held, message) }, ControlError: said.note,
	})
	endOutput(ctx)
	run.KeepOutput(ended.Output)
	if err != nil {
		if len(ended.Left) > 0 {
			err = fmt.Errorf("%w; %w", errLeft(ended), err)
		}
		return err // it could not be started, or its supervisor was killed
	}
	run.KeepUsage(monitor.Usage{ExitCode: ended.ExitCode, Signal: ended.Signal, CPUSeconds: ended.CPU.Seconds(), MaxRSSBytes: ended.MaxRSSBytes})
	if ended.Expired { // the worker was stopped: the lease is lost, and nobody has failed
		return run.LoseLease()
	}
	if told.isAnsweredBy(ended) && said.problem() == nil {
		return fmt.Errorf("%w: %s", worker.ErrDrained, failure.OfProgram("", ended))
	}
	return p.verdict(said, ended)
}

// isOwn says that the program is the worker's own choice, and none that a job names.
func (c Command) isOwn() bool { return !c.literal && !strings.Contains(c.Args[0], "${") }

// hasToken says whether the program gets the token of its run.
func (c Command) hasToken() bool { return c.EndsItself || c.Steps }

// announce says what the program may do with its run.
func (c Command) announce(run worker.ExternalRun) {
	switch {
	case c.EndsItself:
		run.EndsItself()
	case c.Steps:
		run.MayEnd()
	}
}

// words are the command's, with the parts of the job that they name.
func (c Command) words(run worker.ExternalRun, args []byte) ([]string, error) {
	if c.literal {
		return c.Args, nil
	}
	return template.Expand(c.Args, args, map[string]any{
		"id": run.ID(), "kind": run.Kind(), "queue": run.Queue(), "attempt": run.Attempt(), "lease_token": run.LeaseToken(),
		"idempotency_key": run.IdempotencyKey(),
	})
}

// environ is the program's whole environment.
func (c Command) environ(ctx context.Context, run worker.ExternalRun, told *notice) ([]string, error) {
	checkpoint, err := checkpointEnv(run)
	if err != nil {
		return nil, err
	}
	additions := maps.Clone(c.Env)
	if additions == nil {
		additions = make(map[string]string)
	}
	maps.Copy(additions, map[string]string{
		"JOBQ_JOB_ID":          strconv.FormatInt(run.ID(), 10),
		"JOBQ_IDEMPOTENCY_KEY": run.IdempotencyKey(),
		"JOBQ_KIND":            run.Kind(),
		"JOBQ_QUEUE":           run.Queue(),
		"JOBQ_PARTITION_KEY":   run.PartitionKey(),
		"JOBQ_ATTEMPT":         strconv.Itoa(run.Attempt()),
		"JOBQ_MAX_ATTEMPTS":    strconv.Itoa(run.MaxAttempts()),
		"JOBQ_LEASE_TOKEN":     strconv.FormatInt(run.LeaseToken(), 10),
		"JOBQ_CHECKPOINT":      checkpoint,
		"JOBQ_CLEAR_REASON":    run.ClearReason(),
		"JOBQ_CONTROL_FD":      "3",
	})
	if c.hasToken() {
		additions["JOBQ_RUN_TOKEN"] = run.RunToken()
	}
	if told != nil {
		additions["JOBQ_NOTICE_FILE"] = told.path
	}
	addTrace(ctx, run, additions)
	return subproc.Environ(c.Environ, additions)
}

// verdict is what the handler returns for how the program has ended.
func (p *Programs) verdict(said *messages, ended subproc.Result) error {
	if len(ended.Left) > 0 && !ended.Stopped { // whatever it says, it has not ended
		return errLeft(ended)
	}
	if ended.ExitCode == 0 && ended.Signal == "" && !ended.Stopped {
		return said.outcome()
	}
	err := errors.New(failure.OfProgram("", ended))
	if problem := said.problem(); problem != nil {
		err = fmt.Errorf("%w\n%w", err, problem)
	}
	switch {
	case ended.Stopped: // why it was stopped decides, not what it says then
		return err
	case ended.Signal == "SIGTERM" && p.host.IsDraining():
		// Whoever stops the worker has stopped its programs too, as systemd does
		// with KillMode=control-group.
		return fmt.Errorf("%w: %w", worker.ErrDrained, err)
	case ended.Signal != "":
		return err
	case ended.ExitCode == exitTempFail && said.problem() == nil: // else the message may have been a checkpoint
		return worker.Snooze(tempFailDelay)
	case ended.ExitCode == exitDataError:
		return worker.Discard(err)
	}
	return err
}
