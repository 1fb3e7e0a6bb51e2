package db

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// errUnprepared is of a connection that the pool's hooks do not want to be used.
var errUnprepared = errors.New("the pool's PrepareConn or BeforeAcquire refuses the connection")

// Connect opens a connection as a pool with this configuration does, with all
// its hooks: BeforeConnect may bring a password that changes, AfterConnect a
// role, DialFunc the way to the server. change, if not nil, is given a copy of
// the settings first. It is the only way in which jobq opens a connection that
// is no pool's; the caller closes it. Hooks run in the caller's goroutine, where
// the terminal UI can recover from a panic of theirs.
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
	conn, err := pgx.ConnectConfig(ctx, settings)
	if err != nil {
		return nil, err
	}
	if err := prepare(ctx, config, conn); err != nil {
		_ = conn.Close(ctx) // the error says more
		return nil, err
	}
	return conn, nil
}

// prepare calls the hooks that a pool has for a connection before its first use.
func prepare(ctx context.Context, config *pgxpool.Config, conn *pgx.Conn) error {
	if config.AfterConnect != nil {
		if err := config.AfterConnect(ctx, conn); err != nil {
			return err
		}
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
