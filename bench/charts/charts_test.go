package main

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/bench/sheet"
	"github.com/jobq-dev/jobq/internal/measure"
)

// The pictures in git are what the figures in git give, and nothing else stands beside them.
func TestChartsAreOfTheirFigures(t *testing.T) {
	t.Parallel()
	drawn := t.TempDir()
	require.NoError(t, run("../RESULTS.json", drawn))
	committed, err := filepath.Glob("*.svg")
	require.NoError(t, err)
	require.Len(t, committed, len(pictures))
	for name := range pictures {
		expected, err := os.ReadFile(filepath.Join(drawn, name))
		require.NoError(t, err)
		found, err := os.ReadFile(name)
		require.NoError(t, err)
		require.True(t, string(expected) == string(found), "%s is not what RESULTS.json gives: make bench-charts", name)
		requireXML(t, string(found))
	}
}

func requireXML(t *testing.T, text string) {
	t.Helper()
	decoder := xml.NewDecoder(strings.NewReader(text))
	for {
		_, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			return
		}
		require.NoError(t, err)
	}
}

// A bar is as long as its figure, and says it; a name is text, whatever it contains.
func TestBar(t *testing.T) {
	t.Parallel()
	var p picture
	p.bar(10, "a<b, tuned", measure.Spread{Median: 50_000, Min: 25_000, Max: 75_000}, 100_000)
	require.Contains(t, p.String(), `<rect x="140.0" y="10.0" width="260.0" height="18" class="other"/>`)
	require.Contains(t, p.String(), `d="M270.0 19.0H530.0"`)
	require.Contains(t, p.String(), ">a&lt;b</text>")
	require.Contains(t, p.String(), ">50.0k</text>")
}

// The axis is logarithmic and has room for all values; a rate of zero is drawn on it.
func TestScale(t *testing.T) {
	t.Parallel()
	axis := scaleOf(measure.Series{Values: []float64{0, 778, 3_000}}, measure.Series{Values: []float64{119_840}})
	require.Equal(t, scale{low: 500, high: 200_000}, axis)
	require.InDelta(t, plotBottom, axis.y(500), 0.01)
	require.InDelta(t, (plotBottom+plotTop)/2, axis.y(10_000), 0.01, "10,000 is 20 times 500, and 200,000 is 20 times 10,000")
	require.InDelta(t, plotTop, axis.y(200_000), 0.01)
	require.InDelta(t, plotBottom, axis.y(0), 0.01)
	require.Equal(t, scale{low: 1_000, high: 100_000}, scaleOf(measure.Series{Values: []float64{1_000, 100_000}}))
	require.Equal(t, scale{low: 1, high: 10}, scaleOf(measure.Series{Values: []float64{0}}))
}

// A line goes through the middle of each interval; labels do not cover each other.
func TestLineAndLabels(t *testing.T) {
	t.Parallel()
	var p picture
	p.line(measure.Series{Every: time.Minute, Values: []float64{10, 1_000}}, scale{low: 10, high: 1_000}, 2*time.Minute, "a")
	require.Contains(t, p.String(), `d="M196.5 288.0L445.5 48.0" class="over a"`)
	require.Equal(t, []string{"1", "100", "1,000", "1,000,000"}, []string{thousands(1), thousands(100), thousands(1_000), thousands(1_000_000)})
	require.Equal(t, []label{{y: 10, text: "b"}, {y: 26, text: "a"}, {y: 100, text: "c"}},
		apart([]label{{y: 100, text: "c"}, {y: 12, text: "a"}, {y: 10, text: "b"}}))
}

// A picture is not drawn without a figure that it shows.
func TestMissingFigures(t *testing.T) {
	t.Parallel()
	_, err := drawDrain(sheet.New())
	require.ErrorContains(t, err, "the drain was not measured")
	_, err = drawHeld(sheet.New())
	require.ErrorContains(t, err, "held open was not measured")

	s := sheet.New()
	s.Runs["drain"], s.Runs["held"] = &sheet.Run{}, &sheet.Run{}
	s.Put(sheet.Of("drain", "", "jobq, tuned", "jobs/s"), 1)
	_, err = drawDrain(s)
	require.ErrorContains(t, err, `the drain of "graphile-worker, tuned"`)
	_, err = drawHeld(s)
	require.ErrorContains(t, err, `the rate of "jobq, tuned"`)
}
