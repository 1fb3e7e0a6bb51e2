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
	apartTimeout          = time.Minute
)

// setApart looks for jobs of the queue that no claim can read, after one has failed with err, and fails them for good:
// each claim would meet them again, and take none of the others. It says whether it has found some. The first page has
// the head of the line, where claims look. If there is none in apartPages pages, the next call goes on from there.
func (q *queue) setApart(ctx context.Context, err error) bool {
	if !mutant.SetsApart() {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, apartTimeout)
	defer cancel()
	q.apartMu.Lock()
	defer q.apartMu.Unlock()
	after := q.apartAfter
	for range apartPages {
		if after == nil {
			after = &db.UnreadableSetApartParams{Queue: q.name, AfterPriority: math.MinInt32, JobCount: apartPage}
		}
		page, pageErr := q.worker.queries.UnreadableSetApart(ctx, *after)
		if pageErr != nil {
			q.worker.databaseTrouble(pageErr)
			return false
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
			q.apartAfter = nil
			q.lookAgain()
			return true
		}
		if page.AtEnd {
			break
		}
	}
	q.apartAfter = after
	return false
}
