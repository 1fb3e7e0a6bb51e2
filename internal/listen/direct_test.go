package listen_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/listen"
	"github.com/jobq-dev/jobq/internal/pgtest"
)

// behindPooler is a database by PgBouncer in transaction mode, and without it.
func behindPooler(t *testing.T) (pooled, direct *pgxpool.Config) {
	t.Helper()
	url := pgtest.EmptyURL(t)
	pooler := pgtest.StartPgBouncer(t, url, map[string]string{"pool_mode": "transaction", "default_pool_size": "2"})
	return parse(t, pooler.URL(t, url)), parse(t, url)
}

func parse(t *testing.T, url string) *pgxpool.Config {
	t.Helper()
	config, err := pgxpool.ParseConfig(url)
	require.NoError(t, err)
	return config
}

// told is a channel that keeps the errors of sessions, as far as it has room.
func told() (ends chan error, onEnd func(error)) {
	ends = make(chan error, 100)
	return ends, func(err error) {
		select {
		case ends <- err:
		default:
		}
	}
}

// With a direct connection, what is notified through a pooler in transaction mode is
// heard, also where those sessions are known to be shared, and after a reconnect.
// Without one, the same pooler keeps notifications from the listener.
func TestListensOnADirectConnection(t *testing.T) {
	t.Parallel()
	pooled, direct := behindPooler(t)
	none := startListener(t, pooled, func(c *listen.Config) { c.SelfTest = true })
	receive(t, none.unnotified, "word that nothing is heard")

	for _, sessions := range []db.Sessions{db.SessionsAuto, db.SessionsShared} {
		h := startListener(t, pooled, func(c *listen.Config) { c.Direct, c.Sessions, c.SelfTest = direct, sessions, true })
		receive(t, h.connects, "the connect")
		through := pgtest.ConnectConfig(t, safe(pooled))
		notify(t, through, "one")
		require.Equal(t, "one", receive(t, h.payloads, "the notification"))
	}
	again := startListener(t, pooled, func(c *listen.Config) { c.Direct = direct }) // tested before
	receive(t, again.connects, "the connect")
	pool := pgtest.ConnectConfig(t, direct)
	endSession(t, pool)
	receive(t, again.connects, "the connect after the end of the session")
	notify(t, pool, "two")
	require.Equal(t, "two", receive(t, again.payloads, "the notification"))
}

// safe is the configuration of a pool that prepares no statements.
func safe(config *pgxpool.Config) *pgxpool.Config {
	config = config.Copy()
	db.NameNoStatements(config.ConnConfig)
	return config
}

// A direct connection to another database is refused, each time with the reason:
// nobody is told that it listens.
func TestRefusesAnotherDatabase(t *testing.T) {
	t.Parallel()
	pooled, _ := behindPooler(t)
	ends, onEnd := told()
	h := startListener(t, pooled, func(c *listen.Config) {
		c.Direct, c.SelfTest, c.OnEnd = parse(t, pgtest.EmptyURL(t)), true, onEnd
	})
	for range 2 {
		require.ErrorIs(t, receive(t, ends, "the end of a session"), db.ErrOtherDatabase)
	}
	require.Empty(t, h.connects)
}

// A "direct" connection through a pooler that shares sessions hears nothing, and leaves no
// LISTEN in any of them.
func TestDirectIsPooled(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	url := pgtest.EmptyURL(t)
	pooled := parse(t, pgtest.StartPgBouncer(t, url, map[string]string{"pool_mode": "transaction", "default_pool_size": "1"}).URL(t, url))
	h := startListener(t, pooled, func(c *listen.Config) { c.Direct, c.SelfTest = pooled, true })
	receive(t, h.unnotified, "word that nothing is heard")
	var channels int
	require.NoError(t, pgtest.ConnectConfig(t, safe(pooled)).QueryRow(ctx, "select count(*) from pg_listening_channels()").Scan(&channels))
	require.Zero(t, channels, "left in the only session")
}

// The direct host may be away: the log says so once for each reason, the listener goes on
// trying, and hears when the host is back.
func TestDirectIsAway(t *testing.T) {
	t.Parallel()
	pooled, direct := behindPooler(t)
	var isAway atomic.Bool
	isAway.Store(true)
	direct.BeforeConnect = func(context.Context, *pgx.ConnConfig) error {
		if isAway.Load() {
			return errors.New("no route to the host")
		}
		return nil
	}
	var log syncBuffer
	ends, onEnd := told()
	h := startListener(t, pooled, func(c *listen.Config) {
		c.Direct, c.SelfTest, c.OnEnd, c.Logger = direct, true, onEnd, slog.New(slog.NewTextHandler(&log, nil))
	})
	for range 4 {
		require.ErrorContains(t, receive(t, ends, "the end of a session"), "no route to the host")
	}
	isAway.Store(false)
	receive(t, h.connects, "the connect")
	pool := pgtest.ConnectConfig(t, parse(t, direct.ConnString()))
	notify(t, pool, "back")
	require.Equal(t, "back", receive(t, h.payloads, "the notification"))
	require.Equal(t, 1, strings.Count(log.String(), "no route to the host"), log.String())

	isAway.Store(true)
	endSession(t, pool)
	for {
		if err := receive(t, ends, "the end of a session"); strings.Contains(err.Error(), "no route to the host") {
			break
		}
	}
	isAway.Store(false)
	receive(t, h.connects, "the connect after the second outage")
	require.Equal(t, 2, strings.Count(log.String(), "no route to the host"), log.String())
}

// syncBuffer keeps a log.
type syncBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer // guarded by mu
}

func (b *syncBuffer) Write(text []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(text)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}
