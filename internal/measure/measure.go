// Package measure is what benchmarks measure with: quantiles, rates over
// time and charts of them, the CPU time of client and server, and what the
// server says about itself. `jobq bench` and the module bench share it.
package measure

import (
	"math"
	"slices"
	"time"
)

// Summary is a distribution in five numbers.
type Summary struct {
	Count         int
	P50, P90, P99 time.Duration
	Max           time.Duration
}

// Summarize orders the samples in place and sums them up.
func Summarize(samples []time.Duration) Summary {
	slices.Sort(samples)
	s := Summary{Count: len(samples), P50: Quantile(samples, 0.5), P90: Quantile(samples, 0.9), P99: Quantile(samples, 0.99)}
	s.Max = Quantile(samples, 1)
	return s
}

// Quantile is the smallest of the ordered samples that a part of q of them
// does not exceed: a value that was measured, never one in between. Zero
// without samples.
func Quantile[T any](ordered []T, q float64) T {
	if len(ordered) == 0 {
		var zero T
		return zero
	}
	rank := int(math.Ceil(q * float64(len(ordered))))
	return ordered[max(rank, 1)-1]
}

// Spread is the middle and the ends of what several rounds gave.
type Spread struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

// SpreadOf is the spread of values, at least one.
func SpreadOf(values []float64) Spread {
	ordered := slices.Sorted(slices.Values(values))
	return Spread{Median: Quantile(ordered, 0.5), Min: ordered[0], Max: ordered[len(ordered)-1]}
}
