package db_test

import (
	"context"
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/pgtest"
)

// wrapped hides what the connection is.
type wrapped struct{ net.Conn }

// A pool pings an idle connection where the server has ended it, or where nobody can
// tell, and no other.
func TestPingInDoubt(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("elsewhere each idle connection is pinged, as by default")
	}
	ctx := context.Background()
	other := pgtest.Pool(t)
	config := other.Config()
	db.PingInDoubt(config)
	connect := func(change func(*pgx.ConnConfig)) *pgx.Conn {
		conn, err := db.Connect(ctx, config, change)
		require.NoError(t, err)
		t.Cleanup(func() { db.Close(conn, db.CloseTimeout) })
		return conn
	}
	pings := func(conn *pgx.Conn, idle time.Duration) bool {
		return config.ShouldPing(ctx, pgxpool.ShouldPingParams{Conn: conn, IdleDuration: idle})
	}
	conn := connect(nil)
	require.False(t, pings(conn, time.Hour), "it is open")
	_, err := conn.Exec(ctx, "select 1")
	require.NoError(t, err)
	require.False(t, pings(conn, time.Hour), "it is open, and was used")
	_, err = other.Exec(ctx, "select pg_terminate_backend($1)", conn.PgConn().PID())
	require.NoError(t, err)
	require.Eventually(t, func() bool { return pings(conn, time.Hour) }, time.Minute, time.Millisecond, "the server has ended it")
	require.False(t, pings(conn, time.Millisecond), "it was not idle")

	hidden := connect(func(config *pgx.ConnConfig) {
		dial := config.DialFunc
		config.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := dial(ctx, network, address)
			if err != nil {
				return nil, err
			}
			return wrapped{conn}, nil
		}
	})
	require.True(t, pings(hidden, time.Hour), "nobody can tell")
}

// A pool whose application has said when to ping does that.
func TestPingAsTheApplicationSays(t *testing.T) {
	t.Parallel()
	config, err := pgxpool.ParseConfig("host=nowhere")
	require.NoError(t, err)
	config.ShouldPing = func(context.Context, pgxpool.ShouldPingParams) bool { return true }
	db.PingInDoubt(config)
	require.True(t, config.ShouldPing(context.Background(), pgxpool.ShouldPingParams{}))
}
