// Package format writes spans of time, counts, attempts and states of jobs, so
// that the command line and the terminal UI say the same about the same job.
package format

import (
	"fmt"
	"strconv"
	"time"

	"github.com/jobq-dev/jobq"
)

// Ago is a span in its largest unit, as short as can be: 41s, 12m, 3h, 2d. A
// span below zero, which clocks that differ can make, is 0s.
func Ago(span time.Duration) string {
	switch {
	case span <= 0:
		return "0s"
	case span < time.Second:
		return fmt.Sprintf("%dms", span.Milliseconds())
	case span < time.Minute:
		return fmt.Sprintf("%ds", int(span.Seconds()))
	case span < time.Hour:
		return fmt.Sprintf("%dm", int(span.Minutes()))
	case span < 48*time.Hour:
		return fmt.Sprintf("%dh", int(span.Hours()))
	}
	return fmt.Sprintf("%dd", int(span.Hours()/24))
}

// Took is a span with the precision that the length of a run deserves: 112ms,
// 30.0s, 3m29s, 1h05m, 3d. A span below zero is 0ms.
func Took(span time.Duration) string {
	switch {
	case span <= 0:
		return "0ms"
	case span < time.Second:
		return fmt.Sprintf("%dms", span.Milliseconds())
	case span < time.Minute:
		return fmt.Sprintf("%.1fs", span.Seconds())
	case span < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(span.Minutes()), int(span.Seconds())%60)
	case span < 48*time.Hour:
		return fmt.Sprintf("%dh%02dm", int(span.Hours()), int(span.Minutes())%60)
	}
	return fmt.Sprintf("%dd", int(span.Hours()/24))
}

// AtMost is Took for a run of which only the claim is known, and not when its handler
// was called: up to about a second later, which is lost in the precision of a minute
// and more. <112ms, 3m29s.
func AtMost(span time.Duration) string {
	if span <= 0 || span >= time.Minute {
		return Took(span)
	}
	return "<" + Took(max(span, time.Millisecond))
}

// Seconds is a span in tenths of a second, for a figure that is shown again and
// again while it changes: 0.2s.
func Seconds(span time.Duration) string { return fmt.Sprintf("%.1fs", max(span, 0).Seconds()) }

// When says how long ago a moment was, or how far off it is: "41s ago", "in 2m".
func When(moment, now time.Time) string {
	if moment.After(now) {
		return "in " + Ago(moment.Sub(now))
	}
	return Ago(now.Sub(moment)) + " ago"
}

// Number groups digits: 8,640,113.
func Number[N int | int64](n N) string {
	digits := strconv.FormatInt(int64(n), 10)
	for i := len(digits) - 3; i > 0 && digits[i-1] != '-'; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// Capped is a count that stops at jobq.CountMax: 10k+ says that there may be
// more.
func Capped(n int64) string {
	if n >= jobq.CountMax {
		return "10k+"
	}
	return Number(n)
}

// CappedAt is Capped for a count with a limit of its own; 0 for none.
func CappedAt(n, limit int64) string {
	if limit > 0 && limit < jobq.CountMax && n >= limit {
		return Number(n) + "+"
	}
	return Capped(n)
}

// About is an estimate, in two digits: ~12k, ~3.0M.
func About(n int64) string {
	value, unit := float64(n), ""
	for _, next := range []string{"k", "M", "G"} {
		if value < 999.5 {
			break
		}
		value, unit = value/1000, next
	}
	if unit == "" || value >= 9.95 {
		return fmt.Sprintf("~%.0f%s", value, unit)
	}
	return fmt.Sprintf("~%.1f%s", value, unit)
}

// OrMore is a count, and whether there may be more: "61", "61+".
func OrMore(n int64, more bool) string {
	if more && n == 0 {
		return "0+"
	}
	if more {
		return CappedAt(n, n)
	}
	return Number(n)
}

// Count is a number with the noun that it counts: "1 job", "2 jobs".
func Count[N int | int64](n N, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return Number(n) + " " + noun + "s"
}

// Rate is a number a second.
func Rate(perSecond float64) string {
	if perSecond >= 100 {
		return Number(int64(perSecond))
	}
	return fmt.Sprintf("%.1f", perSecond)
}
