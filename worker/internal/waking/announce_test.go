package waking

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/worker/internal/clock"
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
		require.Equal(t, want, next)
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

// A heartbeat renews an announcement that holds for the longest time, if it must be renewed before the next heartbeat; not one
// that has ended, or is still short. Of one that no other preceded, jobs are looked for that came without a notification.
func TestHeartbeatsRenewAnnouncements(t *testing.T) {
	t.Parallel()
	const every = 10 * time.Second
	var a Announcer
	require.Zero(t, a.Renewal(every), "none was made")
	now := clock.SinceBoot()
	a.Renewed(now, 30*time.Second, false)
	_, _, ok := a.Standing()
	require.False(t, ok, "it may be of a server that was another then: see Forget")
	a.until = 1 // one that has ended
	a.Renewed(now, 30*time.Second, false)
	require.True(t, a.Watches(), "none held before")
	_, _, ok = a.Standing()
	require.False(t, ok)
	a.isNew, a.open = false, nil
	_, next, ok := a.Standing()
	require.True(t, ok)
	require.InDelta(t, 22, next.Seconds(), 1)
	require.Zero(t, a.Renewal(every), "the next heartbeat is in time")
	a.until = clock.SinceBoot() + 17*time.Second
	require.Equal(t, 30*time.Second, a.Renewal(every))
	a.Renewed(clock.SinceBoot(), 30*time.Second, false)
	require.False(t, a.isNew)
	a.until = clock.SinceBoot() - 1
	require.Zero(t, a.Renewal(every), "it has ended")
	a.until, a.held = clock.SinceBoot()+time.Second, 16*time.Second
	require.Zero(t, a.Renewal(every), "the next one holds for twice as long")
}
