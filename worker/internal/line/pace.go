package line

import "time"

const (
	// The pause between two claims is as long as the last one took, so that claims take half of the
	// time. These limit it.
	paceMin = time.Millisecond
	paceMax = 20 * time.Millisecond
	// paceKept is after how many claims of one job or none the pace ends at the latest.
	paceKept = 25
)

// pace keeps claims apart while jobs come so fast that a claim finds several: each waits a little, and
// finds more. It does not wait for news, so that the queue needs no notifications meanwhile. For
// example, of 2,000 jobs a second:
//
//	0.0 ms  a notification: a claim takes 1.2 ms and finds 1 job
//	1.3 ms  a notification: a claim finds the 2 jobs that have come since. The next is to come 1.2 ms
//	        after its answer
//	2.9 ms  a notification: it waits
//	3.7 ms  the next claim finds 4 jobs, and those that follow find 5 each
//	9.0 s   no more jobs come. 25 claims find none; then the queue waits for news
//
// Where each job comes only when the one before has run, no claim finds several, and none waits. A claim
// that gets as many jobs as it asked for is no reason to wait either: there are more.
type pace struct {
	found  int           // claims that have found several jobs, less the others; 0 while claims need news
	nextAt time.Duration // of the next claim
	waits  bool          // until then
}

// Claimed records how many jobs a claim has got, of those that it has asked for, with and without
// partition keys, and how long it took.
func (p *Planner) Claimed(now time.Duration, jobs, asked int, took time.Duration) {
	c := &p.pace
	if jobs > 1 {
		c.found = min(c.found+1, paceKept)
	} else {
		c.found = max(c.found-1, 0)
	}
	c.waits, c.nextAt = c.found > 0, now
	if jobs < asked {
		c.nextAt += min(max(took, paceMin), paceMax)
	}
}

// IsPaced says whether the queue claims without news, since jobs come fast.
func (p *Planner) IsPaced() bool { return p.pace.found > 0 }
