package bench

import (
	"time"

	"github.com/jobq-dev/jobq/internal/measure"
)

// Result is what a bench has measured.
type Result struct {
	Bench       string            `json:"bench"`
	StartedAt   time.Time         `json:"started_at"`
	Server      []measure.Setting `json:"server"`
	Cores       int               `json:"client_cores"`
	RoundTripMs float64           `json:"round_trip_ms"` // the median of "select 1"
	CommitMs    float64           `json:"commit_ms"`     // the median of an insert of one row
	Cases       []Case            `json:"cases"`
}

// Case is one line of a result.
type Case struct {
	Name    string   `json:"name"`
	Figures []Figure `json:"figures"`
	// Limit says what kept it from being faster, where that can be told.
	Limit string `json:"limited_by,omitempty"`
	// Rates are jobs a second over time, for a chart.
	Rates *measure.Series `json:"rates,omitempty"`
}

// Figure is a number with its unit.
type Figure struct {
	Name  string  `json:"name"`
	Unit  string  `json:"unit"`
	Value float64 `json:"value"`
}

func (c *Case) add(name, unit string, value float64) {
	c.Figures = append(c.Figures, Figure{name, unit, value})
}

// addLatency adds the parts of a distribution that matter.
func (c *Case) addLatency(samples []time.Duration) {
	summary := measure.Summarize(samples)
	c.add("p50", "ms", milliseconds(summary.P50))
	c.add("p99", "ms", milliseconds(summary.P99))
	c.add("max", "ms", milliseconds(summary.Max))
}

// addCost adds what each job has cost.
func (c *Case) addCost(usage measure.Usage, jobs int) {
	perJob := func(duration time.Duration) float64 {
		return float64(duration.Nanoseconds()) / 1e3 / float64(max(jobs, 1))
	}
	c.add("client cpu", "us/job", perJob(usage.ClientCPU))
	if usage.ServerKnown {
		c.add("server cpu", "us/job", perJob(usage.ServerCPU))
	}
	c.add("wal", "B/job", float64(usage.WALBytes)/float64(max(jobs, 1)))
}

// rate is the figure that most cases have and compare by.
func (c *Case) rate() float64 {
	for _, figure := range c.Figures {
		if figure.Name == "jobs" {
			return figure.Value
		}
	}
	return 0
}

func milliseconds(duration time.Duration) float64 {
	return float64(duration) / float64(time.Millisecond)
}
