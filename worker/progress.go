package worker

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/worker/internal/clock"
	"github.com/jobq-dev/jobq/worker/internal/excerpt"
)

// Progress says how far the run is: percent from 0 to 100, and where it is in
// words. It returns at once; the latest word is stored within about a second.
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
	if percent != nil && *percent == *percent { // a share of nothing is not a number, and says nothing
		bounded := min(max(*percent, 0), 100)
		params.Percent = &bounded
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.progress != nil { // not stored yet
		complete(params, r.progress)
	}
	r.progress = params
}

// putBackProgress keeps a report that could not be stored for the next try.
func (r *Run) putBackProgress(report *db.RunProgressParams) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.progress == nil {
		r.progress = report
		return
	}
	complete(r.progress, report)
}

// complete takes from an earlier report what a later one does not say.
func complete(later, earlier *db.RunProgressParams) {
	if later.Percent == nil {
		later.Percent = earlier.Percent
	}
	if later.Stage == nil {
		later.Stage = earlier.Stage
	}
	if later.Message == nil {
		later.Message = earlier.Message
	}
}

// takeProgress returns progress that is not stored yet, once.
func (r *Run) takeProgress() *db.RunProgressParams {
	r.mu.Lock()
	defer r.mu.Unlock()
	progress := r.progress
	r.progress = nil
	if r.over {
		return nil
	}
	r.reported = r.reported || progress != nil
	return progress
}

func (r *Run) hasProgress() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.progress != nil
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
	return slices.ContainsFunc(k.running(), func(run *Run) bool { return run.hasProgress() })
}

// flushProgress stores what handlers have reported since the last call. What the
// database could not take now is kept for the next call: where a report is what
// extends the lease, nothing else might. One that it refuses costs only itself.
func (k *keeper) flushProgress(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, killMarginMax)
	defer cancel()
	var reports []progressReport
	extended := make(map[*lease]bool)
	for _, run := range k.running() {
		if report := run.takeProgress(); report != nil {
			k.worker.digests.progressed(run, report)
			settings := run.lease.queue.settings()
			report.ExtendBy = pgtype.Interval{}
			if !extended[run.lease] { // once for all its jobs
				report.ExtendBy = db.IntervalOrNull(settings.progressExtends())
				extended[run.lease] = true
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

// progressReport is what a run has reported, and the settings that its lease is
// extended with.
type progressReport struct {
	run      *Run
	params   *db.RunProgressParams
	settings queueSettings
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
				report.run.putBackProgress(report.params)
			}
		}
		return err
	}
	k.mu.Lock() // committed by now
	defer k.mu.Unlock()
	for i, report := range reports {
		lease := report.run.lease
		switch {
		case k.held[report.run.row.ID] != report.run: // the run has ended meanwhile, and with it the row
		case !stored[i]: // lost, or its row is in another transaction's hands: the extension tells
			report.run.putBackProgress(report.params)
			lease.extendAt = min(lease.extendAt, sent+report.settings.busyRetry())
		case report.params.ExtendBy.Valid:
			lease.extendedLocked(sent, report.settings)
		}
	}
	return nil
}

// tickerExtends is the lease that the worker's ticker gives, 0 if it only asks.
func (s queueSettings) tickerExtends() time.Duration {
	if s.heartbeat == jobq.HeartbeatTicker || s.heartbeat == jobq.HeartbeatBoth {
		return s.lease
	}
	return 0
}

// busyRetry is after how long a lease is asked after again whose row another
// transaction has locked.
func (s queueSettings) busyRetry() time.Duration { return min(s.extendEvery/4, time.Second) }

// progressExtends is the lease that a report of progress gives, 0 if none.
func (s queueSettings) progressExtends() time.Duration {
	if s.heartbeat == jobq.HeartbeatProgress || s.heartbeat == jobq.HeartbeatBoth {
		return s.lease
	}
	return 0
}
