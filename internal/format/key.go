package format

import (
	"fmt"
	"time"

	"github.com/jobq-dev/jobq/monitor"
)

// KeyHead is what a partition key has to wait for; empty for nothing.
func KeyHead(key monitor.Key, now time.Time) string {
	if key.Head == 0 {
		return ""
	}
	does := map[string]string{"running": "runs", "retry": "waits for its retry", "waiting": "waits for other jobs", "failed": "has failed"}[key.HeadState]
	if key.HeadUntil != nil {
		does += " " + When(*key.HeadUntil, now)
	}
	return fmt.Sprintf("job %d %s", key.Head, does)
}

// KeyWaitsFor is what the next job of a partition key waits for: the key's head, or its rate. Empty for nothing.
func KeyWaitsFor(key monitor.Key, now time.Time) string {
	if key.State == monitor.KeyThrottled {
		return "may start " + When(*key.ThrottledUntil, now)
	}
	return KeyHead(key, now)
}

// KeyPause is since when a partition key is paused, by whom and why; empty for one that is not.
func KeyPause(key monitor.Key, now time.Time) string {
	if key.PausedAt == nil {
		return ""
	}
	return When(*key.PausedAt, now) + " by " + By(key.PausedBy, key.PauseReason)
}

// KeyWeight is the weight of a partition key; empty for the 1 of a key without one.
func KeyWeight(key monitor.Key) string {
	if key.Weight <= 1 {
		return ""
	}
	return Number(int64(key.Weight))
}

// KeyWait is for how long the job of a partition key has waited that has waited longest; "-" where none waits.
func KeyWait(key monitor.Key, now time.Time) string {
	if key.OldestRunAt == nil {
		return "-"
	}
	return Ago(now.Sub(*key.OldestRunAt))
}
