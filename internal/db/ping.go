package db

import (
	"context"
	"net"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// pingIdle is for how long a connection of a pool was idle when it may have ended
// unnoticed, as pgx has it.
const pingIdle = time.Second

// PingInDoubt keeps a pool from pinging each connection that was idle for a second before
// it hands it out: a worker that has nothing to do would send as many pings as
// statements. One that the server has ended shows that without a round trip, and is
// pinged, as one is whose state cannot be seen. Of a server that has vanished, neither
// this nor a ping says more than the statement that follows: see NoticeLoss. A choice of
// the application's is left as it is.
func PingInDoubt(config *pgxpool.Config) {
	if config.ShouldPing != nil {
		return
	}
	config.ShouldPing = func(_ context.Context, params pgxpool.ShouldPingParams) bool {
		return params.IdleDuration > pingIdle && !isQuiet(plain(params.Conn.PgConn().Conn()))
	}
}

// plain is the connection below one that is encrypted.
func plain(conn net.Conn) net.Conn {
	if encrypted, ok := conn.(interface{ NetConn() net.Conn }); ok {
		return encrypted.NetConn()
	}
	return conn
}
