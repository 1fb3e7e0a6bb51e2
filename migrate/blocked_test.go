package migrate_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/pgtest"
	"github.com/jobq-dev/jobq/migrate"
)

// widen changes the table jobq.thing.
const widen = "alter table jobq.thing add column width integer;"

// widenOrGiveUp does so too, with a lock_timeout that ends the migration as soon as
// somebody has written to public.seen: no test can know how long a look takes.
const widenOrGiveUp = `do $$ begin
  loop
    begin
      perform set_config('lock_timeout', '200ms', true);
      alter table jobq.thing add column width integer;
      return;
    exception when lock_not_available then
      if exists (select from public.seen) then raise; end if;
    end;
  end loop;
end $$;`

// blockedMigration is a migration that waits for a report: a session that has read
// jobq.thing in a transaction that is still open.
type blockedMigration struct {
	pool   *pgxpool.Pool
	report *pgx.Conn
	said   chan string
	ended  chan error
}

// startBlocked starts it, and returns when it has said that it waits, with that line.
// The session of the report does more, if it is told.
func startBlocked(t *testing.T, sql string, more ...string) (m blockedMigration, line string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	m = blockedMigration{pool: pgtest.Connect(t, pgtest.EmptyURL(t)), said: make(chan string, 100), ended: make(chan error, 1)}
	files := fstest.MapFS{
		"001_thing.up.sql":   {Data: []byte("create table jobq.thing (id bigint); create table public.seen ();")},
		"001_thing.down.sql": {Data: []byte("drop table public.seen; drop table jobq.thing;")},
	}
	_, err := migrate.Up(ctx, m.pool, migrate.WithFiles(migrate.Config{Logger: quiet}, files))
	require.NoError(t, err)
	config := m.pool.Config().ConnConfig.Copy()
	config.RuntimeParams["application_name"] = "the report"
	m.report, err = pgx.ConnectConfig(ctx, config)
	require.NoError(t, err)
	t.Cleanup(func() { _ = m.report.Close(context.Background()) })
	for _, statement := range append([]string{"begin", "select from jobq.thing"}, more...) {
		m.exec(t, statement)
	}

	files["002_wider.up.sql"], files["002_wider.down.sql"] = &fstest.MapFile{Data: []byte(sql)}, &fstest.MapFile{Data: []byte("select 1;")}
	logger := slog.New(slog.NewTextHandler(lines(m.said), &slog.HandlerOptions{Level: slog.LevelWarn}))
	go func() {
		_, err := migrate.Up(ctx, m.pool, migrate.WithFiles(migrate.Config{Logger: logger}, files))
		m.ended <- err
	}()
	select {
	case line = <-m.said:
	case err := <-m.ended:
		require.Fail(t, "the migration has ended before it said that it waits", "%v", err)
	}
	return m, line
}

// exec is for the session of the report.
func (m blockedMigration) exec(t *testing.T, sql string) {
	t.Helper()
	_, err := m.report.Exec(context.Background(), sql)
	require.NoError(t, err)
}

func (m blockedMigration) columns(t *testing.T) int {
	t.Helper()
	return number(t, m.pool, "select count(*) from pg_attribute where attrelid = 'jobq.thing'::regclass and attname = 'width'")
}

// A migration that waits for a table says so, once, and for which session; and goes on
// when that has ended its transaction. So does one that runs outside of a transaction.
func TestSaysWhoHasTheTable(t *testing.T) {
	t.Parallel()
	for name, sql := range map[string]string{"in a transaction": widen, "outside of one": migrate.NoTransaction + "\n" + widen} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, line := startBlocked(t, sql)
			require.Contains(t, line, `level=WARN msg="a migration waits for another session" table=jobq.thing`)
			require.Contains(t, line, fmt.Sprintf(`holder_pid=%d holder_application="the report" holder_user=`, m.report.PgConn().PID()))
			require.Contains(t, line, `holder_state="idle in transaction" holder_transaction_since=`)
			require.Contains(t, line, "holder_query_since=")
			m.exec(t, "rollback")
			require.NoError(t, <-m.ended)
			close(m.said)
			for line := range m.said {
				require.NotContains(t, line, "waits")
			}
			require.Equal(t, 1, m.columns(t))
		})
	}
}

// The error of a migration that gives up waiting names the session for which it has
// waited, and says what to do: whether a lock_timeout ends it, or what a
// statement_timeout does.
func TestGivesUpOnTheTable(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ sql, giveUp, code string }{
		"by lock_timeout": {widenOrGiveUp, "insert into public.seen default values", "55P03"},
		"by cancellation": {
			widen, "select pg_cancel_backend(pid) from pg_stat_activity where application_name = 'jobq-migrate' and wait_event_type = 'Lock' and datname = current_database()", "57014",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, _ := startBlocked(t, test.sql)
			_, err := m.pool.Exec(context.Background(), test.giveUp)
			require.NoError(t, err)
			err = <-m.ended
			require.ErrorContains(t, err, test.code)
			require.ErrorContains(t, err, fmt.Sprintf(`table jobq.thing was in use by session %d (application "the report", user `, m.report.PgConn().PID()))
			require.ErrorContains(t, err, "idle in transaction, its transaction open for ")
			require.ErrorContains(t, err, fmt.Sprintf(`end it with "select pg_terminate_backend(%d)"; then run the migration again`, m.report.PgConn().PID()))
			m.exec(t, "rollback")
			require.Zero(t, m.columns(t))
		})
	}
}

// A prepared transaction has no session: the error says where to find it.
func TestPreparedTransactionHasTheTable(t *testing.T) {
	t.Parallel()
	m, line := startBlocked(t, widenOrGiveUp, "prepare transaction 'the report of TestPreparedTransactionHasTheTable'")
	require.Contains(t, line, "table=jobq.thing holder_pid=0 ")
	m.exec(t, "insert into public.seen default values")
	require.ErrorContains(t, <-m.ended, "table jobq.thing was in use by a prepared transaction: see pg_prepared_xacts")
	m.exec(t, "rollback prepared 'the report of TestPreparedTransactionHasTheTable'")
}

// A migration that fails for a reason of its own speaks of nobody, though it has waited.
func TestWaitedAndFailed(t *testing.T) {
	t.Parallel()
	m, _ := startBlocked(t, strings.Replace(widenOrGiveUp, "return;", "raise 'no more room';", 1))
	m.exec(t, "rollback")
	err := <-m.ended
	require.ErrorContains(t, err, "no more room")
	require.NotContains(t, err.Error(), "the report")
}
