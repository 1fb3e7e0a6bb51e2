package monitor

import (
	"context"
	"fmt"
	"time"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/dberror"
)

// QueueStats sums up the jobs of a queue that ended within a duration.
type QueueStats struct {
	Queue     string        `json:"queue"`
	Completed int64         `json:"completed"`
	Failed    int64         `json:"failed"`  // for good
	Retried   int64         `json:"retried"` // runs that ended badly and were followed by another
	Lost      int64         `json:"lost"`    // runs whose lease expired, counted under failed or retried too; not of jobs that were to be cancelled
	Cancelled int64         `json:"cancelled"`
	RunTime   time.Duration `json:"run_time_ns"`  // of all runs together, but for lost and cancelled ones
	WaitTime  time.Duration `json:"wait_time_ns"` // of all completed jobs together, from run_at to the start
}

// Runs counts the runs that RunTime is to be divided by. How long a lost run
// took, nobody knows.
func (s QueueStats) Runs() int64 { return max(s.Completed+s.Failed+s.Retried-s.Lost, 0) }

// Bounds of a span to look back.
const (
	spanMin        = time.Minute
	statsSpanMax   = 10 * 365 * 24 * time.Hour
	minutesSpanMax = 7 * 24 * time.Hour
)

// checkSpan refuses a span that has no minute in it, or too many.
func checkSpan(operation string, span, longest time.Duration) error {
	if span < spanMin || span > longest {
		return fmt.Errorf("%s: %w: span must be %s to %s, not %s", operation, jobq.ErrInvalid, spanMin, longest, span)
	}
	return nil
}

// Stats returns what ended within the last span, 1 minute to 3,650 days, by queue. It
// reads sums per minute, never jobs, and so rounds the span to minutes.
func (m *Monitor) Stats(ctx context.Context, span time.Duration) ([]QueueStats, error) {
	if err := checkSpan("stats", span, statsSpanMax); err != nil {
		return nil, err
	}
	rows, err := m.queries.StatsByQueue(ctx, db.Interval(span))
	if err != nil {
		return nil, dberror.Wrap(m.schema, "stats", err)
	}
	stats := make([]QueueStats, len(rows))
	for i, row := range rows {
		stats[i] = QueueStats{
			Queue: row.Queue, Completed: row.Completed, Failed: row.Failed, Retried: row.Retried, Lost: row.Lost,
			Cancelled: row.Cancelled, RunTime: db.Seconds(row.RunSeconds), WaitTime: db.Seconds(row.WaitSeconds),
		}
	}
	return stats, nil
}

// Minute sums up the jobs of a queue that ended within a minute.
type Minute struct {
	At time.Time `json:"at"`
	QueueStats
}

// Minutes returns what ended within the last span, 1 minute to 7 days, by minute and
// queue. It reads sums, never jobs.
func (m *Monitor) Minutes(ctx context.Context, span time.Duration) ([]Minute, error) {
	if err := checkSpan("stats by minute", span, minutesSpanMax); err != nil {
		return nil, err
	}
	rows, err := m.queries.StatsByMinute(ctx, db.Interval(span))
	if err != nil {
		return nil, dberror.Wrap(m.schema, "stats by minute", err)
	}
	minutes := make([]Minute, len(rows))
	for i, row := range rows {
		minutes[i] = Minute{db.Moment(row.Minute), QueueStats{
			Queue: row.Queue, Completed: row.Completed, Failed: row.Failed, Retried: row.Retried, Lost: row.Lost,
			Cancelled: row.Cancelled, RunTime: db.Seconds(row.RunSeconds), WaitTime: db.Seconds(row.WaitSeconds),
		}}
	}
	return minutes, nil
}

// KindMinute sums up the jobs of a kind, in all queues, that ended within a minute.
type KindMinute struct {
	At        time.Time `json:"at"`
	Kind      string    `json:"kind"`
	Completed int64     `json:"completed"`
	Failed    int64     `json:"failed"`  // for good
	Retried   int64     `json:"retried"` // runs that ended badly and were followed by another
	Lost      int64     `json:"lost"`    // as in QueueStats
	Cancelled int64     `json:"cancelled"`
}

// KindMinutes returns what ended within the last span, 1 minute to 7 days, by minute and
// kind. It reads sums, never jobs.
func (m *Monitor) KindMinutes(ctx context.Context, span time.Duration) ([]KindMinute, error) {
	if err := checkSpan("stats by kind", span, minutesSpanMax); err != nil {
		return nil, err
	}
	rows, err := m.queries.StatsByKindMinute(ctx, db.Interval(span))
	if err != nil {
		return nil, dberror.Wrap(m.schema, "stats by kind", err)
	}
	minutes := make([]KindMinute, len(rows))
	for i, row := range rows {
		minutes[i] = KindMinute{
			At: db.Moment(row.Minute), Kind: row.Kind, Completed: row.Completed, Failed: row.Failed, Retried: row.Retried,
			Lost: row.Lost, Cancelled: row.Cancelled,
		}
	}
	return minutes, nil
}

// Added is how many jobs were added since the tables were made. It counts the ids that were drawn, and
// so those of transactions that rolled back, and of duplicates, too.
func (m *Monitor) Added(ctx context.Context) (int64, error) {
	added, err := m.queries.JobsAdded(ctx)
	if err != nil {
		return 0, dberror.Wrap(m.schema, "count of added jobs", err)
	}
	return added, nil
}
