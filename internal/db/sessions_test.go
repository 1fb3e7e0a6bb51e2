package db_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/pgtest"
)

// What shares sessions is told from what does not, by how it behaves: also with
// one session, with sessions that are handed out in turn, and while others use
// them.
func TestFindSessions(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		settings map[string]string // of PgBouncer; nil for none
		busy     int               // other clients
		want     db.Sessions
	}{
		"direct":                 {nil, 0, db.SessionsOwn},
		"direct, busy":           {nil, 4, db.SessionsOwn},
		"session":                {map[string]string{"pool_mode": "session"}, 0, db.SessionsOwn},
		"session, busy":          {map[string]string{"pool_mode": "session"}, 4, db.SessionsOwn},
		"transaction":            {map[string]string{"pool_mode": "transaction"}, 0, db.SessionsShared},
		"transaction, busy":      {map[string]string{"pool_mode": "transaction"}, 8, db.SessionsShared},
		"one session":            {map[string]string{"pool_mode": "transaction", "default_pool_size": "1"}, 0, db.SessionsShared},
		"one session, busy":      {map[string]string{"pool_mode": "transaction", "default_pool_size": "1"}, 4, db.SessionsShared},
		"two in turn":            {map[string]string{"pool_mode": "transaction", "default_pool_size": "2", "server_round_robin": "1"}, 0, db.SessionsShared},
		"five in turn":           {map[string]string{"pool_mode": "transaction", "default_pool_size": "5", "server_round_robin": "1"}, 0, db.SessionsShared},
		"two in turn, busy":      {map[string]string{"pool_mode": "transaction", "default_pool_size": "2", "server_round_robin": "1"}, 4, db.SessionsShared},
		"statement by statement": {map[string]string{"pool_mode": "statement"}, 0, db.SessionsShared},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := context.Background()
			url := pgtest.EmptyURL(t)
			if test.settings != nil {
				url = pgtest.StartPgBouncer(t, url, test.settings).URL(t, url)
			}
			config, err := pgxpool.ParseConfig(url)
			require.NoError(t, err)
			for range test.busy {
				keepBusy(t, url)
			}
			// Not prepared, so that a test of many times leaves nothing behind either.
			for range 5 {
				conn, err := db.Connect(ctx, config, nil)
				require.NoError(t, err)
				sessions, err := db.FindSessions(ctx, db.SessionsAuto, conn, config)
				require.NoError(t, err)
				require.Equal(t, test.want, sessions)
				require.NoError(t, conn.Close(ctx))
			}
		})
	}
}

// Several processes of a pooler behind one address, as behind a load balancer,
// are found out although two connections may be with different ones; and so are
// those that give each connection a session of its own.
func TestFindSessionsOfManyPoolers(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for mode, want := range map[string]db.Sessions{"transaction": db.SessionsShared, "session": db.SessionsOwn} {
		for _, processes := range []int{2, 3} {
			t.Run(fmt.Sprint(mode, " ", processes), func(t *testing.T) {
				t.Parallel()
				direct := pgtest.EmptyURL(t)
				var poolers []*pgx.ConnConfig
				for range processes {
					url := pgtest.StartPgBouncer(t, direct, map[string]string{"pool_mode": mode}).URL(t, direct)
					pooler, err := pgx.ParseConfig(url)
					require.NoError(t, err)
					poolers = append(poolers, pooler)
				}
				config, err := pgxpool.ParseConfig(direct)
				require.NoError(t, err)
				var count atomic.Int64
				config.ConnConfig.DialFunc = func(ctx context.Context, _, _ string) (net.Conn, error) {
					next := poolers[int(count.Add(1))%len(poolers)]
					return (&net.Dialer{}).DialContext(ctx, "unix", filepath.Join(next.Host, fmt.Sprintf(".s.PGSQL.%d", next.Port)))
				}
				for range 3 {
					conn, err := db.Connect(ctx, config, nil)
					require.NoError(t, err)
					sessions, err := db.FindSessions(ctx, db.SessionsAuto, conn, config)
					require.NoError(t, err)
					require.Equal(t, want, sessions)
					require.NoError(t, conn.Close(ctx))
				}
			})
		}
	}
}

// keepBusy runs transactions through a connection of its own until the test ends.
func keepBusy(t *testing.T, url string) {
	t.Helper()
	conn, err := pgx.Connect(context.Background(), url)
	require.NoError(t, err)
	stop, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		for {
			select {
			case <-stop:
				ended <- conn.Close(context.Background())
				return
			default:
			}
			if _, err := conn.Exec(context.Background(), "select pg_sleep(0.001)"); err != nil {
				ended <- err
				return
			}
		}
	}()
	t.Cleanup(func() {
		close(stop)
		require.NoError(t, <-ended)
	})
}

// What is told is not looked for; and where the second connection cannot be had,
// the answer is the safe one, with the reason.
func TestFindSessionsInDoubt(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	config, err := pgxpool.ParseConfig(pgtest.EmptyURL(t))
	require.NoError(t, err)
	conn, err := db.Connect(ctx, config, nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close(ctx)) }()
	refused := errors.New("no more connections")
	config.BeforeConnect = func(context.Context, *pgx.ConnConfig) error { return refused }
	for _, known := range []db.Sessions{db.SessionsOwn, db.SessionsShared} {
		sessions, err := db.FindSessions(ctx, known, conn, config)
		require.NoError(t, err)
		require.Equal(t, known, sessions)
	}
	sessions, err := db.FindSessions(ctx, db.SessionsAuto, conn, config)
	require.ErrorIs(t, err, refused)
	require.Equal(t, db.SessionsShared, sessions)
	require.Error(t, db.Sessions("some").Validate())
}

// A client that was never checked meets another's prepared statement, behind a
// pooler: it sends its own again, in each of its ways to send, and prepares none
// afterwards.
func TestStatementsThatMeetOthers(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	direct := pgtest.URL(t)
	url := pgtest.StartPgBouncer(t, direct, map[string]string{"pool_mode": "transaction", "default_pool_size": "1"}).URL(t, direct)
	for _, call := range []func(*db.Queries) error{
		func(q *db.Queries) error { return q.WorkerGone(ctx, "none") },
		func(q *db.Queries) error { _, err := q.PresenceFree(ctx, 1, 2); return err },
		func(q *db.Queries) error { _, err := q.WorkerList(ctx); return err },
	} {
		for range 2 { // the second finds the statement of the first
			schema, err := db.NewSchema("")
			require.NoError(t, err)
			config, err := pgxpool.ParseConfig(url)
			require.NoError(t, err)
			schema.Protect(config)
			queries := schema.Queries(pgtest.ConnectConfig(t, config))
			for range 3 {
				require.NoError(t, call(queries))
			}
		}
	}
}

// A statement that the session has forgotten is sent again too, in each way to
// send; in a transaction, which has ended by then, the next try succeeds.
func TestStatementsThatWereForgotten(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for name, call := range map[string]func(*db.Queries) error{
		"exec": func(q *db.Queries) error { return q.WorkerGone(ctx, "none") },
		"one":  func(q *db.Queries) error { _, err := q.PresenceFree(ctx, 1, 2); return err },
		"many": func(q *db.Queries) error { _, err := q.WorkerList(ctx); return err },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config, err := pgxpool.ParseConfig(pgtest.URL(t))
			require.NoError(t, err)
			config.MaxConns = 1
			pool := pgtest.ConnectConfig(t, config)
			forget := func() {
				_, err := pool.Exec(ctx, "deallocate all")
				require.NoError(t, err)
			}
			for _, sessions := range []db.Sessions{db.SessionsAuto, db.SessionsOwn} {
				schema, err := db.NewSchema("")
				require.NoError(t, err)
				schema.Assume(sessions)
				require.NoError(t, call(schema.Queries(pool)))
				forget()
				err = call(schema.Queries(pool))
				require.Equal(t, sessions == db.SessionsOwn, db.IsForeignStatement(err), "%v", err)
			}
			schema, err := db.NewSchema("")
			require.NoError(t, err)
			inTransaction := func() error {
				return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { return call(schema.Queries(tx)) })
			}
			require.NoError(t, inTransaction())
			forget()
			require.True(t, db.IsForeignStatement(inTransaction()))
			require.NoError(t, inTransaction())
		})
	}
}

// A hook of the pool's that fails keeps a connection from being made, and the
// change comes before the hooks, on a copy.
func TestConnectCallsTheHooks(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	config, err := pgxpool.ParseConfig(pgtest.EmptyURL(t))
	require.NoError(t, err)
	before := config.ConnConfig.RuntimeParams["application_name"]
	var seen string
	config.BeforeConnect = func(_ context.Context, conn *pgx.ConnConfig) error {
		seen = conn.RuntimeParams["application_name"]
		return nil
	}
	config.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, "set my.hook = 'called'")
		return err
	}
	conn, err := db.Connect(ctx, config, func(conn *pgx.ConnConfig) { conn.RuntimeParams["application_name"] = "changed" })
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close(ctx)) }()
	var hook string
	require.NoError(t, conn.QueryRow(ctx, "select current_setting('my.hook')").Scan(&hook))
	require.Equal(t, "called", hook)
	require.Equal(t, "changed", seen)
	require.Equal(t, before, config.ConnConfig.RuntimeParams["application_name"])

	refused := errors.New("no")
	config.AfterConnect = func(context.Context, *pgx.Conn) error { return refused }
	_, err = db.Connect(ctx, config, nil)
	require.ErrorIs(t, err, refused)
	config.AfterConnect = nil
	config.PrepareConn = func(context.Context, *pgx.Conn) (bool, error) { return false, nil }
	_, err = db.Connect(ctx, config, nil)
	require.ErrorContains(t, err, "PrepareConn")

	// A server that never answers holds nobody longer than the context.
	proxy := pgtest.StartProxy(t, pgtest.EmptyURL(t))
	proxy.Swallow()
	config, err = pgxpool.ParseConfig(proxy.URL)
	require.NoError(t, err)
	short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	_, err = db.Connect(short, config, nil)
	require.ErrorIs(t, err, context.DeadlineExceeded)
}
