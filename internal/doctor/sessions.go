package doctor

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/jobq-dev/jobq/internal/db"
)

const pooled = "a pooler shares sessions between its clients (transaction mode)"

// checkPooler finds out whether a pooler shares sessions, unless that was told. jobq
// works all the same, so it is a note.
func checkPooler(ctx context.Context, p *patient) ([]Finding, error) {
	if p.known == db.SessionsAuto {
		conn, err := p.pool.Acquire(ctx)
		if err != nil {
			return nil, err
		}
		sessions, doubt := db.FindSessions(ctx, p.known, conn.Conn(), p.pool.Config())
		conn.Release()
		p.sessions = sessions
		if doubt != nil {
			return nil, notAllowed{doubt.Error()}
		}
	}
	if p.sessions != db.SessionsShared {
		return nil, nil
	}
	return []Finding{{
		Severity: Note,
		Problem:  pooled + ": off are LISTEN, so that workers poll; the janitor's session lock, so that janitors take turns; and prepared statements",
		Advice:   "nothing, if waiting up to a poll for a job is fine; else connect workers directly or through a pooler in session mode",
	}}, nil
}

// checkNotifications sends a notification from one connection to another.
func checkNotifications(ctx context.Context, p *patient) ([]Finding, error) {
	if p.sessions == db.SessionsShared {
		return nil, notAllowed{"nothing can be heard where " + pooled}
	}
	listener, err := db.Connect(ctx, p.pool.Config(), nil)
	if err != nil {
		return nil, err
	}
	defer db.Close(listener, db.CloseTimeout)
	var standby bool
	if err := listener.QueryRow(ctx, "select pg_is_in_recovery()", pgx.QueryExecModeSimpleProtocol).Scan(&standby); err != nil {
		return nil, err
	}
	if standby {
		return nil, notAllowed{"a standby neither sends nor hears notifications"}
	}
	// A channel of its own: nobody else listens on it.
	channel := "jobq_doctor_" + strings.ToLower(rand.Text())
	if _, err := listener.Exec(ctx, "listen "+pgx.Identifier{channel}.Sanitize()); err != nil {
		return nil, err
	}
	sender, err := db.Connect(ctx, p.pool.Config(), nil)
	if err != nil {
		return nil, err
	}
	defer db.Close(sender, db.CloseTimeout)
	if _, err := sender.Exec(ctx, "select pg_notify($1, '')", pgx.QueryExecModeSimpleProtocol, channel); err != nil {
		return nil, err
	}
	waitCtx, cancel := context.WithTimeout(ctx, p.limits.NotificationWithin)
	defer cancel()
	_, err = listener.WaitForNotification(waitCtx)
	switch {
	case err == nil:
		return nil, nil
	case ctx.Err() == nil && pgconn.Timeout(err):
		return []Finding{{
			Severity: Warning, Problem: fmt.Sprintf("a notification did not arrive within %s: idle workers find new jobs only when they poll", p.limits.NotificationWithin),
			Advice: "look for a pooler or proxy between that does not pass notifications on, and connect workers directly; if there is none, the server is overloaded",
		}}, nil
	}
	return nil, err
}
