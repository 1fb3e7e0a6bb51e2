package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/jobq-dev/jobq/worker"
)

var (
	workerClaimed  = counter("jobq_worker_claimed_total", "Jobs that the worker has claimed.")
	workerRuns     = counter("jobq_worker_runs_total", "Runs that ended, by outcome.", "outcome")
	workerLost     = counter("jobq_worker_leases_lost_total", "Runs whose lease was lost: nothing of them is stored.")
	workerReady    = gauge("jobq_worker_ready", "Whether the worker is ready, as at /readyz.")
	workerHeld     = gauge("jobq_worker_held", "Whether an operator holds the worker's host, so that it claims nothing.")
	workerResting  = gauge("jobq_worker_kinds_resting", "Kinds that the worker leaves to others for now, since its own runs of them fail.")
	workerNotified = gauge("jobq_worker_notified", "Whether notifications of new jobs arrive; if not, the worker polls.")
	workerConns    = gauge("jobq_worker_connections", "Connections of the worker's own pool.", "state")
	workerConnsMax = gauge("jobq_worker_connections_max", "The most connections that the worker's own pool may have.")
)

// Worker is a collector of what a worker has done, and of how it is.
type Worker struct{ worker *worker.Worker }

// NewWorker returns a collector of the worker. It may be scraped before the worker
// runs and after it. [Runs] adds how long runs take.
func NewWorker(w *worker.Worker) *Worker { return &Worker{w} }

// Describe implements prometheus.Collector.
func (w *Worker) Describe(to chan<- *prometheus.Desc) {
	for _, m := range []metric{workerClaimed, workerRuns, workerLost, workerReady, workerHeld, workerResting, workerNotified, workerConns, workerConnsMax} {
		to <- m.desc
	}
}

// Collect implements prometheus.Collector.
func (w *Worker) Collect(to chan<- prometheus.Metric) {
	counts, health := w.worker.Counts(), w.worker.Health()
	workerClaimed.send(to, float64(counts.Claimed))
	workerRuns.send(to, float64(counts.Completed), "completed")
	workerRuns.send(to, float64(counts.Failed), "failed")
	workerRuns.send(to, float64(counts.Released), "released")
	workerRuns.send(to, float64(counts.Snoozed), "snoozed")
	workerRuns.send(to, float64(counts.Unreadable), "unreadable")
	workerRuns.send(to, float64(counts.Cancelled), "cancelled")
	workerLost.send(to, float64(counts.Lost))
	workerReady.send(to, bit(health.Problems() == nil))
	workerHeld.send(to, bit(health.Held))
	workerResting.send(to, float64(len(health.Resting)))
	workerNotified.send(to, bit(health.Notified))
	workerConns.send(to, float64(health.ConnectionsInUse), "in_use")
	workerConns.send(to, float64(health.Connections-health.ConnectionsInUse), "idle")
	workerConnsMax.send(to, float64(health.ConnectionsMax))
}
