package schema_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/pgtest"
	"github.com/jobq-dev/jobq/sql/schema"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

const (
	initialUp   = "../migrations/001_initial.up.sql"
	initialDown = "../migrations/001_initial.down.sql"
)

// made is a database in which the schema was made from the files of this folder.
func made(t *testing.T) *pgxpool.Pool {
	t.Helper()
	pool := pgtest.Connect(t, pgtest.EmptyURL(t))
	_, err := pool.Exec(context.Background(), "create schema jobq; "+db.Render(schema.SQL(), db.DefaultSchema), pgx.QueryExecModeSimpleProtocol)
	require.NoError(t, err)
	return pool
}

func lines(t *testing.T, pool *pgxpool.Pool, sql string, args ...any) []string {
	t.Helper()
	rows, err := pool.Query(context.Background(), sql, args...)
	require.NoError(t, err)
	texts, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	return texts
}

// Every file is run, and 001_initial is all of them.
func TestInitialMigration(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("*.sql")
	require.NoError(t, err)
	sql := schema.SQL()
	for _, name := range files {
		text, err := os.ReadFile(name) // #nosec G304 -- our own
		require.NoError(t, err)
		require.Equal(t, 1, strings.Count(sql, string(text)), name)
	}
	compare(t, initialUp, schema.Initial())
}

// Nothing is left of it but what others have made in the schema.
func TestInitialMigrationDown(t *testing.T) {
	t.Parallel()
	compare(t, initialDown, schema.Header+dropAll(t))
}

// compare compares a file with what it should be, or writes it.
func compare(t *testing.T, name, want string) {
	t.Helper()
	if os.Getenv("JOBQ_GOLDEN") == "write" {
		require.NoError(t, os.WriteFile(name, []byte(want), 0o600))
	}
	text, err := os.ReadFile(name) // #nosec G304 -- our own
	require.NoError(t, err)
	require.Equal(t, want, string(text), "`make generate` writes it anew")
}

// droppedDays drops days that retention has taken out of the history, and not dropped yet.
const droppedDays = `
do $$
declare
  day text;
begin
  for day in
    select c.relname
      from pg_class c
      where c.relnamespace = (select p.relnamespace from pg_class p where p.oid = 'jobq.run'::regclass)
        and c.relkind = 'r' and not c.relispartition and c.relname ~ '^run_[0-9]{8}_past$'
  loop
    execute format('drop table jobq.%I', day);
  end loop;
end $$;

`

// dropAll drops what the files make, the latest first: partitions go with their tables, and indexes with theirs.
func dropAll(t *testing.T) string {
	t.Helper()
	return droppedDays + strings.Join(lines(t, made(t), `
		select 'drop ' || x.what || ';' from (
			select c.oid, case c.relkind when 'v' then 'view ' when 'S' then 'sequence ' else 'table ' end || c.oid::regclass as what
				from pg_class c
				where c.relnamespace = 'jobq'::regnamespace and c.relkind in ('r', 'p', 'v', 'S') and not c.relispartition
					and not exists (select from pg_depend d where d.objid = c.oid and d.deptype = 'i' and c.relkind = 'S') -- of identity columns
			union all
			select p.oid, 'function ' || regexp_replace(p.oid::regprocedure::text, '(.{70}[^,]*),', E'\\1,\n  ', 'g')
				from pg_proc p where p.pronamespace = 'jobq'::regnamespace
			union all
			select y.oid, case y.typtype when 'd' then 'domain ' else 'type ' end || y.oid::regtype
				from pg_type y where y.typnamespace = 'jobq'::regnamespace and y.typtype in ('d', 'e')
			union all
			select g.oid, format('trigger %I on %s', g.tgname, g.tgrelid::regclass)
				from pg_trigger g
				where g.tgrelid in (select c.oid from pg_class c where c.relnamespace = 'jobq'::regnamespace and not c.relispartition) and not g.tgisinternal
		) x order by x.oid desc`), "\n") + "\n"
}

// describe is everything of a schema that a migration could get wrong, a line each. Days of the history come and go.
func describe(t *testing.T, pool *pgxpool.Pool) []string {
	t.Helper()
	return lines(t, pool, `
		with ours as (
			select c.* from pg_class c where c.relnamespace = 'jobq'::regnamespace and c.relname !~ '_[0-9]{8}(_|$)' and c.relname !~ '^jobq_migration'
		)
		select x.line collate "C" from (
			select concat_ws(' ', 'relation', c.relname, c.relkind, c.relpersistence, c.reloptions::text, c.relreplident, c.relacl::text,
					case when c.relkind = 'v' then pg_get_viewdef(c.oid) end, obj_description(c.oid, 'pg_class')) as line
				from ours c
			union all
			select concat_ws(' ', 'column', c.relname, a.attnum, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attidentity, a.attstorage,
					pg_get_expr(d.adbin, d.adrelid), a.attacl::text, col_description(c.oid, a.attnum))
				from ours c
				join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
				left join pg_attrdef d on d.adrelid = c.oid and d.adnum = a.attnum
				where c.relkind in ('r', 'p', 'v')
			union all
			select concat_ws(' ', 'sequence', s.sequencename, s.data_type, s.start_value, s.min_value, s.max_value, s.increment_by, s.cycle, s.cache_size)
				from pg_sequences s where s.schemaname = 'jobq'
			union all
			select concat_ws(' ', 'constraint', k.conrelid::regclass, k.contypid::regtype, k.conname, pg_get_constraintdef(k.oid))
				from pg_constraint k where k.connamespace = 'jobq'::regnamespace and k.conrelid::regclass::text !~ '_[0-9]{8}(_|$)|jobq_migration'
			union all
			select concat_ws(' ', 'index', pg_get_indexdef(i.indexrelid)) from pg_index i join ours c on c.oid = i.indexrelid
			union all
			select concat_ws(' ', 'trigger', pg_get_triggerdef(g.oid)) from pg_trigger g join ours c on c.oid = g.tgrelid where not g.tgisinternal
			union all
			select concat_ws(' ', 'function', pg_get_functiondef(p.oid), p.proacl::text, obj_description(p.oid, 'pg_proc'))
				from pg_proc p where p.pronamespace = 'jobq'::regnamespace
			union all
			select concat_ws(' ', 'type', y.typname, y.typtype, (select string_agg(e.enumlabel, ' ' order by e.enumsortorder) from pg_enum e where e.enumtypid = y.oid),
					obj_description(y.oid, 'pg_type'))
				from pg_type y where y.typnamespace = 'jobq'::regnamespace and y.typtype in ('d', 'e')
		) x order by 1`)
}

// What the migrations make, one after the other, is what the files of this folder say.
func TestMigrationsMakeTheSchema(t *testing.T) {
	t.Parallel()
	files, migrated := describe(t, made(t)), describe(t, pgtest.Pool(t))
	require.Empty(t, without(files, migrated), "only the files make it")
	require.Empty(t, without(migrated, files), "only the migrations make it")
}

// without are the beginnings of the lines that others do not have.
func without(lines, others []string) (only []string) {
	for _, line := range lines {
		if !slices.Contains(others, line) {
			only = append(only, line[:min(len(line), 200)])
		}
	}
	return only
}

// Whatever a migration could get wrong is seen.
func TestDifferencesAreSeen(t *testing.T) {
	t.Parallel()
	pool := made(t)
	was := describe(t, pool)
	for _, change := range []string{
		"alter table jobq.pending add column extra text", "alter table jobq.pending alter column priority set default 1",
		"alter table jobq.lease alter column job_ids set storage main", "alter table jobq.run replica identity default",
		"alter table jobq.worker reset (fillfactor)", "alter table jobq.worker drop constraint \"worker id must be 1 to 255 characters\"",
		"drop index jobq.lease_queue_idx", "alter sequence jobq.job_id_seq increment 2", "drop trigger pending_wake on jobq.pending",
		"comment on column jobq.pending.id is 'else'", "comment on table jobq.pending is 'else'", "comment on function jobq.why is 'else'",
		"grant execute on function jobq.why to public", "grant select on jobq.job to public", "alter function jobq.why reset search_path",
		"alter function jobq.lease_default stable", "alter domain jobq.job_kind drop constraint \"kind must be 1 to 128 characters\"",
		"alter type jobq.job_state add value 'else'", "create function jobq.extra() returns integer return 1",
	} {
		_, err := pool.Exec(context.Background(), change)
		require.NoError(t, err)
		now := describe(t, pool)
		require.NotEqual(t, was, now, change)
		was = now
	}
}

// How many lines a file and a function may have, and how many characters a line.
const (
	fileMax     = 500
	functionMax = 60
	lineMax     = 120
)

// larger are the functions that have more lines, and how many: they are to become fewer and smaller.
var larger = map[string]int{
	"lane_claim": 282, "lane_claim_each": 264, "lane_claim_sets": 175, "lane_group_shares": 68,
	"lane_prune": 107, "sweep_blocks": 80,
}

func TestSizes(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("*.sql")
	require.NoError(t, err)
	others, err := filepath.Glob("../queries/*.sql")
	require.NoError(t, err)
	others = append(others, "../roles.sql", "../sqlc_schema.sql", initialDown)
	long := map[string]int{}
	for _, name := range append(files, others...) {
		content, err := os.ReadFile(name) // #nosec G304 -- our own
		require.NoError(t, err)
		text := strings.Split(strings.TrimSuffix(string(content), "\n"), "\n")
		require.LessOrEqual(t, len(text), fileMax, "%s: cut it by subjects", name)
		function, began, quoted := "", 0, false
		for i, line := range text {
			require.LessOrEqual(t, utf8.RuneCountInString(line), lineMax, "%s:%d", name, i+1)
			if after, ok := strings.CutPrefix(line, "create function jobq."); ok {
				function, began, quoted = after[:strings.IndexByte(after, '(')], i, false
			}
			quoted = quoted || strings.HasSuffix(line, "as $$")
			ends := line == "end $$;" || line == "  $$;" || line == "  end;" ||
				!quoted && strings.HasPrefix(line, "  return ") && strings.HasSuffix(line, ";")
			if function != "" && ends {
				if size := i - began + 1; size > functionMax {
					long[function] = size
				}
				function = ""
			}
		}
	}
	require.Equal(t, larger, long, "functions of more than %d lines", functionMax)
}
