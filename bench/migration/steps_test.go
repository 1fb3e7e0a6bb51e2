package main

import (
	"context"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/pgtest"
)

// bed is a database of the first layout with few jobs.
type bed struct {
	*testing.T
	url  string
	conn *pgx.Conn
}

func setUp(t *testing.T) *bed {
	t.Helper()
	b := &bed{T: t, url: pgtest.URL(t)}
	b.conn = b.connect()
	require.NoError(t, makeFirst(context.Background(), b.migration(), scaled(0.001)))
	require.NoError(t, rowsOfFirst(context.Background(), b.conn, "original"))
	require.NoError(t, snapshot(context.Background(), b.conn, "before"))
	return b
}

// connect opens a session, which ends with the test.
func (b *bed) connect() *pgx.Conn {
	b.Helper()
	conn, err := pgx.Connect(context.Background(), b.url)
	require.NoError(b, err)
	b.Cleanup(func() { _ = conn.Close(context.Background()) }) // nothing is left to be asked
	return conn
}

func (b *bed) migration() migration { return migration{conn: b.conn, log: io.Discard} }

func (b *bed) exec(sql string) {
	b.Helper()
	_, err := b.conn.Exec(context.Background(), sql)
	require.NoError(b, err)
}

// interrupt takes a migration until the first partition with rows has moved, and
// ends its session there.
func (b *bed) interrupt(move func(m migration, ctx context.Context) (timing, error)) {
	b.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	conn := b.connect()
	_, err := move(migration{conn: conn, log: stopper{cancel}}, ctx)
	require.ErrorIs(b, err, context.Canceled)
	require.NoError(b, conn.Close(context.Background()))
}

// stopper is a log that cancels when a partition with rows has moved.
type stopper struct{ cancel context.CancelFunc }

func (s stopper) Write(line []byte) (int, error) {
	if strings.Contains(string(line), "has moved") && !strings.Contains(string(line), " 0 blocks") {
		s.cancel()
	}
	return len(line), nil
}

// catalog describes all that the schema has but for the partitions of days: the
// columns with their defaults and storage, constraints, indexes, triggers,
// functions, views, who may call what.
func (b *bed) catalog() (lines []string) {
	b.Helper()
	rows, err := b.conn.Query(context.Background(), `
		with c as (
			select c.oid, c.relname::text as name, c.relkind, c.reloptions from pg_class c
			where c.relnamespace = 'jobq'::regnamespace and c.relname !~ '_[0-9]{8}(_|$)'
		)
		select format('column %s.%s %s %s %s %s', c.name, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attstorage, pg_get_expr(d.adbin, d.adrelid))
			from c join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
			left join pg_attrdef d on d.adrelid = c.oid and d.adnum = a.attnum
		union all select format('relation %s %s %s', c.name, c.relkind, c.reloptions) from c
		union all select format('constraint %s %s %s', c.name, o.conname, pg_get_constraintdef(o.oid)) from c join pg_constraint o on o.conrelid = c.oid
		union all select format('index %s', pg_get_indexdef(i.indexrelid)) from c join pg_index i on i.indrelid = c.oid
		union all select format('trigger %s', pg_get_triggerdef(t.oid)) from c join pg_trigger t on t.tgrelid = c.oid
		union all select format('view %s', pg_get_viewdef(c.oid)) from c where c.relkind = 'v'
		union all select format('function %s %s', pg_get_functiondef(p.oid), p.proacl) from pg_proc p where p.pronamespace = 'jobq'::regnamespace
		order by 1`)
	require.NoError(b, err)
	lines, err = pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(b, err)
	return lines
}

// requireCatalog fails with the objects that are not in both.
func (b *bed) requireCatalog(want []string) {
	b.Helper()
	found := b.catalog()
	missing := slices.DeleteFunc(slices.Clone(want), func(line string) bool { return slices.Contains(found, line) })
	added := slices.DeleteFunc(found, func(line string) bool { return slices.Contains(want, line) })
	require.Empty(b, append(missing, added...))
}

// Goal: after a way there and back, or back and there, the schema is what it was.
func TestSchemaIsTheSame(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	b := &bed{T: t, url: pgtest.URL(t)}
	b.conn = b.connect()
	second := b.catalog()
	require.Contains(t, strings.Join(second, "\n"), "column lease.job_ids bigint[] t e")
	_, err := b.migration().down(ctx)
	require.NoError(t, err)
	first := b.catalog()
	require.Contains(t, strings.Join(first, "\n"), "column running.lease_owner text t")
	require.NotContains(t, strings.Join(first, "\n"), "lease_id_next")
	_, err = b.migration().up(ctx)
	require.NoError(t, err)
	b.requireCatalog(second)
	_, err = b.migration().down(ctx)
	require.NoError(t, err)
	b.requireCatalog(first)
}

// Goal: a migration whose session ended halfway through the history goes on when
// it is called again; until then the view has both parts. Both ways.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	b := setUp(t)
	for _, move := range []func(m migration, ctx context.Context) (timing, error){migration.up, migration.down} {
		b.interrupt(move)
		require.NoError(t, checkSame(ctx, b.conn), "halfway")
		_, err := move(b.migration(), ctx)
		require.NoError(t, err)
		require.NoError(t, checkSame(ctx, b.conn))
	}
	require.NoError(t, checkRowsOfFirst(ctx, b.conn))
}

// Goal: a migration that was interrupted can be undone from where it is. Both ways.
func TestTurnedAround(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for name, there := range map[string]bool{"there": true, "back": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setUp(t)
			move, undo := migration.up, migration.down
			if !there {
				_, err := b.migration().up(ctx)
				require.NoError(t, err)
				move, undo = migration.down, migration.up
			}
			before := b.catalog()
			b.interrupt(move)
			_, err := undo(b.migration(), ctx)
			require.NoError(t, err)
			require.NoError(t, checkSame(ctx, b.conn))
			b.requireCatalog(before)
		})
	}
}

// Goal: a transaction that has the table in use keeps the switch from happening,
// and others are at work meanwhile. When it has ended, the switch happens.
func TestSwitchWaitsForNobodyLong(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for name, there := range map[string]bool{"there": true, "back": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setUp(t)
			l, err := newLoad(b.url)
			require.NoError(t, err)
			layoutName, table, move := firstName, "running", migration.up
			if !there {
				_, err := b.migration().up(ctx)
				require.NoError(t, err)
				layoutName, table, move = secondName, "lease", migration.down
			}
			holder := b.connect()
			tx, err := holder.Begin(ctx)
			require.NoError(t, err)
			_, err = tx.Exec(ctx, "select count(*) from jobq."+table)
			require.NoError(t, err)

			type result struct {
				timing
				error
			}
			done := make(chan result, 1)
			moving := b.connect()
			go func() {
				took, err := move(migration{conn: moving, log: io.Discard}, ctx)
				done <- result{took, err}
			}()
			const waiting = "select exists (select from pg_locks where pid = $1 and relation = to_regclass($2) and not granted)"
			for range 2 { // it comes again
				require.Eventually(t, func() (waits bool) {
					require.NoError(t, b.conn.QueryRow(ctx, waiting, moving.PgConn().PID(), "jobq."+table).Scan(&waits))
					return waits
				}, time.Minute, time.Millisecond)
				jobs, err := l.layouts[layoutName].claim(ctx, b.conn, "owner", queueLoad, 1)
				require.NoError(t, err)
				require.Len(t, jobs, 1)
				require.Empty(t, done)
			}
			require.NoError(t, tx.Rollback(ctx))
			moved := <-done
			require.NoError(t, moved.error)
			require.Greater(t, moved.tries, 1)
			require.NoError(t, checkSame(ctx, b.conn))
		})
	}
}

// Goal: a history that would be lost with its table keeps that from being dropped.
func TestHistoryThatDidNotMove(t *testing.T) {
	t.Parallel()
	b := setUp(t)
	b.exec(`
		create function checks.keep() returns trigger language plpgsql as 'begin return null; end';
		create trigger keep before delete on jobq.finished_default for each row execute function checks.keep();
		insert into jobq.finished select (jsonb_populate_record(x.f, '{"finished_at": "2020-01-01"}')).* from (select f from jobq.finished f limit 1) x`)
	_, err := b.migration().up(context.Background())
	require.ErrorContains(t, err, "finished is not empty")
}

// Goal: a step of the history reads its own blocks, and the leases of its jobs by
// their keys; the switch finds open runs by their ids. None reads all of the history.
func TestPlans(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	b := &bed{T: t, url: pgtest.URL(t)}
	b.conn = b.connect()
	require.NoError(t, makeFirst(ctx, b.migration(), sizes{waiting: 10, running: 10, finished: 30_000}))
	plan := func(statement string) (plan string) {
		rows, err := b.conn.Query(ctx, "explain "+statement)
		require.NoError(t, err)
		lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
		require.NoError(t, err)
		return strings.Join(lines, "\n")
	}
	step := func(statement, partition string) string {
		return strings.NewReplacer("$partition", partition, "$from", "64", "$to", "128").Replace(file(statement))
	}
	yesterday := today().AddDate(0, 0, -1).Format("20060102")
	all, err := objects()
	require.NoError(t, err)
	require.NoError(t, b.migration().prepareSecond(ctx, all))
	require.Contains(t, plan(step("up_history", "finished_"+yesterday)), "Tid Range Scan on finished_"+yesterday)
	_, err = b.migration().up(ctx)
	require.NoError(t, err)
	require.NoError(t, b.migration().prepareFirst(ctx))
	found := plan(step("down_history", "run_"+yesterday))
	require.Contains(t, found, "Tid Range Scan on run_"+yesterday)
	require.NotContains(t, found, "Seq Scan on past_lease_2")

	// The switch, and the history until the first partition with rows has moved.
	const read = "select coalesce(sum(s.seq_tup_read), 0)::integer from pg_stat_all_tables s where s.schemaname = 'jobq' and s.relname ~ '^(run|past_lease)_'"
	number := func(sql string) (number int) {
		require.NoError(t, b.conn.QueryRow(ctx, sql).Scan(&number))
		return number
	}
	before := number(read)
	b.interrupt(migration.down)
	require.Eventually(t, func() bool { // a session that ends says what it has read
		return number("select count(*) from pg_stat_activity where datname = current_database() and backend_type = 'client backend'") == 1
	}, time.Minute, time.Millisecond)
	require.Positive(t, number("select count(*) from pg_class where relname = 'run'"))
	require.Less(t, number(read)-before, 30_000/2)
}

// Goal: sql/migrations is split where its statements end.
func TestStatements(t *testing.T) {
	t.Parallel()
	require.Equal(t, []string{"a\n  b; -- c", "do $$\n  d;\n\n  e;\n$$;", "f;"}, statements("-- x;\na\n  b; -- c\n\n-- y\ndo $$\n  d;\n\n  e;\n$$;\nf;\n"))
	all, err := objects()
	require.NoError(t, err)
	names := make(map[string]bool)
	for _, o := range all {
		require.Equal(t, 1, strings.Count("\n"+o.sql, "\n"+strings.Fields(o.sql)[0]+" "), o.sql)
		names[o.kind+" "+o.name] = true
	}
	for _, want := range []string{"table run", "sequence lease_number_seq", "index run_default_place_idx", "trigger run_unique_key_drop", "function undo", "view job"} {
		require.Contains(t, names, want)
	}
}
