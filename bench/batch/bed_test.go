package main

import (
	"bytes"
	"context"
	"testing"

	"github.com/stretchr/testify/require"
)

// Goal: as many jobs run as the figures are divided by, also when they fill no
// chunk and some fail; without jobs there is no round.
func TestRoundCounts(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	p := standard(today())
	p.jobs, p.failPercent, p.longPercent, p.look = chunk+30, 10, 10, ""
	b := bedsOf(ctx, t, p)[0]
	for range 2 { // a round begins anew
		_, err := b.round(ctx)
		require.NoError(t, err)
		require.Equal(t, 1030, b.added)
		require.Equal(t, 1030-109, count(ctx, t, b.worker(0), b.history), "the ids 1 to 9 of each hundred fail, and that with 00")
	}
	b.jobs = 0
	_, err := b.round(ctx)
	require.ErrorContains(t, err, "inserted 0 jobs")
}

// Goal: a fill that leaves some out is noticed before it is divided by.
func TestFillCounts(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	p := standard(today())
	p.jobs, p.fill = 10, p.fill+" limit 9"
	_, err := bedsOf(ctx, t, p)[0].round(ctx)
	require.ErrorContains(t, err, "inserted 9 jobs of 10")
}

// Goal: a pair has as many jobs on both sides, or none and no figures.
func TestPairCounts(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	p := standard(today())
	p.jobs, p.connections = 20, 1
	beds := [2]*bed(bedsOf(ctx, t, p, p))
	_, err := pair(ctx, beds)
	require.NoError(t, err)
	for _, b := range beds {
		require.Equal(t, 20, count(ctx, t, b.worker(0), b.history))
		b.jobs = 0
	}
	_, err = pair(ctx, beds)
	require.ErrorContains(t, err, "inserted 0 jobs")
}

// The middle of an even number of rounds is a round's, as everywhere.
func TestReportMedian(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	report(&out, []plan{{path: path{name: "p"}}}, [][]figures{{{perSecond: 10, micros: 1}, {perSecond: 20, micros: 2}}})
	require.Contains(t, out.String(), "| p | 10 (10–20) | 1.00 | 1.0 | 1.0 |")
	out.Reset()
	reportPairs(&out, []plan{{path: path{name: "p"}}}, [][][2]figures{{{{}, {micros: 1}}, {{}, {micros: 2}}}})
	require.Contains(t, out.String(), "| p | +1.00 (+1.00 – +2.00) |")
}
