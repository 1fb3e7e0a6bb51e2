package db

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Connect opens a connection as a pool with this configuration does, with all
// its hooks: BeforeConnect may bring a password that changes, AfterConnect a
// role, DialFunc the way to the server. change, if not nil, is given a copy of
// the settings first. It is the only way in which jobq opens a connection that
// is no pool's; the caller closes it.
func Connect(ctx context.Context, config *pgxpool.Config, change func(*pgx.ConnConfig)) (*pgx.Conn, error) {
	config = config.Copy()
	config.MinConns, config.MinIdleConns, config.MaxConns = 0, 0, 1
	if change != nil {
		change(config.ConnConfig)
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	return conn.Hijack(), nil
}
