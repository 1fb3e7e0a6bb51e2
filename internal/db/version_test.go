package db_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/pgtest"
	"github.com/jobq-dev/jobq/sql/migrations"
)

// Which tables a program works with: those that have all migrations that it knows, and
// later ones as long as each of them is compatible with it. The error names what is to
// be done.
func TestCheckVersion(t *testing.T) {
	t.Parallel()
	latest := migrations.Latest()
	type row struct{ version, compatibleFrom int }
	for name, test := range map[string]struct {
		later   []row
		forget  int // a migration that was not applied
		err     error
		problem string
	}{
		"its own":                              {},
		"later and compatible":                 {later: []row{{latest + 1, latest}, {latest + 2, 1}}},
		"later and not":                        {later: []row{{latest + 1, latest + 1}}, err: db.ErrNewerSchema, problem: "upgrade jobq"},
		"later, not, and one more":             {later: []row{{latest + 1, latest + 1}, {latest + 2, latest}}, err: db.ErrNewerSchema, problem: "upgrade jobq"},
		"the last is missing":                  {forget: latest, err: db.ErrNotMigrated, problem: "jobq migrate up"},
		"one is missing, later and compatible": {later: []row{{latest + 1, latest}}, forget: latest, err: db.ErrNotMigrated, problem: "of the migrations"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := context.Background()
			pool := pgtest.Pool(t)
			_, err := pool.Exec(ctx, "delete from jobq.jobq_migration where version = $1", test.forget)
			require.NoError(t, err)
			for _, row := range test.later {
				_, err := pool.Exec(ctx, "insert into jobq.jobq_migration (version, compatible_from) values ($1, $2)", row.version, row.compatibleFrom)
				require.NoError(t, err)
			}
			schema, err := db.NewSchema("")
			require.NoError(t, err)
			err = db.CheckVersion(ctx, pool, schema)
			require.ErrorIs(t, err, test.err)
			if test.err != nil {
				require.ErrorContains(t, err, test.problem)
			}
			tables, err := db.ReadTables(ctx, pool, schema)
			require.NoError(t, err)
			require.Equal(t, len(test.later) > 0, tables.AreNewer())
		})
	}
}
