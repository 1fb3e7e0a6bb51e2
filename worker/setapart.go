package worker

import (
	"context"
	"math"
	"time"

	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/mutant"
	"github.com/jobq-dev/jobq/internal/printable"
)

const (
	// apartPage is how many jobs one statement looks at for those that no claim can read, and apartPages how many
	// statements there are after one failed claim.
	apartPage, apartPages = 500, 20
	apartTimeout          = 2 * time.Minute // it may wait a minute for a lock
)

// apart is what a queue does about jobs that no claim can read.
type apart struct {
	failures chan error                   // of claims that may have met one
	after    *db.UnreadableSetApartParams // where the next look goes on; nil: at the head. Of setApart's goroutine
}

// look asks for a look, because a claim has failed with err. While one is under way, the next one is enough for all.
func (a *apart) look(err error) {
	select {
	case a.failures <- err:
	default:
	}
}

// setApart looks for jobs of the queue that no claim can read, after claims that have failed, and fails them for good:
// each claim would meet them again, and take none of the others. It works beside the round trips, which must not wait:
// claims of other workers may have locked such a job, one after the other, each until the server has made a gigabyte of
// its text. A worker's queues take turns, so that looks use one connection.
func (q *queue) setApart(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case err := <-q.apart.failures:
			if mutant.SetsApart() {
				q.worker.apartTurn.Lock()
				q.setSomeApart(ctx, err)
				q.worker.apartTurn.Unlock()
			}
		}
	}
}

// setSomeApart looks once, after a claim that has failed with err. The first page has the head of the line, where claims
// look. If there is none in apartPages pages, the next look goes on from there. After a claim that took too long it is one
// page: mostly the database is slow then, or gone.
func (q *queue) setSomeApart(ctx context.Context, err error) {
	ctx, cancel := context.WithTimeout(ctx, apartTimeout)
	defer cancel()
	pages := apartPages
	if db.IsTimeout(err) {
		pages = 1
	}
	after := q.apart.after
	for range pages {
		if after == nil {
			after = &db.UnreadableSetApartParams{Queue: q.name, AfterPriority: math.MinInt32, JobCount: apartPage}
		}
		page, pageErr := q.worker.queries.UnreadableSetApart(ctx, *after)
		if pageErr != nil {
			if ctx.Err() == nil { // else the claim's own failure has been reported
				q.worker.databaseTrouble(pageErr)
			}
			return
		}
		after.AfterKey, after.AfterPriority, after.AfterPlace = page.Key, page.Priority, page.Place
		for i, id := range page.Ids {
			q.worker.log.Warn("job cannot be read, it has failed for good", "job_id", id, "queue", q.name,
				"error", printable.FirstLine(page.Problems[i]), "claim_error", printable.FirstLine(err.Error()))
		}
		if page.AtEnd {
			after = nil
		}
		if len(page.Ids) > 0 {
			q.apart.after = nil
			q.lookAgain()
			return
		}
		if page.AtEnd {
			break
		}
	}
	q.apart.after = after
}
