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

// UTC is a column's time in UTC, and nil for null.
func UTC(moment *time.Time) *time.Time {
	if moment == nil {
		return nil
	}
	inUTC := moment.UTC()
	return &inUTC
}

// TimeOrNil is UTC for the other type in which the driver returns times.
func TimeOrNil(moment pgtype.Timestamptz) *time.Time {
	if !moment.Valid {
		return nil
	}
	return UTC(&moment.Time)
}

// Milliseconds is a duration that a query returns as a number of milliseconds.
func Milliseconds(count int64) time.Duration { return time.Duration(count) * time.Millisecond }

// Seconds is a duration that a query returns as a number of seconds.
func Seconds(count float64) time.Duration { return time.Duration(count * float64(time.Second)) }
