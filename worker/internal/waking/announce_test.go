package waking

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/db"
)

// gone is a database that does not answer.
type gone struct{ db.DBTX }

func (gone) QueryRow(context.Context, string, ...any) pgx.Row { return noRow{} }

type noRow struct{}

func (noRow) Scan(...any) error { return errors.New("gone") }

// An announcement that has failed is made again soon, before the last one has ended, and ever more rarely.
func TestAnnouncesAgainAfterAFailure(t *testing.T) {
	t.Parallel()
	var a Announcer
	for _, want := range []time.Duration{
		100 * time.Millisecond, 200 * time.Millisecond, 400 * time.Millisecond, 800 * time.Millisecond, 1600 * time.Millisecond, 3200 * time.Millisecond, 4 * time.Second, 4 * time.Second,
	} {
		_, next, err := a.Announce(context.Background(), db.New(gone{}))
		require.ErrorContains(t, err, "gone")
		require.Equal(t, want, next.Renew)
	}
}

// The first announcement is short, and each that follows holds twice as long, up to 30 seconds. After
// jobs have come fast it is short again, but only if the last one has ended.
func TestAnnouncementsGrow(t *testing.T) {
	t.Parallel()
	var a Announcer
	announce := func(now time.Duration) time.Duration {
		hold := a.holdLocked(now)
		a.until, a.held = now+hold, hold
		return hold
	}
	for _, want := range []time.Duration{1, 2, 4, 8, 16, 30, 30} {
		require.Equal(t, want*time.Second, announce(time.Hour))
	}
	a.JobsComeFast()
	require.Equal(t, 30*time.Second, announce(a.until-1), "somebody has gone on waiting")
	a.JobsComeFast()
	require.Equal(t, time.Second, announce(a.until))
	require.Equal(t, 2*time.Second, announce(a.until))
}
