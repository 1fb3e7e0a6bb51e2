package screen

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/monitor"
	"github.com/jobq-dev/jobq/tui/command"
	"github.com/jobq-dev/jobq/tui/data"
	"github.com/jobq-dev/jobq/tui/request"
	"github.com/jobq-dev/jobq/tui/theme"
	"github.com/jobq-dev/jobq/tui/widget"
)

// noon is when every test takes place.
var noon = time.Date(2026, 11, 21, 14, 2, 31, 0, time.UTC)

// stage is what a screen is driven with: it stands for the root.
type stage struct {
	Screen
	t     *testing.T
	now   time.Time
	kit   Kit
	asked []tea.Msg // what the screen has asked for
}

// newStage puts a screen on a stage of this size.
func newStage(t *testing.T, cells, lines int, make func(Kit) Screen) *stage {
	t.Helper()
	made, err := theme.New(theme.Settings{Bare: true})
	require.NoError(t, err)
	s := &stage{t: t, now: noon}
	now := func() time.Time { return s.now }
	s.kit = Kit{Paint: &widget.Painter{Theme: made, Now: now}, Facts: data.NewFacts(now), Key: func(id string) string { return "<" + id + ">" }}
	s.Screen = make(s.kit)
	s.SetSize(cells, lines)
	return s
}

// tell gives the screen messages, after what answers have to say to all screens.
func (s *stage) tell(messages ...tea.Msg) {
	for _, msg := range messages {
		if answer, ok := msg.(data.Answer); ok {
			answer.At = s.now
			s.kit.Facts.Take(answer)
			msg = answer
		}
		if asked := s.Update(msg); asked != nil {
			s.asked = append(s.asked, asked)
		}
	}
}

// do runs actions by their commands.
func (s *stage) do(ids ...string) {
	s.t.Helper()
	for _, id := range ids {
		action, ok := s.Actions()[id]
		require.True(s.t, ok, "no action %s", id)
		if asked := action.Run(); asked != nil {
			s.asked = append(s.asked, asked)
		}
	}
}

// text is the screen as it is seen.
func (s *stage) text() string {
	view := s.View()
	return view.Head + "\n" + strings.Join(view.Lines, "\n")
}

// answer is what a question of the screen comes to at a database.
func (s *stage) answer(panel data.Panel, r data.Reader) data.Answer {
	s.t.Helper()
	for _, want := range s.Wants() {
		if want.Panel == panel {
			value, err := want.Ask(context.Background(), r)
			return data.Answer{Panel: panel, About: want.About, Value: value, Err: err}
		}
	}
	require.Fail(s.t, "the screen does not want "+panel.String())
	return data.Answer{}
}

// source is a database of some jobs; what a test does not need is not there.
type source struct {
	data.Reader
	jobs  []*jobq.Job
	graph []monitor.GraphJob
	err   error
}

func (r *source) List(_ context.Context, f jobq.Filter) (*jobq.Page, error) {
	if r.err != nil {
		return nil, r.err
	}
	page := &jobq.Page{}
	ids := regexp.MustCompile(`\d+`).FindAllString(strings.TrimPrefix(f.Match, "id:"), -1)
	for _, job := range r.jobs {
		if strings.HasPrefix(f.Match, "id:") && !contains(ids, fmt.Sprint(job.ID)) {
			continue
		}
		if len(page.Jobs) == f.Limit {
			page.Cursor = "more"
			break
		}
		row := *job
		page.Jobs = append(page.Jobs, &row)
	}
	return page, nil
}

func contains(all []string, one string) bool {
	for _, text := range all {
		if text == one {
			return true
		}
	}
	return false
}

func (r *source) Get(_ context.Context, id int64) (*jobq.Job, error) {
	for _, job := range r.jobs {
		if job.ID == id {
			row := *job
			return &row, nil
		}
	}
	return nil, jobq.ErrNotFound
}

func (r *source) Attempts(context.Context, int64) ([]monitor.Attempt, error) { return nil, nil }

func (r *source) Why(context.Context, int64) ([]monitor.Reason, error) {
	return []monitor.Reason{{Code: monitor.ReasonNextInLine}}, r.err
}

func (r *source) Graph(context.Context, int64) ([]monitor.GraphJob, error) { return r.graph, r.err }

func (r *source) LastSteps(context.Context, int64, int) ([]monitor.Step, error) { return nil, nil }

func (r *source) JobActions(context.Context, int64) ([]monitor.JobAction, error) { return nil, nil }

// someJobs are jobs of one state, the newest first.
func someJobs(count int, state jobq.State) (jobs []*jobq.Job) {
	for i := range count {
		started, finished := noon.Add(-time.Minute), noon
		jobs = append(jobs, &jobq.Job{
			ID: int64(1000 - i), State: state, Queue: "email", Kind: "Send", MaxAttempts: 25, CreatedAt: noon.Add(-time.Hour), RunAt: noon.Add(-time.Hour),
			StartedAt: &started, FinishedAt: &finished,
		})
	}
	return jobs
}

func newJobs(kit Kit) Screen { return NewJobs(kit) }

// Only jobs that were looked for can be found to be deleted: the answer about the
// rows that were on the screen says nothing about those that are now.
func TestLookedForRowsOnly(t *testing.T) {
	t.Parallel()
	s := newStage(t, 120, 20, newJobs)
	r := &source{jobs: someJobs(80, jobq.StateFailed)}
	s.tell(s.answer(data.Page, r))
	late := s.answer(data.Visible, r) // about the first rows
	s.do("page-down", "page-down")
	s.tell(late)
	require.NotContains(t, s.text(), "deleted")
	r.jobs = r.jobs[:len(r.jobs)-1]
	s.do("end")
	s.tell(s.answer(data.Visible, r))
	require.Equal(t, 1, strings.Count(s.text(), "→ deleted"), s.text())
}

// New jobs above the list are those that come before its first one, in any order
// of the list: one that has moved up to the end of the page is not above.
func TestNewAbove(t *testing.T) {
	t.Parallel()
	for _, reverse := range []bool{false, true} {
		s := newStage(t, 120, 20, newJobs)
		r := &source{jobs: someJobs(120, jobq.StateFailed)}
		if reverse {
			s.do("reverse")
		}
		s.tell(s.answer(data.Page, r))
		s.do("down")
		r.jobs = r.jobs[1:]
		s.tell(s.answer(data.Page, r))
		require.NotContains(t, s.text(), "new above", reverse)
		r.jobs = append([]*jobq.Job{{ID: 2000, State: jobq.StateFailed}, {ID: 1999, State: jobq.StateFailed}}, r.jobs...)
		s.tell(s.answer(data.Page, r))
		require.Contains(t, s.text(), "2 new above")
	}
}

// With a filter, the numbers beside the states are of the jobs that match: only
// that of the state that is shown is known.
func TestTabsCountWhatMatches(t *testing.T) {
	t.Parallel()
	s := newStage(t, 120, 20, newJobs)
	s.tell(data.Answer{Panel: data.Queues, Value: []monitor.Queue{{Name: "email", Failed: 1184, Available: 7}}})
	require.Contains(t, s.text(), "Failed 1,184")
	s.tell(ShowJobs{Match: "state:failed kind:Send"})
	tabs := func() string { return strings.Split(s.text(), "\n")[1] }
	require.NotRegexp(t, `\d`, tabs())
	r := &source{jobs: someJobs(11, jobq.StateFailed)}
	s.tell(s.answer(data.Page, r), data.Answer{Panel: data.Count, About: "state:failed kind:Send", Value: counted{total: 11}})
	require.Contains(t, tabs(), "[Failed 11]")
	require.NotContains(t, tabs(), "7")
}

// An error that a job had before it completed is not shown as if it had failed.
func TestErrorOfCompletedJob(t *testing.T) {
	t.Parallel()
	jobs := someJobs(2, jobq.StateCompleted)
	jobs[0].LastError, jobs[0].Attempts = "smtp 421", 1
	jobs[1].State, jobs[1].LastError = jobq.StateFailed, "smtp 550"
	s := newStage(t, 120, 30, newJobs)
	r := &source{jobs: jobs}
	s.tell(s.answer(data.Page, r))
	s.tell(s.answer(data.Job, r))
	require.NotContains(t, s.text(), "421")
	require.Contains(t, s.text(), "smtp 550")
	page := newStage(t, 120, 30, func(kit Kit) Screen { return NewJob(kit) })
	page.tell(ShowJob{1000})
	page.tell(page.answer(data.Job, r))
	require.Contains(t, page.text(), "before     failed with smtp 421")
}

// The attempt is the same figure in the list, in the preview and on the page.
func TestAttemptsAgree(t *testing.T) {
	t.Parallel()
	jobs := someJobs(1, jobq.StateRunning)
	jobs[0].FinishedAt = nil
	r := &source{jobs: jobs}
	s := newStage(t, 120, 30, newJobs)
	s.tell(s.answer(data.Page, r))
	s.tell(s.answer(data.Job, r))
	require.Equal(t, 2, strings.Count(s.text(), "1/25"), s.text())
	require.NotContains(t, s.text(), "0/25")
	require.Contains(t, strings.Join(s.Told(), "\n"), "attempt 1 of 25")
}

// Runs are numbered one after another, also when attempts began anew.
func TestRunsAreNumbered(t *testing.T) {
	t.Parallel()
	job := someJobs(1, jobq.StateFailed)[0]
	story := Story{job: job}
	for i := range 3 {
		at := noon.Add(time.Duration(i-3) * time.Minute)
		story.runs = append(story.runs, monitor.Attempt{Number: 1, Outcome: jobq.OutcomeFailed, StartedAt: at, FinishedAt: at.Add(time.Second), LeaseToken: int64(i + 1)})
	}
	s := newStage(t, 120, 30, func(kit Kit) Screen { return NewJob(kit) })
	s.tell(ShowJob{job.ID})
	s.tell(data.Answer{Panel: data.Job, About: s.Wants()[0].About, Value: story})
	for _, want := range []string{"   3 failed", "   2 failed", "   1 failed", "run 1 ", "run 2 ", "run 3 ", "Output of run 3"} {
		require.Contains(t, s.text(), want)
	}
}

// A list of jobs that matches nothing, or is yet to come, says so, and never that
// it shows more jobs than there are.
func TestPositions(t *testing.T) {
	t.Parallel()
	s := newStage(t, 120, 20, newJobs)
	require.Contains(t, s.text(), "asking the database")
	for _, test := range []struct {
		jobs         int
		total, about int64
		want         string
	}{
		{11, 0, 0, "1-11 of 11 "},
		{11, 11, 0, "1-11 of 11 "},
		{30, 12, 0, "1-15 of 30 "},
		{300, 12, 0, "1-15 of 100+ "},
		{300, 300, 0, "1-15 of 300 "},
		{300, jobq.CountMax, 0, "1-15 of 10k+ "},
		{300, jobq.CountMax, 2_950_000, "1-15 of ~3.0M "},
		{300, jobq.CountMax, 900, "1-15 of 10k+ "},
	} {
		s = newStage(t, 120, 20, newJobs)
		s.tell(s.answer(data.Page, &source{jobs: someJobs(test.jobs, jobq.StateFailed)}), data.Answer{Panel: data.Count, About: "", Value: counted{test.total, test.about}})
		require.Contains(t, s.text(), test.want)
	}
	s = newStage(t, 120, 20, newJobs)
	s.tell(data.Answer{Panel: data.Page, Err: errors.New("no"), About: s.answer(data.Page, &source{}).About})
	require.NotContains(t, s.text(), " of ")
}

// How many jobs of a queue failed of late is the sum of the queue, and not of the
// errors that are known: those are the most frequent of all queues only.
func TestAttentionSums(t *testing.T) {
	t.Parallel()
	s := newStage(t, 120, 40, func(kit Kit) Screen { return NewOverview(kit) })
	minutes := []monitor.Minute{
		{At: noon.Add(-time.Minute), QueueStats: monitor.QueueStats{Queue: "email", Failed: 240}},
		{At: noon.Add(-2 * time.Minute), QueueStats: monitor.QueueStats{Queue: "sms", Failed: 3}},
		{At: noon.Add(-40 * time.Minute), QueueStats: monitor.QueueStats{Queue: "old", Failed: 9}},
	}
	s.tell(
		data.Answer{Panel: data.Failures, Value: monitor.Failures{Groups: []monitor.Failure{{Queue: "email", Kind: "Send", Error: "smtp 421", Failed: 186}}}},
		data.Answer{Panel: data.Minutes, Value: minutes},
		data.Answer{Panel: data.Queues, Value: []monitor.Queue{{Name: "email", Slots: 1}, {Name: "sms", Slots: 1}}})
	require.Contains(t, s.text(), `email: 240 failed in 20m, 186 of Send: smtp 421`)
	require.Contains(t, s.text(), "sms: 3 failed in 20m")
	require.NotContains(t, s.text(), "old:")
}

// A queue that is not in use any more is no trouble, whatever it has left behind,
// and jobs beyond the slots are told apart from those within.
func TestQueuesInUse(t *testing.T) {
	t.Parallel()
	s := newStage(t, 120, 30, func(kit Kit) Screen { return NewQueues(kit) })
	s.tell(
		data.Answer{Panel: data.Failures, Value: monitor.Failures{Groups: []monitor.Failure{{Queue: "gone", Error: "x", Failed: 9}}}},
		data.Answer{Panel: data.Queues, Value: []monitor.Queue{{Name: "gone", Failed: 9}, {Name: "busy", Slots: 64, Running: 67, Claimed: 151}, {Name: "calm", Slots: 4}}})
	rows := regexp.MustCompile(`(?m)^[> ] (busy|calm|gone)`).FindAllStringSubmatch(s.text(), -1)
	require.Equal(t, "gone", rows[2][1], "last")
	require.Contains(t, s.text(), "gone (not in use)")
	require.Contains(t, s.text(), "64+3")
	require.Contains(t, s.text(), "67 in use: 3 in workers that drain, or about to begin; 151 jobs claimed ahead")
}

// What runs of a queue's limit is in the list, if it has room there, and below it with
// the rate. The words have both.
func TestLimitsOfQueues(t *testing.T) {
	t.Parallel()
	s := newStage(t, 120, 30, func(kit Kit) Screen { return NewQueues(kit) })
	s.tell(data.Answer{Panel: data.Queues, Value: []monitor.Queue{
		{Name: "large", Slots: 9000, Running: 4711, QueueSettings: monitor.QueueSettings{MaxRunning: 10000, KeyLimit: 2, KeyRate: &jobq.Rate{Jobs: 10, Period: time.Second, Burst: 3}, Retention: 90 * 24 * time.Hour, FailedRetention: 365 * 24 * time.Hour}},
		{
			Name: "small", Slots: 8, Running: 3, ThrottledUntil: new(noon.Add(time.Minute)),
			QueueSettings: monitor.QueueSettings{MaxRunning: 3, KeyLimit: 1, KeyOrder: jobq.KeyOrderHold, KeySeparator: "/\a", Rate: &jobq.Rate{Jobs: 5, Period: time.Minute, Burst: 2}},
		},
	}})
	s.do("up")
	require.Regexp(t, `(?m)^> large +9,000 +4,711 `, s.text())
	require.Contains(t, s.text(), " limits    4,711/10,000 run, 2 of each key, 10/s of each key, burst 3\n kept      finished jobs 90d, failed and cancelled ones 365d\n")
	s.do("down")
	require.Regexp(t, `(?m)^> small +8 +3/3 `, s.text())
	require.Contains(t, s.text(), " limits    3/3 run, 1 of each key, in order (hold), groups of keys by '/␇', 5/m, throttled until 14:03:31, burst 2\n")
	require.NotContains(t, s.text(), " kept ")
	require.Contains(t, strings.Join(s.Told(), "\n"), "limit 10,000, limit of each partition key 2, rate of each partition key 10/s, kept: finished jobs 90d, failed and cancelled ones 365d")
	require.Contains(t, strings.Join(s.Told(), "\n"), "small, 3 running, 0 available, 0 scheduled, 0 retrying, 0 failed, limit 3, limit of each partition key 1, keys in order, hold, groups of keys by '/␇', throttled until 14:03:31")
}

// Who paused a queue, and why, stands once below the list of queues.
func TestPauseIsToldOnce(t *testing.T) {
	t.Parallel()
	paused := noon.Add(-time.Minute)
	s := newStage(t, 120, 30, func(kit Kit) Screen { return NewQueues(kit) })
	s.tell(data.Answer{Panel: data.Workers, Value: []monitor.Worker{}}, data.Answer{Panel: data.Queues, Value: []monitor.Queue{
		{Name: "email", PausedAt: &paused, PausedBy: "ana", PauseReason: "audit"}, {Name: "video", Available: 1, AvailableMax: 1, HeadRunAt: &paused},
	}})
	if !strings.Contains(s.text(), "> email") {
		s.do("down")
	}
	require.Contains(t, s.text(), "> email")
	require.Equal(t, 1, strings.Count(s.text(), "by ana: audit"))
	require.NotContains(t, s.text(), " waiting ")
	s.do("up")
	require.Contains(t, s.text(), "> video")
	require.Contains(t, s.text(), " waiting   no live worker takes jobs from the queue")
}

// The likely reason why a job waits is on its page and in its preview.
func TestWhyWaiting(t *testing.T) {
	t.Parallel()
	paused, head, soon := noon.Add(-time.Minute), noon.Add(-40*time.Second), noon.Add(12*time.Second)
	live := monitor.Worker{ID: "w", Slots: map[string]int{"email": 4}, Kinds: []string{"Other"}, HeartbeatAt: noon}
	able := live
	able.Kinds = []string{"Send"}
	held := able
	held.Hostname, held.Held = "gpu-3", &monitor.Held{By: "ana", Reason: "bad disk", Since: paused}
	apart := able
	apart.KindSlots = map[string]int{"Resize": 4}
	for _, test := range []struct {
		queue   monitor.Queue
		workers []monitor.Worker
		want    string
	}{
		{monitor.Queue{PausedAt: &paused, PausedBy: "ana", PauseReason: "audit"}, nil, "the queue is paused by ana: audit"},
		{monitor.Queue{}, nil, "no live worker takes jobs from the queue"},
		{monitor.Queue{Slots: 4}, []monitor.Worker{live}, "no live worker has kind Send"},
		{monitor.Queue{Slots: 4}, []monitor.Worker{held, live}, "its workers are held, 1 in all: host"},
		{monitor.Queue{Slots: 4}, []monitor.Worker{held, able}, ""},
		{monitor.Queue{Slots: 4, Running: 3, QueueSettings: monitor.QueueSettings{MaxRunning: 3}}, []monitor.Worker{able}, "the queue is at its limit: 3 of 3 jobs run"},
		{monitor.Queue{Slots: 4, QueueSettings: monitor.QueueSettings{Rate: &jobq.Rate{Jobs: 5, Period: time.Minute}}, ThrottledUntil: &soon}, []monitor.Worker{able}, "the queue is at its rate of 5/m: the next job"},
		{monitor.Queue{Slots: 4, Running: 2, QueueSettings: monitor.QueueSettings{MaxRunning: 3, Rate: &jobq.Rate{Jobs: 5, Period: time.Minute}}}, []monitor.Worker{able}, ""},
		{monitor.Queue{Slots: 4, Running: 4, HeadRunAt: &head}, []monitor.Worker{able}, "all 4 slots are in use"},
		{monitor.Queue{Slots: 4, Running: 3, Claimed: 1, HeadRunAt: &head}, []monitor.Worker{able}, "all 4 slots are in use"},
		{monitor.Queue{Slots: 4, Running: 4, HeadRunAt: &head}, []monitor.Worker{apart}, ""},
		{monitor.Queue{Slots: 4}, []monitor.Worker{able}, ""},
	} {
		test.queue.Name = "email"
		job := someJobs(1, jobq.StateAvailable)[0]
		job.StartedAt, job.FinishedAt = nil, nil
		for _, make := range []func(Kit) Screen{newJobs, func(kit Kit) Screen { return NewJob(kit) }} {
			s := newStage(t, 120, 30, make)
			r := &source{jobs: []*jobq.Job{job}}
			s.tell(ShowJob{job.ID}, data.Answer{Panel: data.Queues, Value: []monitor.Queue{test.queue}}, data.Answer{Panel: data.Workers, Value: test.workers})
			if _, isList := s.Screen.(*JobList); isList {
				s.tell(s.answer(data.Page, r))
			}
			s.tell(data.Answer{Panel: data.Job, About: storyQuestion{id: job.ID, output: true}, Value: Story{job: job}})
			if test.want == "" {
				require.NotContains(t, s.text(), "waiting ")
			} else {
				require.Contains(t, s.text(), test.want)
			}
			kinds := slices.IndexFunc(s.Wants(), func(want data.Want) bool { return want.Panel == data.Kinds })
			require.GreaterOrEqual(t, kinds, 0, "what may be the reason is asked")
			s.tell(data.Answer{Panel: data.Kinds, Value: []monitor.Kind{{Name: "Other", PausedAt: &paused}, {Name: "Send", Crashes: 1}}})
			require.NotContains(t, s.text(), "kind Send is paused")
			s.tell(data.Answer{Panel: data.Kinds, Value: []monitor.Kind{{Name: "Send", PausedAt: &paused, PausedBy: "ana", PauseReason: "broken"}}})
			if test.queue.PausedAt == nil {
				require.Contains(t, s.text(), "kind Send is paused by ana: broken")
			}
		}
	}
}

// Why a job is not running is asked of the list and of the page of the job, told in lines
// that fit, and kept until nothing else lies over the screen. An error is told as such.
func TestWhyIsTold(t *testing.T) {
	t.Parallel()
	for _, make := range []func(Kit) Screen{newJobs, func(kit Kit) Screen { return NewJob(kit) }} {
		s := newStage(t, 60, 20, make)
		r := &source{jobs: someJobs(1, jobq.StateAvailable)}
		s.tell(ShowJob{1000})
		if _, isList := s.Screen.(*JobList); isList {
			s.tell(s.answer(data.Page, r))
		}
		asked, isRead := s.Actions()[command.Why].Run().(request.Read)
		require.True(t, isRead)
		answer, isAnswer := asked.Ask(context.Background(), r).(reasons)
		require.True(t, isAnswer)
		require.EqualValues(t, 1000, answer.id)

		answer.found = append(answer.found, monitor.Reason{Code: monitor.ReasonQueuePaused, Facts: monitor.ReasonFacts{Queue: "email", By: "ana", Note: "\x1b[2J" + strings.Repeat("x ", 60)}})
		later, isLater := s.Update(answer).(request.Later)
		require.True(t, isLater)
		note, isNote := later.Overlay.(request.Note)
		require.True(t, isNote)
		require.Equal(t, "Why is job 1000 not running?", note.Title)
		require.Contains(t, strings.Join(note.Lines, " "), "it is next in line")
		require.Contains(t, strings.Join(note.Lines, " "), "jobq queues resume email")
		for _, line := range note.Lines {
			require.LessOrEqual(t, ansi.StringWidth(line), 60-whyMargin)
			require.NotContains(t, line, "\x1b")
		}
		require.Equal(t, request.Tell{Text: "why: gone"}, s.Update(reasons{asked: answer.asked, err: errors.New("gone")}))
		require.Nil(t, s.Update(reasons{asked: new(base), id: 1000}), "of another screen")
	}
}
