package migrate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/jobq-dev/jobq/internal/db"
)

const (
	lockPoll      = 200 * time.Millisecond
	unlockTimeout = 5 * time.Second
)

// lock waits for its turn among migrators of the schema, in whatever process,
// and returns the function that ends the turn.
//
// The lock belongs to a transaction, so that a pooler cannot leave it behind,
// and that transaction must hold no snapshot, for which CREATE INDEX
// CONCURRENTLY would wait for ever: hence the simple protocol. For the same
// reason nobody blocks in the server for the lock: they ask again.
func lock(ctx context.Context, pool *pgxpool.Pool, schema *db.Schema) (unlock func(), err error) {
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	class, object := schema.AdvisoryKey(db.LockMigrate)
	ask := fmt.Sprintf("begin; select pg_try_advisory_xact_lock(%d, %d)", class, object)
	for {
		results, err := conn.Conn().PgConn().Exec(ctx, ask).ReadAll()
		if err != nil {
			conn.Release()
			return nil, fmt.Errorf("wait for other migrators: %w", err)
		}
		locked := len(results) == 2 && len(results[1].Rows) == 1 && string(results[1].Rows[0][0]) == "t"
		if locked {
			break
		}
		if _, err := conn.Conn().PgConn().Exec(ctx, "rollback").ReadAll(); err != nil {
			conn.Release()
			return nil, fmt.Errorf("wait for other migrators: %w", err)
		}
		select {
		case <-ctx.Done():
			conn.Release()
			return nil, errors.Join(errors.New("another migration is under way"), ctx.Err())
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
