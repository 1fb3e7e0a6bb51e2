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

// errNotEnded is the failure of a handler that was to end the job in a transaction
// of its own, and has reported success without.
var errNotEnded = errors.New("the handler reported success, and no transaction of its own has ended the job: " +
	"call jobq.complete and commit before, or do without ends_itself")

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
	completed, err := r.worker.schema.Queries(tx).RunCompleteTx(ctx, db.RunCompleteTxParams{
		Result: r.reports.soFar().result, ID: r.row.ID, Token: r.row.LeaseToken, Owner: r.worker.id, ClaimedAt: r.row.StartedAt,
	})
	if err != nil {
		return fmt.Errorf("%s: %w", operation, err)
	}
	if len(completed) == 0 {
		return fmt.Errorf("%s: %w", operation, ErrLeaseLost)
	}
	r.needsEnd.Store(true)
	r.worker.keeper.held.Completing(&r.hold)
	return nil
}

// fate asks what has become of a run whose handler may have ended it in a transaction of
// its own.
func (r *Run) fate(ctx context.Context) (db.RunFateRow, error) {
	ctx, cancel := context.WithTimeout(ctx, fateTimeout)
	defer cancel()
	return r.worker.queries.RunFate(ctx, db.RunFateParams{ID: r.row.ID, Token: r.row.LeaseToken, Owner: r.worker.id, ClaimedAt: r.row.StartedAt, EndsItself: r.asksAttempt()})
}

// asksAttempt says whether the run may have ended by a call that leaves an attempt.
func (r *Run) asksAttempt() bool { return r.endsItself || r.mayHaveEnded.Load() }

// settle finds out about runs whose lease the database has called lost, and whose
// handlers may have ended them: either the job has ended, or the run was lost.
// What cannot be found out now is asked again.
func (k *keeper) settle(ctx context.Context, unsure []*Run) {
	for _, r := range unsure {
		fate, err := r.fate(ctx)
		if err != nil {
			k.worker.databaseTrouble(err)
			return
		}
		k.held.Settle(&r.hold, isEnded(fate), fate.Held)
	}
}

// settleTx ends a run whose handler may have ended it in a transaction of its own,
// when that has committed or nobody can say; false when the run is to be ended like
// any other.
func (q *queue) settleTx(run *Run, err error, state leases.State) (settled bool, _ error) {
	fate := db.RunFateRow{Completed: state.Completed}
	known := false
	if !state.Completed || run.asksAttempt() { // only CompleteTx leaves no doubt how
		answer, answerErr := run.fate(context.WithoutCancel(q.worker.handlers.ctx))
		switch {
		case answerErr == nil:
			fate, known = answer, true
		case state.Completed:
			q.worker.databaseTrouble(answerErr)
		default:
			q.worker.databaseTrouble(answerErr)
			if err == nil && run.needsEnd.Load() && !state.Lost { // it says so, and the database will know when it is asked to store something else
				return false, run.unstoredSuccess()
			}
		}
	}
	switch {
	case isEnded(fate):
		q.worker.observe(fate.Outcome == string(jobq.OutcomeFailed), hasCompleted(fate))
		q.accountTx(run, fate)
		q.endByTx(run)
		if err != nil && (!state.Lost || !isSuspension(fate)) && !saysSuspended(err, fate) { // last: these call methods of the error, which may end the goroutine
			q.worker.log.Warn("handler returned an error after its transaction had ended the job", append(run.logAttrs(), "error", textOf(err))...)
		}
		return true, err
	case !state.Lost && err == nil && fate.Held && run.needsEnd.Load():
		return false, run.unstoredSuccess()
	case state.Lost || known && !fate.Held: // the next owner's, after a rollback
		q.worker.keeper.reportLost(run)
		q.discard()
		return true, err
	}
	return false, err
}

// isEnded says whether a transaction of the handler's own has ended the run.
func isEnded(fate db.RunFateRow) bool { return fate.Completed || fate.Outcome != "" }

// hasCompleted says whether it has done so by completing the job, which somebody may have
// requeued since.
func hasCompleted(fate db.RunFateRow) bool {
	return fate.Completed || fate.Outcome == string(jobq.OutcomeCompleted)
}

// unstoredSuccess is the failure of a run that reports success without having
// stored it.
func (r *Run) unstoredSuccess() error {
	if r.endsItself {
		return errNotEnded
	}
	return errNotCommitted
}

// accountTx counts a run that a transaction of its handler's own has ended, and keeps
// what its program has written.
func (q *queue) accountTx(run *Run, fate db.RunFateRow) {
	if hasCompleted(fate) {
		q.worker.counts.completed.Add(1)
		q.worker.digests.Ended(&run.row, string(jobq.StateCompleted), false, run.ran)
	} else {
		q.worker.counts.ended(fate.Outcome)
		q.worker.digests.Ended(&run.row, fate.State, fate.Outcome == string(jobq.OutcomeFailed), run.ran)
	}
	q.keepAttempt(run)
}

// accountRefused is for a run that was to end itself, and whose end by the worker was
// refused: its transaction, which was open then, has ended it, or its lease was lost.
func (q *queue) accountRefused(run *Run) {
	fate, err := run.fate(context.WithoutCancel(q.worker.handlers.ctx))
	switch {
	case err != nil:
		q.worker.log.Warn("result refused, ended by its own transaction or lease lost", append(run.logAttrs(), "error", err)...)
	case isEnded(fate):
		q.accountTx(run, fate)
	default:
		q.worker.counts.lost.Add(1)
		q.worker.log.Warn("result refused, lease lost", run.logAttrs()...)
	}
}

// keepAttempt keeps what a program has written and used with the attempt that its own
// transaction has stored. Should that fail, it is lost, and the end is not.
func (q *queue) keepAttempt(run *Run) {
	kept := run.reports.soFar()
	if kept.output == "" && kept.usage == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(q.worker.handlers.ctx), fateTimeout)
	defer cancel()
	if err := q.worker.queries.AttemptKeep(ctx, db.AttemptKeepParams{
		ID: run.row.ID, Token: run.row.LeaseToken, Owner: q.worker.id, ClaimedAt: run.row.StartedAt,
		RanUs: run.ran.Microseconds(), Output: kept.output, Usage: kept.usage,
	}); err != nil {
		q.worker.databaseTrouble(err)
	}
}
