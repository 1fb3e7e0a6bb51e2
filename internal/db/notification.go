package db

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// notificationsMax is how many notifications a connection keeps while nobody waits for them: 8 MB at most.
// Any login can send millions, and the answer of one statement can have all of them before it.
const notificationsMax = 1000

// notificationsKey is where a connection of Connect has what it keeps.
const notificationsKey = "jobq.notifications"

// notifications are what a connection has received and nobody has read. For example, 3 million arrive
// before the answer to a ping: 1,000 are kept, the next one drops them all, and so do those that follow.
// The reader is told once that some were lost.
type notifications struct {
	kept []*pgconn.Notification
	lost bool
}

// keepNotification is called by the goroutine that uses the connection.
func keepNotification(conn *pgconn.PgConn, notification *pgconn.Notification) {
	n := notificationsOf(conn)
	switch {
	case n.lost: // the reader will look for itself: more is no news
	case len(n.kept) < notificationsMax:
		n.kept = append(n.kept, notification)
	default:
		n.kept, n.lost = nil, true
	}
}

func notificationsOf(conn *pgconn.PgConn) *notifications {
	n, ok := conn.CustomData()[notificationsKey].(*notifications)
	if !ok {
		n = &notifications{}
		conn.CustomData()[notificationsKey] = n
	}
	return n
}

// AwaitNotification waits for a notification on a connection that Connect has opened. It returns nil
// without an error if more have come than are kept. These are lost, and the caller must look for itself, as
// after a new connection. It first returns what has come with the answers to earlier statements, also if
// the context has ended.
func AwaitNotification(ctx context.Context, conn *pgx.Conn) (*pgconn.Notification, error) {
	n := notificationsOf(conn.PgConn())
	if !n.lost && len(n.kept) == 0 {
		if err := conn.PgConn().WaitForNotification(ctx); err != nil {
			return nil, err
		}
	}
	if n.lost {
		n.lost = false
		return nil, nil //nolint:nilnil // as documented
	}
	first := n.kept[0]
	n.kept[0], n.kept = nil, n.kept[1:]
	if len(n.kept) == 0 {
		n.kept = nil
	}
	return first, nil
}

// NotificationsKept is how many notifications wait for AwaitNotification. It is for tests.
func NotificationsKept(conn *pgx.Conn) int { return len(notificationsOf(conn.PgConn()).kept) }
