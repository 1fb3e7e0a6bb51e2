package schedule_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/schedule"
)

// ticksOf are the first ticks after a moment, in the zone.
func ticksOf(t *testing.T, cron, zone, after string, count int) (ticks []string) {
	t.Helper()
	parsed, err := schedule.Cron(cron, zone)
	require.NoError(t, err)
	location, err := time.LoadLocation(zone)
	require.NoError(t, err)
	moment, err := time.Parse(time.RFC3339, after)
	require.NoError(t, err)
	for range count {
		next, ok := parsed.Next(moment)
		require.True(t, ok)
		require.True(t, next.After(moment))
		ticks = append(ticks, next.In(location).Format("Mon 01-02 15:04 -0700"))
		moment = next
	}
	return ticks
}

// The next ticks of expressions, with what other parsers get wrong: Sunday as 7,
// both fields for days, names, and above all the hour that is skipped and the one
// that comes twice.
func TestNext(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		cron, zone, after string
		want              []string
	}{
		{"0 9 * * mon", "UTC", "2026-11-22T08:00:00Z", []string{"Mon 11-23 09:00 +0000", "Mon 11-30 09:00 +0000"}},
		{"0 9 * * 7", "UTC", "2026-11-22T09:00:00Z", []string{"Sun 11-29 09:00 +0000"}},
		{"0 9 * * 0", "UTC", "2026-11-22T08:59:59Z", []string{"Sun 11-22 09:00 +0000"}},
		{"0 9 * * fri-sun", "UTC", "2026-11-22T09:00:00Z", []string{"Fri 11-27 09:00 +0000", "Sat 11-28 09:00 +0000", "Sun 11-29 09:00 +0000"}},
		{"*/20 8-9 * * *", "UTC", "2026-11-22T08:30:00Z", []string{"Sun 11-22 08:40 +0000", "Sun 11-22 09:00 +0000", "Sun 11-22 09:20 +0000", "Sun 11-22 09:40 +0000", "Mon 11-23 08:00 +0000"}},
		{"50/5 8 * * *", "UTC", "2026-11-22T08:50:00Z", []string{"Sun 11-22 08:55 +0000", "Mon 11-23 08:50 +0000"}},
		{"@daily", "UTC", "2026-11-22T08:30:00Z", []string{"Mon 11-23 00:00 +0000"}},
		{"@weekly", "UTC", "2026-11-22T08:30:00Z", []string{"Sun 11-29 00:00 +0000"}},
		{"0 0 29 2 *", "UTC", "2026-11-22T08:30:00Z", []string{"Tue 02-29 00:00 +0000"}},
		// Both fields for days are restricted: either will do. One begins with *: both must.
		{"0 0 13 * fri", "UTC", "2026-11-01T00:00:00Z", []string{"Fri 11-06 00:00 +0000", "Fri 11-13 00:00 +0000", "Fri 11-20 00:00 +0000", "Fri 11-27 00:00 +0000", "Fri 12-04 00:00 +0000", "Fri 12-11 00:00 +0000", "Sun 12-13 00:00 +0000"}},
		{"0 0 */2 * mon", "UTC", "2026-11-01T00:00:00Z", []string{"Mon 11-09 00:00 +0000", "Mon 11-23 00:00 +0000"}},

		// The clocks of Berlin are set from 02:00 to 03:00 on 2026-03-29, and from 03:00 to 02:00 on 2026-10-25.
		{"30 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", []string{"Sun 03-29 03:00 +0200", "Mon 03-30 02:30 +0200"}},
		{"*/15 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", []string{"Sun 03-29 03:00 +0200", "Mon 03-30 02:00 +0200"}},
		{"0 2,3 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", []string{"Sun 03-29 03:00 +0200", "Mon 03-30 02:00 +0200"}},
		{"30 * * * *", "Europe/Berlin", "2026-03-29T00:00:00Z", []string{"Sun 03-29 01:30 +0100", "Sun 03-29 03:30 +0200"}},
		{"30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z", []string{"Sun 10-25 02:30 +0200", "Mon 10-26 02:30 +0100"}},
		{"30 2 * * *", "Europe/Berlin", "2026-10-25T01:10:00Z", []string{"Mon 10-26 02:30 +0100"}},
		{"30 * * * *", "Europe/Berlin", "2026-10-24T23:00:00Z", []string{"Sun 10-25 01:30 +0200", "Sun 10-25 02:30 +0200", "Sun 10-25 02:30 +0100", "Sun 10-25 03:30 +0100"}},
		{"*/30 * * * *", "Europe/Berlin", "2026-10-25T00:10:00Z", []string{"Sun 10-25 02:30 +0200", "Sun 10-25 02:00 +0100", "Sun 10-25 02:30 +0100", "Sun 10-25 03:00 +0100"}},
		// By half an hour, at midnight, and by a whole day.
		{"15 2 * * *", "Australia/Lord_Howe", "2026-10-03T00:00:00Z", []string{"Sun 10-04 02:30 +1100", "Mon 10-05 02:15 +1100"}},
		{"45 * * * *", "Australia/Lord_Howe", "2026-04-04T14:00:00Z", []string{"Sun 04-05 01:45 +1100", "Sun 04-05 01:45 +1030", "Sun 04-05 02:45 +1030"}},
		{"@daily", "Africa/Cairo", "2026-04-23T12:00:00Z", []string{"Fri 04-24 01:00 +0300", "Sat 04-25 00:00 +0300"}},
		{"30 0 * * *", "America/Havana", "2026-10-31T12:00:00Z", []string{"Sun 11-01 00:30 -0400", "Mon 11-02 00:30 -0500"}},
		{"0 9 * * *", "Pacific/Apia", "2011-12-29T09:00:00-10:00", []string{"Sat 12-31 00:00 +1400", "Sat 12-31 09:00 +1400"}},
		{"0 9 * * *", "Asia/Kathmandu", "2026-11-22T03:15:00Z", []string{"Mon 11-23 09:00 +0545"}},
	} {
		require.Equal(t, test.want, ticksOf(t, test.cron, test.zone, test.after, len(test.want)), "%s in %s", test.cron, test.zone)
	}
}

// Around every change of the clocks within a year, the ticks are those that are
// found by looking at each minute.
func TestNextIsWhatEachMinuteSays(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Africa/Cairo", "America/Havana", "America/Santiago", "Europe/Dublin"} {
		zone, err := time.LoadLocation(name)
		require.NoError(t, err)
		change := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		for range 2 {
			_, change = change.In(zone).ZoneBounds()
			lookAtEachMinute(t, "15,30 * * * *", zone, change, true)
			lookAtEachMinute(t, "15,30 0-4,22-23 * * *", zone, change, false)
		}
	}
}

// lookAtEachMinute compares the ticks of an expression, at minutes 15 and 30 of every
// hour or of those from 22 to 4, with the minutes before and after a change of the clocks.
func lookAtEachMinute(t *testing.T, expression string, zone *time.Location, change time.Time, everyHour bool) {
	t.Helper()
	has := func(wall time.Time) bool {
		return (wall.Minute() == 15 || wall.Minute() == 30) && (everyHour || wall.Hour() <= 4 || wall.Hour() >= 22)
	}
	ticks, err := schedule.Cron(expression, zone.String())
	require.NoError(t, err)
	begin := change.Add(-36 * time.Hour)
	var want, got []string
	seen := make(map[string]bool) // what the clocks have shown
	for at := begin; at.Before(change.Add(36 * time.Hour)); at = at.Add(time.Minute) {
		local := at.In(zone)
		_, before := at.Add(-time.Nanosecond).In(zone).Zone()
		_, now := local.Zone()
		shown := local.Format(time.DateTime)
		fires := has(local) && (everyHour || !seen[shown])
		// What the clocks skip when they are set forward comes at once.
		for skipped := before; !everyHour && skipped < now; skipped += 60 {
			fires = fires || has(at.UTC().Add(time.Duration(skipped)*time.Second))
		}
		seen[shown] = true
		if fires && at.After(begin) {
			want = append(want, local.String())
		}
	}
	for next := begin; len(got) < len(want); {
		var ok bool
		next, ok = ticks.Next(next)
		require.True(t, ok)
		got = append(got, next.In(zone).String())
	}
	require.Greater(t, len(want), 40)
	require.Equal(t, want, got, "%s in %s", expression, zone)
}

// An interval has the same ticks whenever it is asked for.
func TestEvery(t *testing.T) {
	t.Parallel()
	after := time.Date(2026, 11, 22, 10, 7, 3, 500, time.UTC)
	for interval, want := range map[time.Duration]string{
		time.Second: "10:07:04", 15 * time.Minute: "10:15:00", time.Hour: "11:00:00", 7 * time.Second: "10:07:04",
	} {
		ticks, err := schedule.Every(interval)
		require.NoError(t, err)
		next, ok := ticks.Next(after)
		require.True(t, ok)
		require.Equal(t, want, next.Format(time.TimeOnly), interval)
		second, _ := ticks.Next(next)
		require.Equal(t, interval, second.Sub(next))
		again, _ := ticks.Next(next.Add(-time.Nanosecond))
		require.Equal(t, next, again)
	}
	before, err := schedule.Every(time.Minute)
	require.NoError(t, err)
	next, ok := before.Next(time.Date(1969, 12, 31, 23, 59, 30, 0, time.UTC))
	require.True(t, ok)
	require.Equal(t, time.Unix(0, 0).UTC(), next)
	for _, wrong := range []time.Duration{0, -time.Second, time.Millisecond, 1500 * time.Millisecond, 367 * 24 * time.Hour} {
		_, err := schedule.Every(wrong)
		require.ErrorContains(t, err, "whole seconds", wrong)
	}
}

// The latest ticks are the same as the end of all of them, for schedules with many
// and with few.
func TestLast(t *testing.T) {
	t.Parallel()
	until := time.Date(2026, 11, 22, 10, 0, 0, 0, time.UTC)
	for _, expression := range []string{"* * * * *", "0 0 1 1 *", "*/7 3 5 * *", "* * * 1 *"} {
		ticks, err := schedule.Cron(expression, "Europe/Berlin")
		require.NoError(t, err)
		for _, span := range []time.Duration{0, time.Minute, 36 * time.Hour, 500 * 24 * time.Hour} {
			after := until.Add(-span)
			var all []time.Time
			for tick, _ := ticks.Next(after); !tick.After(until); tick, _ = ticks.Next(tick) {
				all = append(all, tick)
			}
			for _, count := range []int{1, 3, 100} {
				require.Equal(t, all[max(len(all)-count, 0):], ticks.Last(after, until, count), "%s, %s, %d", expression, span, count)
			}
		}
	}
}

// What is wrong with an expression is said in words.
func TestRefusals(t *testing.T) {
	t.Parallel()
	for expression, want := range map[string]string{
		"":                        "5 fields",
		"* * * *":                 "not 4",
		"0 0 9 * * mon":           "not 6",
		"61 * * * *":              `minute "61": values are 0 to 59`,
		"* 24 * * *":              "values are 0 to 23",
		"* * 0 * *":               "values are 1 to 31",
		"* * * 13 *":              "values are 1 to 12 or jan to dec",
		"* * * * 8":               "values are 0 to 7 or sun to sat",
		"* * * * monday":          "sun to sat",
		"*/60 * * * *":            "the step after / must be 1 to 59",
		"*/0 * * * *":             "the step",
		"*/ * * * *":              "the step",
		"5-1 * * * *":             "goes backwards",
		"* * * * fri-mon":         "the range fri-mon goes backwards: write two ranges",
		"-1 * * * *":              "values are 0 to 59",
		"+1 * * * *":              "values are 0 to 59",
		"1,,2 * * * *":            "values are 0 to 59",
		"**/2 * * * *":            "values are 0 to 59",
		"TZ=0 * * * *":            "the time zone is an argument of its own",
		"CRON_TZ=UTC * * * * *":   "the time zone is an argument of its own",
		"@every 1h":               "for an interval",
		"@reboot":                 "there are @hourly",
		"0 0 30 2 *":              "never fires",
		"0 0 31 4,6,9,11 *":       "never fires",
		"99999999999999 * * * *":  "values are 0 to 59",
		"0 0 L * *":               "values are 1 to 31",
		"\x00 * * * *":            "values are 0 to 59",
		strings.Repeat("* ", 100): "not 100",
		strings.Repeat("9", 1e5):  "cron must be 1 to 255 characters, not 100000",
	} {
		_, err := schedule.Cron(expression, "UTC")
		require.ErrorContains(t, err, want, expression)
		require.Less(t, len(err.Error()), 500)
	}
	for _, zone := range []string{
		"", "Local", "Mars/Olympus", "../etc/passwd", "right/Europe/Berlin", "Europe/\x00", "+02:00",
		"localtime", "posixrules", "Factory", "posix/Europe/Berlin", "./Europe/Berlin", "Europe//Berlin", "europe/berlin", "leapseconds", "tzdata.zi",
	} {
		_, err := schedule.Cron("* * * * *", zone)
		require.ErrorContains(t, err, "IANA name", zone)
	}
	for _, zone := range []string{"UTC", "Etc/GMT-14", "EST5EDT", "America/Port-au-Prince", "America/Argentina/ComodRivadavia"} {
		_, err := schedule.Cron("* * * * *", zone)
		require.NoError(t, err, zone)
	}
	_, err := schedule.Cron("* * * * *", strings.Repeat("A", 1e5))
	require.EqualError(t, err, "time_zone must be 1 to 64 characters, not 100000")
	for _, fine := range []string{"0 0 31 1-12/2 *", "0 0 30 2 mon", "0 0 29 2 */7", "  5\t4 * *  * ", "@Daily", "* * * JAN-feb SUN"} {
		_, err := schedule.Cron(fine, "UTC")
		require.NoError(t, err, fine)
	}
}

// The end of time is no tick.
func TestNoTickAfterTheLastYear(t *testing.T) {
	t.Parallel()
	ticks, err := schedule.Cron("@yearly", "UTC")
	require.NoError(t, err)
	_, ok := ticks.Next(time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC))
	require.False(t, ok)
}

// Whatever is accepted has ticks that grow, on whole minutes.
func FuzzCron(f *testing.F) {
	for _, seed := range []string{"0 9 * * mon", "*/15 2 * * *", "0 0 29 2 */7", "@daily", "5/7 1-3,22 31 1-12/2 fri-sun", "TZ=0 * * * *", "59 23 31 12 7"} {
		f.Add(seed, "Europe/Berlin", int64(1_774_742_400))
		f.Add(seed, "America/Havana", int64(1_793_491_200))
	}
	f.Fuzz(func(t *testing.T, expression, zone string, seconds int64) {
		ticks, err := schedule.Cron(expression, zone)
		if err != nil {
			return
		}
		moment := time.Unix(seconds%100_000_000_000, 0)
		for range 10 {
			next, ok := ticks.Next(moment)
			if !ok {
				require.Greater(t, moment.Year(), 9000, expression)
				return
			}
			require.True(t, next.After(moment), "%s in %s: %s after %s", expression, zone, next, moment)
			require.Equal(t, []time.Time{next}, ticks.Last(next.Add(-time.Second), next, 1))
			moment = next
		}
	})
}
