package worker

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jobq-dev/jobq/internal/printable"
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

// absence is that of the handler of one kind. Times are of sinceBoot.
type absence struct {
	since  time.Duration
	until  time.Duration // the kind is not claimed before
	trying bool          // one job tries
	rests  int
	reason error
}

// try says whether a job may try to reach its handler: nil when it may. What
// it found out is to be told by reached, failed or leftOpen.
func (a *absences) try(kind string) error {
	if !a.some.Load() {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	absence := a.byKind[kind]
	if absence == nil {
		return nil
	}
	if absence.trying || sinceBoot() < absence.until {
		return awayError(absence.reason)
	}
	absence.trying = true
	return nil
}

// reached notes that the handler of a kind is there.
func (a *absences) reached(kind string) {
	if !a.some.Load() {
		return
	}
	a.mu.Lock()
	absence := a.byKind[kind]
	delete(a.byKind, kind)
	a.some.Store(len(a.byKind) > 0)
	a.mu.Unlock()
	if absence != nil {
		a.worker.log.Info("handler can be reached again", "kind", kind, "away", sinceBoot()-absence.since)
		a.worker.wakeQueues()
	}
}

// leftOpen notes that the try of a job was cut short for another reason.
func (a *absences) leftOpen(kind string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if absence := a.byKind[kind]; absence != nil {
		absence.trying = false
	}
}

// failed notes that the handler of a kind could not be reached, and returns
// what the job's handler returns. Of many that have tried at once, the first
// counts.
func (a *absences) failed(kind string, reason error) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := sinceBoot()
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
	case !known.trying:
		return awayError(reason)
	}
	rest := min(max(now-known.since, awayRestMin), awayRestMax)
	rest -= rand.N(rest/4 + 1) // #nosec G404 -- jitter
	known.until, known.trying, known.reason = now+rest, false, reason
	known.rests++
	time.AfterFunc(rest, a.worker.wakeQueues)
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
	now := sinceBoot()
	return slices.DeleteFunc(slices.Clone(kinds), func(kind string) bool {
		absence := a.byKind[kind]
		return absence != nil && (absence.trying || now < absence.until)
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
		troubles[kind] = storable(printable.FirstLine(absence.reason.Error()), troubleBytesMax)
	}
	return troubles
}
