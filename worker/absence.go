package worker

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jobq-dev/jobq/internal/printable"
	"github.com/jobq-dev/jobq/worker/internal/clock"
	"github.com/jobq-dev/jobq/worker/internal/excerpt"
)

const (
	// awayRestMin and awayRestMax bound how long a kind is not claimed whose
	// handler could not be reached: as long as it has been away, so that each rest
	// is about twice the one before.
	awayRestMin = 200 * time.Millisecond
	awayRestMax = 30 * time.Second
	// troubleBytesMax bounds a reason in the worker's row.
	troubleBytesMax = 500
)

// absences knows the kinds whose handlers cannot be reached, which is no fault of
// their jobs: an HTTP server that is not there, or a machine that has no room for
// a program. Their jobs go back to their places, count no attempt, and are not
// claimed for a while; other workers may do better. Then one job tries:
//
//	t=0.0  connection refused: the jobs in hand go back, rest 0.2 s
//	t=0.2  one job tries, is refused and goes back, rest 0.2 s
//	t=0.4  the same, rest 0.4 s
//	t=0.8  the same, rest 0.8 s
//	t=1.6  one job tries and is served: the kind is claimed as ever
type absences struct {
	worker *Worker
	some   atomic.Bool // there is one: most of the time there is none

	mu sync.Mutex
	// guarded by mu
	byKind map[string]*absence
}

// absence is that of the handler of one kind. Times are of clock.SinceBoot.
type absence struct {
	since  time.Duration
	until  time.Duration // the kind is not claimed before
	trying *try          // of the one job that tries; nil when none does
	rests  int
	reason error
}

// try is a job's try to reach its handler. What it found out is to be told by
// reached or failed; and end is to be deferred, for a try that was cut short, be
// it by a panic: else no job of the kind would ever try again.
type try struct {
	absences *absences
	kind     string
	absence  *absence // that this job alone tries to end; nil when the handler was not known to be away
}

// try begins a try; an error says that the job may not try now.
func (a *absences) try(kind string) (*try, error) {
	begun := &try{absences: a, kind: kind}
	if !a.some.Load() {
		return begun, nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	absence := a.byKind[kind]
	if absence == nil {
		return begun, nil
	}
	if absence.trying != nil || clock.SinceBoot() < absence.until {
		return nil, awayError(absence.reason)
	}
	absence.trying, begun.absence = begun, absence
	return begun, nil
}

// reached notes that the handler is there. It may be called several times.
func (t *try) reached() {
	a, kind := t.absences, t.kind
	if !a.some.Load() {
		return
	}
	a.mu.Lock()
	absence := a.byKind[kind]
	delete(a.byKind, kind)
	a.some.Store(len(a.byKind) > 0)
	a.mu.Unlock()
	if absence != nil {
		a.worker.log.Info("handler can be reached again", "kind", kind, "away", clock.SinceBoot()-absence.since)
		a.worker.wakeQueuesOf(kind)
	}
}

// end lets another job try, where this one has found nothing out.
func (t *try) end() {
	if t.absence == nil {
		return
	}
	t.absences.mu.Lock()
	defer t.absences.mu.Unlock()
	if t.absence.trying == t {
		t.absence.trying = nil
	}
}

// failed notes that the handler could not be reached, and returns what the job's
// handler returns. Of many that have tried at once, the first counts.
func (t *try) failed(reason error) error {
	a, kind := t.absences, t.kind
	a.mu.Lock()
	defer a.mu.Unlock()
	now := clock.SinceBoot()
	known := a.byKind[kind]
	switch {
	case known == nil:
		known = &absence{since: now}
		if a.byKind == nil {
			a.byKind = make(map[string]*absence)
		}
		a.byKind[kind] = known
		a.some.Store(true)
		a.worker.log.Warn("handler cannot be reached, its jobs wait", "kind", kind, "error", printable.FirstLine(reason.Error()))
	case known.trying != t:
		return awayError(reason)
	}
	rest := min(max(now-known.since, awayRestMin), awayRestMax)
	rest -= rand.N(rest/4 + 1) // #nosec G404 -- jitter
	known.until, known.trying, known.reason = now+rest, nil, reason
	known.rests++
	time.AfterFunc(rest, func() { a.worker.wakeQueuesOf(kind) })
	return awayError(reason)
}

func awayError(reason error) error {
	return &blamelessError{err: fmt.Errorf("handler cannot be reached: %w", reason), unstarted: true}
}

// present are those of the kinds that may be claimed now.
func (a *absences) present(kinds []string) []string {
	if !a.some.Load() {
		return kinds
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	now := clock.SinceBoot()
	return slices.DeleteFunc(slices.Clone(kinds), func(kind string) bool {
		absence := a.byKind[kind]
		return absence != nil && (absence.trying != nil || now < absence.until)
	})
}

// isAll says whether none of the kinds, of which there are some, may be claimed now.
func (a *absences) isAll(kinds []string) bool {
	return a.some.Load() && len(kinds) > 0 && len(a.present(kinds)) == 0
}

// troubles are why the handlers that are away cannot be reached, by kind.
func (a *absences) troubles() map[string]string {
	a.mu.Lock()
	defer a.mu.Unlock()
	troubles := make(map[string]string, len(a.byKind))
	for kind, absence := range a.byKind {
		troubles[kind] = excerpt.Storable(printable.FirstLine(absence.reason.Error()), troubleBytesMax)
	}
	return troubles
}
