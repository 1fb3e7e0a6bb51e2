package leases_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/worker/internal/leases"
)

// freezes makes the run able to freeze, and returns whether it is frozen.
func (w *worker) freezes(r *run) *bool {
	frozen := new(bool)
	w.OnFreeze(&r.hold, func(now bool) { *frozen = now })
	w.OnLost(&r.hold, func() { r.calls++ })
	return frozen
}

// A lease whose runs can freeze is not given up at its deadline. They freeze, also if their lease has ended by the
// database's clock. An extension lets them go on; another answer does not.
func TestFrozenUntilExtended(t *testing.T) {
	t.Parallel()
	w := newWorker()
	runs := w.claim(900, 0, 1, 2, 3)
	w.start(t, 0, runs[:2]...)
	frozen := [2]*bool{w.freezes(runs[0]), w.freezes(runs[1])}
	w.Expire(54 * time.Second)
	require.False(t, *frozen[0])
	w.Expire(55 * time.Second)
	require.True(t, *frozen[0] && *frozen[1])
	require.True(t, w.IsFrozen(&runs[0].hold))
	require.NoError(t, runs[0].cause())
	require.ErrorIs(t, w.Start(&runs[2].hold, 56*time.Second, runs[2].stop), leases.ErrFrozen, "nothing begins under it")
	require.False(t, w.Drop(&runs[2].hold).Lost, "it can be released")
	_, ok := w.NextDeadline()
	require.False(t, ok)

	due := w.Due(time.Hour)
	require.Len(t, due, 1)
	require.Empty(t, w.Answered(due[0], leases.Busy, minute, time.Hour))
	w.Extended([]int64{900}, minute, 0) // a late answer
	w.Expire(time.Hour)
	require.True(t, *frozen[0] && *frozen[1])
	require.Empty(t, w.Answered(due[0], leases.OK, minute, time.Hour))
	require.False(t, *frozen[0] || *frozen[1])
	require.Equal(t, time.Hour+55*time.Second, w.Deadline(&runs[0].hold))
	require.NoError(t, runs[0].cause())
	require.Empty(t, w.reported)
}

// A frozen run is lost, and does not go on, when its lease was taken away.
func TestFrozenIsLost(t *testing.T) {
	t.Parallel()
	w := newWorker()
	r := w.claim(900, 0, 1)[0]
	w.start(t, 0, r)
	frozen := w.freezes(r)
	w.Expire(time.Minute)
	require.Empty(t, w.Answered(w.Due(time.Hour)[0], leases.Lost, minute, time.Hour))
	require.True(t, *frozen)
	require.Equal(t, 1, r.calls)
	require.ErrorIs(t, r.cause(), leases.ErrLost)
	require.Equal(t, []*run{r}, w.reported)
	require.False(t, w.IsFrozen(&r.hold))
	require.Empty(t, w.Due(2*time.Hour))
}

// A lease is given up if one of its runs that have begun cannot freeze, and if only progress extends it.
func TestNotFrozen(t *testing.T) {
	t.Parallel()
	w := newWorker()
	runs := w.claim(900, 0, 1, 2)
	w.start(t, 0, runs...)
	frozen := w.freezes(runs[0])
	w.Expire(time.Minute)
	require.False(t, *frozen)
	require.ElementsMatch(t, runs, w.reported)

	byProgress := minute
	byProgress.Heartbeat = jobq.HeartbeatProgress
	w = newWorker()
	w.queue.Store(byProgress)
	r := w.claim(900, 0, 1)[0]
	w.start(t, 0, r)
	frozen = w.freezes(r)
	w.Expire(time.Minute)
	require.False(t, *frozen)
	require.Equal(t, []*run{r}, w.reported)
}

// A run that its own transaction has completed needs no lease, and is ended at the deadline: nobody would let it go on.
func TestCompletedIsNotFrozen(t *testing.T) {
	t.Parallel()
	w := newWorker()
	r := w.claim(900, 0, 1)[0]
	w.start(t, 0, r)
	frozen := w.freezes(r)
	w.Completing(&r.hold)
	w.Expire(55 * time.Second)
	require.True(t, *frozen, "it is not known yet whether it has committed")
	require.Equal(t, []*run{r}, w.Answered(w.Due(time.Minute)[0], leases.Lost, minute, time.Minute))
	w.Settle(&r.hold, true, false)
	w.Expire(time.Minute)
	require.Equal(t, 1, r.calls)
	require.True(t, w.Drop(&r.hold).Completed)
	require.Empty(t, w.reported)
}
