package db_test

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/pgtest"
)

// PostgreSQL, whatever its version, reads a duration as what it is, down to the
// microsecond and however long.
func TestIntervalText(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	for _, duration := range []time.Duration{
		0, time.Microsecond, -time.Microsecond, 1500 * time.Millisecond, time.Hour - time.Microsecond, time.Hour, -36 * time.Hour,
		10 * 365 * 24 * time.Hour, (math.MaxInt64 * time.Nanosecond).Truncate(time.Microsecond),
	} {
		var microseconds int64
		err := pool.QueryRow(context.Background(), "select (extract(epoch from $1::text::interval) * 1000000)::bigint", db.IntervalText(duration)).Scan(&microseconds)
		require.NoError(t, err, duration)
		require.Equal(t, duration, time.Duration(microseconds)*time.Microsecond)
	}
}
