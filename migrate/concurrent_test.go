package migrate_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/pgtest"
	"github.com/jobq-dev/jobq/migrate"
	"github.com/jobq-dev/jobq/sql/migrations"
)

const (
	// childVariable makes a copy of the test's process migrate this database.
	childVariable = "JOBQ_TEST_MIGRATE_URL"
	waitMax       = 20 * time.Second
	waitPoll      = 10 * time.Millisecond
)

// migrateAsChild migrates and prints how many migrations it applied.
func migrateAsChild(url string) (exitCode int) {
	ctx, cancel := context.WithTimeout(context.Background(), waitMax)
	defer cancel()
	pool, err := pgxpool.New(ctx, url)
	if err == nil {
		defer pool.Close()
		var result *migrate.Result
		if result, err = migrate.Up(ctx, pool, &migrate.Config{Logger: quiet}); err == nil {
			fmt.Fprint(os.Stdout, len(result.Versions))
			return 0
		}
	}
	fmt.Fprint(os.Stderr, err)
	return 1
}

// outcome is what one of several migrators at once has to say.
type outcome struct {
	applied int
	err     error
}

// startMigrators runs Up several times at once, in this process.
func startMigrators(ctx context.Context, pool *pgxpool.Pool, config *migrate.Config, count int, outcomes chan<- outcome) {
	for range count {
		go func() {
			result, err := migrate.Up(ctx, pool, config)
			if err != nil {
				outcomes <- outcome{err: err}
				return
			}
			outcomes <- outcome{applied: len(result.Versions)}
		}()
	}
}

// total waits for migrators, none of which may fail, and adds up what they did.
func total(t *testing.T, outcomes <-chan outcome, count int) int {
	t.Helper()
	sum := 0
	for range count {
		select {
		case outcome := <-outcomes:
			require.NoError(t, outcome.err)
			sum += outcome.applied
		case <-time.After(waitMax):
			t.Fatal("a migrator hangs")
		}
	}
	return sum
}

func number(t *testing.T, pool *pgxpool.Pool, sql string, args ...any) int {
	t.Helper()
	var result int
	require.NoError(t, pool.QueryRow(context.Background(), sql, args...).Scan(&result))
	return result
}

func eventually(t *testing.T, pool *pgxpool.Pool, want int, sql string) {
	t.Helper()
	require.Eventually(t, func() bool { return number(t, pool, sql) >= want }, waitMax, waitPoll, sql)
}

const migrators = "select count(*) from pg_stat_activity where datname = current_database() and application_name = 'jobq-migrate'"

// Four migrators in this process and three in others that all find an empty
// database take turns: each migration is applied once, and nobody fails. The
// test has the first turn, to see all of them wait for theirs.
func TestConcurrentMigrators(t *testing.T) {
	t.Parallel()
	const goroutines, processes = 4, 3
	ctx := context.Background()
	url := pgtest.EmptyURL(t)
	pool := pgtest.Connect(t, url)
	schema, err := db.NewSchema("")
	require.NoError(t, err)
	class, object := schema.AdvisoryKey(db.LockMigrate)
	turn, err := pool.Begin(ctx)
	require.NoError(t, err)
	_, err = turn.Exec(ctx, "select pg_advisory_xact_lock($1, $2)", class, object)
	require.NoError(t, err)

	outcomes := make(chan outcome, goroutines+processes)
	startMigrators(ctx, pool, &migrate.Config{Logger: quiet}, goroutines, outcomes)
	for range processes {
		child := exec.Command(os.Args[0])
		child.Env = append(os.Environ(), childVariable+"="+url)
		go func() {
			var stderr bytes.Buffer
			child.Stderr = &stderr
			stdout, err := child.Output()
			if err != nil {
				outcomes <- outcome{err: fmt.Errorf("%w: %s", err, stderr.String())}
				return
			}
			applied, err := strconv.Atoi(string(stdout))
			outcomes <- outcome{applied: applied, err: err}
		}()
	}
	eventually(t, pool, goroutines+processes, migrators)
	require.Zero(t, number(t, pool, "select count(*) from pg_namespace where nspname = 'jobq'"), "nobody has begun")
	require.NoError(t, turn.Rollback(ctx))
	require.Equal(t, migrations.Latest(), total(t, outcomes, goroutines+processes))
}

// indexFiles make a table and then indexes without locking it. They can be
// run again when they were cut short.
func indexFiles() fstest.MapFS {
	return fstest.MapFS{
		"001_table.up.sql":   {Data: []byte("create table jobq.thing (id bigint);")},
		"001_table.down.sql": {Data: []byte("drop table jobq.thing;")},
		"002_index.up.sql": {Data: []byte(migrate.NoTransaction + `
set statement_timeout = '77 s';
drop index concurrently if exists jobq.thing_idx;
create index concurrently thing_idx on jobq.thing (id);
create index concurrently thing_idx2 on jobq.thing (id, (1));
create table jobq.session as select current_setting('statement_timeout') as timeout;
`)},
		"002_index.down.sql": {Data: []byte(migrate.NoTransaction + `
drop table jobq.session;
drop index concurrently jobq.thing_idx2;
drop index concurrently jobq.thing_idx`)},
		"003_session.up.sql":   {Data: []byte("create table jobq.later as select current_setting('statement_timeout') as timeout;")},
		"003_session.down.sql": {Data: []byte("drop table jobq.later;")},
	}
}

const validIndexes = "select count(*) from pg_index where indrelid = to_regclass('\"odd-Name\".thing') and indisvalid"

// A migration that cannot run in a transaction runs statement by statement in
// one session of its own, also while other migrators wait; and back again.
func TestNonTransactionalMigration(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	pool := pgtest.Connect(t, pgtest.EmptyURL(t))
	config := migrate.WithFiles(migrate.Config{Schema: "odd-Name", Logger: quiet}, indexFiles())
	outcomes := make(chan outcome, 3)
	startMigrators(ctx, pool, config, 3, outcomes)
	require.Equal(t, 3, total(t, outcomes, 3))
	require.Equal(t, 2, number(t, pool, validIndexes))
	var during, after string
	require.NoError(t, pool.QueryRow(ctx, `select (select timeout from "odd-Name".session), (select timeout from "odd-Name".later)`).Scan(&during, &after))
	require.Equal(t, "77s", during, "a setting holds for the rest of its migration")
	require.Equal(t, "0", after, "and for no other")

	down := *config
	down.Target = 1
	result, err := migrate.Down(ctx, pool, &down)
	require.NoError(t, err)
	require.Len(t, result.Versions, 2)
	require.Zero(t, number(t, pool, validIndexes))
}

// startBehindTransaction starts three migrators on a database with an open
// transaction, for which CREATE INDEX CONCURRENTLY must wait, and returns when
// it does. The settings of the database are what could trap or end our own
// transactions meanwhile.
func startBehindTransaction(ctx context.Context, t *testing.T) (pool *pgxpool.Pool, blocker pgx.Tx, outcomes chan outcome) {
	t.Helper()
	pool = pgtest.Connect(t, pgtest.EmptyURL(t))
	_, err := pool.Exec(ctx, `do $$ begin
		execute format('alter database %I set idle_in_transaction_session_timeout = ''100ms''', current_database());
		execute format('alter database %I set default_transaction_isolation = ''serializable''', current_database());
		end $$`)
	require.NoError(t, err)
	blocker, err = pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	require.NoError(t, err)
	t.Cleanup(func() { _ = blocker.Rollback(context.Background()) }) // most have done it
	_, err = blocker.Exec(ctx, "set local idle_in_transaction_session_timeout = 0; select 1 from pg_class")
	require.NoError(t, err)

	outcomes = make(chan outcome, 3)
	config := migrate.WithFiles(migrate.Config{Schema: "odd-Name", Logger: quiet}, indexFiles())
	startMigrators(ctx, pool, config, 3, outcomes)
	eventually(t, pool, 1, migrators+" and wait_event = 'virtualxid' and query like 'create index concurrently thing_idx %'")
	return pool, blocker, outcomes
}

// A long transaction elsewhere holds up a concurrent index, as it must, but
// only until it ends: our own connections hold no snapshot for which the index
// would wait, whatever the isolation level, and nothing ends them meanwhile.
func TestLongTransactionElsewhere(t *testing.T) {
	t.Parallel()
	pool, blocker, outcomes := startBehindTransaction(context.Background(), t)
	waiting := migrators + ` and query not like 'create index concurrently%' and state = 'idle in transaction'`
	eventually(t, pool, 1, waiting)
	require.Never(t, func() bool {
		return number(t, pool, waiting+" and backend_xmin is not null") > 0 || len(outcomes) > 0
	}, 300*time.Millisecond, waitPoll, "a snapshot is held, or a migrator has ended, while the index waits")
	require.NoError(t, blocker.Rollback(context.Background()))
	require.Equal(t, 3, total(t, outcomes, 3))
	require.Equal(t, 2, number(t, pool, validIndexes))
}

// A migration that is cancelled says so, waiting migrators too; it leaves no
// lock behind, and the next one completes what was half done.
func TestCancelledMigration(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	pool, blocker, outcomes := startBehindTransaction(ctx, t)
	cancel()
	for range 3 {
		require.ErrorIs(t, (<-outcomes).err, context.Canceled)
	}
	ctx = context.Background()
	require.NoError(t, blocker.Rollback(ctx))
	config := migrate.WithFiles(migrate.Config{Schema: "odd-Name", Logger: quiet}, indexFiles())
	status, err := migrate.GetStatus(ctx, pool, config)
	require.NoError(t, err)
	require.Equal(t, 1, status.Current)
	result, err := migrate.Up(ctx, pool, config)
	require.NoError(t, err)
	require.Len(t, result.Versions, 2)
	require.Equal(t, 2, number(t, pool, validIndexes))
}

// Whoever gives up waiting is told for what it waited.
func TestWaitGivenUp(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	pool := pgtest.Connect(t, pgtest.EmptyURL(t))
	schema, err := db.NewSchema("")
	require.NoError(t, err)
	class, object := schema.AdvisoryKey(db.LockMigrate)
	turn, err := pool.Begin(ctx)
	require.NoError(t, err)
	_, err = turn.Exec(ctx, "select pg_advisory_xact_lock($1, $2)", class, object)
	require.NoError(t, err)
	limited, cancel := context.WithCancel(ctx)
	defer cancel()
	waits := slog.New(slog.NewTextHandler(writerFunc(func(line []byte) {
		if strings.Contains(string(line), "waiting for another migration") {
			cancel()
		}
	}), nil))
	_, err = migrate.Up(limited, pool, &migrate.Config{Logger: waits})
	require.ErrorIs(t, err, context.Canceled)
	require.Regexp(t, "another migration is under way|wait for other migrators", err.Error())
	require.NoError(t, turn.Rollback(ctx))
}

// writerFunc is called with what is written.
type writerFunc func(line []byte)

func (f writerFunc) Write(line []byte) (int, error) {
	f(line)
	return len(line), nil
}
