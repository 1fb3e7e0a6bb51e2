package migrate

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/jobq-dev/jobq/internal/db"
)

const (
	lockPoll      = 200 * time.Millisecond
	unlockTimeout = 5 * time.Second
	// dropTimeout is the longest wait for the lock on the bookkeeping table before it is dropped.
	dropTimeout = 5 * time.Second
)

// lock waits for its turn among migrators of the schema, in whatever process,
// and returns the function that ends the turn.
//
// The lock belongs to a transaction, so that a pooler cannot keep it in a session, and
// that transaction holds no snapshot (idleTransaction). A statement that waits for the
// lock would hold a snapshot too, so a migrator that does not get the lock asks again
// every 200 ms. It logs once for which session it waits: any role may take this lock.
func lock(ctx context.Context, pool *pgxpool.Pool, schema *db.Schema, logger *slog.Logger) (unlock func(), err error) {
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	class, object := schema.AdvisoryKey(db.LockMigrate)
	ask := fmt.Sprintf("begin; %s; select pg_try_advisory_xact_lock(%d, %d)", idleTransaction, class, object)
	for told := false; ; {
		results, err := conn.Conn().PgConn().Exec(ctx, ask).ReadAll()
		if err != nil {
			conn.Release()
			return nil, fmt.Errorf("wait for other migrators: %w", err)
		}
		answer := results[len(results)-1].Rows
		if len(answer) == 1 && string(answer[0][0]) == "t" {
			break
		}
		if _, err := conn.Conn().PgConn().Exec(ctx, "rollback").ReadAll(); err != nil {
			conn.Release()
			return nil, fmt.Errorf("wait for other migrators: %w", err)
		}
		if !told {
			told = true
			logger.Warn("waiting for another migration", holder(ctx, conn.Conn(), schema, class, object)...)
		}
		select {
		case <-ctx.Done():
			conn.Release()
			return nil, fmt.Errorf("another migration is under way: %w", ctx.Err())
		case <-time.After(lockPoll):
		}
	}
	return func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), unlockTimeout)
		defer cancel()
		_, _ = conn.Conn().PgConn().Exec(ctx, "rollback").ReadAll() // if it fails, the connection is closed, and the lock with it
		conn.Release()
	}, nil
}

// holder describes the session that has the lock, for the log.
func holder(ctx context.Context, conn *pgx.Conn, schema *db.Schema, class, object int32) []any {
	ctx, cancel := context.WithTimeout(ctx, unlockTimeout)
	defer cancel()
	session, err := schema.Queries(conn).LockHolder(ctx, int64(class), int64(object))
	if err != nil {
		return []any{"holder", "unknown"} // gone meanwhile
	}
	return []any{"holder_pid", session.Pid.Int32, "holder_application", session.Application, "holder_address", session.Address}
}
