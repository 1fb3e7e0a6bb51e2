package migrate_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/pgtest"
	"github.com/jobq-dev/jobq/migrate"
	"github.com/jobq-dev/jobq/sql/migrations"
)

func TestMain(m *testing.M) {
	if url := os.Getenv(childVariable); url != "" {
		os.Exit(migrateAsChild(url))
	}
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

// A database that a later jobq has migrated, so that this one no longer works with it,
// is not touched, in either direction, and the error says what to do.
func TestNewerSchemaIsRefused(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	pool := pgtest.Pool(t)
	newer := migrations.Latest() + 1
	_, err := pool.Exec(ctx, "insert into jobq.jobq_migration (version, compatible_from) values ($1, $1)", newer)
	require.NoError(t, err)
	want := fmt.Sprintf("it has version %d, made for programs that know version %d or later, this jobq knows %d; upgrade jobq", newer, newer, newer-1)
	for _, config := range []*migrate.Config{{}, {DryRun: true}, {Target: 1}} {
		config.Logger = quiet
		_, err = migrate.Up(ctx, pool, config)
		require.ErrorIs(t, err, migrate.ErrNewerSchema)
		require.ErrorContains(t, err, want)
		_, err = migrate.Down(ctx, pool, config)
		require.ErrorIs(t, err, migrate.ErrNewerSchema)
		require.ErrorContains(t, err, "take it back with the jobq that has migrated it")
	}
	status, err := migrate.GetStatus(ctx, pool, &migrate.Config{Logger: quiet})
	require.ErrorIs(t, err, migrate.ErrNewerSchema)
	require.ErrorContains(t, err, want)
	require.Equal(t, newer, status.Current)
	require.Len(t, status.Versions, newer)
	require.NotNil(t, status.Versions[newer-1].AppliedAt, "the unknown one is listed too")
	var tables int
	require.NoError(t, pool.QueryRow(ctx, "select count(*) from pg_tables where schemaname = 'jobq' and tablename = 'pending'").Scan(&tables))
	require.Equal(t, 1, tables)
}

// A dry run says what it would do, in either direction, and does nothing: not
// even the schema is made.
func TestDryRun(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	pool := pgtest.Connect(t, pgtest.EmptyURL(t))
	dry := &migrate.Config{DryRun: true, Logger: quiet}
	result, err := migrate.Up(ctx, pool, dry)
	require.NoError(t, err)
	require.Len(t, result.Versions, migrations.Latest())
	var made bool
	require.NoError(t, pool.QueryRow(ctx, "select exists (select from pg_namespace where nspname = 'jobq')").Scan(&made))
	require.False(t, made)
	status, err := migrate.GetStatus(ctx, pool, nil)
	require.NoError(t, err)
	require.Zero(t, status.Current)

	_, err = migrate.Up(ctx, pool, &migrate.Config{Logger: quiet})
	require.NoError(t, err)
	dry.Target = -1
	result, err = migrate.Down(ctx, pool, dry)
	require.NoError(t, err)
	require.Len(t, result.Versions, migrations.Latest())
	status, err = migrate.GetStatus(ctx, pool, nil)
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
	for _, target := range []int{-2, -1, 999} {
		_, err := migrate.Up(ctx, pool, &migrate.Config{Target: target, Logger: quiet})
		require.ErrorContains(t, err, fmt.Sprintf("there is no version %d", target))
	}
	for target, want := range map[int]string{-2: "there is no version -2", 1: "version 1 is not applied: the database has version 0"} {
		_, err := migrate.Down(ctx, pool, &migrate.Config{Target: target, Logger: quiet})
		require.ErrorContains(t, err, want)
	}
	result, err := migrate.Down(ctx, pool, &migrate.Config{Logger: quiet})
	require.NoError(t, err)
	require.Empty(t, result.Versions, "there is nothing to take back")
}
