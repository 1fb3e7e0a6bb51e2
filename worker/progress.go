package worker

import (
	"context"
	"errors"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/worker/internal/clock"
	"github.com/jobq-dev/jobq/worker/internal/excerpt"
	"github.com/jobq-dev/jobq/worker/internal/leases"
)

// Progress says how far the run is: percent from 0 to 100, and where it is in
// words. It returns at once; the latest report is stored within about a second.
// An empty stage or message keeps the one before. Where the queue's heartbeat
// is progress, this is what extends the lease.
func (r *Run) Progress(percent float32, stage, message string) {
	r.reportProgress(&percent, stage, message)
}

// Heartbeat says that the run goes on, without saying how far it is. It is
// only of use where the queue's heartbeat is progress.
func (r *Run) Heartbeat() { r.reportProgress(nil, "", "") }

// reportProgress is Progress in which nil keeps the percentage before.
func (r *Run) reportProgress(percent *float32, stage, message string) {
	params := &db.RunProgressParams{
		ID: r.row.ID, Token: r.row.LeaseToken, Owner: r.worker.id, ClaimedAt: r.row.StartedAt,
		Stage: storableOrNull(stage, 128), Message: storableOrNull(message, 1024),
	}
	r.signs.Add(1)
	if percent != nil && *percent == *percent { // NaN, such as 0 of 0 rows, is ignored
		bounded := min(max(*percent, 0), 100)
		params.Percent = &bounded
	}
	r.reports.progressed(params)
}

func storableOrNull(text string, limit int) *string {
	if text == "" {
		return nil
	}
	text = excerpt.Storable(text, limit)
	return &text
}

// hasProgress says whether a handler has reported anything that is not stored.
func (k *keeper) hasProgress() bool {
	return slices.ContainsFunc(k.held.Running(), func(run *Run) bool { return run.reports.hasProgress() })
}

// flushProgress stores what handlers have reported since the last call. A report that the
// database could not store now is kept for the next call, since nothing else may extend
// the lease. If the database refuses the value of one report, only that report is lost.
func (k *keeper) flushProgress(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	var reports []progressReport
	extended := make(map[*leases.Lease]bool)
	for _, run := range k.held.Running() {
		if report := run.reports.takeProgress(); report != nil {
			k.worker.digests.Progressed(&run.row, report)
			settings, lease := run.queue.settings.Load(), run.hold.Lease()
			report.ExtendBy = pgtype.Interval{}
			if !extended[lease] { // once for all its jobs
				report.ExtendBy = db.IntervalOrNull(settings.ProgressExtends())
				extended[lease] = true
			}
			reports = append(reports, progressReport{run, report, settings})
		}
	}
	if len(reports) == 0 {
		return
	}
	err := k.storeProgress(ctx, reports)
	if db.IsRefusal(err) && len(reports) > 1 {
		for _, report := range reports {
			err = errors.Join(err, k.storeProgress(ctx, []progressReport{report}))
		}
	}
	if err != nil {
		k.worker.databaseTrouble(err)
	}
}

// progressReport is what a run has reported, and the settings by which the report extends
// its lease.
type progressReport struct {
	run      *Run
	params   *db.RunProgressParams
	settings leases.Settings
}

// storeProgress stores reports in one round trip, all or none.
func (k *keeper) storeProgress(ctx context.Context, reports []progressReport) error {
	batch := &pgx.Batch{}
	sent := clock.SinceBoot()
	stored := make([]bool, len(reports))
	for i, report := range reports {
		k.worker.schema.Queue(batch, func(q *db.Queries) { _, _ = q.RunProgress(ctx, *report.params) }).Exec(func(tag pgconn.CommandTag) error {
			stored[i] = tag.RowsAffected() > 0
			return nil
		})
	}
	if err := k.worker.pool.SendBatch(ctx, batch).Close(); err != nil {
		if !db.IsBadValue(err) {
			for _, report := range reports {
				report.run.reports.putBack(report.params)
			}
		}
		return err
	}
	for i, report := range reports { // committed by now
		switch {
		case stored[i] && report.params.ExtendBy.Valid:
			k.held.ExtendedBy(&report.run.hold, report.settings, sent)
		case stored[i]:
		case k.held.NotReported(&report.run.hold, report.settings, sent): // else the run has ended, and with it the row
			report.run.reports.putBack(report.params)
		}
	}
	return nil
}
