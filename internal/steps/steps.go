// Package steps is where the functions that handlers call for durable steps, those of
// package jobq, meet what runs the handler: a worker. It also makes the calls to the
// database, for workers and for the command line.
package steps

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/dberror"
)

// ErrRunOver says that the run has ended, or that its lease is lost.
var ErrRunOver = errors.New("this run has ended, or its lease is lost")

// Run is a run of a job, as far as its steps are concerned. Its methods may be called
// from several goroutines.
type Run interface {
	// Begin says whether an earlier run has done the step, and with which result. If not,
	// the run does it now. Begin, Sleep and Wait try on while the database is away, until
	// the context ends.
	Begin(ctx context.Context, name string) (Answer, error)
	// Store stores that the step is done, in the transaction, or in one of its own with nil.
	Store(ctx context.Context, tx pgx.Tx, name string, result json.RawMessage) error
	// Sleep says whether the time of a sleep is over. Unless it is Done, the run has ended.
	Sleep(ctx context.Context, name string, duration time.Duration) (Answer, error)
	// Wait says whether an event has come, or has not come in time; 0 means no timeout.
	// Unless it is Done, the run has ended.
	Wait(ctx context.Context, name string, timeout time.Duration) (Answer, error)
}

// Answer is what is stored of a step.
type Answer struct {
	Done     bool
	TimedOut bool // the event did not come in time
	Result   json.RawMessage
	// IsEncoded says that results of steps are stored encoded: errors must not quote them.
	IsEncoded bool
}

type runKey struct{}

// With returns a context in which handlers find the run.
func With(ctx context.Context, run Run) context.Context {
	return context.WithValue(ctx, runKey{}, run)
}

// Of is the run whose handler got the context, or nil.
func Of(ctx context.Context) Run {
	run, _ := ctx.Value(runKey{}).(Run)
	return run
}

// Calls makes the calls of one run to the database.
type Calls struct {
	Schema *db.Schema
	DB     db.DBTX
	JobID  int64
	Token  string // the run token
}

// Begin is that of Run.
func (c Calls) Begin(ctx context.Context, name string) (Answer, error) {
	row, err := untilSent(ctx, func() (db.StepGetRow, error) { return c.queries(nil).StepGet(ctx, c.JobID, c.Token, name) })
	return Answer{Done: row.Done, Result: row.Result}, c.wrap("step", name, err)
}

// Store is that of Run. Without a transaction of the caller's it tries again, until the
// context ends, while the database is away: the step has had its effect.
func (c Calls) Store(ctx context.Context, tx pgx.Tx, name string, result json.RawMessage) error {
	backoff := newBackoff()
	for unsure := false; ; unsure = true {
		err := c.queries(tx).StepPut(ctx, db.StepPutParams{JobID: c.JobID, Token: c.Token, Name: name, Result: result})
		if unsure && errors.Is(dberror.Wrap(c.Schema, "", err), dberror.ErrConflict) {
			return nil // a try before, of which no answer came, has stored it
		}
		if tx != nil || !db.IsTransient(err) || backoff.Wait(ctx) != nil {
			return c.wrap("step", name, err)
		}
	}
}

// Sleep is that of Run.
func (c Calls) Sleep(ctx context.Context, name string, duration time.Duration) (Answer, error) {
	params := db.StepSleepParams{JobID: c.JobID, Token: c.Token, Name: name, Delay: db.Interval(duration)}
	passed, err := untilSent(ctx, func() (bool, error) { return c.queries(nil).StepSleep(ctx, params) })
	return Answer{Done: passed}, c.wrap("sleep", name, err)
}

// Wait is that of Run.
func (c Calls) Wait(ctx context.Context, name string, timeout time.Duration) (Answer, error) {
	params := db.StepWaitParams{JobID: c.JobID, Token: c.Token, Name: name, Timeout: db.IntervalOrNull(timeout)}
	row, err := untilSent(ctx, func() (db.StepWaitRow, error) { return c.queries(nil).StepWait(ctx, params) })
	return Answer{Done: row.Done, TimedOut: row.TimedOut, Result: row.Result}, c.wrap("wait for event", name, err)
}

// untilSent sends a statement again, until the context ends, while it surely has had no
// effect: the database is away, or another transaction was in the way. One of which no
// answer came is not sent again: it would find that the run has used the name already.
func untilSent[T any](ctx context.Context, send func() (T, error)) (T, error) {
	backoff := newBackoff()
	for {
		row, err := send()
		if !db.IsTransient(err) || db.MayHaveCommitted(err) || backoff.Wait(ctx) != nil {
			return row, err
		}
	}
}

func newBackoff() db.Backoff { return db.Backoff{Min: 20 * time.Millisecond, Max: 2 * time.Second} }

func (c Calls) queries(tx pgx.Tx) *db.Queries {
	if tx != nil {
		return c.Schema.Queries(tx)
	}
	return c.Schema.Queries(c.DB)
}

func (c Calls) wrap(what, name string, err error) error {
	operation := fmt.Sprintf("%s %q of job %d", what, name, c.JobID)
	if db.IsRunOver(err) {
		return fmt.Errorf("%s: %w", operation, ErrRunOver)
	}
	return dberror.Wrap(c.Schema, operation, err)
}
