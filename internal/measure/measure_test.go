package measure_test

import (
	"context"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/measure"
	"github.com/jobq-dev/jobq/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// A quantile is a sample, and the ends are the smallest and the largest.
func TestQuantile(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		samples []int
		q       float64
		want    int
	}{
		{nil, 0.5, 0},
		{[]int{7}, 0, 7},
		{[]int{7}, 1, 7},
		{[]int{1, 2, 3, 4}, 0.5, 2},
		{[]int{1, 2, 3}, 0.5, 2},
		{[]int{1, 2, 3}, 0.99, 3},
	} {
		require.Equal(t, test.want, measure.Quantile(test.samples, test.q), "%v %v", test.samples, test.q)
	}
	summary := measure.Summarize([]time.Duration{3, 1, 2})
	require.Equal(t, measure.Summary{Count: 3, P50: 2, P90: 3, P99: 3, Max: 3}, summary)
	require.Equal(t, measure.Spread{Median: 2, Min: 1, Max: 9}, measure.SpreadOf([]float64{9, 1, 2}))
}

// Charts have the top at their maximum, whatever the number of values, and
// zero stays empty.
func TestChart(t *testing.T) {
	t.Parallel()
	chart := measure.Chart(measure.Series{Every: time.Second, Values: []float64{0, 600, 1200}}, 0)
	lines := strings.Split(chart, "\n")
	require.Equal(t, "   1.2k │  █", lines[0])
	require.Equal(t, "        │ ██", lines[3])
	require.Equal(t, "      0 └───", lines[6])
	require.Contains(t, lines[7], "3s")

	long := measure.Series{Every: time.Second, Values: make([]float64, 601)}
	for i := range long.Values {
		long.Values[i] = 5
	}
	for _, line := range strings.Split(measure.Chart(long, 0), "\n") {
		require.LessOrEqual(t, len([]rune(line)), 72)
	}
	require.Equal(t, []float64{5}, long.Fit(1).Values)
	require.NotPanics(t, func() { measure.Chart(measure.Series{Every: time.Second}, 0) })
}

// Rates of a count that is set by the test between two intervals.
func TestRates(t *testing.T) {
	t.Parallel()
	var count, reads atomic.Int64
	stop := measure.Rates(time.Millisecond, func() int64 {
		reads.Add(1)
		return count.Add(10)
	})
	require.Eventually(t, func() bool { return reads.Load() > 20 }, time.Minute, time.Millisecond)
	series := stop()
	require.GreaterOrEqual(t, len(series.Values), 20)
	for _, rate := range series.Values {
		require.Positive(t, rate)
	}
	first, last := measure.Series{Values: []float64{4, 2, 2, 2, 2, 2, 2, 2, 2, 1}}.Ends()
	require.Equal(t, []float64{4, 1}, []float64{first, last})
}

// The meter sees work of the server, its log, and the client's CPU.
func TestMeter(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	pool := pgtest.Pool(t)
	meter, err := measure.NewMeter(ctx, pool)
	require.NoError(t, err)
	before, err := meter.Read(ctx)
	require.NoError(t, err)
	_, err = pool.Exec(ctx, "create table public.t as select i from generate_series(1, 300000) i")
	require.NoError(t, err)
	after, err := meter.Read(ctx)
	require.NoError(t, err)
	usage := meter.Since(before, after)
	require.Greater(t, usage.WALBytes, int64(1_000_000))
	if _, err := os.Stat("/proc/self/stat"); err == nil {
		require.True(t, usage.ServerKnown)
		require.Positive(t, usage.ServerCPU)
	}

	conn, err := pool.Acquire(ctx)
	require.NoError(t, err)
	defer conn.Release()
	latencies, err := measure.MeasureLatencies(ctx, conn.Conn(), 5, "insert into public.t values (1)")
	require.NoError(t, err)
	require.Equal(t, 5, latencies.Commit.Count)
	require.Positive(t, latencies.RoundTrip.P50)
	settings, err := measure.Settings(ctx, pool)
	require.NoError(t, err)
	require.Equal(t, "server_version", settings[0].Name)
}

// This process is read as any other, and one that is not there is an error.
func TestReadProcess(t *testing.T) {
	t.Parallel()
	const beyond = 1 << 30 // Linux numbers no process so high
	_, err := measure.ReadProcess(beyond)
	require.ErrorIs(t, err, os.ErrNotExist)
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		return // not Linux: so is this one
	}
	p, err := measure.ReadProcess(os.Getpid())
	require.NoError(t, err)
	require.Equal(t, os.Getppid(), p.Parent)
	require.True(t, strings.HasPrefix(p.Name, "measure"), p.Name)
}
