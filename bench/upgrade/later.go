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
			up: compatible + locks + `alter table jobq.pending add column later text;
create table jobq.later (id bigint primary key, noted_at timestamptz not null default now());
`,
			down: locks + "alter table jobq.pending drop column later;\ndrop table jobq.later;\n",
		},
		{
			name: "later_default",
			up:   compatible + locks + "alter table jobq.run add column later integer not null default 0;\n",
			down: locks + "alter table jobq.run drop column later;\n",
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

const replaceFunctions = `do $$
declare
  f record;
begin
  for f in select pg_get_functiondef(p.oid) as definition from pg_proc p where p.pronamespace = 'jobq'::regnamespace and p.prokind = 'f' loop
    execute f.definition;
  end loop;
end $$;
`
