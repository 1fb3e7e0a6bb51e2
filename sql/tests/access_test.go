package tests

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/pgtest"
)

// calledByPinned are functions without a search_path, since each insert calls them.
var calledByPinned = []string{"pending_json_require", "json_problem", "json_problem_large"}

// Each function of the schema looks names up in a search_path of its own, or has looked them up when it was made. The few that
// do not are called by no query, no constraint and no view, and only by functions that do.
func TestEveryFunctionHasItsSearchPath(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	pool := pgtest.Pool(t)
	rows, err := pool.Query(ctx, `select p.oid::regprocedure::text from pg_proc p
		where p.pronamespace = 'jobq'::regnamespace and p.prosqlbody is null
			and not coalesce('search_path=pg_catalog, pg_temp' = any(p.proconfig), false) and p.proname <> all($1)`, calledByPinned)
	require.NoError(t, err)
	unpinned, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	require.Empty(t, unpinned)
	queries, err := filepath.Glob("../../internal/db/*.sql.go")
	require.NoError(t, err)
	for _, name := range calledByPinned {
		rows, err := pool.Query(ctx, `
			select p.oid::regprocedure::text from pg_proc p
				where p.pronamespace = 'jobq'::regnamespace and p.proname <> all($2) and pg_get_functiondef(p.oid) ~ ('\y' || $1 || '\(')
					and not coalesce('search_path=pg_catalog, pg_temp' = any(p.proconfig), false)
			union all
			select c.conname::text from pg_constraint c where pg_get_constraintdef(c.oid) ~ ('\y' || $1 || '\(')
			union all
			select v.viewname from pg_views v where v.definition ~ ('\y' || $1 || '\(')`, name, calledByPinned)
		require.NoError(t, err)
		callers, err := pgx.CollectRows(rows, pgx.RowTo[string])
		require.NoError(t, err)
		require.Empty(t, callers, name)
		for _, file := range queries {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			require.NotContains(t, string(text), "jobq."+name+"(", file)
		}
	}
}
