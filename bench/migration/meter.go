package main

import (
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/jobq-dev/jobq/internal/measure"
)

// call is one call of a session, which the server knows by its pid.
type call struct {
	pid   uint32
	began time.Time
	took  time.Duration
}

// meter collects how long calls took, by phase and by what they did.
type meter struct {
	waits waits

	mu    sync.Mutex
	phase string                       // guarded by mu, as calls
	calls map[string]map[string][]call // by phase and kind of call
}

func newMeter() *meter { return &meter{calls: make(map[string]map[string][]call)} }

// begin begins a phase.
func (m *meter) begin(phase string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.phase = phase
	m.calls[phase] = make(map[string][]call)
}

// called notes a call that has ended just now. It counts for the phase in which it ended.
func (m *meter) called(what string, pid uint32, began time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.calls[m.phase][what] = append(m.calls[m.phase][what], call{pid: pid, began: began, took: time.Since(began)})
}

// count is how many calls there are in a phase.
func (m *meter) count(phase, what string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.calls[phase][what])
}

// of sums up the calls of a phase, and returns the longest.
func (m *meter) of(phase, what string) (summary measure.Summary, longest call) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []time.Duration
	for _, c := range m.calls[phase][what] {
		all = append(all, c.took)
		if c.took > longest.took {
			longest = c
		}
	}
	return measure.Summarize(all), longest
}

// report prints a line for each kind of call: in a migration, and before it. It
// says of the longest when it began, counted from the migration's begin, and what
// its session was seen to wait for.
func (m *meter) report(out io.Writer, before, during string, began time.Time) {
	fmt.Fprintf(out, "%-8s %10s %10s %10s   %10s %10s %10s\n", "", "before: n", "p99", "max", "during: n", "p99", "max")
	for _, what := range []string{"insert", "claim", "end"} {
		b, _ := m.of(before, what)
		d, longest := m.of(during, what)
		fmt.Fprintf(out, "%-8s %10d %10s %10s   %10d %10s %10s   at %s, waits: %s\n", what, b.Count, ms(b.P99), ms(b.Max),
			d.Count, ms(d.P99), ms(d.Max), rounded(longest.began.Sub(began)), m.waits.of(longest))
	}
}

func ms(d time.Duration) string { return fmt.Sprintf("%.1f ms", float64(d.Microseconds())/1000) }
