package worker

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/db"
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
	params := &db.JobProgressParams{
		ID: r.row.ID, Token: r.row.LeaseToken, Owner: r.worker.id,
		Stage: storableOrNull(stage, 128), Message: storableOrNull(message, 1024),
	}
	r.signs.Add(1)
	if percent != nil {
		bounded := min(max(*percent, 0), 100)
		params.Percent = &bounded
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if earlier := r.progress; earlier != nil { // not stored yet
		if params.Percent == nil {
			params.Percent = earlier.Percent
		}
		if params.Stage == nil {
			params.Stage = earlier.Stage
		}
		if params.Message == nil {
			params.Message = earlier.Message
		}
	}
	r.progress = params
}

// takeProgress returns progress that is not stored yet, once.
func (r *Run) takeProgress() *db.JobProgressParams {
	r.mu.Lock()
	defer r.mu.Unlock()
	progress := r.progress
	r.progress = nil
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
	text = storable(text, limit)
	return &text
}

// hasProgress says whether a handler has reported anything that is not stored.
func (k *keeper) hasProgress() bool {
	return slices.ContainsFunc(k.running(), func(run *Run) bool { return run.hasProgress() })
}

// flushProgress stores what handlers have reported since the last call, and
// gives up the leases that turn out to be lost. A report that cannot be stored
// is dropped: the next one says more.
func (k *keeper) flushProgress(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, killMarginMax)
	defer cancel()
	batch := &pgx.Batch{}
	sent := sinceBoot()
	var lost, extended []extension
	for _, run := range k.running() {
		report := run.takeProgress()
		if report == nil {
			continue
		}
		k.worker.digests.progressed(run, report)
		l := extension{&run.lease, run.lease.queue.settings()}
		report.ExtendBy = db.IntervalOrNull(l.settings.progressExtends())
		k.worker.schema.Queue(batch, func(q *db.Queries) { _, _ = q.JobProgress(ctx, *report) }).Exec(func(tag pgconn.CommandTag) error {
			if tag.RowsAffected() == 0 {
				lost = append(lost, l)
			} else if l.settings.progressExtends() > 0 {
				extended = append(extended, l)
			}
			return nil
		})
	}
	if batch.Len() == 0 {
		return
	}
	if err := k.worker.pool.SendBatch(ctx, batch).Close(); err != nil {
		k.worker.databaseTrouble(err)
		return
	}
	k.mu.Lock() // committed by now
	defer k.mu.Unlock()
	for _, l := range lost {
		if k.held[l.id] == l.lease { // else the run has ended meanwhile, and with it the row
			k.loseLocked(l.lease)
		}
	}
	for _, l := range extended {
		l.extendedLocked(sent, l.settings)
	}
}

// tickerExtends is the lease that the worker's ticker gives, 0 if it only asks.
func (s queueSettings) tickerExtends() time.Duration {
	if s.heartbeat == jobq.HeartbeatTicker || s.heartbeat == jobq.HeartbeatBoth {
		return s.lease
	}
	return 0
}

// progressExtends is the lease that a report of progress gives, 0 if none.
func (s queueSettings) progressExtends() time.Duration {
	if s.heartbeat == jobq.HeartbeatProgress || s.heartbeat == jobq.HeartbeatBoth {
		return s.lease
	}
	return 0
}
