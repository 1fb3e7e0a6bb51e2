package when

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"
)

const (
	day  = 24 * time.Hour
	week = 7 * day
)

// durationPattern is weeks, days, and what time.ParseDuration reads.
var durationPattern = regexp.MustCompile(`^(?:([0-9]{1,6})w)?(?:([0-9]{1,6})d)?([0-9.][0-9.a-zµμ]*)?$`)

// wordsPattern is a duration as SQL writes it: numbers, each with the name of a unit.
var (
	wordsPattern = regexp.MustCompile(`^[0-9.]+ *[A-Za-z]+(?: +[0-9.]+ *[A-Za-z]+)*$`)
	wordPattern  = regexp.MustCompile(`([0-9.]+) *([A-Za-z]+)`)
)

// units are the names of units in words, without a plural's s.
var units = map[string]string{
	"millisecond": "ms", "msec": "ms", "second": "s", "sec": "s", "minute": "m", "min": "m", "hour": "h", "hr": "h", "day": "d", "week": "w",
	"month": "", "mon": "", "year": "", "yr": "", "y": "",
}

var (
	errDuration = errors.New("a duration is a number with a unit: ms, s, m, h, d or w, such as 90s, 2h30m or 30d")
	errTooLong  = errors.New("a duration is at most 292 years")
	errCalendar = errors.New("a month or a year has no fixed length: write days, such as 30d")
)

// ParseDuration reads a duration: what time.ParseDuration reads, and days of 24
// hours and weeks before it, such as 30d or 1d12h, or the same in the words of SQL,
// such as 30 seconds or 1 hour 30 minutes. It is never negative. A number
// without a unit is refused, but for 0: of what?
func ParseDuration(text string) (time.Duration, error) {
	if text == "" {
		return 0, errDuration
	}
	if strings.Trim(text, "0123456789") == "" && strings.Trim(text, "0") != "" {
		return 0, fmt.Errorf("%s has no unit: write %ss, %sm, %sh or %sd", text, text, text, text, text)
	}
	text, err := shortUnits(text)
	if err != nil {
		return 0, err
	}
	match := durationPattern.FindStringSubmatch(text)
	if match == nil {
		return 0, errDuration
	}
	var sum time.Duration
	for i, unit := range []time.Duration{week, day} {
		if match[i+1] == "" {
			continue
		}
		count, err := strconv.ParseInt(match[i+1], 10, 64)
		if err != nil || count > (math.MaxInt64-int64(sum))/int64(unit) {
			return 0, errTooLong
		}
		sum += time.Duration(count) * unit
	}
	if match[3] == "" {
		return sum, nil
	}
	rest, err := time.ParseDuration(match[3])
	switch {
	case err != nil:
		return 0, errDuration
	case rest > math.MaxInt64-sum:
		return 0, errTooLong
	}
	return sum + rest, nil
}

// shortUnits is a duration in words with short units and without blanks: 30 seconds is 30s. Any other text stays as it is.
func shortUnits(text string) (string, error) {
	if !wordsPattern.MatchString(text) {
		return text, nil
	}
	isCalendar := false
	short := wordPattern.ReplaceAllStringFunc(text, func(part string) string {
		match := wordPattern.FindStringSubmatch(part)
		name := match[2]
		if len(name) > 1 { // 5M is not 5m
			name = strings.ToLower(name)
		}
		unit, known := units[name]
		if !known && len(name) > 2 {
			unit, known = units[strings.TrimSuffix(name, "s")]
		}
		isCalendar = isCalendar || known && unit == ""
		if !known {
			unit = match[2]
		}
		return match[1] + unit
	})
	if isCalendar {
		return "", errCalendar
	}
	return strings.ReplaceAll(short, " ", ""), nil
}

// FormatDuration writes a duration as ParseDuration reads it, without units that are 0: 1h,
// and not 1h0m0s. A negative one has a - in front, which ParseDuration refuses.
func FormatDuration(duration time.Duration) string {
	if duration < 0 {
		return "-" + FormatDuration(max(-duration, 0)) // the most negative one has no opposite
	}
	days, rest := duration/day, duration%day
	text := ""
	if days > 0 {
		text = strconv.FormatInt(int64(days), 10) + "d"
	}
	if rest == 0 && days > 0 {
		return text
	}
	clock := rest.String()
	if strings.HasSuffix(clock, "m0s") {
		clock = strings.TrimSuffix(clock, "0s")
	}
	if strings.HasSuffix(clock, "h0m") {
		clock = strings.TrimSuffix(clock, "0m")
	}
	return text + clock
}
