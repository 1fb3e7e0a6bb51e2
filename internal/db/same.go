package db

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// ErrOtherDatabase is of a connection for notifications that leads to another database
// than the pool, or to a standby: nothing would ever be heard there.
var ErrOtherDatabase = errors.New("the connection for notifications (--listen-url or JOBQ_LISTEN_URL, in Go Listen) does not lead to the pool's database")

// listenTimeout is how long CheckListen tries to connect: a host that does not answer must
// not keep a command from its work for long.
const listenTimeout = 7 * time.Second

// CheckSameDatabase returns ErrOtherDatabase when two connections are not to the same
// database of the same running server. Names and addresses do not tell: a pooler has
// its own, and a copy of a server has even the identifier of the original. So the first
// connection locks a number that nobody else uses, and the second one tries to.
//
// Only the second may share its session with others, and nothing is left in either.
func CheckSameDatabase(ctx context.Context, direct, pooled *pgx.Conn) error {
	number := rand.Int64() // #nosec G404 -- no secret
	return pgx.BeginFunc(ctx, direct, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "select pg_catalog.pg_advisory_xact_lock($1)", pgx.QueryExecModeSimpleProtocol, number); err != nil {
			return err
		}
		var free bool
		err := pooled.QueryRow(ctx, "select pg_catalog.pg_try_advisory_xact_lock($1)", pgx.QueryExecModeSimpleProtocol, number).Scan(&free)
		if err == nil && free {
			err = fmt.Errorf("%w: %s is another than %s, or a standby", ErrOtherDatabase, databaseOf(direct), databaseOf(pooled))
		}
		return err
	})
}

// databaseOf names the database of a connection, without anything secret.
func databaseOf(conn *pgx.Conn) string {
	config := conn.Config()
	return fmt.Sprintf("%q at %s:%d", config.Database, config.Host, config.Port)
}

// CheckListen returns ErrOtherDatabase when connections for notifications lead to
// another database than the pool. One that cannot be made is no error: whoever listens
// tells of it, polls, and tries again.
func CheckListen(ctx context.Context, listen *pgxpool.Config, pool *pgxpool.Pool) error {
	if listen == nil {
		return nil
	}
	connecting, cancel := context.WithTimeout(ctx, listenTimeout)
	defer cancel()
	direct, err := Connect(connecting, listen, nil)
	if err != nil {
		return nil //nolint:nilerr // see above
	}
	defer Close(direct, CloseTimeout)
	pooled, err := pool.Acquire(ctx)
	if err != nil {
		return nil //nolint:nilerr // the next statement on the pool says more
	}
	defer pooled.Release()
	if err := CheckSameDatabase(ctx, direct, pooled.Conn()); errors.Is(err, ErrOtherDatabase) {
		return err
	}
	return nil
}
