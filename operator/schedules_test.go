package operator_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/jobtest"
	"github.com/jobq-dev/jobq/monitor"
	"github.com/jobq-dev/jobq/operator"
)

// A schedule comes back as it was set, whatever is set of it, and is listed by name.
func TestSetSchedule(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	client := jobtest.Client(t)
	o, m := operator.New(client, "ann"), monitor.New(client)
	full := jobq.Schedule{
		Name: "report", Cron: "0 9 * * mon", TimeZone: "Europe/Berlin", Kind: "report", Args: json.RawMessage(`{"week": 1}`), Queue: "reports",
		Priority: -3, MaxAttempts: 5, Timeout: time.Minute, BackoffBase: time.Second, BackoffMax: time.Hour, Tags: []string{"a", "b"},
		Metadata: json.RawMessage(`{"trace": "x"}`), PartitionKey: "customer-17", CatchUp: jobq.CatchUpAll, CatchUpMax: 7, CatchUpWithin: 48 * time.Hour, Overlap: jobq.OverlapSkip,
		Source: "file jobq.yaml",
	}
	auditID, err := o.SetSchedule(ctx, full)
	require.NoError(t, err)
	require.NotZero(t, auditID)
	got, err := m.Schedule(ctx, "report")
	require.NoError(t, err)
	require.Equal(t, full, got.Schedule)
	auditID, err = o.SetSchedule(ctx, full)
	require.NoError(t, err)
	require.Zero(t, auditID, "it is so already")
	same := full
	same.Cron, same.Args = " 0  9 * * mon", json.RawMessage(`{"week":1}`)
	auditID, err = o.SetSchedule(ctx, same)
	require.NoError(t, err)
	require.NotZero(t, auditID, "the expression is another text")

	_, err = o.SetSchedule(ctx, jobq.Schedule{Name: "tick", Every: 90 * time.Second, Kind: "tick", Args: json.RawMessage(`"` + strings.Repeat("x", 2000) + `"`)})
	require.NoError(t, err)
	tick, err := m.Schedule(ctx, "tick")
	require.NoError(t, err)
	require.Len(t, tick.Args, 2002)
	require.Equal(t, jobq.Schedule{
		Name: "tick", Every: 90 * time.Second, Kind: "tick", Args: tick.Args, Queue: "default", MaxAttempts: 25,
		CatchUp: jobq.CatchUpLatest, CatchUpMax: 100, CatchUpWithin: 24 * time.Hour, Overlap: jobq.OverlapAllow,
	}, tick.Schedule, "the defaults")
	require.NotNil(t, tick.NextAt)
	require.Zero(t, tick.NextAt.Unix()%90)

	for limit, want := range map[int][]string{1: {"report"}, 1000: {"report", "tick"}} {
		list, err := m.Schedules(ctx, "", limit)
		require.NoError(t, err)
		var names []string
		for _, schedule := range list {
			names = append(names, schedule.Name)
		}
		require.Equal(t, want, names)
	}
	rest, err := m.Schedules(ctx, "report", 10)
	require.NoError(t, err)
	require.Len(t, rest, 1)
	require.Empty(t, rest[0].Args, "args of more than 1000 bytes are not listed")
	for _, wrong := range []int{0, 1001} {
		_, err = m.Schedules(ctx, "", wrong)
		require.ErrorIs(t, err, jobq.ErrInvalid)
		_, err = m.Ticks(ctx, "tick", wrong)
		require.ErrorIs(t, err, jobq.ErrInvalid)
		_, err = m.NextTicks(ctx, "tick", wrong)
		require.ErrorIs(t, err, jobq.ErrInvalid)
	}
	next, err := m.NextTicks(ctx, "report", 3)
	require.NoError(t, err)
	require.Len(t, next, 3)
	require.Contains(t, []time.Duration{167 * time.Hour, 168 * time.Hour, 169 * time.Hour}, next[1].Sub(next[0]), "a week, in which the clocks may change")
}

// A schedule that cannot work is refused, and the error says which value is wrong.
func TestInvalidSchedules(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	o := operator.New(jobtest.Client(t), "ann")
	for want, change := range map[string]func(*jobq.Schedule){
		"name must be 1 to 128 characters, not 0":                      func(s *jobq.Schedule) { s.Name = "" },
		"name must be 1 to 128 characters, not 129":                    func(s *jobq.Schedule) { s.Name = strings.Repeat("ä", 129) },
		"name must be valid UTF-8 without NUL bytes":                   func(s *jobq.Schedule) { s.Name = "a\x00b" },
		"kind must be valid UTF-8 without NUL bytes":                   func(s *jobq.Schedule) { s.Kind = "a\x00b" },
		"kind must be 1 to 128 characters, not 0":                      func(s *jobq.Schedule) { s.Kind = "" },
		"either cron or every must be given":                           func(s *jobq.Schedule) { s.Cron = "" },
		"cron and every must not be given both":                        func(s *jobq.Schedule) { s.Every = time.Second },
		"every 1ms: must be whole seconds, from 1s to 366d":            func(s *jobq.Schedule) { s.Cron, s.Every = "", time.Millisecond },
		"time_zone is for cron":                                        func(s *jobq.Schedule) { s.Cron, s.Every, s.TimeZone = "", time.Second, "Europe/Berlin" },
		`cron "0 0 30 2 *" never fires`:                                func(s *jobq.Schedule) { s.Cron = "0 0 30 2 *" },
		"it must have 5 fields":                                        func(s *jobq.Schedule) { s.Cron = "0 0 0 30 2 *" },
		"cron must be 1 to 255 characters, not 300":                    func(s *jobq.Schedule) { s.Cron = strings.Repeat(" ", 291) + "* * * * *" },
		`time zone "Mars/Olympus": unknown`:                            func(s *jobq.Schedule) { s.TimeZone = "Mars/Olympus" },
		"catch_up must be none, latest or all, not some":               func(s *jobq.Schedule) { s.CatchUp = "some" },
		"catch_up_max must be 1 to 1000, not 1001":                     func(s *jobq.Schedule) { s.CatchUpMax = 1001 },
		"catch_up_within must be 1 second to 10 years":                 func(s *jobq.Schedule) { s.CatchUpWithin = time.Millisecond },
		"overlap must be allow or skip, not queue":                     func(s *jobq.Schedule) { s.Overlap = "queue" },
		"args must be JSON":                                            func(s *jobq.Schedule) { s.Args = json.RawMessage("{") },
		"args must not contain the NUL character":                      func(s *jobq.Schedule) { s.Args = json.RawMessage(`"\u0000"`) },
		"args must be at most 1048576 bytes as stored, not ":           func(s *jobq.Schedule) { s.Args = json.RawMessage(`"` + strings.Repeat("x", 1<<20) + `"`) },
		"metadata must be a JSON object, not array":                    func(s *jobq.Schedule) { s.Metadata = json.RawMessage("[]") },
		"metadata must be at most 64 KiB as stored":                    func(s *jobq.Schedule) { s.Metadata = json.RawMessage(`{"a": "` + strings.Repeat("x", 65500) + `"}`) },
		"max_attempts must be 1 to 32767, not 32768":                   func(s *jobq.Schedule) { s.MaxAttempts = 32768 },
		"timeout must be positive, at most 10 years":                   func(s *jobq.Schedule) { s.Timeout = -time.Second },
		"tags must be at most 32, without nulls, 8 KiB in all, not 33": func(s *jobq.Schedule) { s.Tags = make([]string, 33) },
		"source must be at most 255 characters, not 256":               func(s *jobq.Schedule) { s.Source = strings.Repeat("x", 256) },
	} {
		s := jobq.Schedule{Name: "n", Kind: "k", Cron: "@daily"}
		change(&s)
		_, err := o.SetSchedule(ctx, s)
		require.ErrorIs(t, err, jobq.ErrInvalid, want)
		require.ErrorContains(t, err, want)
		require.NotContains(t, err.Error(), "SQLSTATE")
	}
}

// What people do to schedules is in the audit, each with its name. That one was run
// cannot be undone, and the error says what to do instead.
func TestActOnSchedules(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	client := jobtest.Client(t)
	o, m := operator.New(client, "ann"), monitor.New(client)
	for what, act := range map[string]func() error{
		"pause":  func() error { _, err := o.PauseSchedule(ctx, "s", ""); return err },
		"resume": func() error { _, err := o.ResumeSchedule(ctx, "s"); return err },
		"remove": func() error { _, err := o.RemoveSchedule(ctx, "s"); return err },
		"run":    func() error { _, err := o.RunSchedule(ctx, "s"); return err },
		"next":   func() error { _, err := m.NextTicks(ctx, "s", 1); return err },
		"show":   func() error { _, err := m.Schedule(ctx, "s"); return err },
	} {
		require.ErrorIs(t, act(), jobq.ErrNotFound, what)
		require.NotContains(t, act().Error(), "no such job", what)
	}
	_, err := o.SetSchedule(ctx, jobq.Schedule{Name: "s", Kind: "k", Cron: "@yearly", Args: json.RawMessage(`{"a": 1}`)})
	require.NoError(t, err)
	auditID, err := o.PauseSchedule(ctx, "s", "holidays")
	require.NoError(t, err)
	require.NotZero(t, auditID)
	auditID, err = o.PauseSchedule(ctx, "s", "again")
	require.NoError(t, err)
	require.Zero(t, auditID)
	s, err := m.Schedule(ctx, "s")
	require.NoError(t, err)
	require.Equal(t, []string{"ann", "holidays"}, []string{s.PausedBy, s.PauseReason})
	require.Nil(t, s.NextAt)
	_, err = o.PauseSchedule(ctx, "s", strings.Repeat("x", 1025))
	require.ErrorContains(t, err, "reason must be at most 1024 characters, not 1025")

	id, err := o.RunSchedule(ctx, "s")
	require.NoError(t, err)
	job, err := client.Get(ctx, id)
	require.NoError(t, err)
	require.Equal(t, "k", job.Kind)
	require.JSONEq(t, `{"a": 1}`, string(job.Args))
	require.JSONEq(t, `{"schedule": "s"}`, string(job.Metadata), "of no tick")

	auditID, err = o.ResumeSchedule(ctx, "s")
	require.NoError(t, err)
	require.NotZero(t, auditID)
	require.NoError(t, jobtest.ErrorOf(o.RemoveSchedule(ctx, "s")))
	entries, err := m.Audit(ctx, 0, 10)
	require.NoError(t, err)
	var actions []jobq.Action
	for _, entry := range entries {
		actions = append(actions, entry.Action)
		require.Equal(t, []string{"ann", "s"}, []string{entry.Actor, entry.Target})
		if entry.Action == jobq.ActionScheduleRun {
			_, err := o.Undo(ctx, entry.ID)
			require.ErrorIs(t, err, jobq.ErrConflict)
			require.ErrorContains(t, err, fmt.Sprintf("cancel job %d", id))
		}
	}
	require.Equal(t, []jobq.Action{
		jobq.ActionScheduleRemove, jobq.ActionScheduleResume, jobq.ActionScheduleRun, jobq.ActionSchedulePause, jobq.ActionScheduleSet,
	}, actions)
	require.Contains(t, string(entries[4].Change), `"cron": "@yearly"`)
}
