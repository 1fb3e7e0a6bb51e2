// Package listen keeps the one connection of a process that hears
// notifications. It pings, so that a connection that no longer delivers them is noticed
// within seconds, and it reconnects for ever. A notification is only a hint:
// whoever listens must also look for itself after every connect, because what
// was said while nobody listened is lost.
package listen

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/jobq-dev/jobq/internal/db"
)

const (
	defaultPingEvery = 5 * time.Second
	pingTimeout      = 5 * time.Second
	connectTimeout   = 10 * time.Second
	selfTestTimeout  = 2 * time.Second
	reconnectMax     = 15 * time.Second
	// lossTimeout is after how long the kernel gives up a connection whose peer has
	// vanished. Without it, a query waits for many minutes.
	lossTimeout = 8 * time.Second
	// serverLossTimeout is after how long the server gives up the session of a client that
	// has vanished, with the lock by which others know that it is there.
	serverLossTimeout = 20 * time.Second
)

// Config says what to listen for and whom to tell. The functions are called
// by one goroutine, one at a time, and must not block.
type Config struct {
	// Pool says how those connect who notify, with all its hooks; it is copied.
	Pool *pgxpool.Config
	// Direct says how to connect for listening where Pool leads through a pooler: one
	// that shares sessions accepts LISTEN and delivers nothing. It is copied. Where it leads
	// to another database, that is the error of each session; this is looked at if
	// SelfTest is set. Default: Pool.
	Direct *pgxpool.Config
	// Sessions is what is known of those of Pool. Default: to be found out. Nothing listens
	// where they are shared, since LISTEN would stay behind in one of them. With
	// Direct, they are found out if SelfTest is set, and are its own otherwise.
	Sessions db.Sessions
	// Channels to listen on: at least one.
	Channels []string
	// OnNotify is told of each notification.
	OnNotify func(channel, payload string)
	// OnConnect is told after each connect, also the first, when notifications
	// arrive after OnNoNotifications was told that they do not, and when more have
	// come at once than are kept: any login can send millions.
	OnConnect func()
	// OnHealthy is given the session itself after each LISTEN, also the first,
	// unless the server is not at its other end, as OnNoNotifications is told: for
	// what is to live as long as the session. Its error ends the session.
	OnHealthy func(ctx context.Context, conn *pgx.Conn) error
	// OnEnd is told why a session has ended, or could not begin.
	OnEnd func(err error)
	// OnNoNotifications is told that notifications do not arrive: sessions are shared, or
	// SelfTest has found out.
	OnNoNotifications func()
	// SelfTest sends a notification to itself from another connection, made by Pool, after
	// the first connect, and waits for it. It does so on a channel of its own, that
	// nobody else listens on.
	SelfTest bool
	// PingEvery is how long the connection may be silent. Default 5 seconds.
	PingEvery time.Duration
	// Logger is told of trouble. Default slog.Default().
	Logger *slog.Logger
}

// Listener is the connection. Make one with New and call Run.
type Listener struct {
	config      Config
	way         *pgxpool.Config // how to connect
	testChannel string          // of the self-test
	tested      bool
	unnotified  bool
	trouble     string // why there has been no session since the last one that worked, as logged
}

// New returns a listener that has not connected yet.
func New(config Config) (*Listener, error) {
	if config.Pool == nil || len(config.Channels) == 0 || config.OnNotify == nil {
		return nil, errors.New("listener: a connection, channels and OnNotify are needed")
	}
	for _, channel := range config.Channels {
		if len(channel) == 0 || len(channel) > 63 {
			return nil, fmt.Errorf("listener: channel %q: must be 1 to 63 bytes", channel)
		}
	}
	if config.PingEvery == 0 {
		config.PingEvery = defaultPingEvery
	}
	if config.Logger == nil {
		config.Logger = slog.Default()
	}
	config.Sessions = cmp.Or(config.Sessions, db.SessionsAuto)
	config.Pool = named(config.Pool)
	way := config.Pool
	if config.Direct != nil {
		way, config.Sessions = named(config.Direct), db.SessionsOwn
		if config.SelfTest {
			config.Sessions = db.SessionsAuto
		}
	}
	way.ConnConfig.DialFunc = db.NoticeLoss(way.ConnConfig.DialFunc, lossTimeout)
	return &Listener{config: config, way: way, testChannel: "jobq_self_test_" + rand.Text()}, nil
}

// named is a copy whose connections say what they are for.
func named(config *pgxpool.Config) *pgxpool.Config {
	config = config.Copy()
	config.ConnConfig.RuntimeParams["application_name"] = "jobq-listen"
	return config
}

// Run listens until the context ends, and then returns nil, the connection
// closed.
func (l *Listener) Run(ctx context.Context) error {
	backoff := db.Backoff{Max: reconnectMax}
	for ctx.Err() == nil {
		err := l.session(ctx, backoff.Reset)
		if l.config.OnEnd != nil {
			l.config.OnEnd(err)
		}
		if ctx.Err() != nil {
			break
		}
		l.warn(err)
		if backoff.Wait(ctx) != nil {
			break
		}
	}
	return nil
}

// warn logs why there is no session, once for each reason until there is one again.
func (l *Listener) warn(err error) {
	if trouble := fmt.Sprint(err); trouble != l.trouble {
		l.trouble = trouble
		l.config.Logger.Warn("listener lost its connection, polling until it is back", "error", err)
	}
}

// session is the life of one connection.
func (l *Listener) session(ctx context.Context, connected func()) error {
	connectCtx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	conn, err := db.Connect(connectCtx, l.way, nil)
	if err != nil {
		return err
	}
	defer db.Close(conn, db.CloseTimeout)
	sessions, err := db.FindSessions(connectCtx, l.config.Sessions, conn, l.way)
	if err != nil {
		return err
	}
	if sessions == db.SessionsOwn {
		if err := l.checkDatabase(connectCtx, conn); err != nil {
			return err
		}
		if err := db.ServerNoticesLoss(connectCtx, conn, serverLossTimeout); err != nil {
			return err
		}
		for _, channel := range l.config.Channels {
			if _, err := conn.Exec(connectCtx, "listen "+pgx.Identifier{channel}.Sanitize()); err != nil {
				return err
			}
		}
	}
	if l.config.OnConnect != nil {
		l.config.OnConnect()
	}
	switch {
	case sessions == db.SessionsShared:
		l.noNotifications()
	case l.config.SelfTest && !l.tested:
		if err := l.selfTest(ctx, conn); err != nil {
			return err
		}
		l.tested = !l.unnotified // else again with the next session: it may have been slow, and no pooler
	default:
		l.unnotified = false
	}
	if !l.unnotified {
		if err := l.isHealthy(ctx, conn); err != nil {
			return err
		}
	}
	l.trouble = ""
	connected() // only now: a server at its limit of connections may let this one in, and not the self-test's
	for {
		heard, err := l.receive(ctx, conn)
		if err != nil {
			return err
		}
		if heard && l.unnotified { // the server was slow: what the self-test has sent came late
			l.unnotified, l.tested = false, true
			l.config.Logger.Info("notifications arrive again")
			if l.config.OnConnect != nil {
				l.config.OnConnect()
			}
			if err := l.isHealthy(ctx, conn); err != nil {
				return err
			}
		}
	}
}

// checkDatabase looks whether a direct connection leads to where the pool does. After a
// failover it may not.
func (l *Listener) checkDatabase(ctx context.Context, conn *pgx.Conn) error {
	if l.config.Direct == nil || !l.config.SelfTest {
		return nil
	}
	pooled, err := db.Connect(ctx, l.config.Pool, nil)
	if err != nil {
		return err
	}
	defer db.Close(pooled, db.CloseTimeout)
	return db.CheckSameDatabase(ctx, conn, pooled)
}

// isHealthy tells that notifications arrive in this session.
func (l *Listener) isHealthy(ctx context.Context, conn *pgx.Conn) error {
	if l.config.OnHealthy == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	return l.config.OnHealthy(ctx, conn)
}

// receive waits for one notification, or pings when there is none for long, and
// says which.
func (l *Listener) receive(ctx context.Context, conn *pgx.Conn) (heard bool, err error) {
	waitCtx, cancel := context.WithTimeout(ctx, l.config.PingEvery)
	notification, err := db.AwaitNotification(waitCtx, conn)
	cancel()
	switch {
	case err == nil:
		l.handle(notification)
		return true, nil
	case ctx.Err() != nil || !pgconn.Timeout(err) || conn.IsClosed():
		return false, err
	}
	pingCtx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	if err := conn.Ping(pingCtx); err != nil {
		return false, fmt.Errorf("ping: %w", err)
	}
	return false, nil
}

// handle tells of a notification, or, with nil, that some were lost.
func (l *Listener) handle(notification *pgconn.Notification) {
	switch {
	case notification == nil:
		l.config.Logger.Warn("more notifications came at once than are kept, looking for work instead")
		if l.config.OnConnect != nil {
			l.config.OnConnect()
		}
	case notification.Channel != l.testChannel: // what the self-test has sent may come late
		l.config.OnNotify(notification.Channel, notification.Payload)
	}
}

// selfTest notifies from another connection, and waits to hear it here: to
// notify oneself would succeed where others are not heard.
func (l *Listener) selfTest(ctx context.Context, conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	other, err := db.Connect(ctx, l.config.Pool, nil)
	if err != nil {
		return err
	}
	defer db.Close(other, db.CloseTimeout)
	if _, err := conn.Exec(ctx, "listen "+pgx.Identifier{l.testChannel}.Sanitize()); err != nil {
		return err
	}
	if _, err := other.Exec(ctx, "select pg_notify($1, '')", pgx.QueryExecModeSimpleProtocol, l.testChannel); err != nil {
		return err
	}
	waitCtx, cancelWait := context.WithTimeout(ctx, selfTestTimeout)
	defer cancelWait()
	for {
		notification, err := db.AwaitNotification(waitCtx, conn)
		switch {
		case err == nil && notification != nil && notification.Channel == l.testChannel:
			l.unnotified = false
			return nil
		case err == nil:
			l.handle(notification)
		case ctx.Err() == nil && pgconn.Timeout(err) && !conn.IsClosed():
			l.noNotifications()
			return nil
		default:
			return err
		}
	}
}

// noNotifications reports that notifications do not arrive in this session.
func (l *Listener) noNotifications() {
	if !l.unnotified {
		l.config.Logger.Warn("notifications do not arrive, as behind a pooler in transaction mode: wake-ups are off, polling goes on; give jobq a direct connection")
	}
	l.unnotified = true
	if l.config.OnNoNotifications != nil {
		l.config.OnNoNotifications()
	}
}
