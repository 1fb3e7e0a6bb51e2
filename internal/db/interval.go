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
