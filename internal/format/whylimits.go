package format

import (
	"fmt"
	"strings"
	"time"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/when"
	"github.com/jobq-dev/jobq/monitor"
)

// kindPaused is about jobs of a kind that an operator has paused, or jobq itself.
func kindPaused(f monitor.ReasonFacts, now time.Time) (says, advice string) {
	advice = "let it go on: jobq kinds resume " + ShellWord(f.Kind)
	if f.Crashes > 0 {
		advice = "mend what crashes its workers, then " + advice
	}
	return "kind " + f.Kind + " is paused" + by(f) + forHowLong(f, now), advice
}

// keyPaused is about jobs of a partition key that an operator has paused.
func keyPaused(f monitor.ReasonFacts, now time.Time) (says, advice string) {
	return "the partition key " + f.PartitionKey + " is paused" + by(f) + forHowLong(f, now),
		fmt.Sprintf("let it go on: jobq queues resume %s --key %s", ShellWord(f.Queue), ShellWord(f.PartitionKey))
}

// queueLimit is about jobs of a queue that runs as many as its limit allows: more, when
// the limit was lowered.
func queueLimit(f monitor.ReasonFacts, now time.Time) (says, advice string) {
	return fmt.Sprintf("the queue is at its limit: %s of %s run", Number(f.Running), Count(f.Limit, "job")) + oldest(f, now) + beforeIfKnown(f),
		"wait for one to end, or raise the limit: jobq queues set " + ShellWord(f.Queue) + " limit=N" + askOldest(f)
}

// kindFull is about jobs whose kind has slots of its own in the workers, and these are taken.
func kindFull(f monitor.ReasonFacts, now time.Time) (says, advice string) {
	return fmt.Sprintf("the slots of kind %s are full: %s in %s of %s", f.Kind, Count(f.Held, "job"), Count(f.Slots, "slot"), Count(f.Workers, "worker")) +
			oldest(f, now) + beforeIfKnown(f),
		"start more workers, or give the kind more slots: docs/configuration.md" + askOldest(f)
}

// keyLimit is about jobs of a partition key of which as many run as its queue allows.
func keyLimit(f monitor.ReasonFacts) (says, advice string) {
	says = fmt.Sprintf("the partition key %s is at its limit: %s of %s run", f.PartitionKey, Number(f.Running), Count(f.Limit, "job"))
	advice = "wait for one to end, or raise the limit: jobq queues set " + ShellWord(f.Queue) + " key_limit=N"
	if len(f.Holders) > 0 {
		says += fmt.Sprintf(", the oldest is job %d", f.Holders[0])
		advice += fmt.Sprintf("; what the oldest does: jobq why %d", f.Holders[0])
	}
	return says + beforeIfKnown(f), advice
}

// keyHead is about jobs of a partition key whose jobs run in order, when another one is the next.
func keyHead(f monitor.ReasonFacts, now time.Time) (says, advice string) {
	says = fmt.Sprintf("the jobs of the partition key %s run in order, and its head is job %d", f.PartitionKey, f.Head)
	advice = fmt.Sprintf("what the head does: jobq why %d", f.Head)
	switch f.HeadState {
	case "running":
		says += ", which runs"
	case "retry":
		says += ", which waits for its retry"
		if f.Until != nil {
			says += fmt.Sprintf(" at %s, %s", clock(*f.Until), When(*f.Until, now))
		}
		advice = fmt.Sprintf("wait, or let the head run now: jobq requeue %d", f.Head)
	case "waiting":
		says += ", which waits for other jobs"
	case "failed":
		says += ", which has failed: that stops the key"
		advice = fmt.Sprintf("mend what made it fail, and jobq requeue %[1]d; or go on without it: jobq delete %[1]d", f.Head)
	}
	return says + beforeIfKnown(f), advice
}

// queueRate is about jobs of a queue whose rate lets no job start yet.
func queueRate(f monitor.ReasonFacts, now time.Time) (says, advice string) {
	return "the queue is at its rate of " + QueueRate(f.Rate) + mayStart("the next job", f, now) + beforeIfKnown(f),
		"wait, or raise the rate: jobq queues set " + ShellWord(f.Queue) + " rate=N/s"
}

// keyRate is about jobs of a partition key whose rate lets no job of it start yet.
func keyRate(f monitor.ReasonFacts, now time.Time) (says, advice string) {
	return fmt.Sprintf("the partition key %s is at its rate of %s", f.PartitionKey, QueueRate(f.Rate)) + mayStart("its next job", f, now) + beforeIfKnown(f),
		"wait, or raise the rate: jobq queues set " + ShellWord(f.Queue) + " key_rate=N/s"
}

// mayStart is when the next job may start that a rate keeps from that.
func mayStart(job string, f monitor.ReasonFacts, now time.Time) string {
	if f.Until == nil || !f.Until.After(now) {
		return ""
	}
	return fmt.Sprintf(": %s may start at %s, %s", job, clock(*f.Until), When(*f.Until, now))
}

// oldest is which job was claimed first of those that run, if that is known.
func oldest(f monitor.ReasonFacts, now time.Time) string {
	if f.OldestSince == nil {
		return ""
	}
	return fmt.Sprintf(", the oldest is job %d, claimed %s by %s", f.Oldest, When(*f.OldestSince, now), f.OldestWorker)
}

func askOldest(f monitor.ReasonFacts) string {
	if f.Oldest == 0 {
		return ""
	}
	return fmt.Sprintf("; what the oldest does: jobq why %d", f.Oldest)
}

// beforeIfKnown is the place in the line, of which a UI that has not asked knows nothing.
func beforeIfKnown(f monitor.ReasonFacts) string {
	if f.Before == nil {
		return ""
	}
	return "; " + before(f)
}

// KeyGroups says what ends the groups of a queue's partition keys, in quotes: it may be a space.
func KeyGroups(separator string) string { return "groups of keys by '" + separator + "'" }

// QueueRate is the rate of a queue as --rate takes it: 100/s, 10/30s. Empty for none.
func QueueRate(rate *jobq.Rate) string {
	if rate == nil {
		return ""
	}
	period := when.FormatDuration(rate.Period)
	for _, unit := range []time.Duration{time.Second, time.Minute, time.Hour, 24 * time.Hour} {
		if rate.Period == unit {
			period = strings.TrimPrefix(period, "1")
		}
	}
	return fmt.Sprintf("%d/%s", rate.Jobs, period)
}
