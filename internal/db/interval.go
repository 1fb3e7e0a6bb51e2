package db

import (
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgtype"
)

// Interval is a duration as a query parameter. PostgreSQL keeps microseconds.
func Interval(duration time.Duration) pgtype.Interval {
	return pgtype.Interval{Microseconds: duration.Microseconds(), Valid: true}
}

// IntervalText is a duration as text that PostgreSQL reads as an interval: 1.5 s is
// 0:00:01.500000. In hours, because PostgreSQL 14 takes no more than 35 minutes of
// microseconds.
func IntervalText(duration time.Duration) string {
	sign, microseconds := "", duration.Microseconds()
	if microseconds < 0 {
		sign, microseconds = "-", -microseconds
	}
	seconds := microseconds / 1e6
	return fmt.Sprintf("%s%d:%02d:%02d.%06d", sign, seconds/3600, seconds/60%60, seconds%60, microseconds%1e6)
}

// IntervalOrNull is null for a zero duration: the default.
func IntervalOrNull(duration time.Duration) pgtype.Interval {
	if duration == 0 {
		return pgtype.Interval{}
	}
	return Interval(duration)
}

// IntervalPointer is null for nil.
func IntervalPointer(duration *time.Duration) pgtype.Interval {
	if duration == nil {
		return pgtype.Interval{}
	}
	return Interval(*duration)
}

// Timestamp is a moment as a query parameter.
func Timestamp(at time.Time) pgtype.Timestamptz { return pgtype.Timestamptz{Time: at, Valid: true} }

// BoolPointer is null for nil.
func BoolPointer(value *bool) pgtype.Bool {
	if value == nil {
		return pgtype.Bool{}
	}
	return pgtype.Bool{Bool: *value, Valid: true}
}

// Delay is a wait before the next run; its zero value leaves it to the row's
// backoff.
type Delay struct {
	given    bool
	duration time.Duration
}

// DelayOf is a wait of exactly that long, 0 included.
func DelayOf(duration time.Duration) Delay { return Delay{given: true, duration: duration} }

func (d Delay) interval() pgtype.Interval {
	return pgtype.Interval{Microseconds: d.duration.Microseconds(), Valid: d.given}
}
