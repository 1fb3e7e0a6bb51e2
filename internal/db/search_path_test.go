package db_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/pgtest"
)

// Each function of the schema looks names up in a search_path of its own, or has looked them up when it was made.
func TestEveryFunctionHasItsSearchPath(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	pool := pgtest.Pool(t)
	rows, err := pool.Query(ctx, `select p.oid::regprocedure::text from pg_proc p
		where p.pronamespace = 'jobq'::regnamespace and p.prosqlbody is null
			and not coalesce('search_path=pg_catalog, pg_temp' = any(p.proconfig), false)`)
	require.NoError(t, err)
	unpinned, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	require.Empty(t, unpinned)
}
