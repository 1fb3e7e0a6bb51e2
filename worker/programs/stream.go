package programs

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/jobq-dev/jobq/internal/subproc"
	"github.com/jobq-dev/jobq/worker"
	"github.com/jobq-dev/jobq/worker/programs/internal/breaker"
	"github.com/jobq-dev/jobq/worker/programs/internal/failure"
)

const (
	// restartDelayMin and restartDelayMax bound the wait before a handler process
	// is started in place of one that died; it doubles until a job ends normally.
	restartDelayMin = 100 * time.Millisecond
	restartDelayMax = 30 * time.Second
	// streamDeadlineEvery is how often the supervisor of a process looks at the
	// deadline of the job that it has.
	streamDeadlineEvery = 100 * time.Millisecond
)

// Stream is a program that runs many jobs, one after the other: each job is a
// line on its standard input, and the answers are lines on its standard
// output; docs/subprocess.md is its side of the contract.
type Stream struct {
	// Command says how a process is started. Its Args are required, and are used as they
	// are, because a process runs many jobs. With EndsItself or Steps, each job has a
	// run_token of its own. A lost lease kills the process that has the job, and so does a
	// stop that the process does not obey.
	Command
	// Processes is how many run at most. They are started when jobs come, and
	// kept. The kind then has so many slots of its own in each queue, unless its options give
	// it fewer: a job that would wait for a process is not claimed. In a worker of several queues it may wait
	// for a process that has a job of another queue, and counts as begun meanwhile. Default 0: as many as there
	// are jobs at a time, which slots limit. Not negative, and at most 10,000.
	Processes int
}

// HandleStream makes the worker run jobs of a kind with processes that are
// kept from job to job. See MaybeRunShim.
func (p *Programs) HandleStream(kind string, stream Stream, options *worker.HandleOptions) error {
	if err := stream.complete(); err != nil {
		return fmt.Errorf("handler of kind %q: %w", kind, err)
	}
	if stream.Processes < 0 {
		return fmt.Errorf("handler of kind %q: the processes must not be negative, as %d is", kind, stream.Processes)
	}
	pool := &streamPool{programs: p, kind: kind, stream: stream}
	if stream.Processes > 0 {
		pool.places = make(chan struct{}, stream.Processes)
		options = withSlots(options, stream.Processes)
	}
	p.pools = append(p.pools, pool)
	return p.handleProgram(kind, stream.Command, pool.run, options)
}

// withSlots are the options with so many slots, unless they have fewer.
func withSlots(options *worker.HandleOptions, slots int) *worker.HandleOptions {
	var all worker.HandleOptions
	if options != nil {
		all = *options
	}
	if all.Slots == 0 || all.Slots > slots {
		all.Slots = slots
	}
	return &all
}

// streamPool is the processes of one kind.
type streamPool struct {
	programs *Programs
	kind     string
	stream   Stream
	places   chan struct{}  // one for each process that has a job; nil for no limit
	living   sync.WaitGroup // of processes

	mu sync.Mutex
	// guarded by mu
	idle    []*streamProcess
	deaths  int       // since a job last ended normally
	startAt time.Time // not before then
}

// run is the handler.
func (p *streamPool) run(ctx context.Context, run worker.ExternalRun, args []byte) error {
	if p.places != nil {
		select {
		case p.places <- struct{}{}:
			defer func() { <-p.places }()
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	p.stream.announce(run)
	line, err := encodeJob(run, args, p.stream.hasToken())
	if err != nil {
		return err
	}
	for {
		process, err := p.take(ctx)
		if err != nil {
			return err
		}
		err = process.work(ctx, run, line, p.stream.Command)
		var unbegun notBegun
		switch {
		case ctx.Err() != nil:
			process.try.End()
		case errors.As(err, &unbegun):
			return process.try.Failed(err) // no job is to blame
		default:
			process.try.Reached()
		}
		if ctx.Err() == nil && process.isIdle() {
			p.giveBack(process)
			return err
		}
		process.stop() // no part of it may still run when the run is over
		<-process.ended
		switch {
		case ctx.Err() != nil:
		case errors.Is(err, errUnread): // it has done its jobs, and this one goes to the next
			continue
		default:
			p.died(process)
		}
		return err
	}
}

// take returns a process that waits for a job: the one used last, or a new one.
func (p *streamPool) take(ctx context.Context) (*streamProcess, error) {
	for {
		p.mu.Lock()
		last := len(p.idle) - 1
		var process *streamProcess
		if last >= 0 {
			process, p.idle = p.idle[last], p.idle[:last]
		}
		wait := time.Until(p.startAt)
		p.mu.Unlock()
		switch {
		case process != nil && process.isIdle():
			return process, nil
		case process != nil:
			process.stop() // it has done its jobs, and may take its grace to end
			continue
		}
		try, err := p.programs.breaker.Begin(p.kind) // before the wait: those who may not try leave their slots
		if err != nil {
			return nil, err
		}
		if wait <= 0 {
			return p.start(try)
		}
		err = waitFor(ctx, wait)
		try.End()
		if err != nil {
			return nil, err
		}
	}
}

// waitFor returns why the context has ended, if it has before the time is over.
func waitFor(ctx context.Context, wait time.Duration) error {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (p *streamPool) giveBack(process *streamProcess) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.deaths, p.startAt = 0, time.Time{}
	p.idle = append(p.idle, process)
}

// died makes the next start wait, longer after each death in a row. If the machine had no
// room for the process, the breaker says when to try the next one.
func (p *streamPool) died(process *streamProcess) {
	var unreached *breaker.Error
	if errors.As(process.failure, &unreached) {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.startAt = time.Now().Add(min(restartDelayMin<<min(p.deaths, 20), restartDelayMax))
	p.deaths++
}

// close ends the processes. None has a job any more.
func (p *streamPool) close() {
	p.mu.Lock()
	idle := p.idle
	p.idle = nil
	p.mu.Unlock()
	for _, process := range idle {
		process.stop()
	}
	p.living.Wait()
}

// start starts a process, and takes charge of the try.
func (p *streamPool) start(try *breaker.Try) (*streamProcess, error) {
	additions := map[string]string{"JOBQ_PROTOCOL": fmt.Sprint(protocolVersion)}
	maps.Copy(additions, p.stream.Env)
	environ, err := subproc.Environ(p.stream.Environ, additions)
	if err != nil {
		try.End()
		return nil, err
	}
	process := newStreamProcess()
	process.try = try
	ctx, stop := context.WithCancel(context.Background())
	process.stop = stop
	p.living.Go(func() {
		defer close(process.ended)
		process.result, process.failure = p.programs.start(ctx, p.kind, try, true, subproc.Command{
			Args: p.stream.Args, Dir: p.stream.Dir, Env: environ, Attributes: p.stream.Attributes.subproc(), Grace: p.stream.Grace, Kill: process.killed, Output: process.output,
			Deadline: process.deadline, DeadlineEvery: streamDeadlineEvery, Freezes: p.stream.LostFreezes, Renew: process.renew, Talk: process.talk, Control: process.hearOutside, ControlError: process.failOutside,
		})
		stop()
	})
	select {
	case <-process.ready:
		return process, nil
	case <-process.ended: // it could not be started
		try.End()
		p.died(process)
		return nil, process.deathError()
	}
}

// deathError says how a process has ended that should not have.
func (s *streamProcess) deathError() error {
	if s.failure != nil {
		return s.failure
	}
	return errors.New(failure.OfProgram("handler process ended, ", s.result))
}
