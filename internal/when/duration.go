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

var (
	errDuration = errors.New("a duration is a number with a unit: ms, s, m, h, d or w, such as 90s, 2h30m or 30d")
	errTooLong  = errors.New("a duration is at most 292 years")
)

// ParseDuration reads a duration: what time.ParseDuration reads, and days of 24
// hours and weeks before it, such as 30d or 1d12h. It is never negative. A number
// without a unit is refused, but for 0: of what?
func ParseDuration(text string) (time.Duration, error) {
	if text == "" {
		return 0, errDuration
	}
	if strings.Trim(text, "0123456789") == "" && strings.Trim(text, "0") != "" {
		return 0, fmt.Errorf("%s has no unit: write %ss, %sm, %sh or %sd", text, text, text, text, text)
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
