package screen

import (
	"slices"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/monitor"
	"github.com/jobq-dev/jobq/operator"
	"github.com/jobq-dev/jobq/tui/data"
	"github.com/jobq-dev/jobq/tui/request"
)

// A run that has said nothing for long needs attention, and says for how long such a
// run takes; runs of a kind are one line. What does not fit is counted.
func TestSilentRunsNeedAttention(t *testing.T) {
	t.Parallel()
	s := newStage(t, 80, 19, func(kit Kit) Screen { return NewOverview(kit) })
	silent := []monitor.SilentRuns{
		{Queue: "reports", Kind: "Month", Runs: 1, Since: noon.Add(-25 * time.Minute), Example: 113, Usual: 2100 * time.Millisecond},
		{Queue: "email", Kind: "Send\x1b[2J", Runs: 37, Since: noon.Add(-2 * time.Hour), Example: 7},
	}
	s.tell(data.Answer{Panel: data.Queues, Value: []monitor.Queue{{Name: "email", Slots: 1}}}, data.Answer{Panel: data.Silent, Value: silent})
	require.Contains(t, s.text(), "Needs attention 2")
	require.Contains(t, joined(s.text()), "! job 113 reports/Month has said nothing for 25m; such a run takes <2.1s on average")
	require.Contains(t, s.text(), "! 37 runs of email/Send␛[2J have said nothing, job 7 for 2h")
	s.tell(data.Answer{Panel: data.Silent, Value: slices.Repeat(silent, 10)})
	require.Contains(t, s.text(), "Needs attention 20")
	require.Regexp(t, `(?m)^ … 1\d more$`, s.text())
	s.tell(data.Answer{Panel: data.Silent, Value: []monitor.SilentRuns{}})
	require.NotContains(t, s.text(), "said nothing")
}

// A kind that is paused needs attention, and who has paused it and why is said.
func TestPausedKindsNeedAttention(t *testing.T) {
	t.Parallel()
	s := newStage(t, 120, 19, func(kit Kit) Screen { return NewOverview(kit) })
	at := noon.Add(-2 * time.Minute)
	s.tell(data.Answer{Panel: data.Queues, Value: []monitor.Queue{{Name: "email", Slots: 1}}}, data.Answer{Panel: data.Kinds, Value: []monitor.Kind{
		{Name: "Send"}, {Name: "Enc\x1b[2Jode", PausedAt: &at, PausedBy: "jobq", PauseReason: "quarantine: workers that ran it crashed 5 times in a row"},
	}})
	require.Contains(t, s.text(), "Needs attention 1")
	require.Contains(t, joined(s.text()), "~ kind Enc␛[2Jode was paused 2m ago by jobq: quarantine: workers that ran it crashed 5 times in a row")
}

// A group has the first 60 characters of an error: where it may go on, a mark says so,
// here and on the overview.
func TestErrorsSayThatTheyGoOn(t *testing.T) {
	t.Parallel()
	whole, cut := strings.Repeat("w", 59), strings.Repeat("ö", 60)
	failures := monitor.Failures{Groups: []monitor.Failure{
		{Queue: "email", Kind: "Send", Error: whole, Failed: 2, First: noon, Last: noon, Example: 1},
		{Queue: "video", Kind: "Encode", Error: cut, Failed: 2, First: noon, Last: noon, Example: 2},
	}}
	minutes := []monitor.Minute{
		{At: noon.Truncate(time.Minute), QueueStats: monitor.QueueStats{Queue: "email", Failed: 2}},
		{At: noon.Truncate(time.Minute), QueueStats: monitor.QueueStats{Queue: "video", Failed: 2}},
	}
	for panel, make := range map[data.Panel]func(Kit) Screen{data.Errors: func(kit Kit) Screen { return NewErrors(kit) }, data.Failures: newOverview} {
		s := newStage(t, 250, 40, make)
		queues := data.Answer{Panel: data.Queues, Value: []monitor.Queue{{Name: "email"}, {Name: "video"}}}
		s.tell(data.Answer{Panel: panel, Value: failures}, data.Answer{Panel: data.Minutes, Value: minutes}, queues)
		for _, text := range []string{s.text(), strings.Join(s.Told(), "\n")} {
			require.Contains(t, text, cut+"…")
			require.Contains(t, text, whole)
			require.NotContains(t, text, whole+"…")
		}
	}
}

// The errors say which of their figures are cut: how many failures were looked at,
// and how many groups are listed. Of the example there is the whole error, as far
// as there is room.
func TestErrorsSayWhatIsCut(t *testing.T) {
	t.Parallel()
	job := someJobs(1, jobq.StateFailed)[0]
	groups := []monitor.Failure{{Queue: "email", Kind: "Send", Error: "exit code 1", Failed: 6000, First: noon.Add(-time.Hour), Last: noon.Add(-time.Minute), Example: job.ID}}
	s := newStage(t, 120, 30, func(kit Kit) Screen { return NewErrors(kit) })
	s.tell(data.Answer{Panel: data.Errors, Value: monitor.Failures{Groups: groups}})
	require.Contains(t, s.text(), "6,000 jobs failed in 24h\n")
	s.tell(data.Answer{Panel: data.Errors, Value: monitor.Failures{Groups: groups, More: true, Left: 240}})
	require.Contains(t, s.text(), "6,000+ jobs failed in 24h: the last 10,000 were counted; 1 of 241 groups listed")
	require.Contains(t, s.text(), " 6,000+      0 email")
	require.Contains(t, s.text(), "6,000+ jobs failed, the first 1h ago, the last 1m ago")
	run := monitor.Attempt{Number: 1, Outcome: jobq.OutcomeFailed, StartedAt: noon, FinishedAt: noon, Error: "exit code 1\n\x1b[2J\ttraceback " + strings.Repeat("x", 200) + strings.Repeat("\nline", 30)}
	s.tell(data.Answer{Panel: data.Job, About: storyQuestion{id: job.ID}, Value: Story{job: job, runs: []monitor.Attempt{run}}})
	for _, want := range []string{"job 1000 failed 0s ago with", "   exit code 1\n", "   ␛[2J    traceback xxx", "   line\n", "more lines: they are on the page of the job"} {
		require.Contains(t, s.text(), want)
	}
	require.Len(t, s.View().Lines, 30)
	for _, line := range s.View().Lines {
		require.LessOrEqual(t, ansi.StringWidth(line), 120)
	}
	s.tell(groupCounted{snapshot: operator.BulkSnapshot{}}, groupCounted{err: jobq.ErrTimeout}, groupCounted{match: "x", snapshot: operator.BulkSnapshot{Count: 3}})
	require.Equal(t, []tea.Msg{
		request.Tell{Text: "requeue: no job of the group is failed any more"},
		request.Tell{Text: "requeue: timed out"},
		request.ActOnAll{Action: jobq.ActionRequeue, Filter: "x", Snapshot: operator.BulkSnapshot{Count: 3}}, // too few for a sample
	}, s.asked)
	s.tell(data.Answer{Panel: data.Errors, Value: monitor.Failures{}})
	require.Contains(t, s.text(), "no job has failed in 24h")
	require.Equal(t, "no job has failed", s.Actions()["requeue"].Disabled())
}

// A group of which no job has failed for good says so, opens those that are to be tried again, and has nothing to requeue.
func TestErrorsThatAreTriedAgain(t *testing.T) {
	t.Parallel()
	group := monitor.Failure{Queue: "email", Kind: "Send", Error: "exit code 1", Retrying: 24, Example: 7}
	s := newStage(t, 80, 24, func(kit Kit) Screen { return NewErrors(kit) })
	s.tell(data.Answer{Panel: data.Errors, Value: monitor.Failures{Groups: []monitor.Failure{group}, MoreRetrying: true}})
	require.Contains(t, s.text(), "no job has failed in 24h; 24+ retrying\n")
	require.Regexp(t, `> +0 +24\+ email +Send +- +- +exit code 1`, s.text())
	require.Contains(t, s.text(), "\n 24+ retrying\n")
	require.Contains(t, strings.Join(s.Told(), "\n"), "email/Send: 24+ retrying; such as 7: exit code 1")
	require.Equal(t, request.Jobs{Match: group.RetryFilter()}, s.Actions()["open"].Run())
	require.Equal(t, group.RetryFilter(), s.Selected().Match)
	require.Equal(t, "no job of the group has failed for good: they are to be tried again", s.Actions()["requeue"].Disabled())
}
