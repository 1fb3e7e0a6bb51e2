package db

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/jobq-dev/jobq/internal/sleep"
)

// Backoff waits longer after each failure, with jitter, so that many processes
// that lost the same database do not all try again at the same moments.
type Backoff struct {
	Min time.Duration // first wait; 0 means 100 ms
	Max time.Duration // longest wait; 0 means 5 s

	failures int
}

// Wait sleeps for the next delay, and returns the context's error if that
// ends first.
func (b *Backoff) Wait(ctx context.Context) error { return sleep.For(ctx, b.next()) }

// Reset starts over after a success.
func (b *Backoff) Reset() { b.failures = 0 }

// next is a random time between half of the delay and all of it, and doubles the
// delay. It is never 0, since the database has just failed.
func (b *Backoff) next() time.Duration {
	shortest, longest := b.Min, b.Max
	if shortest <= 0 {
		shortest = 100 * time.Millisecond
	}
	if longest <= 0 {
		longest = 5 * time.Second
	}
	delay := min(shortest<<min(b.failures, 20), longest)
	b.failures++
	return delay/2 + rand.N(delay/2+1) // #nosec G404 -- jitter
}

// Retry calls the function until it succeeds, or fails with an error that is not
// transient, or the context ends. It returns the last error of the function, also
// when the context has ended. It is only for work that may be done twice.
func Retry(ctx context.Context, call func(context.Context) error) error {
	var backoff Backoff
	for {
		err := call(ctx)
		if err == nil || !IsTransient(err) {
			return err
		}
		if backoff.Wait(ctx) != nil {
			return err
		}
	}
}
