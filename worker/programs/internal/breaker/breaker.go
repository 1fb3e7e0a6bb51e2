// Package breaker is the circuit breaker between jobs and handlers that may be
// out of reach, such as an HTTP server that is not there, or a machine that has no
// room for a program. That is no fault of the jobs: they go back to their places
// without losing an attempt, and jobs of the kind are not claimed during a pause.
// Other workers may be able to run them. After the pause one job alone tries:
//
//	t=0.0  connection refused: the jobs in hand go back, pause 0.2 s
//	t=0.2  one job tries, is refused and goes back, pause 0.2 s
//	t=0.4  the same, pause 0.4 s
//	t=0.8  the same, pause 0.8 s
//	t=1.6  one job tries and is served: the kind is claimed without pauses again
package breaker

import (
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jobq-dev/jobq/internal/printable"
)

// pauseMin and pauseMax bound a pause: it takes as long as the handler has been
// out of reach, so that each pause is about twice the one before.
const (
	pauseMin = 200 * time.Millisecond
	pauseMax = 30 * time.Second
)

// Error says that a handler cannot be reached, and why.
type Error struct{ Reason error }

func (e *Error) Error() string { return "handler cannot be reached: " + e.Reason.Error() }

// Unwrap returns the reason.
func (e *Error) Unwrap() error { return e.Reason }

// Breaker knows the kinds whose handlers are out of reach.
type Breaker struct {
	log  *slog.Logger
	wake func(kind string)
	some atomic.Bool // there is a kind in outages: most of the time there is none

	mu sync.Mutex
	// guarded by mu
	outages map[string]*outage // by kind
	ended   map[string]int     // how many outages of the kind have ended
}

// outage is the time in which the handler of one kind is out of reach.
type outage struct {
	since    time.Time
	at       time.Time // of the latest failure
	until    time.Time // the end of the pause
	sole     *Try      // the one that is under way; nil when none is
	failures int       // tries that have failed in a row, of those that counted
	reason   error
}

// isPaused says whether no job of the kind may try now.
func (o *outage) isPaused(now time.Time) bool { return o.sole != nil || now.Before(o.until) }

// New returns a breaker that knows of no outage. It calls wake when jobs of the kind may be claimed
// again: a pause has ended, the handler can be reached, or the try of a single job ended without an outcome.
func New(log *slog.Logger, wake func(kind string)) *Breaker {
	return &Breaker{log: log, wake: wake, outages: make(map[string]*outage), ended: make(map[string]int)}
}

// Claimable returns those of the kinds whose jobs may be claimed now. It returns the slice
// itself while there is no outage.
func (b *Breaker) Claimable(kinds []string) []string {
	if !b.some.Load() {
		return kinds
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	return slices.DeleteFunc(slices.Clone(kinds), func(kind string) bool {
		out := b.outages[kind]
		return out != nil && out.isPaused(now)
	})
}

// Outage is what is known of a handler that is out of reach.
type Outage struct {
	Reason   error     // of the latest failure
	Failures int       // in a row
	At       time.Time // of the latest failure
}

// Outages are the current outages, by kind.
func (b *Breaker) Outages() map[string]Outage {
	b.mu.Lock()
	defer b.mu.Unlock()
	outages := make(map[string]Outage, len(b.outages))
	for kind, out := range b.outages {
		outages[kind] = Outage{Reason: out.reason, Failures: out.failures, At: out.at}
	}
	return outages
}

// Try is a job's try to reach its handler. The job calls Reached or Failed when it knows
// the outcome. It must also defer End, for a try that ends without an outcome, for example
// by a panic: without it, no job of the kind would ever try again.
type Try struct {
	breaker *Breaker
	kind    string
	outage  *outage // the outage during which this try alone tries; nil when there was none
	ended   int     // how many outages of the kind had ended when it began
}

// Begin begins a try. The error, an *Error, says that the job may not try now.
func (b *Breaker) Begin(kind string) (*Try, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	try := &Try{breaker: b, kind: kind, ended: b.ended[kind]}
	out := b.outages[kind]
	if out == nil {
		return try, nil
	}
	if out.isPaused(time.Now()) {
		return nil, &Error{out.reason}
	}
	out.sole, try.outage = try, out
	return try, nil
}

// IsSole says whether the other jobs of the kind wait for what this try finds out.
func (t *Try) IsSole() bool { return t.outage != nil }

// Reached notes that the handler is there. It may be called several times. That of a try which
// has begun before the outage says nothing: a server that is being stopped still answers
// what it has begun, and takes nothing new.
func (t *Try) Reached() {
	b := t.breaker
	if t.outage == nil || !b.some.Load() {
		return
	}
	b.mu.Lock()
	out := b.outages[t.kind]
	isOver := out == t.outage
	if isOver {
		delete(b.outages, t.kind)
		b.ended[t.kind]++
		b.some.Store(len(b.outages) > 0)
	}
	b.mu.Unlock()
	if isOver {
		b.log.Info("handler can be reached again", "kind", t.kind, "away", time.Since(out.since), "failures", out.failures)
		b.wake(t.kind)
	}
}

// End lets another job try if this try ended without an outcome.
func (t *Try) End() {
	if t.outage == nil {
		return
	}
	t.breaker.mu.Lock()
	isSole := t.outage.sole == t
	if isSole {
		t.outage.sole = nil
	}
	t.breaker.mu.Unlock()
	if isSole {
		t.breaker.wake(t.kind)
	}
}

// Failed records that the handler could not be reached, and returns the *Error that the job's
// handler must return. If several jobs have tried at once, only the first failure counts.
func (t *Try) Failed(reason error) error {
	b := t.breaker
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	out := b.outages[t.kind]
	switch {
	case out == nil && t.ended != b.ended[t.kind]: // it is about a time before the handler came back
		return &Error{reason}
	case out == nil:
		out = &outage{since: now}
		b.outages[t.kind] = out
		b.some.Store(true)
		b.log.Warn("handler cannot be reached, its jobs wait", "kind", t.kind, "error", printable.FirstLine(reason.Error()))
	case out.sole != t:
		return &Error{reason}
	}
	pause := min(max(now.Sub(out.since), pauseMin), pauseMax)
	pause -= rand.N(pause/4 + 1) // #nosec G404 -- jitter
	out.until, out.at, out.sole, out.reason = now.Add(pause), now, nil, reason
	out.failures++
	time.AfterFunc(pause, func() { b.wake(t.kind) })
	return &Error{reason}
}
