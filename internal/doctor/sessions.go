package doctor

import (
	"context"
	"crypto/rand"
	"errors"
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
	if p.listen != nil {
		return []Finding{{
			Severity: Note,
			Problem:  pooled + ": off are prepared statements; notifications and the janitor that leads come by the direct connection of the listen URL",
			Advice:   "nothing",
		}}, nil
	}
	return []Finding{{
		Severity: Note,
		Problem:  pooled + ": off are LISTEN, so that workers poll; the janitor's session lock, so that janitors take turns; and prepared statements",
		Advice:   "nothing, if waiting up to a poll for a job is fine; else give workers a direct connection for notifications (--listen-url), or connect them directly or through a pooler in session mode",
	}}, nil
}

// checkNotifications sends a notification from one connection to another, which is
// made as workers make that by which they listen.
func checkNotifications(ctx context.Context, p *patient) ([]Finding, error) {
	listen := p.listen
	if listen == nil {
		if p.sessions == db.SessionsShared {
			return nil, notAllowed{"nothing can be heard where " + pooled}
		}
		listen = p.pool.Config()
	}
	listener, err := db.Connect(ctx, listen, nil)
	if err != nil && p.listen != nil {
		return []Finding{{
			Severity: Warning, Problem: fmt.Sprintf("the listen URL leads to no server (%v): idle workers find new jobs only when they poll", err),
			Advice: "start that server, or give workers its right address with --listen-url or JOBQ_LISTEN_URL",
		}}, nil
	}
	if err != nil {
		return nil, err
	}
	defer db.Close(listener, db.CloseTimeout)
	if findings, err := checkDirect(ctx, p, listener); err != nil || len(findings) > 0 {
		return findings, err
	}
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
	_, err = db.AwaitNotification(waitCtx, listener)
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

// checkDirect says what is wrong with a listen URL, by an open connection: it must lead to
// the database of the pool, and not through the pooler.
func checkDirect(ctx context.Context, p *patient, listener *pgx.Conn) ([]Finding, error) {
	if p.listen == nil {
		return nil, nil
	}
	conn, err := p.pool.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	err = db.CheckSameDatabase(ctx, listener, conn.Conn())
	conn.Release()
	if errors.Is(err, db.ErrOtherDatabase) {
		return []Finding{{
			Severity: Critical, Problem: err.Error() + ": workers do not start", Advice: "give --listen-url or JOBQ_LISTEN_URL the address of the same database",
		}}, nil
	}
	if err != nil {
		return nil, err
	}
	sessions, err := db.FindSessions(ctx, db.SessionsAuto, listener, p.listen)
	if err != nil || sessions == db.SessionsOwn {
		return nil, err
	}
	return []Finding{{
		Severity: Warning, Problem: "the listen URL leads through a pooler that shares sessions, too: idle workers find new jobs only when they poll",
		Advice: "give --listen-url or JOBQ_LISTEN_URL the address of the server itself",
	}}, nil
}
