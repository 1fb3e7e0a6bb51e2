// Package sleep waits for a time to pass, and no longer than a context lasts.
package sleep

import (
	"context"
	"time"
)

// For sleeps for the duration, or until the context ends, and then returns its error.
// With a duration of 0 or less it does not sleep, and returns the context's error if
// that has ended.
func For(ctx context.Context, duration time.Duration) error {
	if duration <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(duration)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
