package jobqtest_test

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/pgtest"
	"github.com/jobq-dev/jobq/jobqtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// Greeting is the kind of job that these tests enqueue.
type Greeting struct {
	Name string `json:"name"`
}

func (Greeting) Kind() string { return "greeting" }

// outcome is a test within a test: what it has reported.
type outcome struct {
	fatal    string
	errors   []string
	logged   []string
	cleanups []func()
}

func (*outcome) Helper() {}

func (o *outcome) Logf(format string, args ...any) {
	o.logged = append(o.logged, fmt.Sprintf(format, args...))
}

func (o *outcome) Errorf(format string, args ...any) {
	o.errors = append(o.errors, fmt.Sprintf(format, args...))
}

func (o *outcome) Fatalf(format string, args ...any) {
	o.fatal = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

func (o *outcome) Cleanup(cleanup func()) { o.cleanups = append(o.cleanups, cleanup) }

// attempt runs a test, without its cleanups.
func attempt(test func(tb jobqtest.TB)) *outcome {
	o := new(outcome)
	done := make(chan struct{})
	go func() {
		defer close(done)
		test(o)
	}()
	<-done
	return o
}

// end runs the cleanups.
func (o *outcome) end() {
	for i := len(o.cleanups) - 1; i >= 0; i-- {
		o.cleanups[i]()
	}
	o.cleanups = nil
}

// serverURL leads to the server of these tests.
func serverURL(t *testing.T) string {
	t.Helper()
	return pgtest.Server(t).URL("postgres")
}

// admin is a pool on the server's own database.
func admin(t *testing.T) *pgxpool.Pool {
	t.Helper()
	return pgtest.Connect(t, serverURL(t))
}

func newDatabase(t *testing.T) *jobqtest.Database {
	t.Helper()
	return jobqtest.New(t, &jobqtest.Options{URL: serverURL(t)})
}

func count(t *testing.T, pool *pgxpool.Pool, sql string, args ...any) (n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	require.NoError(t, pool.QueryRow(ctx, sql, args...).Scan(&n))
	return n
}
