package programs

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/subproc"
	"github.com/jobq-dev/jobq/monitor"
	"github.com/jobq-dev/jobq/worker"
	"github.com/jobq-dev/jobq/worker/programs/internal/breaker"
)

// callTimeout is the longest time of a call to the database that a program's message causes.
const callTimeout = 5 * time.Second

// MaybeRunShim must be the first call in main of a worker that runs programs. The
// worker starts its own executable a second time as a supervisor, which ends the
// programs when the worker dies. In the supervisor, this call does not return. A
// worker that only uses HandleHTTP does not need it.
func MaybeRunShim() { subproc.MaybeRunShim() }

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

	mu sync.Mutex
	// guarded by mu
	counts map[string]*monitor.Programs // by kind
}

// New returns Programs for the worker, without a handler. Call it before the worker's Run.
func New(w *worker.Worker) *Programs {
	p := &Programs{worker: w, counts: make(map[string]*monitor.Programs)}
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

// start runs a program for a kind until all its processes have ended, and counts it. If the machine
// has no room for a process now, the job does not lose an attempt.
func (p *Programs) start(ctx context.Context, kind string, try *breaker.Try, command subproc.Command) (subproc.Result, error) {
	command.Started = try.Reached
	p.count(kind, func(sum *monitor.Programs) { sum.Started++ })
	ended, err := p.supervisor.Run(ctx, command)
	p.count(kind, func(sum *monitor.Programs) { addEnd(sum, ended, err) })
	switch {
	case err == nil:
	case subproc.IsMachineTrouble(err):
		err = try.Failed(err)
	default:
		try.Reached() // the program failed for another reason, so the machine has room
	}
	return ended, err
}

// external has the methods of Programs that the worker calls.
type external struct{ *Programs }

// Claimable returns the kinds whose handlers can be reached.
func (e external) Claimable(kinds []string) []string { return e.breaker.Claimable(kinds) }

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
}
