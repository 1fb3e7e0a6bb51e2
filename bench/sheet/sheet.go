// Package sheet keeps what a benchmark has measured: all values of all rounds, in a file beside the report, and as tables,
// charts and bars in it.
package sheet

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/jobq-dev/jobq/internal/measure"
)

// Sheet holds the values of all rounds, in the order in which they came up.
type Sheet struct {
	values map[Entry][]float64
	order  []Entry
	charts []Chart
	Runs   map[string]*Run // by scenario
}

// Run says when and how a scenario was measured, and what went wrong.
type Run struct {
	Started time.Time `json:"started"`
	Ended   time.Time `json:"ended"`
	Commit  string    `json:"commit"`
	Command string    `json:"command"`
	Rounds  int       `json:"rounds"`
	Scale   float64   `json:"scale"`
	Only    string    `json:"only,omitempty"` // the systems, when not all
	// Environment is the machine and the versions.
	Environment string   `json:"environment"`
	Problems    []string `json:"problems,omitempty"`
}

// Entry is one figure of a contender in a scenario; a scenario may have
// several cases.
type Entry struct{ Scenario, Test, Contender, Figure string }

// Of is the entry of a figure.
func Of(scenario, test, contender, figure string) Entry {
	return Entry{scenario, test, contender, figure}
}

// Chart is a figure over time.
type Chart struct {
	Scenario, Test, Contender, Unit string
	Series                          measure.Series
}

// New is an empty sheet.
func New() *Sheet {
	return &Sheet{values: make(map[Entry][]float64), Runs: make(map[string]*Run)}
}

// Put adds a value of one round.
func (s *Sheet) Put(e Entry, value float64) {
	if _, ok := s.values[e]; !ok {
		s.order = append(s.order, e)
	}
	s.values[e] = append(s.values[e], value)
}

// Draw adds charts.
func (s *Sheet) Draw(charts ...Chart) { s.charts = append(s.charts, charts...) }

// Median is false when nothing was measured.
func (s *Sheet) Median(e Entry) (float64, bool) {
	spread, ok := s.Spread(e)
	return spread.Median, ok
}

// distinct are the values of a part of the entries of a scenario, in order.
func (s *Sheet) distinct(scenario string, part func(Entry) string) []string {
	var found []string
	for _, e := range s.order {
		if e.Scenario == scenario && !slices.Contains(found, part(e)) {
			found = append(found, part(e))
		}
	}
	return found
}

// Write writes a scenario as a table of medians, with the range of the rounds.
func (s *Sheet) Write(out io.Writer, scenario string) {
	figures := s.distinct(scenario, func(e Entry) string { return e.Figure })
	tests := s.distinct(scenario, func(e Entry) string { return e.Test })
	fmt.Fprintf(out, "| | %s |\n|---|%s\n", strings.Join(figures, " | "), strings.Repeat("---:|", len(figures)))
	for _, test := range tests {
		for _, contender := range s.distinct(scenario, func(e Entry) string { return e.Contender }) {
			cells, any := []string{strings.Trim(test+", "+contender, ", ")}, false
			for _, figure := range figures {
				values := s.values[Entry{scenario, test, contender, figure}]
				if any = any || len(values) > 0; len(values) == 0 {
					cells = append(cells, "")
					continue
				}
				cells = append(cells, cell(measure.SpreadOf(values), len(values)))
			}
			if any {
				fmt.Fprintf(out, "| %s |\n", strings.Join(cells, " | "))
			}
		}
	}
	for _, c := range s.charts {
		if c.Scenario == scenario {
			fmt.Fprintf(out, "\n%s, %s, %s:\n\n```\n%s```\n", c.Test, c.Contender, c.Unit, measure.Chart(c.Series, s.top(scenario, c.Unit)))
		}
	}
}

// heading begins the part of a page that is about a scenario.
func heading(title string) string { return "\n## " + title + "\n" }

// WriteScenario writes when and how a scenario was measured, and what came out; nothing when it was not. The environment is
// that of the report: another one is told.
func (s *Sheet) WriteScenario(out io.Writer, scenario, title, about, environment string) {
	run, ok := s.Runs[scenario]
	if !ok {
		return
	}
	fmt.Fprintf(out, "%s\n%s\n\n%s to %s, %s, commit %s, `%s`\n\n", heading(title), about, run.Started.Format("2006-01-02 15:04"),
		run.Ended.Format("15:04 UTC"), Count(run.Rounds, "round"), run.Commit, run.Command)
	if run.Environment != environment {
		fmt.Fprintf(out, "Elsewhere:\n\n%s\n\n", run.Environment)
	}
	if run.Scale != 1 {
		fmt.Fprintf(out, "At a scale of %g: these figures mean little.\n\n", run.Scale)
	}
	s.Write(out, scenario)
	for _, problem := range run.Problems {
		fmt.Fprintf(out, "\nProblem: %s\n", problem)
	}
}

// Count is a number with its noun.
func Count(number int, noun string) string {
	switch {
	case number == 1:
		return "1 " + noun
	case strings.HasSuffix(noun, "s"):
		return fmt.Sprintf("%d %ses", number, noun)
	}
	return fmt.Sprintf("%d %ss", number, noun)
}

// top is the scale of a scenario's charts of one unit: one for all, to compare them.
func (s *Sheet) top(scenario, unit string) float64 {
	top := 0.0
	for _, c := range s.charts {
		if c.Scenario == scenario && c.Unit == unit {
			top = max(top, measure.Top(c.Series.Fit(60)))
		}
	}
	return top
}

func cell(spread measure.Spread, rounds int) string {
	if rounds == 1 {
		return Number(spread.Median)
	}
	return fmt.Sprintf("%s (%s–%s)", Number(spread.Median), Number(spread.Min), Number(spread.Max))
}

// Number is a figure with as many digits as mean something.
func Number(value float64) string {
	switch {
	case value >= 1000:
		return fmt.Sprintf("%.0f", value)
	case value >= 10:
		return fmt.Sprintf("%.1f", value)
	}
	return fmt.Sprintf("%.2f", value)
}
