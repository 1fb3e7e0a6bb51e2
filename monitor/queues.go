package monitor

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/dberror"
)

// Queue is a queue with its settings and what waits and runs in it.
type Queue struct {
	Name string `json:"name"`
	// Available is counted up to AvailableMax: CountMax, and less with more than
	// ten queues. A count that has reached it means "at least as many".
	Available    int64 `json:"available"`
	AvailableMax int64 `json:"available_max"`
	// AvailableEstimate is about how many are available where the count has reached AvailableMax, by the
	// statistics of the planner, which are minutes old. It is 0 where that is not known: without
	// statistics, and for all but the first 50 such queues.
	AvailableEstimate int64 `json:"available_estimate,omitempty"`
	// Scheduled and Retrying count among the CountMax jobs of all queues that are due next,
	// Waiting among the CountMax oldest that wait for others, Failed and Cancelled among the
	// CountMax that ended last without success.
	Scheduled int64 `json:"scheduled"`
	Retrying  int64 `json:"retrying"` // those of the scheduled that have failed before
	Waiting   int64 `json:"waiting"`  // for other jobs
	Running   int64 `json:"running"`
	Claimed   int64 `json:"claimed"` // ahead: workers hold them, and they have not begun
	Slots     int64 `json:"slots"`   // of workers that live and do not drain
	Failed    int64 `json:"failed"`
	Cancelled int64 `json:"cancelled"`
	// HeadRunAt is since when the job could have run that has been available for longest. Jobs of
	// partition keys that are paused, or that a limit, a rate or an order holds, do not count. It is
	// nil if there is none. See docs/metrics-reference.md for how many keys and priorities are looked at.
	HeadRunAt *time.Time `json:"head_run_at,omitempty"`
	QueueSettings
	// ThrottledUntil is when the next job may start, if the rate keeps it from starting now.
	ThrottledUntil *time.Time `json:"throttled_until,omitempty"`

	PausedAt    *time.Time `json:"paused_at,omitempty"`
	PausedBy    string     `json:"paused_by,omitempty"`
	PauseReason string     `json:"pause_reason,omitempty"`
}

// Held is how many jobs of the queue workers hold: those that run, and those claimed ahead. MaxRunning
// bounds both together.
func (q *Queue) Held() int64 { return q.Running + q.Claimed }

// queueList reads the rows of Queues, without JIT compilation. With a million waiting jobs, the planner expects the statement
// to be so expensive that it compiles it. This took 1.9 s, and the statement itself 0.04 s. A migration waits for such a
// statement, and inserts wait for the migration.
func (m *Monitor) queueList(ctx context.Context) (rows []db.QueueListRow, estimates map[string]int64, err error) {
	err = pgx.BeginTxFunc(ctx, m.pool, pgx.TxOptions{AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "set local jit = off; set local max_parallel_workers_per_gather = 0"); err != nil {
			return err
		}
		rows, err = m.schema.Queries(tx).QueueList(ctx, jobq.CountMax)
		if err == nil {
			estimates, err = m.estimates(ctx, tx, rows)
		}
		return err
	})
	return rows, estimates, err
}

// estimatesMax is for how many queues it is estimated how many jobs are available: each costs a tenth
// of a millisecond.
const estimatesMax = 50

// estimates are about how many jobs are available in the queues that have more than were counted, by queue.
func (m *Monitor) estimates(ctx context.Context, tx pgx.Tx, rows []db.QueueListRow) (map[string]int64, error) {
	var names []string
	counts := make(map[string]int64)
	for _, row := range rows {
		if row.Available >= row.AvailableMax && len(names) < estimatesMax {
			names = append(names, row.Name)
			counts[row.Name] = row.Available
		}
	}
	estimates, err := m.schema.AvailableEstimate(ctx, tx, names)
	byQueue := make(map[string]int64, len(estimates))
	for i, estimate := range estimates {
		byQueue[names[i]] = max(estimate, counts[names[i]]) // so many there are
	}
	return byQueue, err
}

// Queues returns every queue that has a setting, a job that waits or runs, a worker, or one of
// the CountMax jobs that ended last without success: by name, at most 1000. It costs the same
// however many jobs there are.
func (m *Monitor) Queues(ctx context.Context) ([]Queue, error) {
	rows, estimates, err := m.queueList(ctx)
	if err != nil {
		return nil, dberror.Wrap(m.schema, "list queues", err)
	}
	queues := make([]Queue, len(rows))
	for i, row := range rows {
		queues[i] = Queue{
			Name: row.Name, Available: row.Available, AvailableMax: row.AvailableMax, AvailableEstimate: estimates[row.Name], Scheduled: row.Scheduled, Retrying: row.Retrying, Waiting: row.Waiting, Running: row.Running, Claimed: row.Claimed,
			Slots: row.Slots, Failed: row.Failed, Cancelled: row.Cancelled, HeadRunAt: db.TimeOrNil(row.HeadRunAt),
			QueueSettings: QueueSettings{
				Lease: db.Milliseconds(row.LeaseMs), ExtendEvery: db.Milliseconds(row.ExtendEveryMs), Heartbeat: jobq.Heartbeat(row.Heartbeat),
				StaleGrace: db.Milliseconds(row.StaleGraceMs), Redelivery: jobq.Redelivery(row.Redelivery),
				RedeliveryDelay: db.Milliseconds(row.RedeliveryDelayMs), ResetOnReap: row.ResetOnReap, MaxLost: int(row.MaxLost), AgeAfter: db.Milliseconds(row.AgeAfterMs),
				Retention: db.Milliseconds(row.RetentionMs), FailedRetention: db.Milliseconds(row.FailedRetentionMs),
				MaxRunning: int(row.MaxRunning), KeyLimit: int(row.KeyLimit), KeyOrder: jobq.KeyOrder(row.KeyOrder), KeySeparator: row.KeySeparator,
				Rate: rateOf(row.RateJobs, row.RatePeriodMs, row.RateBurst), KeyRate: rateOf(row.KeyRateJobs, row.KeyRatePeriodMs, row.KeyRateBurst),
			},
			ThrottledUntil: db.TimeOrNil(row.ThrottledUntil),
			PausedAt:       db.UTC(row.PausedAt), PausedBy: db.Text(row.PausedBy), PauseReason: db.Text(row.PauseReason),
		}
	}
	return queues, nil
}

// rateOf is a rate, nil for none.
func rateOf(jobs int32, periodMs int64, burst int32) *jobq.Rate {
	if jobs == 0 {
		return nil
	}
	return &jobq.Rate{Jobs: int(jobs), Period: db.Milliseconds(periodMs), Burst: int(burst)}
}

// QueueKnown says whether anything in the database names this queue: settings, a job
// that waits or runs, a worker that serves it, or a job that ended within the last 30
// days. If nothing does, the name may be misspelt. Of the scheduled jobs it looks at
// the 10,000 that are due next, and of those that wait for others at the 10,000 oldest.
// It is quick on a busy database too: it stops at the first sign, and each look is small.
func (m *Monitor) QueueKnown(ctx context.Context, name string) (bool, error) {
	known, err := m.queries.QueueKnown(ctx, name)
	if err != nil {
		return false, dberror.Wrap(m.schema, fmt.Sprintf("look for queue %q", name), err)
	}
	return known, nil
}

// QueueSettings are what every worker and janitor obeys for a queue.
type QueueSettings struct {
	// Lease is how long a worker may hold a job without a heartbeat: 1 second
	// to 30 days, 60 seconds by default.
	Lease time.Duration `json:"lease_ns"`
	// ExtendEvery is the time between two heartbeats: at most half of Lease, and
	// a third of it by default.
	ExtendEvery time.Duration `json:"extend_every_ns"`
	// Heartbeat is what extends a lease. Default jobq.HeartbeatTicker.
	Heartbeat jobq.Heartbeat `json:"heartbeat"`
	// StaleGrace is how long the janitor leaves a lease alone that has ended. Up
	// to 30 days; default 0.
	StaleGrace time.Duration `json:"stale_grace_ns"`
	// Redelivery is where a job goes whose lease was taken away. Default tail.
	Redelivery jobq.Redelivery `json:"redelivery"`
	// RedeliveryDelay is how long such a job waits first. It needs the tail. Up to
	// 30 days; default 0.
	RedeliveryDelay time.Duration `json:"redelivery_delay_ns"`
	// ResetOnReap makes the next run begin without the lost run's checkpoint.
	// Default false.
	ResetOnReap bool `json:"reset_on_reap"`
	// MaxLost is how many runs of a job may be lost, because their worker or its host is gone, without using
	// an attempt: 1 to 32767. One more fails the job for good. It is for jobs that have no MaxLost of their
	// own. Default 0: each lost run uses an attempt.
	MaxLost int `json:"max_lost,omitempty"`
	// AgeAfter is how long the first job of a priority waits before every tenth claim takes
	// jobs of that priority first, although there are more urgent ones. Up to 30 days;
	// 5 minutes by default; 0: such a claim is never made.
	AgeAfter time.Duration `json:"age_after_ns"`
	// Retention is how long finished jobs of the queue are kept: 1 day to 10 years. Default 0, as
	// long as Settings.FinishedRetention.
	Retention time.Duration `json:"retention_ns,omitempty"`
	// FailedRetention is how long those of them are kept that failed or were cancelled: 1 day to 10
	// years. Default 0: as long as Retention, or Settings.FailedRetention if that is 0 as well.
	FailedRetention time.Duration `json:"failed_retention_ns,omitempty"`
	// MaxRunning is how many jobs of the queue may run at once, over all workers: 1 to
	// 1,000,000. Default 0, as many as they have slots for.
	MaxRunning int `json:"max_running,omitempty"`
	// KeyLimit is how many jobs of each partition key of the queue may run at once, over all
	// workers: 1 to 10,000. Default 0, as many as of the queue.
	KeyLimit int `json:"key_limit,omitempty"`
	// KeyOrder is whether the jobs of each partition key run in order, one after the other, which
	// needs a KeyLimit of 1. Default jobq.KeyOrderNone.
	KeyOrder jobq.KeyOrder `json:"key_order,omitempty"`
	// KeySeparator is what ends the group of a partition key of the queue: acme/1 and acme/2 are of the
	// group acme where it is "/". Groups have equal shares of the queue. 1 to 8 characters; default "",
	// each key is a group.
	KeySeparator string `json:"key_separator,omitempty"`
	// Rate is how many jobs of the queue may start, over all workers, with its burst.
	// Default nil, as many as there are.
	Rate *jobq.Rate `json:"rate,omitempty"`
	// KeyRate is how many jobs of each partition key of the queue may start, over all workers, with
	// its burst. Default nil, as many as of the queue.
	KeyRate *jobq.Rate `json:"key_rate,omitempty"`
}

// Kept is how long finished jobs of the queue are kept, those that completed and those that
// failed or were cancelled, by its own settings and by those of all queues.
func (s *QueueSettings) Kept(all Settings) (completed, failed time.Duration) {
	completed = cmp.Or(s.Retention, all.FinishedRetention)
	return completed, cmp.Or(s.FailedRetention, s.Retention, all.FailedRetention, all.FinishedRetention)
}
