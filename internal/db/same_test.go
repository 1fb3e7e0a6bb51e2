package db_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/pgtest"
)

// A connection past a pooler is told from one to another database of the same server,
// and from one to the database of the same name on another server. Nothing is left in
// any session.
func TestSameDatabase(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	direct := pgtest.EmptyURL(t)
	pooler := pgtest.StartPgBouncer(t, direct, map[string]string{"pool_mode": "transaction", "default_pool_size": "1"})
	connect := func(url string) *pgx.Conn {
		conn, err := pgx.Connect(ctx, url)
		require.NoError(t, err)
		t.Cleanup(func() { db.Close(conn, patience) })
		return conn
	}
	for name, test := range map[string]struct {
		direct, pooled string
		same           bool
	}{
		"directly":         {direct, pooler.URL(t, direct), true},
		"no pooler":        {direct, direct, true},
		"another database": {pgtest.EmptyURL(t), pooler.URL(t, direct), false},
		"another server":   {pgtest.TCPServer(t).URL("postgres"), pgtest.Server(t).URL("postgres"), false},
	} {
		one, other := connect(test.direct), connect(test.pooled)
		err := db.CheckSameDatabase(ctx, one, other)
		if test.same {
			require.NoError(t, err, name)
		} else {
			require.ErrorIs(t, err, db.ErrOtherDatabase, name)
			require.False(t, db.IsTransient(err), name)
		}
		for _, conn := range []*pgx.Conn{one, other} {
			var locks int
			require.NoError(t, conn.QueryRow(ctx, "select count(*) from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()", pgx.QueryExecModeSimpleProtocol).Scan(&locks))
			require.Zero(t, locks, name)
		}
	}
}

// A way to listen that leads nowhere is no error: polling does without. None is none
// either.
func TestListenWayIsAway(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	pool := pgtest.Connect(t, pgtest.EmptyURL(t))
	require.NoError(t, db.CheckListen(ctx, nil, pool))
	proxy := pgtest.StartProxy(t, pgtest.EmptyURL(t))
	way, err := pgxpool.ParseConfig(proxy.URL)
	require.NoError(t, err)
	require.ErrorIs(t, db.CheckListen(ctx, way, pool), db.ErrOtherDatabase)
	proxy.Refuse(true)
	require.NoError(t, db.CheckListen(ctx, way, pool))
}
