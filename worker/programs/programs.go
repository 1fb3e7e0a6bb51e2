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

// callTimeout bounds a call to the database for what a program has said.
const callTimeout = 5 * time.Second

// MaybeRunShim must be the first call in main of a program that runs programs:
// between a worker and the programs it runs stands this executable once more, to
// end them when the worker dies, and then this call does not return. Only
// HandleHTTP does without.
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
	pools      []*streamPool // of processes that are kept between jobs
	clients    []*http.Client

	mu sync.Mutex
	// guarded by mu
	counts map[string]*monitor.Programs // by kind
}

// New returns what gives the worker handlers that are programs.
func New(w *worker.Worker) *Programs {
	p := &Programs{worker: w, counts: make(map[string]*monitor.Programs)}
	p.host = worker.Attach(w, external{p})
	p.breaker = breaker.New(p.host.Logger(), p.host.Wake)
	return p
}

// handler runs one job.
type handler func(ctx context.Context, run worker.ExternalRun, args []byte) error

// handle gives the kind a handler. One that cannot be reached is no failed attempt.
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

// start runs a program for a kind until all of it has ended, and counts it. That
// the machine has no room for it now is no fault of the job's.
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
		try.Reached() // it is something else now
	}
	return ended, err
}

// external is what the worker asks of Programs.
type external struct{ *Programs }

// Claimable leaves out the kinds whose handlers cannot be reached.
func (e external) Claimable(kinds []string) []string { return e.breaker.Claimable(kinds) }

// Grace is the longest that any program has.
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
