package migrate

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/sleep"
)

const (
	// lookPoll is how often it is checked whether a running migration waits for a lock.
	// Shorter waits may not be reported.
	lookPoll    = 500 * time.Millisecond
	lookTimeout = 5 * time.Second
)

// watched runs a migration on a connection, and checks from another one whether it waits
// for a lock. It logs once for which session the migration waits. If the migration then
// fails, its error names that session too. For example, with a lock_timeout of 5 s:
//
//	0.0 s  the migration wants to lock table pending, on which the transaction of a
//	       report still has a lock
//	0.5 s  a check finds that: the log names the session of the report
//	5.0 s  the server ends the migration: the error names the session of the report
func (d *driver) watched(ctx context.Context, conn db.DBTX, run func() error) error {
	var session int32 // asked for now, since a pooler may use another session than at the connection's start
	if err := conn.QueryRow(ctx, "select pg_backend_pid()", pgx.QueryExecModeSimpleProtocol).Scan(&session); err != nil {
		return fmt.Errorf("ask for the session's id: %w", err)
	}
	running, stop := context.WithCancel(ctx)
	defer stop()
	var blockers []db.SessionBlockersRow
	var waits bool
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		blockers, waits = d.watch(running, session)
	}()
	err := run()
	stop()
	<-watched
	// A wait that had ended before is not the reason for another timeout.
	if len(blockers) > 0 && (db.IsLockTimeout(err) || waits && db.IsTimeout(err)) {
		return fmt.Errorf("%w: %s", err, blocked(blockers))
	}
	return err
}

// watch checks a session until the context ends. It returns for which sessions the session
// waited last, and whether it still waited at the last check.
func (d *driver) watch(ctx context.Context, session int32) (last []db.SessionBlockersRow, waits bool) {
	told := int32(-1) // 0 is a prepared transaction
	for sleep.For(ctx, lookPoll) == nil {
		blockers, err := d.look(ctx, session)
		if err != nil {
			return last, waits // for example, no connection is free; all this is only for messages
		}
		waits = len(blockers) > 0
		if !waits {
			continue
		}
		last = blockers
		if first := blockers[0]; first.Pid != told {
			told = first.Pid
			d.logger.Warn("a migration waits for another session", blockerAttributes(first)...)
		}
	}
	return last, waits
}

// look is not interrupted when the migration ends, because that would close the connection.
func (d *driver) look(ctx context.Context, session int32) ([]db.SessionBlockersRow, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookTimeout)
	defer cancel()
	return d.schema.Queries(d.pool).SessionBlockers(ctx, session)
}

// blockerAttributes describe a session that is waited for, for the log.
func blockerAttributes(b db.SessionBlockersRow) []any {
	attributes := []any{"table", b.TableName, "holder_pid", b.Pid, "holder_application", b.Application, "holder_user", b.Username}
	if b.XactStart != nil && b.QueryStart != nil { // this role may see them
		attributes = append(attributes, "holder_state", b.State, "holder_transaction_since", b.XactStart.UTC(), "holder_query_since", b.QueryStart.UTC())
	}
	return attributes
}

// blocked says for whom a migration waited, and what to do.
func blocked(blockers []db.SessionBlockersRow) string {
	b := blockers[0]
	var text strings.Builder
	if b.TableName == "" {
		text.WriteString("it waited for")
	} else {
		fmt.Fprintf(&text, "table %s was in use by", b.TableName)
	}
	if b.Pid == 0 {
		text.WriteString(" a prepared transaction: see pg_prepared_xacts, and commit it or roll it back; then run the migration again")
		return text.String()
	}
	fmt.Fprintf(&text, " session %d (application %q, user %q", b.Pid, b.Application, b.Username)
	if b.XactStart != nil && b.QueryStart != nil {
		fmt.Fprintf(&text, ", %s, its transaction open for %s, its last query begun %s ago", b.State, age(b.At.Time, *b.XactStart), age(b.At.Time, *b.QueryStart))
	}
	text.WriteString(")")
	switch others := len(blockers) - 1; others {
	case 0:
	case 1:
		text.WriteString(" and 1 other")
	default:
		fmt.Fprintf(&text, " and %d others", others)
	}
	fmt.Fprintf(&text, `; wait until its transaction has ended, or end it with "select pg_terminate_backend(%d)"; then run the migration again`, b.Pid)
	return text.String()
}

// age is in whole seconds, which is exact enough for a person.
func age(now, since time.Time) time.Duration { return now.Sub(since).Truncate(time.Second) }
