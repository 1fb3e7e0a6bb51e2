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
	// Sleep says whether the time of a sleep is over. Unless it is Done, the run has ended;
	// with an error it may have, as MayHaveEnded says.
	Sleep(ctx context.Context, name string, duration time.Duration) (Answer, error)
	// Wait says whether an event has come, or has not come in time; 0 means no timeout.
	// Unless it is Done, the run has ended, as with Sleep.
	Wait(ctx context.Context, name string, timeout time.Duration) (Answer, error)
	// Await says how jobs have ended, in the order of their ids. Unless it is Done, the run
	// has ended, as with Sleep.
	Await(ctx context.Context, name string, jobs []int64) (Awaited, error)
}

// Answer is what is stored of a step.
type Answer struct {
	Done     bool
	TimedOut bool // the event did not come in time
	Result   json.RawMessage
	// MayHaveEnded says, of Sleep, Wait and Await, that the run has ended or nobody knows. An error
	// of a call that surely had no effect leaves it false: the run goes on.
	MayHaveEnded bool
	// IsEncoded says that results of steps are stored encoded: errors must not quote them.
	IsEncoded bool
}

// Awaited is what is stored of a step that awaits jobs.
type Awaited struct {
	Done         bool
	Jobs         []End
	MayHaveEnded bool // as of an Answer
	IsEncoded    bool // as of an Answer: results of jobs are
}

// End is how a job has ended that another one has awaited.
type End struct {
	ID         int64           `json:"id"`
	Kind       string          `json:"kind"`
	State      string          `json:"state"`  // "" of one that is gone
	Result     json.RawMessage `json:"result"` // as it is stored; nil for none
	Error      string          `json:"error"`
	FinishedAt time.Time       `json:"finished_at"` // zero of one that is gone
}

// DecodeEnds reads what is stored of a step that awaits jobs.
func DecodeEnds(name string, stored json.RawMessage) ([]End, error) {
	var ends []End
	if err := json.Unmarshal(stored, &ends); err != nil {
		return nil, fmt.Errorf("await %q: decode what is stored: %w", name, err)
	}
	for i := range ends {
		if string(ends[i].Result) == "null" {
			ends[i].Result = nil
		}
	}
	return ends, nil
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
	return Answer{Done: passed, MayHaveEnded: mayHaveEnded(passed, err)}, c.wrap("sleep", name, err)
}

// Wait is that of Run.
func (c Calls) Wait(ctx context.Context, name string, timeout time.Duration) (Answer, error) {
	params := db.StepWaitParams{JobID: c.JobID, Token: c.Token, Name: name, Timeout: db.IntervalOrNull(timeout)}
	row, err := untilSent(ctx, func() (db.StepWaitRow, error) { return c.queries(nil).StepWait(ctx, params) })
	return Answer{Done: row.Done, TimedOut: row.TimedOut, Result: row.Result, MayHaveEnded: mayHaveEnded(row.Done, err)}, c.wrap("wait for event", name, err)
}

// mayHaveEnded says whether a call may have ended the run that was answered so.
func mayHaveEnded(isDone bool, err error) bool {
	if err != nil {
		return db.IsRunOver(err) || db.MayHaveCommitted(err)
	}
	return !isDone
}

// Await is that of Run.
func (c Calls) Await(ctx context.Context, name string, jobs []int64) (Awaited, error) {
	params := db.StepAwaitParams{JobID: c.JobID, Token: c.Token, Name: name, Jobs: jobs}
	row, err := untilSent(ctx, func() (db.StepAwaitRow, error) { return c.queries(nil).StepAwait(ctx, params) })
	if err != nil || !row.Done {
		return Awaited{MayHaveEnded: mayHaveEnded(row.Done, err)}, c.wrap("await", name, err)
	}
	ends, err := DecodeEnds(name, row.Result)
	return Awaited{Done: true, Jobs: ends}, err
}

// Beginner begins transactions.
type Beginner interface {
	Begin(ctx context.Context) (pgx.Tx, error)
}

// Spawn does a step that adds something in the transaction in which it is stored, and returns
// what was added, by this run or an earlier one. It tries again, until the context ends, while
// none of that has surely happened.
func Spawn[T any](ctx context.Context, c Calls, on Beginner, name string, add func(tx pgx.Tx) ([]T, error)) (added []T, err error) {
	answer, err := c.Begin(ctx, name)
	if err != nil {
		return nil, err
	}
	if answer.Done {
		if err := json.Unmarshal(answer.Result, &added); err != nil {
			return nil, fmt.Errorf("spawn %q: decode what is stored: %w", name, err)
		}
		return added, nil
	}
	backoff := newBackoff()
	for {
		stored := false
		err := pgx.BeginFunc(ctx, on, func(tx pgx.Tx) (err error) {
			if added, err = add(tx); err != nil {
				return err
			}
			result, err := json.Marshal(append([]T{}, added...))
			if err == nil {
				err = c.Store(ctx, tx, name, result)
			}
			stored = err == nil
			return err
		})
		switch {
		case err == nil:
			return added, nil
		case stored && db.MayHaveCommitted(err) && !errors.Is(err, pgx.ErrTxCommitRollback):
			return nil, Unanswered(name, err)
		case !db.IsTransient(err) || backoff.Wait(ctx) != nil:
			return nil, err
		}
	}
}

// Unanswered is the error of a step whose transaction has got no answer to its commit.
func Unanswered(name string, err error) error {
	return fmt.Errorf("step %q: no answer to its commit: return the error, and the next run knows whether the step is done: %w", name, err)
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
