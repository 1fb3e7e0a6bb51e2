package leases_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/worker/internal/leases"
)

// minute are the settings of the examples: a lease of 60 s, extended every 20 s.
var minute = leases.Settings{Length: time.Minute, ExtendEvery: 20 * time.Second, Heartbeat: jobq.HeartbeatTicker}

// run is a run as these tests hold it.
type run struct {
	hold  leases.Hold[*run]
	ctx   context.Context
	stop  context.CancelCauseFunc
	calls int // of OnLost
}

// worker holds leases and remembers of which runs it was told that they are lost.
type worker struct {
	*leases.Set[*run]
	queue    leases.QueueSettings
	reported []*run
}

func newWorker() *worker {
	w := &worker{}
	w.Set = leases.NewSet(func(r *run) { w.reported = append(w.reported, r) })
	w.queue.Store(minute)
	return w
}

// claim holds runs of the jobs under a lease that was claimed at the instant.
func (w *worker) claim(lease int64, sent time.Duration, jobs ...int64) []*run {
	runs, holds := make([]*run, len(jobs)), make([]*leases.Hold[*run], len(jobs))
	for i, job := range jobs {
		r := &run{}
		r.ctx, r.stop = context.WithCancelCause(context.Background())
		r.hold = leases.NewHold(r, job, lease, time.Unix(lease, 0))
		runs[i], holds[i] = r, &r.hold
	}
	w.Add(holds, &w.queue, minute, sent)
	return runs
}

// start begins the handlers of the runs.
func (w *worker) start(t *testing.T, now time.Duration, runs ...*run) {
	t.Helper()
	for _, r := range runs {
		require.NoError(t, w.Start(&r.hold, now, r.stop))
	}
}

// cause is why the run's context has ended; nil while it has not.
func (r *run) cause() error { return context.Cause(r.ctx) }

// A lease is given up by the worker before it ends by the database's clock,
// counted from when the last request that gave it time was sent: the timeline in
// the package's documentation.
func TestDeadlineComesFirst(t *testing.T) {
	t.Parallel()
	w := newWorker()
	claimed := w.claim(900, 0, 1)[0]
	w.start(t, time.Second, claimed)
	deadline, ok := w.NextDeadline()
	require.True(t, ok)
	require.Equal(t, 55*time.Second, deadline)
	require.Empty(t, w.Due(19*time.Second))
	due := w.Due(20 * time.Second)
	require.Len(t, due, 1)
	require.EqualValues(t, 900, due[0].ID())

	sent := 20*time.Second + 300*time.Millisecond
	require.Empty(t, w.Answered(due[0], leases.OK, minute, sent))
	require.Equal(t, sent+55*time.Second, w.Deadline(&claimed.hold))
	require.Empty(t, w.Due(sent+19*time.Second))
	require.Len(t, w.Due(sent+20*time.Second), 1)
	w.Extended([]int64{900}, minute, 0)
	require.Equal(t, sent+55*time.Second, w.Deadline(&claimed.hold), "a late answer to an older request shortens nothing")

	w.Expire(sent + 54*time.Second)
	require.NoError(t, claimed.cause())
	w.Expire(sent + 55*time.Second)
	require.ErrorIs(t, claimed.cause(), leases.ErrLost)
	require.Equal(t, []*run{claimed}, w.reported)
	require.True(t, w.Drop(&claimed.hold).Lost)
	_, ok = w.NextDeadline()
	require.False(t, ok)
}

// A lease whose row somebody has locked is asked after again soon, and keeps its
// deadline; one that the ticker does not extend is only asked after.
func TestAnswersThatDoNotExtend(t *testing.T) {
	t.Parallel()
	w := newWorker()
	r := w.claim(900, 0, 1)[0]
	l := w.Due(20 * time.Second)[0]
	require.Empty(t, w.Answered(l, leases.Busy, minute, 20*time.Second))
	require.Equal(t, 55*time.Second, w.Deadline(&r.hold))
	require.Len(t, w.Due(21*time.Second), 1)

	byProgress := minute
	byProgress.Heartbeat = jobq.HeartbeatProgress
	require.Empty(t, w.Answered(l, leases.OK, byProgress, 21*time.Second))
	require.Equal(t, 55*time.Second, w.Deadline(&r.hold))
	require.Empty(t, w.Due(40*time.Second))
	require.Len(t, w.Due(41*time.Second), 1)
	w.ExtendedBy(&r.hold, byProgress, 30*time.Second)
	require.Equal(t, 85*time.Second, w.Deadline(&r.hold))

	require.True(t, w.NotReported(&r.hold, byProgress, 31*time.Second))
	require.Len(t, w.Due(32*time.Second), 1, "the next extension tells why")
	w.Drop(&r.hold)
	require.False(t, w.NotReported(&r.hold, byProgress, 31*time.Second))
}

// A lease is lost as a whole, with all its runs and no other's, and each run is
// told of once.
func TestLostAsAWhole(t *testing.T) {
	t.Parallel()
	w := newWorker()
	runs, other := w.claim(900, 0, 1, 2, 3), w.claim(901, 0, 4)[0]
	w.start(t, 0, runs[0], runs[1], other)
	for _, r := range runs {
		w.OnLost(&r.hold, func() { r.calls++ })
	}
	w.Lose(&runs[0].hold)
	w.Lose(&runs[1].hold)
	w.Expire(time.Hour - time.Minute)
	require.ErrorIs(t, runs[0].cause(), leases.ErrLost)
	require.ErrorIs(t, runs[1].cause(), leases.ErrLost)
	require.ErrorIs(t, w.Start(&runs[2].hold, 0, runs[2].stop), leases.ErrLost, "its handler has not begun")
	for _, r := range runs {
		require.Equal(t, 1, r.calls)
	}
	require.ElementsMatch(t, append(runs, other), w.reported)
	require.Empty(t, w.Running())
	require.Empty(t, w.Due(time.Hour))
}

// What the database answers for a lease that was lost meanwhile changes nothing.
func TestLateAnswer(t *testing.T) {
	t.Parallel()
	w := newWorker()
	r := w.claim(900, 0, 1)[0]
	l := w.Due(20 * time.Second)[0]
	w.Lose(&r.hold)
	for _, answer := range []leases.Answer{leases.OK, leases.Busy, leases.Lost} {
		require.Empty(t, w.Answered(l, answer, minute, 20*time.Second))
		require.Empty(t, w.Due(time.Hour))
		require.ErrorIs(t, w.Start(&r.hold, 0, r.stop), leases.ErrLost)
	}
	require.Equal(t, []*run{r}, w.reported, "once")
	w.Cancel(l, []int64{1})
	require.False(t, w.State(&r.hold).Cancelled)
}

// A handler does not begin when its lease is past its deadline, its job is
// cancelled, or the worker stops.
func TestStartRefuses(t *testing.T) {
	t.Parallel()
	w := newWorker()
	late := w.claim(900, 0, 1)[0]
	require.ErrorIs(t, w.Start(&late.hold, 55*time.Second, late.stop), leases.ErrLost)

	cancelled := w.claim(901, 0, 2)[0]
	require.True(t, w.MakeDue(2))
	require.False(t, w.MakeDue(3))
	l := w.Due(0)[0]
	require.Equal(t, time.Unix(901, 0), l.ClaimedAt())
	w.Cancel(l, []int64{2})
	require.ErrorIs(t, w.Start(&cancelled.hold, 0, cancelled.stop), leases.ErrCancelled)

	running, stopped := w.claim(902, 0, 4)[0], w.claim(903, 0, 5)[0]
	w.start(t, 0, running)
	reason := errors.New("drained")
	w.Stop(reason)
	require.ErrorIs(t, running.cause(), reason)
	require.ErrorIs(t, w.Start(&stopped.hold, 0, stopped.stop), reason)
	require.NoError(t, stopped.cause())
}

// A cancelled job's handler is stopped, whoever else is under its lease.
func TestCancelled(t *testing.T) {
	t.Parallel()
	w := newWorker()
	runs := w.claim(900, 0, 1, 2)
	w.start(t, 0, runs...)
	w.MakeAllDue()
	l := w.Due(0)[0]
	require.Empty(t, w.Answered(l, leases.OK, minute, 0))
	require.Empty(t, w.Due(10*time.Second))
	w.AskAgain(l, 0)
	require.Len(t, w.Due(10*time.Second), 1)
	w.Cancel(l, []int64{2})
	require.NoError(t, runs[0].cause())
	require.ErrorIs(t, runs[1].cause(), leases.ErrCancelled)
	state := w.Drop(&runs[1].hold)
	require.True(t, state.Cancelled)
	require.False(t, state.Lost)
}

// A run whose handler's own transaction may have completed the job is not lost
// before the database has said what has become of it.
func TestCompletingIsSettled(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name            string
		completed, held bool
		lost            bool
	}{
		{"committed", true, false, false},
		{"rolled back and lost", false, false, true},
		{"not known yet", false, true, false},
	} {
		w := newWorker()
		r := w.claim(900, 0, 1)[0]
		w.start(t, 0, r)
		w.Completing(&r.hold)
		w.Lose(&r.hold)
		require.False(t, w.State(&r.hold).Lost, test.name)
		due := w.Due(0)
		require.Len(t, due, 1, "%s: the next extension tells", test.name)
		require.Equal(t, []*run{r}, w.Answered(due[0], leases.Lost, minute, 0), test.name)
		require.Empty(t, w.Due(0), "%s: asking takes its time", test.name)
		require.Equal(t, due, w.Due(time.Second), "%s: it may have found out nothing", test.name)
		w.Settle(&r.hold, test.completed, test.held)
		state := w.State(&r.hold)
		require.Equal(t, test.lost, state.Lost, test.name)
		require.Equal(t, test.completed, state.Completed, test.name)
		w.Expire(time.Hour)
		require.Equal(t, !test.completed, w.State(&r.hold).Lost, test.name)
		require.Empty(t, w.reported, "%s: whoever asks what has become of it reports it", test.name)
	}
}

// A job that is claimed again while it is held was lost meanwhile, and so was a
// lease whose id the database has given out again: the earlier runs end.
func TestClaimedAgain(t *testing.T) {
	t.Parallel()
	w := newWorker()
	earlier := w.claim(900, 0, 1, 2)
	again := w.claim(901, time.Second, 1)[0]
	require.True(t, w.State(&earlier[0].hold).Lost)
	require.True(t, w.State(&earlier[1].hold).Lost)
	require.False(t, w.State(&again.hold).Lost)
	w.Drop(&earlier[0].hold)
	require.Len(t, w.Due(time.Hour), 1, "the later run is held all the same")

	same := w.claim(901, time.Second, 7)[0]
	require.True(t, w.State(&again.hold).Lost)
	require.False(t, w.State(&same.hold).Lost)
}

// A run whose handler's own transaction may have put the job back is lost alone when the
// job is claimed again: the next extension tells of the others of its lease.
func TestPutBackAndClaimedAgain(t *testing.T) {
	t.Parallel()
	w := newWorker()
	earlier := w.claim(900, 0, 1, 2)
	w.start(t, 0, earlier...)
	w.Completing(&earlier[0].hold)
	again := w.claim(901, time.Second, 1)[0]
	require.ErrorIs(t, earlier[0].cause(), leases.ErrLost)
	require.NoError(t, earlier[1].cause())
	require.False(t, w.State(&again.hold).Lost)
	require.Empty(t, w.reported, "whoever asks what has become of it reports it")
	due := w.Due(time.Second)
	require.Len(t, due, 1)
	require.EqualValues(t, 900, due[0].ID())
	require.True(t, w.Drop(&earlier[0].hold).Lost)
	require.Empty(t, w.Answered(due[0], leases.Lost, minute, time.Second))
	require.ErrorIs(t, earlier[1].cause(), leases.ErrLost)
	require.False(t, w.State(&again.hold).Lost)
}

// A run that goes on no more gives its lease up, whatever its handler's own transaction may have done.
func TestGivenUp(t *testing.T) {
	t.Parallel()
	w := newWorker()
	runs := w.claim(900, 0, 1, 2)
	w.start(t, 0, runs...)
	w.Completing(&runs[0].hold)
	w.GiveUp(&runs[0].hold)
	for _, r := range runs {
		require.ErrorIs(t, r.cause(), leases.ErrLost)
	}
	require.Equal(t, []*run{runs[1]}, w.reported)
	require.Empty(t, w.Due(time.Hour))
}

// A run that goes on after all is one like others, unless something else may have ended it.
func TestGoesOn(t *testing.T) {
	t.Parallel()
	w := newWorker()
	runs := w.claim(900, 0, 1, 2)
	w.start(t, 0, runs...)
	w.Completing(&runs[0].hold)
	w.GoesOn(&runs[0].hold)
	w.Completing(&runs[1].hold)
	w.Completing(&runs[1].hold)
	w.GoesOn(&runs[1].hold)
	abandoned, gone := w.Abandon()
	require.Equal(t, runs[:1], abandoned)
	require.Equal(t, runs[1:], gone)

	lost := w.claim(901, 0, 3)[0]
	w.Completing(&lost.hold)
	w.GiveUp(&lost.hold)
	w.GoesOn(&lost.hold)
	require.True(t, w.Drop(&lost.hold).Completing, "its loss is not reported yet")
}

// Of handlers that do not stop, those that were held until now are told from those
// that had lost their lease, or may have completed the job.
func TestAbandon(t *testing.T) {
	t.Parallel()
	w := newWorker()
	held, completing, lost, returned := w.claim(900, 0, 1)[0], w.claim(901, 0, 2)[0], w.claim(902, 0, 3)[0], w.claim(903, 0, 4)[0]
	w.start(t, 0, held, completing, lost, returned)
	w.OnLost(&held.hold, func() { held.calls++ })
	w.Completing(&completing.hold)
	w.Lose(&lost.hold)
	w.Lose(&returned.hold)
	w.Drop(&returned.hold)
	abandoned, gone := w.Abandon()
	require.Equal(t, []*run{held}, abandoned)
	require.ElementsMatch(t, []*run{completing, lost}, gone)
	require.Equal(t, 1, held.calls)
	for _, r := range []*run{held, completing, lost} {
		require.True(t, w.Drop(&r.hold).Abandoned)
	}
	require.False(t, w.State(&returned.hold).Abandoned)
}

// When the keeper's timer rings late, the machine is overloaded and signals will be
// late as well: leases of runs that have to be told of their loss are given up
// earlier by that, by no more than the kill margin; those of other runs are not.
func TestLateKeeperGivesUpEarlier(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ late, told, untold time.Duration }{
		{0, 55 * time.Second, 55 * time.Second},
		{3 * time.Second, 52 * time.Second, 55 * time.Second},
		{time.Hour, 50 * time.Second, 55 * time.Second},
	} {
		w := newWorker()
		told, untold := w.claim(900, 0, 1)[0], w.claim(901, 0, 2)[0]
		w.OnLost(&told.hold, func() {})
		w.ObserveDelay(test.late)
		require.Equal(t, test.told, w.Deadline(&told.hold))
		require.Equal(t, test.untold, w.Deadline(&untold.hold))
		next, _ := w.NextDeadline()
		require.Equal(t, test.told, next)
		w.Expire(test.told)
		require.True(t, w.State(&told.hold).Lost)
		require.Equal(t, test.late == 0, w.State(&untold.hold).Lost)
	}
}
