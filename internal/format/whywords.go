package format

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/monitor"
)

// whenOf is a moment that has passed, with how long ago it was: " at 2026-11-21
// 14:02:31 UTC, 12m ago". Empty for none.
func whenOf(moment *time.Time, now time.Time) string {
	if moment == nil {
		return ""
	}
	return fmt.Sprintf(" at %s, %s", clock(*moment), When(*moment, now))
}

func clock(moment time.Time) string { return moment.UTC().Format("2006-01-02 15:04:05 UTC") }

// by is who did it and why, as far as that is known: " by ana: books are closed".
func by(f monitor.ReasonFacts) string {
	switch {
	case f.By == "":
		return ""
	case f.Note == "":
		return " by " + f.By
	}
	return " by " + f.By + ": " + f.Note
}

// janitorUnseen is what is to be said of the janitor where one is needed.
func janitorUnseen(f monitor.ReasonFacts) string {
	switch {
	case f.Janitor == nil:
		return "; whether a janitor is alive cannot be known here, on a standby"
	case !*f.Janitor:
		return "; no janitor holds its lock at this moment"
	}
	return ""
}

const startJanitor = "if no janitor runs, start one: jobq janitor. Behind a pooler, a janitor holds its lock only while it works: jobq janitor events shows errors"

// janitorAdvice is what to do about a janitor that is not seen.
func janitorAdvice(f monitor.ReasonFacts) string {
	if f.Janitor != nil && *f.Janitor {
		return ""
	}
	return startJanitor
}

// whyScheduled is about jobs that have no place in the line yet.
func whyScheduled(id int64, reason monitor.Reason, now time.Time) (says, advice string) {
	f := reason.Facts
	if f.Until == nil {
		return string(reason.Code), ""
	}
	moment := fmt.Sprintf("%s, %s", clock(*f.Until), When(*f.Until, now))
	runNow := fmt.Sprintf("run it now: jobq requeue %d", id)
	if advice := janitorAdvice(f); advice != "" {
		runNow += "; " + advice
	}
	switch {
	case reason.Code == monitor.ReasonDue:
		says = "it was due at " + moment + ", and no janitor has put it in the line yet" + janitorUnseen(f)
		if f.Janitor != nil && *f.Janitor {
			return says + "; one is alive", "a janitor that is late says why in its log and in jobq janitor events"
		}
		return says, janitorAdvice(f)
	case reason.Code == monitor.ReasonRetry:
		what := "failed with "
		switch f.Outcome {
		case jobq.OutcomeTimedOut:
			what = "timed out: "
		case jobq.OutcomeLost:
			what = "was lost: "
		case jobq.OutcomeCompleted, jobq.OutcomeFailed, jobq.OutcomeCancelled, jobq.OutcomeReleased, jobq.OutcomeSnoozed, jobq.OutcomeUnreadable:
		}
		says = fmt.Sprintf("it waits for a retry at %s: attempt %d of %d %s%s", moment, f.Attempts, f.MaxAttempts, what, errorText(f))
		if f.Outcome == jobq.OutcomeLost && f.Lost > 0 {
			says = fmt.Sprintf("it waits for a retry at %s: its last run was lost, after %s: %s", moment, attemptsAndLost(f), errorText(f))
		}
	case f.Outcome == jobq.OutcomeUnreadable:
		says = "its last worker could not read it, which has used no attempt: " + errorText(f) + "; it is tried again at " + moment
		runNow = "start its workers with the key: jobq worker --keys-file FILE, docs/encryption.md; then " + runNow
	case f.Outcome == jobq.OutcomeSnoozed:
		says = "its last run has asked to run again later: it is scheduled for " + moment
	default:
		says = "it is scheduled for " + moment
	}
	return says + janitorUnseen(f), runNow
}

// attemptsAndLost is how many attempts a job has used, and how many of its runs were lost without using one.
func attemptsAndLost(f monitor.ReasonFacts) string {
	says := fmt.Sprintf("%s of %d", Count(int64(f.Attempts), "attempt"), f.MaxAttempts)
	if f.Lost > 0 {
		says += " and " + Count(int64(f.Lost), "lost run")
	}
	if f.Lost > 0 && f.MaxLost > 0 {
		says += fmt.Sprintf(" of %d", f.MaxLost)
	}
	return says
}

func errorText(f monitor.ReasonFacts) string {
	return cmp.Or(f.Error, "no error text")
}

// forHowLong is since when it is so, if that is known: ", for 12m".
func forHowLong(f monitor.ReasonFacts, now time.Time) string {
	if f.Since == nil {
		return ""
	}
	return ", for " + Ago(now.Sub(*f.Since))
}

// whyQueue is about jobs in the line that no worker takes.
func whyQueue(reason monitor.Reason, now time.Time) (says, advice string) {
	f := reason.Facts
	switch reason.Code {
	case monitor.ReasonQueuePaused:
		return "the queue is paused" + by(f) + forHowLong(f, now), "let it go on: jobq queues resume " + ShellWord(f.Queue)
	case monitor.ReasonNoWorker:
		says = "no live worker takes jobs from the queue"
		if f.Draining > 0 {
			says += "; " + Count(f.Draining, "worker") + " of it will take no more: stopping, or told to drain"
		}
		if f.Silent > 0 {
			says += "; " + Count(f.Silent, "worker") + " of it stopped reporting"
			if f.HeardAt != nil {
				says += ", the last report was " + When(*f.HeardAt, now)
			}
		}
		return says, "start a worker for the queue: jobq worker --queue " + ShellWord(f.Queue)
	case monitor.ReasonNoWorkerOfKind:
		says = "no live worker has kind " + f.Kind
		if len(f.Kinds) > 0 {
			says += fmt.Sprintf("; %s of the queue handle %s", Count(f.Workers, "worker"), strings.Join(f.Kinds, ", "))
			if more := f.KindsTotal - int64(len(f.Kinds)); more > 0 {
				says += fmt.Sprintf(" and %s more", Number(more))
			}
		}
		return says, "register a handler for the kind, or correct the kind's name: jobq workers shows the kinds"
	case monitor.ReasonWorkersHeld:
		return fmt.Sprintf("its workers are held, %s in all: host %s%s%s", Number(f.Workers), f.Host, by(f), forHowLong(f, now)),
			"let the host claim again: jobq workers release " + ShellWord(f.Host)
	case monitor.ReasonKindInTrouble:
		return fmt.Sprintf("the workers with kind %s do not start it now: %s on %s", f.Kind, f.Error, f.Worker), "mend that on the worker's machine; the job has lost no attempt"
	default: // workers are full
	}
	if f.Held == 0 { // the UI has not asked which jobs these are
		return fmt.Sprintf("all %s slots are in use", Number(f.Slots)), ""
	}
	says = fmt.Sprintf("the workers are full: %s in %s of %s", Count(f.Held, "job"), Count(f.Slots, "slot"), Count(f.Workers, "worker"))
	return says + oldest(f, now) + "; " + before(f), "start more workers, or give them more slots" + askOldest(f)
}

// before is how many jobs are before the job in its line, and how many keys have their turn before its key.
func before(f monitor.ReasonFacts) string {
	whose := ""
	switch {
	case f.PartitionKey != "":
		whose = " of its key"
	case f.KeysTakeTurns:
		whose = " without a key"
	}
	return atMost(f.Before, f.BeforeMax, "job", whose) + " before it in the line" + turns(f)
}

// turns is what is known of the turns of the keys.
func turns(f monitor.ReasonFacts) string {
	switch {
	case f.KeysTakeTurns:
		return ", and keys take turns with these"
	case f.KeyGroup != "" && f.KeyGroupWeight > 1:
		return fmt.Sprintf(", and its key has a share of the turns of the group %s, of weight %d", f.KeyGroup, f.KeyGroupWeight)
	case f.KeyGroup != "":
		return ", and its key has a share of the turns of the group " + f.KeyGroup
	case f.KeysBefore == nil:
		return ""
	}
	before := atMost(f.KeysBefore, f.KeysBeforeMax, "key", "") + " before its key in the turn"
	if f.KeyWeight > 1 {
		before = atMost(f.KeysBefore, f.KeysBeforeMax, "key", "") + fmt.Sprintf(" before its key, of weight %d, in the turn", f.KeyWeight)
	}
	if f.KeysNew == nil || *f.KeysNew == 0 {
		return ", and " + before
	}
	together := Count(*f.KeysNew, "key") + " that came in since the last claim"
	if *f.KeysNew > f.KeysBeforeMax {
		together = "more than " + Count(f.KeysBeforeMax, "key") + " that came in since the last claim"
	}
	return ", " + before + ", and it gets its turn with the next claim, together with " + together
}

// atMost is how many there are, with a verb: "no job is", "1 job of its key is", "more than 10,000 jobs are".
func atMost(number *int64, most int64, what, whose string) string {
	switch {
	case number == nil || *number == 0:
		return "no " + what + whose + " is"
	case *number > most:
		return "more than " + Count(most, what) + whose + " are"
	case *number == 1:
		return "1 " + what + whose + " is"
	}
	return Count(*number, what) + whose + " are"
}

func nextInLine(f monitor.ReasonFacts) string {
	none := func(number *int64) bool { return number == nil || *number == 0 }
	isNext := none(f.Before) && none(f.KeysBefore) && none(f.KeysNew) && !f.KeysTakeTurns && (f.PartitionKey == "" || f.KeysBefore != nil)
	place := before(f)
	if isNext {
		place = "it is next in line"
	}
	switch {
	case f.WorkersUnknown > 0:
		return fmt.Sprintf("%s; whether workers have room is not known: an earlier version of jobq, which %s of them have, tells nothing of the slots that kinds have of their own", place, Number(f.WorkersUnknown))
	case isNext:
		return place + ", and workers have room: one takes it when it next looks"
	}
	return place + ", and workers have room: nothing else that the database shows keeps it from running"
}

// lockedBy is who holds a lock, since when, and what it does.
func lockedBy(lock monitor.ReasonLock, now time.Time) string {
	role := ""
	if lock.Role != "" {
		role = " of role " + lock.Role
	}
	switch {
	case lock.Prepared != "":
		return fmt.Sprintf("the prepared transaction %q%s, prepared%s", lock.Prepared, role, whenOf(lock.Since, now))
	case lock.PID == 0:
		return "a session that cannot be seen"
	case lock.Hidden:
		return fmt.Sprintf("pid %d%s; since when and what it does is hidden from this role, which is not in pg_read_all_stats", lock.PID, role)
	}
	text := fmt.Sprintf("pid %d%s", lock.PID, role)
	if lock.Application != "" {
		text += " (" + lock.Application + ")"
	}
	if lock.State != "" {
		text += ", " + lock.State
	}
	if lock.Since != nil {
		text += fmt.Sprintf(", its transaction began %s", When(*lock.Since, now))
	}
	if lock.Query != "" {
		text += ": " + strings.Join(strings.Fields(lock.Query), " ")
	}
	return text
}

// endSession is how to end who holds a lock.
func endSession(lock monitor.ReasonLock) string {
	switch {
	case lock.Prepared != "":
		return "end it, as its owner: rollback prepared, or commit prepared"
	case lock.PID == 0:
		return ""
	}
	return fmt.Sprintf("let it end, or end it: select pg_terminate_backend(%d)", lock.PID)
}

// whyRunning is about jobs that a worker has claimed.
func whyRunning(reason monitor.Reason, now time.Time) (says, advice string) {
	f := reason.Facts
	switch reason.Code {
	case monitor.ReasonCancelRequested:
		return "it was asked to stop" + whenOf(f.Since, now) + by(f) + "; its worker has yet to say that it has stopped",
			"a Go handler must watch its context; the job ends with its handler, or with its lease when the worker dies"
	case monitor.ReasonNoLease:
		return fmt.Sprintf("its row says that it runs, but there is no lease %d: jobq has not written such a row", f.Lease), ""
	case monitor.ReasonLeaseExpired:
		says = "its worker " + f.Worker + " has not extended the lease, which ended" + whenOf(f.Until, now)
		switch {
		case f.LostAt != nil:
			says += "; a janitor has taken it from the worker and is not done with all of its jobs, it last looked " + When(*f.LostAt, now)
		case f.ReapedFrom != nil && f.ReapedFrom.After(now):
			says += "; by the queue's stale grace a janitor takes it back from " + clock(*f.ReapedFrom) + " on, " + When(*f.ReapedFrom, now)
		default:
			says += "; a janitor is to take it back"
		}
		return says + janitorUnseen(f), janitorAdvice(f)
	default: // it runs
	}
	says = "it runs on " + f.Worker
	switch {
	case f.NotBegun:
		says = f.Worker + " has claimed it and has not begun it: it waits there for a slot"
	case f.ProgressedAt == nil: // it may begin a moment after the lease says that it may
		says += ", or waits there for a slot to come free"
	}
	says += ": claimed" + whenOf(f.Since, now)
	if f.Until != nil {
		says += "; its lease ends " + When(*f.Until, now) + " unless extended"
	}
	switch {
	case f.ProgressedAt != nil:
		says += fmt.Sprintf("; last progress %s: %.0f%% %s", When(*f.ProgressedAt, now), f.Percent, strings.TrimSpace(f.Stage+" "+f.Message))
	case !f.NotBegun:
		says += "; it has reported no progress"
	}
	switch {
	case f.HeardAt == nil:
		says += "; its worker is not registered any more"
	case now.Sub(*f.HeardAt) > WorkerSilence:
		says += "; its worker last reported " + When(*f.HeardAt, now)
	case f.WorkerDraining:
		says += "; its worker is stopping"
	}
	return says, ""
}

// WorkerSilence is how long a worker may be silent before it is pointed out, and counts as
// live no more, in jobq.why too: it reports every 10 seconds.
const WorkerSilence = 30 * time.Second

// whyEnded is about jobs that have ended.
func whyEnded(id int64, reason monitor.Reason, now time.Time) (says, advice string) {
	f := reason.Facts
	switch reason.Code {
	case monitor.ReasonFailed:
		says = fmt.Sprintf("it failed for good%s, after %s: %s", whenOf(f.Since, now), attemptsAndLost(f), errorText(f))
	case monitor.ReasonCancelled:
		says = "it was cancelled" + whenOf(f.Since, now) + by(f)
		switch {
		case f.By != "":
		case f.Cause != nil:
			says += ": " + withParent(f)
		default:
			says += "; the audit does not know by whom: its own handler, or a call of Client.Cancel or the SQL function"
			if f.Error != "" {
				says += "; its last error is " + f.Error
			}
		}
	default:
		says = "it has completed" + whenOf(f.Since, now)
		if f.Worker != "" {
			says += ", on " + f.Worker
		}
	}
	if f.KeyHolder == 0 && f.KeyUntil != nil {
		says += "; it keeps its unique key until " + clock(*f.KeyUntil)
	}
	switch {
	case f.ArgsGone:
		return says, "it cannot run again: its args are gone; add a new job"
	case f.KeyHolder != 0 && f.KeyUntil != nil:
		return says, fmt.Sprintf("it cannot run again before %s: until then job %d keeps its unique key, although it is over", clock(*f.KeyUntil), f.KeyHolder)
	case f.KeyHolder != 0:
		return says, fmt.Sprintf("it cannot run again while job %d has its unique key: jobq why %d", f.KeyHolder, f.KeyHolder)
	}
	if f.Cause != nil && (f.Cause.State == jobq.StateFailed || f.Cause.State == jobq.StateCancelled) {
		return says, fmt.Sprintf("run both again: jobq requeue %d --with-dependents", f.Cause.ID)
	}
	return says, fmt.Sprintf("run it again: jobq requeue %d", id)
}
