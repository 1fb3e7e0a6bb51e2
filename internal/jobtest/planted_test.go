package jobtest_test

import (
	"context"
	"log/slog"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/pgtest"
	"github.com/jobq-dev/jobq/migrate"
)

// plant makes, in a schema of its own, an operator and a function of the name and the arguments of each of PostgreSQL's, which
// note that they were called and fail. Who has this schema before pg_catalog in the search_path calls them.
const plant = `
create schema evil;
create sequence evil.called;
grant usage on schema evil to public;
grant all on sequence evil.called to public;
do $do$
declare
  p record;
  number integer := 0;
  problem text;
  body constant text := 'language plpgsql as ''begin perform pg_catalog.nextval(''''evil.called''''); raise exception ''''planted''''; end''';
begin
  for p in
    select o.proname, o.proretset, o.prorettype::regtype::text as result, o.prokind,
        (select string_agg(case when o.provariadic <> 0 and a.i = o.pronargs then 'variadic ' else '' end || a.type::regtype::text, ', ' order by a.i)
          from unnest(o.proargtypes) with ordinality as a(type, i)) as arguments
      from pg_proc o
      where o.pronamespace = 'pg_catalog'::regnamespace and o.prokind in ('f', 'a') and o.pronargs > 0
  loop
    begin
      execute format('create function evil.%I(%s) returns %s %s', p.proname, p.arguments, case when p.proretset then 'setof ' else '' end || p.result, body);
      number := number + 1;
    exception when others then problem := sqlerrm; -- of types that such a function cannot have
    end;
  end loop;
  for p in
    select o.oprname, o.oprleft::regtype::text as left, o.oprright::regtype::text as right, o.oprresult::regtype::text as result, o.oid
      from pg_operator o
      where o.oprnamespace = 'pg_catalog'::regnamespace and o.oprcode <> 0
  loop
    begin
      execute format('create function evil.operator_%s(%s) returns %s %s', p.oid, concat_ws(', ', nullif(p.left, '-'), p.right), p.result, body);
      execute format('create operator evil.%s (%s rightarg = %s, function = evil.operator_%s)', p.oprname, case when p.left <> '-' then 'leftarg = ' || p.left || ',' end, p.right, p.oid);
      number := number + 1;
    exception when others then problem := sqlerrm;
    end;
  end loop;
  if number < 2500 then
    raise '% objects were planted: %', number, problem;
  end if;
  execute format('alter database %I set search_path = evil, pg_catalog', current_database());
end $do$`

// planted is a database without jobq whose sessions find the planted objects first, and a pool whose sessions do not.
func planted(t *testing.T) (url string, admin *pgxpool.Pool) {
	t.Helper()
	url = pgtest.EmptyURL(t)
	config, err := pgxpool.ParseConfig(url)
	require.NoError(t, err)
	config.ConnConfig.RuntimeParams["search_path"] = "pg_catalog"
	admin = pgtest.ConnectConfig(t, config)
	_, err = admin.Exec(context.Background(), plant, pgx.QueryExecModeSimpleProtocol)
	require.NoError(t, err)
	t.Cleanup(func() {
		_, err := admin.Exec(context.Background(), "do $$ begin execute format('alter database %I reset search_path', current_database()); end $$")
		require.NoError(t, err)
	})
	return url, admin
}

func requireNoneCalled(t *testing.T, admin *pgxpool.Pool) {
	t.Helper()
	var called bool
	require.NoError(t, admin.QueryRow(context.Background(), "select is_called from evil.called").Scan(&called))
	require.False(t, called, "a planted function or operator was called")
}

// Nothing that jobq runs finds the functions and operators that a stranger has put before PostgreSQL's own: not the
// migrations, nor a worker, a janitor and a person's commands, nor what an application's inserts start.
func TestPlantedObjectsAreNotCalled(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	url, admin := planted(t)
	unpinned := pgtest.Connect(t, url)
	_, err := unpinned.Exec(ctx, "select 1 + 1")
	require.ErrorContains(t, err, "planted")
	_, err = admin.Exec(ctx, "alter sequence evil.called restart")
	require.NoError(t, err)
	_, err = migrate.Up(ctx, unpinned, &migrate.Config{Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	requireNoneCalled(t, admin)
	_, err = unpinned.Exec(ctx, "select jobq.enqueue('plain', '{}', unique_key => 'k')", pgx.QueryExecModeSimpleProtocol)
	require.NoError(t, err)
	_, err = unpinned.Exec(ctx, "insert into jobq.pending (kind, partition_key, tags) values ('plain', 'k', '{a}')", pgx.QueryExecModeSimpleProtocol)
	require.NoError(t, err)
	config, err := pgxpool.ParseConfig(url)
	require.NoError(t, err)
	db.PinPool(config) // as the commands do with theirs
	require.NoError(t, runFeatures(ctx, pgtest.ConnectConfig(t, config)))
	requireNoneCalled(t, admin)
}
