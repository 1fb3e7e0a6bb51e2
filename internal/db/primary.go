package db

import (
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// RequirePrimary makes new connections refuse a server that takes no writes,
// unless the configuration has a rule of its own: after a failover, the name
// may still lead to the old primary, or to a list of servers of which one will
// do.
func RequirePrimary(config *pgx.ConnConfig) {
	if config.ValidateConnect == nil {
		config.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite
	}
}
