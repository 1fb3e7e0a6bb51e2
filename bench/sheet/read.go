package sheet

import "github.com/jobq-dev/jobq/internal/measure"

// Spread is the median of all rounds with the least and the most. It is false when nothing was measured.
func (s *Sheet) Spread(e Entry) (measure.Spread, bool) {
	values := s.values[e]
	if len(values) == 0 {
		return measure.Spread{}, false
	}
	return measure.SpreadOf(values), true
}

// Series is a figure over time. It is false when none was drawn.
func (s *Sheet) Series(e Entry) (measure.Series, bool) {
	for _, c := range s.charts {
		if e == Of(c.Scenario, c.Test, c.Contender, c.Unit) {
			return c.Series, true
		}
	}
	return measure.Series{}, false
}
