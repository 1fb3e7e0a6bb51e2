package monitor

import (
	"context"
	"fmt"
	"time"

	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/dberror"
)

// DayAttempt is a recorded run of some job.
type DayAttempt struct {
	JobID int64 `json:"job_id"`
	Attempt
}

// AttemptsOfDay returns a page of the recorded runs that ended on a day (UTC), in the order
// of job, lease and end. It begins after the given one; nil for the first page. The page
// after the last one is empty.
func (m *Monitor) AttemptsOfDay(ctx context.Context, day time.Time, after *DayAttempt) ([]DayAttempt, error) {
	operation := "attempts of " + day.Format(time.DateOnly)
	var place db.AttemptPlace
	if after != nil {
		place = db.AttemptPlace{JobID: after.JobID, LeaseToken: after.LeaseToken, FinishedAt: after.FinishedAt}
	}
	rows, err := dberror.Retry(ctx, func() ([]db.ExportAttemptsRow, error) { return m.schema.AttemptsOfDay(ctx, m.pool, day, place) })
	if err != nil {
		return nil, dberror.Wrap(m.schema, operation, err)
	}
	attempts := make([]DayAttempt, len(rows))
	for i, row := range rows {
		attempt, err := attemptOf(db.AttemptListRow{
			LeaseToken: row.LeaseToken, Number: row.Number, Outcome: row.Outcome, WorkerID: row.WorkerID, StartedAt: row.StartedAt,
			FinishedAt: row.FinishedAt, Error: row.Error, Output: row.Output, Usage: row.Usage,
		})
		if err != nil {
			return nil, fmt.Errorf("%s: job %d: %w", operation, row.JobID, err)
		}
		attempts[i] = DayAttempt{JobID: row.JobID, Attempt: attempt}
	}
	return attempts, nil
}

// ExportState is how far the history has been exported.
type ExportState struct {
	// Next is the day (UTC) that is to be exported next: all before it were, or have nothing.
	Next time.Time
	// Open is the first day that cannot be exported yet, since it is not over for ten minutes.
	Open time.Time
	// Begun is the day of the export that has begun last, and BeganAt when it did. Nil when
	// there is none, or it does not count any more: see Operator.BeginExport.
	Begun, BeganAt *time.Time
}

// Export returns how far the history has been exported.
func (m *Monitor) Export(ctx context.Context) (ExportState, error) {
	row, err := m.queries.ExportNext(ctx)
	if err != nil {
		return ExportState{}, dberror.Wrap(m.schema, "look what to export", err)
	}
	state := ExportState{Next: row.Day.Time, Open: row.OpenDay.Time}
	if row.BegunDay.Valid && row.BeganAt != nil {
		state.Begun, state.BeganAt = &row.BegunDay.Time, db.UTC(row.BeganAt)
	}
	return state, nil
}
