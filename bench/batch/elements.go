package main

import (
	"fmt"
	"strings"

	"github.com/jobq-dev/jobq/internal/db"
)

// element changes one thing of today's path; what that saves or adds is its cost.
type element struct {
	name   string
	change func(*plan)
}

func tables(ddl string) func(*plan) { return func(p *plan) { p.setUp += ddl } }

// completing replaces parts of JobComplete: old, new, old, new.
func completing(parts ...string) func(*plan) {
	return func(p *plan) { p.complete = replaced(p.complete, parts) }
}

func claiming(parts ...string) func(*plan) {
	return func(p *plan) { p.claim = replaced(p.claim, parts) }
}

func both(changes ...func(*plan)) func(*plan) {
	return func(p *plan) {
		for _, change := range changes {
			change(p)
		}
	}
}

func replaced(text string, parts []string) string {
	for i := 0; i < len(parts); i += 2 {
		text = mustReplace(text, parts[i], parts[i+1])
	}
	return text
}

// withoutChecks drops a table's CHECK constraints.
func withoutChecks(table string) func(*plan) {
	return tables(fmt.Sprintf(`do $$ declare c text; begin
  for c in select conname from pg_constraint where conrelid = 'jobq.%s'::regclass and contype = 'c' loop
    execute format('alter table jobq.%s drop constraint %%I', c);
  end loop; end $$;`, table, table))
}

const plainFinished = `
create table jobq.plain (like jobq.finished including defaults including constraints);
drop table jobq.finished cascade;
alter table jobq.plain rename to finished;
create index finished_id_idx on jobq.finished (id);
create index finished_unsuccessful_idx on jobq.finished (finished_at, id) include (queue, state) where state <> 'completed';
create trigger finished_unique_key_drop after insert on jobq.finished
  for each row when (new.unique_key is not null) execute function jobq.finished_unique_key_drop();`

// Parts of the statements as they are.
const (
	lockHeld    = "        for update skip locked\n    ) h"
	fenceHeld   = "        offset 0\n    ) h"
	resultJoin  = "\n    join f on f.id = t.id and f.token = t.lease_token"
	skipLocked  = "        for update of p skip locked\n"
	pausedCheck = "\n          and not exists (select from jobq.queue q where q.name = $6 and q.paused_at is not null)"
	payloadRead = "coalesce(r.args, (select a.args from jobq.payload a where a.job_id = r.id))::jsonb as args"
)

var (
	lockRows  = completing(lockHeld, fenceHeld)
	noResults = completing(resultJoin, "", ", f.result\n    from taken t", ", null::jsonb as result\n    from taken t where cardinality($3::jsonb[]) > 0")
	oneClock  = both(completing("clock_timestamp()", "statement_timestamp()"), claiming("clock_timestamp()", "statement_timestamp()"))
)

// joined is JobComplete's delete as a plain join, with a planner that may loop.
func joined(p *plan) {
	begin, end := strings.Index(p.complete, "), held as materialized"), strings.Index(p.complete, "    returning r.id, r.lease_token")
	p.complete = p.complete[:begin] + "), taken as (\n  delete from jobq.running r using f\n    where r.id = f.id and r.lease_token = f.token and r.lease_owner = $4 and $5\n" + p.complete[end:]
	p.settings = mustReplace(mustReplace(p.settings, "'enable_nestloop', 'off'", "'enable_nestloop', 'on'"), "'enable_sort', 'off'", "'enable_hashjoin', 'off'")
}

// settingsOnSession are HotSettings, once per connection.
func settingsOnSession(p *plan) {
	p.session, p.settings = mustReplace(db.HotSettings, ", true)", ", false)"), ""
}

func elements() []element {
	return []element{
		{"finished: no index on id", tables("drop index jobq.finished_id_idx;")},
		{"finished: BRIN on id", tables("drop index jobq.finished_id_idx; create index on jobq.finished using brin (id);")},
		{"finished: hash index on id", tables("drop index jobq.finished_id_idx; create index on jobq.finished using hash (id);")},
		{"finished: no index of the unsuccessful", tables("drop index jobq.finished_unsuccessful_idx;")},
		{"finished: one table, no partitions", tables(plainFinished)},
		{"finished: no trigger for unique keys", tables("drop trigger finished_unique_key_drop on jobq.finished;")},
		{"finished: no checks", withoutChecks("finished")},
		{"running: no checks", withoutChecks("running")},
		{"running: hash index for the key", tables("alter table jobq.running drop constraint running_pkey; create index running_hash_idx on jobq.running using hash (id);")},
		{"running: fillfactor 100", tables("alter table jobq.running set (fillfactor = 100);")},
		{"running: unlogged", tables("alter table jobq.running set unlogged;")},
		{"pending: no primary key", tables("alter table jobq.pending drop constraint pending_pkey;")},
		{"pending: no checks", withoutChecks("pending")},
		{"pending: no trigger before insert", tables("drop trigger pending_before_insert on jobq.pending;")},
		{"pending: no trigger to notify", tables("drop trigger pending_wake on jobq.pending; drop trigger pending_due on jobq.pending;")},
		{"sequences: cache 100", tables("alter sequence jobq.job_id_seq cache 100; alter sequence jobq.position_seq cache 100;")},
		{"complete: no row locks (offset 0)", lockRows},
		{"complete: plain join", joined},
		{"complete: no results, no join for them", noResults},
		{"complete: no statistics", func(p *plan) {
			p.complete = p.complete[:strings.Index(p.complete, "), counted as (")] + ")\nselect d.id from done d"
		}},
		{"complete: a row of attempt each, 100 B of output", func(p *plan) {
			p.keep = `insert into jobq.attempt (job_id, finished_at, started_at, lease_token, outcome, number, worker_id, output)
  select f.id, clock_timestamp(), clock_timestamp(), f.token, 'completed', 1, $1, repeat('output', 17)
    from rows from (unnest($2::bigint[]), unnest($3::bigint[])) as f(id, token)`
		}},
		{"claim: does not ask whether it is paused", claiming(pausedCheck, "")},
		{"claim: does not filter by kind", claiming("p.kind = any($7::text[])", "cardinality($7::text[]) > 0")},
		{"claim: does not look for args apart", claiming(payloadRead, "r.args")},
		{"claim: returns id, position, token, args only", func(p *plan) {
			p.claim = p.claim[:strings.Index(p.claim, "  returning r.id, r.position")] + "  returning r.id, r.position, r.lease_token, " + payloadRead
		}},
		{"both: one look at the clock", oneClock},
		{"both: settings once per connection", settingsOnSession},
		{"all: unique keys", func(p *plan) {
			p.fill = "insert into jobq.pending (kind, args, unique_key) select '" + kind + "', a.args, md5(random()::text) from unnest($1::jsonb[]) a(args)"
		}},
		{"args of 10 B", func(p *plan) { p.argBytes = 12 }},
		{"args of 900 B", func(p *plan) { p.argBytes = 900 }},
		{"args of 3 kB, compressible, pglz", func(p *plan) { p.argBytes, p.compressible = 3000, true }},
		{"args of 3 kB, compressible, lz4", both(func(p *plan) { p.argBytes, p.compressible = 3000, true }, tables("alter table jobq.payload alter args set compression lz4;"))},
		{"args of 3 kB, compressible, external", both(func(p *plan) { p.argBytes, p.compressible = 3000, true }, tables("alter table jobq.payload alter args set storage external;"))},
		{"claim: no row locks", claiming(skipLocked, "")},
		{"together: no row locks, no join without results, one clock, settings on the session", both(lockRows, noResults, oneClock, settingsOnSession)},
		{"together, and a hash index on running", both(lockRows, noResults, oneClock, settingsOnSession,
			tables("alter table jobq.running drop constraint running_pkey; create index running_hash_idx on jobq.running using hash (id);"))},
	}
}

// elementPlans are today's path and its variants, on one connection each.
func elementPlans() []plan {
	plans := []plan{standard(today())}
	plans[0].connections = 1
	for _, e := range append([]element{{"the same once more", func(*plan) {}}}, elements()...) {
		p := plans[0]
		p.name = e.name
		e.change(&p)
		plans = append(plans, p)
	}
	return plans
}
