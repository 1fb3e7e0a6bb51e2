package programs

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/printable"
	"github.com/jobq-dev/jobq/internal/subproc"
	"github.com/jobq-dev/jobq/monitor"
	"github.com/jobq-dev/jobq/worker"
	"github.com/jobq-dev/jobq/worker/programs/internal/breaker"
)

// leftShown is how many processes are named that could not be ended.
const leftShown = 10

// callTimeout is the longest time of a call to the database that a program's message causes.
const callTimeout = 5 * time.Second

// MaybeRunShim must be the first call in main of a worker that runs programs. The
// worker starts its own executable a second time as a supervisor, which ends the
// programs when the worker dies. In the supervisor, this call does not return. A
// worker that only uses HandleHTTP does not need it.
func MaybeRunShim() { subproc.MaybeRunShim() }

// AdoptOrphans makes this process the parent of processes that lose theirs, and end them, when a program
// kills its supervisor (Linux). Call it at the start of main, in an executable that starts no other
// processes than package programs does: all its other children are ended too.
func AdoptOrphans() { subproc.AdoptOrphans() }

// Conceal closes this process's memory and environment, in which secrets are, to programs that run as
// the same user (Linux). Debuggers need root then, and there are no core files. Call it at the start of main.
func Conceal() { subproc.Conceal() }

// Programs gives a worker handlers that are programs. Make one with New, and call
// its methods before the worker's Run. Each returns an error for a kind that has a
// handler already, and takes the options of the kind, as worker.Handle does; nil
// means the defaults.
type Programs struct {
	worker     *worker.Worker
	host       *worker.ExternalHost
	breaker    *breaker.Breaker
	supervisor subproc.Supervisor
	graceMax   time.Duration // the longest that any program has between SIGTERM and SIGKILL
	pools      []*streamPool // the processes that are kept between jobs
	clients    []*http.Client
	// checks say, by kind, why its program could not be started now.
	checks map[string]func() error

	mu sync.Mutex
	// guarded by mu
	noticeDir string                       // of the files of notices; "" until there is one
	counts    map[string]*monitor.Programs // by kind
}

// New returns Programs for the worker, without a handler. Call it before the worker's Run. With a worker that is
// nil, each of their methods returns an error.
func New(w *worker.Worker) *Programs {
	p := &Programs{worker: w, counts: make(map[string]*monitor.Programs), checks: make(map[string]func() error)}
	if w == nil {
		return p
	}
	p.host = worker.Attach(w, external{p})
	p.breaker = breaker.New(p.host.Logger(), p.host.Wake)
	return p
}

// handler runs one job.
type handler func(ctx context.Context, run worker.ExternalRun, args []byte) error

// handle registers the handler of a kind. If the handler cannot be reached, the job does not lose
// an attempt.
func (p *Programs) handle(kind string, handler handler, options *worker.HandleOptions) error {
	return worker.HandleRaw(p.worker, kind, func(ctx context.Context, job *worker.Job[jobq.RawArgs]) error {
		err := handler(ctx, worker.ExternalRun{Run: job.Run}, job.Args.JSON)
		var away *breaker.Error
		if errors.As(err, &away) {
			return worker.Unreached(err)
		}
		return err
	}, options)
}

// handleProgram is handle for a program. If it could not be started now, this is said at once, and
// the kind waits from the beginning.
func (p *Programs) handleProgram(kind string, command Command, handler handler, options *worker.HandleOptions) error {
	if err := p.handle(kind, handler, options); err != nil {
		return err
	}
	p.graceMax = max(p.graceMax, command.Grace)
	if !command.isOwn() {
		return nil
	}
	check := func() error {
		environ, err := subproc.Environ(command.Environ, command.Env)
		if err != nil {
			return nil // each job says it
		}
		return subproc.CheckProgram(command.Args[0], command.Dir, environ)
	}
	p.checks[kind] = check
	if trouble := check(); trouble != nil {
		try, err := p.breaker.Begin(kind)
		if err != nil {
			return err // never: the kind is new
		}
		_ = try.Failed(trouble) // said in the log
	}
	return nil
}

// start runs a program for a kind until all its processes have ended, and counts it. If the machine
// has no room for a process now, or the program that the worker has for the kind is not there, the job
// does not lose an attempt.
func (p *Programs) start(ctx context.Context, kind string, try *breaker.Try, isOwn bool, command subproc.Command) (subproc.Result, error) {
	p.count(kind, func(sum *monitor.Programs) { sum.Started++ })
	ended, err := p.supervisor.Run(ctx, command)
	p.count(kind, func(sum *monitor.Programs) { addEnd(sum, ended, err) })
	if len(ended.Left) > 0 {
		log := p.host.Logger()
		log.Warn("processes of a program cannot be ended", "kind", kind, "processes", printable.FirstLine(listLeft(ended)))
	}
	switch {
	case err == nil:
	case subproc.IsMachineTrouble(err), isOwn && subproc.IsProgramTrouble(err):
		err = try.Failed(err)
	default:
		try.Reached() // the program failed for another reason, so the machine has room
	}
	return ended, err
}

// listLeft names the processes that could not be ended.
func listLeft(ended subproc.Result) string {
	texts := make([]string, 0, leftShown)
	for i, process := range ended.Left {
		if i == leftShown {
			texts = append(texts, fmt.Sprintf("and %d more", len(ended.Left)-i))
			break
		}
		texts = append(texts, process.String())
	}
	return strings.Join(texts, ", ")
}

// errLeft fails a run whose program has left processes that nobody here may end.
func errLeft(ended subproc.Result) error {
	return errors.New("processes that the program has started cannot be ended: " + listLeft(ended))
}

// external has the methods of Programs that the worker calls.
type external struct{ *Programs }

// Claimable returns the kinds whose handlers can be reached.
func (e external) Claimable(kinds []string) []string { return e.breaker.Claimable(kinds) }

// unreachedFor is how long a handler counts as out of reach after the latest failure. While there
// are jobs, one tries at least every 30 s. Without jobs nobody knows.
const unreachedFor = 2 * time.Minute

// Unreached says of each kind why its handler cannot be reached.
func (e external) Unreached() map[string]string {
	unreached := make(map[string]string)
	for kind, outage := range e.breaker.Outages() {
		isMended := e.checks[kind] != nil && subproc.IsProgramTrouble(outage.Reason) // unless the check finds it again
		if time.Since(outage.At) < unreachedFor && !isMended {
			unreached[kind] = printable.FirstLine(outage.Reason.Error())
		}
	}
	for kind, check := range e.checks {
		if trouble := check(); trouble != nil {
			unreached[kind] = printable.FirstLine(trouble.Error())
		}
	}
	return unreached
}

// Grace is the longest time that any program has between SIGTERM and SIGKILL.
func (e external) Grace() time.Duration { return e.graceMax }

// Close ends the processes and connections that were kept for the next job.
func (e external) Close() {
	var closing sync.WaitGroup
	for _, pool := range e.pools {
		closing.Go(pool.close)
	}
	closing.Wait()
	for _, client := range e.clients {
		client.CloseIdleConnections()
	}
	e.supervisor.Close()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.noticeDir != "" {
		_ = os.RemoveAll(e.noticeDir) // a folder of temporary files
	}
}
