package filter

import (
	"time"

	"github.com/jobq-dev/jobq/internal/db"
)

// Page is the first page, newest first, of the jobs that the query matches. Ages
// count from the moment; the zero time is that of the statement.
func (q Query) Page(now time.Time) db.JobPage {
	page := db.JobPage{States: q.States(), Sort: db.SortID, Now: now}
	page.EndedWithin, page.EndedBefore = q.Ages()
	page.Condition = func(stage db.Stage, first int) (string, []any) {
		return q.Condition(Columns{
			ID: stage.ID, Queue: stage.Queue, Since: stage.Since, Worker: stage.Worker, Args: stage.Args, Scheduled: stage.Scheduled, Now: now,
			Unfinished: stage.Finished == "",
		}, first)
	}
	return page
}
