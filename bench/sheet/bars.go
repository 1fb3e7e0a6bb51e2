package sheet

import (
	"fmt"
	"io"
)

// Bar is a promise of ours, and a ratio or figure that shows whether it is
// kept.
type Bar struct {
	What  string
	Value func(s *Sheet) (float64, bool) // false when it was not measured
	Limit float64
	Most  bool // the limit is the most that is allowed, and not the least
}

// Ratio divides two medians.
func Ratio(above, below Entry) func(s *Sheet) (float64, bool) {
	return func(s *Sheet) (float64, bool) {
		a, okA := s.Median(above)
		b, okB := s.Median(below)
		return a / b, okA && okB && b != 0
	}
}

// OfBest is a figure's share of the better of the two.
func OfBest(e, other Entry) func(s *Sheet) (float64, bool) {
	return func(s *Sheet) (float64, bool) {
		a, okA := s.Median(e)
		b, okB := s.Median(other)
		return a / max(a, b), okA && okB && a > 0
	}
}

// Figure is a median as it is.
func Figure(e Entry) func(s *Sheet) (float64, bool) {
	return func(s *Sheet) (float64, bool) { return s.Median(e) }
}

// Verdict compares a bar with what was measured: its value, the limit, and whether it is met.
func (b Bar) Verdict(s *Sheet) (value, limit, verdict string) {
	measured, ok := b.Value(s)
	sign, met := "≥", measured >= b.Limit
	if b.Most {
		sign, met = "≤", measured <= b.Limit
	}
	limit = sign + " " + Number(b.Limit)
	switch {
	case !ok:
		return "", limit, "not measured"
	case met:
		return Number(measured), limit, "met"
	}
	return Number(measured), limit, "**not met**"
}

// WriteBars writes bars as a table, also those that were not measured.
func WriteBars(out io.Writer, s *Sheet, bars []Bar) {
	fmt.Fprint(out, "| | value | bar | |\n|---|---:|---:|---|\n")
	for _, b := range bars {
		value, limit, verdict := b.Verdict(s)
		if value != "" {
			value += " "
		}
		fmt.Fprintf(out, "| %s | %s| %s | %s |\n", b.What, value, limit, verdict)
	}
}
