package metrics

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

var (
	doctorFindings = gauge("jobq_doctor_findings", "Findings of the last examination, as of jobq doctor.", "severity")
	doctorAt       = gauge("jobq_doctor_timestamp_seconds", "When the database was last examined, as Unix time.")
)

// Findings is how many findings of each severity an examination has.
type Findings struct{ Critical, Warning, Note int }

// Doctor is a collector of what examinations of a database find. Scrapes get the findings of the
// last one, and never wait for another. It is safe for concurrent use.
type Doctor struct {
	examine func(context.Context) (Findings, error)
	every   time.Duration

	mu   sync.Mutex
	last Findings  // guarded by mu
	at   time.Time // guarded by mu: zero before the first
}

// NewDoctor returns a collector of what examine finds. Run calls examine at this interval.
// `jobq metrics` has one with the checks of jobq doctor.
func NewDoctor(examine func(context.Context) (Findings, error), every time.Duration) *Doctor {
	return &Doctor{examine: examine, every: every}
}

// Run examines the database until the context ends: at once, and then at the interval. If an
// examination fails, for example while the database is away, the figures stay as they are.
func (d *Doctor) Run(ctx context.Context) {
	ticker := time.NewTicker(d.every)
	defer ticker.Stop()
	for {
		if findings, err := d.examine(ctx); err == nil {
			d.mu.Lock()
			d.last, d.at = findings, time.Now()
			d.mu.Unlock()
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// Describe implements prometheus.Collector.
func (d *Doctor) Describe(to chan<- *prometheus.Desc) {
	to <- doctorFindings.desc
	to <- doctorAt.desc
}

// Collect implements prometheus.Collector.
func (d *Doctor) Collect(to chan<- prometheus.Metric) {
	d.mu.Lock()
	last, at := d.last, d.at
	d.mu.Unlock()
	if at.IsZero() {
		return // nothing is known
	}
	doctorAt.send(to, unix(at))
	doctorFindings.send(to, float64(last.Critical), "critical")
	doctorFindings.send(to, float64(last.Warning), "warning")
	doctorFindings.send(to, float64(last.Note), "note")
}
