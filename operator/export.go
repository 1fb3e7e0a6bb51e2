package operator

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/dberror"
)

// BeginExport notes that an export of a day (UTC) of the history begins, and returns the
// time by which EndExport knows it. What has to be read comes after that:
// Client.JobsOfDay and Monitor.AttemptsOfDay. It refuses a day that is not over for ten
// minutes, and one of which jobs still run, with ErrConflict. It may be called again, for
// another try: the one before then does not count.
func (o *Operator) BeginExport(ctx context.Context, day time.Time) (beganAt time.Time, err error) {
	operation := "begin the export of " + day.Format(time.DateOnly)
	if err := o.checkTexts(operation); err != nil {
		return time.Time{}, err
	}
	began, err := dberror.Retry(ctx, func() (pgtype.Timestamptz, error) { return o.queries.ExportBegin(ctx, db.Date(day)) })
	return began.Time.UTC(), dberror.Wrap(o.schema, operation, err)
}

// Exported is an export of a day that has come to its end.
type Exported struct {
	Day     time.Time
	BeganAt time.Time // as BeginExport returned it
	Jobs    int64     // how many it has
	// Attempts are how many recorded runs it has.
	Attempts int64
}

// EndExport records that all of a day was exported, and stored where it is to stay: from
// then on, retention may drop the day. It returns the id of its entry in the audit.
// ErrConflict says that the export does not count: another has begun since, an undo has
// brought a job back into the day, or an earlier day was not exported.
func (o *Operator) EndExport(ctx context.Context, e Exported) (auditID int64, err error) {
	operation := "end the export of " + e.Day.Format(time.DateOnly)
	if err := o.checkTexts(operation); err != nil {
		return 0, err
	}
	auditID, err = o.queries.ExportEnd(ctx, db.ExportEndParams{
		Actor: o.actor, Day: db.Date(e.Day), BeganAt: db.Timestamp(e.BeganAt), Jobs: e.Jobs, Attempts: e.Attempts,
	})
	return auditID, dberror.Wrap(o.schema, operation, err)
}
