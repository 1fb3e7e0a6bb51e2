package worker

import (
	"maps"
	"math"
	"time"

	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/worker/internal/clock"
)

// pace is what the queue knows about the flow of jobs.
type pace struct {
	more   bool    // the last claim was filled, or there is news since it was sent
	news   int     // how often something has happened that a claim has to come after
	rate   float64 // runs ended per second, of late
	lastAt time.Duration
	byTx   int // runs ended since then whose own transactions have completed their jobs
	// back says when claims look behind the bound; awaited that there is a reason
	// to be there in time, and behind that jobs are known to be where nobody looks
	// before.
	back    lookBack
	awaited bool
	behind  bool
	// apart says that claims have a round trip of their own, because one took too
	// long; until a look at the whole line has gone well.
	apart bool
}

// look is a claim under way: what it asks for, and what was known when it was sent.
type look struct {
	asked int  // jobs
	back  bool // behind the bound, as far as long says
	long  int
	from  db.Line // where it begins, when it looks back, and the bound
	line  db.Line
	word  string // of new jobs, the last that was heard
	// partial: not of all kinds, since the handlers of some are away
	partial bool
	news    int
}

// isWhole says whether it is a look at the whole line.
func (l look) isWhole() bool { return l.back && l.long == wholeLine }

// observe takes into account that runs have ended. The average forgets with
// time and not with calls: two ends in quick succession are not a high rate. What
// was given back before it began is no run, and what is sent again was one before.
func (p *pace) observe(results []result) {
	now, ended := clock.SinceBoot(), p.byTx
	p.byTx = 0
	for _, r := range results {
		if !r.retried && (r.completion != nil || r.ending != nil && r.ending.Started) {
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

// aim makes a claim look beyond what was claimed before or, when it is time,
// behind that as well.
func (q *queue) aim(claim *db.JobClaimParams) look {
	q.mu.Lock()
	defer q.mu.Unlock()
	look := look{asked: int(claim.JobCount), word: q.words.last, news: q.pace.news}
	now := clock.SinceBoot()
	look.long, look.back = q.pace.back.due(now, q.line)
	if q.pace.behind && now >= q.pace.back.againAt {
		look.long, look.back = wholeLine, true
	}
	if !look.back {
		q.line.Rest(claim)
		return look
	}
	if look.isWhole() {
		q.pace.behind = false
	}
	q.pace.back.flying++
	look.from, look.line = q.pace.back.reaches[look.long].from, maps.Clone(q.line)
	look.from.Rest(claim)
	return look
}

// claimsApart says whether results are not to wait for the next claim.
func (q *queue) claimsApart() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.pace.apart
}

// nextLook is when a look back is due, by clock.SinceBoot.
func (p *pace) nextLook(line db.Line) time.Duration {
	next := p.back.next(line)
	if p.behind {
		next = min(next, p.back.againAt)
	}
	return next
}

// lookAgain makes the next claim look at the whole line after all, also when one
// that does so is under way: it may have looked too early. After one that took
// long, it is the next claim after a while.
func (q *queue) lookAgain() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.pace.behind = true
	q.pace.news++
}

// observeClaim decides when to claim next. A claim of the whole line that found
// less than it asked for leaves nothing; another may have left what came late,
// which the next look back finds. Neither speaks of what there was news of since
// it was sent.
func (q *queue) observeClaim(claimed []db.JobClaimRow, look look, took time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.line.Advance(claimed)
	if look.isWhole() {
		q.pace.apart = false
	}
	filled := len(claimed) >= look.asked
	switch {
	case look.back && filled:
		covered := look.line.Covered(look.from, claimed)
		q.pace.back.done(clock.SinceBoot(), look.long, covered, took)
		if !maps.Equal(covered, look.line) {
			q.pace.back.goOn(covered)
		}
	case look.back:
		q.pace.back.done(clock.SinceBoot(), look.long, look.line, took)
	}
	if filled {
		q.pace.more = true
		return
	}
	if look.news == q.pace.news {
		q.pace.more, q.pace.awaited = false, false
	}
	switch {
	case !look.isWhole():
		q.pace.awaited = true
	case !look.partial:
		q.tellLocked(look.word)
	}
}

// claimFailed makes the queue claim again: another claim may have passed by what
// the one that failed had locked. After one that took too long, the next has a
// round trip of its own.
func (q *queue) claimFailed(look look, took time.Duration, tooLong bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.pace.hasNews()
	if tooLong {
		q.pace.apart = true
	}
	if look.back {
		q.pace.back.failed(clock.SinceBoot(), look.long, took, tooLong)
	}
}
