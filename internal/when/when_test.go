package when_test

import (
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // the tests name zones, and not every machine has them

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/when"
)

func zone(tb testing.TB, name string) *time.Location {
	tb.Helper()
	location, err := time.LoadLocation(name)
	require.NoError(tb, err)
	return location
}

// Everything that people write for a time is read in their zone, and says
// whether that zone was used.
func TestParse(t *testing.T) {
	t.Parallel()
	berlin := zone(t, "Europe/Berlin")
	now := time.Date(2026, 11, 22, 19, 2, 3, 0, berlin)
	for text, want := range map[string]string{
		"now":                           "2026-11-22T19:02:03+01:00",
		"2h":                            "2026-11-22T21:02:03+01:00",
		"in 2h":                         "2026-11-22T21:02:03+01:00",
		" In  1d12h ":                   "2026-11-24T07:02:03+01:00",
		"2 h":                           "2026-11-22T21:02:03+01:00",
		"in 2 hours 30 minutes":         "2026-11-22T21:32:03+01:00",
		"30 seconds":                    "2026-11-22T19:02:33+01:00",
		"0s":                            "2026-11-22T19:02:03+01:00",
		"today":                         "2026-11-22T00:00:00+01:00",
		"today 17:00":                   "2026-11-22T17:00:00+01:00",
		"tomorrow":                      "2026-11-23T00:00:00+01:00",
		"tomorrow 09:00":                "2026-11-23T09:00:00+01:00",
		"TOMORROW 9:05:06":              "2026-11-23T09:05:06+01:00",
		"2026-12-31":                    "2026-12-31T00:00:00+01:00",
		"2026-07-01 23:59":              "2026-07-01T23:59:00+02:00",
		"2026-12-31T23:59":              "2026-12-31T23:59:00+01:00",
		"2026-12-31t23:59:07":           "2026-12-31T23:59:07+01:00",
		"2026-10-25 02:30":              "2026-10-25T02:30:00+02:00", // the clocks show it twice
		"2026-12-31T23:59:00Z":          "2026-12-31T23:59:00Z",
		"2026-12-31t23:59:00z":          "2026-12-31T23:59:00Z",
		"2026-12-31T23:59:00.25Z":       "2026-12-31T23:59:00.25Z",
		"2026-12-31T23:59+05:30":        "2026-12-31T23:59:00+05:30",
		"2026-12-31 23:59:00+00":        "2026-12-31T23:59:00Z",
		"2026-12-31 23:59:00.123456-03": "2026-12-31T23:59:00.123456-03:00",
	} {
		at, local, err := when.Parse(text, now)
		require.NoError(t, err, text)
		require.Equal(t, want, at.Format(time.RFC3339Nano), text)
		require.Equal(t, !strings.HasPrefix(text, "2026") || !strings.ContainsAny(text[10:], "zZ+-"), local, text)
	}
}

// What is no time is refused, and the error says what to write.
func TestRefused(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 22, 19, 2, 3, 0, zone(t, "Europe/Berlin"))
	for text, want := range map[string]string{
		"":                       "a time is missing: write 2h",
		"  ":                     "a time is missing: write 2h",
		"tomorow":                "not a time: write 2h",
		"tomorrow at nine":       "not a time: write 2h",
		"tomorrow noon":          "noon is no time of day, such as 09:00",
		"tomorrow 25:00":         "25:00 is no time of day",
		"09:00":                  "of which day: write today 09:00 or tomorrow 09:00",
		"2026-02-30":             "no such day: dates are year-month-day",
		"31-12-2026":             "no such day: dates are year-month-day",
		"31.12.2026":             "no such day: dates are year-month-day",
		"12/31/2026":             "no such day: dates are year-month-day",
		"in":                     "not a time: write 2h",
		"in two hours":           "a duration is a number with a unit",
		"in 1 month":             "a month or a year has no fixed length: write days, such as 30d",
		"in 2":                   "2 has no unit: write 2s, 2m, 2h or 2d",
		"2":                      "2 has no unit: write 2s, 2m, 2h or 2d",
		"in -2h":                 "a duration is",
		"-2h":                    "not a time",
		"2026-03-29 02:30":       "the clocks of CET (UTC+01:00) skip 02:30 on that day",
		"in 107000d":             "at most 292 years",
		"9999-12-31T23:59-14:00": "the year must be 1 to 9999",
		"tomorrow 09:00 \xff":    "not a time",
	} {
		_, _, err := when.Parse(text, now)
		require.ErrorContains(t, err, want, text)
	}
}

// A day whose midnight the clocks skip starts when they go forward; its 00:00 is
// refused all the same. The zone is named by what it is then, for that of the
// machine would be "Local".
func TestMidnightSkipped(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ zone, day, start, refused string }{
		{"Africa/Cairo", "2026-04-24", "2026-04-24T01:00:00+03:00", "the clocks of EET (UTC+02:00) skip 00:00 on that day"},
		{"America/Havana", "2026-03-08", "2026-03-08T01:00:00-04:00", "the clocks of CST (UTC-05:00) skip 00:00 on that day"},
		{"America/Asuncion", "2023-10-01", "2023-10-01T01:00:00-03:00", "the clocks of UTC-04:00 skip 00:00 on that day"},
	} {
		day, err := time.ParseInLocation(time.DateTime, test.day+" 12:00:00", zone(t, test.zone))
		require.NoError(t, err)
		for text, now := range map[string]time.Time{test.day: day, "today": day, "tomorrow": day.AddDate(0, 0, -1)} {
			at, local, err := when.Parse(text, now)
			require.NoError(t, err, text)
			require.True(t, local)
			require.Equal(t, test.start, at.Format(time.RFC3339), text)
		}
		_, _, err = when.Parse("tomorrow 00:00", day.AddDate(0, 0, -1))
		require.ErrorContains(t, err, test.refused)
	}
	_, _, err := when.Parse("2011-12-30", time.Date(2011, 12, 1, 0, 0, 0, 0, zone(t, "Pacific/Apia")))
	require.ErrorContains(t, err, "skip 00:00 on that day", "Samoa moved across the date line, and had no such day")
}

// Each day of ten years has a start in each of these zones, after which comes no
// earlier moment of that day.
func TestStartOfDay(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"Africa/Cairo", "America/Havana", "America/Asuncion", "Asia/Beirut", "Australia/Lord_Howe", "Atlantic/Azores", "UTC"} {
		location := zone(t, name)
		for day := time.Date(2017, 1, 1, 12, 0, 0, 0, location); day.Year() < 2027; day = day.AddDate(0, 0, 1) {
			at, _, err := when.Parse(day.Format(time.DateOnly), day)
			require.NoError(t, err, "%s in %s", day, name)
			require.Equal(t, day.Format(time.DateOnly), at.Format(time.DateOnly), name)
			require.NotEqual(t, day.Format(time.DateOnly), at.Add(-time.Second).Format(time.DateOnly), "%s in %s: %s", day, name, at)
		}
	}
}

// The answer states the zone, by a name that has one meaning, and how far the
// moment is.
func TestDescribe(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 22, 19, 2, 0, 0, zone(t, "Europe/Berlin"))
	at := time.Date(2026, 11, 23, 9, 0, 0, 0, now.Location())
	require.Equal(t, "2026-11-23 09:00:00 CET (UTC+01:00), in 13h58m", when.Describe(at, now))
	require.Equal(t, "2026-11-23 08:00:00 UTC, in 13h58m", when.Describe(at.UTC(), now))
	require.Equal(t, "2026-11-23 05:00:00 UTC-03:00, in 13h58m", when.Describe(at.In(zone(t, "America/Sao_Paulo")), now))
	require.Equal(t, "2026-11-22 19:02:00 CET (UTC+01:00), now", when.Describe(now, now))
	require.Equal(t, "2026-12-02 20:02:00 CET (UTC+01:00), in 10d1h", when.Describe(now.AddDate(0, 0, 10).Add(time.Hour), now.Add(-time.Minute)))
	require.Equal(t, "2026-11-22 18:02:00 CET (UTC+01:00), 1h ago", when.Describe(now.Add(-time.Hour), now))
}

// A duration is what Go reads, with days and weeks before it, or what SQL writes in words; how
// one is written reads the same.
func TestDuration(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{
		"0": 0, "0s": 0, "90s": 90 * time.Second, "1h30m": 90 * time.Minute, "1.5h": 90 * time.Minute, "30d": 720 * time.Hour,
		"2w": 336 * time.Hour, "1w1d1h": 193 * time.Hour, "1d12h": 36 * time.Hour, "1ms": time.Millisecond, "106751d": 106751 * 24 * time.Hour,
		"30 seconds": 30 * time.Second, "1 second": time.Second, "1 hour 30 minutes": 90 * time.Minute, "2 days": 48 * time.Hour, "1 week 1 day": 192 * time.Hour,
		"1.5 hours": 90 * time.Minute, "5 min": 5 * time.Minute, "10 secs": 10 * time.Second, "20 milliseconds": 20 * time.Millisecond, "1 Hour": time.Hour,
		"2hrs": 2 * time.Hour, "30  s": 30 * time.Second, "1 d 12 h": 36 * time.Hour,
	} {
		duration, err := when.ParseDuration(text)
		require.NoError(t, err, text)
		require.Equal(t, want, duration, text)
	}
	for _, text := range []string{
		"", "5", "h", "1x", "-1h", "+1h", "1h-2m", "1h1d", "1d1d", "1.5d", " 1h", "106752d", "15251w", "106751d24h", "2562048h",
		"30 ", "seconds", "30 secondss", "-30 seconds", "1 hour 30", "30 M", "2 hours 1 day", "1 hour, 2 minutes", "1\nhour",
	} {
		_, err := when.ParseDuration(text)
		require.Error(t, err, text)
	}
	for _, text := range []string{"1 month", "2 months", "1 mon", "1 year", "3 yrs", "1 year 2 days", "1y"} {
		_, err := when.ParseDuration(text)
		require.EqualError(t, err, "a month or a year has no fixed length: write days, such as 30d", text)
	}
	for duration, want := range map[time.Duration]string{
		0: "0s", time.Hour: "1h", 90 * time.Minute: "1h30m", 20 * time.Minute: "20m", 10 * time.Second: "10s", 720 * time.Hour: "30d",
		36 * time.Hour: "1d12h", time.Millisecond: "1ms", -time.Hour: "-1h", 10*time.Hour + time.Second: "10h0m1s",
	} {
		require.Equal(t, want, when.FormatDuration(duration))
	}
}

// Whatever comes in, there is no panic; a moment is one that JSON can hold, and
// written out with its zone it reads the same.
func FuzzParse(f *testing.F) {
	for _, text := range []string{"in 2h", "tomorrow 09:00", "2026-12-31", "2026-03-29T02:30", "2026-12-31 23:59:00.5+00", "9999-12-31T23:59:00-14:00", "1w2d3h"} {
		f.Add(text, int64(1_795_000_000))
	}
	lordHowe := zone(f, "Australia/Lord_Howe") // its clocks go forward by half an hour
	f.Fuzz(func(t *testing.T, text string, unix int64) {
		now := time.Unix(unix%250_000_000_000, 0).In(lordHowe) // up to the year 9892
		at, local, err := when.Parse(text, now)
		if err != nil {
			require.True(t, at.IsZero())
			return
		}
		written, err := at.UTC().MarshalText()
		require.NoError(t, err)
		again, zoned, err := when.Parse(string(written), now)
		require.NoError(t, err)
		require.True(t, again.Equal(at) && !zoned)
		if words := strings.Fields(text); local && len(words) == 2 && strings.Contains(words[0], "-") { // a day and a time: both as written
			require.Equal(t, words[0], at.Format(time.DateOnly))
			require.Equal(t, strings.TrimLeft(words[1], "0")[:1] == ":", at.Hour() == 0)
		}
	})
}

// Whatever comes in, a duration is not negative, and is written as it is read.
func FuzzParseDuration(f *testing.F) {
	f.Add("1w2d3h4m5.5s")
	f.Add("1 day 30 seconds")
	f.Fuzz(func(t *testing.T, text string) {
		duration, err := when.ParseDuration(text)
		if err != nil {
			return
		}
		require.GreaterOrEqual(t, duration, time.Duration(0))
		again, err := when.ParseDuration(when.FormatDuration(duration))
		require.NoError(t, err)
		require.Equal(t, duration, again)
	})
}
