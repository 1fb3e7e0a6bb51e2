package janitor

import (
	"context"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/sleep"
)

// limits are the times after which the server ends a statement of a step. The server ends only the
// statement, so that the step keeps its connection.
type limits struct {
	statement time.Duration
	lock      time.Duration // how long a lock may be waited for
}

// turn runs work in a transaction of its own, under the advisory lock of the role. If another session
// has the lock, it returns ran = false without an error, unless force is set: then it runs work
// without the lock. The lock ends with the transaction. The server ends the transaction when the
// janitor hangs or vanishes in it.
func (j *Janitor) turn(ctx context.Context, on beginner, limits limits, role db.LockRole, force bool,
	work func(context.Context, session) error,
) (ran bool, err error) {
	milliseconds := func(limit time.Duration) string { return strconv.FormatInt(limit.Milliseconds(), 10) }
	class, object := j.schema.AdvisoryKey(role)
	params := db.JanitorTurnParams{
		Class: class, Object: object,
		StatementMs: milliseconds(limits.statement), LockMs: milliseconds(limits.lock), IdleMs: milliseconds(j.config.LeaderTTL),
	}
	// Set explicitly, because a role can have another default: dependency_step needs read committed.
	err = pgx.BeginTxFunc(ctx, on, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		lock, err := j.schema.Queries(tx).JanitorTurn(ctx, params)
		if err != nil || !lock.Locked && !force {
			return err
		}
		ran = true
		return work(ctx, tx)
	})
	return ran, err
}

// beginner is a pool or a connection.
type beginner interface {
	BeginTx(ctx context.Context, options pgx.TxOptions) (pgx.Tx, error)
}

// takeTurns is the work of ModeAny: it does passes on pooled connections, each step under a lock that
// ends with the step's transaction.
func (j *Janitor) takeTurns(ctx context.Context, started, healthy func()) error {
	pool := j.pool()
	if err := j.checkVersion(ctx); err != nil {
		return err
	}
	if err := j.recall(ctx); err != nil {
		return err
	}
	started()
	passes := j.newPasses(pool)
	passes.beats = true
	neglect := j.newNeglect()
	passes.step = func(ctx context.Context, work func(context.Context, session) error) (bool, error) {
		return j.turn(ctx, pool, stepLimits, db.LockJanitor, neglect.lasts(), work)
	}
	passes.overdueFunc = func(ctx context.Context, late time.Duration) {
		// It is normal to find the lock taken now and then: another janitor is at
		// work. Warn only when no step has got it for longer than the bound.
		if passes.refused > 0 && time.Since(passes.refusedSince) > neglect.bound {
			neglect.notice(ctx, late, db.LockJanitor)
		}
	}
	return passes.run(ctx, func(ctx context.Context, duration time.Duration, _ float64) error {
		healthy()
		return sleep.For(ctx, duration)
	})
}
