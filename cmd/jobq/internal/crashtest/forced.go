package crashtest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/sleep"
	"github.com/jobq-dev/jobq/operator"
)

const (
	// farAhead is when a job is due that nobody may claim yet.
	farAhead = 24 * time.Hour
	// unlockTimeout bounds the end of a transaction that has nothing to store.
	unlockTimeout = 5 * time.Second
	// endSessionMs is how long the server may take to end a session.
	endSessionMs = 5000
)

// lockKeySQL keeps a job from ending: its end deletes this row.
const lockKeySQL = `select from jobq.unique_key where kind = $1 and key = $2 and job_id = $3 for update`

// waitingSQL has the sessions of this database that wait for a row of this one. Others, such
// as one that waits to alter the table, are nobody's of the worker. It does not ask
// pg_stat_activity, which shows a transaction no session that is younger than its first
// look: who waits for a row has a lock on its table, which tells the database.
const waitingSQL = `select distinct l.pid from pg_locks l
	where not l.granted and l.locktype in ('tuple', 'transactionid') and pg_backend_pid() = any(pg_blocking_pids(l.pid))
	  and exists (select from pg_locks o where o.pid = l.pid and o.granted and o.locktype = 'relation'
	    and o.database = (select oid from pg_database where datname = current_database()))`

// forceOne runs a job and kills its worker between the effect and the completion; then
// it lets the job end, since workers that crash in a row would have the kind paused.
func (t *test) forceOne(ctx context.Context, number int) (err error) {
	key := fmt.Sprintf("%s:%d", t.tag, number)
	options := t.options()
	options.UniqueKey, options.Delay = key, farAhead
	enqueued, err := t.Client.Enqueue(ctx, jobq.RawArgs{Name: t.Kind, JSON: t.args(number)}, &options)
	if err != nil {
		return err
	}
	id := enqueued.ID
	t.numbers[id] = number
	tx, err := t.Client.Pool().Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rollback(ctx, tx)) }()
	tag, err := tx.Exec(ctx, t.schema.SQL(lockKeySQL), t.Kind, key, id)
	if err == nil && tag.RowsAffected() != 1 {
		err = fmt.Errorf("the unique key %s is not there", key)
	}
	if err != nil {
		return fmt.Errorf("lock of job %d: %w", id, err)
	}
	if err := t.makeDue(ctx, tx, id); err != nil {
		return err
	}
	begun := time.Now()
	if err := t.awaitWaiting(ctx, tx, id); err != nil {
		return err
	}
	t.took += time.Since(begun)
	if err := t.worker.kill(); err != nil {
		return err
	}
	if err := endWaiting(ctx, tx); err != nil {
		return err
	}
	if err := rollback(ctx, tx); err != nil {
		return err
	}
	t.forced[id] = true
	t.Progress("killed the worker between the effect and the completion of job %d (%d of %d)", id, number, t.Forced)
	if err := t.worker.start(ctx); err != nil {
		return err
	}
	return t.awaitFinished(ctx, func(left int64) bool { return left == 0 })
}

// makeDue lets the worker claim the job, by the database's clock.
func (t *test) makeDue(ctx context.Context, tx pgx.Tx, id int64) error {
	var now time.Time
	if err := tx.QueryRow(ctx, "select now()").Scan(&now); err != nil {
		return err
	}
	edited, err := t.operator.Edit(ctx, operator.JobChange{RunAt: &now}, operator.Target{ID: id})
	if err != nil {
		return err
	}
	return edited.Jobs[0].Err()
}

// rollback ends the transaction, and with it the lock, also after an interrupt. It
// may have ended.
func rollback(ctx context.Context, tx pgx.Tx) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), unlockTimeout)
	defer cancel()
	if err := tx.Rollback(ctx); err != nil && !errors.Is(err, pgx.ErrTxClosed) {
		return err
	}
	return nil
}

// awaitWaiting waits until the end of the job waits for the lock of the transaction.
func (t *test) awaitWaiting(ctx context.Context, tx pgx.Tx, id int64) error {
	for end := time.Now().Add(t.Timeout); ; {
		waiting, err := waitingFor(ctx, tx)
		if err != nil || len(waiting) > 0 {
			return err
		}
		if err := t.worker.check(); err != nil {
			return err
		}
		if time.Now().After(end) {
			return t.stuck(ctx, id)
		}
		if err := sleep.For(ctx, poll); err != nil {
			return err
		}
	}
}

func waitingFor(ctx context.Context, tx pgx.Tx) ([]int32, error) {
	rows, err := tx.Query(ctx, waitingSQL)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[int32])
}

// endWaiting ends the sessions of the killed worker that wait for the transaction.
// The server would else carry on with their statements when the lock is free, and store
// the completion: it does not look whether the client is still there.
func endWaiting(ctx context.Context, tx pgx.Tx) error {
	waiting, err := waitingFor(ctx, tx)
	if err != nil {
		return err
	}
	for _, pid := range waiting {
		if _, err := tx.Exec(ctx, "select pg_terminate_backend($1, $2)", pid, endSessionMs); err != nil {
			var pgErr *pgconn.PgError
			if errors.As(err, &pgErr) && pgErr.Code == "42501" {
				return fmt.Errorf("end the session of the killed worker: %w: use the worker's own role, or one with pg_signal_backend", err)
			}
			return fmt.Errorf("end the session of the killed worker: %w", err)
		}
	}
	if waiting, err = waitingFor(ctx, tx); err == nil && len(waiting) > 0 {
		return errors.New("a session of the killed worker goes on waiting for its lock")
	}
	return err
}

// stuck says about a job that does not get on what is known of it.
func (t *test) stuck(ctx context.Context, id int64) error {
	job, err := t.Client.Get(ctx, id)
	if err != nil {
		return err
	}
	problem := fmt.Errorf("job %d does not get on for %s: it is %s, after %d attempts; `jobq why %d` may say more, and --timeout waits longer",
		id, t.Timeout, job.State, job.Attempts, id)
	if job.LastError != "" {
		problem = fmt.Errorf("%w; its last error: %s", problem, job.LastError)
	}
	return t.worker.withLog(problem)
}
