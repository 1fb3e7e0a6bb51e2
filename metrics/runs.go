package metrics

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/jobq-dev/jobq/worker"
)

// kindsMax is how many pairs of queue and kind have histograms of their own. The
// kinds of later ones are "other".
const kindsMax = 100

// otherName is the label of the kinds beyond kindsMax, and of queues beyond queuesMax.
const otherName = "other"

// Runs measures the runs of a worker, by queue and kind: the first 100 pairs each by
// itself, and later pairs as kind "other" of their queue. Make one with NewRuns.
type Runs struct {
	run, wait *prometheus.HistogramVec
	pairs     sync.Map // of pair to *observers

	mu sync.Mutex
	// guarded by mu
	known int // pairs
}

type pair struct{ queue, kind string }

// observers are the histograms of a pair, looked up once.
type observers struct{ run, wait prometheus.Observer }

// NewRuns returns Runs that have measured nothing yet.
func NewRuns() *Runs {
	vector := func(name, help string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: name, Help: help, Buckets: []float64{.001, .005, .025, .1, .5, 1, 5, 15, 60, 300, 1800, 7200},
		}, []string{"queue", "kind"})
	}
	return &Runs{
		run:  vector("jobq_worker_run_seconds", "How long handlers ran."),
		wait: vector("jobq_worker_wait_seconds", "How long jobs were ready before this worker claimed them."),
	}
}

// Middleware measures each run. Put it first in worker.Config.Middleware. It takes
// no lock once a pair is known.
func (r *Runs) Middleware(ctx context.Context, run *worker.Run, next func(ctx context.Context) error) error {
	of := r.of(pair{run.Queue(), run.Kind()})
	of.wait.Observe(run.Waited().Seconds())
	began := time.Now()
	defer func() { of.run.Observe(time.Since(began).Seconds()) }() // after a panic, too
	return next(ctx)
}

// of returns the histograms of a pair.
func (r *Runs) of(p pair) *observers {
	if known, ok := r.pairs.Load(p); ok {
		return known.(*observers) //nolint:forcetypeassert // nothing else is stored
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if known, ok := r.pairs.Load(p); ok { // made by another run meanwhile
		return known.(*observers) //nolint:forcetypeassert // nothing else is stored
	}
	label := p.kind
	if r.known++; r.known > kindsMax {
		label = otherName
	}
	made := &observers{r.run.WithLabelValues(p.queue, label), r.wait.WithLabelValues(p.queue, label)}
	r.pairs.Store(p, made)
	return made
}

// Describe implements prometheus.Collector.
func (r *Runs) Describe(to chan<- *prometheus.Desc) {
	r.run.Describe(to)
	r.wait.Describe(to)
}

// Collect implements prometheus.Collector.
func (r *Runs) Collect(to chan<- prometheus.Metric) {
	r.run.Collect(to)
	r.wait.Collect(to)
}
