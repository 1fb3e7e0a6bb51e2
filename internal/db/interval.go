package db

import (
	"time"

	"github.com/jackc/pgx/v5/pgtype"
)

// Interval is a duration as a query parameter. PostgreSQL keeps microseconds.
func Interval(duration time.Duration) pgtype.Interval {
	return pgtype.Interval{Microseconds: duration.Microseconds(), Valid: true}
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
