package main

import (
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/jobq-dev/jobq/internal/measure"
)

// meter collects how long calls took, by phase and by what they did.
type meter struct {
	mu    sync.Mutex
	phase string // guarded by mu, as calls
	calls map[string]map[string][]time.Duration
}

func newMeter() *meter { return &meter{calls: make(map[string]map[string][]time.Duration)} }

// begin begins a phase.
func (m *meter) begin(phase string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.phase = phase
	m.calls[phase] = make(map[string][]time.Duration)
}

// called notes a call that has ended. It counts for the phase in which it ended.
func (m *meter) called(what string, took time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.calls[m.phase][what] = append(m.calls[m.phase][what], took)
}

// of sums up the calls of a phase.
func (m *meter) of(phase, what string) measure.Summary {
	m.mu.Lock()
	defer m.mu.Unlock()
	return measure.Summarize(m.calls[phase][what])
}

// report prints a line for each kind of call: in a migration, and before it.
func (m *meter) report(out io.Writer, before, during string) {
	fmt.Fprintf(out, "%-8s %10s %10s %10s   %10s %10s %10s\n", "", "before: n", "p99", "max", "during: n", "p99", "max")
	for _, what := range []string{"insert", "claim", "end"} {
		b, d := m.of(before, what), m.of(during, what)
		fmt.Fprintf(out, "%-8s %10d %10s %10s   %10d %10s %10s\n", what, b.Count, ms(b.P99), ms(b.Max), d.Count, ms(d.P99), ms(d.Max))
	}
}

func ms(d time.Duration) string { return fmt.Sprintf("%.1f ms", float64(d.Microseconds())/1000) }
