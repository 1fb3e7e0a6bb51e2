// Package pgtest gives tests real databases: one private server per test
// process, started when the first test asks for it, and a database per test,
// copied from a migrated template. When a test ends, its database must have no
// advisory lock and no open transaction left. For tests only.
//
// Packages that migrate imports can use it only from external tests (package
// x_test), since it imports migrate.
package pgtest

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/jobq-dev/jobq/internal/postgres"
	"github.com/jobq-dev/jobq/migrate"
)

// timeout bounds everything that is done here for a test.
const timeout = 60 * time.Second

// Main runs a package's tests, stops the server and looks for leaked
// goroutines, of which none are ignored. To be called from TestMain; it does
// not return.
func Main(m *testing.M) {
	code := m.Run()
	if err := stopShared(); err != nil {
		fmt.Fprintln(os.Stderr, "stop the test server:", err)
		code = 1
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
// stop it, nor change its settings. See OwnServer.
func Server(tb testing.TB) *postgres.Server {
	tb.Helper()
	s, err := shared()
	require.NoError(tb, err)
	return s.postgres
}

// OwnServer is a server for this test alone, which may kill and relaunch it;
// stopped with the test. It has no database but postgres, see Migrate.
func OwnServer(tb testing.TB) *postgres.Server {
	tb.Helper()
	return ownServer(tb, config())
}

// TCPServer is OwnServer, reached over TCP on the loopback.
func TCPServer(tb testing.TB) *postgres.Server {
	tb.Helper()
	settings := config()
	settings.TCP = true
	return ownServer(tb, settings)
}

func ownServer(tb testing.TB, settings postgres.Config) *postgres.Server {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	s, err := postgres.Start(ctx, settings)
	require.NoError(tb, err)
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		require.NoError(tb, s.Stop(ctx))
	})
	return s
}

// Migrate makes jobq's tables in a schema of a database.
func Migrate(ctx context.Context, url, schema string) error {
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return err
	}
	defer pool.Close()
	if _, err = migrate.Up(ctx, pool, &migrate.Config{Schema: schema, Logger: slog.New(slog.DiscardHandler)}); err != nil {
		return err
	}
	_, err = pool.Exec(ctx, "update "+pgx.Identifier{schema}.Sanitize()+".secret set run_key = $1", RunKey)
	return err
}

// RunKey is the key of run tokens in databases of tests: see db.RunToken.
var RunKey = make([]byte, 128)

// EmptyURL is a new database without any tables, for this test.
func EmptyURL(tb testing.TB) string {
	tb.Helper()
	return newDatabase(tb, emptyTemplate)
}

// URL is a new database with jobq's tables in the schema jobq, for this test.
func URL(tb testing.TB) string {
	tb.Helper()
	return newDatabase(tb, migratedTemplate)
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
	require.NoError(tb, err)
	return ConnectConfig(tb, config)
}

// ConnectConfig is a pool as configured, closed with the test. A test that
// still uses a connection of it then fails; it would wait for ever otherwise.
func ConnectConfig(tb testing.TB, config *pgxpool.Config) *pgxpool.Pool {
	tb.Helper()
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	require.NoError(tb, err)
	tb.Cleanup(func() {
		closed := make(chan struct{})
		go func() {
			pool.Close()
			close(closed)
		}()
		select {
		case <-closed:
		case <-time.After(cleanTimeout):
			// What blocks it gets an error when the database is dropped.
			tb.Errorf("%d connections of a pool are in use after the test", pool.Stat().AcquiredConns())
		}
	})
	return pool
}

// ExamplePool is Pool for runnable examples, which have no testing.TB. The
// caller calls the function returned when it is done.
func ExamplePool() (*pgxpool.Pool, func()) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	s, err := shared()
	if err != nil {
		panic(err)
	}
	name, err := s.create(ctx, migratedTemplate, "example")
	if err != nil {
		panic(err)
	}
	pool, err := pgxpool.New(ctx, s.postgres.URL(name))
	if err != nil {
		panic(err)
	}
	return pool, func() {
		pool.Close()
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		if err := s.drop(ctx, name); err != nil {
			panic(err)
		}
	}
}

// ExampleServer is Server for runnable examples, which have no testing.TB.
func ExampleServer() *postgres.Server {
	s, err := shared()
	if err != nil {
		panic(err)
	}
	return s.postgres
}

// newDatabase makes a database and, when the test has ended, sees to it that
// nothing was left behind in it before it drops it.
func newDatabase(tb testing.TB, template string) string {
	tb.Helper()
	s, err := shared()
	require.NoError(tb, err)
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	name, err := s.create(ctx, template, tb.Name())
	require.NoError(tb, err)
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		// A test that failed halfway may leave anything: its failure is enough.
		if !tb.Failed() {
			if err := s.awaitClean(ctx, name); err != nil {
				tb.Error(err)
			}
		}
		if err := s.drop(ctx, name); err != nil {
			tb.Error(err)
		}
	})
	return s.postgres.URL(name)
}
