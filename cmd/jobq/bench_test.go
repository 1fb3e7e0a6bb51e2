package main

import (
	"context"
	"encoding/json"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/cmd/jobq/internal/bench"
	"github.com/jobq-dev/jobq/internal/pgtest"
)

const benchSchemas = "select count(*) from pg_namespace where nspname like 'jobq\\_bench\\_%'"

// Every bench measures something, as a table and as JSON, and leaves nothing
// behind. The numbers of jobs are small: the figures mean nothing.
func TestBench(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		flags   string
		cases   []string
		figures []string
	}{
		"drain":   {"--jobs 300 --workers 2 --slots 3", []string{"drain"}, []string{"jobs", "client cpu", "wal"}},
		"enqueue": {"--duration 50ms --writers 2 --batch 10", []string{"one by one, 2 writers", "10 at once, 1 writer"}, []string{"jobs"}},
		"latency": {"--samples 5", []string{"bare NOTIFY", "pickup", "scheduled"}, []string{"p50", "p99"}},
		"mixed":   {"--rate 200 --duration 200ms --writers 2", []string{"mixed"}, []string{"wanted", "jobs", "p99"}},
		"idle":    {"--duration 100ms --workers 2", []string{"idle"}, []string{"statements", "client cpu"}},
		"backlog": {"--jobs 200 --rows 1000", []string{"nothing else", "1000 waiting"}, []string{"jobs"}},
		"history": {"--jobs 200 --rows 1000", []string{"nothing else", "1000 finished"}, []string{"jobs"}},
		"held":    {"--duration 500ms", []string{"no transaction open", "transaction open"}, []string{"jobs", "last tenth"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := pgtest.EmptyURL(t)
			args := append([]string{"bench", name, "--database-url", url}, strings.Fields(test.flags)...)
			out, errs, code := invoke(t, "", append(args, "--json")...)
			require.Zero(t, code, errs)
			var result bench.Result
			require.NoError(t, json.Unmarshal([]byte(out), &result))
			require.Equal(t, name, result.Bench)
			require.Equal(t, "server_version", result.Server[0].Name)
			measured := make(map[string]bool)
			for _, c := range result.Cases {
				measured[c.Name] = true
				if c.Name == "bare NOTIFY" || c.Name == "pickup" {
					require.Positive(t, c.Figures[0].Value)
				}
				for _, figure := range test.figures {
					require.Contains(t, c.Figures, figureNamed(c, figure), c.Name)
				}
			}
			for _, c := range test.cases {
				require.True(t, measured[c], "%s in %v", c, measured)
			}

			out, errs, code = invoke(t, "", args...)
			require.Zero(t, code, errs)
			for _, c := range test.cases {
				require.Contains(t, out, "\n"+c+"  ")
			}
			require.Zero(t, query[int](t, pgtest.Connect(t, url), benchSchemas))
		})
	}
}

// figureNamed is a case's figure of that name, or one that it does not have.
func figureNamed(c bench.Case, name string) bench.Figure {
	for _, figure := range c.Figures {
		if figure.Name == name {
			return figure
		}
	}
	return bench.Figure{Name: name}
}

// An interrupted bench removes its schema, also in the middle of a case and
// with a transaction open.
func TestInterruptedBench(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ flags, at string }{
		"drain": {"--jobs 100000000", "enqueueing"},
		"idle":  {"--duration 1h", "watching"},
		"mixed": {"--duration 1h", "a second for"},
		"held":  {"--duration 1h", "letting jobs flow"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := pgtest.EmptyURL(t)
			pool := pgtest.Connect(t, url)
			p := startProcess(t, append([]string{"bench", name, "--database-url", url}, strings.Fields(test.flags)...)...)
			p.awaitLog(t, test.at)
			require.Equal(t, 1, query[int](t, pool, benchSchemas))
			require.NoError(t, p.Process.Signal(syscall.SIGINT))
			require.Error(t, p.Wait())
			require.Equal(t, exitError, p.ProcessState.ExitCode())
			require.Zero(t, query[int](t, pool, benchSchemas))
		})
	}
}

// A bench that fails says so, and removes its schema as well: here the
// database takes no rows any more.
func TestFailingBench(t *testing.T) {
	t.Parallel()
	url := pgtest.EmptyURL(t)
	pool := pgtest.Connect(t, url)
	ended := make(chan string)
	go func() {
		_, errs, code := invoke(t, "", "bench", "mixed", "--duration", "1h", "--database-url", url)
		if code == exitOK {
			errs = "no error"
		}
		ended <- errs
	}()
	eventually(t, pool, true, "select count(*) > 0 from pg_class where relname = 'worker' and relnamespace::regnamespace::text like 'jobq\\_bench\\_%'")
	schema := query[string](t, pool, "select nspname::text from pg_namespace where nspname like 'jobq\\_bench\\_%'")
	eventually(t, pool, true, "select count(*) > 0 from pg_class where relname = 'committed'")
	_, err := pool.Exec(context.Background(), `alter table "`+schema+`".pending add constraint no check (false) not valid`)
	require.NoError(t, err)
	select {
	case errs := <-ended:
		require.Contains(t, errs, "bench mixed: ")
	case <-time.After(patience):
		t.Fatal("the bench goes on")
	}
	require.Zero(t, query[int](t, pool, benchSchemas))
}

// A bench in a session that cannot write says so at once, and neither waits for
// that to pass nor speaks of a schema that it has not made.
func TestReadOnlyBench(t *testing.T) {
	t.Parallel()
	_, errs, code := invoke(t, "", "bench", "drain", "--database-url", pgtest.EmptyURL(t)+"&default_transaction_read_only=on")
	require.Equal(t, exitError, code)
	require.Contains(t, errs, "the session is read-only")
	require.NotContains(t, errs, "left behind")
	require.NotContains(t, errs, "deadline", "the time that one waits for something to pass had not come to its end")
}

// The held transaction outlasts what the database's own settings allow one that
// is idle.
func TestHeldBenchUnderTimeout(t *testing.T) {
	t.Parallel()
	url := pgtest.EmptyURL(t)
	_, err := pgtest.Connect(t, url).Exec(context.Background(),
		"do $$ begin execute format('alter database %I set idle_in_transaction_session_timeout = 100', current_database()); end $$")
	require.NoError(t, err)
	_, errs, code := invoke(t, "", "bench", "held", "--duration", "500ms", "--database-url", url)
	require.Zero(t, code, errs)
}

// A held transaction that did not stay open is an error, and no figure.
func TestHeldBenchThatEnds(t *testing.T) {
	t.Parallel()
	url := pgtest.EmptyURL(t)
	pool := pgtest.Connect(t, url)
	ended := make(chan string)
	go func() {
		_, errs, code := invoke(t, "", "bench", "held", "--duration", "2s", "--database-url", url)
		if code == exitOK {
			errs = "no error"
		}
		ended <- errs
	}()
	eventually(t, pool, true, `select coalesce(bool_or(pg_terminate_backend(a.pid)), false) from pg_stat_activity a
		where a.datname = current_database() and a.state = 'idle in transaction' and a.query like 'select count(*) from %committed'`)
	select {
	case errs := <-ended:
		require.Contains(t, errs, "the transaction did not stay open")
	case <-time.After(patience):
		t.Fatal("the bench goes on")
	}
	require.Zero(t, query[int](t, pool, benchSchemas))
}

// A bench says which schemas others have left, and leaves them alone.
func TestBenchNamesLeftovers(t *testing.T) {
	t.Parallel()
	url := pgtest.EmptyURL(t)
	pool := pgtest.Connect(t, url)
	_, err := pool.Exec(context.Background(), "create schema jobq_bench_left")
	require.NoError(t, err)
	_, errs, code := invoke(t, "", "bench", "drain", "--jobs", "10", "--database-url", url)
	require.Zero(t, code, errs)
	require.Contains(t, errs, "drop schema jobq_bench_left cascade removes it")
	require.Equal(t, 1, query[int](t, pool, benchSchemas))
}

// Numbers that make no sense are mistakes of usage, and so is a schema.
func TestBenchUsage(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"drain --jobs 0":       "--jobs must be positive",
		"drain --slots -1":     "--slots must not be negative",
		"drain --schema other": "schema of its own",
		"held --duration 0s":   "--duration must be positive",
		"mixed --jobs 1":       "unknown flag: --jobs",
		"drain extra":          "usage: jobq bench drain",
	} {
		_, errs, code := invoke(t, "", append([]string{"bench"}, strings.Fields(args)...)...)
		require.Equal(t, exitUsage, code, args)
		require.Contains(t, errs, want, args)
	}
}
