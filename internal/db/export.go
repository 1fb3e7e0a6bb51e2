package db

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// Pages of an export. A job may have some MiB, an attempt 128 KiB.
const (
	exportJobsPage     = 100
	exportAttemptsPage = 500
)

// Date is a day as an argument: the date that the time has where it is.
func Date(day time.Time) pgtype.Date { return pgtype.Date{Time: day, Valid: true} }

// DatePointer is likewise, null for nil.
func DatePointer(day *time.Time) pgtype.Date {
	if day == nil {
		return pgtype.Date{}
	}
	return Date(*day)
}

// JobsOfDay is a page of the jobs of a day, after the one with that id: see ExportJobs. It is
// empty when there are no more.
func (s *Schema) JobsOfDay(ctx context.Context, conn Batcher, day time.Time, after int64) (jobs []ExportJobsRow, err error) {
	batch := &pgx.Batch{}
	batch.Queue(PrunedSettings)
	s.Queue(batch, func(q *Queries) { _, _ = q.ExportJobs(ctx, Date(day), after, exportJobsPage) }).Query(func(rows pgx.Rows) (err error) {
		jobs, err = pgx.CollectRows(oddRow{rows}, pgx.RowToStructByPos[ExportJobsRow])
		return err
	})
	return jobs, conn.SendBatch(ctx, batch).Close()
}

// AttemptPlace is a place in the order of the attempts of a day. The zero value is the start.
type AttemptPlace struct {
	JobID, LeaseToken int64
	FinishedAt        time.Time
}

// AttemptsOfDay is a page of the recorded runs of a day, after the place: see
// ExportAttempts. It is empty when there are no more.
func (s *Schema) AttemptsOfDay(ctx context.Context, conn Batcher, day time.Time, after AttemptPlace) (attempts []ExportAttemptsRow, err error) {
	params := ExportAttemptsParams{
		Day: Date(day), AfterJob: after.JobID, AfterLease: after.LeaseToken, AfterEnd: DueFrom(after.FinishedAt), RowCount: exportAttemptsPage,
	}
	batch := &pgx.Batch{}
	batch.Queue(PrunedSettings)
	s.Queue(batch, func(q *Queries) { _, _ = q.ExportAttempts(ctx, params) }).Query(func(rows pgx.Rows) (err error) {
		attempts, err = pgx.CollectRows(oddRow{rows}, pgx.RowToStructByPos[ExportAttemptsRow])
		return err
	})
	return attempts, conn.SendBatch(ctx, batch).Close()
}
