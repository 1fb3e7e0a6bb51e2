package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/jobq-dev/jobq/internal/measure"
)

// sheet holds the values of all rounds, in the order in which they came up.
type sheet struct {
	values map[entry][]float64
	order  []entry
	charts []chart
	runs   map[string]*runOf // by scenario
}

// runOf says when and how a scenario was measured, and what went wrong.
type runOf struct {
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

// entry is one figure of a contender in a scenario; a scenario may have
// several cases.
type entry struct{ scenario, test, contender, figure string }

// chart is a figure over time.
type chart struct {
	scenario, test, contender, unit string
	series                          measure.Series
}

func newSheet() *sheet {
	return &sheet{values: make(map[entry][]float64), runs: make(map[string]*runOf)}
}

// put adds a value of one round.
func (s *sheet) put(e entry, value float64) {
	if _, ok := s.values[e]; !ok {
		s.order = append(s.order, e)
	}
	s.values[e] = append(s.values[e], value)
}

// median is false when nothing was measured.
func (s *sheet) median(e entry) (float64, bool) {
	values := s.values[e]
	if len(values) == 0 {
		return 0, false
	}
	return measure.SpreadOf(values).Median, true
}

// distinct are the values of a part of the entries of a scenario, in order.
func (s *sheet) distinct(scenario string, part func(entry) string) []string {
	var found []string
	for _, e := range s.order {
		if e.scenario == scenario && !slices.Contains(found, part(e)) {
			found = append(found, part(e))
		}
	}
	return found
}

// write writes a scenario as a table of medians, with the range of the rounds.
func (s *sheet) write(out io.Writer, scenario string) {
	figures := s.distinct(scenario, func(e entry) string { return e.figure })
	tests := s.distinct(scenario, func(e entry) string { return e.test })
	fmt.Fprintf(out, "| | %s |\n|---|%s\n", strings.Join(figures, " | "), strings.Repeat("---:|", len(figures)))
	for _, test := range tests {
		for _, contender := range s.distinct(scenario, func(e entry) string { return e.contender }) {
			cells, any := []string{strings.Trim(test+", "+contender, ", ")}, false
			for _, figure := range figures {
				values := s.values[entry{scenario, test, contender, figure}]
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
		if c.scenario == scenario {
			fmt.Fprintf(out, "\n%s, %s, %s:\n\n```\n%s```\n", c.test, c.contender, c.unit, measure.Chart(c.series, s.top(scenario, c.unit)))
		}
	}
}

// top is the scale of a scenario's charts of one unit: one for all, to compare them.
func (s *sheet) top(scenario, unit string) float64 {
	top := 0.0
	for _, c := range s.charts {
		if c.scenario == scenario && c.unit == unit {
			top = max(top, measure.Top(c.series.Fit(60)))
		}
	}
	return top
}

func cell(spread measure.Spread, rounds int) string {
	if rounds == 1 {
		return number(spread.Median)
	}
	return fmt.Sprintf("%s (%s–%s)", number(spread.Median), number(spread.Min), number(spread.Max))
}

func number(value float64) string {
	switch {
	case value >= 1000:
		return fmt.Sprintf("%.0f", value)
	case value >= 10:
		return fmt.Sprintf("%.1f", value)
	}
	return fmt.Sprintf("%.2f", value)
}
