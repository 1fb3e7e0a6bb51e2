package db

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// NoticeLoss makes connections, dialled as before, notice within about so long that
// their peer has vanished. What is no TCP connection, such as a cloud connector's
// own, is left as it is: the deadlines of calls notice it, a little later.
func NoticeLoss(dial pgconn.DialFunc, within time.Duration) pgconn.DialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if tcp, ok := conn.(*net.TCPConn); ok && err == nil {
			err = errors.Join(setUserTimeout(tcp, within), tcp.SetKeepAliveConfig(net.KeepAliveConfig{
				Enable: true, Idle: within / 2, Interval: within / 4, Count: 2,
			}))
			if err != nil {
				_ = tcp.Close() // the error says more
				return nil, err
			}
		}
		return conn, err
	}
}

// NoticeLoss makes both ends of a pool's connections notice within about so long, at
// least 4 seconds, that the other end has vanished. The server's settings are made only
// where the session is known to be the connection's own; one that was opened before is
// not changed.
func (s *Schema) NoticeLoss(config *pgxpool.Config, within time.Duration) {
	config.ConnConfig.DialFunc = NoticeLoss(config.ConnConfig.DialFunc, within)
	before := config.AfterConnect
	config.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		if before != nil {
			if err := before(ctx, conn); err != nil {
				return err
			}
		}
		if !s.owned.Load() {
			return nil
		}
		ctx, cancel := context.WithTimeout(ctx, within)
		defer cancel()
		return ServerNoticesLoss(ctx, conn, within)
	}
}

// ServerNoticesLoss makes the server notice within about so long, at least 4 seconds,
// that the client has vanished. It keeps what a session has locked until then: without
// this, for many minutes. The settings are those of the session, which must be the
// connection's own. Keepalives and the time-out are set one after the other: a server that
// refuses the one may take the other.
func ServerNoticesLoss(ctx context.Context, conn *pgx.Conn, within time.Duration) error {
	seconds := max(int(within.Seconds()), 4)
	for _, sql := range []string{
		fmt.Sprintf(`select pg_catalog.set_config('tcp_keepalives_idle', '%d', false),
			pg_catalog.set_config('tcp_keepalives_interval', '%d', false), pg_catalog.set_config('tcp_keepalives_count', '2', false)`,
			seconds/2, seconds/4),
		fmt.Sprintf(`select pg_catalog.set_config('tcp_user_timeout', '%d', false)`, within.Milliseconds()),
	} {
		if _, err := conn.Exec(ctx, sql, pgx.QueryExecModeSimpleProtocol); err != nil && !IsAnswer(err) {
			return err
		}
	}
	return nil
}
