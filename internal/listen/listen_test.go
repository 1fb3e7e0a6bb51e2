package listen_test

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/listen"
	"github.com/jobq-dev/jobq/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// patience ends a test that hangs: no promise is about it.
const patience = 5 * time.Minute

// heard is a running listener and what it has told.
type heard struct {
	connects   chan struct{}
	payloads   chan string
	unnotified chan struct{}
}

// startListener runs a listener until the test ends.
func startListener(t *testing.T, config *pgxpool.Config, change func(*listen.Config)) *heard {
	t.Helper()
	h := &heard{connects: make(chan struct{}, 100), payloads: make(chan string, 100), unnotified: make(chan struct{}, 1)}
	listenConfig := listen.Config{
		Pool: config, Channels: []string{`odd "Channel"`}, Logger: slog.New(slog.DiscardHandler),
		OnNotify:          func(_, payload string) { h.payloads <- payload },
		OnConnect:         func() { h.connects <- struct{}{} },
		OnNoNotifications: func() { h.unnotified <- struct{}{} },
	}
	if change != nil {
		change(&listenConfig)
	}
	listener, err := listen.New(listenConfig)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = listener.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return h
}

func receive[T any](t *testing.T, from <-chan T, what string) T {
	t.Helper()
	select {
	case value := <-from:
		return value
	case <-time.After(patience):
		require.FailNow(t, "nothing came", what)
		panic("unreachable")
	}
}

func notify(t *testing.T, pool *pgxpool.Pool, payload string) {
	t.Helper()
	_, err := pool.Exec(context.Background(), "select pg_notify($1, $2)", `odd "Channel"`, payload)
	require.NoError(t, err)
}

// endSession makes the server end the listener's connection.
func endSession(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	_, err := pool.Exec(context.Background(), "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'jobq-listen' and datname = current_database()")
	require.NoError(t, err)
}

// A notification arrives, and after the server has ended the connection the
// listener comes back, says so, and hears again.
func TestHearsAndReconnects(t *testing.T) {
	t.Parallel()
	pool := pgtest.Connect(t, pgtest.EmptyURL(t))
	h := startListener(t, pool.Config(), func(c *listen.Config) { c.SelfTest = true })
	receive(t, h.connects, "the first connect")
	notify(t, pool, "one")
	require.Equal(t, "one", receive(t, h.payloads, "the notification"))

	endSession(t, pool)
	receive(t, h.connects, "the second connect")
	notify(t, pool, "two")
	require.Equal(t, "two", receive(t, h.payloads, "the notification after the reconnect"))
	require.Empty(t, h.unnotified)
}

// A connection that has gone silent, both ends open, is noticed by the ping.
func TestNoticesABlackHole(t *testing.T) {
	t.Parallel()
	proxy := pgtest.StartProxy(t, pgtest.EmptyURL(t))
	pool := pgtest.Connect(t, proxy.DirectURL)
	config, err := pgxpool.ParseConfig(proxy.URL)
	require.NoError(t, err)
	h := startListener(t, config, func(c *listen.Config) { c.PingEvery = 50 * time.Millisecond })
	receive(t, h.connects, "the first connect")
	proxy.Swallow()
	receive(t, proxy.Swallowed(), "the black hole")
	proxy.Heal() // for new connections
	receive(t, h.connects, "the connect after the black hole")
	notify(t, pool, "after")
	require.Equal(t, "after", receive(t, h.payloads, "the notification"))
}

// The server is asked to give up the session of a listener whose host has vanished:
// what it has locked says that it is there. Such a host is what fault/hosts.sh has.
func TestServerNoticesLoss(t *testing.T) {
	t.Parallel()
	config, err := pgxpool.ParseConfig(pgtest.TCPServer(t).URL("postgres"))
	require.NoError(t, err)
	found := make(chan string, 1)
	startListener(t, config, func(c *listen.Config) {
		c.OnHealthy = func(ctx context.Context, conn *pgx.Conn) error {
			var settings string
			err := conn.QueryRow(ctx, "select string_agg(name || ' ' || setting, ', ' order by name) from pg_settings where name ~ '^tcp_'").Scan(&settings)
			select {
			case found <- settings:
			default: // a later session's
			}
			return err
		}
	})
	require.Equal(t, "tcp_keepalives_count 2, tcp_keepalives_idle 10, tcp_keepalives_interval 5, tcp_user_timeout 20000", receive(t, found, "the settings"))
}

// Behind a pooler that accepts LISTEN and passes nothing on, the self-test
// finds out, and the session counts as healthy only when a later one finds the
// contrary. The "pooler" is a pg_notify that does nothing, until it is dropped.
func TestDeafnessBeginsAndEnds(t *testing.T) {
	t.Parallel()
	pool := pgtest.Connect(t, pgtest.EmptyURL(t))
	replaceNotify(t, pool, "create function pg_catalog.pg_notify(text, text) returns void language sql as 'select null::void'")
	config := pool.Config()
	healthy := make(chan struct{}, 100)
	h := startListener(t, config, func(c *listen.Config) {
		c.SelfTest = true
		c.OnHealthy = func(context.Context, *pgx.Conn) error {
			healthy <- struct{}{}
			return nil
		}
	})
	receive(t, h.unnotified, "the self-test's verdict")
	endSession(t, pool)
	receive(t, h.unnotified, "the verdict on the second session")
	require.Empty(t, healthy)

	restoreNotify(t, pool)
	endSession(t, pool)
	receive(t, healthy, "word that the third session hears")
	require.Empty(t, h.unnotified)
	notify(t, pool, "after")
	require.Equal(t, "after", receive(t, h.payloads, "the notification"))
}

// replaceNotify puts a function in the place of PostgreSQL's own pg_notify, which has the name pg_notify_away until restoreNotify.
func replaceNotify(t *testing.T, pool *pgxpool.Pool, with string) {
	t.Helper()
	for _, sql := range []string{"alter function pg_catalog.pg_notify(text, text) rename to pg_notify_away", with} {
		_, err := pool.Exec(context.Background(), sql)
		require.NoError(t, err)
	}
}

func restoreNotify(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	for _, sql := range []string{"drop function pg_catalog.pg_notify", "alter function pg_catalog.pg_notify_away(text, text) rename to pg_notify"} {
		_, err := pool.Exec(context.Background(), sql)
		require.NoError(t, err)
	}
}

// The self-test is heard by nobody else who listens on the same channels: to
// another worker it would be word of work.
func TestSelfTestDisturbsNobody(t *testing.T) {
	t.Parallel()
	pool := pgtest.Connect(t, pgtest.EmptyURL(t))
	other := startListener(t, pool.Config(), nil)
	receive(t, other.connects, "the other's connect")
	healthy := make(chan struct{}, 100)
	own := startListener(t, pool.Config(), func(c *listen.Config) {
		c.SelfTest = true
		c.OnHealthy = func(context.Context, *pgx.Conn) error {
			healthy <- struct{}{}
			return nil
		}
	})
	receive(t, healthy, "the self-test's verdict")
	notify(t, pool, "the end")
	for _, h := range []*heard{other, own} {
		require.Equal(t, "the end", receive(t, h.payloads, "the notification"))
	}
}

// The self-test's own notification may come when it has been given up. It shows
// that notifications arrive, and is none of the caller's. The "slow server" is a
// pg_notify that sends nothing and remembers the channel.
func TestSelfTestIsLate(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	pool := pgtest.Connect(t, pgtest.EmptyURL(t))
	_, err := pool.Exec(ctx, "create table public.slow (channel text)")
	require.NoError(t, err)
	replaceNotify(t, pool, "create function pg_catalog.pg_notify(channel text, payload text) returns void language sql as 'insert into public.slow values (channel)'")
	config := pool.Config()
	healthy := make(chan struct{}, 100)
	h := startListener(t, config, func(c *listen.Config) {
		c.SelfTest = true
		c.OnHealthy = func(context.Context, *pgx.Conn) error {
			healthy <- struct{}{}
			return nil
		}
	})
	receive(t, h.unnotified, "the self-test's verdict")
	require.Empty(t, healthy)
	_, err = pool.Exec(ctx, "select pg_catalog.pg_notify_away(channel, '') from public.slow")
	require.NoError(t, err)
	receive(t, healthy, "word that the session hears")
	restoreNotify(t, pool)
	notify(t, pool, "the end")
	require.Equal(t, "the end", receive(t, h.payloads, "the notification"))
}

// A server that is slow while the self-test waits does not count as one without notifications for good: the first
// notification that arrives in the same session shows it. The "slow server" is a
// pg_notify that does nothing.
func TestDeafnessEndsWithWhatArrives(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	pool := pgtest.Connect(t, pgtest.EmptyURL(t))
	replaceNotify(t, pool, "create function pg_catalog.pg_notify(text, text) returns void language sql as 'select null::void'")
	config := pool.Config()
	healthy := make(chan uint32, 100)
	h := startListener(t, config, func(c *listen.Config) {
		c.SelfTest = true
		c.OnHealthy = func(_ context.Context, conn *pgx.Conn) error {
			healthy <- conn.PgConn().PID()
			return nil
		}
	})
	receive(t, h.connects, "the first connect")
	receive(t, h.unnotified, "the self-test's verdict")
	require.Empty(t, healthy)

	restoreNotify(t, pool)
	notify(t, pool, "late")
	require.Equal(t, "late", receive(t, h.payloads, "the notification"))
	receive(t, h.connects, "word that what was said before was not heard")
	pid := receive(t, healthy, "word that the session hears")
	var sessions int
	require.NoError(t, pool.QueryRow(ctx, "select count(*) from pg_stat_activity where pid = $1 and application_name = 'jobq-listen'", pid).Scan(&sessions))
	require.Equal(t, 1, sessions, "the same session")
}

// What cannot work is refused with the reason.
func TestRefusedConfigs(t *testing.T) {
	t.Parallel()
	_, err := listen.New(listen.Config{})
	require.Error(t, err)
	_, err = listen.New(listen.Config{
		Pool: &pgxpool.Config{}, OnNotify: func(string, string) {},
		Channels: []string{string(make([]byte, 64))},
	})
	require.ErrorContains(t, err, "63 bytes")
}

// Whoever is told of notifications looks for itself when more have come at once than are kept.
func TestManyNotificationsAtOnce(t *testing.T) {
	t.Parallel()
	pool := pgtest.Connect(t, pgtest.EmptyURL(t))
	h := startListener(t, pool.Config(), func(c *listen.Config) {
		c.OnHealthy = func(ctx context.Context, conn *pgx.Conn) error {
			_, err := pool.Exec(ctx, "select count(pg_notify($1, i::text)) from generate_series(1, 2000) i", `odd "Channel"`)
			if err == nil {
				_, err = conn.Exec(ctx, "select 1")
			}
			return err
		}
	})
	receive(t, h.connects, "the connect")
	receive(t, h.connects, "word that notifications were lost")
	require.Empty(t, h.payloads)
	notify(t, pool, "after")
	require.Equal(t, "after", receive(t, h.payloads, "the notification"))
}
