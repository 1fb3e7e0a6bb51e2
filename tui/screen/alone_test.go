package screen

import (
	"context"
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

// Each screen alone: at any size, with and without anything to show, it draws no
// more lines than it has room for, and drawing changes nothing.
func TestScreensAlone(t *testing.T) {
	t.Parallel()
	makers := map[Name]func(Kit) Screen{
		Overview: func(kit Kit) Screen { return NewOverview(kit) }, Jobs: newJobs, Queues: func(kit Kit) Screen { return NewQueues(kit) },
		Workers: func(kit Kit) Screen { return NewWorkers(kit) }, Schedules: func(kit Kit) Screen { return NewSchedules(kit) }, Errors: func(kit Kit) Screen { return NewErrors(kit) },
		Audit: func(kit Kit) Screen { return NewAudit(kit) }, Job: func(kit Kit) Screen { return NewJob(kit) },
	}
	require.Len(t, makers, len(Names()))
	r := &source{jobs: someJobs(150, jobq.StateFailed)}
	for name, make := range makers {
		for _, size := range [][2]int{{60, 10}, {80, 19}, {120, 30}, {200, 55}} {
			s := newStage(t, size[0], size[1], make)
			check := func() {
				view := s.View()
				require.Equal(t, view, s.View(), name)
				for i, line := range view.Lines[:min(len(view.Lines), size[1])] {
					require.LessOrEqual(t, ansi.StringWidth(line), size[0]+60, "%s line %d", name, i) // the root cuts what is too long
				}
				require.Less(t, view.Cursor, size[1], name)
				for _, line := range s.Told() {
					require.NotContains(t, line, "\n")
				}
			}
			check()
			s.tell(ShowJob{995})
			for _, want := range s.Wants() {
				value, err := want.Ask(context.Background(), anything{r})
				s.tell(data.Answer{Panel: want.Panel, About: want.About, Value: value, Err: err})
				check()
			}
			for id := range s.Actions() {
				if action, found := s.Actions()[id]; found && (action.Disabled == nil || action.Disabled() == "") { // one before may have disabled it
					s.do(id)
				}
				check()
			}
			s.tell(Tick{}, Click{3}, Pick{2}, Pick{0}, Scroll{5}, Back{}, Left{}, Acted{&operator.Acted{}}, tea.FocusMsg{})
			check()
		}
	}
}

// anything is a database that has something for each question.
type anything struct{ *source }

func (anything) Queues(context.Context) ([]monitor.Queue, error) {
	return []monitor.Queue{{Name: "email", Slots: 4, Failed: 3}, {Name: "sms"}}, nil
}

func (anything) Schedules(context.Context, string, int) ([]monitor.Schedule, error) {
	return []monitor.Schedule{{Schedule: jobq.Schedule{Name: "s\x1b", Every: time.Second}, NextAt: &noon}, {Schedule: jobq.Schedule{Name: "t"}, PausedAt: &noon}}, nil
}

func (anything) Ticks(context.Context, string, int) ([]monitor.Tick, error) {
	return []monitor.Tick{{At: noon, JobID: 7}, {At: noon.Add(-time.Second)}}, nil
}

func (anything) Minutes(context.Context, time.Duration) ([]monitor.Minute, error) {
	return []monitor.Minute{{At: noon, QueueStats: monitor.QueueStats{Queue: "email", Completed: 100, Failed: 3}}}, nil
}

func (anything) Failures(context.Context, monitor.FailureQuery) (monitor.Failures, error) {
	return monitor.Failures{Groups: []monitor.Failure{{Queue: "email", Kind: "Send", Error: "smtp \"421\"", Failed: 3, First: noon, Last: noon, Example: 995}}}, nil
}

func (anything) Kinds(context.Context) ([]monitor.Kind, error) {
	return []monitor.Kind{{Name: "Send", Workers: 1}}, nil
}

func (anything) Silent(context.Context) ([]monitor.SilentRuns, error) {
	return []monitor.SilentRuns{{Queue: "email", Kind: "Send", Runs: 1, Since: noon, Example: 995}}, nil
}

func (anything) Leader(context.Context) (*monitor.Leader, error) { return &monitor.Leader{PID: 1}, nil }

func (anything) Events(context.Context, int64, int) ([]monitor.Event, error) {
	return []monitor.Event{{ID: 1, At: noon, Type: monitor.EventStalled, JobID: 5}}, nil
}

func (anything) Workers(context.Context) ([]monitor.Worker, error) {
	return []monitor.Worker{{ID: "w-1", Slots: map[string]int{"email": 4}, HeartbeatAt: noon}}, nil
}

func (anything) Estimate(context.Context, jobq.Filter) (int64, error) { return 0, nil }

func (anything) Count(context.Context, jobq.Filter, int) (int64, error) { return 150, nil }

func (anything) Audit(context.Context, int64, int) ([]monitor.AuditEntry, error) {
	return []monitor.AuditEntry{{ID: 1, At: noon, Action: jobq.ActionDelete, JobIDs: []int64{1, 2}}}, nil
}

func (anything) Output(context.Context, int64, monitor.OutputPiece) ([]monitor.OutputPiece, error) {
	return nil, nil
}

// What is opened from a screen is asked for with a message.
func TestRequests(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		make func(Kit) Screen
		want tea.Msg
	}{
		{func(kit Kit) Screen { return NewQueues(kit) }, request.Jobs{Match: "queue:email"}},
		{func(kit Kit) Screen { return NewWorkers(kit) }, request.Jobs{Match: `state:running worker:"w-1"`}},
		{func(kit Kit) Screen { return NewErrors(kit) }, request.Jobs{Match: `state:failed queue:email kind:Send err:="smtp \"421\"" age:<1d`}},
		{func(kit Kit) Screen { return NewAudit(kit) }, request.Jobs{Match: "id:1,2"}},
		{newJobs, request.Job{ID: 1000}},
	} {
		s := newStage(t, 120, 30, test.make)
		for _, want := range s.Wants() {
			value, err := want.Ask(context.Background(), anything{&source{jobs: someJobs(3, jobq.StateFailed)}})
			s.tell(data.Answer{Panel: want.Panel, About: want.About, Value: value, Err: err})
		}
		s.do("open")
		require.Equal(t, []tea.Msg{test.want}, s.asked)
	}
}
