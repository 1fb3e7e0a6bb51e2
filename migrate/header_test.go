package migrate_test

import (
	"context"
	"io/fs"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/pgtest"
	"github.com/jobq-dev/jobq/migrate"
	"github.com/jobq-dev/jobq/sql/migrations"
)

// oneFile is a folder with one migration of that text.
func oneFile(sql string) fs.FS {
	return fstest.MapFS{"001_one.up.sql": {Data: []byte(sql)}, "001_one.down.sql": {Data: []byte("select 1;")}}
}

// A header that says nothing that we know, or what cannot be, is refused before
// anything is done, also in what is only printed.
func TestHeaders(t *testing.T) {
	t.Parallel()
	pool := pgtest.Connect(t, pgtest.EmptyURL(t))
	for sql, want := range map[string]string{
		"-- jobq:no-transactions\nselect 1;":                        "jobq:no-transaction and",
		"-- jobq:no-transaction now\nselect 1;":                     "jobq:no-transaction and",
		"-- jobq:compatible-from\nselect 1;":                        "a version is a number from 1",
		"-- jobq:compatible-from 0\nselect 1;":                      "a version is a number from 1",
		"-- jobq:compatible-from 2\nselect 1;":                      "compatible from version 2, which is later than its own",
		"-- jobq:no-transaction\n-- jobq:compatible-from x\nselect": "a version is a number from 1",
	} {
		config := migrate.WithFiles(migrate.Config{Logger: quiet}, oneFile(sql))
		_, err := migrate.Up(context.Background(), pool, config)
		require.ErrorContains(t, err, want, sql)
		require.ErrorContains(t, err, "001_one.up.sql", sql)
		_, err = migrate.SQL(config, 0)
		require.ErrorContains(t, err, want, sql)
	}
	require.Zero(t, number(t, pool, "select count(*) from pg_namespace where nspname = 'jobq'"))
}

// Each migration after the first release says from which version on programs work with
// its tables. One that says nothing would stop all of them: nobody is to do that by
// forgetting a line.
func TestEveryMigrationSaysWhoWorksWithIt(t *testing.T) {
	t.Parallel()
	undeclared, err := migrate.Undeclared(migrations.FS)
	require.NoError(t, err)
	require.Empty(t, undeclared, `write "-- jobq:compatible-from N" as its first line: docs/decisions/0026-rolling-upgrades.md`)

	undeclared, err = migrate.Undeclared(later(t, "select 1;", "-- jobq:compatible-from 1\nselect 1;"))
	require.NoError(t, err)
	require.Len(t, undeclared, 1)
}

// What psql would run writes the same record as Up does.
func TestCompatibilityInSQL(t *testing.T) {
	t.Parallel()
	files := fstest.MapFS{
		"001_one.up.sql":   {Data: []byte("select 1;")},
		"001_one.down.sql": {Data: []byte("select 1;")},
		"002_two.up.sql":   {Data: []byte(migrate.NoTransaction + "\n-- jobq:compatible-from 1\nselect 1;\n")},
		"002_two.down.sql": {Data: []byte("select 1;")},
	}
	config := migrate.WithFiles(migrate.Config{Logger: quiet}, files)
	script, err := migrate.SQL(config, 0)
	require.NoError(t, err)
	const rows = "select count(*) from jobq.jobq_migration where (version, compatible_from) in ((1, 1), (2, 1))"
	ctx := context.Background()
	printed, migrated := pgtest.Connect(t, pgtest.EmptyURL(t)), pgtest.Connect(t, pgtest.EmptyURL(t))
	conn, err := printed.Acquire(ctx)
	require.NoError(t, err)
	defer conn.Release()
	_, err = conn.Conn().PgConn().Exec(ctx, script).ReadAll()
	require.NoError(t, err)
	require.Equal(t, 2, number(t, printed, rows))
	result, err := migrate.Up(ctx, migrated, config)
	require.NoError(t, err)
	require.Equal(t, 2, number(t, migrated, rows))
	require.Equal(t, []int{1, 1}, []int{result.Versions[0].CompatibleFrom, result.Versions[1].CompatibleFrom})
	require.Len(t, result.Versions, 2)
}
