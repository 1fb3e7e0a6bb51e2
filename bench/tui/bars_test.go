package main

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// Goal: what the UI costs is no figure without the load that it is asked for;
// at rest there is none.
func TestBarsUsage(t *testing.T) {
	t.Parallel()
	cheap := figures{uiPercent: 9.9, serverPercent: 5, residentBytes: 59 << 20, jobsPerSecond: loadMin}
	for _, test := range []struct {
		name   string
		change func(*figures)
		loaded bool
		missed int
	}{
		{"all cleared", func(*figures) {}, true, 0},
		{"no load", func(f *figures) { f.jobsPerSecond = 0 }, true, 1},
		{"too little load", func(f *figures) { f.jobsPerSecond = loadMin - 1 }, true, 1},
		{"no time has passed", func(f *figures) { f.jobsPerSecond = math.NaN() }, true, 1},
		{"at rest", func(f *figures) { f.jobsPerSecond = 0 }, false, 0},
		{"all missed", func(f *figures) { *f = figures{uiPercent: 10, serverPercent: 5.1, residentBytes: 60 << 20} }, true, 4},
	} {
		f, b := cheap, bars{}
		test.change(&f)
		b.usage(f, test.loaded)
		require.Equal(t, test.missed, b.missed, test.name)
		require.Equal(t, test.missed > 0, b.err() != nil, test.name)
	}
}
