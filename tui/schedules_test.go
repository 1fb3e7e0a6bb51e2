package tui

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/monitor"
	"github.com/jobq-dev/jobq/tui/command"
	"github.com/jobq-dev/jobq/tui/screen"
)

// someSchedules are one of each state, by name, and ticks of one of them.
func someSchedules() (schedules []monitor.Schedule, ticks []monitor.Tick) {
	made := func(name, cron, zone string, every time.Duration, kind string) monitor.Schedule {
		return monitor.Schedule{
			Schedule: jobq.Schedule{
				Name: name, Cron: cron, TimeZone: zone, Every: every, Kind: kind, Queue: "default", Args: json.RawMessage(`{"weeks": 1}`),
				CatchUp: jobq.CatchUpLatest, CatchUpWithin: 24 * time.Hour, Overlap: jobq.OverlapSkip,
			},
			CreatedAt: noon.Add(-24 * time.Hour),
		}
	}
	backup, bill := made("backup", "15 3 * * *", "UTC", 0, "backup"), made("bill", "@monthly", "UTC", 0, "bill")
	report, stuck, sync := made("report", "0 9 * * mon", "Europe/Berlin", 0, "report"), made("stuck", "*/5 * * * *", "UTC", 0, "stuck"), made("sync", "", "", 30*time.Second, "sync")
	backup.NextAt, backup.Late = new(noon.Add(-11*time.Hour)), 11*time.Hour
	bill.PausedAt, bill.PausedBy, bill.PauseReason = new(noon.Add(-3*time.Hour)), "ana@laptop", "books are closed"
	report.NextAt, report.LastTickAt, report.LastJobID, report.Source = new(noon.Add(42*time.Hour)), new(noon.Add(-5*24*time.Hour)), 48213911, "jobq.yaml"
	stuck.NextAt, stuck.Error, stuck.ErrorAt, stuck.Failures = new(noon.Add(2*time.Minute)), "new row violates a check of yours", new(noon.Add(-time.Minute)), 3
	sync.PartitionKey = "customer-17"
	sync.NextAt, sync.LastTickAt, sync.LastLeftOut, sync.LastJobID = new(noon.Add(29*time.Second)), new(noon.Add(-time.Second)), true, 48213904
	return []monitor.Schedule{backup, bill, report, stuck, sync}, []monitor.Tick{
		{At: noon.Add(-time.Second)}, {At: noon.Add(-31 * time.Second), JobID: 48213904, State: jobq.StateFailed}, {At: noon.Add(-61 * time.Second), JobID: 48213000},
	}
}

func (f *fake) Schedules(_ context.Context, after string, limit int) ([]monitor.Schedule, error) {
	var page []monitor.Schedule
	for _, s := range f.schedules {
		if s.Name > after && len(page) < limit {
			page = append(page, s)
		}
	}
	return page, f.err
}

func (f *fake) Ticks(context.Context, string, int) ([]monitor.Tick, error) {
	return slices.Clone(f.ticks), f.err
}

// schedule changes the schedule of that name, and notes what was done.
func (f *fake) schedule(name, done string, change func(s *monitor.Schedule)) (auditID int64, err error) {
	f.written = append(f.written, done+" "+name)
	for i := range f.schedules {
		if f.schedules[i].Name == name {
			change(&f.schedules[i])
		}
	}
	return 31, f.err
}

func (f *fake) PauseSchedule(_ context.Context, name, reason string) (int64, error) {
	return f.schedule(name, "pause schedule for "+reason, func(s *monitor.Schedule) {
		s.PausedAt, s.PausedBy, s.PauseReason, s.NextAt = &f.now, "me", reason, nil
	})
}

func (f *fake) ResumeSchedule(_ context.Context, name string) (int64, error) {
	return f.schedule(name, "resume schedule", func(s *monitor.Schedule) { s.PausedAt, s.NextAt = nil, new(f.now.Add(time.Hour)) })
}

func (f *fake) RemoveSchedule(_ context.Context, name string) (int64, error) {
	id, err := f.schedule(name, "remove schedule", func(*monitor.Schedule) {})
	f.schedules = slices.DeleteFunc(f.schedules, func(s monitor.Schedule) bool { return s.Name == name })
	return id, err
}

func (f *fake) RunSchedule(_ context.Context, name string) (int64, error) {
	_, err := f.schedule(name, "run schedule", func(*monitor.Schedule) {})
	return 48213999, err
}

// An operator pauses a schedule with a reason, lets it go on, has its job run now, and
// removes it after a question; what undo brings back, it is offered for.
func TestActOnSchedules(t *testing.T) {
	t.Parallel()
	b := newBench(120, 35)
	b.press(Schedules, Pause, "full disk", Accept)
	require.Contains(t, b.plain(), "paused schedule backup   u undo")
	require.Regexp(t, `> backup .* paused 0s ago by me`, b.plain())
	require.Contains(t, b.plain(), "by me: full disk")
	b.press(Undo)
	b.tick(10 * time.Second)
	require.Contains(t, b.footer(), "p resume")
	b.press(Pause)
	require.Contains(t, b.plain(), "resumed schedule backup   u undo")
	b.press(RunNow)
	require.Contains(t, b.plain(), "schedule backup has added job 48213999")
	b.press(Undo)
	require.Contains(t, b.plain(), "there is nothing to undo")
	b.press(Remove)
	require.Contains(t, b.plain(), "remove schedule backup")
	b.tick(time.Second)
	b.press(No, Remove)
	b.tick(time.Second)
	b.press(Yes)
	require.Contains(t, b.plain(), "removed schedule backup   u undo")
	require.Regexp(t, `> bill `, b.plain())
	b.press(Undo)
	require.Equal(t, []string{
		"pause schedule for full disk backup", "undo 31", "resume schedule backup", "run schedule backup", "remove schedule backup", "undo 31",
	}, b.fake.written)
	b.fake.err = fmt.Errorf("pause schedule: %w", errors.New("no such schedule"))
	b.press(Pause)
	require.Contains(t, b.plain(), "resume: ")
}

// Where an operator has to confirm, nothing is done to a schedule before a question is
// answered, and to remove one takes a word.
func TestActOnSchedulesOfProduction(t *testing.T) {
	t.Parallel()
	b := newBench(120, 35)
	b.env.confirm = true
	ask := func(answer string, keys ...string) {
		b.press(keys...)
		b.tick(time.Second)
		b.press(answer)
	}
	b.press(Schedules, Down, Down)
	ask(No, RunNow)
	ask(No, Pause, "x", Accept)
	ask(Yes, Remove)
	b.press(Accept, Leave)
	require.Empty(t, b.fake.written)
	ask(Yes, RunNow)
	ask(command.Remove, Remove)
	b.press(Accept)
	require.Equal(t, []string{"run schedule report", "remove schedule report"}, b.fake.written)
}

// An open schedule shows its next ticks and its latest ones, whose jobs open from
// there; esc leads back to the list. A tick without a job says why it has none.
func TestOpenSchedule(t *testing.T) {
	t.Parallel()
	b := newBench(120, 35)
	b.press(Schedules, End, Open)
	for _, want := range []string{"14:03:00 UTC, in 29s", "14:05:00 UTC, in 2m29s", "left out: the job before was unfinished", "48213000 gone"} {
		require.Contains(t, b.plain(), want)
	}
	b.press(Open)
	require.Contains(t, b.plain(), "the tick was left out")
	b.press(Down, Open)
	require.Equal(t, screen.Job, b.at)
	require.Contains(t, b.plain(), "Jobs ▸ 48213904")
	b.press(Back)
	require.Contains(t, b.plain(), "Ticks 3", "where it was")
	b.press(Pause, "later", Accept)
	require.Contains(t, b.plain(), "none while it is paused")
	b.press(Back)
	require.Contains(t, b.plain(), "Schedules 5")
	b.press(Open)
	b.fake.schedules = b.fake.schedules[:2]
	b.tick(time.Minute)
	require.Contains(t, b.plain(), "Schedules 2", "somebody has removed it")
}

// A refresh of the screen is one question to the database, and one more where a
// schedule is open; both are bounded.
func TestSchedulesAreOneQuestion(t *testing.T) {
	t.Parallel()
	b := newBench(80, 24)
	b.press(Schedules)
	require.Len(t, b.current().Wants(), 1)
	b.press(Open)
	require.Len(t, b.current().Wants(), 2)
}
