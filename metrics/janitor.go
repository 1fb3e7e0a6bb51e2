package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/jobq-dev/jobq/janitor"
)

var (
	janitorLeading = gauge("jobq_janitor_leading", "Whether the janitor is the leader.")
	janitorReaped  = counter("jobq_janitor_reaped_total", "Runs whose lease had ended, taken away from their workers.")
	janitorPasses  = counter("jobq_janitor_passes_total", "Passes of recovery that came to their end.")
	janitorErrors  = counter("jobq_janitor_errors_total", "What the janitor could not do, as in jobq janitor events.")
	janitorLooked  = gauge("jobq_janitor_last_look_timestamp_seconds", "When the janitor last looked what is due, as Unix time.")
	janitorChore   = gauge("jobq_janitor_chore_last_success_timestamp_seconds",
		"When this janitor last finished the chore, as Unix time.", "chore")
)

// Janitor is a collector of what a janitor has done.
type Janitor struct{ janitor *janitor.Janitor }

// NewJanitor returns a collector of the janitor. It may be scraped before the
// janitor runs and after it.
func NewJanitor(j *janitor.Janitor) *Janitor { return &Janitor{j} }

// Describe implements prometheus.Collector.
func (j *Janitor) Describe(to chan<- *prometheus.Desc) {
	for _, m := range []metric{janitorLeading, janitorReaped, janitorPasses, janitorErrors, janitorLooked, janitorChore} {
		to <- m.desc
	}
}

// Collect implements prometheus.Collector.
func (j *Janitor) Collect(to chan<- prometheus.Metric) {
	status := j.janitor.Status()
	janitorLeading.send(to, bit(status.Leading))
	janitorReaped.send(to, float64(status.Reaped))
	janitorPasses.send(to, float64(status.Passes))
	janitorErrors.send(to, float64(status.Errors))
	if !status.LookedAt.IsZero() {
		janitorLooked.send(to, unix(status.LookedAt))
	}
	for chore, at := range status.ChoresDone {
		janitorChore.send(to, unix(at), chore)
	}
}

func unix(at time.Time) float64 { return float64(at.UnixMilli()) / 1000 }
