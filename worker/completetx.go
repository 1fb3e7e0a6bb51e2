package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/worker/internal/leases"
)

// fateTimeout bounds asking what has become of a job that a handler has
// completed in its own transaction.
const fateTimeout = 5 * time.Second

// errNotCommitted is the failure of a handler that has reported success without
// committing.
var errNotCommitted = errors.New("the handler returned without committing the transaction in which it called CompleteTx")

// CompleteTx completes the job in the caller's transaction: either both the
// caller's changes and the completion are stored, or neither. When the
// transaction has committed, return nil from the handler. After a rollback the
// lease goes on, and what the handler returns is handled as ever; but nil is
// then a failed attempt. ErrLeaseLost means that the job is no longer ours: roll
// back.
//
// The lease goes on being extended while the transaction is open.
func (r *Run) CompleteTx(ctx context.Context, tx pgx.Tx) error {
	if r.test != nil {
		r.test.completed.Store(true)
		return nil
	}
	operation := fmt.Sprintf("complete job %d in a transaction", r.row.ID)
	if r.worker.keeper.held.State(&r.hold).Lost {
		return fmt.Errorf("%s: %w", operation, ErrLeaseLost)
	}
	r.mu.Lock()
	result := r.resultJSON
	r.mu.Unlock() // not held below: the row may be locked for long, and the keeper asks every run
	completed, err := r.worker.schema.Queries(tx).RunCompleteTx(ctx, db.RunCompleteTxParams{
		Result: result, ID: r.row.ID, Token: r.row.LeaseToken, Owner: r.worker.id, ClaimedAt: r.row.StartedAt,
	})
	if err != nil {
		return fmt.Errorf("%s: %w", operation, err)
	}
	if len(completed) == 0 {
		return fmt.Errorf("%s: %w", operation, ErrLeaseLost)
	}
	r.worker.keeper.held.Completing(&r.hold)
	return nil
}

// fate asks what has become of a run whose handler has called CompleteTx.
func (r *Run) fate(ctx context.Context) (db.RunFateRow, error) {
	ctx, cancel := context.WithTimeout(ctx, fateTimeout)
	defer cancel()
	return r.worker.queries.RunFate(ctx, db.RunFateParams{ID: r.row.ID, Token: r.row.LeaseToken, Owner: r.worker.id, ClaimedAt: r.row.StartedAt})
}

// settle finds out about runs whose lease the database has called lost, after
// CompleteTx: either the job is completed, or the run was lost after a rollback.
// What cannot be found out now is asked again.
func (k *keeper) settle(ctx context.Context, unsure []*Run) {
	for _, r := range unsure {
		fate, err := r.fate(ctx)
		if err != nil {
			k.worker.databaseTrouble(err)
			return
		}
		k.held.Settle(&r.hold, fate.Completed, fate.Held)
	}
}

// settleTx ends a run that has called CompleteTx, when its transaction has
// committed or nobody can say; false when the run is to be ended like any other.
func (q *queue) settleTx(run *Run, err error, state leases.State) (settled bool, _ error) {
	fate := db.RunFateRow{Completed: state.Completed}
	if !state.Completed {
		var askErr error
		if fate, askErr = run.fate(context.WithoutCancel(q.worker.handlers.ctx)); askErr != nil {
			q.worker.databaseTrouble(askErr)
			if err == nil && !state.Lost { // it says so, and the database will know when it is asked to store something else
				return false, errNotCommitted
			}
		}
	}
	switch {
	case fate.Completed:
		q.worker.observe(false, true)
		q.worker.counts.completed.Add(1)
		q.worker.digests.Ended(&run.row, string(jobq.StateCompleted), false, run.ran)
		q.endByTx(run)
		if err != nil { // last: it calls a method of the error, which may end the goroutine
			q.worker.log.Warn("handler returned an error after its transaction had completed the job", append(run.logAttrs(), "error", textOf(err))...)
		}
		return true, err
	case !state.Lost && err == nil && fate.Held:
		return false, errNotCommitted
	case state.Lost || err == nil: // the next owner's, after a rollback
		q.worker.keeper.reportLost(run)
		q.discard()
		return true, err
	}
	return false, err
}
