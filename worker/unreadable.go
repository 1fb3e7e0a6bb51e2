package worker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/coding"
	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/printable"
	"github.com/jobq-dev/jobq/internal/storable"
	"github.com/jobq-dev/jobq/worker/internal/excerpt"
	"github.com/jobq-dev/jobq/worker/internal/unreadable"
)

// storedBytesMax is the limit of the database on a checkpoint, and on the result of a job or a step.
const storedBytesMax = 1 << 20

// unreadableError ends a run whose job cannot be decoded. No handler has seen the job, unless
// the value that cannot be decoded is the result of a step, or of another job.
type unreadableError struct {
	err   error
	delay time.Duration
	// isKnown says that the last run could not decode the job either, for the same reason: the
	// history has that already.
	isKnown bool
	isFinal bool // the job fails for good
}

func (e *unreadableError) Error() string { return e.err.Error() }

func (e *unreadableError) Unwrap() error { return e.err }

// decode replaces the stored args and checkpoint of the job by their decoded values. If it
// returns an error, the run ends as unreadable.
func (r *Run) decode(ctx context.Context) error {
	args, err := r.decoded(ctx, r.about(jobq.FieldArgs), r.row.Args)
	if err != nil {
		return r.unreadable(ctx, err)
	}
	checkpoint, err := r.decoded(ctx, r.about(jobq.FieldCheckpoint), r.row.Checkpoint)
	if err != nil {
		return r.unreadable(ctx, err)
	}
	if memory := &r.worker.unreadable; memory.HasSome() {
		key, _ := jobq.EncryptedWith(r.row.Args)
		if resumed := memory.Read(r.row.Kind, key, time.Now()); resumed {
			r.worker.log.Info("jobs of the kind can be decoded again, and are claimed", r.logAttrs()...)
			r.worker.wakeQueuesOf(r.row.Kind)
		}
	}
	r.argsEncoded = !bytes.Equal(args, r.row.Args)
	r.row.Args = args
	r.row.Checkpoint = checkpoint
	return nil
}

// about is one of the values of the run's job.
func (r *Run) about(field jobq.CodecField) jobq.CodecValue {
	return coding.ValueOf(field, r.row.Kind, r.row.ID)
}

// decoded returns the value that the stored JSON encodes.
func (r *Run) decoded(ctx context.Context, about jobq.CodecValue, stored json.RawMessage) (json.RawMessage, error) {
	if r.worker.codec == nil {
		return coding.Decode(ctx, nil, about, stored)
	}
	return r.guardedDecode(ctx, about, stored)
}

// guardedDecode is coding.Decode in which a panic of the codec is an error like others.
func (r *Run) guardedDecode(ctx context.Context, about jobq.CodecValue, stored json.RawMessage) (value json.RawMessage, err error) {
	panicked := guard(func() error {
		value, err = coding.Decode(ctx, r.worker.codec, about, stored)
		return nil
	})
	if panicked != nil { // only its text is kept: a panicError would count as a panic of the handler
		key, _ := jobq.EncryptedWith(stored)
		err = &coding.UnreadableError{About: about, Key: key, Err: errors.New(panicked.Error())}
	}
	return value, err
}

// unreadable is the error with which a run ends whose job cannot be decoded.
func (r *Run) unreadable(ctx context.Context, err error) error {
	if ctx.Err() != nil { // the run was stopped meanwhile, which says nothing about keys
		return &unreadableError{err: err, delay: unreadable.DelayMin, isKnown: r.lastErrorIs(err)}
	}
	var problem *coding.UnreadableError
	key := ""
	if errors.As(err, &problem) {
		key = problem.Key
	}
	if errors.Is(err, coding.ErrDamaged) {
		return &unreadableError{err: err, isFinal: true}
	}
	isKnown := r.lastErrorIs(err)
	waited, others := r.unreadableSince(ctx, key)
	others = others && !errors.Is(err, coding.ErrDoubtful)
	isStep := problem != nil && (problem.About.Field == jobq.FieldStep || problem.About.Field == jobq.FieldResult)
	if limit := r.worker.config.FailUnreadableAfter; limit > 0 && waited >= limit && !others {
		return &unreadableError{err: fmt.Errorf("no worker has been able to read this for %s, it fails for good: %w", waited.Round(time.Second), err), isFinal: true}
	}
	isKnown = isKnown && waited >= 0 // else its history was removed: this run begins it anew
	// Where a step cannot be read, the args could, and so their kind is not to be left to others.
	verdict := r.worker.unreadable.Failed(r.row.Kind, key, others && !isStep, time.Now())
	if verdict.ToOthers {
		return Unreached(err)
	}
	if verdict.Warn {
		r.worker.log.Warn("job cannot be decoded, it goes back without using an attempt; for ten minutes, more jobs of this key are not logged",
			append(r.logAttrs(), "key", key, "error", printable.FirstLine(err.Error()))...)
	}
	if verdict.Pause > 0 {
		r.worker.log.Info("the last jobs of the kind could not be decoded, it is left to workers that have the key for now", append(r.logAttrs(), "pause", verdict.Pause)...)
		w, kind := r.worker, r.row.Kind // and not the whole run, which has the job's args
		time.AfterFunc(verdict.Pause, func() { w.wakeQueuesOf(kind) })
	}
	delay := verdict.Delay + rand.N(verdict.Delay/4+1) // #nosec G404 -- jitter
	return &unreadableError{err: err, delay: delay, isKnown: isKnown}
}

// unreadableSince says for how long no worker has been able to decode the job, negative if that is not known, and
// whether another worker has the key.
func (r *Run) unreadableSince(ctx context.Context, key string) (waited time.Duration, others bool) {
	callCtx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	row, err := r.worker.queries.UnreadableSince(callCtx, db.UnreadableSinceParams{
		ID: r.row.ID, Key: key, Worker: r.worker.id, Silence: db.Interval(workerSilence), Queue: r.row.Queue, Kind: r.row.Kind,
	})
	if err != nil {
		if ctx.Err() == nil {
			r.worker.databaseTrouble(err)
		}
		return 0, false
	}
	return time.Duration(row.ForMs) * time.Millisecond, row.Others
}

// keyNames are the names of the keys with which the worker can decrypt, as far as its codec tells.
func (w *Worker) keyNames() []string {
	if codec, ok := w.codec.(interface{ Names() []string }); ok {
		return codec.Names()
	}
	return nil
}

// sameErrorBytes is how much of two first lines is compared: less than what is stored of
// the first line of a long error.
const sameErrorBytes = 400

// lastErrorIs says whether the job's last error was the same. The beginnings of the first lines
// are compared: of a longer text only the beginning and the end were stored. A handler may have
// put something before the error of a step.
func (r *Run) lastErrorIs(err error) bool {
	if r.row.LastError == nil {
		return false
	}
	last, now := printable.FirstLine(*r.row.LastError), printable.FirstLine(excerpt.Error(err.Error()))
	beginning := func(line string) string { return line[:min(len(line), sameErrorBytes)] }
	return strings.HasSuffix(last, now) || beginning(last) == beginning(now)
}

// claimable returns those of the kinds whose jobs may be claimed now.
func (w *Worker) claimable(kinds []string) []string {
	if w.isHeld() {
		return []string{}
	}
	now := time.Now()
	return w.resting.Claimable(w.unreadable.Claimable(w.externals.claimable(kinds), now), now)
}

// mayClaim says whether any of the kinds, if there are some, may be claimed now.
func (w *Worker) mayClaim(kinds []string) bool {
	return !w.isHeld() && (len(kinds) == 0 || len(w.claimable(kinds)) > 0)
}

// encode returns the value as it is stored. The size limit of the database holds for the encoded
// value, which may be larger than the caller's, so the error names both sizes.
func (r *Run) encode(ctx context.Context, about jobq.CodecValue, value json.RawMessage) (json.RawMessage, error) {
	codec := r.worker.codec
	if codec == nil {
		return value, nil
	}
	if err := storable.Encoded(string(about.Field), value); err != nil { // the database cannot see it
		return nil, fmt.Errorf("%w: %w", jobq.ErrInvalid, err)
	}
	stored, err := coding.Encode(ctx, codec, about, value)
	if errors.Is(err, coding.ErrEncoded) {
		return nil, fmt.Errorf("%w: %w", jobq.ErrInvalid, err)
	}
	if err != nil {
		return nil, err
	}
	if len(stored) > storedBytesMax {
		return nil, fmt.Errorf("%w: %s must be at most %d bytes as stored, not %d: its %d bytes were encoded by the client's codec, and encrypted they are a third longer",
			jobq.ErrInvalid, about.Field, storedBytesMax, len(stored), len(value))
	}
	return stored, nil
}
