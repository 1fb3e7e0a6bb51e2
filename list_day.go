package jobq

import (
	"context"
	"time"

	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/dberror"
)

// JobsOfDay returns a page of the jobs of one day of the history, whole and in the order of
// their ids: those that were claimed on that day (UTC), or cancelled on it before that, and
// have not been claimed again since. It begins after the job with the given id; 0 for the
// first page. The page after the last one is empty.
//
// Retention drops the history by these days. "jobq export" writes them to files.
func (c *Client) JobsOfDay(ctx context.Context, day time.Time, after int64) ([]*Job, error) {
	operation := "jobs of " + day.Format(time.DateOnly)
	rows, err := dberror.Retry(ctx, func() ([]db.ExportJobsRow, error) { return c.schema.JobsOfDay(ctx, c.pool, day, after) })
	if err != nil {
		return nil, dberror.Wrap(c.schema, operation, dberror.NeedRole(db.RoleViewer, err))
	}
	jobs := make([]*Job, len(rows))
	for i, row := range rows {
		jobs[i] = jobFromRow(db.JobGetRow(row))
	}
	return jobs, nil
}
