package worker

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// newAway returns a worker without a database and a pool of processes of a kind
// that the machine has had no room for, and whose processes have died before.
func newAway(t *testing.T) (*Worker, *streamPool) {
	t.Helper()
	w := &Worker{log: slog.New(slog.DiscardHandler)}
	w.absences.worker = w
	try, err := w.absences.try("k")
	require.NoError(t, err)
	require.Error(t, try.failed(errors.New("no room")))
	return w, &streamPool{worker: w, kind: "k", startAt: time.Now().Add(time.Hour)}
}

// Jobs whose handler is away go back at once, and do not wait in their slots
// until a process may be started again; of those that come when it may be there
// again, one waits, and no more are claimed meanwhile.
func TestStreamAwayDoesNotWait(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithTimeout(context.Background(), time.Minute) // ends a test that hangs
	defer stop()
	w, pool := newAway(t)
	kinds := []string{"k", "other"}
	var blameless *blamelessError
	_, err := pool.take(ctx)
	require.ErrorAs(t, err, &blameless)

	w.absences.mu.Lock()
	w.absences.byKind["k"].until = 0 // time has passed
	w.absences.mu.Unlock()
	require.Equal(t, kinds, w.absences.present(kinds))
	tryCtx, cutShort := context.WithCancelCause(ctx)
	ended := make(chan error, 1)
	go func() {
		_, err := pool.take(tryCtx)
		ended <- err
	}()
	require.Eventually(t, func() bool { return len(w.absences.present(kinds)) == 1 }, time.Minute, time.Millisecond)
	_, err = pool.take(ctx)
	require.ErrorAs(t, err, &blameless)
	cutShort(ErrDrained)
	require.ErrorIs(t, <-ended, ErrDrained)
	require.Equal(t, kinds, w.absences.present(kinds), "another may try")
}

// What a job of before reports late takes no other job's try away.
func TestTriesApart(t *testing.T) {
	t.Parallel()
	w := &Worker{log: slog.New(slog.DiscardHandler)}
	w.absences.worker = w
	early, err := w.absences.try("k")
	require.NoError(t, err)
	first, err := w.absences.try("k")
	require.NoError(t, err)
	require.Error(t, first.failed(errors.New("refused")))
	w.absences.byKind["k"].until = 0 // time has passed
	sole, err := w.absences.try("k")
	require.NoError(t, err)
	early.end()
	require.Error(t, early.failed(errors.New("refused")))
	first.end()
	_, err = w.absences.try("k")
	require.Error(t, err, "one tries")
	require.Equal(t, 1, w.absences.byKind["k"].rests)
	sole.end()
	_, err = w.absences.try("k")
	require.NoError(t, err)
}
