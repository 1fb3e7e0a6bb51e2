package main

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/jobq-dev/jobq/bench/sheet"
	"github.com/jobq-dev/jobq/internal/measure"
)

// held are the lines of the scenario with a transaction held open.
var held = []string{"jobq, tuned", "pg-boss, tuned", "graphile-worker, tuned", "river, tuned"}

// Where the lines are drawn, in pixels.
const plotLeft, plotRight, plotTop, plotBottom = 72.0, 570.0, 48.0, 288.0

// scale is a logarithmic axis. It begins and ends with 1, 2 or 5 and zeros.
type scale struct{ low, high float64 }

// scaleOf is the scale that has room for all values above zero.
func scaleOf(lines ...measure.Series) scale {
	least := math.Inf(1)
	for _, line := range lines {
		for _, value := range line.Values {
			if value > 0 {
				least = min(least, value)
			}
		}
	}
	s := scale{low: 1, high: 10}
	if top := measure.Top(lines...); top > 0 {
		s = scale{low: step(least, false), high: step(top, true)}
	}
	return s
}

// step is the next 1, 2 or 5 with zeros: 3,000 is between 2,000 and 5,000.
func step(value float64, up bool) float64 {
	decade := math.Pow(10, math.Floor(math.Log10(value)))
	steps := []float64{1, 2, 5, 10}
	if up {
		return decade * steps[slices.IndexFunc(steps, func(s float64) bool { return decade*s >= value })]
	}
	slices.Reverse(steps)
	return decade * steps[slices.IndexFunc(steps, func(s float64) bool { return decade*s <= value })]
}

// y is where a value is drawn. What is below the axis, as a rate of zero is, is drawn on it.
func (s scale) y(value float64) float64 {
	share := math.Log(max(value, s.low)/s.low) / math.Log(s.high/s.low)
	return plotBottom - share*(plotBottom-plotTop)
}

// drawHeld draws the rates while a transaction is held open, over time.
func drawHeld(s *sheet.Sheet) ([]byte, error) {
	run := s.Runs["held"]
	if run == nil {
		return nil, fmt.Errorf("a transaction held open was not measured")
	}
	lines := make([]measure.Series, len(held))
	for i, contender := range held {
		line, ok := s.Series(sheet.Of("held", "transaction open", contender, "jobs/s"))
		if !ok || len(line.Values) < 2 {
			return nil, fmt.Errorf("the rate of %q with a transaction open was not measured", contender)
		}
		lines[i] = line
	}
	axis, length := scaleOf(lines...), time.Duration(len(lines[0].Values))*lines[0].Every
	var p picture
	p.axes(axis, length)
	labels := make([]label, 0, len(held))
	for i, contender := range held {
		system, _, _ := strings.Cut(contender, ", ")
		p.line(lines[i], axis, length, colour(system))
		_, last := lines[i].Ends()
		labels = append(labels, label{y: axis.y(last) + 4, class: colour(system), text: name(system) + " " + measure.Short(last)})
	}
	for _, l := range apart(labels) {
		p.text(plotRight+8, l.y, l.class, l.text)
	}
	return p.finish(int(plotBottom)+90, "Jobs a second while a transaction is held open elsewhere",
		"The scale is logarithmic: each number is ten times the one below. At the right is the mean of the last tenth of the time.",
		"All are tuned. Jobs are added by SQL as fast as they run, and do nothing.",
		source(run)), nil
}

// axes draws a line at 1, 10, 100 and so on, and the time below.
func (p *picture) axes(axis scale, length time.Duration) {
	for decade := math.Pow(10, math.Ceil(math.Log10(axis.low))); decade <= axis.high; decade *= 10 {
		fmt.Fprintf(p, "<path d=\"M%.1f %.1fH%.1f\" class=\"grid\"/>\n", plotLeft, axis.y(decade), plotRight)
		p.text(plotLeft-6, axis.y(decade)+4, "weak end", thousands(decade))
	}
	fmt.Fprintf(p, "<path d=\"M%.1f %.1fH%.1f\" class=\"grid\"/>\n", plotLeft, plotBottom, plotRight)
	p.text(plotLeft, plotBottom+18, "weak", "0")
	p.text(plotRight, plotBottom+18, "weak end", strings.TrimSuffix(length.Round(time.Second).String(), "0s"))
}

// thousands is a whole number with commas.
func thousands(number float64) string {
	digits := fmt.Sprintf("%.0f", number)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// line draws a rate over time, each value in the middle of its interval.
func (p *picture) line(line measure.Series, axis scale, length time.Duration, class string) {
	var path strings.Builder
	for i, value := range line.Values {
		share := (float64(i) + 0.5) * float64(line.Every) / float64(length)
		fmt.Fprintf(&path, "%c%.1f %.1f", "ML"[min(i, 1)], plotLeft+share*(plotRight-plotLeft), axis.y(value))
	}
	fmt.Fprintf(p, "<path d=\"%s\" class=\"over %s\"/>\n", path.String(), class)
}

// label is a text at the end of a line.
type label struct {
	y           float64
	class, text string
}

// apart moves labels down until none covers another.
func apart(labels []label) []label {
	slices.SortFunc(labels, func(a, b label) int { return cmp.Compare(a.y, b.y) })
	for i := 1; i < len(labels); i++ {
		labels[i].y = max(labels[i].y, labels[i-1].y+16)
	}
	return labels
}
