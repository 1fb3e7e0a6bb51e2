package main

import "fmt"

// migration is one that a later jobq could have.
type migration struct{ name, up, down string }

// later are migrations after version from, beside which programs that know that version go on, one of each sort that
// docs/decisions/0026 allows.
func later(from int) []migration {
	compatible := fmt.Sprintf("-- jobq:compatible-from %d\n", from)
	const locks = "set local lock_timeout = '5s';\n"
	return []migration{
		{
			name: "later_table",
			up: compatible + locks + "alter table jobq.pending add column later text;\n" + withColumn("pending_of", "null::text") + `create table jobq.later (id bigint primary key, noted_at timestamptz not null default now());
`,
			down: locks + "alter table jobq.pending drop column later;\n" + withoutColumn("pending_of", "NULL::text") + "drop table jobq.later;\n",
		},
		{
			name: "later_default",
			up:   compatible + locks + "alter table jobq.run add column later integer not null default 0;\n" + withColumn("run_of", "0"),
			down: locks + "alter table jobq.run drop column later;\n" + withoutColumn("run_of", "0"),
		},
		{
			name: "later_index",
			up: "-- jobq:no-transaction\n" + compatible + `set lock_timeout = '5s';
drop index concurrently if exists jobq.pending_later_idx;
create index concurrently pending_later_idx on jobq.pending (created_at);
`,
			down: "-- jobq:no-transaction\nset lock_timeout = '5s';\ndrop index concurrently if exists jobq.pending_later_idx;\n",
		},
		{ // each function as it is: to sessions that have planned its calls, it is a new one
			name: "later_functions",
			up:   compatible + locks + replaceFunctions,
			down: locks + replaceFunctions,
		},
	}
}

// withColumn and withoutColumn replace one of the functions that make rows of jobs (sql/schema/move.sql), by one that gives a
// further column, and back.
func withColumn(function, column string) string {
	return replaceFunction(function, `;\s*END\s*$`, ", "+column+"; END")
}

func withoutColumn(function, column string) string {
	return replaceFunction(function, `,\s*`+column+`[^,;]*;\s*END\s*$`, "; END")
}

func replaceFunction(function, pattern, by string) string {
	return fmt.Sprintf("do $$ begin execute regexp_replace(pg_get_functiondef('jobq.%s'::regproc), '%s', '%s'); end $$;\n", function, pattern, by)
}

const replaceFunctions = `do $$
declare
  f record;
begin
  for f in select pg_get_functiondef(p.oid) as definition from pg_proc p where p.pronamespace = 'jobq'::regnamespace and p.prokind = 'f' loop
    execute f.definition;
  end loop;
end $$;
`
