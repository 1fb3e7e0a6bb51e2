package format_test

import (
	"encoding/json"
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
		{jobq.Available, 0, "0/25"},
		{jobq.Running, 0, "1/25"},
		{jobq.Completed, 0, "1/25"},
		{jobq.Scheduled, 1, "1/25"},
		{jobq.Running, 1, "2/25"},
		{jobq.Failed, 25, "25/25"},
		{jobq.Running, 25, "25/25"},
	} {
		job := &jobq.Job{State: test.state, Attempts: test.attempts, MaxAttempts: 25}
		require.Equal(t, test.want, format.Attempts(job), test)
	}
	now := time.Now()
	require.Equal(t, "retrying", format.State(&jobq.Job{State: jobq.Scheduled, Attempts: 1}))
	require.Equal(t, "scheduled", format.State(&jobq.Job{State: jobq.Scheduled}))
	require.Equal(t, "stopping", format.State(&jobq.Job{State: jobq.Running, CancelRequestedAt: &now}))
}

// CSV has a column for each field, in the order in which they come.
func TestCSV(t *testing.T) {
	t.Parallel()
	content, err := format.CSV([]json.RawMessage{
		json.RawMessage(`{"id": 1, "last": "a, \"b\"\nc"}`), json.RawMessage(`{"id": 2, "tags": ["x"], "last": ""}`),
	})
	require.NoError(t, err)
	require.Equal(t, "id,tags,last\n1,,\"a, \"\"b\"\"\nc\"\n2,\"[\"\"x\"\"]\",\n", string(content))
	require.Equal(t, `"a,b",c`, format.CSVLine([]string{"a,b", "c"}))
	require.Empty(t, format.CSVLine(nil))
}
