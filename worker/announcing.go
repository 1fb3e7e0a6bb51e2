package worker

import (
	"context"
	"sync"
	"time"

	"github.com/jobq-dev/jobq/worker/internal/clock"
)

// announcing is an announcement under way, in a goroutine of its own. The database may be slow to answer it, such as when the
// network loses packets on its connection: results are stored and jobs claimed meanwhile. It belongs to the goroutine of
// queue.run.
type announcing struct {
	underWay chan announced // nil while there is none
	last     announced      // the answer to the last one
	calls    sync.WaitGroup
}

// announced is what an Announcer has answered.
type announced struct {
	round int
	retry time.Duration // when to announce again after a failure, by clock.SinceBoot; 0: it did not fail
}

// announce announces that the queue waits, unless an earlier announcement still holds. It returns the round of the last answer,
// and after how long to call it again. While a call is under way, its answer comes by underWay: call announce then.
func (a *announcing) announce(ctx context.Context, q *queue) (round int, next time.Duration) {
	if retry := a.last.retry; retry > clock.SinceBoot() {
		return a.last.round, retry - clock.SinceBoot()
	}
	if a.underWay == nil {
		if round, next, ok := q.announcer.Standing(); ok {
			a.last.round = round
			return round, next
		}
		answer := make(chan announced, 1)
		a.underWay = answer
		a.calls.Go(func() {
			round, next, err := q.announcer.Announce(ctx, q.worker.queries)
			if err == nil { // when the next is due may have changed until the answer is read
				answer <- announced{round: round}
				return
			}
			if ctx.Err() == nil {
				q.worker.databaseTrouble(err)
			}
			answer <- announced{round: round, retry: clock.SinceBoot() + next}
		})
	}
	return a.last.round, clock.Never
}
