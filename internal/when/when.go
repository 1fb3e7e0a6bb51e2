// Package when reads moments and durations as people write them on a
// command line and in a file: "tomorrow 09:00", "in 2h", "30d".
package when

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// zonedLayouts have a zone of their own.
var zonedLayouts = []string{
	time.RFC3339, "2006-01-02T15:04Z07:00",
	"2006-01-02 15:04:05Z07:00", "2006-01-02 15:04:05Z07", "2006-01-02 15:04Z07:00", // as psql shows it
}

// clockLayouts are the times of a day.
var clockLayouts = []string{"15:04", "15:04:05"}

// Forms lists what Parse reads, for help texts and errors.
const Forms = `2h, "in 3d", today 17:00, tomorrow 09:00, 2026-12-31, 2026-12-31 23:59 or 2026-12-31T23:59:00Z`

// Parse reads a moment. Durations are counted from now, and a text without a zone
// is read in the zone of now. Local means that the text had no zone: then tell its
// author which moment was understood, with Describe.
//
//	now                     now
//	2h, in 2h, in 1d12h     a duration from now; a day is 24 hours
//	tomorrow                the start of tomorrow; also today
//	tomorrow 09:00          in the zone of now; also today 17:00:30
//	2026-12-31              the start of that day, in the zone of now
//	2026-12-31 23:59        in the zone of now; also with a T between, and seconds
//	2026-12-31T23:59:00Z    as it says; also +01:00, and a blank for the T
//
// A time that the clocks skip in spring is refused; of one that they show
// twice in autumn, it is the first. A day whose midnight the clocks skip starts
// when they go forward, such as at 01:00.
func Parse(text string, now time.Time) (at time.Time, local bool, err error) {
	text = strings.TrimSpace(text)
	for _, layout := range zonedLayouts {
		if at, err := time.Parse(layout, strings.ToUpper(text)); err == nil {
			at, err = inRange(at)
			return at, false, err
		}
	}
	words := strings.Fields(strings.ToLower(text))
	switch {
	case len(words) == 0:
		return at, true, fmt.Errorf("a time is missing: write %s", Forms)
	case len(words) == 1 && words[0] == "now":
		at = now
	case len(words) > 1 && words[0] == "in":
		at, err = after(now, strings.Join(words[1:], " "))
	case startsDuration(words[0]):
		at, err = after(now, strings.Join(words, " "))
	default:
		at, err = onDay(words, now)
	}
	if err != nil {
		return time.Time{}, true, err
	}
	at, err = inRange(at)
	return at, true, err
}

// startsDuration says whether a word is meant as a duration, and not as a date or a
// time of day: 2h30m, but not 2026-12-31 or 09:00.
func startsDuration(word string) bool {
	return word[0] >= '0' && word[0] <= '9' && !strings.ContainsAny(word, "-:/") && strings.Count(word, ".") < 2
}

func after(now time.Time, text string) (time.Time, error) {
	duration, err := ParseDuration(text)
	return now.Add(duration), err
}

// onDay reads a day, and a time of it.
func onDay(words []string, now time.Time) (time.Time, error) {
	if day, clock, ok := strings.Cut(words[0], "t"); ok && len(words) == 1 && strings.Contains(day, "-") {
		words = []string{day, clock} // 2026-12-31T23:59
	}
	if len(words) > 2 {
		return time.Time{}, fmt.Errorf("not a time: write %s", Forms)
	}
	var day time.Time
	switch words[0] {
	case "today":
		day = now
	case "tomorrow":
		day = now.AddDate(0, 0, 1)
	default:
		var err error
		if day, err = time.Parse(time.DateOnly, words[0]); err != nil {
			return time.Time{}, dayProblem(words[0])
		}
	}
	if len(words) == 1 {
		return startOf(day, now.Location())
	}
	clock, err := parseClock(words[1])
	if err != nil {
		return time.Time{}, err
	}
	return onClock(day, clock, now.Location())
}

// dayProblem says what is wrong with what should be a day.
func dayProblem(word string) error {
	if _, err := parseClock(word); err == nil {
		return fmt.Errorf("of which day: write today %s or tomorrow %s", word, word)
	}
	if rest := strings.Trim(word, "0123456789"); len(rest) > 1 && strings.Trim(word, "-./0123456789") == "" {
		return fmt.Errorf("no such day: dates are year-month-day, such as 2026-12-31")
	}
	return fmt.Errorf("not a time: write %s", Forms)
}

func parseClock(word string) (clock time.Time, err error) {
	for _, layout := range clockLayouts {
		if clock, err = time.Parse(layout, word); err == nil {
			return clock, nil
		}
	}
	return clock, fmt.Errorf("%s is no time of day, such as 09:00", word)
}

// startOf is the first moment of a day in a zone. Where the clocks skip midnight,
// it is when they go forward: on 24 April 2026 they went from 00:00 to 01:00 in
// Cairo, so that day started at 01:00. A day that is skipped whole, as by
// zones that have moved across the date line, is refused.
func startOf(day time.Time, zone *time.Location) (time.Time, error) {
	start, err := onClock(day, time.Time{}, zone)
	if err == nil {
		return start, nil
	}
	if first := forward(start); first.Day() == day.Day() {
		return first, nil
	}
	return start, err
}

// onClock is when the clocks of a zone show a time of a day. Where they show it
// twice, since they were put back, it is the first: on 25 October 2026 it was
// 02:30 in Berlin at 00:30 and at 01:30 UTC, and this is the former. With the
// error for a time that they skip comes a moment within a day of it.
func onClock(day, clock time.Time, zone *time.Location) (time.Time, error) {
	year, month, date := day.Date()
	hour, minute, second := clock.Clock()
	at := time.Date(year, month, date, hour, minute, second, 0, zone)
	if h, m, s := at.Clock(); h != hour || m != minute || s != second || at.Day() != date {
		before := forward(at).Add(-time.Second)
		return at, fmt.Errorf("the clocks of %s skip %s on that day", zoneOf(before), clock.Format("15:04"))
	}
	if start, _ := at.ZoneBounds(); !start.IsZero() {
		_, offset := start.Add(-time.Second).Zone()
		earlier := time.Date(year, month, date, hour, minute, second, 0, time.FixedZone("", offset))
		if earlier.Before(start) {
			return earlier.In(zone), nil
		}
	}
	return at, nil
}

// forward is when the clocks go forward over a time that they skip. At is what
// time.Date makes of that time: up to a day before or after it.
func forward(at time.Time) time.Time {
	_, forward := at.Add(-48 * time.Hour).ZoneBounds()
	return forward
}

// inRange refuses what neither JSON nor people can write: years of five digits.
func inRange(at time.Time) (time.Time, error) {
	if year := at.UTC().Year(); year < 1 || year > 9999 {
		return time.Time{}, errors.New("the year must be 1 to 9999")
	}
	return at, nil
}

// Describe is a moment in its zone, with that and how far it is from now, such
// as "2026-11-23 09:00:00 CET (UTC+01:00), in 13h58m".
func Describe(at, now time.Time) string {
	duration := at.Sub(now)
	switch size := duration.Abs(); {
	case size >= 2*day:
		duration = duration.Round(time.Hour)
	case size >= time.Hour:
		duration = duration.Round(time.Minute)
	default:
		duration = duration.Round(time.Second)
	}
	far := "in " + FormatDuration(duration)
	switch {
	case duration == 0:
		far = "now"
	case duration < 0:
		far = FormatDuration(-duration) + " ago"
	}
	return fmt.Sprintf("%s %s, %s", at.Format(time.DateTime), zoneOf(at), far)
}

// zoneOf names a zone and says what it is: many names have two meanings.
func zoneOf(at time.Time) string {
	name, offset := at.Zone()
	switch {
	case offset == 0 && (name == "UTC" || name == ""):
		return "UTC"
	case name == "" || name[0] == '+' || name[0] == '-':
		return at.Format("UTC-07:00")
	}
	return fmt.Sprintf("%s (%s)", name, at.Format("UTC-07:00"))
}
