package format

import (
	"fmt"
	"time"

	"github.com/jobq-dev/jobq/internal/when"
	"github.com/jobq-dev/jobq/monitor"
)

// Why says in words why the job with the id is not running, for one reason, and what can be done
// about it; empty when nothing needs to be done. For example "the queue is paused by
// ana: books are closed, for 12m" and "let it go on: jobq queues resume email". Texts
// of others in it, such as errors, are not made printable.
func Why(id int64, reason monitor.Reason, now time.Time) (says, advice string) {
	f := reason.Facts
	var lock monitor.ReasonLock
	if f.Session != nil {
		lock = *f.Session
	}
	switch reason.Code {
	case monitor.ReasonAlone:
		return waitsAlone(id, f, now)
	case monitor.ReasonScheduled, monitor.ReasonRetry, monitor.ReasonDue:
		return whyScheduled(id, reason, now)
	case monitor.ReasonWaitsForJobs:
		return waitsForJobs(id, f)
	case monitor.ReasonSleeping, monitor.ReasonWaitsForEvent:
		return whySuspended(reason, now)
	case monitor.ReasonKindPaused:
		return kindPaused(f, now)
	case monitor.ReasonKeyPaused:
		return keyPaused(f, now)
	case monitor.ReasonQueueLimit:
		return queueLimit(f, now)
	case monitor.ReasonKeyLimit:
		return keyLimit(f)
	case monitor.ReasonKeyHead:
		return keyHead(f, now)
	case monitor.ReasonQueueRate:
		return queueRate(f, now)
	case monitor.ReasonKeyRate:
		return keyRate(f, now)
	case monitor.ReasonQueuePaused, monitor.ReasonNoWorker, monitor.ReasonNoWorkerOfKind, monitor.ReasonWorkersHeld, monitor.ReasonKindInTrouble, monitor.ReasonWorkersFull:
		return whyQueue(reason, now)
	case monitor.ReasonTableLocked:
		return fmt.Sprintf("the table %s is locked in mode %s by %s", lock.Table, lock.Mode, lockedBy(lock, now)), endSession(lock)
	case monitor.ReasonRowLocked:
		return "its row is locked, and claims pass it by: " + lockedBy(lock, now), endSession(lock)
	case monitor.ReasonKindFull:
		return kindFull(f, now)
	case monitor.ReasonNextInLine:
		return nextInLine(f), ""
	case monitor.ReasonRunning, monitor.ReasonCancelRequested, monitor.ReasonLeaseExpired, monitor.ReasonNoLease:
		return whyRunning(reason, now)
	case monitor.ReasonCompleted, monitor.ReasonFailed, monitor.ReasonCancelled:
		return whyEnded(id, reason, now)
	case monitor.ReasonDeleted:
		return "it was deleted" + whenOf(f.Since, now) + by(f), fmt.Sprintf("bring it back: jobq undo %d", f.Audit)
	case monitor.ReasonGone:
		return fmt.Sprintf("there is no such job any more, if there ever was: the id was given, the last one was %d. Jobs are kept for %s after they end, and one whose transaction "+
			"was rolled back never was", f.LastID, when.FormatDuration(time.Duration(f.RetentionSeconds)*time.Second)), ""
	case monitor.ReasonUnknown:
		return fmt.Sprintf("there has never been such a job here: the last id that was given is %d", f.LastID), "check the id, the database and the schema"
	}
	return string(reason.Code), "" // of a newer database
}
