-- The tables of jobq. A job waits in pending. A claim moves it to run, where it
-- stays for the history, and writes one lease for all jobs that it takes. What
-- comes back moves from run to pending. Every transition is one statement.
-- docs/decisions/0013 has the reasons and the figures. `jobq.` stands for the schema,
-- whatever its name is.
set local lock_timeout = '5s';

do $$
begin
  if getdatabaseencoding() <> 'UTF8' then
    raise 'the database has the encoding %, and jobq needs UTF8', getdatabaseencoding()
      using hint = 'Make a database with: create database NAME encoding ''UTF8'' template template0';
  end if;
end $$;

create type jobq.job_state as enum
  ('waiting', 'scheduled', 'available', 'running', 'completed', 'failed', 'cancelled');

-- How a run ended. `lost` is the only one that the worker did not write itself.
create type jobq.attempt_outcome as enum
  ('completed', 'failed', 'timed_out', 'lost', 'cancelled', 'released', 'snoozed', 'unreadable');

-- The limit on args, in bytes of jsonb as PostgreSQL stores it. A function
-- and not a row, because a CHECK may use it and the planner puts its body in its
-- place. `create or replace` it to change the limit. It is stable, since the planner runs
-- an immutable function: that makes every insert of one row 5 % slower, because CHECKs are
-- planned anew for each statement.
create function jobq.args_bytes_max() returns integer
  language sql stable parallel safe
  return 1048576;

-- json_problem says in words why a JSON value may not come in: it is too long as PostgreSQL stores it or as text, or nested too
-- deeply. Null means that it may. Both lengths count, since 10 bytes that are stored can be 131,072 as text:
--
--   1e131071    10 bytes as stored, 131,072 as text. 50,000 of them: 700 kB and 6.5 GB, which no statement can read
--
-- What is stored in few bytes, and not compressed, is never too long for the server to make its text. For anything else,
-- json_problem_large looks first.
create function jobq.json_problem(name text, value jsonb, bytes_max integer) returns text
  language plpgsql stable strict
  as $$
declare
  stored integer := pg_catalog.pg_column_size(value);
  bytes integer;
begin
  if stored > bytes_max then
    return pg_catalog.format('%s must be at most %s bytes as stored, not %s', name, bytes_max, stored);
  end if;
  if stored > 8192 or pg_catalog.pg_column_compression(value) is not null then
    return jobq.json_problem_large(name, value, bytes_max);
  end if;
  if stored > 800 and pg_catalog.jsonb_path_exists(value, '$.**{101}') then -- each level takes 8 bytes or more
    return pg_catalog.format('%s must be nested at most 100 levels deep', name);
  end if;
  bytes := pg_catalog.octet_length(value::text);
  if bytes > bytes_max then
    return pg_catalog.format('%s must be at most %s bytes as text, with all numbers written out, not %s', name, bytes_max, bytes);
  end if;
  return null;
end $$;

-- json_problem_large is json_problem for values of which the server may be unable to make the text. It adds up first how long the
-- long numbers are at least, so that the text is made only of values in which this is not too much. A value that the server cannot
-- read at all, since its page is damaged, is not this function's matter.
create function jobq.json_problem_large(name text, value jsonb, bytes_max integer) returns text
  language plpgsql stable strict
  as $$
declare
  bytes bigint;
begin
  if pg_catalog.jsonb_path_exists(value, '$.**{101}') then
    return pg_catalog.format('%s must be nested at most 100 levels deep', name);
  end if;
  select pg_catalog.sum(case when pg_catalog.abs(x.item::numeric) < 1e3000 then 100 when pg_catalog.abs(x.item::numeric) < 1e30000 then 3000 else 30000 end)
    into bytes
    from pg_catalog.jsonb_array_elements(pg_catalog.jsonb_path_query_array(value, 'strict $.** ? (@ > 1e100 || @ < -1e100)')) as x(item);
  if bytes is null or bytes <= bytes_max then
    bytes := pg_catalog.octet_length(value::text);
  end if;
  if bytes > bytes_max then
    return pg_catalog.format('%s must be at most %s bytes as text, with all numbers written out, not %s or more', name, bytes_max, bytes);
  end if;
  return null;
exception
  when program_limit_exceeded or statement_too_complex then
    return pg_catalog.format('%s must be at most %s bytes as text, and nested at most 100 levels deep', name, bytes_max);
  when data_corrupted then
    return null;
end $$;

-- json_require raises an error for what json_problem refuses, and is true for everything else. In a CHECK it tells more than the
-- CHECK's name could.
create function jobq.json_require(name text, value jsonb, bytes_max integer) returns boolean
  language plpgsql stable strict
  as $$
declare
  problem text := jobq.json_problem(name, value, bytes_max);
begin
  if problem is not null then
    raise sqlstate 'JQ001' using message = problem, hint = 'Keep the bulk elsewhere, and store here where it is.';
  end if;
  return true;
end $$;

-- Defaults that more than one table or statement needs, so that each stands in one
-- place. The planner folds them into constants. Package jobq has the same values.
create function jobq.max_attempts_default() returns smallint
  language sql immutable parallel safe
  return 25::smallint;

create function jobq.lease_default() returns interval
  language sql immutable parallel safe
  return interval '60 s';

-- has_months says whether one of the spans has months or years. As seconds, a month is 30 days and a year 365.25 days: nobody
-- who writes '1 month' means that. A schedule says it with cron.
create function jobq.has_months(spans interval[]) returns boolean
  language sql immutable parallel safe
  return (select coalesce(bool_or(extract(year from s.span) <> 0 or extract(month from s.span) <> 0), false) from unnest(spans) as s(span));

create function jobq.age_after_default() returns interval
  language sql immutable parallel safe
  return interval '5 minutes';

-- Ids of jobs, and places in the line of the available ones. A job that
-- becomes available again takes a new position at the tail, so that a claim
-- may start where the last one ended; a fresh job has one from the start.
create sequence jobq.job_id_seq as bigint;
create sequence jobq.position_seq as bigint;

-- Until when a worker waits for notifications of new jobs, as the epoch in
-- seconds: of any queue, and of the queues of each of sixteen groups, into which
-- queues fall by a hash of their names. Sequences, because their values are read as
-- they are and not as of a snapshot, whatever the isolation level: see pending_wake.
create sequence jobq.waiting_seq as bigint minvalue 0 start 0;
do $$
begin
  for number in 0..15 loop
    execute format('create sequence jobq.waiting_%s_seq as bigint minvalue 0 start 0', number);
  end loop;
end $$;

-- Until when somebody waits for a job to end, likewise: while nobody does, whoever ends
-- a job looks at no more than this. See 010_wait.
create sequence jobq.awaited_seq as bigint minvalue 0 start 0;

-- What the columns of pending may hold: a domain for each column, job_ and its name. PostgreSQL plans the CHECKs of a table for each
-- statement, which cost a single insert more than all else did, and those of a domain once in a session (decision 0046). Columns of
-- jsonb and arrays have no domain, because drivers cannot handle such types.
--
-- One statement claims, ends or reaps many jobs. Arithmetic that fails for one of them would stop them all, so the limits are
-- narrow enough for all arithmetic.
create domain jobq.job_queue as text
  constraint "queue must be 1 to 128 characters" check (char_length(value) between 1 and 128);
create domain jobq.job_kind as text
  constraint "kind must be 1 to 128 characters" check (char_length(value) between 1 and 128);
create domain jobq.job_partition_key as text
  constraint "partition_key must be 1 to 255 characters" check (char_length(value) <= 255);
create domain jobq.job_unique_key as text
  constraint "unique_key must be 1 to 255 characters" check (char_length(value) between 1 and 255);
create domain jobq.job_max_attempts as smallint
  constraint "max_attempts must be 1 to 32767" check (value >= 1);
create domain jobq.job_last_error as text
  constraint "last_error must be at most 1000 characters" check (char_length(value) <= 1000);
create domain jobq.job_clear_reason as text
  constraint "clear_reason must be at most 1000 characters" check (char_length(value) <= 1000);
create domain jobq.job_timeout as interval
  constraint "timeout must be positive, at most 10 years" check (value > interval '0' and value <= interval '10 years')
  constraint "timeout and backoff must be without months and years" check (extract(month from value) = 0 and extract(year from value) = 0);
create domain jobq.job_backoff_base as interval
  constraint "backoff_base must be positive, at most 10 years" check (value > interval '0' and value <= interval '10 years')
  constraint "timeout and backoff must be without months and years" check (extract(month from value) = 0 and extract(year from value) = 0);
create domain jobq.job_backoff_max as interval
  constraint "backoff_max must be positive, at most 10 years" check (value > interval '0' and value <= interval '10 years')
  constraint "timeout and backoff must be without months and years" check (extract(month from value) = 0 and extract(year from value) = 0);
create domain jobq.job_run_at as timestamptz -- Go and JSON have no other years
  constraint "run_at must be in the years 1 to 9999" check (value >= '0001-01-01 00:00:00+00' and value < '10000-01-01 00:00:00+00');
create domain jobq.job_lease_token as bigint
  constraint "lease_token must be 0 to 2^62" check (value between 0 and 4611686018427387904);

-- What producers write, and all that they may write: no lease can be forged
-- here. A job is `available` when it has a position; else `waiting` for other jobs
-- when waits says so (see the table dependency), and `scheduled` when it does not.
create table jobq.pending (
  id            bigint                 not null default nextval('jobq.job_id_seq'),
  position      bigint                          default nextval('jobq.position_seq'),
  lease_token   jobq.job_lease_token   not null default 0,
  run_at        jobq.job_run_at        not null default now(),
  created_at    timestamptz            not null default now(),
  timeout       jobq.job_timeout,
  backoff_base  jobq.job_backoff_base,
  backoff_max   jobq.job_backoff_max,
  priority      smallint               not null default 0,
  attempts      smallint               not null default 0,
  max_attempts  jobq.job_max_attempts  not null default jobq.max_attempts_default(),
  crashes       smallint               not null default 0,
  args_apart    boolean                not null default false,
  queue         jobq.job_queue         not null default 'default',
  kind          jobq.job_kind          not null,
  partition_key jobq.job_partition_key not null default '', -- '' for none
  args          jsonb                           default '{}',
  unique_key    jobq.job_unique_key,
  last_error    jobq.job_last_error,
  clear_reason  jobq.job_clear_reason,
  checkpoint    jsonb,
  metadata      jsonb,
  tags          text[],
  waits         boolean, -- true, or null: it then takes no room in the row
  constraint pending_pkey primary key (id),
  constraint "a job that waits has no position" check (waits is null or waits and position is null),
  constraint "args must not be null" check (args is not null or args_apart),
  -- The triggers pending_before_insert and pending_before_update refuse args, metadata and checkpoints.
  constraint "tags must be at most 32, without nulls, 8 KiB in all" check
    (tags is null or (cardinality(tags) <= 32 and coalesce(array_ndims(tags), 1) = 1 and array_position(tags, null) is null and octet_length(array_to_string(tags, '')) <= 8192)),
  constraint "attempts must be 0 to max_attempts - 1" check (attempts >= 0 and attempts < greatest(max_attempts, 1))
);

-- The claim walks this one and nothing else. The jobs of a key have a line of their
-- own, which a claim of jobs without one (partition_key '') never meets.
create index pending_claim_idx on jobq.pending (queue, partition_key, priority, position) where position is not null;
-- The janitor promotes from this one, and reads it to know how long to sleep.
-- With the id, so that it can go on where it stopped among jobs that are due at once.
create index pending_due_idx on jobq.pending (run_at, id) where position is null and waits is null;
-- For lists of the jobs that wait for others (waits), and of those that have failed before
-- (waits is null). It is one index for both, since every insert opens each index.
create index pending_held_idx on jobq.pending (waits, id) where waits or attempts > 0 and last_error is not null;
-- The suspects: jobs that were lost with their workers twice in a row, or once if only their last attempt is left. They have no
-- position, and are claimed by claim_alone. The condition stands in each statement that is about suspects;
-- the first part of it costs other jobs less. Statements about jobs that are due leave suspects out with
-- greatest(least(2, max_attempts - attempts::integer) - crashes, 0) <> 0: JobPromote says why it is written so.
create index pending_suspect_idx on jobq.pending (queue, run_at, id) where crashes > 0 and crashes >= least(2, max_attempts - attempts);

-- A lease's id is the token of the jobs that it holds. It has its day in front: (days since
-- 2026-01-01) * 2^40 + a number from a sequence. So it grows with every claim, and
-- it alone says which partition of run to look in. It stays below 2^53, which readers
-- of JSON can hold, until 2048. After a restore of an older copy that nobody has noticed (see
-- generation_check), later ones may get their ids again. So where an id may be old, claimed_at goes with it.
create sequence jobq.lease_number_seq as bigint maxvalue 1099511627775 cycle;

-- The day of the latest lease, as days since 2026-01-01. It keeps ids from going down when the clock is set back.
create sequence jobq.lease_day_seq as bigint minvalue 0 start 0;

-- The first id of the leases of a day.
create function jobq.lease_day(day date) returns bigint
  language sql immutable parallel safe
  return (day - date '2026-01-01')::bigint << 40;

-- lease_id_next is the id of a new lease. Its day is the clock's. If the clock went back by at most two days, it stays the day of
-- the latest lease: the janitor makes days three days ahead. A clock before 2026 is wrong, and the latest day is used however far
-- ahead it is. If the clock went back further, it was wrong before, and the ids follow it: they go down once, but the number in
-- them does not repeat.
--
--   clock       latest day  day of the id
--   2026-11-28  2026-11-27  2026-11-28
--   2026-11-27  2026-11-28  2026-11-28  it was set back over midnight
--   2025-01-01  2026-11-28  2026-11-28
--   2026-11-28  2031-05-06  2026-11-28  it was years ahead
create function jobq.lease_id_next() returns bigint
  language plpgsql
  as $$
declare
  today bigint := greatest((clock_timestamp() at time zone 'UTC')::date - date '2026-01-01', 0);
  latest bigint := coalesce(pg_sequence_last_value('jobq.lease_day_seq'), 0);
begin
  if jobq.timeline() <> pg_sequence_last_value('jobq.timeline_seq') then
    perform jobq.generation_check();
  end if;
  if latest > today and (today = 0 or latest <= today + 2) then
    today := latest;
  elsif latest <> today then
    perform setval('jobq.lease_day_seq', today);
  end if;
  return (today << 40) + nextval('jobq.lease_number_seq');
end $$;

-- A standby that is promoted, or a backup that is restored, lacks the latest of what was. So its sequences would give ids of jobs
-- and numbers of leases a second time. A promoted server has a new timeline, and a restored dump another system or other oids.
-- These sequences have what was seen last. They are no row, so a transaction that is rolled back does not take them back.
create sequence jobq.timeline_seq as bigint;
create sequence jobq.system_seq as bigint minvalue -9223372036854775808 start 0;

-- The row that whoever advances the sequences locks. Nobody but the owner may.
create table jobq.generation_turn (
  singleton boolean not null primary key default true check (singleton)
);
insert into jobq.generation_turn default values;

-- timeline is the server's, from the name of its WAL file: pg_control_checkpoint says the one before, until the checkpoint that
-- follows a promotion. It is null where the server does not tell, such as services with a storage of their own.
create function jobq.timeline() returns bigint
  language plpgsql
  as $$
begin
  return ('x' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))::bit(32)::bigint;
exception when others then
  return null;
end $$;

-- generation_check advances the ids of jobs and the numbers of leases by 2^30 if the server has another timeline, or the tables
-- another place, than when it looked last. It says whether it has advanced them. It runs with the first claim after a promotion,
-- and with each heartbeat of workers and janitors.
--
-- The lock keeps two sessions from advancing at once: the later one would take back what others have got in between. The error
-- lets go of it at once, and not at the end of the caller's transaction. What setval has done stays.
create function jobq.generation_check() returns boolean
  language plpgsql security definer set search_path = pg_catalog, pg_temp
  as $$
declare
  gap constant bigint := 1 << 30;
  line bigint := coalesce(jobq.timeline(), pg_sequence_last_value('jobq.timeline_seq'), 1);
  system bigint := 'jobq.system_seq'::regclass::oid::bigint;
  last bigint;
  advanced boolean := false;
begin
  begin
    system := system # (select c.system_identifier from pg_control_system() c);
  exception when others then -- the server does not tell
  end;
  if line = pg_sequence_last_value('jobq.timeline_seq') and system = pg_sequence_last_value('jobq.system_seq') then
    return false;
  end if;
  begin
    perform from jobq.generation_turn for update;
    advanced := line <> pg_sequence_last_value('jobq.timeline_seq') or system <> pg_sequence_last_value('jobq.system_seq');
    if advanced then
      last := coalesce(pg_sequence_last_value('jobq.job_id_seq'), 0);
      perform setval('jobq.job_id_seq', least(last, 9223372036854775807 - gap) + gap);
      last := coalesce(pg_sequence_last_value('jobq.lease_number_seq'), 0);
      perform setval('jobq.lease_number_seq', case when last + gap < 1::bigint << 40 then last + gap else gap end);
      raise log 'jobq: the server has a new timeline, or the tables were restored: ids of jobs and leases go on 2^30 further';
    end if;
    perform setval('jobq.timeline_seq', line), setval('jobq.system_seq', system);
    raise sqlstate 'JQ000';
  exception when sqlstate 'JQ000' then
  end;
  return coalesce(advanced, false); -- null: the migration has asked, and there was nothing before
end $$;
select jobq.generation_check();

-- What is held now: one row per claim, for all jobs that it took. Only its owner
-- and whoever takes it away (LeaseReap) write it. A run that plainly succeeds is
-- one number here, and nothing in run.
--
-- Example: a claim takes jobs 41, 42 and 43 at 12:00:00, which get the slots 1, 2
-- and 3. After 250 ms, 41 succeeds; after 400 ms, 42 has failed:
--
--   job_ids {41, 42, 43}, ended_slots {1, 2}, ended_ms {250, -1}: 43 still runs
--
-- When 43 has ended as well, the lease moves to past_lease. Small and not
-- partitioned: a statement that touches a partitioned table locks all partitions.
-- The fillfactor leaves extensions and ends room on their page.
--
-- A worker claims more jobs than it has free slots, and begins them in the order of
-- their slots. begun grows before it begins a job beyond it. So a job beyond begun has
-- never begun, and has used no attempt if the lease is lost. A row that does not say
-- counts all its jobs as begun.
create table jobq.lease (
  id          bigint      not null,
  claimed_at  timestamptz not null,
  expires_at  timestamptz not null,
  lost_at     timestamptz, -- not null: taken away from its owner, whose writes are refused; when a reaper looked at it last
  begun       smallint    not null default 32767, -- the jobs of slots 1 to begun may have begun
  owner       text        not null,
  queue       text        not null,
  ended_slots smallint[]  not null default '{}', -- of jobs that have ended, in the order in which they did
  ended_ms    smallint[]  not null default '{}', -- beside each, how long after claimed_at it succeeded; -1: its row of run says how it ended
  job_ids     bigint[]    not null, -- by slot
  constraint lease_pkey primary key (id)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);
-- The ids are never written again when apart; the ends are small enough to stay.
alter table jobq.lease alter job_ids set storage external, alter ended_slots set storage main, alter ended_ms set storage main;
-- What runs in a queue, for those with a limit: see queue_admit.
create index lease_queue_idx on jobq.lease (queue);

-- The leases of which no job runs any more, for the history. Written once.
create table jobq.past_lease (
  id         bigint      not null,
  claimed_at timestamptz not null,
  owner      text        not null,
  ended      smallint[]  not null, -- by slot: as ended_ms of lease
  constraint past_lease_pkey primary key (id)
) partition by range (id);
create table jobq.past_lease_default partition of jobq.past_lease default;
alter table jobq.past_lease alter ended set storage main;

-- A job that was claimed, and its run: the current one, or the last one when that
-- was its end. The claim writes the row. A run that plainly succeeds never touches
-- it again: its lease says so. Other ends set state and finished_at here, or take
-- the row back to pending. So a job is over when state is set, or when its slot of
-- the lease has milliseconds; else it runs. The history is partitioned by the day of
-- the claim. So retention drops whole days, and deletes row by row only what is kept
-- for less long than others of its day. jobq.partition_add makes the days.
create table jobq.run (
  id                  bigint      not null,
  lease_id            bigint      not null, -- an id of its own, without a lease, if it was cancelled before it ran
  position            bigint,
  run_at              timestamptz, -- null: as created_at, which a job has that was to run at once
  created_at          timestamptz not null,
  began_at            timestamptz, -- with state, where it is known: the claim may have been long before
  finished_at         timestamptz, -- with state
  cancel_requested_at timestamptz,
  timeout             interval,
  backoff_base        interval,
  backoff_max         interval,
  state               jobq.job_state,
  slot                smallint    not null, -- its place in the lease, from 1; 0 if it was cancelled before it ran
  priority            smallint    not null,
  attempts            smallint    not null,
  max_attempts        smallint    not null,
  crashes             smallint    not null,
  args_apart          boolean     not null,
  queue               text        not null,
  kind                text        not null,
  partition_key       text, -- null for none
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
  -- A checkpoint comes from pending or progress, which have accepted it.
  constraint "result must be at most 1 MiB" check (jobq.json_require('result', result, 1048576))
) partition by range (lease_id);
create table jobq.run_default partition of jobq.run default;
-- A publication for all tables refuses each update and delete of a table that has no replica identity. A table
-- without a key has the whole row as its identity, which costs nothing unless wal_level is logical. Partitions do
-- not inherit it: see partition_add.
alter table jobq.run replica identity full;
alter table jobq.run_default replica identity full;

-- Looking a job up by its id.
create index run_id_idx on jobq.run (id);
-- What did not succeed, newest first, and to be counted by queue without looking
-- at the rows. The many that plainly succeed cost it, and the others below, nothing.
create index run_unsuccessful_idx on jobq.run (finished_at, id) include (queue, state) where state <> 'completed';
-- What succeeded, but not plainly: retention asks when the last of a day ended.
create index run_completed_idx on jobq.run (finished_at, id) where state = 'completed';
-- What is to be cancelled: each extension of a lease asks.
create index run_cancel_idx on jobq.run (lease_id) where cancel_requested_at is not null and state is null;

-- What a run says of itself while it runs, so that this does not write its row of
-- run again. It goes when the run ends.
create table jobq.progress (
  job_id        bigint      not null,
  lease_id      bigint      not null, -- of an earlier run: it does not count any more
  progressed_at timestamptz,
  percent       real,
  stage         text,
  message       text,
  checkpoint    jsonb, -- null: as in run
  constraint progress_pkey primary key (job_id),
  constraint "checkpoint must be at most 1 MiB" check (pg_column_size(checkpoint) <= 1048576),
  constraint "progress_percent must be 0 to 100" check (percent between 0 and 100),
  constraint "progress_stage must be at most 128 characters" check (char_length(stage) <= 128),
  constraint "progress_message must be at most 1024 characters" check (char_length(message) <= 1024)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);

alter table jobq.pending set (autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.02);

-- One row per run that has ended in another way than completed, that has output or
-- usage, or that its program has ended (run_close).
create table jobq.attempt (
  job_id      bigint               not null,
  finished_at timestamptz          not null,
  started_at  timestamptz          not null,
  lease_token bigint               not null,
  outcome     jobq.attempt_outcome not null,
  number      smallint             not null,
  worker_id   text                 not null,
  error       text,
  output      text,
  constraint "error must be at most 64 KiB" check (octet_length(error) <= 65536),
  constraint "output must be at most 64 KiB" check (octet_length(output) <= 65536)
) partition by range (finished_at);
create table jobq.attempt_default partition of jobq.attempt default;
alter table jobq.attempt replica identity full; -- as run
alter table jobq.attempt_default replica identity full;
create index attempt_job_id_idx on jobq.attempt (job_id, lease_token);
create index attempt_default_finished_at_idx on jobq.attempt_default (finished_at); -- as those of other defaults

-- Args too large to be copied at each move: written once, read by the claim.
create table jobq.payload (
  job_id bigint not null primary key,
  args   jsonb  not null,
  constraint "args must be at most args_bytes_max() bytes, 1 MiB by default" check (jobq.json_require('args', args, jobq.args_bytes_max()))
);

-- One row per unfinished job that has a unique_key. Unique per kind. A key that is kept
-- for a period keeps its row until that is over, too:
--
--   kind    key   job_id  kept_until  job_over
--   report  may   41                  f         held while job 41 is unfinished
--   report  june  42      12:00       f         likewise, and until 12:00 at least
--   report  july  43      12:00       t         job 43 is over: free from 12:00 on
create table jobq.unique_key (
  kind       text        not null,
  key        text        not null,
  job_id     bigint      not null,
  kept_until timestamptz,
  job_over   boolean     not null default false,
  constraint "the key of a job that is over is kept until a time" check (not job_over or kept_until is not null),
  constraint unique_key_pkey primary key (kind, key),
  -- As pending has them, but before the index refuses a row that is too large for it.
  constraint "kind must be 1 to 128 characters" check (char_length(kind) between 1 and 128),
  constraint "unique_key must be 1 to 255 characters" check (char_length(key) between 1 and 255)
);
-- For the janitor, which forgets those whose time has come.
create index unique_key_kept_idx on jobq.unique_key (kept_until, job_id) where job_over;

-- Settings per queue, obeyed by every worker and janitor, so that no two can
-- disagree. A queue without a row has the defaults.
create table jobq.queue (
  name             text        not null primary key,
  lease            interval    not null default jobq.lease_default(),
  extend_every     interval, -- null: a third of the lease
  -- What extends a lease: the worker's ticker, the job's own reports of
  -- progress, both, or nothing, which makes the lease the longest a run may take.
  heartbeat        text        not null default 'ticker',
  -- How long after its expiry a lease is left alone.
  stale_grace      interval    not null default '0',
  -- Where a job goes whose lease was taken away: back to its place at the head of
  -- the line, or to the tail, and there after a delay if one is set.
  redelivery       text        not null default 'tail',
  redelivery_delay interval    not null default '0',
  -- Whether the next run begins without the checkpoint of a run that was lost.
  reset_on_reap    boolean     not null default false,
  -- How many jobs of the queue may run at once, over all workers; null for no limit.
  max_running      integer,
  -- How many jobs of each partition key may run at once, over all workers; null for no limit.
  key_limit        integer,
  -- Whether the jobs of a key run in the order of their line, and what one does to the next that waits for its retry (hold,
  -- pass), or has failed (stop); null for no order. See lane_next.
  key_order        text,
  -- What ends the group of a key: acme/1 and acme/2 are of the group acme where it is '/'. Groups have equal shares of the
  -- queue, however many keys they have; null: each key is one. See key_group.
  key_separator    text,
  -- How many jobs of the queue may start in each period, over all workers, and how
  -- many more at once when few have started before; null for no limit, and for the
  -- burst that rate_burst_default says. See queue_admit.
  rate_jobs        integer,
  rate_period      interval,
  rate_burst       integer,
  -- The same for the jobs of each partition key: see lane_claim.
  key_rate_jobs    integer,
  key_rate_period  interval,
  key_rate_burst   integer,
  -- How long the first job of a priority waits before the priority has its turns among
  -- more urgent ones; 0: for ever. See LineAged.
  age_after        interval    not null default jobq.age_after_default(),
  -- How long finished jobs of the queue are kept, and those of them that failed or were cancelled; null: as long as the
  -- others of the queue, and else as setting says. See history_sweep.
  retention        interval,
  failed_retention interval,
  paused_at        timestamptz,
  paused_by        text,
  pause_reason     text,
  created_at       timestamptz not null default now(),
  constraint "queue must be 1 to 128 characters" check (char_length(name) between 1 and 128),
  constraint "lease must be 1 second to 30 days" check (lease between interval '1 s' and interval '30 days'),
  constraint "extend_every must be positive and at most half of lease"
    check (extend_every > interval '0' and extend_every <= lease / 2),
  constraint "heartbeat must be ticker, progress, both or off" check (heartbeat in ('ticker', 'progress', 'both', 'off')),
  constraint "stale_grace must be 0 to 30 days" check (stale_grace between interval '0' and interval '30 days'),
  constraint "redelivery must be head or tail" check (redelivery in ('head', 'tail')),
  constraint "redelivery_delay must be 0 to 30 days" check (redelivery_delay between interval '0' and interval '30 days'),
  -- A job that waits has no place at the head.
  constraint "redelivery_delay needs redelivery tail"
    check (redelivery = 'tail' or redelivery_delay = interval '0'),
  constraint "pause_reason must be at most 1024 characters" check (char_length(pause_reason) <= 1024),
  constraint "max_running must be 1 to 1000000" check (max_running between 1 and 1000000),
  constraint "key_limit must be 1 to 10000" check (key_limit between 1 and 10000),
  constraint "key_order must be hold, pass or stop" check (key_order in ('hold', 'pass', 'stop')),
  constraint "key_order needs key_limit 1" check (key_order is null or key_limit is not distinct from 1),
  constraint "key_separator must be 1 to 8 characters" check (char_length(key_separator) between 1 and 8),
  constraint "rate_jobs must be 1 to 1000000" check (rate_jobs between 1 and 1000000),
  constraint "rate_period must be 1 second to 30 days" check (rate_period between interval '1 s' and interval '30 days'),
  constraint "rate_jobs and rate_period come together" check ((rate_jobs is null) = (rate_period is null)),
  constraint "rate_burst must be 1 to 1000000" check (rate_burst between 1 and 1000000),
  constraint "rate_burst needs rate_jobs" check (rate_burst is null or rate_jobs is not null),
  constraint "key_rate_jobs must be 1 to 1000000" check (key_rate_jobs between 1 and 1000000),
  constraint "key_rate_period must be 1 second to 30 days" check (key_rate_period between interval '1 s' and interval '30 days'),
  constraint "key_rate_jobs and key_rate_period come together" check ((key_rate_jobs is null) = (key_rate_period is null)),
  constraint "key_rate_burst must be 1 to 1000000" check (key_rate_burst between 1 and 1000000),
  constraint "key_rate_burst needs key_rate_jobs" check (key_rate_burst is null or key_rate_jobs is not null),
  constraint "age_after must be 0 to 30 days" check (age_after between interval '0' and interval '30 days'),
  constraint "lease, grace, delays and periods must be without months" check
    (not jobq.has_months(array[lease, extend_every, stale_grace, redelivery_delay, rate_period, key_rate_period, age_after])),
  constraint "retention must be 1 day to 10 years" check (retention between interval '1 day' and interval '10 years'),
  constraint "failed_retention must be 1 day to 10 years" check (failed_retention between interval '1 day' and interval '10 years')
);
-- Of 100,000 queues, those with a retention of their own: see retention_span.
create index queue_retention_idx on jobq.queue (name) where retention is not null or failed_retention is not null;

-- The kinds that are paused, in all queues, and those whose workers have crashed of
-- late: see kinds_crashed. Other kinds have no row: every claim reads this table.
create table jobq.kind (
  name         text        not null primary key,
  crashes      smallint    not null default 0, -- in a row
  crashed_at   timestamptz, -- when the last of them was found
  paused_at    timestamptz,
  paused_by    text,
  pause_reason text,
  constraint "kind must be 1 to 128 characters" check (char_length(name) between 1 and 128),
  constraint "pause_reason must be at most 1024 characters" check (char_length(pause_reason) <= 1024)
);
-- What every claim reads.
create index kind_paused_idx on jobq.kind (name) where paused_at is not null;

-- How far a queue with a rate has used it: one row, which only queue_charge writes.
-- ready_at is the "theoretical arrival time" of the generic cell rate algorithm: each
-- start moves it on by step_us, the period over rate_jobs in microseconds, and it may
-- be ahead of the clock by as many steps as the burst has.
--
-- Each write takes the next number, so that the row which counts is the first of the
-- index, read from its end: else each claim would walk past all versions of the row
-- that some open transaction may still see.
create table jobq.throttle (
  queue    text        not null,
  number   bigint      not null,
  step_us  bigint      not null,
  ready_at timestamptz not null,
  constraint throttle_pkey primary key (queue, number)
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);

-- A lane is a partition key of a queue, while jobs of the key wait or run. The row with the key '' is the queue's own, and exists
-- once the queue has had a key. Only a claim that has the queue's turn (queue_admit) writes lanes, as lane_claim says, or
-- lane_prune in its place.
--
-- Example: keys of a queue with a key_limit of 2. Key c has no row: nothing of it waits or runs.
--
--   key  turn  full_limit  held_leases  held_slots
--   a      17              {}           {}          next to be looked at
--   b      18              {900}        {4}         after it; one of its jobs runs
--   d               2      {900, 901}   {5, 1}      full: no claim looks at it until one of the two has ended
--
-- A lane holds the leases and slots of jobs that were claimed. Some of these may have ended since: the leases say which still run.
-- Without a key_limit lanes hold nothing, and a key of which nothing waits has no lane.
--
-- With a rate of the keys, rate_ready_at is for the key what ready_at of throttle is for a queue. If a key has used up its burst
-- while jobs of it wait, its lane is throttled, neither ready nor full: no claim looks at it before throttled_until. If nothing of
-- it waits, it keeps its lane until rate_ready_at: without the lane, the key would have its whole burst again. With a rate of 1/s
-- and a burst of 2, at 12:00:00:
--
--   key  turn  rate_ready_at  throttled_until
--   a      19  12:00:01                        one more may start at once
--   b          12:00:02       12:00:01         throttled: two have started, and more wait
--   c          12:00:02                        two have started, and no more wait
create table jobq.lane (
  queue       text       not null,
  key         text       not null,
  turn        bigint, -- ready: it may have a job to be claimed. Lower goes first
  full_limit  integer, -- as many ran as this limit, at looked_at
  looked_at   timestamptz, -- and of the row '' when some of the full ones were looked at without a hint, or no other one was found
  held_leases bigint[]   not null default '{}',
  held_slots  smallint[] not null default '{}',
  looks       jsonb      not null default '{}', -- where claims stopped in its line, by their kinds: see lane_walk
  unheld      bigint, -- of the row '': what runs of leases after this one may not be held by its lane, since there was no key_limit; null: all is
  rate_ready_at   timestamptz, -- null: nothing of the rate is used
  rate_step_us    bigint, -- of the rate when it was written, with its burst
  rate_burst      integer,
  throttled_until timestamptz,
  hinted      bigint     not null default 0, -- turn that the last hint gave, or would have; not of a ready lane without looks
  due         integer, -- so many jobs are left of a turn that it has begun, where its key has a weight: see key_weight
  due_turn    bigint, -- which it gets back, since it was full before the turn was over
  group_clock bigint, -- of the row '': the latest turn of its group in which a job was given; null: no lane has had such a turn. See key_group
  constraint lane_pkey primary key (queue, key),
  constraint "a lane is ready, full, throttled or neither" check (num_nonnulls(turn, full_limit, throttled_until) <= 1)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);
create index lane_turn_idx on jobq.lane (queue, turn) where turn is not null;
create index lane_full_idx on jobq.lane (queue, full_limit, looked_at) where full_limit is not null;
-- The throttled ones: those that are due, and those whose rate was another one.
create index lane_throttled_idx on jobq.lane (queue, rate_step_us, rate_burst, throttled_until) where throttled_until is not null;
-- Those of which nothing waits or runs, to be deleted when nothing of their rate is used any more.
create index lane_spent_idx on jobq.lane (queue, rate_ready_at)
  where turn is null and full_limit is null and throttled_until is null and rate_ready_at is not null and held_leases = '{}';
create sequence jobq.lane_turn_seq as bigint;

-- The job of each key that was claimed last, in queues with a key_order: the key's head. It stays the head until it has ended,
-- even if it comes back with another place in the line (lane_next). Only claims that have the queue's turn write it.
-- lane_head_prune deletes it.
create table jobq.lane_head (
  queue    text   not null,
  key      text   not null,
  job_id   bigint not null,
  lease_id bigint not null, -- with which it was claimed
  constraint lane_head_pkey primary key (queue, key)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);

-- Hints of keys that may be ready: a job of the key was added or became due, a job of it has ended, or the key was resumed.
-- Whoever does that adds a row in the same transaction, and so never waits for a lane. The next claim deletes it. The hint of a
-- pause has an id below 0: claims take those first, however many others there are (lane_pause).
create table jobq.lane_hint (
  id    bigint not null generated always as identity,
  queue text   not null,
  key   text   not null,
  constraint lane_hint_pkey primary key (queue, id)
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);

-- Turns (turn_take): a session has one while it has locked the rows of its name. These are locks on rows of our own, and not
-- advisory locks, because any login may take an advisory lock. No role has rights in this table. A claim that shares a queue's
-- turn locks one of the other parts, which are numbered from 1. The table is unlogged: the locks end with their sessions, a
-- row that is missing is added, and a lock writes no WAL.
create unlogged table jobq.turn (
  name  text     not null,
  part  smallint not null,
  parts smallint not null default 0, -- how many others there are; only part 0 says so
  constraint turn_pkey primary key (name, part)
);

-- The partition keys that are paused. A table of its own, since a pause outlives the key's jobs, and its lane.
create table jobq.paused_key (
  queue        text        not null,
  key          text        not null,
  paused_at    timestamptz not null,
  paused_by    text        not null,
  pause_reason text,
  constraint paused_key_pkey primary key (queue, key),
  constraint "queue must be 1 to 128 characters" check (char_length(queue) between 1 and 128),
  constraint "partition_key must be 1 to 255 characters" check (char_length(key) between 1 and 255),
  constraint "pause_reason must be at most 1024 characters" check (char_length(pause_reason) <= 1024)
);
-- For jobq doctor, which names those that are paused for long.
create index paused_key_paused_at_idx on jobq.paused_key (paused_at);

-- The weights of partition keys: how many jobs a turn of the key is long. A key without a row has the weight 1. This is a table of
-- its own, since a weight stays when no job of the key is left.
--
-- Example: of the keys a (weight 3) and b, many jobs wait. Claims of one job each get a a a b a a a b; after the first of these,
-- the lane of a keeps its turn, with due 2. A claim of 10 jobs gets 8 of a and 2 of b: two turns of each, and two jobs of the
-- third turn of a.
create table jobq.key_weight (
  queue  text     not null,
  key    text     not null,
  weight smallint not null,
  constraint key_weight_pkey primary key (queue, key),
  constraint "queue must be 1 to 128 characters" check (char_length(queue) between 1 and 128),
  constraint "partition_key must be 1 to 255 characters" check (char_length(key) between 1 and 255),
  constraint "weight must be 2 to 100" check (weight between 2 and 100)
);

-- The groups of partition keys, in queues with a key_separator. All groups have the same share, however many keys they have, or a
-- share by weight: the weight of the key that has the group's name.
--
-- A lane that becomes ready gets the next turn of its group. So lanes of one group have turns one after the other, and lanes of
-- different groups have equal turns. Each further job that a lane gives moves its group's next turn on by one. A group that had no
-- jobs begins at the queue's clock (lane.group_clock), where the other groups are: it has lost nothing, and owes nothing.
--
-- Example: of the group a, the keys a/1, a/2 and a/3 have one job each, and of b the key b/1 has many. They get the turns 1, 2, 3,
-- and 1. Claims of one job take from a/1, b/1 (then it has 2), a/2, b/1 (then it has 3), a/3, b/1.
--
-- lane.turn holds two things: the turn of the group, which orders lanes first (group_turn), and in its last bits the number of the
-- sequence (lane_group). Only claims that have the queue's turn write this table.
create table jobq.key_group (
  queue     text   not null,
  name      text   not null,
  next_turn float8 not null, -- of the lane of the group that becomes ready next; a job of a group with a weight is a part of a turn
  constraint key_group_pkey primary key (queue, name)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);
-- Claims delete groups whose next turn is long before the clock.
create index key_group_next_turn_idx on jobq.key_group (queue, next_turn);

-- One row per worker process.
create table jobq.worker (
  id           text        not null primary key,
  started_at   timestamptz not null default now(),
  heartbeat_at timestamptz not null default now(),
  drain_requested_at timestamptz, -- an operator wants it to take no new work, and leave
  process_start bigint, -- in clock ticks since boot, tells a pid from its next use; null where unknown
  pid          integer     not null,
  connections_max integer, -- how many connections it may open; null: not known
  draining     boolean     not null default false,
  has_room     boolean     not null default false, -- free slots, when it last beat
  present      boolean     not null default false, -- it holds its presence lock
  hostname     text        not null,
  boot_id      text,
  pid_namespace text,
  version      text        not null,
  queues       jsonb       not null,
  kinds        text[]      not null,
  kind_slots   jsonb, -- of kinds that have slots of their own, in each queue; null: an earlier version of jobq, which does not tell
  keys         text[]      not null default '{}', -- names of the keys with which it can decrypt
  constraint "worker id must be 1 to 255 characters" check (char_length(id) between 1 and 255)
) with (fillfactor = 50);

-- One row at most: when a janitor last said that it lives. A session lock cannot tell, since
-- janitors behind a pooler hold none.
create table jobq.janitor_seen (
  one     boolean     not null default true primary key check (one),
  seen_at timestamptz not null,
  janitor text        not null -- the id of the one that said so
) with (fillfactor = 50);

-- What janitors and starting workers saw and did, for people: see docs/guarantees.md.
create table jobq.event (
  id      bigint      not null generated always as identity primary key,
  at      timestamptz not null default clock_timestamp(),
  job_id  bigint,
  type    text        not null,
  source  text        not null, -- the id of the janitor or worker
  queue   text,
  message text        not null default '',
  constraint "type must be a known event"
    check (type in ('stalled', 'orphaned', 'quarantined', 'leadership_acquired', 'leadership_lost', 'leadership_released', 'error')),
  constraint "message must be at most 1000 characters" check (char_length(message) <= 1000)
);
-- For the janitor, which forgets old events.
create index event_at_idx on jobq.event (at);

-- Settings of the whole schema: one row.
create table jobq.setting (
  singleton          boolean  not null primary key default true check (singleton),
  finished_retention interval not null default '7 days',
  -- Of jobs that failed or were cancelled; null: as finished_retention.
  failed_retention   interval,
  -- After how many crashes in a row a kind is paused; 0: never.
  quarantine_crashes smallint not null default 5,
  -- Whether a day of the history stays until it has been exported, and the day before which
  -- all were. At first it is the first day that there can be.
  keep_until_exported boolean not null default false,
  exported_before    date     not null default date '2026-01-01',
  -- The day of which an export has begun last, and when: null again when one of its jobs, or
  -- their attempts, has come back since. See export_begin.
  export_day         date,
  export_began_at    timestamptz,
  constraint "finished_retention must be 1 day to 10 years"
    check (finished_retention >= interval '1 day' and finished_retention <= interval '10 years'),
  constraint "failed_retention must be 1 day to 10 years"
    check (failed_retention >= interval '1 day' and failed_retention <= interval '10 years'),
  constraint "quarantine_crashes must be 0 to 1000" check (quarantine_crashes between 0 and 1000),
  constraint "exported_before must be in the years 2026 to 9999" check (exported_before between date '2026-01-01' and date '9999-12-31')
);
insert into jobq.setting default values;

-- How far jobs were deleted from days of the history that stay for others, which are kept for longer: see
-- history_sweep. A day without a row was not looked through yet. With finished_retention = 7 days, and 90 for
-- the queue audit, on 20 November:
--
--   day     began_at      next_block
--   10 Nov  18 Nov 00:05              swept: it has jobs of audit only, and goes in February
--   11 Nov  19 Nov 00:05              swept
--   12 Nov  20 Nov 00:05  4800        the blocks before 4800 of its partition were looked through
--   13 Nov                            no row: not yet
create table jobq.sweep (
  day        date        not null primary key,
  began_at   timestamptz not null, -- the last time that its first block was looked at
  again_at   timestamptz, -- when it is to be looked through once more, whatever has been since began_at
  next_block bigint, -- while it goes on, in run
  next_lease bigint, -- and then in past_lease: the leases after this one
  last_lease bigint, -- up to this one; null: leases are left alone
  left_over  boolean     not null default false -- jobs stay whose time has come: they run, say, or ended later than others of the day
);

-- Leases of the day that is being swept whose jobs are kept. They go when the leases were looked at.
create table jobq.sweep_lease (lease_id bigint not null primary key);

-- Leases of jobs that came back into the history, by an undo: their days are to be swept again. Rows go when the next
-- sweep begins. Without a key, so that nobody waits.
create table jobq.sweep_again (lease_id bigint not null);
create index sweep_again_lease_idx on jobq.sweep_again (lease_id);
alter table jobq.sweep_again replica identity full; -- as run

-- Counts and sums for charts, so that charts never count job rows. Finishers
-- append to stat_delta in the transaction that finishes the jobs, and so never
-- wait for one another's row; the janitor rolls it up into stat by the minute.
create table jobq.stat_delta (
  minute      timestamptz      not null,
  run_seconds double precision not null,
  wait_seconds double precision not null,
  completed   integer          not null,
  failed      integer          not null,
  retried     integer          not null,
  lost        integer          not null,
  cancelled   integer          not null,
  queue       text             not null,
  kind        text             not null
);
alter table jobq.stat_delta replica identity full; -- as run
create table jobq.stat (
  minute      timestamptz      not null,
  run_seconds double precision not null,
  wait_seconds double precision not null,
  completed   bigint           not null,
  failed      bigint           not null,
  retried     bigint           not null,
  lost        bigint           not null,
  cancelled   bigint           not null,
  queue       text             not null,
  kind        text             not null,
  constraint stat_pkey primary key (minute, queue, kind)
);

-- sql/roles.sql says who may call them.
revoke execute on function
  jobq.age_after_default, jobq.args_bytes_max, jobq.generation_check, jobq.has_months, jobq.json_problem, jobq.json_problem_large, jobq.json_require, jobq.lease_day,
  jobq.lease_default, jobq.lease_id_next, jobq.max_attempts_default, jobq.timeline
  from public;
