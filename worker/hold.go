package worker

import (
	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/printable"
)

// A worker whose host an operator holds (operator.HoldHost) claims nothing. Its first heartbeat comes before its first claim, so
// one that starts on such a host claims nothing at all. What it runs goes on. What it has claimed and not begun goes back, without
// an attempt.

// isHeld says whether somebody holds the host, as the last heartbeat has found it.
func (w *Worker) isHeld() bool { return w.hold.Load() != nil }

// obeyHold begins or ends a hold as a heartbeat has found it.
func (w *Worker) obeyHold(row db.WorkerBeatRow) {
	if row.HostHeld == w.isHeld() {
		return
	}
	if !row.HostHeld {
		w.hold.Store(nil)
		w.log.Info("the host is released, jobs are claimed again")
		w.wakeQueues()
		return
	}
	w.hold.Store(&row.HoldReason)
	w.log.Info("an operator holds the host, no jobs are claimed until it is released", "reason", printable.FirstLine(row.HoldReason))
	for _, q := range w.queues {
		for _, each := range q.all() {
			signal(each.wake) // it releases what has not begun
		}
	}
	signal(w.beatSoon) // the worker's row is to say that it has no room
}
