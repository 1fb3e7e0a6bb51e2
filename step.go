package jobq

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/jobq-dev/jobq/internal/coding"
	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/dberror"
	"github.com/jobq-dev/jobq/internal/steps"
)

var (
	// ErrSuspended is what [Sleep], [WaitEvent] and [Await] return when they have ended the run: the
	// job holds no slot now, and runs again later. The handler must return it, wrapped
	// or not, and do nothing more.
	ErrSuspended = errors.New("the job is suspended and runs again later: the handler must return this error")
	// ErrEventTimeout is what [WaitEvent] returns when the event has not come in time.
	ErrEventTimeout = errors.New("the event has not come in time")
	// ErrNoRun is returned when a function for handlers gets a context that is not that
	// of a run: neither the one that the handler got nor derived from it.
	ErrNoRun = errors.New("the context is not that of a job's run: pass the context that the handler got")
)

// storeTimeout bounds how long the result of a step is stored after its context ended.
const storeTimeout = 10 * time.Second

// Step does a part of a job once. It calls the function, and stores with the job what
// that returns. If the job runs again, because it failed later or its worker died, Step
// returns what was stored, and does not call the function.
//
// The function can be called more than once: if it fails, and if its worker dies after
// its effect and before the result is stored. For an effect in the job's database that
// happens exactly once, see [StepTx]. An error of the function is returned as it is,
// and not stored.
//
// The name says which step of the job it is: 1 to 255 characters. To use one twice in a
// run is an error (ErrConflict); in a loop, put the item's number or id in it. What
// is returned has been through JSON, of 1 MiB at most, in the first run too.
//
// If the worker's client has a Codec, the result is stored encoded. One that cannot be
// decoded is ErrUnreadable. The handler must return it, wrapped or not: the job runs again
// later, without using an attempt.
func Step[T any](ctx context.Context, name string, do func(ctx context.Context) (T, error)) (T, error) {
	return step[T](ctx, name, func(run steps.Run) (json.RawMessage, error) {
		value, err := do(ctx)
		if err != nil {
			return nil, err
		}
		result, err := encodeStep(name, value)
		if err != nil {
			return nil, err
		}
		// The effect has happened: a run that is told to stop stores it all the same.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
		defer cancel()
		return result, run.Store(ctx, nil, name, result)
	})
}

// Beginner begins transactions: a pool or a connection.
type Beginner interface {
	Begin(ctx context.Context) (pgx.Tx, error)
}

// StepTx is [Step] for an effect in the job's own database, which happens exactly once:
// what the function does in the transaction is stored together with its result, or
// neither is. The function neither commits nor rolls back. The transaction is begun on
// the pool given, with the rights of its role, which must be a member of jobq_runner or
// jobq_worker.
//
// If the connection breaks during the commit, nobody knows whether the step is done.
// Return the error then: the next run finds out.
func StepTx[T any](ctx context.Context, on Beginner, name string, do func(ctx context.Context, tx pgx.Tx) (T, error)) (T, error) {
	return step[T](ctx, name, func(run steps.Run) (result json.RawMessage, err error) {
		if db.IsNil(on) {
			return nil, fmt.Errorf("step %q: %w: what begins its transaction is nil", name, ErrInvalid)
		}
		stored := false
		err = pgx.BeginFunc(ctx, on, func(tx pgx.Tx) error {
			value, err := do(ctx, tx)
			if err != nil {
				return err
			}
			if result, err = encodeStep(name, value); err != nil {
				return err
			}
			err = run.Store(ctx, tx, name, result)
			stored = err == nil
			return err
		})
		if stored && db.MayHaveCommitted(err) && !errors.Is(err, pgx.ErrTxCommitRollback) {
			err = steps.Unanswered(name, err)
		}
		return result, err
	})
}

// step returns the result of a step, for which it calls the function if no earlier run
// has done it.
func step[T any](ctx context.Context, name string, do func(run steps.Run) (json.RawMessage, error)) (value T, err error) {
	run := steps.Of(ctx)
	if run == nil {
		return value, fmt.Errorf("step %q: %w", name, ErrNoRun)
	}
	answer, err := run.Begin(ctx, name)
	if err != nil {
		return value, err
	}
	result := answer.Result
	if !answer.Done {
		if result, err = do(run); err != nil {
			return value, err
		}
	}
	return decodeStep[T]("step", name, result, answer.IsEncoded)
}

func encodeStep(name string, value any) (json.RawMessage, error) {
	result, err := json.Marshal(value)
	if err != nil {
		return nil, fmt.Errorf("step %q: encode its result: %w", name, err)
	}
	return result, nil
}

func decodeStep[T any](what, name string, result json.RawMessage, isEncoded bool) (value T, err error) {
	if err := json.Unmarshal(result, &value); err != nil {
		return value, fmt.Errorf("%s %q: decode what is stored: %w", what, name, coding.Misfit(err, value, isEncoded))
	}
	return value, nil
}

// Sleep makes the job wait without holding a slot: it ends the run and returns
// [ErrSuspended], which the handler must return. When the time is over, the job runs
// again, without using an attempt, and Sleep returns nil.
//
// The time counts from the first call, by the database's clock: 0 to 10 years. A call
// of a later run with another duration changes nothing. For the name, see [Step].
func Sleep(ctx context.Context, name string, duration time.Duration) error {
	run := steps.Of(ctx)
	if run == nil {
		return fmt.Errorf("sleep %q: %w", name, ErrNoRun)
	}
	answer, err := run.Sleep(ctx, name, duration)
	if err == nil && !answer.Done {
		return ErrSuspended
	}
	return err
}

// WaitEvent returns what an event has brought: what somebody has given to
// [Client.Emit] with the same name, before or after. If it has not come yet, WaitEvent
// ends the run and returns [ErrSuspended], which the handler must return. The job holds
// no slot, and runs again, without using an attempt, when the event comes.
//
// After the timeout, which counts from the first call, WaitEvent returns
// [ErrEventTimeout], also in later runs; 0 means no timeout. The name is that of the
// event, for all jobs, and of the step: see [Step].
//
// An event is forgotten when finished jobs of its time are, after 7 days by default, unless
// a job waits for it then. A job that comes to wait for it later does not find it: give a
// timeout where that may be.
func WaitEvent[T any](ctx context.Context, name string, timeout time.Duration) (value T, err error) {
	run := steps.Of(ctx)
	if run == nil {
		return value, fmt.Errorf("wait for event %q: %w", name, ErrNoRun)
	}
	answer, err := run.Wait(ctx, name, timeout)
	switch {
	case err != nil:
		return value, err
	case !answer.Done:
		return value, ErrSuspended
	case answer.TimedOut:
		return value, fmt.Errorf("event %q: %w", name, ErrEventTimeout)
	}
	return decodeStep[T]("event", name, answer.Result, false)
}

// Emit says that an event has happened, with what it brings: anything that encodes to
// JSON of at most 1 MiB. Jobs that wait for it run at once (if more than 1,000 wait, the
// others within half a minute); those that come to wait for it later find it, for as long
// as finished jobs are kept, 7 days by default.
//
// The first event of a name counts: for another, Emit returns false and changes nothing.
// So put into the name what the event is about, such as "paid order 4711": 1 to 255
// characters.
func (c *Client) Emit(ctx context.Context, name string, payload any) (first bool, err error) {
	encoded, err := encodeEvent(name, payload)
	if err != nil {
		return false, err
	}
	first, err = dberror.Retry(ctx, func() (bool, error) { return c.queries.EventEmit(ctx, name, encoded) })
	if _, invalid := db.Invalid(err); invalid { // perhaps for the isolation level that the pool's transactions have
		err = pgx.BeginTxFunc(ctx, c.pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted, AccessMode: pgx.ReadWrite}, func(tx pgx.Tx) error {
			first, err = c.schema.Queries(tx).EventEmit(ctx, name, encoded)
			return err
		})
	}
	return first, dberror.Wrap(c.schema, fmt.Sprintf("emit event %q", name), dberror.NeedRole(db.RoleProducer, err))
}

// EmitTx is Emit in the caller's transaction: the event happens when it commits. It must
// be READ COMMITTED. Until it ends, others who emit the event wait for it, and so do
// cancels of the jobs that it wakes: keep it short.
func (c *Client) EmitTx(ctx context.Context, tx DBTX, name string, payload any) (first bool, err error) {
	operation := fmt.Sprintf("emit event %q", name)
	queries, err := c.in(tx, operation)
	if err != nil {
		return false, err
	}
	encoded, err := encodeEvent(name, payload)
	if err != nil {
		return false, err
	}
	first, err = queries.EventEmit(ctx, name, encoded)
	return first, dberror.Wrap(c.schema, operation, dberror.NeedRole(db.RoleProducer, err))
}

func encodeEvent(name string, payload any) (json.RawMessage, error) {
	encoded, err := json.Marshal(payload)
	if err != nil {
		return nil, fmt.Errorf("emit event %q: %w: its payload: %w", name, ErrInvalid, err)
	}
	return encoded, nil
}
