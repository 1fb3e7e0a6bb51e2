package tests

import (
	"context"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// The database explains itself: each table, view and function that docs/sql.md names has a comment, with all its columns, and
// so has every other table.
func TestComments(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	pool := setUp(t).pool
	page, err := os.ReadFile("../../docs/sql.md")
	require.NoError(t, err)
	var named []string
	for _, match := range regexp.MustCompile(`\bjobq\.([a-z_]+)`).FindAllStringSubmatch(string(page), -1) {
		named = append(named, match[1])
	}
	named = slices.Compact(slices.Sorted(slices.Values(named)))
	require.Greater(t, len(named), 40)
	texts := func(sql string, args ...any) []string {
		rows, err := pool.Query(ctx, sql, args...)
		require.NoError(t, err)
		found, err := pgx.CollectRows(rows, pgx.RowTo[string])
		require.NoError(t, err)
		return found
	}
	require.Empty(t, texts(`select c.relname from pg_class c where c.relnamespace = 'jobq'::regnamespace and c.relkind in ('r', 'p', 'v') and not c.relispartition
		and c.relname <> 'jobq_migration' and obj_description(c.oid) is null`), "tables and views without a comment: write it below the table, in sql/schema")
	require.Empty(t, texts(`select c.relname || '.' || a.attname from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
		where c.relnamespace = 'jobq'::regnamespace and c.relkind in ('r', 'p', 'v') and c.relname = any($1) and col_description(c.oid, a.attnum) is null`, named), "columns without one")
	require.Empty(t, texts(`select p.oid::regprocedure::text from pg_proc p where p.pronamespace = 'jobq'::regnamespace and p.proname = any($1) and obj_description(p.oid) is null`, named), "functions without one")
	require.Equal(t, []string{"actor", "past_lease_", "run_"}, texts(`select n.name from unnest($1::text[]) as n(name)
		where not exists (select from pg_class c where c.relnamespace = 'jobq'::regnamespace and c.relname = n.name)
			and not exists (select from pg_proc p where p.pronamespace = 'jobq'::regnamespace and p.proname = n.name)
			and not exists (select from pg_type t where t.typnamespace = 'jobq'::regnamespace and t.typname = n.name) order by n.name`, named), "names that the page has and the schema has not, but for a setting, and those of days")
}

// docs/sql.md names the functions that run with their owner's rights, and no others, so that who reviews
// privileges sees them all.
func TestFunctionsWithOwnersRights(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/sql.md")
	require.NoError(t, err)
	_, list, found := strings.Cut(string(page), "They run as the owner, with a fixed `search_path`:\n\n")
	require.True(t, found)
	list, _, _ = strings.Cut(list, "\n\n")
	var named []string
	for _, match := range regexp.MustCompile("`([a-z_]+)`").FindAllStringSubmatch(list, -1) {
		named = append(named, match[1])
	}
	rows, err := setUp(t).pool.Query(context.Background(), `select distinct p.proname::text from pg_proc p
		where p.pronamespace = 'jobq'::regnamespace and p.prosecdef and p.prorettype <> 'trigger'::regtype`)
	require.NoError(t, err)
	owners, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	require.ElementsMatch(t, owners, named)
}
