package db_test

import (
	"bytes"
	"context"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/pgtest"
)

// mute is a connection whose client reads nothing any more once it is muted, as if
// its machine had lost power.
type mute struct {
	net.Conn
	muted, closed chan struct{}
	close         sync.Once
}

func (m *mute) Read(buffer []byte) (int, error) {
	select {
	case <-m.muted:
		<-m.closed
		return 0, net.ErrClosed
	default:
		return m.Conn.Read(buffer)
	}
}

func (m *mute) Close() error {
	m.close.Do(func() { close(m.closed) })
	return m.Conn.Close()
}

// noticing is a configuration of a pool whose connections notice loss.
func noticing(t *testing.T, url string, sessions db.Sessions, within time.Duration) *pgxpool.Config {
	t.Helper()
	schema, err := db.NewSchema("")
	require.NoError(t, err)
	schema.Assume(sessions)
	config, err := pgxpool.ParseConfig(url)
	require.NoError(t, err)
	schema.NoticeLoss(config, within)
	return config
}

// A session that has locked a lease in the middle of a batch, and whose client has
// vanished, ends within seconds. The client reads nothing, and the answer is more
// than the network holds, so that the server waits for an acknowledgement. Where the
// session may be another client's next, its settings stay as they are.
func TestServerNoticesLoss(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	url := pgtest.TCPServer(t).URL("postgres")
	pool := pgtest.Connect(t, url)
	_, err := pool.Exec(ctx, "create table public.held as select 1 as id")
	require.NoError(t, err)
	count := func(conn db.DBTX, sql string) (count int) {
		require.NoError(t, conn.QueryRow(ctx, sql).Scan(&count))
		return count
	}

	const timeouts = "select setting::integer from pg_settings where name = 'tcp_user_timeout'"
	for _, sessions := range []db.Sessions{db.SessionsAuto, db.SessionsShared} {
		require.Zero(t, count(pgtest.ConnectConfig(t, noticing(t, url, sessions, 4*time.Second)), timeouts))
	}
	config := noticing(t, url, db.SessionsOwn, 4*time.Second)
	muted := make(chan struct{})
	var client net.Conn
	dial := config.ConnConfig.DialFunc
	config.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if client != nil { // to cancel the statement
			return conn, err
		}
		client = &mute{Conn: conn, muted: muted, closed: make(chan struct{})}
		return client, err
	}
	conn, err := db.Connect(ctx, config, nil)
	require.NoError(t, err)
	require.Equal(t, 4000, count(conn, timeouts))
	_, err = conn.Exec(ctx, "begin; select from public.held for update", pgx.QueryExecModeSimpleProtocol)
	require.NoError(t, err)
	isFree := func() bool {
		return count(pool, "select count(*) from (select from public.held for update skip locked) free") == 1
	}
	require.False(t, isFree())
	close(muted)
	var reading sync.WaitGroup
	defer reading.Wait()
	defer func() { _ = client.Close() }()
	reading.Go(func() {
		_, _ = conn.Exec(ctx, "select repeat('x', 1000000) from generate_series(1, 300)") // ends with the connection
	})
	require.Eventually(t, isFree, patience, 50*time.Millisecond)
}

// rewriting is a connection that sends something else instead of one statement. The
// other is filled up with spaces, so that the message stays as long as it says.
type rewriting struct {
	net.Conn
	from, to string
}

func (r *rewriting) Write(message []byte) (int, error) {
	if at := bytes.Index(message, []byte(r.from)); at >= 0 {
		message = bytes.Clone(message)
		end := at + bytes.IndexByte(message[at:], 0)
		copy(message[at:end], r.to+strings.Repeat(" ", end-at-len(r.to)))
	}
	return r.Conn.Write(message)
}

// rewritten is a pool whose connections notice loss, and send the other statement
// instead of the one that begins so.
func rewritten(t *testing.T, url, from, to string) *pgxpool.Pool {
	t.Helper()
	config := noticing(t, url, db.SessionsOwn, 8*time.Second)
	dial := config.ConnConfig.DialFunc
	config.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		return &rewriting{conn, from, to}, err
	}
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return pool
}

// A server that refuses one of the settings keeps the other, in either order. One
// that ends the session while they are made has refused nothing: there is no
// connection.
func TestServerRefusesSettings(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	url := pgtest.TCPServer(t).URL("postgres")
	const idle, timeout = "select pg_catalog.set_config('tcp_keepalives_idle'", "select pg_catalog.set_config('tcp_user_timeout'"
	for refused, set := range map[string][]bool{idle: {false, true}, timeout: {true, false}} {
		var found []bool
		err := rewritten(t, url, refused, "select set_config('no', '', true)").QueryRow(ctx, `select array_agg(setting in ('4', '8000') order by name)
			from pg_settings where name in ('tcp_keepalives_idle', 'tcp_user_timeout')`).Scan(&found)
		require.NoError(t, err)
		require.Equal(t, set, found, refused)
	}
	for _, ended := range []string{idle, timeout} {
		_, err := rewritten(t, url, ended, "select pg_terminate_backend(pg_backend_pid())").Exec(ctx, "select")
		var fatal *pgconn.PgError
		require.ErrorAs(t, err, &fatal)
		require.Equal(t, "57P01", fatal.Code)
	}
}
