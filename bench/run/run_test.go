package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/bench/sheet"
	"github.com/jobq-dev/jobq/bench/stage"
	"github.com/jobq-dev/jobq/internal/measure"
)

// TestMain lets the test binary be the child processes too.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "child" {
		main()
		return
	}
	os.Exit(m.Run())
}

// A few scenarios run with jobq and plain SQL, with few jobs, and the report
// has a table for each.
func TestScenarios(t *testing.T) {
	t.Parallel()
	out := filepath.Join(t.TempDir(), "RESULTS.md")
	l := &lab{log: io.Discard, sheet: sheet.New(), rounds: 1, scale: 0.001, held: time.Second, config: stage.Config{Only: "jobq,sql", Peers: "../peers"}}
	require.NoError(t, run(context.Background(), l, "drain,latency,reports,held", out))
	content, err := os.ReadFile(out)
	require.NoError(t, err)
	report := string(content)
	for _, title := range []string{"Drain", "Pickup latency", "Reports", "A transaction held open"} {
		require.Contains(t, report, "\n## "+title+"\n")
	}
	require.Contains(t, report, "| 1. drain, of hand-written SQL |")
	require.Contains(t, report, "| jobq, defaults |")
	require.Contains(t, report, "transaction open, jobq, tuned, jobs/s:")
	require.Contains(t, report, "transaction open, jobq, tuned, dead rows:")
	require.Contains(t, report, "| MB on disk, first | MB on disk, last | B on disk a job | dead rows, most | dead rows, last |")
	require.NotContains(t, report, "Problem:")
	silent, ok := l.sheet.Median(sheet.Of("reports", reticent, oursAsIs, "reports/s"))
	require.True(t, ok)
	require.Zero(t, silent)
	spoken, ok := l.sheet.Median(sheet.Of("reports", reporting, oursAsIs, "reports/s"))
	require.True(t, ok)
	require.Positive(t, spoken)
}

// What would measure nothing is refused before anything is started.
func TestRefused(t *testing.T) {
	t.Parallel()
	good := lab{rounds: 1, scale: 1, config: stage.Config{Only: "jobq,river"}}
	require.NoError(t, good.check("drain,held"))
	require.NoError(t, good.check(""))
	misspelt := good
	misspelt.config.Only = "rivr"
	require.ErrorContains(t, misspelt.check(""), `no "rivr": there are jobq, jobq-before, graphile-worker`)
	absent := good
	absent.config.Only, absent.config.Peers = "jobq,"+stage.Before, t.TempDir()
	require.ErrorContains(t, absent.check("drain"), "run make bench-before", "who asks for it by name must not get a report without it")
	require.ErrorContains(t, good.check("drian"), `no "drian": there are drain, scaling`)
	idle := good
	idle.rounds = 0
	require.ErrorContains(t, idle.check(""), "-rounds")
}

// A page is not written where that would lose scenarios that it has, whatever is to be measured.
func TestNoScenarioIsLost(t *testing.T) {
	t.Parallel()
	out := filepath.Join(t.TempDir(), "RESULTS.md")
	kept := sheet.New()
	kept.Put(drainOf(ours), 10_000)
	kept.Runs["drain"] = &sheet.Run{Rounds: 3}
	require.NoError(t, kept.Save(sheet.DataFile(out)))
	titles := map[string]string{"drain": "Drain", "idle": "Idle", "held": "A transaction held open"}
	require.NoError(t, sheet.New().LoadFor(out, titles), "there is no page")

	page := "# Results\n\n## Bars\n\n## Drain\n\ntext\n"
	require.NoError(t, os.WriteFile(out, []byte(page), 0o600))
	again := sheet.New()
	require.NoError(t, again.LoadFor(out, titles))
	require.Equal(t, kept, again)

	page += "\n## Idle\n\ntext\n"
	require.NoError(t, os.WriteFile(out, []byte(page), 0o600))
	require.ErrorContains(t, sheet.New().LoadFor(out, titles), "would lose idle, which ")
	for _, names := range []string{"", "drain", "idle"} {
		l := &lab{log: io.Discard, sheet: sheet.New(), rounds: 1, scale: 0.001, config: stage.Config{Only: "jobq", Peers: "../peers"}}
		require.ErrorContains(t, run(context.Background(), l, names, out), "would lose idle")
	}
	content, err := os.ReadFile(out)
	require.NoError(t, err)
	require.Equal(t, page, string(content))
}

// The page is what its figures and missed.md give, below what it says of the machine. JOBQ_GOLDEN=write writes it again,
// without measuring.
func TestPageIsOfItsFigures(t *testing.T) {
	t.Parallel()
	const file = "../RESULTS.md"
	content, err := os.ReadFile(file)
	require.NoError(t, err)
	head, _, ok := strings.Cut(string(content), "\n## Bars\n")
	require.True(t, ok)
	_, environment, _ := strings.Cut(head, "\n- Machine:")
	environment, _, ok = strings.Cut("- Machine:"+environment, "\n- Server:")
	require.True(t, ok)

	l := &lab{sheet: sheet.New(), scale: 1}
	require.NoError(t, l.sheet.Load(sheet.DataFile(file)))
	expected := bytes.NewBufferString(head)
	l.writeBars(expected)
	for _, s := range scenarios() {
		l.sheet.WriteScenario(expected, s.name, s.title, s.about, environment)
	}
	if os.Getenv("JOBQ_GOLDEN") == "write" {
		require.NoError(t, os.WriteFile(file, expected.Bytes(), 0o600))
		return
	}
	require.True(t, expected.String() == string(content), "%s is not what its figures give: JOBQ_GOLDEN=write go test ./run -run TestPageIsOfItsFigures", file)
}

// A part is not measured over the whole.
func TestPartOverWhole(t *testing.T) {
	t.Parallel()
	out := filepath.Join(t.TempDir(), "RESULTS.md")
	s := sheet.New()
	s.Put(drainOf("river, tuned"), 10_000)
	s.Runs["drain"] = &sheet.Run{Rounds: 3}
	require.NoError(t, s.Save(sheet.DataFile(out)))
	l := &lab{log: io.Discard, sheet: sheet.New(), rounds: 1, scale: 0.001, config: stage.Config{Only: "jobq", Peers: "../peers"}}
	require.ErrorContains(t, run(context.Background(), l, "drain", out), "write to another file")
}

// A sheet comes back from its file as it was, and without what was forgotten.
func TestKeep(t *testing.T) {
	t.Parallel()
	file := sheet.DataFile(filepath.Join(t.TempDir(), "RESULTS.md"))
	s := sheet.New()
	require.NoError(t, s.Load(file), "there is none at first")
	for _, value := range []float64{30_000, 10_000, 20_000} {
		s.Put(drainOf(ours), value)
	}
	s.Put(drainOf("river, tuned"), 10_000)
	s.Put(drainOf(beforeTuned), 13_000)
	s.Put(sheet.Of("idle", "", oursAsIs, "statements/s"), 0.7)
	s.Draw(sheet.Chart{Scenario: "held", Test: "t", Contender: ours, Unit: perSec, Series: measure.Series{Every: time.Second, Values: []float64{1, 2}}})
	s.Runs["drain"] = &sheet.Run{Rounds: 3, Problems: []string{"p"}}
	require.NoError(t, s.Save(file))

	again := sheet.New()
	require.NoError(t, again.Load(file))
	require.Equal(t, s, again)
	var table bytes.Buffer
	again.Write(&table, "drain")
	require.Equal(t, "| | jobs/s |\n|---|---:|\n| jobq, tuned | 20000 (10000–30000) |\n| river, tuned | 10000 |\n| jobq-before, tuned | 13000 |\n", table.String())

	l := &lab{sheet: again, scale: 1}
	var bars bytes.Buffer
	l.writeBars(&bars)
	require.Contains(t, bars.String(), "| 1. drain, of River's | 2.00 | ≥ 3.00 | **not met** |")
	require.Contains(t, bars.String(), "| 7. idle: statements a second | 0.70 | ≤ 0.50 | **not met** |")
	require.Contains(t, bars.String(), "| 1. drain, of pg-boss's | | ≥ 1.50 | not measured |")
	require.Contains(t, bars.String(), "| 9. drain, of the earlier commit's | 1.54 | ≥ 0.98 | met |")
	rows, why, _ := strings.Cut(bars.String(), "### Missed")
	require.Equal(t, 8+len(l.bars()), strings.Count(rows, "\n"), "a line for each bar, measured or not")
	require.NotEmpty(t, why)

	again.Forget("drain")
	_, ok := again.Median(drainOf(ours))
	require.False(t, ok)
	require.NotContains(t, again.Runs, "drain")
}
