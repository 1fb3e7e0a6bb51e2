package format_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/format"
	"github.com/jobq-dev/jobq/monitor"
)

// What is said of a schedule is what matters most about it: a pause before an error, an
// error before that it is late, and a tick that is a moment past is not late.
func TestScheduleState(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 14, 2, 31, 0, time.UTC)
	for want, s := range map[string]monitor.Schedule{
		"paused 3h ago by ana":            {PausedAt: new(now.Add(-3 * time.Hour)), PausedBy: "ana", Error: "no table"},
		"fails: no table":                 {Error: "no table", NextAt: &now, Late: time.Hour},
		"has no ticks":                    {},
		"late by 2m: does a janitor run?": {NextAt: &now, Late: 2*time.Minute + time.Second, LastLeftOut: true},
		"last tick left out":              {NextAt: &now, Late: format.LateMin, LastLeftOut: true},
		"ok":                              {NextAt: &now, Late: format.LateMin},
	} {
		require.Equal(t, want, format.ScheduleState(s, now))
	}
	berlin := monitor.Schedule{Schedule: jobq.Schedule{Cron: "0 9 * * mon", TimeZone: "Europe/Berlin"}, NextAt: new(now.Add(time.Minute))}
	require.Equal(t, "Sat 2026-11-21 15:03:31 CET, in 1m", format.ScheduleNext(berlin, now))
	require.Equal(t, "Sat 2026-11-21 15:03:31 CET, now", format.ScheduleNext(berlin, now.Add(time.Hour)))
	require.Equal(t, "none", format.ScheduleNext(monitor.Schedule{}, now))
	require.Equal(t, "Sat 2026-11-21 14:02:31 UTC", format.InZone(now, "Mars/Olympus"), "this machine does not know the zone")
}
