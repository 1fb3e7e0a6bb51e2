package migrate

import (
	"context"
	"log/slog"
	"testing"
	"testing/fstest"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
)

// freshPool is set by the external tests' package, which may import pgtest.
var freshPool func(t *testing.T) *pgxpool.Pool

// A migration that cannot run in a transaction runs, also while somebody else
// waits for the migrators' lock, which must not hold a snapshot.
func TestNonTransactionalMigration(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	pool := freshPool(t)
	files := fstest.MapFS{
		"001_table.up.sql":   {Data: []byte("create table jobq.thing (id bigint);")},
		"001_table.down.sql": {Data: []byte("drop table jobq.thing;")},
		"002_index.up.sql": {Data: []byte(noTransaction + "\ncreate index concurrently thing_idx on jobq.thing (id);\n" +
			"create index concurrently thing_idx2 on jobq.thing (id desc);\n")},
		"002_index.down.sql": {Data: []byte(noTransaction + "\ndrop index concurrently jobq.thing_idx2;\ndrop index concurrently jobq.thing_idx;\n")},
	}
	config := &Config{Schema: "odd-Name", Logger: slog.New(slog.DiscardHandler), source: source{files}}
	failures := make(chan error, 3)
	for range 3 {
		go func() {
			_, err := Up(ctx, pool, config)
			failures <- err
		}()
	}
	for range 3 {
		require.NoError(t, <-failures)
	}
	var indexes int
	require.NoError(t, pool.QueryRow(ctx, "select count(*) from pg_indexes where tablename = 'thing'").Scan(&indexes))
	require.Equal(t, 2, indexes)
	_, err := Down(ctx, pool, config)
	require.NoError(t, err)
	require.NoError(t, pool.QueryRow(ctx, "select count(*) from pg_indexes where tablename = 'thing'").Scan(&indexes))
	require.Zero(t, indexes)
}

// SetFreshPool hands internal tests what only external ones can import.
func SetFreshPool(fresh func(t *testing.T) *pgxpool.Pool) { freshPool = fresh }
