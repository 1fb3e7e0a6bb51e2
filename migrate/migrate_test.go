package migrate_test

import (
	"context"
	"log/slog"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/jobq-dev/jobq/internal/pgtest"
	"github.com/jobq-dev/jobq/migrate"
	"github.com/jobq-dev/jobq/sql/migrations"
)

func TestMain(m *testing.M) {
	migrate.SetFreshPool(func(t *testing.T) *pgxpool.Pool {
		t.Helper()
		return pgtest.Connect(t, pgtest.EmptyURL(t))
	})
	pgtest.Main(m)
}

var quiet = slog.New(slog.DiscardHandler)

// Up, down and up again, in schemas with plain and odd names, leave what the
// status says.
func TestUpAndDown(t *testing.T) {
	t.Parallel()
	for _, schema := range []string{"", "queue2", "My-Schema"} {
		t.Run("schema "+schema, func(t *testing.T) {
			t.Parallel()
			ctx := context.Background()
			pool := pgtest.Connect(t, pgtest.EmptyURL(t))
			config := migrate.Config{Schema: schema, Logger: quiet}

			status, err := migrate.GetStatus(ctx, pool, &config)
			require.NoError(t, err)
			require.Zero(t, status.Current)
			require.Equal(t, migrations.Latest(), status.Latest)

			result, err := migrate.Up(ctx, pool, &config)
			require.NoError(t, err)
			require.Len(t, result.Versions, migrations.Latest())
			again, err := migrate.Up(ctx, pool, &config)
			require.NoError(t, err)
			require.Empty(t, again.Versions)

			down, err := migrate.Down(ctx, pool, &config)
			require.NoError(t, err)
			require.Len(t, down.Versions, 1)
			config.Target = -1
			_, err = migrate.Down(ctx, pool, &config)
			require.NoError(t, err)
			var left int
			require.NoError(t, pool.QueryRow(ctx, `select count(*) from pg_class c join pg_namespace n on n.oid = c.relnamespace
				where n.nspname not in ('pg_catalog', 'information_schema', 'pg_toast')`).Scan(&left))
			require.Zero(t, left, "tables, views or sequences are left")

			config.Target = 0
			_, err = migrate.Up(ctx, pool, &config)
			require.NoError(t, err)
			status, err = migrate.GetStatus(ctx, pool, &config)
			require.NoError(t, err)
			require.False(t, status.Pending())
		})
	}
}

// Migrators that start together take turns: each migration is applied once.
func TestConcurrentMigrators(t *testing.T) {
	t.Parallel()
	pool := pgtest.Connect(t, pgtest.EmptyURL(t))
	applied := make([]int, 6)
	var group errgroup.Group
	for i := range applied {
		group.Go(func() error {
			result, err := migrate.Up(context.Background(), pool, &migrate.Config{Logger: quiet})
			if err == nil {
				applied[i] = len(result.Versions)
			}
			return err
		})
	}
	require.NoError(t, group.Wait())
	total := 0
	for _, count := range applied {
		total += count
	}
	require.Equal(t, migrations.Latest(), total)
}

// A database that a newer jobq has migrated is not touched.
func TestNewerSchemaIsRefused(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	pool := pgtest.Pool(t)
	_, err := pool.Exec(ctx, "insert into jobq.jobq_migration (version) values ($1)", migrations.Latest()+1)
	require.NoError(t, err)
	_, err = migrate.Up(ctx, pool, &migrate.Config{Logger: quiet})
	require.ErrorIs(t, err, migrate.ErrNewerSchema)
	_, err = migrate.Down(ctx, pool, &migrate.Config{Logger: quiet})
	require.ErrorIs(t, err, migrate.ErrNewerSchema)
	_, err = migrate.GetStatus(ctx, pool, &migrate.Config{Logger: quiet})
	require.ErrorIs(t, err, migrate.ErrNewerSchema)
}

// A dry run says what it would do, and does nothing.
func TestDryRun(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	pool := pgtest.Connect(t, pgtest.EmptyURL(t))
	result, err := migrate.Up(ctx, pool, &migrate.Config{DryRun: true, Logger: quiet})
	require.NoError(t, err)
	require.Len(t, result.Versions, migrations.Latest())
	status, err := migrate.GetStatus(ctx, pool, nil)
	require.NoError(t, err)
	require.Zero(t, status.Current)
}

// The printed SQL, run by hand, leaves a database that counts as migrated.
func TestSQLByHand(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	pool := pgtest.Connect(t, pgtest.EmptyURL(t))
	config := &migrate.Config{Schema: "by-hand", Logger: quiet}
	script, err := migrate.SQL(config, 0)
	require.NoError(t, err)
	conn, err := pool.Acquire(ctx)
	require.NoError(t, err)
	defer conn.Release()
	_, err = conn.Conn().PgConn().Exec(ctx, script).ReadAll()
	require.NoError(t, err)
	status, err := migrate.GetStatus(ctx, pool, config)
	require.NoError(t, err)
	require.False(t, status.Pending())
}

// Names that cannot be quoted the same way everywhere, and targets that do
// not exist, are refused with the reason.
func TestRefusedConfigs(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	pool := pgtest.Connect(t, pgtest.EmptyURL(t))
	for _, schema := range []string{`a"b`, "a'b", "a b", "1a", "pg_mine", string(make([]byte, 64))} {
		_, err := migrate.Up(ctx, pool, &migrate.Config{Schema: schema, Logger: quiet})
		require.ErrorContains(t, err, "schema name")
	}
	_, err := migrate.Up(ctx, pool, &migrate.Config{Target: 999, Logger: quiet})
	require.ErrorContains(t, err, "there is no version 999")
}

// A role that may not create a schema is told so, and nothing is half done.
func TestMissingPrivilege(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	url := pgtest.EmptyURL(t)
	admin := pgtest.Connect(t, url)
	_, err := admin.Exec(ctx, "do $$ begin create role powerless login; exception when duplicate_object then null; end $$")
	require.NoError(t, err)
	config := admin.Config()
	config.ConnConfig.User = "powerless"
	pool := pgtest.ConnectConfig(t, config)
	_, err = migrate.Up(ctx, pool, &migrate.Config{Logger: quiet})
	require.ErrorContains(t, err, "create schema jobq")
	require.ErrorContains(t, err, "permission denied")
}
