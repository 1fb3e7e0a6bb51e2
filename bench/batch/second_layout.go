package main

import "strings"

// The second layout, docs/decisions/0013: the claim writes a job's row of run,
// and a run that plainly succeeds never touches that row again. What all the
// jobs of one claim share is its lease.
//
// Example: claim 900 takes the jobs 41, 42 and 43 at 12:00:00.
//
//	lease id 900, owner w1, claimed_at 12:00:00, job_ids {41, 42, 43}, ended {null, null, null}
//	run   41 lease 900 slot 1, 42 slot 2, 43 slot 3; state, finished_at and result are null
//
// 41 succeeds 250 ms later: ended = {250, null, null}; its row of run stays as it is.
// 42 fails for good: its row of run gets state failed and finished_at; the next
// exchange says so in the lease: ended = {250, -1, null}.
// 43 succeeds after 900 ms: the lease goes to past_lease, with ended {250, -1, 900}.

// Values of lease.ended that are no milliseconds.
const (
	slotElsewhere = -1 // the run ended on its own row, which says how, or that row is gone
	slotNow       = -2 // sent by the worker: the server puts the milliseconds since the claim there
)

// runTables are the tables of the second layout, beside jobq's own.
const runTables = `
-- A lease's id has its day in front: (days since 2026-01-01) * 2^40 + a number
-- from a sequence. So it grows with every claim, no two claims ever have the same, and it
-- alone says which partition of lease and run to look in. It stays below 2^53,
-- which JSON's readers can hold, until 2048.
create sequence jobq.lease_number_seq maxvalue 1099511627775 cycle;
create function jobq.lease_day(day date) returns bigint
  language sql immutable parallel safe
  return (day - date '2026-01-01')::bigint << 40;
create function jobq.lease_id_next() returns bigint
  language sql volatile
  return jobq.lease_day((clock_timestamp() at time zone 'UTC')::date) + nextval('jobq.lease_number_seq');

-- The leases that are held. Small and not partitioned: a statement that touches
-- a partitioned table locks all its partitions first.
create table jobq.lease (
  id         bigint      not null, -- the token of all its jobs
  claimed_at timestamptz not null,
  expires_at timestamptz not null,
  lost_at    timestamptz, -- taken away from its owner, whose writes are refused from then on
  owner      text        not null,
  queue      text        not null,
  ended      smallint[]  not null, -- by slot: milliseconds after claimed_at; -1 ended on its own row; null still runs
  job_ids    bigint[]    not null, -- by slot
  constraint lease_pkey primary key (id)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);
alter table jobq.lease alter job_ids set storage external, alter ended set storage main;

-- Those of whose jobs none runs any more, for the history.
create table jobq.past_lease (
  id         bigint      not null,
  claimed_at timestamptz not null,
  owner      text        not null,
  queue      text        not null,
  ended      smallint[]  not null,
  constraint past_lease_pkey primary key (id)
) partition by range (id);
alter table jobq.past_lease alter ended set storage main;

create table jobq.run (
  id                  bigint      not null,
  lease_id            bigint      not null, -- of its own, without a lease, if it never ran
  position            bigint,
  run_at              timestamptz not null,
  created_at          timestamptz not null,
  finished_at         timestamptz, -- with state
  cancel_requested_at timestamptz,
  timeout             interval,
  backoff_base        interval,
  backoff_max         interval,
  state               jobq.job_state, -- of ends that are not plain; null: the lease knows
  slot                smallint    not null, -- from 1; 0: cancelled before it ran
  priority            smallint    not null,
  attempts            smallint    not null,
  max_attempts        smallint    not null,
  crashes             smallint    not null,
  args_apart          boolean     not null,
  queue               text        not null,
  kind                text        not null,
  args                jsonb,
  unique_key          text,
  last_error          text,
  clear_reason        text,
  checkpoint          jsonb,
  metadata            jsonb,
  tags                text[],
  result              jsonb,
  constraint "state must be terminal" check (state in ('completed', 'failed', 'cancelled')),
  constraint "state and finished_at come together" check ((state is null) = (finished_at is null)),
  constraint "checkpoint must be at most 1 MiB" check (pg_column_size(checkpoint) <= 1048576),
  constraint "result must be at most 1 MiB" check (pg_column_size(result) <= 1048576)
) partition by range (lease_id);
create index run_id_idx on jobq.run (id);
create index run_unsuccessful_idx on jobq.run (finished_at, id) include (queue, state) where state <> 'completed';
create index run_cancel_idx on jobq.run (lease_id) where cancel_requested_at is not null and state is null;
-- What did not complete plainly, for retention and for lists of what has ended lately.
create index run_completed_idx on jobq.run (finished_at, id) where state = 'completed';
create trigger run_unique_key_drop after update on jobq.run
  for each row when (new.unique_key is not null and new.state is not null and old.state is null)
  execute function jobq.finished_unique_key_drop();
create trigger run_unique_key_drop_at_once after insert on jobq.run
  for each row when (new.unique_key is not null and new.state is not null)
  execute function jobq.finished_unique_key_drop();

-- What runs that plainly succeeded have returned: written with the end of the
-- lease's slot, so that a result does not write the job a second time.
create table jobq.result (
  lease_id bigint   not null,
  slot     smallint not null,
  result   jsonb    not null,
  constraint result_pkey primary key (lease_id, slot),
  constraint "result must be at most 1 MiB" check (pg_column_size(result) <= 1048576)
) partition by range (lease_id);

-- What a run reports while it runs, so that reports do not rewrite the history.
create table jobq.progress (
  job_id        bigint      not null primary key,
  lease_id      bigint      not null,
  progressed_at timestamptz not null,
  percent       real,
  stage         text,
  message       text,
  checkpoint    jsonb
) with (fillfactor = 50);
` + runPartitions

// runPartitions are as many as a schema has from the start, and cover ten days back for the lists.
const runPartitions = `
do $$ declare parent text; day date; begin
  foreach parent in array array['run', 'past_lease', 'result'] loop
    execute format('create table jobq.%I partition of jobq.%I default', parent || '_default', parent);
    for day in select generate_series((now() at time zone 'UTC')::date - {days}, (now() at time zone 'UTC')::date + 3, interval '1 day') loop
      execute format('create table jobq.%I partition of jobq.%I for values from (%s) to (%s)', parent || '_' || to_char(day, 'YYYYMMDD'), parent,
        jobq.lease_day(day), jobq.lease_day(day + 1));
    end loop;
  end loop;
end $$;`

// leaseOfRun looks the lease up for each row of run that is reached. Its limit
// keeps the planner from hashing all leases for one job; neighbours mostly have
// the same lease, which Memoize remembers, so that asking for all is fast too.
const leaseOfRun = `left join lateral (
      select x.claimed_at, x.ended, x.owner, x.expires_at from jobq.lease x where x.id = r.lease_id
      union all
      select x.claimed_at, x.ended, x.owner, null from jobq.past_lease x where x.id = r.lease_id
      limit 1
    ) l on true`

// runView is what people see of a run: today's view, whose columns these are.
const runView = `
create view jobq.run_job as
  select r.id, coalesce(r.state, case when l.ended[r.slot] >= 0 then 'completed' else 'running' end::jobq.job_state) as state,
      r.queue, r.kind, r.priority, r.attempts, r.max_attempts, r.crashes, r.lease_id as lease_token, r.run_at, r.created_at,
      l.claimed_at as started_at,
      coalesce(r.finished_at, l.claimed_at + nullif(l.ended[r.slot], -1) * interval '1 ms') as finished_at,
      l.owner as lease_owner,
      case when r.state is null and l.ended[r.slot] is null then l.expires_at end as lease_expires_at,
      case when r.state is null and l.ended[r.slot] is null then r.cancel_requested_at end as cancel_requested_at,
      p.progressed_at, p.percent as progress_percent, p.stage as progress_stage, p.message as progress_message,
      r.timeout, r.backoff_base, r.backoff_max, r.unique_key, r.last_error,
      case when r.state is null and l.ended[r.slot] is null then r.clear_reason end as clear_reason, r.tags,
      r.metadata, coalesce(r.args, (select a.args from jobq.payload a where a.job_id = r.id)) as args,
      coalesce(p.checkpoint, r.checkpoint) as checkpoint,
      coalesce(r.result, (select x.result from jobq.result x where x.lease_id = r.lease_id and x.slot = r.slot limit 1)) as result
    from jobq.run r
    ` + leaseOfRun + `
    left join lateral (
      select x.progressed_at, x.percent, x.stage, x.message, x.checkpoint from jobq.progress x
        where x.job_id = r.id and x.lease_id = r.lease_id and r.state is null and l.ended[r.slot] is null limit 1
    ) p on true;`

// jobColumns are what a job brings along from pending to run and back.
const jobColumns = `id, position, run_at, created_at, timeout, backoff_base, backoff_max, priority, attempts, max_attempts,
     crashes, args_apart, queue, kind, args, unique_key, last_error, clear_reason, checkpoint, metadata, tags`

// of puts an alias before each of a list of columns.
func of(alias, columns string) string {
	names := strings.Split(columns, ",")
	for i, name := range names {
		names[i] = alias + "." + strings.TrimSpace(name)
	}
	return strings.Join(names, ", ")
}

// secondTables are all tables of the layout, with partitions for so many days back.
func secondTables(daysBack string) string {
	return strings.ReplaceAll(runTables, "{days}", daysBack) + runView
}

// second is the layout as a path to measure.
func second() path {
	p := today()
	p.name, p.second, p.setUp = "second layout", true, secondTables("0")
	p.claim = runClaim
	p.history = `select count(*) from jobq.run r ` + leaseOfRun + `
  where r.state = 'completed' or (r.state is null and l.ended[r.slot] >= 0)`
	p.look = `select j.id from jobq.run_job j where j.id = $1 and j.state = 'completed'`
	p.page = runList{condition: "true", size: 50}.sql()
	p.scan = `select r.id from jobq.run r where r.kind = 'none'`
	return p
}
