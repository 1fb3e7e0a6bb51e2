// Package leases knows the leases that a worker holds and the runs under them:
// until when each may be relied on, when it is to be extended, which are lost, and
// how runs have ended. It reads no clock and does not talk to the database: its
// caller says when a request was sent and what was answered.
//
// A worker always gives a lease up before the database does. The deadline is the time
// at which the last request was sent that gave the lease its full length, plus that
// length, minus the kill margin. For example, with a lease of 60 s, extended every 20 s:
//
//	 0.0 s  the worker sends a claim
//	 0.2 s  the database gives the lease its time, until 60.2 s
//	 0.3 s  the answer arrives; the deadline is 0 + 60 - 5 = 55 s
//	20.3 s  the worker sends an extension; the database extends until 80.4 s
//	20.5 s  the answer arrives; the deadline is 20.3 + 60 - 5 = 75.3 s
//	40.5 s  the next extension fails, and so do all that follow
//	75.3 s  the worker gives the lease up: it cancels the contexts of its runs,
//	        which have 5 s to stop before another worker may have their jobs
//
// If all its runs can freeze, it freezes them at 75.3 s instead, and goes on trying to extend
// the lease. Nobody need have taken it at 80.4 s: then an extension at 300 s succeeds, and the
// runs go on. If it was taken, the runs are lost as above.
package leases

import (
	"context"
	"errors"
	"time"
)

// Why the context of a run is cancelled.
var (
	ErrLost      = errors.New("lease lost")
	ErrCancelled = errors.New("job cancelled")
	// ErrFrozen is why no handler may begin under a lease.
	ErrFrozen = errors.New("lease not extended in time, its runs are frozen")
)

// Lease is one lease, on all jobs of one claim.
type Lease struct {
	id        int64
	claimedAt time.Time
	settings  *QueueSettings

	// guarded by Set.mu
	open     int           // runs of it that are held
	deadline time.Duration // when the worker gives it up unless it has been extended
	extendAt time.Duration // when its next extension is due
	frozen   bool          // its deadline has passed, and its runs do nothing until it is extended
}

// ID is the lease's id, the token of its jobs.
func (l *Lease) ID() int64 { return l.id }

// ClaimedAt is when the lease was claimed by the database's clock, which tells it
// from another lease with the same id.
func (l *Lease) ClaimedAt() time.Time { return l.claimedAt }

// Settings are those of the lease's queue, as they are now.
func (l *Lease) Settings() Settings { return l.settings.Load() }

// extendLocked records that a request sent at sent gave the lease its full time. Neither it nor the
// database ever shortens a lease.
func (l *Lease) extendLocked(sent time.Duration, settings Settings) {
	l.deadline = max(l.deadline, sent+settings.Length-settings.KillMargin())
}

// Hold is the worker's right to one run, of the type R. A lease is given up with all
// its runs. If the worker gave up one run alone, it would still extend the lease for the
// others, and nobody could run that job until then.
type Hold[R any] struct {
	run       R
	job       int64
	token     int64
	claimedAt time.Time
	lease     *Lease // set by Add

	// guarded by Set.mu
	state  State
	ending int                     // calls of Completing that GoesOn has not taken back
	cancel context.CancelCauseFunc // of the running handler; nil when none runs
	onLost func()                  // called when the lease is lost; nil for nothing
	freeze func(frozen bool)       // freezes the run, and lets it go on; nil if it cannot
}

// State is what has become of a run while it was held.
type State struct {
	Lost      bool // nothing may be stored any more
	Abandoned bool // given up because its handler would not stop
	Cancelled bool // somebody has cancelled the job
	// Completing says that a transaction of the handler's own ends the run if it
	// commits. Completed says that it has committed.
	Completing, Completed bool
}

// NewHold returns the hold on a run of the job under a lease. lease is the id of that, and
// claimedAt when it was claimed by the database's clock. The caller passes the hold to Add.
func NewHold[R any](run R, job, lease int64, claimedAt time.Time) Hold[R] {
	return Hold[R]{run: run, job: job, token: lease, claimedAt: claimedAt}
}

// Lease is the lease that the run is under.
func (h *Hold[R]) Lease() *Lease { return h.lease }
