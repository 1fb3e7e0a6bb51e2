// Package pgtest gives tests real databases: one private server per test
// process, started when the first test asks for it, and a database per test,
// copied from a migrated template. For tests only.
package pgtest

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"github.com/jobq-dev/jobq/internal/postgres"
	"github.com/jobq-dev/jobq/migrate"
)

const (
	template = "jobq_template"
	timeout  = 60 * time.Second
)

// shared is the server of this test process. Tests run in one process and
// cannot be handed it otherwise.
var shared struct {
	once   sync.Once
	server *postgres.Server
	err    error
	serial atomic.Int64
	// Copying a template needs it to have no other user: one at a time.
	copying sync.Mutex
}

// Main runs a package's tests, stops the server and looks for leaked
// goroutines. To be called from TestMain.
func Main(m *testing.M) {
	code := m.Run()
	if shared.server != nil {
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		if err := shared.server.Stop(ctx); err != nil {
			fmt.Fprintln(os.Stderr, "stop the test server:", err)
			code = 1
		}
		cancel()
	}
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, "goroutines leaked:", err)
			code = 1
		}
	}
	os.Exit(code)
}

// Server is the server of this test process, shared by all its tests: do not
// stop it. A test that breaks its server starts one of its own.
func Server(tb testing.TB) *postgres.Server {
	tb.Helper()
	server, err := start()
	if err != nil {
		tb.Fatal(err)
	}
	return server
}

func start() (*postgres.Server, error) {
	shared.once.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		shared.server, shared.err = postgres.Start(ctx, postgres.Config{
			Settings: map[string]string{"max_connections": "500", "shared_buffers": "64MB", "deadlock_timeout": "50ms"},
		})
		if shared.err == nil {
			shared.err = makeTemplate(ctx, shared.server)
		}
	})
	return shared.server, shared.err
}

func makeTemplate(ctx context.Context, server *postgres.Server) error {
	if err := execute(ctx, server, "create database "+template); err != nil {
		return err
	}
	return Migrate(ctx, server.URL(template), "jobq")
}

// Migrate makes jobq's tables in a schema of a database.
func Migrate(ctx context.Context, url, schema string) error {
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return err
	}
	defer pool.Close()
	_, err = migrate.Up(ctx, pool, &migrate.Config{Schema: schema, Logger: slog.New(slog.DiscardHandler)})
	return err
}

// EmptyURL is a new database without any tables, for this test.
func EmptyURL(tb testing.TB) string {
	tb.Helper()
	return newDatabase(tb, "template1")
}

// URL is a new database with jobq's tables in the schema jobq, for this test.
func URL(tb testing.TB) string {
	tb.Helper()
	return newDatabase(tb, template)
}

// Pool is a pool on a new database as URL makes it, closed with the test.
func Pool(tb testing.TB) *pgxpool.Pool {
	tb.Helper()
	return Connect(tb, URL(tb))
}

// Connect is a pool on a database, closed with the test.
func Connect(tb testing.TB, url string) *pgxpool.Pool {
	tb.Helper()
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		tb.Fatal(err)
	}
	return ConnectConfig(tb, config)
}

// ConnectConfig is a pool as configured, closed with the test.
func ConnectConfig(tb testing.TB, config *pgxpool.Config) *pgxpool.Pool {
	tb.Helper()
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(pool.Close)
	return pool
}

// ExamplePool is Pool for runnable examples, which have no testing.TB. The
// caller calls the function returned when it is done.
func ExamplePool() (*pgxpool.Pool, func()) {
	ctx := context.Background()
	server, err := start()
	if err != nil {
		panic(err)
	}
	name, err := copyDatabase(ctx, server, template)
	if err != nil {
		panic(err)
	}
	pool, err := pgxpool.New(ctx, server.URL(name))
	if err != nil {
		panic(err)
	}
	return pool, func() {
		pool.Close()
		if err := execute(ctx, server, "drop database "+name+" with (force)"); err != nil {
			panic(err)
		}
	}
}

// newDatabase copies a database, and afterwards sees to it that the test has
// left nothing behind in it before it drops it.
func newDatabase(tb testing.TB, from string) string {
	tb.Helper()
	server := Server(tb)
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	name, err := copyDatabase(ctx, server, from)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		if err := checkLeftovers(ctx, server, name); err != nil && !tb.Failed() {
			tb.Error(err)
		}
		if err := execute(ctx, server, "drop database "+name+" with (force)"); err != nil {
			tb.Error(err)
		}
	})
	return server.URL(name)
}

func copyDatabase(ctx context.Context, server *postgres.Server, from string) (string, error) {
	name := fmt.Sprintf("test_%d", shared.serial.Add(1))
	shared.copying.Lock()
	defer shared.copying.Unlock()
	return name, execute(ctx, server, fmt.Sprintf("create database %s template %s", name, from))
}

// checkLeftovers fails when the test has left an advisory lock or an open
// transaction. Backends of closed connections take a moment to end.
func checkLeftovers(ctx context.Context, server *postgres.Server, database string) error {
	conn, err := pgx.Connect(ctx, server.URL("postgres"))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	deadline := time.Now().Add(5 * time.Second)
	for {
		var locks, transactions int
		err := conn.QueryRow(ctx, `
			select
			  (select count(*) from pg_locks l join pg_database d on d.oid = l.database
			    where d.datname = $1 and l.locktype = 'advisory'),
			  (select count(*) from pg_stat_activity a where a.datname = $1 and a.xact_start is not null
			    and a.backend_type = 'client backend')`, database).Scan(&locks, &transactions)
		if err != nil {
			return err
		}
		if locks == 0 && transactions == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the test left %d advisory locks and %d open transactions", locks, transactions)
		}
	}
}

func execute(ctx context.Context, server *postgres.Server, sql string) error {
	conn, err := pgx.Connect(ctx, server.URL("postgres"))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	_, err = conn.Exec(ctx, sql)
	return err
}
