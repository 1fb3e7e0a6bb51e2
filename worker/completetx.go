package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/db"
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
// While the transaction is open the lease cannot be extended: commit within what
// is left of it, two thirds at least less the kill margin. The context ends when
// that is over.
func (r *Run) CompleteTx(ctx context.Context, tx pgx.Tx) error {
	operation := fmt.Sprintf("complete job %d in a transaction", r.row.ID)
	if r.lease.isLost() {
		return fmt.Errorf("%s: %w", operation, ErrLeaseLost)
	}
	r.mu.Lock()
	result := r.resultJSON
	r.mu.Unlock() // not held below: the row may be locked for long, and the keeper asks every run
	for range 2 { // a heartbeat at the same moment hides the row from the first
		completed, err := r.worker.schema.Queries(tx).JobComplete(ctx, db.JobCompleteParams{
			Ids: []int64{r.row.ID}, Tokens: []int64{r.row.LeaseToken}, Results: []json.RawMessage{result}, Owner: r.worker.id,
		})
		if err != nil {
			return fmt.Errorf("%s: %w", operation, err)
		}
		if len(completed) > 0 {
			r.worker.keeper.completing(&r.lease)
			return nil
		}
	}
	return fmt.Errorf("%s: %w", operation, ErrLeaseLost)
}

// completing notes that the handler's own transaction has taken the row away, or
// will when it commits: that the row is not there is not the loss of the lease.
func (k *keeper) completing(l *lease) {
	k.mu.Lock()
	defer k.mu.Unlock()
	l.completing = true
}

// fate asks what has become of a run whose handler has called CompleteTx.
func (r *Run) fate(ctx context.Context) (db.JobFateRow, error) {
	ctx, cancel := context.WithTimeout(ctx, fateTimeout)
	defer cancel()
	since := pgtype.Timestamptz{Time: r.row.StartedAt.Time.Add(-24 * time.Hour), Valid: true} // whatever the server's clock has done since
	return r.worker.queries.JobFate(ctx, db.JobFateParams{ID: r.row.ID, Token: r.row.LeaseToken, Owner: r.worker.id, Since: since})
}

// settle finds out about leases of which the database has said that their rows
// are gone, after CompleteTx: either the job is completed, or the lease was lost
// after a rollback. What cannot be found out now is asked again.
func (k *keeper) settle(ctx context.Context, gone []*lease) {
	for _, l := range gone {
		fate, err := l.run.fate(ctx)
		if err != nil {
			k.worker.databaseTrouble(err)
			return
		}
		k.mu.Lock()
		switch {
		case k.held[l.id] != l: // the handler has returned meanwhile
		case fate.Completed:
			l.completed = true
		case !fate.Held:
			k.loseLocked(l)
		}
		k.mu.Unlock()
	}
}

// settleTx ends a run that has called CompleteTx, when its transaction has
// committed or nobody can say; false when the run is to be ended like any other.
func (q *queue) settleTx(run *Run, err error, storable, completed bool) (settled bool, _ error) {
	fate := db.JobFateRow{Completed: completed}
	if !completed {
		var askErr error
		if fate, askErr = run.fate(context.WithoutCancel(q.worker.handlers.ctx)); askErr != nil {
			q.worker.databaseTrouble(askErr)
			fate.Completed = err == nil && storable // it says so, and only it knows
		}
	}
	switch {
	case fate.Completed:
		if err != nil {
			q.worker.log.Warn("handler returned an error after its transaction had completed the job", append(run.logAttrs(), "error", err)...)
		}
		q.worker.observe(false, true)
		q.worker.counts.completed.Add(1)
		q.worker.digests.ended(result{run: run, completion: &db.Completion{Ran: run.ran}}, string(jobq.Completed), false)
		q.completedTx()
		return true, err
	case err == nil && fate.Held:
		return false, errNotCommitted
	case err == nil && storable: // the next owner's, after a rollback
		q.worker.counts.lost.Add(1)
		q.worker.log.Warn("lease lost", run.logAttrs()...)
		q.discard()
		return true, err
	}
	return false, err
}
