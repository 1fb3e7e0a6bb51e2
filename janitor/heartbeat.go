package janitor

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/sleep"
	"github.com/jobq-dev/jobq/sql/migrations"
)

const (
	// beatEvery is how often a janitor says that it lives: with a look at what is due, while it looks about that often.
	beatEvery = 10 * time.Second
	// beatLate is how much later it says so in a statement of its own, when no look has said so.
	beatLate = 2 * time.Second
)

// heartbeat is when the janitor last said that it lives, and what it was answered. For example:
//
//	 0 s  a look at what is due says that the janitor lives
//	 3 s  a job is due: the look then says nothing, since it is not beatEvery/2 later
//	10 s  a look says so again
//	22 s  no look has come since, as the database works off a million jobs: beat says so
type heartbeat struct {
	began  time.Time
	sentAt atomic.Int64  // nanoseconds after began; 0 for never
	newer  chan struct{} // of size 1; a signal that the tables may be too new
}

func newHeartbeat() heartbeat { return heartbeat{began: time.Now(), newer: make(chan struct{}, 1)} }

// isDue says whether a look is to say that the janitor lives.
func (h *heartbeat) isDue() bool { return h.sinceLast() >= beatEvery/2 }

func (h *heartbeat) sinceLast() time.Duration {
	at := h.sentAt.Load()
	if at == 0 {
		return time.Hour
	}
	return time.Since(h.began) - time.Duration(at)
}

// sent records that a statement has said, at that time, that the janitor lives, and its answer: the lowest version that works
// with the tables.
func (h *heartbeat) sent(at time.Time, compatibleFrom int32) {
	h.sentAt.Store(int64(at.Sub(h.began)) + 1)
	if int(compatibleFrom) > migrations.Latest() {
		select {
		case h.newer <- struct{}{}:
		default: // watchTables is told already
		}
	}
}

// beat says that the janitor lives whenever no look has said so for beatEvery and beatLate. It ignores errors: the goroutines
// that do the work report them.
func (j *Janitor) beat(ctx context.Context) {
	for {
		rest := beatEvery + jitter(beatLate)
		if silent := j.heartbeat.sinceLast(); silent < rest {
			rest -= silent
		} else {
			callCtx, cancel := context.WithTimeout(ctx, beatEvery)
			sent := time.Now()
			compatibleFrom, err := j.schema.Queries(j.pool()).JanitorBeat(callCtx, j.id)
			cancel()
			switch {
			case err == nil:
				j.heartbeat.sent(sent, compatibleFrom)
			case ctx.Err() == nil:
				j.log.Debug("janitor has not said that it lives", "error", err)
			}
		}
		if sleep.For(ctx, rest) != nil {
			return
		}
	}
}

// watchTables ends the janitor when the tables have become too new for it. It asks only if no statement that says that the
// janitor lives has been answered for a while. It ignores other errors: the goroutines that meet them in their work report them.
func (j *Janitor) watchTables(ctx context.Context, end context.CancelCauseFunc) {
	for {
		timer := time.NewTimer(jitter(j.tablesEvery))
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-j.heartbeat.newer:
			timer.Stop()
		case <-timer.C:
			if j.heartbeat.sinceLast() < j.tablesEvery/2 {
				continue
			}
		}
		if err := j.checkVersion(ctx); errors.Is(err, db.ErrNewerSchema) {
			j.log.Error("the tables were changed and this janitor no longer works with them, it ends", "error", err)
			end(err)
			return
		}
	}
}
