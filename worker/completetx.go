package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/worker/internal/leases"
)

// fateTimeout is the longest time of the question whether a handler's own transaction has ended
// its job.
const fateTimeout = 5 * time.Second

// errNotCommitted is the failure of a handler that has reported success without
// committing.
var errNotCommitted = errors.New("the handler returned without committing the transaction in which it called CompleteTx")

// errNotEnded is the failure of a handler that must end the job in a transaction of its own, and
// has reported success although no transaction has ended the job.
var errNotEnded = errors.New("the handler reported success, and no transaction of its own has ended the job: " +
	"call jobq.complete and commit before, or do without ends_itself")

// CompleteTx completes the job in the caller's transaction: either both the
// caller's changes and the completion are stored, or neither. When the
// transaction has committed, return nil from the handler. After a rollback the job
// still runs: an error that the handler returns has its usual effect, and nil is a
// failed attempt. CompleteTx returns ErrLeaseLost when the run no longer has the
// lease of the job: roll back then.
//
// The transaction is a pgx.Tx, or a connection on which the handler has sent BEGIN: see [jobq.DBTX]. ErrInvalid of
// package jobq for nil, for a pool, and for a connection that is in no transaction: the completion would be stored at
// once, without the caller's changes.
//
// The worker extends the lease while the transaction is open.
func (r *Run) CompleteTx(ctx context.Context, tx jobq.DBTX) error {
	if r.test != nil {
		r.test.completed.Store(true)
		return nil
	}
	operation := fmt.Sprintf("complete job %d in a transaction", r.row.ID)
	if err := db.RequireTx(tx); err != nil {
		return fmt.Errorf("%s: %w: %w", operation, jobq.ErrInvalid, err)
	}
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

// fate asks the database whether a transaction of the handler has ended the run, and how.
func (r *Run) fate(ctx context.Context) (db.RunFateRow, error) {
	ctx, cancel := context.WithTimeout(ctx, fateTimeout)
	defer cancel()
	return r.worker.queries.RunFate(ctx, db.RunFateParams{ID: r.row.ID, Token: r.row.LeaseToken, Owner: r.worker.id, ClaimedAt: r.row.StartedAt, EndsItself: r.asksAttempt()})
}

// asksAttempt says whether the run may have ended by a call that leaves an attempt.
func (r *Run) asksAttempt() bool { return r.endsItself || r.mayHaveEnded.Load() }

// settle asks about runs whose lease the database has called lost, and whose handlers may have
// ended them in a transaction: either that has ended the run, or the lease is lost. When the
// database does not answer, it is asked again later.
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

// settleTx finishes a run whose handler may have ended it in a transaction of its own. It returns
// true when nothing is left to do: the transaction has committed, or the lease is lost. It
// returns false when the run must be ended like any other, with the error that it returns.
func (q *queue) settleTx(run *Run, err error, state leases.State) (settled bool, _ error) {
	fate := db.RunFateRow{Completed: state.Completed}
	known := false
	if !state.Completed || run.asksAttempt() { // a known end of CompleteTx needs no question: it completed the job
		answer, answerErr := run.fate(context.WithoutCancel(q.worker.handlers.ctx))
		switch {
		case answerErr == nil:
			fate, known = answer, true
		case state.Completed:
			q.worker.databaseTrouble(answerErr)
		default:
			q.worker.databaseTrouble(answerErr)
			// The handler says that it has succeeded. If its transaction has committed, the database refuses this failure.
			if err == nil && run.needsEnd.Load() && !state.Lost {
				return false, run.unstoredSuccess()
			}
		}
	}
	switch {
	case isEnded(fate):
		q.worker.observe(fate.Outcome == string(jobq.OutcomeFailed), hasCompleted(fate))
		q.worker.runEnded(run.row.Kind, fate.Outcome == string(jobq.OutcomeFailed), hasCompleted(fate))
		q.accountTx(run, fate, err)
		q.endByTx(run)
		// This comes last: it calls methods of the error, which may end the goroutine.
		if err != nil && (!state.Lost || !isSuspension(fate)) && !saysSuspended(err, fate) {
			q.worker.log.Warn("handler returned an error after its transaction had ended the job", append(run.logAttrs(), "error", textOf(err))...)
		}
		return true, err
	case !state.Lost && err == nil && fate.Held && run.needsEnd.Load():
		return false, run.unstoredSuccess()
	case state.Lost || known && !fate.Held: // the transaction was rolled back, and the run no longer has the lease
		q.worker.keeper.reportLost(run)
		q.discard()
		return true, err
	}
	return false, err
}

// isEnded says whether a transaction of the handler's own has ended the run.
func isEnded(fate db.RunFateRow) bool { return fate.Completed || fate.Outcome != "" }

// hasCompleted says whether that transaction has completed the job. It stays true when somebody
// has requeued the job since.
func hasCompleted(fate db.RunFateRow) bool {
	return fate.Completed || fate.Outcome == string(jobq.OutcomeCompleted)
}

// unstoredSuccess is the failure of a run whose handler has reported success, although the
// transaction that should store it was not committed.
func (r *Run) unstoredSuccess() error {
	if r.endsItself {
		return errNotEnded
	}
	return errNotCommitted
}

// accountTx counts a run that a transaction of its handler has ended, and stores the output of its
// program. err is what the handler has returned.
func (q *queue) accountTx(run *Run, fate db.RunFateRow, err error) {
	if hasCompleted(fate) {
		q.worker.counts.completed.Add(1)
		q.worker.digests.Ended(&run.row, string(jobq.StateCompleted), false, run.ran)
	} else {
		q.worker.counts.ended(fate.Outcome)
		failed := fate.Outcome == string(jobq.OutcomeFailed)
		q.worker.digests.Ended(&run.row, fate.State, failed, run.ran)
		if failed {
			q.worker.failures.add(run, err, fate.Outcome, fate.State == string(jobq.StateFailed))
		}
	}
	q.keepAttempt(run)
}

// accountRefused counts a run whose result the database has refused, and whose handler may have
// ended it in a transaction. Either that transaction, still open at the time, has ended the run
// since, or the lease is lost.
func (q *queue) accountRefused(r result) {
	run := r.run
	fate, err := run.fate(context.WithoutCancel(q.worker.handlers.ctx))
	switch {
	case err != nil:
		q.worker.log.Warn("result refused, ended by its own transaction or lease lost", append(run.logAttrs(), "error", err)...)
	case isEnded(fate):
		q.accountTx(run, fate, r.err)
	default:
		q.worker.counts.lost.Add(1)
		q.worker.log.Warn("result refused, lease lost", run.logAttrs()...)
	}
}

// keepAttempt adds the output and the resource usage of a program to the attempt that its own
// transaction has stored. If that fails they are lost; the end of the run is stored anyway.
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
