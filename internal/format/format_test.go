package format_test

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/format"
)

// Spans are short, and never negative: clocks differ.
func TestSpans(t *testing.T) {
	t.Parallel()
	for span, want := range map[time.Duration][2]string{
		-time.Hour:                              {"0s", "0ms"},
		0:                                       {"0s", "0ms"},
		112 * time.Millisecond:                  {"112ms", "112ms"},
		30 * time.Second:                        {"30s", "30.0s"},
		3*time.Minute + 29*time.Second:          {"3m", "3m29s"},
		25 * time.Hour:                          {"25h", "25h00m"},
		72*time.Hour + 5*time.Minute:            {"3d", "3d"},
		time.Hour + 5*time.Minute + time.Second: {"1h", "1h05m"},
	} {
		require.Equal(t, want, [2]string{format.Ago(span), format.Took(span)}, span)
	}
	now := time.Now()
	require.Equal(t, "<112ms", format.AtMost(112*time.Millisecond))
	require.Equal(t, "<1ms", format.AtMost(time.Microsecond))
	require.Equal(t, "0ms", format.AtMost(0))
	require.Equal(t, "1m05s", format.AtMost(65*time.Second))
	started := now.Add(-time.Second)
	job := &jobq.Job{State: jobq.StateCompleted, StartedAt: &started, FinishedAt: &now}
	require.Equal(t, "<1.0s", format.Duration(job, now), "the claim is known, and not the start")
	job.State = jobq.StateFailed
	require.Equal(t, "1.0s", format.Duration(job, now))
	require.Equal(t, "in 1h", format.When(now.Add(time.Hour), now))
	require.Equal(t, "41s ago", format.When(now.Add(-41*time.Second), now))
}

// Counts say how sure they are.
func TestCounts(t *testing.T) {
	t.Parallel()
	require.Equal(t, "8,640,113", format.Number(8640113))
	require.Equal(t, "-1,000", format.Number(-1000))
	require.Equal(t, "999", format.Number(999))
	require.Equal(t, "10k+", format.Capped(jobq.CountMax))
	require.Equal(t, "9,999", format.Capped(9999))
	for n, want := range map[int64]string{10_001: "~10k", 999: "~999", 1000: "~1.0k", 9_940: "~9.9k", 999_499: "~999k", 999_500: "~1.0M", 3_012_345: "~3.0M", 42_000_000: "~42M", 7_000_000_000: "~7.0G"} {
		require.Equal(t, want, format.About(n))
	}
	require.Equal(t, "500+", format.CappedAt(500, 500))
	require.Equal(t, "499", format.CappedAt(499, 500))
	require.Equal(t, "10k+", format.CappedAt(jobq.CountMax, jobq.CountMax))
	require.Equal(t, "1 job", format.Count(1, "job"))
	require.Equal(t, "1,204 jobs", format.Count(1204, "job"))
	require.Equal(t, "0.1", format.Rate(0.1))
	require.Equal(t, "9,812", format.Rate(9812.4))
}

// The attempt that runs or ran last is counted in the same way everywhere.
func TestAttempts(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		state    jobq.State
		attempts int
		want     string
	}{
		{jobq.StateAvailable, 0, "0/25"},
		{jobq.StateRunning, 0, "1/25"},
		{jobq.StateCompleted, 0, "1/25"},
		{jobq.StateScheduled, 1, "1/25"},
		{jobq.StateRunning, 1, "2/25"},
		{jobq.StateFailed, 25, "25/25"},
		{jobq.StateRunning, 25, "25/25"},
	} {
		job := &jobq.Job{State: test.state, Attempts: test.attempts, MaxAttempts: 25}
		require.Equal(t, test.want, format.Attempts(job), test)
	}
	now := time.Now()
	require.Equal(t, "retrying", format.State(&jobq.Job{State: jobq.StateScheduled, Attempts: 1}))
	require.Equal(t, "scheduled", format.State(&jobq.Job{State: jobq.StateScheduled}))
	require.Equal(t, "claimed", format.State(&jobq.Job{State: jobq.StateRunning}))
	require.Equal(t, "running", format.State(&jobq.Job{State: jobq.StateRunning, StartedAt: &now}))
	require.Equal(t, "stopping", format.State(&jobq.Job{State: jobq.StateRunning, CancelRequestedAt: &now}))
}

// A table of jobs has a column for each field that a list of them can have.
func TestJobColumns(t *testing.T) {
	t.Parallel()
	var want []string
	for field := range reflect.TypeFor[jobq.Job]().Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if name != "args" && name != "checkpoint" && name != "result" { // which a list does not load
			want = append(want, name)
		}
	}
	require.ElementsMatch(t, want, format.JobColumns())
}

// An error from before a job completed is not the job's any more, and a job that is
// due later has no age yet.
func TestErrorAndAge(t *testing.T) {
	t.Parallel()
	now := time.Now()
	finished := now.Add(-time.Minute)
	job := &jobq.Job{State: jobq.StateFailed, LastError: "one\x1b\ntwo", FinishedAt: &finished, RunAt: now.Add(-time.Hour)}
	require.Equal(t, "one␛", format.LastError(job))
	require.Equal(t, "1m", format.Age(job, now))
	job.State = jobq.StateCompleted
	require.Empty(t, format.LastError(job))
	require.Equal(t, "in 2m", format.Age(&jobq.Job{State: jobq.StateScheduled, RunAt: now.Add(2 * time.Minute)}, now))
	require.Equal(t, "0.2s", format.Seconds(180*time.Millisecond))
}

// There is one way to write spans of time, attempts, states, counts and CSV. Method:
// the sources of the command line and the terminal UI are searched for a second one.
func TestOneWayToFormat(t *testing.T) {
	t.Parallel()
	second := regexp.MustCompile(`csv\.NewWriter|\.(Milliseconds|Minutes|Hours)\(\)|Duration\.(Round|Truncate)|\bjob\.Attempts, (\w+\.)?job\.MaxAttempts` +
		`|%\.\df ?s"|scheduled \(retry\)|\+ "\+"$|\+= "\+"|"%d\+"|%d (jobs|queues|workers|slots)\b|FormatInt\([^)]*(Running|Count|Available|Jobs|Done)`)
	files := 0
	for _, folder := range []string{"../../cmd/jobq", "../../tui"} {
		require.NoError(t, filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
			if err == nil && entry.IsDir() && strings.HasSuffix(path, "cmd/jobq/internal") {
				return fs.SkipDir // figures of measurements have units of their own
			}
			if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			files++
			source, err := os.ReadFile(path) // #nosec G304 -- of these folders
			require.NoError(t, err)
			require.Empty(t, second.FindAllString(string(source), -1), "%s: use internal/format", path)
			return nil
		}))
	}
	require.Greater(t, files, 60)
}

// CSV has a column for each field, in the order in which they come.
func TestCSV(t *testing.T) {
	t.Parallel()
	content, err := format.CSV([]json.RawMessage{
		json.RawMessage(`{"id": 1, "last": "a, \"b\"\nc"}`), json.RawMessage(`{"id": 2, "tags": ["x"], "last": ""}`),
	}, nil, nil)
	require.NoError(t, err)
	require.Equal(t, "id,tags,last\n1,,\"a, \"\"b\"\"\nc\"\n2,\"[\"\"x\"\"]\",\n", string(content))
	content, err = format.CSV([]json.RawMessage{json.RawMessage(`{"id": 1, "b": "x"}`)}, []string{"id", "a"}, strings.ToUpper)
	require.NoError(t, err)
	require.Equal(t, "id,b,a\n1,X,\n", string(content))
}

// A row of chosen columns has members of JSON values, as they are stored.
func TestJobCells(t *testing.T) {
	t.Parallel()
	job := &jobq.Job{
		ID: 7, Tags: []string{"a", "b"}, Metadata: json.RawMessage(`[1]`), LastError: "=1+1",
		Args:   json.RawMessage(`{"dt": 0.10, "big": 12345678901234567890, "a.b": "literal", "a": {"b": 1, "c": {"d": "deep"}}, "no": null, "yes": true}`),
		Result: json.RawMessage(`"text"`), Progress: &jobq.Progress{Percent: 12.5},
	}
	columns := []string{
		"id", "args.dt", "args.big", "args.a.b", "args.a.c.d", "args.a.c", "args.no", "args.yes", "args.none", "args.dt.x", "result", "result.x", "metadata.0",
		"progress.percent", "last_error", "tags", "queue", "finished_at",
	}
	require.NoError(t, format.CheckJobColumns(columns))
	cells, err := format.JobCells(job, columns)
	require.NoError(t, err)
	require.Equal(t, []string{
		"7", "0.10", "12345678901234567890", "literal", "deep", `{"d":"deep"}`, "", "true", "", "", "text", "", "",
		"12.5", "=1+1", `["a","b"]`, "", "",
	}, cells)
	require.NoError(t, format.CheckJobColumns(format.JobColumns()))
	for column, want := range map[string]string{"arg.x": "no column \"arg.x\"", "args.": "no column \"args.\"", "id.x": "no column", "Id": "the columns are id, state,"} {
		require.ErrorContains(t, format.CheckJobColumns([]string{"id", column}), want)
	}
	require.True(t, format.NeedsValues([]string{"id", "args.x"}))
	require.True(t, format.NeedsValues([]string{"result"}))
	require.False(t, format.NeedsValues(format.JobColumns()))
}
