package screen

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/monitor"
	"github.com/jobq-dev/jobq/tui/data"
)

func newOverview(kit Kit) Screen { return NewOverview(kit) }

// joined is the text without line ends and columns: what goes on in the next line is
// one text again.
func joined(text string) string {
	left := regexp.MustCompile(`(?m)│.*$`).ReplaceAllString(text, "")
	return strings.Join(strings.Fields(left), " ")
}

// What needs attention says why, in full where there is room: the error, the reason
// of a pause, and why the jobs of a queue wait.
func TestAttentionSaysWhy(t *testing.T) {
	t.Parallel()
	head, paused := noon.Add(-2*time.Minute), noon.Add(-time.Minute)
	failure := monitor.Failure{Queue: "email", Kind: "SendInvoice", Failed: 9, Error: "exit code 1: smtp 421 4.7.0 too many connections from your host"}
	for _, size := range [][2]int{{80, 19}, {120, 30}, {200, 55}} {
		s := newStage(t, size[0], size[1], newOverview)
		s.tell(
			data.Answer{Panel: data.Failures, Value: monitor.Failures{Groups: []monitor.Failure{failure}}},
			data.Answer{Panel: data.Workers, Value: []monitor.Worker{{Slots: map[string]int{"busy": 2, "odd": 2}, HeartbeatAt: noon}}},
			data.Answer{Panel: data.Leader, Value: &monitor.Leader{}},
			data.Answer{Panel: data.Queues, Value: []monitor.Queue{
				{Name: "busy", Slots: 2, Running: 2, Available: 9, HeadRunAt: &head},
				{Name: "odd", Slots: 2, Available: 9, HeadRunAt: &head},
				{Name: "books", PausedAt: &paused, PausedBy: "ana", PauseReason: "closed until the auditors have gone", HeadRunAt: &head},
			}})
		for _, want := range []string{
			"! email: 9 failed in 20m, all of SendInvoice: exit code 1: smtp 421 4.7.0 too many connections from your host",
			"~ books was paused 1m ago by ana: closed until the auditors have gone",
			"~ busy: the oldest job has waited for 2m: all 2 slots are in use",
			"~ odd: the oldest job has waited for 2m, with slots free: perhaps no worker has its kind",
		} {
			require.Contains(t, joined(s.text()), want, size)
		}
		require.NotContains(t, s.text(), "-2m!")
		require.Equal(t, 2, strings.Count(s.text(), "2m!"), "a paused queue is to wait")
	}
}

// Jobs that no worker takes need attention, also where their partition keys hold all of them; while workers
// live, jobs that are held are as they are meant to be.
func TestAttentionToHeldJobs(t *testing.T) {
	t.Parallel()
	s := newStage(t, 120, 30, newOverview)
	s.tell(data.Answer{Panel: data.Leader, Value: &monitor.Leader{}}, data.Answer{Panel: data.Queues, Value: []monitor.Queue{
		{Name: "held", Slots: 2, Available: 9, AvailableMax: 100}, {Name: "untaken", Available: 9, AvailableMax: 100},
	}})
	require.Contains(t, s.text(), "! untaken: 9 jobs wait and no worker takes them")
	require.NotContains(t, s.text(), "held:")
}

// Above the bound of the exact count, an estimate says how many jobs are available, and how long they
// take at the rate of now; without an estimate, that there may be more.
func TestBacklogIsEstimated(t *testing.T) {
	t.Parallel()
	queues := []monitor.Queue{
		{Name: "big", Slots: 8, Running: 8, Available: jobq.CountMax, AvailableMax: jobq.CountMax, AvailableEstimate: 3_012_345},
		{Name: "few", Slots: 1, Available: 20, AvailableMax: jobq.CountMax},
	}
	minutes := []monitor.Minute{{At: noon.Truncate(time.Minute).Add(-time.Minute), QueueStats: monitor.QueueStats{Queue: "big", Completed: 15_000, Failed: 10}}}
	overview := newStage(t, 120, 30, newOverview)
	overview.tell(data.Answer{Panel: data.Queues, At: noon, Value: queues}, data.Answer{Panel: data.Minutes, At: noon, Value: minutes})
	require.Contains(t, overview.text(), "~3.0M")
	require.NotContains(t, overview.text(), "10k+")
	require.Contains(t, overview.text(), "5h of work at this rate")
	require.Contains(t, strings.Join(overview.Told(), "\n"), "available: 5h of work at this rate")

	list := newStage(t, 120, 30, func(kit Kit) Screen { return NewQueues(kit) })
	list.tell(data.Answer{Panel: data.Queues, At: noon, Value: queues}, data.Answer{Panel: data.Minutes, At: noon, Value: minutes})
	require.Regexp(t, `> big +8 +8 +~3\.0M`, list.text())
	require.Contains(t, list.text(), "waiting   ~3.0M jobs, 5h of work at this rate")
	list.do("down")
	require.NotContains(t, list.text(), "of work at this rate")

	jobs := newStage(t, 120, 30, newJobs)
	jobs.tell(data.Answer{Panel: data.Queues, At: noon, Value: queues})
	require.Contains(t, jobs.text(), "Available ~3.0M")
	jobs.tell(ShowJobs{Match: "state:available"})
	jobs.tell(jobs.answer(data.Page, &source{jobs: someJobs(250, jobq.StateAvailable)}),
		data.Answer{Panel: data.Count, About: "state:available", Value: counted{total: jobq.CountMax}})
	require.Contains(t, jobs.text(), "of ~3.0M")

	queues = append(queues, monitor.Queue{Name: "other", Available: jobq.CountMax, AvailableMax: jobq.CountMax})
	overview.tell(data.Answer{Panel: data.Queues, At: noon, Value: queues})
	require.Contains(t, overview.text(), "10k+", "of other nothing is known")
	require.NotContains(t, overview.text(), "of work at this rate")
}

// A queue whose jobs no worker takes is in trouble from the first moment, and one
// that waits because somebody has paused it is in less.
func TestOrderOfTrouble(t *testing.T) {
	t.Parallel()
	s := newStage(t, 120, 30, newOverview)
	now, long := noon, noon.Add(-time.Hour)
	s.tell(data.Answer{Panel: data.Failures, Value: monitor.Failures{}}, data.Answer{Panel: data.Queues, Value: []monitor.Queue{
		{Name: "calm", Slots: 1}, {Name: "paused", PausedAt: &long, HeadRunAt: &long}, {Name: "untaken", Available: 1, HeadRunAt: &now},
	}})
	rows := regexp.MustCompile(`(?m)^[> ] (calm|paused|untaken)`).FindAllStringSubmatch(s.text(), -1)
	require.Equal(t, []string{"untaken", "paused", "calm"}, []string{rows[0][1], rows[1][1], rows[2][1]})
}

// There is no average of nothing: of a minute in which no run has ended, or of which
// only workers have spoken, who do not say how long runs took.
func TestNoAverageOfNothing(t *testing.T) {
	t.Parallel()
	for _, cells := range []int{80, 120} {
		s := newStage(t, cells, 30, newOverview)
		s.tell(data.Answer{Panel: data.Queues, Value: []monitor.Queue{{Name: "email", Slots: 1}}}, data.Answer{Panel: data.Minutes, Value: []monitor.Minute{}})
		require.Regexp(t, `run -, wait - |run -  wait - `, s.text())
		s.kit.Facts.Heard(data.Feed{Ended: map[string]data.Ended{"email": {Completed: 50}}})
		require.Regexp(t, `run -, wait - |run -  wait - `, s.text())
		require.NotContains(t, s.text(), " 0.0/s completed")
		s.tell(data.Answer{Panel: data.Minutes, Value: []monitor.Minute{
			{At: noon.Truncate(time.Minute), QueueStats: monitor.QueueStats{Queue: "email", Completed: 10, RunTime: 10 * time.Second, WaitTime: 20 * time.Second}},
		}})
		s.kit.Facts.Heard(data.Feed{Ended: map[string]data.Ended{"email": {Completed: 50}}})
		require.Regexp(t, `run <1.0s, wait 2.0s|run <1.0s  wait 2.0s`, s.text())
		require.Equal(t, int64(60), s.kit.Facts.Totals().Completed)
	}
	s := newStage(t, 120, 30, func(kit Kit) Screen { return NewQueues(kit) })
	s.tell(data.Answer{Panel: data.Queues, Value: []monitor.Queue{{Name: "email", Slots: 1}}})
	require.Contains(t, s.text(), "average run -, wait -")
}

// The activity calls a job as all other parts of the screen do: retrying and not
// scheduled. What a run reports takes the place of what it reported before, and each
// run that ends is counted once.
func TestActivitySaysRetrying(t *testing.T) {
	t.Parallel()
	s := newStage(t, 120, 40, newOverview)
	s.tell(data.Answer{Panel: data.Queues, Value: []monitor.Queue{{Name: "email", Slots: 1}}})
	queue := "a-queue-with-a-very-long-name-in-the-west-of-europe"
	s.tell(data.Feed{At: noon, Events: []data.Event{
		{ID: 1, Queue: queue, Kind: "Send", State: jobq.StateScheduled, Attempts: 1, Took: time.Second},
		{ID: 2, Queue: "email", Kind: "Send", State: jobq.StateScheduled, Took: time.Second},
		{ID: 3, Queue: "email", Kind: "Send", State: jobq.StateFailed, Attempts: 5},
		{ID: 4, Queue: "email", Kind: "Send", State: jobq.StateRunning, Percent: 10},
	}, Ended: map[string]data.Ended{"email": {Completed: 4, Failed: 3, Others: 1}, queue: {Others: 1}}})
	s.tell(data.Feed{At: noon, Events: []data.Event{{ID: 4, Queue: "email", Kind: "Send", State: jobq.StateRunning, Percent: 20}}})
	require.Regexp(t, `a-queue-.*…/Send 1 → retrying 1\.0s`, s.text())
	require.Contains(t, s.text(), "email/Send 2 → scheduled 1.0s")
	require.Contains(t, s.text(), "email: 4 more completed, 2 failed")
	require.NotContains(t, s.text(), "put off")
	require.NotContains(t, s.text(), " 10%")
	require.Contains(t, s.text(), "email/Send 4  20%")
}

// A run that failed and whose job is tried again has one line: it is not counted among
// the others that failed as well.
func TestActivityCountsRetriesOnce(t *testing.T) {
	t.Parallel()
	retried := data.Event{ID: 1, Queue: "email", Kind: "Send", State: jobq.StateScheduled, Attempts: 1}
	cancelled := data.Event{ID: 2, Queue: "email", Kind: "Send", State: jobq.StateCancelled}
	for _, test := range []struct {
		events []data.Event
		ended  data.Ended
		want   string // "" for nothing more
	}{
		{[]data.Event{retried}, data.Ended{Failed: 1}, ""},
		{[]data.Event{retried}, data.Ended{Failed: 3, Others: 1}, "email: 2 more failed, 1 put off or cancelled"},
		{[]data.Event{retried}, data.Ended{Others: 1}, ""}, // it was put off, and had failed before
		{[]data.Event{retried, cancelled}, data.Ended{Failed: 2, Others: 1}, "email: 1 more failed"},
	} {
		s := newStage(t, 120, 40, newOverview)
		s.tell(data.Answer{Panel: data.Queues, Value: []monitor.Queue{{Name: "email", Slots: 1}}})
		s.tell(data.Feed{At: noon, Events: test.events, Ended: map[string]data.Ended{"email": test.ended}})
		require.Contains(t, s.text(), "email/Send 1 → retrying")
		if test.want == "" {
			require.NotContains(t, s.text(), " more ")
		} else {
			require.Regexp(t, test.want+` *(\n|$)`, s.text())
		}
	}
}

// Figures of failures have a unit: of how many jobs within which time.
func TestFailuresHaveAUnit(t *testing.T) {
	t.Parallel()
	minutes := []monitor.Minute{
		{At: noon.Add(-10 * time.Minute), QueueStats: monitor.QueueStats{Queue: "email", Failed: 12, Completed: 600}},
		{At: noon.Add(-30 * time.Minute), QueueStats: monitor.QueueStats{Queue: "email", Failed: 5}},
	}
	for _, cells := range []int{80, 120, 200} {
		s := newStage(t, cells, 30, newOverview)
		s.tell(data.Answer{Panel: data.Minutes, Value: minutes}, data.Answer{Panel: data.Queues, Value: []monitor.Queue{{Name: "email", Failed: 400, Slots: 1}}})
		require.Contains(t, s.text(), "400, 17 in 1h")
		if cells >= 120 {
			require.Contains(t, s.text(), "at most 12 a minute")
			require.Contains(t, s.text(), "10.0/s |", "the scale of the chart")
		}
	}
}

// The failures of the whole hour are below what has completed, minute for minute.
func TestFailuresHaveRoom(t *testing.T) {
	t.Parallel()
	minutes := []monitor.Minute{
		{At: noon.Truncate(time.Minute).Add(-59 * time.Minute), QueueStats: monitor.QueueStats{Queue: "email", Failed: 12, Completed: 600}},
		{At: noon.Truncate(time.Minute).Add(-50 * time.Minute), QueueStats: monitor.QueueStats{Queue: "email", Failed: 12, Completed: 600}},
	}
	for cells, wide := range map[int]int{120: 1, 200: 2} {
		s := newStage(t, cells, 40, newOverview)
		s.tell(data.Answer{Panel: data.Minutes, Value: minutes}, data.Answer{Panel: data.Queues, Value: []monitor.Queue{{Name: "email", Slots: 1}}})
		bars := strings.Repeat("█", wide) + strings.Repeat(" ", 8*wide) + strings.Repeat("█", wide)
		require.Contains(t, s.text(), "failed |"+bars)
		require.Contains(t, s.text(), "/s |"+bars)
	}
}
