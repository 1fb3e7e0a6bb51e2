package pgtest

import (
	"context"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) { Main(m) }

// Goal: tests that run at once have databases of their own, which do not
// outlive them.
func TestDatabases(t *testing.T) {
	t.Parallel()
	names := make(chan string, 12)
	t.Cleanup(func() { // when all subtests have ended
		close(names)
		s, err := shared()
		require.NoError(t, err)
		seen := map[string]bool{}
		for name := range names {
			seen[name] = true
			var left bool
			err := s.admin.QueryRow(context.Background(), "select exists (select from pg_database where datname = $1)", name).Scan(&left)
			require.NoError(t, err)
			require.False(t, left)
		}
		require.Len(t, seen, cap(names))
	})
	for range cap(names) {
		t.Run("TEST with a Näme that is much longer than an identifier may be", func(t *testing.T) {
			t.Parallel()
			pool := Pool(t)
			var name string
			require.NoError(t, pool.QueryRow(t.Context(), "select current_database()").Scan(&name))
			var jobs int
			require.NoError(t, pool.QueryRow(t.Context(), "select count(*) from jobq.pending").Scan(&jobs))
			require.Zero(t, jobs)
			_, err := pool.Exec(t.Context(), "select jobq.enqueue('seen')")
			require.NoError(t, err)
			names <- name
		})
	}
}

// Goal: EmptyURL has nothing of jobq.
func TestEmptyURL(t *testing.T) {
	t.Parallel()
	var exists bool
	err := Connect(t, EmptyURL(t)).QueryRow(t.Context(), "select exists (select from pg_namespace where nspname = 'jobq')").Scan(&exists)
	require.NoError(t, err)
	require.False(t, exists)
}

// Goal: what a test leaves behind is noticed and named.
func TestLeftovers(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ sql, undo, want string }{
		"advisory lock":          {"select pg_advisory_lock(7)", "select pg_advisory_unlock(7)", "advisory lock 0/7"},
		"open transaction":       {"begin; select 42", "rollback", "idle in transaction since"},
		"aborted transaction":    {"begin; do $$ begin perform 1/0; end $$", "rollback", "(aborted)"},
		"partition in public":    {"create table public.stray partition of jobq.attempt for values from ('1999-01-01') to ('1999-01-02')", "drop table public.stray", "schema public: stray"},
		"own tables are welcome": {"create table public.mine as select 1", "", ""},
		"open sessions are, too": {"select 1", "", ""},
		"and ended transactions": {"begin; select pg_advisory_xact_lock(7); commit", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := URL(t)
			conn, err := pgx.Connect(t.Context(), url)
			require.NoError(t, err)
			t.Cleanup(func() { _ = conn.Close(t.Context()) })          // the context is done, and so it closes at once
			_, _ = conn.PgConn().Exec(t.Context(), test.sql).ReadAll() // one of them must fail
			s, err := shared()
			require.NoError(t, err)
			err = s.awaitClean(t.Context(), conn.Config().Database)
			if test.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, test.want)
			_, err = conn.Exec(t.Context(), test.undo)
			require.NoError(t, err)
			require.NoError(t, s.awaitClean(t.Context(), conn.Config().Database))
		})
	}
}

// Goal: a test can crash a server of its own and have it back.
func TestOwnServer(t *testing.T) {
	t.Parallel()
	own := OwnServer(t)
	require.NotEqual(t, Server(t).URL("postgres"), own.URL("postgres"))
	url := own.URL("postgres")
	require.NoError(t, Migrate(t.Context(), url, "other"))
	pool := Connect(t, url)
	_, err := pool.Exec(t.Context(), "select other.enqueue('kept')")
	require.NoError(t, err)
	require.NoError(t, own.Kill())
	require.Error(t, pool.Ping(t.Context()))
	require.NoError(t, own.Relaunch(t.Context()))
	var jobs int
	require.NoError(t, pool.QueryRow(t.Context(), "select count(*) from other.pending").Scan(&jobs))
	require.Equal(t, 1, jobs)
}

// Goal: examples get a database as tests do, and it goes when they are done.
func TestExamplePool(t *testing.T) {
	t.Parallel()
	pool, done := ExamplePool()
	require.True(t, strings.HasSuffix(pool.Config().ConnConfig.Database, "_example"))
	_, err := pool.Exec(t.Context(), "select jobq.enqueue('seen')")
	require.NoError(t, err)
	done()
	_, err = pgx.Connect(t.Context(), pool.Config().ConnString())
	require.ErrorContains(t, err, "does not exist")
}

// BenchmarkDatabase measures what a test pays for its database.
func BenchmarkDatabase(b *testing.B) {
	s, err := shared()
	require.NoError(b, err)
	for b.Loop() {
		name, err := s.create(b.Context(), migratedTemplate, "bench")
		require.NoError(b, err)
		require.NoError(b, s.awaitClean(b.Context(), name))
		require.NoError(b, s.drop(b.Context(), name))
	}
}
