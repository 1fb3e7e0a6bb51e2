package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/coding"
	"github.com/jobq-dev/jobq/internal/printable"
)

// A job whose args or checkpoint cannot be decoded goes back without using an
// attempt, for as long as this worker has been unable to read values of that key:
// another worker may have the key, or this one after its next start. For example,
// with a key k9 that it does not have:
//
//	t=0 s    job 41 is claimed, and is to run again after 30 s; one warning
//	t=20 s   job 42, likewise; no warning
//	t=31 s   job 41 again: after 31 s
//	t=1 h    job 41 again: after 10 minutes
const (
	unreadableDelayMin = 30 * time.Second
	unreadableDelayMax = 10 * time.Minute
)

// unreadableKeysMax bounds the keys that are remembered: their names come from rows.
const unreadableKeysMax = 1000

// storedBytesMax is the limit of the database on a checkpoint and on a result.
const storedBytesMax = 1 << 20

// unreadableError ends a run whose job cannot be decoded. No handler has seen the job.
type unreadableError struct {
	err   error
	delay time.Duration
}

func (e *unreadableError) Error() string { return e.err.Error() }

func (e *unreadableError) Unwrap() error { return e.err }

// unreadable is since when values of which key could not be read.
type unreadable struct {
	mu sync.Mutex
	// guarded by mu
	since map[string]time.Time
}

// note returns how long a job with a value of the key is to wait, and whether it is the
// first of that key.
func (u *unreadable) note(key string, now time.Time) (delay time.Duration, isFirst bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	since, known := u.since[key]
	if !known && len(u.since) < unreadableKeysMax {
		if u.since == nil {
			u.since = make(map[string]time.Time)
		}
		u.since[key], since, isFirst = now, now, true
	}
	return min(max(now.Sub(since), unreadableDelayMin), unreadableDelayMax), isFirst
}

// decode replaces the job's args and checkpoint by the values for which they are
// stored. Its error makes the run end as unreadable.
func (r *Run) decode(ctx context.Context) error {
	args, err := coding.Decode(ctx, r.worker.codec, coding.ValueOf(jobq.FieldArgs, r.row.Kind, r.row.ID), r.row.Args)
	if err != nil {
		return r.unreadable(err)
	}
	checkpoint, err := coding.Decode(ctx, r.worker.codec, coding.ValueOf(jobq.FieldCheckpoint, r.row.Kind, r.row.ID), r.row.Checkpoint)
	if err != nil {
		return r.unreadable(err)
	}
	r.row.Args = args
	if checkpoint != nil {
		r.keepCheckpoint(checkpoint)
	}
	return nil
}

// unreadable warns of each key once.
func (r *Run) unreadable(err error) error {
	var problem *coding.UnreadableError
	key := ""
	if errors.As(err, &problem) {
		key = problem.Key
	}
	delay, isFirst := r.worker.unreadable.note(key, time.Now())
	if isFirst {
		r.worker.log.Warn("job cannot be decoded, it goes back without using an attempt; more jobs of this key are not logged",
			append(r.logAttrs(), "key", key, "error", printable.FirstLine(err.Error()))...)
	}
	delay += rand.N(delay/4 + 1) // #nosec G404 -- jitter
	return &unreadableError{err: err, delay: delay}
}

// encode is the value as it is stored. The limit of the database holds for that, and
// the error is about it, since the caller's own value may be smaller.
func (r *Run) encode(ctx context.Context, field jobq.CodecField, value json.RawMessage) (json.RawMessage, error) {
	codec := r.worker.codec
	if codec == nil {
		return value, nil
	}
	stored, err := coding.Encode(ctx, codec, coding.ValueOf(field, r.row.Kind, r.row.ID), value)
	if err != nil {
		return nil, err
	}
	if len(stored) > storedBytesMax {
		return nil, fmt.Errorf("%w: %s must be at most %d bytes as stored, not %d: its %d bytes were encoded by the client's codec, and encrypted they are a third longer",
			jobq.ErrInvalid, field, storedBytesMax, len(stored), len(value))
	}
	return stored, nil
}
