package leases

import (
	"slices"
	"sync"
	"time"
)

// knownMax bounds how many answered leases are remembered because an earlier claim
// has no answer. When there are more, the leases of such claims are no longer searched for.
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
// that is still unknown when C has been answered is A's. If ids do not grow, for example
// because the server's clock is set back, a lease is not found, and its jobs wait until it
// expires.
type Claims struct {
	mu sync.Mutex
	// guarded by mu
	newest   int64 // the latest lease that was answered
	underWay map[*Claim]struct{}
	known    []int64 // the answered leases with ids above floor
	floor    int64   // no claim under way or searched for has made a lease with this id or a lower one

	searching bool
	after     int64         // the leases that are searched for have higher ids
	until     time.Duration // when they have expired

	unanswered int // how many claims got no answer
	looked     int // unanswered, when the latest search began
	clear      int // the same of the latest search that has found nothing
}

// Claim is a claim under way.
type Claim struct {
	after int64
	over  chan struct{} // closed when it was answered, or has failed
}

// NewClaims returns Claims with no claim under way.
func NewClaims() *Claims { return &Claims{underWay: make(map[*Claim]struct{})} }

// Begin is called before a claim is sent. Answered or Unanswered has to follow.
func (c *Claims) Begin() *Claim {
	c.mu.Lock()
	defer c.mu.Unlock()
	claim := &Claim{after: c.newest, over: make(chan struct{})}
	c.underWay[claim] = struct{}{}
	return claim
}

// Answered records which leases a claim has made: none, if the server refused it.
func (c *Claims) Answered(claim *Claim, made []int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range made {
		c.newest = max(c.newest, id)
		if id > c.floor { // no lease up to floor is searched for
			c.known = append(c.known, id)
		}
	}
	if len(c.known) > knownMax {
		c.forgetLocked()
	}
	c.endLocked(claim)
}

// Unanswered records that the answer to a claim was lost. A lease that it may have made expires at
// until, and is searched for until then.
func (c *Claims) Unanswered(claim *Claim, until time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.searching {
		c.searching, c.after = true, claim.after
	}
	c.after, c.until = min(c.after, claim.after), max(c.until, until)
	c.unanswered++
	c.endLocked(claim)
}

func (c *Claims) endLocked(claim *Claim) {
	delete(c.underWay, claim)
	close(claim.over)
	c.trimLocked()
}

// forgetLocked ends the search for all leases with ids up to newest.
func (c *Claims) forgetLocked() {
	for claim := range c.underWay {
		claim.after = c.newest
	}
	c.after = c.newest
	c.trimLocked()
}

// trimLocked raises floor as far as it can, and forgets the known leases up to it.
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

// Search says whether there may be leases that the worker does not know. Their ids are higher
// than after, and not in known.
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
	c.looked = c.unanswered
	return c.after, slices.Clone(c.known), true
}

// FoundNone records that the latest search has found no lease that the worker does not know.
func (c *Claims) FoundNone() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.clear = c.looked
}

// MayHaveUnknown says whether the worker may have a lease that it does not know, since a claim got no
// answer and no search after it has found nothing. A search ends when the leases have expired.
func (c *Claims) MayHaveUnknown(now time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.searching && now < c.until && c.clear < c.unanswered
}

// IsUnknown says whether no claim has been answered with this lease. To be sure, a caller that has
// found a lease must first wait until all claims of UnderWay are over: one of them may have made it.
func (c *Claims) IsUnknown(id int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.searching && id > c.after && !slices.Contains(c.known, id)
}

// UnderWay returns a channel for each claim that is under way now. It is closed when the claim is over.
func (c *Claims) UnderWay() []<-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	over := make([]<-chan struct{}, 0, len(c.underWay))
	for claim := range c.underWay {
		over = append(over, claim.over)
	}
	return over
}
