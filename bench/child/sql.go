package child

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"
)

const (
	sqlConnections = 2
	sqlBatch       = 500
	sqlSettings    = "set search_path = layout; set enable_seqscan = off; set enable_hashjoin = off; set enable_mergejoin = off"
)

// sqlSystem is no queue: it claims and completes with hand-written SQL on
// jobq's layout, without handlers, retries, wake-ups or counts. It is the
// limit that the layout sets.
type sqlSystem struct{}

func (sqlSystem) setUp(ctx context.Context, pool *pgxpool.Pool) error {
	_, err := pool.Exec(ctx, "create schema layout; set search_path = layout;"+layoutTables)
	return err
}

func (sqlSystem) start(ctx context.Context, pool *pgxpool.Pool, _ Order, ran func(int64)) (func() error, error) {
	group, ctx := errgroup.WithContext(ctx)
	for i := range sqlConnections {
		group.Go(func() error {
			conn, err := pgx.ConnectConfig(ctx, pool.Config().ConnConfig)
			if err != nil {
				return err
			}
			defer func() { _ = conn.Close(ctx) }() // all is committed
			if _, err := conn.Exec(ctx, sqlSettings); err != nil {
				return err
			}
			return drainLayout(ctx, conn, fmt.Sprint("owner", os.Getpid(), "-", i), sqlBatch, func(jobs int) {
				for range jobs {
					ran(0)
				}
			})
		})
	}
	return group.Wait, nil
}

func (sqlSystem) producer(*pgxpool.Pool, Order) (producer, error) {
	return nil, errors.New("hand-written SQL enqueues nothing")
}
