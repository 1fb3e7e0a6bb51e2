package check

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// AtRest says what processes that still run, and have nothing to do, hold in
// the server that they must not, or "". Each of them connects as its role. A
// presence lock and a leader's lock are theirs; an open transaction is not, nor
// is a lock of a process that has ended.
func AtRest(ctx context.Context, conn *pgx.Conn, roles []string) (string, error) {
	var locks, leaders, open int
	var usage float64
	err := conn.QueryRow(ctx, `select
		(select count(*) from pg_locks l join pg_stat_activity a using (pid) where a.datname = current_database() and l.locktype = 'advisory'
			and a.pid <> pg_backend_pid() and not a.usename = any($1)),
		(select count(*) from pg_locks l join pg_stat_activity a using (pid) where a.datname = current_database() and l.locktype = 'advisory'
			and a.application_name = 'jobq-janitor' and l.mode = 'ExclusiveLock' and l.granted),
		(select count(*) from pg_stat_activity a where a.datname = current_database() and a.pid <> pg_backend_pid()
			and a.backend_type = 'client backend' and a.xact_start < clock_timestamp() - interval '1 s'),
		pg_notification_queue_usage()`, roles).Scan(&locks, &leaders, &open, &usage)
	if err != nil || locks == 0 && leaders <= 1 && open == 0 && usage < 0.01 {
		return "", err
	}
	return fmt.Sprintf("%d advisory locks of processes that have ended, %d leaders, %d transactions open for more than a second, notification queue %.2f full",
		locks, leaders, open, usage), nil
}

// endsWithin is how long the server's sessions may take to end when their processes have.
const endsWithin = 10 * time.Second

// rest checks what a run must not leave behind, when all processes have ended.
func (c *checker) rest(ctx context.Context, conn *pgx.Conn) error {
	for began := time.Now(); ; {
		var locks, idle int
		var usage float64
		err := conn.QueryRow(ctx, `select
			(select count(*) from pg_locks l join pg_database d on d.oid = l.database where d.datname = current_database() and l.locktype = 'advisory'),
			(select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid() and state like 'idle in transaction%'),
			pg_notification_queue_usage()`).Scan(&locks, &idle, &usage)
		if err != nil || locks == 0 && idle == 0 && usage <= 0.01 {
			return err
		}
		if time.Since(began) > endsWithin {
			c.violate("I10", "left behind: %d advisory locks, %d idle transactions, notification queue %.2f full", locks, idle, usage)
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// counts checks that the charts know of each success, and of each once.
func (c *checker) counts(ctx context.Context, conn *pgx.Conn) error {
	var counted int
	if err := conn.QueryRow(ctx, "select coalesce(sum(completed), 0) from jobq.stats").Scan(&counted); err != nil {
		return err
	}
	if c.run.StatsGo {
		return nil
	}
	if counted != c.completed {
		c.verdict.DoubleBump++
		c.violate("I4", "%d runs were completed, and %d counted", c.completed, counted)
	}
	return nil
}
