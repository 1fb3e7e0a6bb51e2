package leases

import (
	"slices"
	"sync"
	"time"
)

// knownMax bounds how many answered leases are remembered because an earlier claim
// has no answer yet. Beyond it, what such a claim has made is not searched for.
const knownMax = 10_000

// Claims tells the leases that a worker knows from those that it has and does not
// know: a claim may have committed although its answer was lost. The id of a lease
// grows with every claim, so what a claim makes is later than all that was answered
// before it was sent. For example, of three claims that are sent one after the other:
//
//	claim      sent after the answer    outcome
//	A          lease 900                the connection is lost
//	B          lease 900                lease 902
//	C          lease 902                still under way
//
// The worker's leases after 900 other than 902 are those of A, and perhaps of C. One
// that is still unknown when C has been answered is A's. Where ids do not grow, as when
// the server's clock is set back, a lease is not found, and waits until its time is over.
type Claims struct {
	mu sync.Mutex
	// guarded by mu
	newest   int64 // the latest lease that was answered
	underWay map[*Claim]struct{}
	known    []int64 // leases after floor that were answered
	floor    int64   // no claim under way or searched for has made one up to here

	searching bool
	after     int64         // what is searched for is later than this
	until     time.Duration // and its time is over then
}

// Claim is a claim under way.
type Claim struct {
	after int64
	over  chan struct{} // closed when its outcome, if any, is known
}

// NewClaims returns one without claims.
func NewClaims() *Claims { return &Claims{underWay: make(map[*Claim]struct{})} }

// Begin is called before a claim is sent. Answered or Unanswered has to follow.
func (c *Claims) Begin() *Claim {
	c.mu.Lock()
	defer c.mu.Unlock()
	claim := &Claim{after: c.newest, over: make(chan struct{})}
	c.underWay[claim] = struct{}{}
	return claim
}

// Answered takes over the leases that a claim has made: none, if the server refused it.
func (c *Claims) Answered(claim *Claim, made []int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range made {
		c.newest = max(c.newest, id)
		if id > c.floor { // else nothing as early is searched for
			c.known = append(c.known, id)
		}
	}
	if len(c.known) > knownMax {
		c.forgetLocked()
	}
	c.endLocked(claim)
}

// Unanswered notes that nobody knows what a claim has done. A lease that it may have made
// ends at the instant, and is worth a search until then.
func (c *Claims) Unanswered(claim *Claim, until time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.searching {
		c.searching, c.after = true, claim.after
	}
	c.after, c.until = min(c.after, claim.after), max(c.until, until)
	c.endLocked(claim)
}

func (c *Claims) endLocked(claim *Claim) {
	delete(c.underWay, claim)
	close(claim.over)
	c.trimLocked()
}

// forgetLocked gives up on leases that are not known now.
func (c *Claims) forgetLocked() {
	for claim := range c.underWay {
		claim.after = c.newest
	}
	c.after = c.newest
	c.trimLocked()
}

// trimLocked forgets the leases that are earlier than any that is not known.
func (c *Claims) trimLocked() {
	floor := c.newest
	for claim := range c.underWay {
		floor = min(floor, claim.after)
	}
	if c.searching {
		floor = min(floor, c.after)
	}
	if floor > c.floor {
		c.floor = floor
		c.known = slices.DeleteFunc(c.known, func(id int64) bool { return id <= floor })
	}
}

// Search says whether there may be leases that the worker does not know; they are later
// than after, and not among the known.
func (c *Claims) Search(now time.Duration) (after int64, known []int64, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.searching && now >= c.until {
		c.searching = false
		c.trimLocked()
	}
	if !c.searching {
		return 0, nil, false
	}
	return c.after, slices.Clone(c.known), true
}

// IsUnknown says whether a lease is searched for. One that was there before the claims
// of UnderWay began, or is theirs, is nobody's once these are over.
func (c *Claims) IsUnknown(id int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.searching && id > c.after && !slices.Contains(c.known, id)
}

// UnderWay are closed when the claims are over that are under way now.
func (c *Claims) UnderWay() []<-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	over := make([]<-chan struct{}, 0, len(c.underWay))
	for claim := range c.underWay {
		over = append(over, claim.over)
	}
	return over
}
