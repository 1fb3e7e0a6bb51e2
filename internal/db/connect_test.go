package db_test

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/pgtest"
)

// When Close returns, the statement that was interrupted has ended in the server,
// and its locks with it, also when the first request to cancel it was lost.
func TestCloseEndsTheStatement(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	for name, lost := range map[string]int32{"cancelled at once": 0, "requests lost": 3} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config, err := pgxpool.ParseConfig(pool.Config().ConnString())
			require.NoError(t, err)
			dial := config.ConnConfig.DialFunc
			var connected atomic.Bool
			var requests atomic.Int32
			config.ConnConfig.DialFunc = pgconn.DialFunc(func(ctx context.Context, network, address string) (net.Conn, error) {
				if connected.Load() && requests.Add(1) <= lost {
					return nil, errors.New("lost")
				}
				return dial(ctx, network, address)
			})
			conn, err := db.Connect(context.Background(), config, nil)
			require.NoError(t, err)
			connected.Store(true)
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			ended := make(chan error, 1)
			go func() {
				_, err := conn.Exec(ctx, "select pg_sleep(3600)")
				ended <- err
			}()
			sessions := func(state string) (count int) {
				require.NoError(t, pool.QueryRow(context.Background(),
					"select count(*) from pg_stat_activity where pid = $1 and ($2 = '' or state = $2 and wait_event = 'PgSleep')", conn.PgConn().PID(), state).Scan(&count))
				return count
			}
			require.Eventually(t, func() bool { return sessions("active") == 1 }, patience, 5*time.Millisecond)
			cancel()
			require.Error(t, <-ended)
			db.Close(conn, patience)
			require.Zero(t, sessions(""))
		})
	}
}
