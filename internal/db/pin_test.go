package db_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/pgtest"
)

const sessionSettings = `select current_setting('search_path'), current_setting('DateStyle'), current_setting('quote_all_identifiers'),
	current_setting('default_transaction_isolation'), current_setting('statement_timeout'), current_setting('row_security'), coalesce(current_setting('jobq.notify', true), '')`

type session struct{ searchPath, dateStyle, quotes, isolation, timeout, rowSecurity, notify string }

func readSession(t *testing.T, conn interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
},
) (s session) {
	t.Helper()
	require.NoError(t, conn.QueryRow(context.Background(), sessionSettings).Scan(&s.searchPath, &s.dateStyle, &s.quotes, &s.isolation, &s.timeout, &s.rowSecurity, &s.notify))
	return s
}

// strangeDatabase is a database whose sessions have strange settings.
func strangeDatabase(t *testing.T) (url string) {
	t.Helper()
	url = pgtest.EmptyURL(t)
	config, err := pgx.ParseConfig(url)
	require.NoError(t, err)
	pool := pgtest.Connect(t, url)
	for _, setting := range []string{
		"search_path = public, pg_catalog", "datestyle = 'SQL, DMY'", "quote_all_identifiers = on", "default_transaction_isolation = serializable", "statement_timeout = 3000", "jobq.notify = off",
	} {
		_, err := pool.Exec(context.Background(), fmt.Sprintf("alter database %s set %s", config.Database, setting))
		require.NoError(t, err)
	}
	return url
}

var (
	pinnedSession  = session{"pg_catalog, pg_temp", "ISO, MDY", "off", "read committed", "0", "off", "on"}
	strangeSession = session{"public, pg_catalog", "SQL, DMY", "on", "serializable", "3s", "on", "off"}
)

// Each connection of jobq's own has the settings that its statements need, and an application's has those of its database.
func TestPinnedSessions(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	url := strangeDatabase(t)
	require.Equal(t, strangeSession, readSession(t, pgtest.Connect(t, url)))
	config, err := pgxpool.ParseConfig(url)
	require.NoError(t, err)
	conn, err := db.Connect(ctx, config, nil)
	require.NoError(t, err)
	defer db.Close(conn, db.CloseTimeout)
	require.Equal(t, pinnedSession, readSession(t, conn))
	db.PinPool(config)
	require.Equal(t, pinnedSession, readSession(t, pgtest.ConnectConfig(t, config)))
	config.ConnConfig.RuntimeParams["statement_timeout"] = "7s" // what the connection itself is told holds
	own := pinnedSession
	own.timeout = "7s"
	require.Equal(t, own, readSession(t, pgtest.ConnectConfig(t, config)))
}

// A session that a pooler shares keeps its settings: the next client would meet others.
func TestSharedSessionsAreNotPinned(t *testing.T) {
	t.Parallel()
	url := strangeDatabase(t)
	pooler := pgtest.StartPgBouncer(t, url, map[string]string{"pool_mode": "transaction", "default_pool_size": "1"})
	config, err := pgxpool.ParseConfig(pooler.URL(t, url))
	require.NoError(t, err)
	config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
	other := pgtest.ConnectConfig(t, config)
	before := readSession(t, other)
	pinning := config.Copy()
	db.PinPool(pinning)
	shared := readSession(t, pgtest.ConnectConfig(t, pinning))
	require.Equal(t, strangeSession.searchPath, shared.searchPath)
	require.Equal(t, pinnedSession.dateStyle, shared.dateStyle, "the pooler takes this when a connection begins, and gives it to each client")
	require.Equal(t, before, readSession(t, other))
	tx, err := pgtest.ConnectConfig(t, pinning).Begin(context.Background())
	require.NoError(t, err)
	_, err = tx.Exec(context.Background(), db.PinLocalSQL(), pgx.QueryExecModeSimpleProtocol)
	require.NoError(t, err)
	local := readSession(t, tx)
	require.Equal(t, pinnedSession.searchPath, local.searchPath)
	require.NoError(t, tx.Rollback(context.Background()))
	require.Equal(t, before, readSession(t, other))
}
