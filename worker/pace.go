package worker

import (
	"math"
	"time"

	"github.com/jobq-dev/jobq/internal/db"
)

// wholeLineShare is how much of its time a worker spends at most on looking at
// the whole of a long line: see db.Line.
const wholeLineShare = 20

// pace is what the queue knows about the flow of jobs.
type pace struct {
	more   bool    // the last claim was filled, or there is news since it was sent
	news   int     // how often something has happened that a claim has to come after
	rate   float64 // runs ended per second, of late
	lastAt time.Duration
	// wholeAt is when the whole line is looked at again, and not only beyond what
	// was claimed; awaited says that there is a reason to be there in time, and
	// behind that jobs are known to be where nobody looks before.
	wholeAt time.Duration
	awaited bool
	behind  bool
	// apart says that claims have a round trip of their own, because one took too
	// long; until a look at the whole line has gone well.
	apart bool
}

// look is a claim under way: what it asks for, and what was known when it was sent.
type look struct {
	asked int    // jobs
	whole bool   // at the whole line
	word  string // of new jobs, the last that was heard
	news  int
}

// observe takes into account that runs have ended. The average forgets with
// time and not with calls: two ends in quick succession are not a high rate. What
// was given back before it began is no run, and what is sent again was one before.
func (p *pace) observe(results []result) {
	now, ended := sinceBoot(), 0
	for _, r := range results {
		if !r.retried && (r.completion != nil || r.ending.Started) {
			ended++
		}
	}
	if elapsed := now - p.lastAt; p.lastAt > 0 && elapsed > 0 {
		weight := 1 - math.Exp(-float64(elapsed)/float64(rateMemory))
		p.rate += weight * (float64(ended)/elapsed.Seconds() - p.rate)
	}
	p.lastAt = now
}

// hasNews makes the queue claim. Claims that are under way may have looked too
// early, and their answers do not take it back.
func (p *pace) hasNews() {
	p.news++
	p.more = true
}

// aim makes a claim look beyond what was claimed before or, when it is time, at
// the whole line.
func (q *queue) aim(claim *db.JobClaimParams) look {
	q.mu.Lock()
	defer q.mu.Unlock()
	look := look{asked: int(claim.JobCount), word: q.words.last, news: q.pace.news}
	if sinceBoot() < q.pace.wholeAt && !q.pace.behind {
		q.line.Rest(claim)
		return look
	}
	q.pace.wholeAt, q.pace.behind = never, false // one at a time
	db.WholeLine(claim)
	look.whole = true
	return look
}

// claimsApart says whether results are not to wait for the next claim.
func (q *queue) claimsApart() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.pace.apart
}

// lookAgain makes the next claim look at the whole line after all, also when one
// that does so is under way: it may have looked too early.
func (q *queue) lookAgain() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.pace.behind = true
	q.pace.news++
}

// observeClaim decides when to claim next. A claim of the whole line that found
// less than it asked for leaves nothing; one beyond the bound may have left
// what came late, which the next look at the whole line finds. Neither speaks of
// what there was news of since it was sent.
func (q *queue) observeClaim(claimed []db.JobClaimRow, look look, took time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.line.Advance(claimed)
	if look.whole {
		q.pace.apart = false
		q.planWholeLocked(took)
	}
	if len(claimed) >= look.asked {
		q.pace.more = true
		return
	}
	if look.news == q.pace.news {
		q.pace.more, q.pace.awaited = false, false
	}
	if look.whole {
		q.tellLocked(look.word)
	} else {
		q.pace.awaited = true
	}
}

// planWholeLocked decides when to look at the whole line again, after a look that
// took so long: the sooner the less it costs, and at once in effect but for long
// lines of dead entries.
func (q *queue) planWholeLocked(took time.Duration) {
	q.pace.wholeAt = sinceBoot() + min(took*wholeLineShare, q.worker.config.PollInterval)
}

// claimFailed makes the queue claim again: another claim may have passed by what
// the one that failed had locked. After one that took too long, the next has a round trip
// of its own, and the whole line waits as after any long look.
func (q *queue) claimFailed(look look, took time.Duration, tooLong bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.pace.hasNews()
	if tooLong {
		q.pace.apart = true
	}
	switch {
	case look.whole && tooLong:
		q.planWholeLocked(took)
	case look.whole:
		q.pace.wholeAt = 0
	}
}
