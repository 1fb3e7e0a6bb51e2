package worker

import (
	"log/slog"
	"sync/atomic"

	"github.com/jobq-dev/jobq"
)

// counts are totals since the start.
type counts struct {
	claimed, completed, failed, released, snoozed, unreadable, cancelled, lost atomic.Int64
}

func (c *counts) ended(outcome string) {
	switch jobq.Outcome(outcome) {
	case jobq.OutcomeReleased:
		c.released.Add(1)
	case jobq.OutcomeSnoozed:
		c.snoozed.Add(1)
	case jobq.OutcomeUnreadable:
		c.unreadable.Add(1)
	case jobq.OutcomeCancelled:
		c.cancelled.Add(1)
	default:
		c.failed.Add(1)
	}
}

// Counts are what a worker has done since it started, in runs.
type Counts struct {
	Claimed   int64 `json:"claimed"`
	Completed int64 `json:"completed"`
	Failed    int64 `json:"failed"` // runs that count as an attempt
	Released  int64 `json:"released"`
	Snoozed   int64 `json:"snoozed"`
	// Unreadable are runs of jobs that could not be decoded: they count as no attempt.
	Unreadable int64 `json:"unreadable"`
	Cancelled  int64 `json:"cancelled"`
	Lost       int64 `json:"lost"` // their lease was lost: nothing of them is stored
}

// Counts returns the totals so far.
func (w *Worker) Counts() Counts {
	return Counts{
		Claimed: w.counts.claimed.Load(), Completed: w.counts.completed.Load(), Failed: w.counts.failed.Load(),
		Released: w.counts.released.Load(), Snoozed: w.counts.snoozed.Load(), Unreadable: w.counts.unreadable.Load(), Cancelled: w.counts.cancelled.Load(),
		Lost: w.counts.lost.Load(),
	}
}

// LogValue shows the totals in one group.
func (c Counts) LogValue() slog.Value {
	return slog.GroupValue(slog.Int64("claimed", c.Claimed), slog.Int64("completed", c.Completed),
		slog.Int64("failed", c.Failed), slog.Int64("released", c.Released), slog.Int64("snoozed", c.Snoozed),
		slog.Int64("unreadable", c.Unreadable),
		slog.Int64("cancelled", c.Cancelled), slog.Int64("lost", c.Lost))
}
