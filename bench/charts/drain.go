package main

import (
	"fmt"
	"strings"

	"github.com/jobq-dev/jobq/bench/sheet"
	"github.com/jobq-dev/jobq/internal/measure"
)

// drained are the bars of the drain, group by group.
var drained = []struct {
	title      string
	contenders []string
}{
	{"Tuned", []string{"jobq, tuned", "graphile-worker, tuned", "pg-boss, tuned", "river, tuned"}},
	{"At their defaults", []string{"jobq, defaults", "graphile-worker, defaults", "river, defaults", "pg-boss, defaults"}},
	{"For comparison", []string{"hand-written SQL"}},
}

// Where bars begin, and how long the longest one is, in pixels.
const barLeft, barRoom = 140.0, 520.0

// drawDrain draws the rates of the drain as bars.
func drawDrain(s *sheet.Sheet) ([]byte, error) {
	run := s.Runs["drain"]
	if run == nil {
		return nil, fmt.Errorf("the drain was not measured")
	}
	spreads, most := make(map[string]measure.Spread), 0.0
	for _, group := range drained {
		for _, contender := range group.contenders {
			spread, ok := s.Spread(sheet.Of("drain", "", contender, "jobs/s"))
			if !ok {
				return nil, fmt.Errorf("the drain of %q was not measured", contender)
			}
			spreads[contender] = spread
			most = max(most, spread.Max)
		}
	}
	var p picture
	y := 40.0
	for _, group := range drained {
		y += 18
		p.text(16, y, "weak", group.title)
		y += 8
		for _, contender := range group.contenders {
			p.bar(y, contender, spreads[contender], most)
			y += 24
		}
	}
	return p.finish(int(y)+64, "Jobs a second, one worker process, 100,000 waiting jobs that do nothing",
		fmt.Sprintf("Medians of %s; a thin line goes from the least to the most. bench/README.md says how each was set up.", sheet.Count(run.Rounds, "round")),
		"graphile-worker keeps no finished jobs; the others do. Hand-written SQL works on jobq's table layout, and runs no handlers.",
		source(run)), nil
}

// bar draws a bar with its name, its figure, and a line for its range.
func (p *picture) bar(y float64, contender string, spread measure.Spread, most float64) {
	system, _, _ := strings.Cut(contender, ", ")
	at := func(value float64) float64 { return barRoom * value / most }
	p.text(barLeft-8, y+14, "end", name(system))
	fmt.Fprintf(p, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"18\" class=\"%s\"/>\n", barLeft, y, at(spread.Median), colour(system))
	fmt.Fprintf(p, "<path d=\"M%.1f %.1fH%.1f\" class=\"range\"/>\n", barLeft+at(spread.Min), y+9, barLeft+at(spread.Max))
	p.text(barLeft+at(spread.Max)+8, y+14, "", measure.Short(spread.Median))
}
