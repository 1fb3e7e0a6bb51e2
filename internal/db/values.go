package db

import (
	"time"

	"github.com/jackc/pgx/v5/pgtype"
)

// Text is a column's text, and empty for null.
func Text(value *string) string {
	if value == nil {
		return ""
	}
	return *value
}

// TextOrNull is null for an empty text.
func TextOrNull(value string) *string {
	if value == "" {
		return nil
	}
	return &value
}

// Go's JSON has no other years.
var (
	momentMin = time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC)
	momentMax = time.Date(9999, 12, 31, 23, 59, 59, 999999000, time.UTC)
)

// clipped is a time in UTC; the nearest one that JSON can hold if it cannot hold that.
func clipped(moment time.Time) time.Time {
	switch moment = moment.UTC(); {
	case moment.Before(momentMin):
		return momentMin
	case moment.After(momentMax):
		return momentMax
	}
	return moment
}

// UTC is a column's time in UTC, and nil for null.
func UTC(moment *time.Time) *time.Time {
	if moment == nil {
		return nil
	}
	inUTC := clipped(*moment)
	return &inUTC
}

// Moment is UTC for the other type in which the driver returns times.
func Moment(moment pgtype.Timestamptz) time.Time {
	if moment.InfinityModifier == pgtype.Infinity {
		return momentMax
	}
	return clipped(moment.Time) // the zero time, which is the first one, for -infinity
}

// TimeOrNil is Moment, and nil for null.
func TimeOrNil(moment pgtype.Timestamptz) *time.Time {
	if !moment.Valid {
		return nil
	}
	at := Moment(moment)
	return &at
}

// Milliseconds is a duration that a query returns as a number of milliseconds.
func Milliseconds(count int64) time.Duration { return time.Duration(count) * time.Millisecond }

// Seconds is a duration that a query returns as a number of seconds.
func Seconds(count float64) time.Duration { return time.Duration(count * float64(time.Second)) }
