package db

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	// CloseTimeout is for how long to wait, when a connection is closed, for a
	// server that may not answer.
	CloseTimeout = time.Second
	// cancelEvery is how often Close asks again to cancel a statement.
	cancelEvery = 50 * time.Millisecond
)

// errUnprepared is of a connection that the pool's hooks do not want to be used.
var errUnprepared = errors.New("the pool's PrepareConn or BeforeAcquire refuses the connection")

// Connect opens a connection as a pool with this configuration does, with all
// its hooks: BeforeConnect may bring a password that changes, AfterConnect a
// role, DialFunc the way to the server. change, if not nil, is given a copy of
// the settings first. It is the only way in which jobq opens a connection that
// is no pool's; the caller closes it with Close. Hooks run in the caller's
// goroutine, where the terminal UI can recover from a panic of theirs. The session
// then has the settings that jobq needs, whatever they have set: see pins. Its notifications
// are read with AwaitNotification.
func Connect(ctx context.Context, config *pgxpool.Config, change func(*pgx.ConnConfig)) (*pgx.Conn, error) {
	settings := config.ConnConfig.Copy()
	if change != nil {
		change(settings)
	}
	if config.BeforeConnect != nil {
		if err := config.BeforeConnect(ctx, settings); err != nil {
			return nil, err
		}
	}
	pinStartup(settings)
	settings.OnNotification = keepNotification
	conn, err := pgx.ConnectConfig(ctx, settings)
	if err != nil {
		return nil, err
	}
	if err := prepare(ctx, config, conn); err != nil {
		Close(conn, CloseTimeout) // the error says more
		return nil, err
	}
	return conn, nil
}

// Close closes a connection and waits until the server has ended its session, or
// until the timeout, which is CloseTimeout except in tests. When the context of a
// statement ends, pgx gives up the connection at once and only then, beside its
// caller, asks the server to cancel the statement. Who does not wait for that can
// leave the statement behind, with its locks: the process may exit before it has
// asked. The server forgets a request that comes before the statement does, so
// Close repeats it.
func Close(conn *pgx.Conn, timeout time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	_ = conn.Close(ctx) // it is given up either way
	again := time.NewTicker(cancelEvery)
	defer again.Stop()
	for {
		select {
		case <-conn.PgConn().CleanupDone():
			return
		case <-ctx.Done():
			return
		case <-again.C:
			_ = conn.PgConn().CancelRequest(ctx) // the next may get through
		}
	}
}

// prepare calls the hooks that a pool has for a connection before its first use.
func prepare(ctx context.Context, config *pgxpool.Config, conn *pgx.Conn) error {
	if config.AfterConnect != nil {
		if err := config.AfterConnect(ctx, conn); err != nil {
			return err
		}
	}
	if err := pin(ctx, conn, false); err != nil {
		return err
	}
	usable, err := true, error(nil)
	switch {
	case config.PrepareConn != nil:
		usable, err = config.PrepareConn(ctx, conn)
	case config.BeforeAcquire != nil: //nolint:staticcheck // deprecated, and a pool calls it all the same
		usable = config.BeforeAcquire(ctx, conn) //nolint:staticcheck // likewise
	}
	if err == nil && !usable {
		err = errUnprepared
	}
	return err
}
