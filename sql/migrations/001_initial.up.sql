-- `make generate` writes this file from sql/schema.
set local lock_timeout = '5s';

-- What columns may hold, and the defaults that more than one place needs.

do $$
begin
  if getdatabaseencoding() <> 'UTF8' then
    raise 'the database has the encoding %, and jobq needs UTF8', getdatabaseencoding()
      using hint = 'Make a database with: create database NAME encoding ''UTF8'' template template0';
  end if;
end $$;

create type jobq.job_state as enum
  ('waiting', 'scheduled', 'available', 'running', 'completed', 'failed', 'cancelled');
comment on type jobq.job_state is 'Where a job is in its life.';

-- How a run ended. `lost` is the only one that the worker did not write itself.
create type jobq.attempt_outcome as enum
  ('completed', 'failed', 'timed_out', 'lost', 'cancelled', 'released', 'snoozed', 'unreadable');
comment on type jobq.attempt_outcome is 'How a run ended.';

-- Defaults that more than one table or statement needs, so that each stands in one
-- place. The planner folds them into constants. Package jobq has the same values.
create function jobq.max_attempts_default() returns smallint
  language sql immutable parallel safe
  return 25::smallint;
comment on function jobq.max_attempts_default is '25. Do not replace it.';

create function jobq.lease_default() returns interval
  language sql immutable parallel safe
  return interval '60 s';
comment on function jobq.lease_default is '60 seconds. Do not replace it.';

-- has_months says whether one of the spans has months or years. As seconds, a month is 30 days and a year 365.25 days:
-- nobody who writes '1 month' means that. A schedule says it with cron.
create function jobq.has_months(spans interval[]) returns boolean
  language sql immutable parallel safe
  return (select coalesce(bool_or(extract(year from s.span) <> 0 or extract(month from s.span) <> 0), false)
      from unnest(spans) as s(span));

create function jobq.age_after_default() returns interval
  language sql immutable parallel safe
  return interval '5 minutes';
comment on function jobq.age_after_default is '5 minutes. Do not replace it.';

-- What the columns of pending may hold: a domain for each column, job_ and its name. PostgreSQL plans the CHECKs of a
-- table for each statement, which cost a single insert more than all else did, and those of a domain once in a session
-- (decision 0046). Columns of jsonb and arrays have no domain, because drivers cannot handle such types.
--
-- One statement claims, ends or reaps many jobs. Arithmetic that fails for one of them would stop them all, so the
-- limits are narrow enough for all arithmetic.
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
create domain jobq.job_max_lost as smallint
  constraint "max_lost must be 1 to 32767" check (value >= 1);
create domain jobq.job_last_error as text
  constraint "last_error must be at most 1000 characters" check (char_length(value) <= 1000);
create domain jobq.job_clear_reason as text
  constraint "clear_reason must be at most 1000 characters" check (char_length(value) <= 1000);
create domain jobq.job_timeout as interval
  constraint "timeout must be positive, at most 10 years" check (value > interval '0' and value <= interval '10 years')
  constraint "timeout and backoff must be without months and years"
      check (extract(month from value) = 0 and extract(year from value) = 0);
create domain jobq.job_backoff_base as interval
  constraint "backoff_base must be positive, at most 10 years"
      check (value > interval '0' and value <= interval '10 years')
  constraint "timeout and backoff must be without months and years"
      check (extract(month from value) = 0 and extract(year from value) = 0);
create domain jobq.job_backoff_max as interval
  constraint "backoff_max must be positive, at most 10 years"
      check (value > interval '0' and value <= interval '10 years')
  constraint "timeout and backoff must be without months and years"
      check (extract(month from value) = 0 and extract(year from value) = 0);
create domain jobq.job_run_at as timestamptz -- Go and JSON have no other years
  constraint "run_at must be in the years 1 to 9999"
      check (value >= '0001-01-01 00:00:00+00' and value < '10000-01-01 00:00:00+00');
create domain jobq.job_lease_token as bigint
  constraint "lease_token must be 0 to 2^62" check (value between 0 and 4611686018427387904);

-- What JSON may come into a column, and how it is shown. `jobq.` stands for the schema in all of these files, whatever
-- its name is.

-- The limit on args, in bytes of jsonb as PostgreSQL stores it. A function
-- and not a row, because a CHECK may use it and the planner puts its body in its
-- place. `create or replace` it to change the limit. It is stable, since the planner runs
-- an immutable function: that makes every insert of one row 5 % slower, because CHECKs are
-- planned anew for each statement.
create function jobq.args_bytes_max() returns integer
  language sql stable parallel safe
  return 1048576;
comment on function jobq.args_bytes_max is
  'The limit on args, in bytes as stored and as text. Replace it to change it.';

-- json_problem says in words why a JSON value may not come in: it is too long as PostgreSQL stores it or as text, or
-- nested too deeply. Null means that it may. Both lengths count, since 10 bytes that are stored can be 131,072 as text:
--
--   1e131071    10 bytes as stored, 131,072 as text. 50,000 of them: 700 kB and 6.5 GB, which no statement can read
--
-- What is stored in few bytes, and not compressed, is never too long for the server to make its text. For anything
-- else, json_problem_large looks first.
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
    return pg_catalog.format('%s must be at most %s bytes as text, with all numbers written out, not %s', name,
        bytes_max, bytes);
  end if;
  return null;
end $$;

-- json_problem_large is json_problem for values of which the server may be unable to make the text. It adds up first
-- how long the long numbers are at least, so that the text is made only of values in which this is not too much. A
-- value that the server cannot read at all, since its page is damaged, is not this function's matter.
create function jobq.json_problem_large(name text, value jsonb, bytes_max integer) returns text
  language plpgsql stable strict
  as $$
declare
  bytes bigint;
begin
  if pg_catalog.jsonb_path_exists(value, '$.**{101}') then
    return pg_catalog.format('%s must be nested at most 100 levels deep', name);
  end if;
  select pg_catalog.sum(case when pg_catalog.abs(x.item::numeric) < 1e3000 then 100
      when pg_catalog.abs(x.item::numeric) < 1e30000 then 3000 else 30000 end)
    into bytes
    from pg_catalog.jsonb_array_elements(pg_catalog.jsonb_path_query_array(value,
        'strict $.** ? (@ > 1e100 || @ < -1e100)')) as x(item);
  if bytes is null or bytes <= bytes_max then
    bytes := pg_catalog.octet_length(value::text);
  end if;
  if bytes > bytes_max then
    return pg_catalog.format('%s must be at most %s bytes as text, with all numbers written out, not %s or more', name,
        bytes_max, bytes);
  end if;
  return null;
exception
  when program_limit_exceeded or statement_too_complex then
    return pg_catalog.format('%s must be at most %s bytes as text, and nested at most 100 levels deep', name,
        bytes_max);
  when data_corrupted then
    return null;
end $$;

-- json_require raises an error for what json_problem refuses, and is true for everything else. In a CHECK it tells more
-- than the CHECK's name could.
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

-- json_of reads JSON from a text. If the text is no JSON, or none that PostgreSQL can store, it raises an
-- error that names the argument.
create function jobq.json_of(name text, content text) returns jsonb
  language plpgsql immutable parallel safe
  as $$
declare
  detail text;
begin
  return content::jsonb;
exception when data_exception or program_limit_exceeded then
  get stacked diagnostics detail = pg_exception_detail;
  raise sqlstate 'JQ001' using
    message = left(regexp_replace(format('%s must be JSON that PostgreSQL can store: %s. %s', name, sqlerrm, detail),
        '\s+', ' ', 'g'), 300);
end $$;

-- json_canonical writes all numbers in a value in one way: jsonb keeps 1.0 and 1 as they were written, and languages
-- differ in which of them they write. The order of members is always the same in jsonb.
create function jobq.json_canonical(value jsonb) returns jsonb
  language plpgsql immutable parallel safe
  as $$
begin
  if strpos(value::text, '.') = 0 then -- no such number in it
    return value;
  end if;
  return case jsonb_typeof(value)
    when 'number' then to_jsonb(trim_scale((value #>> '{}')::numeric))
    when 'array' then (select jsonb_agg(jobq.json_canonical(e.value) order by e.i)
        from jsonb_array_elements(value) with ordinality as e(value, i))
    when 'object' then (select jsonb_object_agg(m.key, jobq.json_canonical(m.value)) from jsonb_each(value) m)
    else value
  end;
end $$;

-- json_shown is what is shown of a JSON value: the value itself, unless it is too long or too deep to be read. Then it
-- is {"jobq:unreadable": "the value must be …"}, so that one such value does not keep the rest of its job, or of a
-- list, from being shown. What is stored in 400 bytes, and not compressed, needs no look: at most 5 MB as text, and 50
-- levels deep.
create function jobq.json_shown(value jsonb) returns jsonb
  language plpgsql stable strict security definer set search_path = pg_catalog, pg_temp
  as $$
declare
  problem text;
begin
  if pg_column_size(value) <= 400 and pg_column_compression(value) is null then
    return value;
  end if;
  problem := jobq.json_problem('the value', value, 67108864);
  return case when problem is null then value else jsonb_build_object('jobq:unreadable', problem) end;
exception when others then
  return jsonb_build_object('jobq:unreadable', sqlerrm);
end $$;

-- args_require raises an error if the large args of a job that is to run again are gone: retention removes them before
-- the day of the job. It must be a statement of its own, after the job was taken, to see what was removed in the
-- meantime.
create function jobq.args_require(job_id bigint) returns void
  language plpgsql
  as $$
begin
  if exists (
    select from jobq.pending p
      where p.id = args_require.job_id and p.args_apart
        -- and not p.id: that could become a join
        and not exists (select from jobq.payload a where a.job_id = args_require.job_id)
  ) then
    raise sqlstate 'JQ003' using
      message = format('job %s: its args have been removed by retention (they were over 1000 bytes): enqueue it anew',
          args_require.job_id);
  end if;
end $$;

-- A standby that is promoted, or a backup that is restored, lacks the latest of what was. So its sequences would give
-- ids of jobs and numbers of leases a second time. A promoted server has a new timeline, and a restored dump another
-- system or other oids. These sequences have what was seen last. They are no row, so a transaction that is rolled back
-- does not take them back.
create sequence jobq.timeline_seq as bigint;
create sequence jobq.system_seq as bigint minvalue -9223372036854775808 start 0;

-- The row that whoever advances the sequences locks. Nobody but the owner may.
create table jobq.generation_turn (
  singleton boolean not null primary key default true check (singleton)
);
comment on table jobq.generation_turn is
  'The row that a session locks to advance the sequences after a failover or a restore.';
insert into jobq.generation_turn default values;

-- timeline is the server's, from the name of its WAL file: pg_control_checkpoint says the one before, until the
-- checkpoint that follows a promotion. It is null where the server does not tell, such as services with a storage of
-- their own.
create function jobq.timeline() returns bigint
  language plpgsql
  as $$
begin
  return ('x' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))::bit(32)::bigint;
exception when others then
  return null;
end $$;

-- generation_check advances the ids of jobs and the numbers of leases by 2^30 if the server has another timeline, or
-- the tables another place, than when it looked last. It says whether it has advanced them. It runs with the first
-- claim after a promotion, and with each heartbeat of workers and janitors.
--
-- The lock keeps two sessions from advancing at once: the later one would take back what others have got in between.
-- The error lets go of it at once, and not at the end of the caller's transaction. What setval has done stays.
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
    advanced := line <> pg_sequence_last_value('jobq.timeline_seq')
        or system <> pg_sequence_last_value('jobq.system_seq');
    if advanced then
      last := coalesce(pg_sequence_last_value('jobq.job_id_seq'), 0);
      perform setval('jobq.job_id_seq', least(last, 9223372036854775807 - gap) + gap);
      last := coalesce(pg_sequence_last_value('jobq.lease_number_seq'), 0);
      perform setval('jobq.lease_number_seq', case when last + gap < 1::bigint << 40 then last + gap else gap end);
      raise log 'jobq: %', 'the server has a new timeline, or the tables were restored: '
        'ids of jobs and leases go on 2^30 further';
    end if;
    perform setval('jobq.timeline_seq', line), setval('jobq.system_seq', system);
    raise sqlstate 'JQ000';
  exception when sqlstate 'JQ000' then
  end;
  return coalesce(advanced, false); -- null: the migration has asked, and there was nothing before
end $$;
select jobq.generation_check();

-- Turns (turn_take): a session has one while it has locked the rows of its name. These are locks on rows of our own,
-- and not advisory locks, because any login may take an advisory lock. No role has rights in this table. A claim that
-- shares a queue's turn locks one of the other parts, which are numbered from 1. The table is unlogged: the locks end
-- with their sessions, a row that is missing is added, and a lock writes no WAL.
create unlogged table jobq.turn (
  name  text     not null,
  part  smallint not null,
  parts smallint not null default 0, -- how many others there are; only part 0 says so
  constraint turn_pkey primary key (name, part)
);
comment on table jobq.turn is 'Rows that sessions lock to take turns.';
comment on column jobq.turn.name is 'Whose turn: queue and its name, announce, or schedules.';
comment on column jobq.turn.part is '0, or the number of a part for a claim that shares the turn.';
comment on column jobq.turn.parts is 'How many parts there are beside part 0.';

-- turn_take takes a turn until the transaction ends, and says whether it was to be had. It waits for each of its rows
-- for wait_ms at most. Who waits first is first: other sessions cannot overtake.
create function jobq.turn_take(of_turn text, wait_ms integer) returns boolean
  language plpgsql security definer set search_path = pg_catalog, pg_temp
  as $$
declare
  others integer;
  got bigint;
begin
  select t.parts into others from jobq.turn t where t.name = of_turn and t.part = 0 for no key update skip locked;
  if not found and wait_ms = 0 and exists (select from jobq.turn t where t.name = of_turn and t.part = 0) then
    return false;
  elsif not found then
    return jobq.turn_wait(of_turn, 0, greatest(wait_ms, 1));
  elsif others > 0 then
    select count(*) into got
      from (select from jobq.turn t where t.name = of_turn and t.part > 0
          order by t.part for no key update skip locked) p;
    if got < others then
      return jobq.turn_wait(of_turn, 0, wait_ms);
    end if;
  end if;
  return true;
end $$;

-- turn_share takes a turn together with others that share it. Each of them locks a part of its own, and so has to wait
-- where all parts are locked. A turn that nobody has shared so far has no parts: it is taken alone once, to add them.
create function jobq.turn_share(of_turn text, wait_ms integer) returns boolean
  language plpgsql security definer set search_path = pg_catalog, pg_temp
  as $$
begin
  perform from jobq.turn t where t.name = of_turn and t.part > 0 limit 1 for no key update skip locked;
  if found then
    return true;
  elsif exists (select from jobq.turn t where t.name = of_turn and t.part > 0) then
    return jobq.turn_wait(of_turn, 1 + pg_backend_pid() % 8, wait_ms);
  elsif not jobq.turn_take(of_turn, wait_ms) then
    return false;
  end if;
  insert into jobq.turn (name, part) select of_turn, g from generate_series(1, 8) g on conflict do nothing;
  update jobq.turn t set parts = 8 where t.name = of_turn and t.part = 0;
  return true;
end $$;

-- turn_wait waits for one part of a turn, or with part 0 for all. It adds the row where there is none, or no more.
create function jobq.turn_wait(of_turn text, of_part integer, wait_ms integer) returns boolean
  language plpgsql security definer set search_path = pg_catalog, pg_temp set lock_timeout = '1s'
  as $$
declare
  began constant timestamptz := clock_timestamp();
begin
  perform set_config('lock_timeout', wait_ms || 'ms', true);
  loop
    perform from jobq.turn t where t.name = of_turn and t.part = of_part for no key update;
    exit when found;
    if of_part > 0 then
      return false; -- turn_forget was faster
    end if;
    insert into jobq.turn (name, part) values (of_turn, of_part) on conflict do nothing;
  end loop;
  if of_part = 0 then -- a statement of its own, which sees the parts that were added meanwhile
    perform from jobq.turn t where t.name = of_turn and t.part > 0 order by t.part for no key update;
  end if;
  return true;
exception
  when lock_not_available then
    return false;
  when query_canceled then
    -- A row that several wait for is locked in two steps. If the time is over between them, PostgreSQL says that
    -- somebody has cancelled the statement.
    if clock_timestamp() < began + wait_ms * interval '1 ms' then
      raise;
    end if;
    return false;
end $$;

-- turn_forget deletes the rows of a turn that is not needed any more.
create function jobq.turn_forget(of_turn text) returns void
  language sql security definer set search_path = pg_catalog, pg_temp set lock_timeout = '1s'
  as $$ delete from jobq.turn t where t.name = of_turn $$;

-- turn_holder is the session that has a turn, as why_session says; null if none has. An unlogged table cannot be read
-- on a standby.
create function jobq.turn_holder(of_turn text) returns jsonb
  language plpgsql stable security definer set search_path = pg_catalog, pg_temp
  as $$
declare
  locker xid;
  holder jsonb;
begin
  if pg_is_in_recovery() then
    return null;
  end if;
  for locker in select t.xmax from jobq.turn t where t.name = of_turn and t.xmax <> '0'::xid order by t.part loop
    holder := coalesce(holder, jobq.why_row_locked(locker, 'jobq.turn'::regclass));
  end loop;
  return holder;
end $$;

-- Settings of queues and kinds, and of the whole schema.

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
  -- How many runs of a job may be lost without using an attempt, unless the job has a max_lost of its own; null: each
  -- uses one.
  max_lost         integer,
  -- How many jobs of the queue may run at once, over all workers; null for no limit.
  max_running      integer,
  -- How many jobs of each partition key may run at once, over all workers; null for no limit.
  key_limit        integer,
  -- Whether the jobs of a key run in the order of their line, and what one does to the next that waits for its retry
  -- (hold, pass), or has failed (stop); null for no order. See lane_next.
  key_order        text,
  -- What ends the group of a key: acme/1 and acme/2 are of the group acme where it is '/'. Groups have equal shares of
  -- the queue, however many keys they have; null: each key is one. See key_group.
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
  constraint "heartbeat must be ticker, progress, both or off"
  check (heartbeat in ('ticker', 'progress', 'both', 'off')), constraint "stale_grace must be 0 to 30 days"
  check (stale_grace between interval '0' and interval '30 days'), constraint "redelivery must be head or tail"
  check (redelivery in ('head', 'tail')), constraint "redelivery_delay must be 0 to 30 days"
      check (redelivery_delay between interval '0' and interval '30 days'),
  -- A job that waits has no place at the head.
  constraint "redelivery_delay needs redelivery tail"
    check (redelivery = 'tail' or redelivery_delay = interval '0'),
  constraint "pause_reason must be at most 1024 characters" check (char_length(pause_reason) <= 1024),
  constraint "max_lost must be 1 to 32767" check (max_lost between 1 and 32767),
  constraint "max_running must be 1 to 1000000" check (max_running between 1 and 1000000),
  constraint "key_limit must be 1 to 10000" check (key_limit between 1 and 10000),
  constraint "key_order must be hold, pass or stop" check (key_order in ('hold', 'pass', 'stop')),
  constraint "key_order needs key_limit 1" check (key_order is null or key_limit is not distinct from 1),
  constraint "key_separator must be 1 to 8 characters" check (char_length(key_separator) between 1 and 8),
  constraint "rate_jobs must be 1 to 1000000" check (rate_jobs between 1 and 1000000),
  constraint "rate_period must be 1 second to 30 days"
  check (rate_period between interval '1 s' and interval '30 days'),
  constraint "rate_jobs and rate_period come together"
  check ((rate_jobs is null) = (rate_period is null)), constraint "rate_burst must be 1 to 1000000"
  check (rate_burst between 1 and 1000000), constraint "rate_burst needs rate_jobs"
  check (rate_burst is null or rate_jobs is not null), constraint "key_rate_jobs must be 1 to 1000000"
  check (key_rate_jobs between 1 and 1000000), constraint "key_rate_period must be 1 second to 30 days"
  check (key_rate_period between interval '1 s' and interval '30 days'),
      constraint "key_rate_jobs and key_rate_period come together"
  check ((key_rate_jobs is null) = (key_rate_period is null)), constraint "key_rate_burst must be 1 to 1000000"
  check (key_rate_burst between 1 and 1000000), constraint "key_rate_burst needs key_rate_jobs"
  check (key_rate_burst is null or key_rate_jobs is not null), constraint "age_after must be 0 to 30 days"
  check (age_after between interval '0' and interval '30 days'),
      constraint "lease, grace, delays and periods must be without months" check
    (not jobq.has_months(array[lease, extend_every, stale_grace, redelivery_delay, rate_period, key_rate_period,
        age_after])),
  constraint "retention must be 1 day to 10 years" check (retention between interval '1 day' and interval '10 years'),
  constraint "failed_retention must be 1 day to 10 years"
  check (failed_retention between interval '1 day' and interval '10 years')
);
comment on table jobq.queue is
  'Settings of queues. One without a row has the defaults. Change them with jobq.act_queue_set.';
comment on column jobq.queue.name is 'The queue.';
comment on column jobq.queue.lease is 'How long a claim lasts unless it is extended.';
comment on column jobq.queue.extend_every is 'How often workers extend it; null: each third of the lease.';
comment on column jobq.queue.heartbeat is 'What extends a lease: ticker, progress, both or off.';
comment on column jobq.queue.stale_grace is 'How long after its end a lease is left alone.';
comment on column jobq.queue.redelivery is 'Where a lost job goes: head or tail of the line.';
comment on column jobq.queue.redelivery_delay is 'And after which delay.';
comment on column jobq.queue.reset_on_reap is 'Whether a lost run''s checkpoint is dropped.';
comment on column jobq.queue.max_lost is
  'How many runs of a job may be lost without using an attempt, unless the job says it; null: each uses one.';
comment on column jobq.queue.max_running is 'How many jobs run at once, over all workers; null: no limit.';
comment on column jobq.queue.key_limit is 'How many of each partition key; null: no limit.';
comment on column jobq.queue.key_order is 'Strict order within a key: hold, pass or stop; null: none.';
comment on column jobq.queue.key_separator is
  'What ends the group of a partition key; groups have equal shares. Null: each key is a group.';
comment on column jobq.queue.rate_jobs is 'How many jobs may start in each rate_period; null: any number.';
comment on column jobq.queue.rate_period is 'See rate_jobs.';
comment on column jobq.queue.key_rate_jobs is
  'How many jobs of each partition key may start in each key_rate_period; null: any number.';
comment on column jobq.queue.key_rate_period is 'See key_rate_jobs.';
comment on column jobq.queue.key_rate_burst is
  'How many of these at once; null: a tenth of a second''s jobs, 1 at least.';
comment on column jobq.queue.rate_burst is 'How many of these at once; null: a tenth of a second''s jobs, 1 at least.';
comment on column jobq.queue.age_after is
  'How long the first job of a priority waits before it gets turns among more urgent ones; 0: for ever.';
comment on column jobq.queue.retention is
  'How long finished jobs of the queue are kept, at least; null: as finished_retention says.';
comment on column jobq.queue.failed_retention is
  'And those of them that failed or were cancelled; null: as retention says, or else failed_retention of all queues.';
comment on column jobq.queue.paused_at is 'Since when nothing is claimed; null: it is not paused.';
comment on column jobq.queue.paused_by is 'Who paused it.';
comment on column jobq.queue.pause_reason is 'And why.';
comment on column jobq.queue.created_at is 'When the row was made.';
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
  -- Hosts whose workers were lost with runs of it and that have not come back, and when each crash was found: see
  -- kinds_crashed.
  gone_hosts   text[]      not null default '{}',
  gone_at      timestamptz[] not null default '{}',
  constraint "kind must be 1 to 128 characters" check (char_length(name) between 1 and 128),
  constraint "pause_reason must be at most 1024 characters" check (char_length(pause_reason) <= 1024)
);
comment on table jobq.kind is
  'Kinds that are paused, or whose workers have crashed of late. Change them with jobq.act_kind.';
comment on column jobq.kind.name is 'The kind.';
comment on column jobq.kind.crashes is 'How many times in a row workers crashed that ran it.';
comment on column jobq.kind.crashed_at is 'When the last of these was found.';
comment on column jobq.kind.paused_at is 'Since when no job of it is claimed; null: it is not paused.';
comment on column jobq.kind.paused_by is 'Who paused it; jobq: a quarantine.';
comment on column jobq.kind.pause_reason is 'And why.';
comment on column jobq.kind.gone_hosts is
  'Hosts that were lost with runs of it and have not come back: their losses do not count as crashes of the kind.';
comment on column jobq.kind.gone_at is 'Beside each, when that was found.';
-- What every claim reads.
create index kind_paused_idx on jobq.kind (name) where paused_at is not null;

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
  constraint "exported_before must be in the years 2026 to 9999"
  check (exported_before between date '2026-01-01' and date '9999-12-31')
);
comment on table jobq.setting is 'Settings of the whole schema: one row. Change them with jobq.act_settings.';
comment on column jobq.setting.singleton is 'Always true.';
comment on column jobq.setting.finished_retention is 'How long finished jobs are kept, at least.';
comment on column jobq.setting.failed_retention is
  'And those that failed or were cancelled; null: as finished_retention.';
comment on column jobq.setting.quarantine_crashes is 'After how many crashes in a row a kind is paused; 0: never.';
comment on column jobq.setting.keep_until_exported is 'Whether days of the history stay until they were exported.';
comment on column jobq.setting.exported_before is 'All days before this one were.';
comment on column jobq.setting.export_day is 'The day of which an export has begun last.';
comment on column jobq.setting.export_began_at is 'When; null: not, or one of its jobs has come back since.';
insert into jobq.setting default values;

-- queue_known says whether a queue of that name is known: by settings, a waiting or running
-- job, a worker that serves it, or a job that ended within the
-- 30 days for which stat is kept. It looks first where it is quickest, and
-- stops at the first sign. Each look is a statement of its own, so
-- a locked table does not matter to a queue that was found before.
--
-- Where no index has the queue, it reads 10,000 rows at most: of the scheduled jobs those that are due next, of the
-- jobs that wait for others the oldest, and sums that are not rolled up yet. Of jobs that failed or were cancelled, it
-- reads the latest 1,000. The orders are for the planner. Without them it would read the whole table where it expects
-- to find the queue soon, and sort all settings where it expects few.
create function jobq.queue_known(queue text) returns boolean
  language plpgsql stable set enable_sort = off set enable_bitmapscan = off set jit = off
  as $$
begin
  if exists (select from jobq.queue q where q.name = queue_known.queue) then
    return true;
  end if;
  perform from jobq.pending p where p.queue = queue_known.queue and p.position is not null
    order by p.partition_key, p.priority, p.position limit 1;
  if found then
    return true;
  end if;
  if exists (select from jobq.lease l where l.queue = queue_known.queue)
      or exists (select from jobq.worker w where w.queues ? queue_known.queue) then
    return true;
  end if;
  if exists (
      select from (select p.queue from jobq.pending p where p.position is null and p.waits is null
          order by p.run_at limit 10000) due
        where due.queue = queue_known.queue)
      or exists (
        select from (select p.queue from jobq.pending p where p.waits order by p.id limit 10000) waits
          where waits.queue = queue_known.queue) then
    return true;
  end if;
  perform from jobq.stat s where s.queue = queue_known.queue order by s.minute desc limit 1;
  if found then
    return true;
  end if;
  return exists (select from (select d.queue from jobq.stat_delta d limit 10000) fresh
      where fresh.queue = queue_known.queue)
    or exists (
      select from (select r.queue from jobq.run r where r.state <> 'completed'
          order by r.finished_at desc limit 1000) ended
        where ended.queue = queue_known.queue);
end $$;

-- Settings of kinds: defaults of their jobs, and whom to ask about them.

-- What people have set for a kind. A kind without a row, and a column that is null, have the defaults of all kinds. It
-- is not a part of kind: every claim reads that table, and its rows come and go with crashes.
create table jobq.kind_setting (
  name         text     not null primary key,
  -- Of each new job of the kind, where its producer gives none.
  queue        jobq.job_queue,
  priority     smallint,
  max_attempts jobq.job_max_attempts,
  timeout      jobq.job_timeout,
  backoff_base jobq.job_backoff_base,
  backoff_max  jobq.job_backoff_max,
  -- For people.
  owner        text,
  runbook      text,
  constraint "kind must be 1 to 128 characters" check (char_length(name) between 1 and 128),
  constraint "owner must be 1 to 255 characters" check (char_length(owner) between 1 and 255),
  constraint "runbook must be 1 to 1024 characters" check (char_length(runbook) between 1 and 1024)
);
comment on table jobq.kind_setting is
  'Settings of kinds. One without a row has the defaults. Change them with jobq.act_kind_set.';
comment on column jobq.kind_setting.name is 'The kind.';
comment on column jobq.kind_setting.queue is 'Of jobs that are given none; null: default.';
comment on column jobq.kind_setting.priority is 'Of jobs that are given none; null: 0.';
comment on column jobq.kind_setting.max_attempts is 'Of jobs that are given none; null: max_attempts_default.';
comment on column jobq.kind_setting.timeout is 'Of jobs that are given none; null: none.';
comment on column jobq.kind_setting.backoff_base is 'Of jobs that are given none; null: 1 second.';
comment on column jobq.kind_setting.backoff_max is 'Of jobs that are given none; null: 1 day.';
comment on column jobq.kind_setting.owner is 'Who is responsible for the kind, such as a team.';
comment on column jobq.kind_setting.runbook is 'What to do when its jobs fail: an address for people.';

-- It has a value once a kind has had settings. Until then, an enqueue does not look for any: to ask the sequence costs
-- much less.
create sequence jobq.kind_setting_seq as bigint;

-- kind_defaults fills the gaps in columns of new jobs (enqueue_arrays) with the settings of their kinds: of two jobs of
-- the kind mail, max_attempts {null,5} becomes {3,5} where the kind has 3. Needs kind_setting_pkey.
create function jobq.kind_defaults(
  kinds text[], inout queues text[], inout priorities bigint[], inout max_attempts bigint[], inout timeouts interval[],
  inout backoff_bases interval[], inout backoff_maxes interval[]
)
  language sql stable
  as $$
    select array_agg(x.queue), array_agg(x.priority), array_agg(x.attempts), array_agg(x.timeout), array_agg(x.base),
        array_agg(x.max)
      from (
        select coalesce(j.queue, k.queue) as queue, coalesce(j.priority, k.priority) as priority,
            coalesce(j.attempts, k.max_attempts) as attempts, coalesce(j.timeout, k.timeout) as timeout,
            coalesce(j.base, k.backoff_base) as base, coalesce(j.max, k.backoff_max) as max
          from unnest(kinds, queues, priorities, max_attempts, timeouts, backoff_bases, backoff_maxes)
            with ordinality as j(kind, queue, priority, attempts, timeout, base, max, i)
          left join jobq.kind_setting k on k.name = j.kind
          order by j.i
      ) x
  $$;

-- kind_change_problem says what is wrong with new settings of a kind, given as for act_kind_set; null if nothing is.
create function jobq.kind_change_problem(change jsonb) returns text
  language plpgsql stable
  as $$
declare
  texts constant text[] := '{owner, runbook}';
  of_jobs constant text[] := '{queue, priority, max_attempts, timeout, backoff_base, backoff_max}';
  problem text;
begin
  if jsonb_typeof(change) is distinct from 'object' then
    return 'change must be a JSON object';
  end if;
  select case
      when c.key <> all (of_jobs || texts) then
        format('change: unknown member "%s"; there are %s', left(c.key, 100), array_to_string(of_jobs || texts, ', '))
      when c.key = any (texts) and jsonb_typeof(c.value) not in ('string', 'null') then
        format('%s must be text, not %s', c.key, jsonb_typeof(c.value)) end
    into problem
    from jsonb_each(change) c
    where c.key <> all (of_jobs || texts) or c.key = any (texts) and jsonb_typeof(c.value) not in ('string', 'null')
    order by c.key
    limit 1;
  return coalesce(problem,
    jobq.length_problem('owner', coalesce(change ->> 'owner', '-'), 255),
    jobq.length_problem('runbook', coalesce(change ->> 'runbook', '-'), 1024),
    jobq.object_problem(change - texts, of_jobs, true));
end $$;

-- act_kind_set changes settings of a kind: the members of change, which have the names of columns of jobq.kind_setting;
-- null takes one away. Jobs that are there stay as they are. It returns the id of the audit row, or null if nothing
-- changes. The kind need not be known. The lock on its row is what undo_whole takes first, too.
create function jobq.act_kind_set(actor text, kind text, change jsonb, note text default null) returns bigint
  language plpgsql
  as $$
declare
  problem text := coalesce(jobq.length_problem('actor', jobq.actor_of(actor), 255),
    jobq.length_problem('kind', kind, 128), jobq.note_problem(note), jobq.kind_change_problem(change));
  was jobq.kind_setting;
  wanted jobq.kind_setting;
  added boolean; -- the kind had no row
  old jsonb; -- what differs, before
  new jsonb; -- and after
begin
  if problem is not null then
    raise sqlstate 'JQ001' using message = problem;
  end if;
  insert into jobq.kind_setting (name) values (act_kind_set.kind) on conflict (name) do nothing;
  added := found;
  select k.* into strict was from jobq.kind_setting k where k.name = act_kind_set.kind for update;
  wanted := jsonb_populate_record(was, change);
  -- As text they would differ: 1 hour and 60 minutes.
  if wanted is not distinct from was then
    delete from jobq.kind_setting k where k.name = act_kind_set.kind and added;
    return null;
  end if;
  update jobq.kind_setting k
    set queue = wanted.queue, priority = wanted.priority, max_attempts = wanted.max_attempts, timeout = wanted.timeout,
      backoff_base = wanted.backoff_base, backoff_max = wanted.backoff_max, owner = wanted.owner,
      runbook = wanted.runbook
    where k.name = act_kind_set.kind;
  perform nextval('jobq.kind_setting_seq');
  select jsonb_object_agg(b.key, b.value), jsonb_object_agg(a.key, a.value) into old, new
    from jsonb_each(to_jsonb(was)) b
    join jsonb_each(to_jsonb(wanted)) a on a.key = b.key
    where a.value <> b.value;
  return jobq.audit_begin(act_kind_set.actor, 'kind_settings', act_kind_set.kind, act_kind_set.note, new, old);
end $$;
comment on function jobq.act_kind_set is
  'Changes settings of a kind; returns the number of the action, or null if nothing changed.';

-- Leases: what is held now, by whom, and until when; and those of the past.

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

-- lease_id_next is the id of a new lease. Its day is the clock's. If the clock went back by at most two days, it stays
-- the day of the latest lease: the janitor makes days three days ahead. A clock before 2026 is wrong, and the latest
-- day is used however far ahead it is. If the clock went back further, it was wrong before, and the ids follow it: they
-- go down once, but the number in them does not repeat.
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
  -- not null: taken away from its owner, whose writes are refused; when a reaper looked at it last
  lost_at     timestamptz,
  begun       smallint    not null default 32767, -- the jobs of slots 1 to begun may have begun
  owner       text        not null,
  queue       text        not null,
  ended_slots smallint[]  not null default '{}', -- of jobs that have ended, in the order in which they did
  -- beside each, how long after claimed_at it succeeded; -1: its row of run says how it ended
  ended_ms    smallint[]  not null default '{}',
  job_ids     bigint[]    not null, -- by slot
  lost_reason text, -- not null: an operator says that the worker is lost (act_lost): its jobs use no attempt
  constraint lease_pkey primary key (id)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);
comment on table jobq.lease is 'What is claimed now: a row for each claim, with all its jobs. Only jobq writes it.';
comment on column jobq.lease.id is 'The token of the jobs'' runs. Grows with each claim.';
comment on column jobq.lease.claimed_at is 'By the clock of the database.';
comment on column jobq.lease.expires_at is
  'After this a janitor takes the jobs away, unless the worker has extended it.';
comment on column jobq.lease.lost_at is
  'Not null: a janitor took it from its owner, whose writes are refused since; when one looked at it last.';
comment on column jobq.lease.begun is 'Jobs of the slots 1 to begun may have begun. Those beyond it have not.';
comment on column jobq.lease.owner is 'The worker.';
comment on column jobq.lease.queue is 'Of the jobs.';
comment on column jobq.lease.ended_slots is 'Places in job_ids of jobs that have ended.';
comment on column jobq.lease.ended_ms is
  'Beside each, the milliseconds after claimed_at at which it succeeded; -1: see its row of jobq.run.';
comment on column jobq.lease.job_ids is 'The jobs, by slot.';
comment on column jobq.lease.lost_reason is
  'Not null: an operator has said that the worker is lost, and why. The jobs go back without an attempt.';
-- The ids are never written again when apart; the ends are small enough to stay.
alter table jobq.lease alter job_ids set storage external, alter ended_slots set storage main, alter ended_ms
    set storage main;
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
comment on table jobq.past_lease is
  'Claims of which no job runs any more: who ran them, and when they succeeded. Only jobq writes it.';
comment on column jobq.past_lease.id is 'The token of the jobs'' runs.';
comment on column jobq.past_lease.claimed_at is 'By the clock of the database.';
comment on column jobq.past_lease.owner is 'The worker.';
comment on column jobq.past_lease.ended is
  'By slot, the milliseconds after claimed_at at which the job succeeded; -1: see its row of jobq.run.';
alter table jobq.past_lease alter ended set storage main;
create table jobq.past_lease_default partition of jobq.past_lease default;

-- runs_over takes runs, each with its lease, slot and job, and returns by lease the slots of those that have ended on
-- their own row of run, or have left the table. LeaseEnd calls it, with its own snapshot. It is in plpgsql so that its
-- query, which locks every day of the history, is no part of that statement.
create function jobq.runs_over(leases bigint[], slots smallint[], jobs bigint[])
    returns table (lease_id bigint, over smallint[])
  language plpgsql stable
  as $$
begin
  -- The look is a scalar subquery, which never becomes a join. Needs run_id_idx only.
  return query
    select x.lease_id, array_agg(distinct x.slot)
      from unnest(leases, slots, jobs) as x(lease_id, slot, job_id)
      where (select r.state is null from jobq.run r where r.id = x.job_id and r.lease_id = x.lease_id
          limit 1) is not true
      group by x.lease_id;
end $$;

-- What a run says of itself while it goes on.

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
comment on table jobq.progress is 'What runs say of themselves while they run.';
comment on column jobq.progress.job_id is 'The job.';
comment on column jobq.progress.lease_id is 'Its run. Of an earlier one, it does not count.';
comment on column jobq.progress.progressed_at is 'When it last said how far it is.';
comment on column jobq.progress.percent is '0 to 100.';
comment on column jobq.progress.stage is 'As the run says.';
comment on column jobq.progress.message is 'As the run says.';
comment on column jobq.progress.checkpoint is 'What the run has saved; null: see jobq.run.';

-- progress reports how far a run is; null keeps what was reported before. It does not extend the lease: only the worker
-- does.
create function jobq.progress(job_id bigint, token text, percent double precision default null, stage text default null,
    message text default null)
  returns void
  language plpgsql security definer set search_path = pg_catalog, pg_temp
  as $$
#variable_conflict use_column
declare
  held record;
begin
  select * into held from jobq.run_held(progress.job_id, progress.token);
  insert into jobq.progress as p (job_id, lease_id, progressed_at, percent, stage, message)
    values (progress.job_id, held.lease_id, clock_timestamp(), case
        when progress.percent <> 'NaN' then least(greatest(progress.percent, 0), 100)::real end,
      left(nullif(progress.stage, ''), 128), left(nullif(progress.message, ''), 1024))
    on conflict (job_id) do update
      set lease_id = excluded.lease_id, progressed_at = excluded.progressed_at,
        percent = coalesce(excluded.percent, case when p.lease_id = excluded.lease_id then p.percent end),
        stage = coalesce(excluded.stage, case when p.lease_id = excluded.lease_id then p.stage end),
        message = coalesce(excluded.message, case when p.lease_id = excluded.lease_id then p.message end),
        checkpoint = case when p.lease_id = excluded.lease_id then p.checkpoint end;
end $$;
comment on function jobq.progress is 'Says how far a run is.';

-- checkpoint stores what the next run of the job begins with. It writes the row of
-- run, and a reaper that looked before then does not take that run. RunCheckpoint writes
-- the lease instead, which would keep it from being extended until the transaction ends.
create function jobq.checkpoint(job_id bigint, token text, content jsonb) returns void
  language plpgsql security definer set search_path = pg_catalog, pg_temp
  as $$
#variable_conflict use_column
declare
  held record;
begin
  perform jobq.json_require('checkpoint', content, 98304);
  select * into held from jobq.run_held(checkpoint.job_id, checkpoint.token);
  update jobq.run r set checkpoint = content where r.id = checkpoint.job_id and r.lease_id = held.lease_id;
  update jobq.progress p set checkpoint = null where p.job_id = checkpoint.job_id and p.checkpoint is not null;
end $$;
comment on function jobq.checkpoint is 'Saves what the next run is to go on with.';

-- Jobs. A job waits in pending. A claim moves it to run, where it stays for the history, and writes one lease for all
-- jobs that it takes. What comes back moves from run to pending. Every transition is one statement. docs/decisions/0013
-- has the reasons and the figures.

-- Ids of jobs, and places in the line of the available ones. A job that
-- becomes available again takes a new position at the tail, so that a claim
-- may start where the last one ended; a fresh job has one from the start.
create sequence jobq.job_id_seq as bigint;
create sequence jobq.position_seq as bigint;

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
  lost          smallint, -- null for none, for the same reason
  max_lost      jobq.job_max_lost,
  constraint pending_pkey primary key (id),
  constraint "a job that waits has no position" check (waits is null or waits and position is null),
  constraint "args must not be null" check (args is not null or args_apart),
  -- The triggers pending_before_insert and pending_before_update refuse args, metadata and checkpoints.
  constraint "tags must be at most 32, without nulls, 8 KiB in all" check
    (tags is null or (cardinality(tags) <= 32 and coalesce(array_ndims(tags), 1) = 1
        and array_position(tags, null) is null and octet_length(array_to_string(tags, '')) <= 8192)),
  constraint "lost must be at least 1" check (lost >= 1),
  constraint "attempts must be 0 to max_attempts - 1" check (attempts >= 0 and attempts < greatest(max_attempts, 1))
);
comment on table jobq.pending is
  'Jobs that wait: for a worker, for their time, or for other jobs. Producers may insert here.';
comment on column jobq.pending.id is 'Draws its value itself, and never comes twice.';
comment on column jobq.pending.position is 'Place in the line of those that may run now; null: scheduled, or waits.';
comment on column jobq.pending.lease_token is 'Token of the last run; 0: it has not run.';
comment on column jobq.pending.run_at is 'Before this time the job does not run.';
comment on column jobq.pending.created_at is 'When the transaction began that added the job.';
comment on column jobq.pending.timeout is 'How long a run may take; null: as long as it likes.';
comment on column jobq.pending.backoff_base is
  'How long the job waits after its first failure, doubled with each further one; null: 1 second.';
comment on column jobq.pending.backoff_max is 'The longest such wait; null: 1 day.';
comment on column jobq.pending.priority is 'Lower runs first, within a queue and a partition key.';
comment on column jobq.pending.attempts is
  'How many runs have failed or were lost. A requeue keeps it, and allows one more where none is left.';
comment on column jobq.pending.max_attempts is
  'A run that fails when attempts has come this far fails the job for good.';
comment on column jobq.pending.crashes is
  'How many of the last runs, one after the other, were lost with their worker.';
comment on column jobq.pending.args_apart is 'Whether the args are in jobq.payload.';
comment on column jobq.pending.queue is 'Where the job waits. Settings and pauses of a queue: jobq.queue.';
comment on column jobq.pending.kind is 'What is to be done: the name of a handler.';
comment on column jobq.pending.partition_key is
  'What the job belongs to, such as a customer: keys take turns. Empty: nothing.';
comment on column jobq.pending.args is 'What the handler gets; null: they are in jobq.payload.';
comment on column jobq.pending.unique_key is 'At most one unfinished job of the kind has this key; null: none.';
comment on column jobq.pending.last_error is 'Why the last run failed, or the job was cancelled; null: neither.';
comment on column jobq.pending.clear_reason is 'Why the last run was taken from its worker; null: it was not.';
comment on column jobq.pending.checkpoint is 'What a run has saved for the next one to go on with; null: nothing.';
comment on column jobq.pending.metadata is 'What the producer noted beside the args, such as a trace; null: nothing.';
comment on column jobq.pending.tags is 'For filters of people; null: none.';
comment on column jobq.pending.waits is 'True: it waits for other jobs (jobq.dependency); null: it does not.';
comment on column jobq.pending.lost is
  'How many runs were lost without using an attempt, since max_lost was set; null: none. A requeue forgets them.';
comment on column jobq.pending.max_lost is
  'How many runs may be lost without using an attempt; null: as its queue has it, or else a lost run uses an attempt.';
-- The claim walks this one and nothing else. The jobs of a key have a line of their
-- own, which a claim of jobs without one (partition_key '') never meets.
create index pending_claim_idx on jobq.pending (queue, partition_key, priority, position) where position is not null;
-- The janitor promotes from this one, and reads it to know how long to sleep.
-- With the id, so that it can go on where it stopped among jobs that are due at once.
create index pending_due_idx on jobq.pending (run_at, id) where position is null and waits is null;
-- For lists of the jobs that wait for others (waits), and of those that have failed before
-- (waits is null). It is one index for both, since every insert opens each index.
create index pending_held_idx on jobq.pending (waits, id) where waits or attempts > 0 and last_error is not null;
-- The suspects: jobs that were lost with their workers twice in a row, or once if only their last attempt is left. A
-- loss that used no attempt (lost) brings no job nearer to its last one. They have no position, and are claimed by
-- claim_alone. The condition stands in each statement that is about suspects; the first part of it costs other jobs
-- less. Statements about jobs that are due leave suspects out with greatest(least(2, coalesce(lost + 1, max_attempts
-- - attempts::integer)) - crashes, 0) <> 0: JobPromote says why it is written so.
create index pending_suspect_idx on jobq.pending (queue, run_at, id)
    where crashes > 0 and crashes >= least(2, coalesce(lost + 1, max_attempts - attempts));
alter table jobq.pending set (autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.02);

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
  lost                smallint, -- null for none
  max_lost            smallint,
  constraint "state must be terminal" check (state in ('completed', 'failed', 'cancelled')),
  constraint "state and finished_at come together" check ((state is null) = (finished_at is null)),
  -- A checkpoint comes from pending or progress, which have accepted it.
  constraint "result must be at most 1 MiB" check (jobq.json_require('result', result, 1048576))
) partition by range (lease_id);
comment on table jobq.run is
  'Jobs that a worker has claimed, with their last run, and those that are over. One partition for each day of '
  'claims. Only jobq writes it; read jobq.job.';
comment on column jobq.run.id is 'The job.';
comment on column jobq.run.lease_id is 'The lease of the run, which is its token.';
comment on column jobq.run.position is 'Place in the line that it had.';
comment on column jobq.run.run_at is 'As in jobq.pending; null: as created_at.';
comment on column jobq.run.created_at is 'When the transaction began that added the job.';
comment on column jobq.run.began_at is
  'When the handler began, where that is known and the run is over; else the claim.';
comment on column jobq.run.finished_at is
  'When it was over; null: it runs, or it plainly succeeded and its lease says when.';
comment on column jobq.run.cancel_requested_at is 'When somebody asked the worker to stop it; null: nobody did.';
comment on column jobq.run.timeout is 'How long a run may take; null: as long as it likes.';
comment on column jobq.run.backoff_base is
  'How long the job waits after its first failure, doubled with each further one; null: 1 second.';
comment on column jobq.run.backoff_max is 'The longest such wait; null: 1 day.';
comment on column jobq.run.state is 'How it ended; null: it runs, or plainly succeeded.';
comment on column jobq.run.slot is 'Its place in the lease, from 1; 0: cancelled before it ran.';
comment on column jobq.run.priority is 'Lower runs first, within a queue and a partition key.';
comment on column jobq.run.attempts is
  'How many runs have failed or were lost. A requeue keeps it, and allows one more where none is left.';
comment on column jobq.run.max_attempts is 'A run that fails when attempts has come this far fails the job for good.';
comment on column jobq.run.crashes is 'How many of the last runs, one after the other, were lost with their worker.';
comment on column jobq.run.args_apart is 'Whether the args are in jobq.payload.';
comment on column jobq.run.queue is 'Where the job waits. Settings and pauses of a queue: jobq.queue.';
comment on column jobq.run.kind is 'What is to be done: the name of a handler.';
comment on column jobq.run.partition_key is 'What the job belongs to; null: nothing.';
comment on column jobq.run.args is
  'What the handler gets; null: they are in jobq.payload, or retention has deleted them.';
comment on column jobq.run.unique_key is 'At most one unfinished job of the kind has this key; null: none.';
comment on column jobq.run.last_error is 'Why the last run failed, or the job was cancelled; null: neither.';
comment on column jobq.run.clear_reason is 'Why the last run was taken from its worker; null: it was not.';
comment on column jobq.run.checkpoint is 'What a run has saved for the next one to go on with; null: nothing.';
comment on column jobq.run.metadata is 'What the producer noted beside the args, such as a trace; null: nothing.';
comment on column jobq.run.tags is 'For filters of people; null: none.';
comment on column jobq.run.result is 'What the handler of a completed job gave; null: nothing.';
comment on column jobq.run.lost is
  'How many runs were lost without using an attempt, since max_lost was set; null: none. A requeue forgets them.';
comment on column jobq.run.max_lost is
  'How many runs may be lost without using an attempt; null: as its queue has it, or else a lost run uses an attempt.';
-- A publication for all tables refuses each update and delete of a table that has no replica identity. A table
-- without a key has the whole row as its identity, which costs nothing unless wal_level is logical. Partitions do
-- not inherit it: see partition_add.
alter table jobq.run replica identity full;
-- Looking a job up by its id.
create index run_id_idx on jobq.run (id);
-- What did not succeed, newest first, and to be counted by queue without looking
-- at the rows. The many that plainly succeed cost it, and the others below, nothing.
create index run_unsuccessful_idx on jobq.run (finished_at, id) include (queue, state) where state <> 'completed';
-- What succeeded, but not plainly: retention asks when the last of a day ended.
create index run_completed_idx on jobq.run (finished_at, id) where state = 'completed';
-- What is to be cancelled: each extension of a lease asks.
create index run_cancel_idx on jobq.run (lease_id) where cancel_requested_at is not null and state is null;
create table jobq.run_default partition of jobq.run default;
alter table jobq.run_default replica identity full;

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
  usage       jsonb, -- of programs: {"exit_code": 3, "signal": "SIGKILL", "cpu_seconds": 0.5, "max_rss_bytes": 1000000}
  constraint "error must be at most 64 KiB" check (octet_length(error) <= 65536),
  constraint "output must be at most 64 KiB" check (octet_length(output) <= 65536)
) partition by range (finished_at);
comment on table jobq.attempt is 'Runs that did not simply succeed, runs of programs, and runs with output.';
comment on column jobq.attempt.job_id is 'Of the run.';
comment on column jobq.attempt.finished_at is 'When it ended.';
comment on column jobq.attempt.started_at is 'When it began.';
comment on column jobq.attempt.lease_token is 'Of the run.';
comment on column jobq.attempt.outcome is 'How it ended. Only lost is written by a janitor.';
comment on column jobq.attempt.number is 'Which attempt of the job it was, from 1.';
comment on column jobq.attempt.worker_id is 'The worker.';
comment on column jobq.attempt.error is 'Why it failed; null: it did not.';
comment on column jobq.attempt.output is 'The end of what the program wrote; null: nothing was kept.';
comment on column jobq.attempt.usage is 'What the program used: CPU time, memory; null: not known.';
alter table jobq.attempt replica identity full; -- as run
create index attempt_job_id_idx on jobq.attempt (job_id, lease_token);
create table jobq.attempt_default partition of jobq.attempt default;
alter table jobq.attempt_default replica identity full;
create index attempt_default_finished_at_idx on jobq.attempt_default (finished_at); -- as those of other defaults

-- Args too large to be copied at each move: written once, read by the claim.
create table jobq.payload (
  job_id bigint not null primary key,
  args   jsonb  not null,
  constraint "args must be at most args_bytes_max() bytes, 1 MiB by default"
  check (jobq.json_require('args', args, jobq.args_bytes_max()))
);
comment on table jobq.payload is 'Args over 1000 bytes. Retention deletes them with their jobs.';
comment on column jobq.payload.job_id is 'The job.';
comment on column jobq.payload.args is 'What its handler gets.';

-- The job as people see it, whatever stage it is in.
create view jobq.job as
  select p.id, case when p.waits then 'waiting' when p.position is null then 'scheduled'
      else 'available' end::jobq.job_state as state,
      p.queue, p.kind, p.priority, p.attempts, p.max_attempts, p.crashes, p.lease_token, p.run_at, p.created_at,
      null::timestamptz as started_at, null::timestamptz as finished_at, null::text as lease_owner,
      null::timestamptz as lease_expires_at, null::timestamptz as cancel_requested_at,
      null::timestamptz as progressed_at, null::real as progress_percent, null::text as progress_stage,
      null::text as progress_message, p.timeout, p.backoff_base, p.backoff_max, p.unique_key, p.last_error,
      p.clear_reason, p.tags, p.metadata, coalesce(p.args, (select a.args from jobq.payload a
          where a.job_id = p.id)) as args,
      p.checkpoint, null::jsonb as result, nullif(p.partition_key, '') as partition_key,
      coalesce(p.lost, 0)::smallint as lost, coalesce(p.max_lost, case when p.lost > 0 then
          (select q.max_lost from jobq.queue q where q.name = p.queue) end)::smallint as max_lost
    from jobq.pending p
  union all
  select r.id, coalesce(r.state, case when e.ended_ms >= 0 then 'completed' else 'running' end::jobq.job_state),
      r.queue, r.kind, r.priority, r.attempts, r.max_attempts, r.crashes, r.lease_id, coalesce(r.run_at, r.created_at),
      r.created_at, coalesce(r.began_at, case when e.runs and r.slot > l.begun then null
          else l.claimed_at end), coalesce(r.finished_at, l.claimed_at + e.ended_ms * interval '1 ms'), l.owner,
      case when e.runs then l.expires_at end, case when e.runs then r.cancel_requested_at end,
      p.progressed_at, p.percent, p.stage,
      p.message, r.timeout, r.backoff_base, r.backoff_max, r.unique_key, r.last_error, case
      when e.runs then r.clear_reason end, r.tags,
      r.metadata, coalesce(r.args, (select a.args from jobq.payload a where a.job_id = r.id)),
      coalesce(p.checkpoint, r.checkpoint), r.result, r.partition_key, coalesce(r.lost, 0)::smallint,
      coalesce(r.max_lost, case when r.lost > 0 then
          (select q.max_lost from jobq.queue q where q.name = r.queue) end)::smallint
    from jobq.run r
    -- The limit keeps the planner from hashing all leases for one job; neighbours
    -- mostly have the same lease, which it remembers.
    left join lateral (
      select x.claimed_at, x.owner, x.expires_at, x.begun, null::smallint[] as ended, x.ended_slots, x.ended_ms
        from jobq.lease x where x.id = r.lease_id
      union all
      select x.claimed_at, x.owner, null, null, x.ended, null, null
        from jobq.past_lease x where x.id = r.lease_id
      limit 1
    ) l on true
    cross join lateral (
      select o.ended_ms, r.state is null and o.ended_ms is null as runs
        from (select coalesce(l.ended[r.slot], l.ended_ms[array_position(l.ended_slots, r.slot)]) as ended_ms) o
    ) e
    left join lateral (
      select x.progressed_at, x.percent, x.stage, x.message, x.checkpoint
        from jobq.progress x where x.job_id = r.id and x.lease_id = r.lease_id and e.runs limit 1
    ) p on true;
comment on view jobq.job is
  'Every job, whatever its stage. Look jobs up by id; for charts, read jobq.stats and never count jobs.';
comment on column jobq.job.id is 'The job.';
comment on column jobq.job.state is
  'waiting (for other jobs), scheduled, available, running, completed, failed or cancelled.';
comment on column jobq.job.queue is 'Where the job waits. Settings and pauses of a queue: jobq.queue.';
comment on column jobq.job.kind is 'What is to be done: the name of a handler.';
comment on column jobq.job.priority is 'Lower runs first, within a queue and a partition key.';
comment on column jobq.job.attempts is
  'How many runs have failed or were lost. A requeue keeps it, and allows one more where none is left.';
comment on column jobq.job.max_attempts is 'A run that fails when attempts has come this far fails the job for good.';
comment on column jobq.job.crashes is 'How many of the last runs, one after the other, were lost with their worker.';
comment on column jobq.job.lease_token is 'Token of the current or last run; 0: it has not run.';
comment on column jobq.job.run_at is 'Before this time the job does not run.';
comment on column jobq.job.created_at is 'When the transaction began that added the job.';
comment on column jobq.job.started_at is
  'When the current or last run began; null while it waits. Of one that plainly succeeded, when its batch was '
  'claimed: finished_at - started_at is the most that it can have taken.';
comment on column jobq.job.finished_at is 'When the job was over; null: it is not.';
comment on column jobq.job.lease_owner is 'The worker that runs it, or ran it last; null while it waits.';
comment on column jobq.job.lease_expires_at is
  'Until when its worker has it, unless it extends the lease; null: it does not run.';
comment on column jobq.job.cancel_requested_at is
  'When somebody asked its worker to stop it; null: nobody did, or it does not run.';
comment on column jobq.job.progressed_at is 'When the run last said how far it is.';
comment on column jobq.job.progress_percent is '0 to 100, as the run says.';
comment on column jobq.job.progress_stage is 'As the run says.';
comment on column jobq.job.progress_message is 'As the run says.';
comment on column jobq.job.timeout is 'How long a run may take; null: as long as it likes.';
comment on column jobq.job.backoff_base is
  'How long the job waits after its first failure, doubled with each further one; null: 1 second.';
comment on column jobq.job.backoff_max is 'The longest such wait; null: 1 day.';
comment on column jobq.job.unique_key is 'At most one unfinished job of the kind has this key; null: none.';
comment on column jobq.job.last_error is 'Why the last run failed, or the job was cancelled; null: neither.';
comment on column jobq.job.clear_reason is 'Why the last run was taken from its worker; null: it was not.';
comment on column jobq.job.tags is 'For filters of people; null: none.';
comment on column jobq.job.metadata is 'What the producer noted beside the args, such as a trace; null: nothing.';
comment on column jobq.job.args is 'What the handler gets; null: retention has deleted them.';
comment on column jobq.job.checkpoint is 'What a run has saved for the next one to go on with; null: nothing.';
comment on column jobq.job.result is 'What the handler of a completed job gave; null: nothing.';
comment on column jobq.job.partition_key is 'What the job belongs to, such as a customer; null: nothing.';
comment on column jobq.job.lost is
  'How many runs were lost without using an attempt, since max_lost was set. A requeue forgets them.';
comment on column jobq.job.max_lost is
  'How many may be; null: a lost run uses an attempt, unless its queue has a max_lost, which is shown after a loss.';

-- run_end is what is known about the end of a row of run: since when the job was held and by whom, and when it ended
-- (null while it runs). It takes the row's lease_id, slot and finished_at, and always returns one row. An end is never
-- taken back, so callers need no lock. The planner inlines the function, and finds the lease by its key.
create function jobq.run_end(lease_id bigint, slot smallint, finished_at timestamptz)
  returns table (claimed_at timestamptz, owner text, ended_at timestamptz)
  language sql stable parallel safe rows 1
  begin atomic
    select l.claimed_at, l.owner, coalesce(run_end.finished_at, l.claimed_at + nullif(l.ended_ms, -1) * interval '1 ms')
      from (select) run
      left join lateral (
        select x.claimed_at, x.owner, x.ended_ms[array_position(x.ended_slots, run_end.slot)] as ended_ms
          from jobq.lease x where x.id = run_end.lease_id
        union all
        select x.claimed_at, x.owner, x.ended[run_end.slot] from jobq.past_lease x where x.id = run_end.lease_id
        limit 1
      ) l on true;
  end;

-- job_exists says whether a job exists, in whatever table. It looks in all of them with one statement: with several, a
-- job that moves fast between pending and run could be missed by each.
create function jobq.job_exists(job_id bigint) returns boolean
  language sql stable
  return exists (select from jobq.pending p where p.id = job_id) or exists (select from jobq.run r where r.id = job_id);

-- moving_refuse raises an error for a job that has moved to another table each time that it was looked for. Clients try
-- again after this error.
create function jobq.moving_refuse(job_id bigint) returns void
  language plpgsql
  as $$
begin
  raise serialization_failure using message = format('job %s moves too fast: try again', job_id);
end $$;

-- running_refuse raises an error if a job runs, for actions that are not possible on a running job.
create function jobq.running_refuse(job_id bigint) returns void
  language plpgsql
  as $$
begin
  if exists (
    select from jobq.run r
      cross join lateral jobq.run_end(r.lease_id, r.slot, r.finished_at) e
      where r.id = running_refuse.job_id and e.ended_at is null
  ) then
    raise sqlstate 'JQ003' using
      message = format('job %s is running', running_refuse.job_id),
      hint = 'Cancel it first, or let it end.';
  end if;
end $$;

-- How a job changes its table, and how an end is decided. Each is said once, here, for all statements.
--
-- run_of and pending_of alone name all columns of a job. So a column that is added to pending and run is added here,
-- and where it is used. They are SQL functions of one row, in FROM: the planner puts their columns into the statement,
-- and no row is made for the call (docs/decisions/0050). It can do so only if no argument is volatile or has a
-- subquery. So statements for many jobs take such values from a subquery beside the call. A row of a CTE is passed as
-- row(t.*)::jobq.pending. The queries write returning (p).* for p.*, of which sqlc would make a list: then an older
-- worker would not carry a column that a later migration adds.

-- run_of is the row of run of a job that was in pending. It ends at once if state is given: then with finished_at, and
-- with the reason as its last error, if there is one.
create function jobq.run_of(job jobq.pending, lease_id bigint, slot smallint, state jobq.job_state default null,
    finished_at timestamptz default null, reason text default null) returns setof jobq.run
  language sql stable parallel safe rows 1
  begin atomic
    select job.id, lease_id, job.position, nullif(job.run_at, job.created_at), job.created_at,
      null::timestamptz, -- began_at
      finished_at,
      null::timestamptz, -- cancel_requested_at
      job.timeout, job.backoff_base, job.backoff_max, state, slot, job.priority, job.attempts, job.max_attempts,
      job.crashes, job.args_apart, job.queue, job.kind, nullif(job.partition_key, ''), job.args, job.unique_key,
      coalesce(reason, job.last_error), job.clear_reason, job.checkpoint, job.metadata, job.tags,
      null::jsonb, -- result
      job.lost, job.max_lost::smallint;
  end;

-- pending_of is the row of pending of a job that was in run, and that waits again. What a run may change is given; all
-- else stays.
create function jobq.pending_of(run jobq.run, "position" bigint, run_at timestamptz, attempts integer,
    crashes integer, last_error text, clear_reason text, checkpoint jsonb, waits boolean default null,
    lost integer default null) -- null: as it was
    returns setof jobq.pending
  language sql stable parallel safe rows 1
  begin atomic
    select run.id, "position", run.lease_id, run_at, run.created_at, run.timeout, run.backoff_base, run.backoff_max,
      run.priority, attempts::smallint, run.max_attempts, crashes::smallint, run.args_apart, run.queue, run.kind,
      coalesce(run.partition_key, ''), run.args, run.unique_key, last_error, clear_reason, checkpoint, run.metadata,
      run.tags, waits, coalesce(lost::smallint, run.lost), run.max_lost;
  end;

-- next_state says what becomes of a job whose run has ended, or was lost:
--
--   outcome                         state
--   completed, cancelled            the same
--   failed, timed_out, lost         failed, if it was the last attempt, or is final
--   what is left                    cancelled, if somebody has asked for that; waiting, if it waits for other jobs;
--                                   available, if it was released or the delay is over; else scheduled
--
-- A lost run that somebody has asked to cancel is cancelled even if it was the last: nobody saw it fail. attempts is
-- their number before the run. A null delay is a backoff. It is inlined, as the two above.
create function jobq.next_state(outcome text, attempts integer, max_attempts integer, final boolean,
    cancel_asked boolean, delay interval, waits boolean default null) returns jobq.job_state
  language sql stable parallel safe
  return case
    when outcome in ('completed', 'cancelled') then outcome::jobq.job_state
    when outcome = 'lost' and cancel_asked then 'cancelled'::jobq.job_state
    when outcome in ('failed', 'timed_out', 'lost') and (final or attempts + 1 >= max_attempts)
      then 'failed'::jobq.job_state
    when cancel_asked then 'cancelled'::jobq.job_state
    when waits then 'waiting'::jobq.job_state
    when outcome = 'released' or delay <= interval '0' then 'available'::jobq.job_state
    else 'scheduled'::jobq.job_state
  end;

-- error_kept is what a job keeps of the error of a run: of a long one the beginning, whose first line is its summary,
-- and the end, where stack traces have the cause.
create function jobq.error_kept(error text) returns text
  language sql stable parallel safe -- as format
  return case
    when char_length(error) <= 1000 then error
    else left(error, 480) || format(E'\n… %s characters cut …\n', char_length(error) - 960) || right(error, 480)
  end;

-- backoff_delay is how long a job waits after so many failures: exponential with full jitter (M. Brooker,
-- "Exponential Backoff And Jitter", AWS Architecture Blog, 2015). The default base is 1 second. It is doubled
-- with each further failure, 20 times at most; the default cap is a day. The function must not fail for any
-- row, since the statement that ends many jobs would fail with it. An interval of years would overflow when
-- doubled, so it counts in seconds. An interval that passes the CHECK can have another length here: 100
-- months less 2,999 days is one day for the CHECK, which takes a month for 30 days, and 43 days here.
create function jobq.backoff_delay(failures integer, base interval, cap interval) returns interval
  language sql volatile parallel safe
  return random() * greatest(least(
    extract(epoch from coalesce(cap, interval '1 day')),
    extract(epoch from coalesce(base, interval '1 s')) * power(2, least(greatest(failures, 1) - 1, 20)),
    extract(epoch from interval '10 years')), 0) * interval '1 s';

-- The processes that run jobs and look after them.

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
  -- of kinds that have slots of their own, in each queue; null: an earlier version of jobq, which does not tell
  kind_slots   jsonb,
  keys         text[]      not null default '{}', -- names of the keys with which it can decrypt
  programs     jsonb       not null default '{}', -- what they have done, by kind: see monitor.Programs
  outcomes     jsonb       not null default '{}', -- of its last runs, by kind: see worker/internal/resting
  constraint "worker id must be 1 to 255 characters" check (char_length(id) between 1 and 255)
) with (fillfactor = 50);
comment on table jobq.worker is 'Processes that run jobs: a row for each, while it lives and for a while after.';
comment on column jobq.worker.id is 'Its name, which leases have as their owner.';
comment on column jobq.worker.started_at is 'When it began.';
comment on column jobq.worker.heartbeat_at is 'When it last said that it lives, every 10 seconds.';
comment on column jobq.worker.drain_requested_at is 'When somebody asked it to finish and leave; null: nobody did.';
comment on column jobq.worker.process_start is
  'With pid and boot_id, tells the process from later ones; null: not known.';
comment on column jobq.worker.pid is 'Of the process.';
comment on column jobq.worker.connections_max is
  'How many connections to the server it may open; null: not known, as behind a pooler.';
comment on column jobq.worker.draining is 'Whether it takes no new jobs.';
comment on column jobq.worker.has_room is 'Whether it had free slots.';
comment on column jobq.worker.present is 'Whether it holds a lock that says it is there.';
comment on column jobq.worker.hostname is 'Of its machine.';
comment on column jobq.worker.boot_id is 'Of its machine; null: not known.';
comment on column jobq.worker.pid_namespace is 'In which pid counts; null: not known.';
comment on column jobq.worker.version is 'Of jobq, or of the program with it.';
comment on column jobq.worker.queues is 'Slots by queue, as a JSON object.';
comment on column jobq.worker.programs is 'What its programs have done, by kind, as a JSON object.';
comment on column jobq.worker.outcomes is 'How its last runs of each kind ended, as a JSON object, for other workers.';
comment on column jobq.worker.kinds is 'That it has handlers for.';
comment on column jobq.worker.kind_slots is
  'Slots by kind, in each queue, as a JSON object: of kinds that have slots of their own; null: not known.';
comment on column jobq.worker.keys is 'Names of the keys with which it can decrypt.';

-- The hosts whose workers claim nothing, also workers that start later: a host that is held need not have one. Workers
-- read it with each heartbeat, and claims do not.
create table jobq.held_host (
  host        text        not null,
  held_at     timestamptz not null default clock_timestamp(),
  held_by     text        not null,
  hold_reason text,
  constraint held_host_pkey primary key (host),
  constraint "host must be 1 to 255 characters" check (char_length(host) between 1 and 255),
  constraint "hold_reason must be at most 1024 characters" check (char_length(hold_reason) <= 1024)
);
comment on table jobq.held_host is 'Hosts whose workers claim nothing. Change them with jobq.act_host.';
comment on column jobq.held_host.host is 'As workers write it: jobq.worker.hostname.';
comment on column jobq.held_host.held_at is 'Since when its workers claim nothing.';
comment on column jobq.held_host.held_by is 'Who holds it.';
comment on column jobq.held_host.hold_reason is 'And why.';

-- One row at most: when a janitor last said that it lives. A session lock cannot tell, since
-- janitors behind a pooler hold none.
create table jobq.janitor_seen (
  one     boolean     not null default true primary key check (one),
  seen_at timestamptz not null,
  janitor text        not null -- the id of the one that said so
) with (fillfactor = 50);
comment on table jobq.janitor_seen is 'When a janitor last said that it lives: one row, or none before the first time.';
comment on column jobq.janitor_seen.one is 'Keeps it at one row.';
comment on column jobq.janitor_seen.seen_at is 'When that was: every 10 seconds while at least one janitor runs.';
comment on column jobq.janitor_seen.janitor is 'The name of the janitor that said so.';

-- Who waits for new jobs, and how they hear of them.

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

-- Until when the janitor sleeps at most, as the epoch in milliseconds: who adds a job that is due later wakes no
-- janitor. See sleep_announce.
create sequence jobq.asleep_seq as bigint minvalue 0 start 0;

-- channel is the name of a NOTIFY channel. The hash makes it differ between two schemas of one database, and keeps it
-- below 64 bytes, whatever the schema is called. db.Channel is the same in Go.
--
--   work, head         the id of the transaction, and the name of a queue (wake)
--   taken              which notifications of a queue are answered (worker/internal/waking)
--   due                when the earliest new job becomes due, in seconds since 1970; negative: see act_lost
--   cancel             the id of a job
--   drain              the id of a worker
--   room, settings     the name of a queue
--   event              the id of a digest (tell)
--   ended              ids of jobs (waiters_wake)
--   watch, schedule    nothing
--
-- Any role can send and hear all of these. So a payload is only a hint, and holds nothing secret but the names of
-- queues.
create function jobq.channel(topic text) returns text
  language sql immutable parallel safe
  return 'jobq_' || topic || '_' || left(md5('jobq.'), 16);

-- notifications_full says whether the server's queue of notifications is almost full. When it is full, each transaction
-- that notifies fails. Any login can fill it, by a session that listens and does not end its transaction.
create function jobq.notifications_full() returns boolean
  language sql
  return pg_notification_queue_usage() > 0.9;

-- notify_is_off says whether the session or transaction has asked for no notifications (SET jobq.notify = off), as one
-- must that ends with PREPARE TRANSACTION: PostgreSQL prepares none that has notified. The name of the setting is the
-- same in every schema, so it is written in two parts.
create function jobq.notify_is_off() returns boolean
  language sql stable
  return coalesce(lower(current_setting('jobq' || '.notify', true)) in ('off', 'false', 'no', '0'), false);

-- notify sends a notification, unless the transaction wants none, or their queue is almost full: a job is worth more
-- than a notification of it, and whoever listens looks for work by itself after a while. It costs 0.2 µs with 10
-- sessions that listen, and 1 µs with 200.
create function jobq.notify(topic text, payload text) returns void
  language sql
  return case when not jobq.notify_is_off() and not jobq.notifications_full()
    then pg_notify(jobq.channel(topic), payload) end;

-- wake tells workers that a queue has available jobs (work), or that it has some at places where workers have already
-- looked (head). The payload has the transaction's id, which tells notifications apart: a worker that has claimed after
-- one, and left nothing, says so to the others (worker/internal/waking).
create function jobq.wake(topic text, queue text) returns void
  language sql
  return jobq.notify(topic, pg_current_xact_id()::text || ' ' || left(queue, 1000)); -- a payload has at most 8000 bytes

-- waiting_group is the sequence that says until when a worker waits for jobs of a queue, and perhaps of others of its
-- group.
create function jobq.waiting_group(of_queue text) returns regclass
  language sql stable
  return ('jobq.waiting_' || (hashtext(of_queue) & 15) || '_seq')::regclass;

-- worker_is_waiting says whether a worker has announced that it waits for jobs of a queue, or of another one of the
-- same group.
create function jobq.worker_is_waiting(of_queue text) returns boolean
  language plpgsql security definer set search_path = pg_catalog, pg_temp
  as $$
begin
  return coalesce(pg_sequence_last_value(jobq.waiting_group(of_queue)) >= extract(epoch from clock_timestamp()), false);
end $$;

-- wait_announce announces, for so many seconds from now, an hour at most, that a worker waits for jobs of a queue:
-- inserts then notify. It returns whether none waited before. In that case an insert that has already looked, and has
-- not committed yet, does not notify. Workers take turns, since a shorter announcement could take the place of a longer
-- one otherwise; a fleet of idle workers mostly finds that another one holds as long, and needs no turn. Who does not
-- get the turn within a second announces without it: the other worker then has to poll, at worst. It also adds the
-- queue's bell (pending_wake). The commit does not wait for the disk: if the server crashes, the worker loses its
-- connections, and announces anew.
create function jobq.wait_announce(of_queue text, seconds bigint) returns boolean
  language plpgsql security definer set search_path = pg_catalog, pg_temp
  as $$
declare
  group_seq regclass := jobq.waiting_group(of_queue);
  until bigint;
  before bigint;
begin
  until := ceil(extract(epoch from clock_timestamp()))::bigint + least(greatest(seconds, 0), 3600);
  if pg_sequence_last_value(group_seq) >= until and pg_sequence_last_value('jobq.waiting_seq') >= until then
    return false;
  end if;
  if jobq.turn_take('announce', 1000) then
    insert into jobq.turn (name, part) values ('bell ' || of_queue, 0) on conflict do nothing;
  end if;
  perform set_config('synchronous_commit', 'off', true);
  before := coalesce(pg_sequence_last_value(group_seq), 0);
  perform setval(group_seq, greatest(before, until));
  perform setval('jobq.waiting_seq', greatest(coalesce(pg_sequence_last_value('jobq.waiting_seq'), 0), until));
  return before < extract(epoch from clock_timestamp());
end $$;

-- line_changers are the transactions that have written rows of pending and are not visible yet. Who adds a job has
-- locked the table, and its transaction's id, until that moment. Locks are read as they are, and not as of a snapshot,
-- which does not list the youngest transactions.
create function jobq.line_changers() returns setof text
  language sql
  begin atomic
    with locks as materialized (select l.virtualtransaction, l.transactionid, l.mode, l.relation, l.database
        from pg_locks l)
    select x.transactionid::text from locks x
      where x.transactionid is not null and x.mode = 'ExclusiveLock' and exists (
        select from locks t where t.virtualtransaction = x.virtualtransaction and t.mode = 'RowExclusiveLock'
          and t.relation = 'jobq.pending'::regclass and t.database = (select d.oid from pg_database d
              where d.datname = current_database()));
  end;

-- sleep_announce announces that the janitor looks at scheduled jobs again in so many milliseconds at the latest, an
-- hour at most. It returns the transactions that may have added jobs before they could see it (line_changers). They are
-- asked for after the announcement: a transaction that is not among them is visible to a look that comes then, or has
-- seen the announcement.
create function jobq.sleep_announce(ms bigint) returns setof text
  language plpgsql security definer set search_path = pg_catalog, pg_temp
  as $$
begin
  perform set_config('synchronous_commit', 'off', true);
  perform setval('jobq.asleep_seq', greatest(pg_sequence_last_value('jobq.asleep_seq'),
    floor(extract(epoch from clock_timestamp()) * 1000)::bigint + least(greatest(ms, 0), 3600000)));
  return query select x from jobq.line_changers() x;
end $$;

-- pending_wake wakes workers of the queue of new available jobs when their transaction commits, unless another
-- transaction that commits at this moment wakes them: PostgreSQL lets one commit with a notification pass at a time,
-- and each waits until the one before is on the disk. So who notifies locks the queue's bell, a row of jobq.turn, and
-- who finds it locked does not notify.
--
-- No wake-up is lost:
-- - a worker says that it waits (1), looks which transactions that have added jobs are open
--   (2: line_changers), and claims (3);
-- - an insert adds the job, looks whether somebody waits (4), tries to lock the bell (5), and
--   commits (6).
-- If (4) came before (1), the insert's transaction had the job already, and was open at (2) or had ended before: either
-- (3) finds the job, or the worker claims again when the transactions that it saw at (2) have ended. If (5) finds the
-- bell locked, its holder is not visible yet, since a row is locked until the moment in which its locker becomes
-- visible. When its notification arrives, the worker looks again which transactions are open: (2) and (3) come after
-- (5) then, too. internal/db has the interleavings as a test.
--
-- Only wait_announce adds a bell: without one, each insert notifies. A transaction that asks for SET CONSTRAINTS
-- IMMEDIATE keeps its bell until it ends. It has no use of it when others have begun 100 transactions since.
create function jobq.pending_wake() returns trigger
  language plpgsql security definer set search_path = pg_catalog, pg_temp
  as $$
declare
  bell constant text := 'bell ' || new.queue;
begin
  if jobq.notify_is_off() then -- nor may a transaction that is prepared keep the bell
    return null;
  end if;
  -- worker_is_waiting
  if pg_sequence_last_value(jobq.waiting_group(new.queue)) >= extract(epoch from clock_timestamp()) then
    perform from jobq.turn t where t.name = bell and t.part = 0 for no key update skip locked;
    if found or not exists (select from jobq.turn t where t.name = bell and t.part = 0 and age(t.xmax) < 100) then
      perform jobq.wake('work', new.queue);
    end if;
  end if;
  return null;
end $$;
-- The WHEN looks whether somebody waits for jobs of any queue, with the rights of the role that inserts: to call a
-- function costs more than the row. It asks after the row is there, so that the transaction has its id, and once for
-- each queue, unless the rows of several come in turns.
create constraint trigger pending_wake after insert on jobq.pending deferrable initially deferred
  for each row when (new.position is not null
    and current_setting('jobq_pending.asked', true) is distinct from new.queue::text
    and set_config('jobq_pending.asked', new.queue, true) is not null
    and pg_sequence_last_value('jobq.waiting_seq') >= extract(epoch from clock_timestamp()))
  execute function jobq.pending_wake();

-- Keys of which at most one unfinished job, or one in a period, can have each.

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
comment on table jobq.unique_key is 'Unique keys that are taken, and the jobs that hold them.';
-- For the janitor, which forgets those whose time has come.
create index unique_key_kept_idx on jobq.unique_key (kept_until, job_id) where job_over;

-- unique_key_try reserves (kind, key) for a job and returns the job that holds it: this one, or another one that is
-- unfinished, or that has ended and keeps the key for a time. A job that takes the key keeps it at least until then. It
-- waits for a transaction that is about to take or release the same key.
create function jobq.unique_key_try(wanted_kind text, wanted_key text, wanted_by bigint, until timestamptz)
    returns bigint
  language plpgsql security definer set search_path = pg_catalog, pg_temp
  as $$
declare
  held record;
  moment timestamptz;
begin
  loop
    insert into jobq.unique_key (kind, key, job_id, kept_until)
      values (wanted_kind, wanted_key, wanted_by, until)
      on conflict do nothing;
    if found then
      return wanted_by;
    end if;
    select u.job_id, u.job_over, u.kept_until into held from jobq.unique_key u
        where u.kind = wanted_kind and u.key = wanted_key;
    if found then
      moment := clock_timestamp(); -- the insert may have waited
      if not held.job_over or held.job_id <> wanted_by and held.kept_until > moment then
        return held.job_id;
      end if;
      -- Its time has come, or the job itself is requeued, which had ended.
      update jobq.unique_key u
        set job_id = wanted_by, job_over = false, kept_until = case when u.job_id = wanted_by then u.kept_until
            else until end
        where u.kind = wanted_kind and u.key = wanted_key and u.job_over
          and (u.job_id = wanted_by or u.kept_until <= moment);
      if found then
        return wanted_by;
      end if;
    end if;
    -- The holder finished between the two statements, or somebody else took the key: try again.
  end loop;
end $$;

-- unique_key_wait is the same with a limit on each wait.
create function jobq.unique_key_wait(wanted_kind text, wanted_key text, wanted_by bigint, until timestamptz)
    returns bigint
  language plpgsql security definer set search_path = pg_catalog, pg_temp set lock_timeout = '1min'
  as $$
begin
  return jobq.unique_key_try(wanted_kind, wanted_key, wanted_by, until);
end $$;

-- unique_key_take is unique_key_try, and waits for as long as the caller's lock_timeout says, or for a minute at most.
-- Then it raises lock_not_available (55P03).
create function jobq.unique_key_take(wanted_kind text, wanted_key text, wanted_by bigint,
    until timestamptz default null) returns bigint
  language plpgsql security definer set search_path = pg_catalog, pg_temp
  as $$
begin
  if current_setting('lock_timeout') = '0' then
    return jobq.unique_key_wait(wanted_kind, wanted_key, wanted_by, until);
  end if;
  return jobq.unique_key_try(wanted_kind, wanted_key, wanted_by, until);
end $$;

-- unique_key_problem says who has a key.
create function jobq.unique_key_problem(of_kind text, of_key text, holder bigint) returns text
  language plpgsql stable
  as $$
begin
  return format('unique_key %L of kind %L is held by %s', of_key, of_kind, coalesce((
    select format('job %s, which is over, until %s', u.job_id,
        to_char(u.kept_until at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS "UTC"'))
      from jobq.unique_key u where u.kind = of_kind and u.key = of_key and u.job_id = holder and u.job_over),
    format('unfinished job %s', holder)));
end $$;

-- unique_key_drop releases the key of a job that has ended, or that was not added after all. A key with
-- a time of its own is kept until then.
create function jobq.unique_key_drop(of_kind text, of_key text, of_job bigint) returns void
  language plpgsql
  as $$
declare
  moment timestamptz := clock_timestamp();
begin
  delete from jobq.unique_key u
    where u.kind = of_kind and u.key = of_key and u.job_id = of_job
      and (u.kept_until is null or u.kept_until <= moment);
  if not found then
    update jobq.unique_key u set job_over = true where u.kind = of_kind and u.key = of_key and u.job_id = of_job
        and not u.job_over;
  end if;
end $$;

-- run_unique_key_drop releases the unique key of a job that has ended. Such a job always ends on its own row.
create function jobq.run_unique_key_drop() returns trigger
  language plpgsql security definer set search_path = pg_catalog, pg_temp
  as $$
begin
  perform jobq.unique_key_drop(new.kind, new.unique_key, new.id);
  return null;
end $$;
create trigger run_unique_key_drop after update on jobq.run
  for each row when (new.unique_key is not null and new.state is not null and old.state is null)
  execute function jobq.run_unique_key_drop();
create trigger run_unique_key_drop_at_once after insert on jobq.run
  for each row when (new.unique_key is not null and new.state is not null)
  execute function jobq.run_unique_key_drop();

-- unique_keys_take takes unique keys for jobs, given as columns, and returns the job that holds each key: the new job,
-- or another one. It takes the keys in a fixed order, as everybody does who takes several: so two callers never wait
-- for each other. Whoever also locks rows of jobs takes the keys first, because a job that ends releases its key when
-- its row is already locked.
create function jobq.unique_keys_take(kinds text[], keys text[], ids bigint[], untils timestamptz[] default null)
    returns bigint[]
  language plpgsql
  as $$
declare
  holders bigint[] := ids;
  i integer;
begin
  for i in select k.i from unnest(kinds, keys, ids) with ordinality as k(kind, key, id, i)
      where k.key is not null order by k.kind collate "C", k.key collate "C", k.id loop
    holders[i] := jobq.unique_key_take(kinds[i], keys[i], ids[i], untils[i]);
  end loop;
  return holders;
end $$;

-- unique_key_refuse raises an error for a job whose key another job holds.
create function jobq.unique_key_refuse(kind text, key text, holder bigint) returns void
  language plpgsql
  as $$
begin
  raise sqlstate 'JQ004' using message = jobq.unique_key_problem(kind, key, holder);
end $$;

-- unique_keys_release releases keys that were taken for a job which then did not become unfinished. (A job with a key
-- always ends on its own row of run.) It looks up each key and each job by itself: with a join, the planner, which does
-- not know how many keys come, might read all keys and all waiting jobs.
create function jobq.unique_keys_release(kinds text[], keys text[], ids bigint[]) returns void
  language sql
  set enable_seqscan = off set jit = off
  as $$
    select jobq.unique_key_drop(t.kind, t.key, t.id)
      from unnest(kinds, keys, ids) as t(kind, key, id)
      where (select u.job_id from jobq.unique_key u where u.kind = t.kind and u.key = t.key limit 1) = t.id
        and (select true from jobq.pending p where p.id = t.id limit 1) is null
        and (select true from jobq.run r where r.id = t.id and r.state is null limit 1) is null
  $$;

-- unique_period reads a time of uniqueness; problem says what is wrong with it.
create function jobq.unique_period(name text, value jsonb, out period interval, out problem text)
  language plpgsql stable
  as $$
begin
  if jsonb_typeof(value) = 'string' then
    period := (value #>> '{}')::interval;
  end if;
  if period is null or period <= '0' or period > '10 years' then
    problem := format('uniqueness: %s must be an interval such as "1 hour", positive, at most 10 years, not %s', name,
        left(value::text, 40));
  elsif jobq.has_months(array[period]) then
    problem := format('uniqueness: %s must be in days, hours, minutes or seconds, not %s', name, left(value::text, 40));
  elsif name = 'window' and period < '1 s' then
    problem := format('uniqueness: window must be at least a second, not %s', left(value::text, 40));
  end if;
  -- a day is 24 hours, also where the session's time zone has 23 that day
  period := make_interval(secs => extract(epoch from period));
exception when data_exception then
  problem := format('uniqueness: %s must be an interval such as "1 hour", not %s', name, left(value::text, 40));
end $$;

-- unique_key_of_args is the key that "by" makes of the args of a new job; problem says what is wrong. given is the
-- unique_key of the job.
create function jobq.unique_key_of_args(by jsonb, given text, args jsonb, out key text, out problem text)
  language plpgsql stable
  as $$
declare
  fields text[];
  chosen jsonb;
begin
  if jsonb_typeof(by) = 'array' then
    fields := array(select case jsonb_typeof(e.value) when 'string' then e.value #>> '{}' end
        from jsonb_array_elements(by) e);
  end if;
  if fields = '{*}' then
    chosen := coalesce(args, '{}');
  elsif jsonb_typeof(args) = 'object' then
    select jsonb_object_agg(f.name, args -> f.name) into chosen from unnest(fields) as f(name) where args ? f.name;
  end if;
  problem := case
    when fields is null or cardinality(fields) not between 1 and 32 or array_position(fields, null) is not null
        or '*' = any(fields) and cardinality(fields) > 1
      then 'uniqueness: by must be 1 to 32 names of fields of args, such as ["id"], or ["*"] for all of args'
    when given is not null then 'uniqueness: give unique_key or by, and not both'
    when args ? '$jobq' then 'uniqueness: by cannot look into encrypted args: give a unique_key'
    when chosen is null then format('uniqueness: args have none of the fields %s', left(by::text, 128)) end;
  key := case when problem is null then jobq.json_canonical(chosen)::text end;
end $$;

-- unique_rule reads the uniqueness of a new job: its key, until when the key is kept after the job's end, and what is
-- done if another job holds it; problem says what is wrong. given is the unique_key of the job.
--
-- Example, at 12:34 UTC, for args {"id": 7, "at": "now"}:
--
--   {"by": ["id"]}                                        {"id": 7}
--   {"by": ["id"], "for": "1 hour"}                       {"id": 7}, kept until 13:34
--   {"by": ["id"], "window": "1 hour"}                    {"id": 7} 2026-05-01T12:00:00Z+3600s, kept until 13:00
--   {"window": "1 day", "on_conflict": "fail"}, given x   x 2026-05-01T00:00:00Z+86400s, kept until 24:00
--
-- Windows are counted from 2001-01-01 UTC, a Monday, so that windows of a week begin on Mondays. A key of more than 255
-- characters ends in the hash of the whole key.
create function jobq.unique_rule(uniqueness jsonb, given text, args jsonb, moment timestamptz,
    out problem text, out key text, out until timestamptz, out on_conflict text)
  language plpgsql stable
  as $$
declare
  names constant text[] := '{by, window, for, on_conflict}';
  odd text;
  made record; -- of args
  period record;
  began timestamptz;
begin
  if jsonb_typeof(uniqueness) <> 'object' then
    problem := format('uniqueness must be a JSON object such as {"by": ["id"]}, not %s', jsonb_typeof(uniqueness));
    return;
  end if;
  uniqueness := jsonb_strip_nulls(uniqueness);
  odd := (select m.name from jsonb_object_keys(uniqueness) as m(name) where m.name <> all(names) limit 1);
  on_conflict := coalesce(uniqueness ->> 'on_conflict', 'skip');
  if odd is not null then
    problem := format('uniqueness: unknown member %s; there are %s', to_json(left(odd, 128)),
        array_to_string(names, ', '));
  elsif on_conflict not in ('skip', 'replace', 'fail') then
    problem := format('uniqueness: on_conflict must be skip, replace or fail, not %s', to_json(left(on_conflict, 40)));
  elsif uniqueness ? 'by' then
    made := jobq.unique_key_of_args(uniqueness -> 'by', given, args);
    problem := made.problem;
    key := made.key;
  elsif given is null then
    problem := 'uniqueness needs unique_key, or by';
  else
    key := given;
  end if;
  if problem is not null then
    return;
  end if;
  if uniqueness ? 'window' and uniqueness ? 'for' then
    problem := 'uniqueness: give window or for, and not both';
  elsif uniqueness ? 'window' then
    period := jobq.unique_period('window', uniqueness -> 'window');
    problem := period.problem;
    if problem is null then
      began := date_bin(period.period, moment, '2001-01-01 00:00:00+00');
      key := format('%s %s+%ss', key, to_char(began at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'),
          trim_scale(extract(epoch from period.period)));
      until := began + period.period;
    end if;
  elsif uniqueness ? 'for' then
    period := jobq.unique_period('for', uniqueness -> 'for');
    problem := period.problem;
    until := moment + period.period;
  end if;
  if char_length(key) > 255 then
    key := left(key, 180) || '#' || encode(sha256(convert_to(key, 'UTF8')), 'hex');
  end if;
end $$;

-- unique_rules reads the uniqueness of jobs, given as columns, and raises an error for the first that is wrong. A job
-- without uniqueness has the key that it was given. The jobs at the places after_jobs wait for others.
create function jobq.unique_rules(given text[], args jsonb[], uniques jsonb[], after_jobs integer[],
    out keys text[], out untils timestamptz[], out conflicts text[])
  language plpgsql
  as $$
declare
  moment timestamptz := clock_timestamp();
  problem text;
begin
  select array_agg(coalesce(r.key, j.given) order by j.i), array_agg(r.until order by j.i), array_agg(r.on_conflict
      order by j.i),
      (array_agg(format('jobs[%s]: %s', j.i - 1, r.problem) order by j.i) filter (where r.problem is not null))[1]
    into keys, untils, conflicts, problem
    from unnest(given, unique_rules.args, uniques) with ordinality as j(given, args, uniqueness, i)
    left join lateral jobq.unique_rule(j.uniqueness, j.given, j.args, moment) r on jsonb_typeof(j.uniqueness) <> 'null';
  if problem is not null then
    raise sqlstate 'JQ001' using message = problem, hint = 'docs/unique.md has examples.';
  end if;
  -- The holder would have the new args, and run before the jobs for which the new one waits.
  select format('jobs[%s]: uniqueness: on_conflict replace is not for a job that waits for others (after)',
      min(a.job) - 1) into problem
    from unnest(after_jobs) as a(job) where conflicts[a.job] = 'replace' having count(*) > 0;
  if found then
    raise sqlstate 'JQ001' using message = problem;
  end if;
end $$;

-- unique_conflicts_refuse raises an error for the first new job that has on_conflict "fail" and whose key another job
-- holds.
create function jobq.unique_conflicts_refuse(job_ids bigint[], holders bigint[], kinds text[], keys text[],
    conflicts text[]) returns void
  language plpgsql
  as $$
declare
  held record;
begin
  select c.i, c.kind, c.key, c.holder, array_position(job_ids, c.holder) as place into held
    from unnest(job_ids, holders, kinds, keys, conflicts) with ordinality as c(id, holder, kind, key, on_conflict, i)
    where c.on_conflict = 'fail' and c.holder <> c.id
    order by c.i limit 1;
  if found then
    raise sqlstate 'JQ004' using message = format('jobs[%s]: %s', held.i - 1, case
      when held.place is null then jobq.unique_key_problem(held.kind, held.key, held.holder)
      else format('unique_key %L of kind %L is that of jobs[%s]', held.key, held.kind, held.place - 1) end);
  end if;
end $$;

-- jobs_replace handles new jobs with on_conflict "replace" whose keys other jobs hold: each holder gets the args,
-- priority and run_at of the new job, the last one if there are several. It returns for which of the new jobs it has
-- done so. A holder that has begun stays as it is: it runs, has stored a step or a checkpoint, or has ended. A claim of
-- the holder at this moment comes either before, and then it has begun, or after, and then it has the new args: see
-- job_edit.
create function jobq.jobs_replace(
  job_ids bigint[], holders bigint[], conflicts text[], args jsonb[], priorities bigint[], run_ats timestamptz[],
      delays interval[]
) returns boolean[]
  language plpgsql set enable_seqscan = off set jit = off
  as $$
declare
  replaced boolean[] := array_fill(false, array[cardinality(job_ids)]);
  i integer;
  has_begun boolean;
begin
  for i in select c.i from unnest(job_ids, holders, conflicts) with ordinality as c(id, holder, on_conflict, i)
      where c.on_conflict = 'replace' and c.holder <> c.id order by c.holder, c.i loop
    select p.checkpoint is not null into has_begun from jobq.pending p where p.id = holders[i] for update;
    continue when has_begun is distinct from false or exists (select from jobq.step s where s.job_id = holders[i]);
    perform jobq.job_edit(holders[i], jsonb_build_object('args', coalesce(args[i], '{}'), 'priority',
      coalesce(priorities[i], 0), 'run_at', coalesce(run_ats[i], now() + delays[i], now())), '{}');
    replaced[i] := true;
  end loop;
  return replaced;
end $$;

-- Functions with which a program reports about its own run, in a transaction of its own: so an effect
-- and the end of its job are stored together or not at all (docs/transactional-completion.md). Each
-- call is fenced as the worker's own statements are (sql/queries/end.sql). The token
-- names three things. The lease. When it was claimed, since a lease's id may come again after a
-- failover. And the job's slot in it: with the token of another job of the same
-- claim, a program could otherwise end that job, and its worker would then store the job's plain end as well.
-- A message authentication code follows: a program cannot make the token of another run.
--
-- None of these functions writes the lease. The worker goes on extending it, and stores the
-- end there when the program has ended. The row of run is locked until the transaction ends.

-- The key of the codes in run tokens: 64 bytes for the inner hash and 64 for the outer one. Only the owner reads the
-- table. A dump carries it. An update of it makes the tokens of all current runs invalid, until their workers start
-- anew.
create table jobq.secret (
  singleton boolean not null primary key default true check (singleton),
  run_key   bytea   not null check (octet_length(run_key) = 128)
);
comment on table jobq.secret is 'The key of the codes in run tokens. Only the owner reads it.';
insert into jobq.secret (run_key)
  select string_agg(sha256(convert_to(gen_random_uuid()::text || gen_random_uuid()::text || gen_random_uuid()::text,
      'UTF8')), '')
    from generate_series(1, 4);

-- run_key gives workers the key, with which they make tokens for their programs.
create function jobq.run_key() returns bytea
  language sql stable security definer set search_path = pg_catalog, pg_temp
  as $$
    select s.run_key from jobq.secret s
  $$;

-- run_token_code is the code of a run token: the first 128 bits of the nested SHA-256 of what is in front of it.
-- worker/external.go computes the same.
create function jobq.run_token_code(run text) returns text
  language sql stable
  as $$
    select left(encode(sha256(substr(s.run_key, 65) || sha256(substr(s.run_key, 1, 64) || convert_to(run, 'UTF8'))),
        'hex'), 32)
      from jobq.secret s
  $$;

-- run_token_check raises for what is no run token, and for a token that no worker has made. The server's log then says
-- who has tried, since that is guessing or a mistake of a program. The hashes make the time of the comparison say
-- nothing.
create function jobq.run_token_check(of_job bigint, run_token text) returns void
  language plpgsql
  as $$
begin
  if run_token is null or run_token !~ '^[0-9]{1,18}[.][0-9]{1,18}[.][0-9]{1,5}[.][0-9a-f]{32}$' then
    raise sqlstate 'JQ001' using
      message = format('token must be a run token such as 362838488514562.1795737600000000.1.%s, not %L',
          repeat('0f', 16), left(run_token, 80)),
      hint = 'A program has it in JOBQ_RUN_TOKEN, or as run_token of its job, if its kind has ends_itself or steps.';
  end if;
  if sha256(convert_to(right(run_token, 32), 'UTF8')) is distinct from
    sha256(convert_to(jobq.run_token_code(left(run_token, -33)), 'UTF8'))
  then
    raise log 'jobq: % has called a function for job % with a run token that no worker has made', session_user, of_job;
    raise sqlstate 'JQ001'
      using message = format('the run token for job %s was not made by a worker of this database', of_job),
          hint = 'Pass JOBQ_RUN_TOKEN, or run_token of the job, as it is. A token is for its own run only.';
  end if;
end $$;

-- run_held locks the row of the run with the token, and returns its lease. It waits for
-- a row that somebody has locked, for 30 seconds at most. It raises an error if the run has ended or its lease is lost.
-- RunProgress skips a row with this lock: otherwise it would wait for the row of
-- progress, and the reports of all other runs with it. The plan is made for this
-- token, so it locks only the run's own day of the history.
-- Needs run_id_idx and lease_pkey only.
create function jobq.run_held(of_job bigint, run_token text)
    returns table (lease_id bigint, claimed_at timestamptz, owner text)
  language plpgsql set plan_cache_mode = force_custom_plan set enable_seqscan = off set jit = off
      set lock_timeout = '30s'
  as $$
begin
  if of_job is null then
    raise sqlstate 'JQ001' using message = 'job_id must not be null';
  end if;
  perform jobq.run_token_check(of_job, run_token);
  lease_id := split_part(run_token, '.', 1)::bigint;
  claimed_at := timestamptz 'epoch' + split_part(run_token, '.', 2)::bigint * interval '1 microsecond';
  select l.owner into owner
    from jobq.run r
    join jobq.lease l on l.id = r.lease_id
    where r.id = of_job and r.lease_id = run_held.lease_id and r.state is null
      and r.slot = split_part(run_token, '.', 3)::integer and l.claimed_at = run_held.claimed_at and l.lost_at is null
      and r.slot <> all(l.ended_slots)
    for update of r;
  if not found then
    raise sqlstate 'JQ005' using message = format('job %s: this run has ended, or its lease is lost', of_job),
      hint = 'Roll back. If the job is not over, another run does its work.';
  end if;
  return next;
end $$;

-- run_close ends a run as RunEnd does, which explains each outcome, and
-- returns the job's new state. Each end leaves an attempt: from it the worker learns
-- how the run has ended, and adds what the program has written (AttemptKeep). With waits,
-- the job then waits for others, for which the caller has added dependencies.
-- Needs run_id_idx and progress_pkey only.
create function jobq.run_close(of_job bigint, run_token text, outcome jobq.attempt_outcome, error text, delay interval,
    final boolean, result jsonb,
    waits boolean default null)
  returns jobq.job_state
  language plpgsql set plan_cache_mode = force_custom_plan set enable_seqscan = off set jit = off
  as $$
declare
  held record;
  job jobq.run;
  ended_at timestamptz;
  attempts_after integer;
  error_after text;
  checkpoint_after jsonb;
  went_to jobq.job_state;
begin
  select * into held from jobq.run_held(of_job, run_token);
  select r.* into strict job from jobq.run r where r.id = of_job and r.lease_id = held.lease_id;
  ended_at := clock_timestamp();
  delete from jobq.progress p where p.job_id = of_job
    returning case when p.lease_id = held.lease_id then p.checkpoint end into checkpoint_after;
  checkpoint_after := coalesce(checkpoint_after, job.checkpoint);
  attempts_after := job.attempts + case when outcome = 'failed' then 1 else 0 end;
  error_after := case when outcome = 'failed' then jobq.error_kept(error) else job.last_error end;
  went_to := jobq.next_state(outcome::text, job.attempts, job.max_attempts, final, job.cancel_requested_at is not null,
    delay, waits);
  if went_to in ('completed', 'failed', 'cancelled') then
    update jobq.run r
      set state = went_to, finished_at = ended_at, attempts = attempts_after, last_error = error_after,
          result = run_close.result, checkpoint = checkpoint_after
      where r.id = of_job and r.lease_id = held.lease_id;
  else
    delete from jobq.run r where r.id = of_job and r.lease_id = held.lease_id;
    insert into jobq.pending
      select p.*
        from jobq.pending_of(job, case when waits is null then nextval('jobq.position_seq') end,
          ended_at + coalesce(delay, jobq.backoff_delay(attempts_after, job.backoff_base, job.backoff_max)),
          attempts_after, 0, -- its process has lived
          error_after, null, checkpoint_after, run_close.waits) p;
  end if;
  insert into jobq.attempt (job_id, finished_at, started_at, lease_token, outcome, number, worker_id, error)
    values (of_job, ended_at, held.claimed_at, held.lease_id, run_close.outcome, job.attempts + 1, held.owner,
        left(run_close.error, 16384));
  if outcome <> 'snoozed' or went_to = 'cancelled' then
    insert into jobq.stat_delta (minute, queue, kind, completed, failed, retried, lost, cancelled, run_seconds,
        wait_seconds)
      values (date_trunc('minute', ended_at), job.queue, job.kind,
        case when went_to = 'completed' then 1 else 0 end,
        case when went_to = 'failed' then 1 else 0 end,
        case when outcome = 'failed' and went_to in ('available', 'scheduled') then 1 else 0 end, 0,
        case when went_to = 'cancelled' then 1 else 0 end,
        case when went_to <> 'cancelled' then extract(epoch from ended_at - held.claimed_at)::float8 else 0 end,
        case when went_to = 'completed'
        then extract(epoch from held.claimed_at - greatest(job.run_at, job.created_at))::float8 else 0 end);
  end if;
  return went_to;
end $$;

-- delay_require raises for a delay that is beyond its limits.
create function jobq.delay_require(name text, delay interval) returns void
  language plpgsql
  as $$
begin
  if delay < interval '0' or delay > interval '10 years' then
    raise sqlstate 'JQ001' using message = format('%s must be 0 to 10 years, not %s', name, delay);
  end if;
end $$;

-- complete ends the job of a run as completed, with the result.
create function jobq.complete(job_id bigint, token text, result jsonb default null) returns void
  language plpgsql security definer set search_path = pg_catalog, pg_temp
  as $$
begin
  perform jobq.run_close(job_id, token, 'completed', null, null, false, result);
end $$;
comment on function jobq.complete is
  'Ends a run well, in the program''s own transaction. The token is that of the run.';

-- fail ends a run as a failed attempt, and returns the job's new state. The job runs again after its backoff, or after
-- the given delay, unless this was its last attempt, or final is true.
create function jobq.fail(job_id bigint, token text, error text, delay interval default null,
    final boolean default false) returns jobq.job_state
  language plpgsql security definer set search_path = pg_catalog, pg_temp
  as $$
begin
  perform jobq.delay_require('delay', delay);
  return jobq.run_close(job_id, token, 'failed', coalesce(nullif(error, ''), 'the handler gave no reason'), delay,
      coalesce(final, false), null);
end $$;
comment on function jobq.fail is 'Ends a run as failed; returns what became of the job.';

-- snooze makes the job run again after a delay, or at a time, without using an
-- attempt. It returns the job's new state.
create function jobq.snooze(job_id bigint, token text, delay interval default null, until timestamptz default null)
    returns jobq.job_state
  language plpgsql security definer set search_path = pg_catalog, pg_temp
  as $$
begin
  if (delay is null) = (until is null) then
    raise sqlstate 'JQ001' using message = 'snooze needs either a delay or until';
  end if;
  delay := coalesce(delay, greatest(until - clock_timestamp(), interval '0'));
  perform jobq.delay_require(case when until is null then 'delay' else 'the time to until' end, delay);
  return jobq.run_close(job_id, token, 'snoozed', null, delay, false, null);
end $$;
comment on function jobq.snooze is 'Ends a run; the job runs again later, and uses no attempt.';

-- sql/roles.sql says who may call them.
revoke all on jobq.secret from public;

-- Claims outside of the line: suspects, which run alone. The claim itself is in sql/queries/claim.sql.

-- line_priority is the least urgent priority that is more urgent than below, among a queue's jobs without a
-- partition key, of those of these kinds that are not paused; null if there is none. It is a function with
-- settings of its own, since without statistics the planner expects few jobs, and would rather sort the
-- whole line. Needs pending_claim_idx and kind_paused_idx only.
create function jobq.line_priority(of_queue text, kinds text[], below integer) returns smallint
  language sql stable
  set enable_sort = off set enable_seqscan = off set enable_bitmapscan = off set jit = off
  as $$
    select p.priority
      from jobq.pending p
      where p.queue = of_queue and p.partition_key = '' and p.position is not null and p.kind = any(kinds)
        and p.kind <> all(array(select k.name from jobq.kind k where k.paused_at is not null))
        and p.priority < below
      order by p.priority desc, p.position desc
      limit 1
  $$;

-- suspect_next is the suspect (pending_suspect_idx) of these kinds that is due first in a queue, and in how many
-- milliseconds; no row if there is none that may start, because the queue, its kind or its key is paused. Needs
-- pending_suspect_idx, kind_paused_idx, paused_key_pkey and queue_pkey: the conditions leave the planner no other
-- index.
create function jobq.suspect_next(of_queue text, kinds text[]) returns table (id bigint, kind text, due_ms bigint)
  language plpgsql stable set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set jit = off
  as $$
begin
  return query
    select p.id, p.kind::text, ceil(extract(epoch from p.run_at - clock_timestamp()) * 1000)::bigint
      from jobq.pending p
      where p.queue = of_queue and p.crashes > 0
        and p.crashes >= least(2, coalesce(p.lost + 1, p.max_attempts - p.attempts))
        and p.kind = any(kinds)
        and p.kind <> all(array(select k.name from jobq.kind k where k.paused_at is not null))
        and not exists (select from jobq.queue q where q.name = of_queue and q.paused_at is not null)
        -- a lookup
        and (select true from jobq.paused_key k where k.queue = of_queue and k.key = p.partition_key limit 1) is null
      order by p.run_at, p.id
      limit 1;
end $$;

-- claim_alone claims one suspect (pending_suspect_idx) that is due, the one that has waited longest, for a worker that
-- runs nothing else until the job has ended. It keeps the limits, rates and orders of the queue and of its keys: it has
-- the queue's turn, as claims of queues with limits have, and looks at 100 suspects at most for one that may start. It
-- takes turns with nobody's lanes. Needs pending_suspect_idx, kind_paused_idx, paused_key_pkey and queue_pkey, and what
-- the functions need that it calls.
create function jobq.claim_alone(of_queue text, of_kinds text[], of_owner text, lease_time interval) returns table (
  id bigint, lease_token bigint, slot smallint, "position" bigint, priority smallint, attempts smallint,
      max_attempts smallint, crashes smallint,
  queue text, kind text, created_at timestamptz, run_at timestamptz, started_at timestamptz, timeout_ms bigint,
      args jsonb, checkpoint jsonb,
  metadata jsonb, tags text[], last_error text, clear_reason text, has_key boolean, partition_key text, lost smallint
)
  language plpgsql set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set jit = off
  as $$
#variable_conflict use_column
declare
  q jobq.queue;
  suspect record;
  new_lease bigint;
  claimed timestamptz;
begin
  if (select a.admitted from jobq.queue_admit(of_queue, 1, 1, true) a) = 0 then
    return;
  end if;
  select x.* into q from jobq.queue x where x.name = of_queue;
  q.name := of_queue; -- which may have no row
  new_lease := jobq.lease_id_next();
  claimed := clock_timestamp();
  for suspect in
    select p.id, p.ctid as place, p.partition_key
      from jobq.pending p
      where p.queue = of_queue and p.crashes > 0
        and p.crashes >= least(2, coalesce(p.lost + 1, p.max_attempts - p.attempts))
        and p.run_at <= claimed and p.kind = any(of_kinds)
        and p.kind <> all(array(select k.name from jobq.kind k where k.paused_at is not null)) and q.paused_at is null
        -- a lookup
        and (select true from jobq.paused_key k where k.queue = of_queue and k.key = p.partition_key limit 1) is null
      order by p.run_at, p.id
      limit 100
  loop
    perform from jobq.pending p where p.ctid = suspect.place and p.id = suspect.id for update skip locked;
    continue when not found
      or suspect.partition_key <> '' and not jobq.lane_take(q, suspect.partition_key, suspect.id, new_lease, claimed);
    insert into jobq.lease (id, claimed_at, expires_at, owner, queue, job_ids)
      values (new_lease, claimed, claimed + lease_time, of_owner, of_queue, array[suspect.id]);
    return query
      with taken as (
        delete from jobq.pending p where p.ctid = suspect.place and p.id = suspect.id
          returning p.*
      )
      insert into jobq.run as r
        select n.* from taken t cross join lateral jobq.run_of(row(t.*)::jobq.pending, new_lease, 1::smallint) n
        returning r.id, r.lease_id, r.slot, r.position, r.priority, r.attempts, r.max_attempts, r.crashes, r.queue,
          r.kind, r.created_at, coalesce(r.run_at, r.created_at), claimed,
              coalesce(ceil(extract(epoch from r.timeout) * 1000), 0)::bigint,
          coalesce(r.args, (select a.args from jobq.payload a where a.job_id = r.id)),
          r.checkpoint, r.metadata, r.tags, r.last_error, r.clear_reason, r.unique_key is not null,
          coalesce(r.partition_key, ''), coalesce(r.lost, 0)::smallint;
    perform jobq.queue_charge(of_queue, 0);
    return;
  end loop;
end $$;

-- host_gone is the host of a worker that was lost, if no other worker of that host has started or lived on since; null
-- if one has, or if nothing is known of the worker. A worker beats every 10 seconds: when one has done so 15 seconds
-- after the last time of the lost one, they did not end together.
create function jobq.host_gone(owner text) returns text
  language sql stable
  return (select w.hostname from jobq.worker w
    where w.id = owner and not exists (select from jobq.worker x
      where x.hostname = w.hostname and x.id <> w.id
        and (x.started_at > w.heartbeat_at or x.heartbeat_at > w.heartbeat_at + interval '15 seconds')));

-- hosts_back takes hosts that were gone, and when that was found. It returns how many of these moments count as crashes
-- after all, since a worker of one of their hosts has been heard of later; and the hosts of the other moments. Of
-- machines that fail together and come back, it is one crash. One that was found at lived_at is on a host that lives.
create function jobq.hosts_back(hosts text[], found_at timestamptz[], lived_at timestamptz,
    out crashes integer, out hosts_left text[], out left_at timestamptz[])
  language sql stable
  begin atomic
    with gone as (
      select g.host, g.at, bool_or(exists (
          select from jobq.worker w where w.hostname = g.host and w.heartbeat_at > g.at
        )) over (partition by g.at) as back
        from unnest(hosts, found_at) as g(host, at) where g.at is distinct from lived_at
    )
    select count(distinct g.at) filter (where g.back)::integer + (lived_at is not null)::integer,
        coalesce(array_agg(g.host order by g.at, g.host) filter (where not g.back), '{}'),
        coalesce(array_agg(g.at order by g.at, g.host) filter (where not g.back), '{}')
      from gone g;
  end;

-- kind_crash adds a crash to what is known of a kind: of the hosts that are gone with it, or of one that lives. ended
-- says that a run of the kind has ended in another way since the last crash. It changes nothing in the table.
create function jobq.kind_crash(known jobq.kind, claimed timestamptz, gone text[], lives boolean, ended boolean)
    returns jobq.kind
  language plpgsql stable
  as $$
declare
  back record;
begin
  if ended then
    known.crashes := 0;
    known.gone_hosts := '{}';
    known.gone_at := '{}';
  end if;
  if ended or claimed > known.crashed_at then
    known.crashed_at := clock_timestamp();
  elsif known.crashed_at <> all(known.gone_at) then
    return known; -- that crash has been counted
  end if;
  if not lives then
    known.gone_hosts := (known.gone_hosts || gone)[cardinality(known.gone_hosts) + cardinality(gone) - 199:];
    known.gone_at := (known.gone_at
      || array_fill(known.crashed_at, array[cardinality(gone)]))[cardinality(known.gone_at) + cardinality(gone) - 199:];
  end if;
  select b.* into back from jobq.hosts_back(known.gone_hosts, known.gone_at,
    case when lives then known.crashed_at end) b;
  known.crashes := least(known.crashes + back.crashes, 1000);
  known.gone_hosts := back.hosts_left;
  known.gone_at := back.left_at;
  return known;
end $$;

-- kinds_crashed counts crashes: runs of these kinds were lost because their workers stopped responding. The run of
-- kinds[i] was claimed at claimed[i] by owners[i]. If a kind has crashed workers quarantine_crashes times in a row, it
-- is paused, and returned.
--
-- A crash is the next one of the row if its run was claimed after the crash before was found. A row ends when any run
-- of the kind ends in another way. With quarantine_crashes = 3, and a lease of one minute:
--
--   12:00  workers A and B are killed while both run Encode and Send
--   12:01  both are found: one crash of each kind
--   12:02  C claims Encode and Send; Send completes, Encode kills C
--   12:03  found: the second crash of Encode
--   12:04  D claims Encode and Send, and dies at once: the second of Send is the first again
--   12:05  found: the third of Encode, which is paused
--
-- So machines that fail together, or a deployment that kills its workers, count as one crash of each kind. And a crash
-- whose worker's host has not come back (host_gone) is the host's: it counts later, if the host comes back, and never
-- otherwise. So machines that are taken away one after the other pause no kind.
--
-- Ends are known by the minute: an end in the minute of a crash counts as later, so a kind that runs often is paused up
-- to a minute later. A run may have been claimed but not begun when its worker died, so a kind can get crashes that
-- another kind caused. Therefore a call pauses one kind at most, the one with the most crashes. The others start again
-- at 0 as soon as one of their runs ends. A crash more than a day ago does not count.
--
-- It runs with its owner's rights, because a worker has no other right to pause. It waits for a lock for a second at
-- most, since recovery goes on after it. Needs stat_pkey: the planner would read all of stat, from its oldest row on,
-- and that of PostgreSQL 18 by another index. So there is an order, and no sort.
create function jobq.kinds_crashed(kinds text[], claimed timestamptz[], owners text[], source text)
    returns table (kind text, crashes integer)
  language plpgsql security definer set search_path = pg_catalog, pg_temp set lock_timeout = '1s'
      set enable_seqscan = off set enable_sort = off set jit = off
  as $$
declare
  moment timestamptz := clock_timestamp();
  limit_crashes integer := (select s.quarantine_crashes from jobq.setting s);
  lost record;
  known jobq.kind;
  worst jobq.kind;
  reason text;
begin
  delete from jobq.kind k where k.paused_at is null and k.crashed_at < moment - interval '1 day';
  for lost in
    select l.kind, max(l.claimed_at) as claimed_at, bool_or(h.host is null) as lives,
        coalesce(array_agg(distinct h.host) filter (where h.host is not null), '{}') as gone
      from unnest(kinds, claimed, owners) as l(kind, claimed_at, owner)
      join (
        select o.owner, jobq.host_gone(o.owner) as host from (select distinct x from unnest(owners) x) as o(owner)
      ) h on h.owner = l.owner
      group by l.kind
      order by l.kind
  loop
    insert into jobq.kind (name) values (lost.kind) on conflict (name) do nothing;
    select k.* into known from jobq.kind k where k.name = lost.kind for update;
    if not found or known.paused_at is not null then -- a run that sleeps now may have deleted it: see run_suspend
      continue;
    end if;
    known := jobq.kind_crash(known, lost.claimed_at, lost.gone, lost.lives, known.crashed_at is null
      or (select true from jobq.stat s
        where s.minute >= date_trunc('minute', known.crashed_at) and s.kind = lost.kind
          and s.completed + s.failed + s.retried > s.lost
        order by s.minute limit 1)
      or exists (select from jobq.stat_delta s
        where s.minute >= date_trunc('minute', known.crashed_at) and s.kind = lost.kind
          and s.completed + s.failed + s.retried > s.lost));
    update jobq.kind k
      set crashes = known.crashes, crashed_at = known.crashed_at, gone_hosts = known.gone_hosts,
        gone_at = known.gone_at
      where k.name = lost.kind;
    if known.crashes > coalesce(worst.crashes, 0) then
      worst := known;
    end if;
  end loop;
  if limit_crashes = 0 or worst.crashes is null or worst.crashes < limit_crashes then
    return;
  end if;
  reason := format('quarantine: workers that ran it crashed %s times in a row', worst.crashes);
  update jobq.kind k set paused_at = moment, paused_by = 'jobq', pause_reason = reason where k.name = worst.name;
  perform jobq.audit_begin('jobq', 'kind_pause', worst.name, reason);
  insert into jobq.event (type, source, message)
    values ('quarantined', kinds_crashed.source,
        format('kind %s is paused: workers that ran it crashed %s times in a row', worst.name, worst.crashes));
  kind := worst.name;
  crashes := worst.crashes;
  return next;
end $$;

-- Partition keys: their lanes, hints that tell claims of them, pauses, weights and groups. See docs/decisions/0022.

-- A lane is a partition key of a queue, while jobs of the key wait or run. The row with the key '' is the queue's own,
-- and exists once the queue has had a key. Only a claim that has the queue's turn (queue_admit) writes lanes, as
-- lane_claim says, or lane_prune in its place.
--
-- Example: keys of a queue with a key_limit of 2. Key c has no row: nothing of it waits or runs.
--
--   key  turn  full_limit  held_leases  held_slots
--   a      17              {}           {}          next to be looked at
--   b      18              {900}        {4}         after it; one of its jobs runs
--   d               2      {900, 901}   {5, 1}      full: no claim looks at it until one of the two has ended
--
-- A lane holds the leases and slots of jobs that were claimed. Some of these may have ended since: the leases say which
-- still run. Without a key_limit lanes hold nothing, and a key of which nothing waits has no lane.
--
-- With a rate of the keys, rate_ready_at is for the key what ready_at of throttle is for a queue. If a key has used up
-- its burst while jobs of it wait, its lane is throttled, neither ready nor full: no claim looks at it before
-- throttled_until. If nothing of it waits, it keeps its lane until rate_ready_at: without the lane, the key would have
-- its whole burst again. With a rate of 1/s and a burst of 2, at 12:00:00:
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
  -- and of the row '' when some of the full ones were looked at without a hint, or no other one was found
  looked_at   timestamptz,
  held_leases bigint[]   not null default '{}',
  held_slots  smallint[] not null default '{}',
  looks       jsonb      not null default '{}', -- where claims stopped in its line, by their kinds: see lane_walk
  -- of the row '': what runs of leases after this one may not be held by its lane, since there was no key_limit; null:
  -- all is
  unheld      bigint,
  rate_ready_at   timestamptz, -- null: nothing of the rate is used
  rate_step_us    bigint, -- of the rate when it was written, with its burst
  rate_burst      integer,
  throttled_until timestamptz,
  -- turn that the last hint gave, or would have; not of a ready lane without looks
  hinted      bigint     not null default 0,
  due         integer, -- so many jobs are left of a turn that it has begun, where its key has a weight: see key_weight
  due_turn    bigint, -- which it gets back, since it was full before the turn was over
  -- of the row '': the latest turn of its group in which a job was given; null: no lane has had such a turn. See
  -- key_group
  group_clock bigint,
  constraint lane_pkey primary key (queue, key),
  constraint "a lane is ready, full, throttled or neither" check (num_nonnulls(turn, full_limit, throttled_until) <= 1)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);
comment on table jobq.lane is 'Partition keys that have jobs: whose turn it is, and what they hold.';
create index lane_turn_idx on jobq.lane (queue, turn) where turn is not null;
create index lane_full_idx on jobq.lane (queue, full_limit, looked_at) where full_limit is not null;
-- The throttled ones: those that are due, and those whose rate was another one.
create index lane_throttled_idx on jobq.lane (queue, rate_step_us, rate_burst, throttled_until)
    where throttled_until is not null;
-- Those of which nothing waits or runs, to be deleted when nothing of their rate is used any more.
create index lane_spent_idx on jobq.lane (queue, rate_ready_at)
  where turn is null and full_limit is null and throttled_until is null and rate_ready_at is not null
    and held_leases = '{}';
create sequence jobq.lane_turn_seq as bigint;

-- The job of each key that was claimed last, in queues with a key_order: the key's head. It stays the head until it has
-- ended, even if it comes back with another place in the line (lane_next). Only claims that have the queue's turn write
-- it. lane_head_prune deletes it.
create table jobq.lane_head (
  queue    text   not null,
  key      text   not null,
  job_id   bigint not null,
  lease_id bigint not null, -- with which it was claimed
  constraint lane_head_pkey primary key (queue, key)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);
comment on table jobq.lane_head is
  'The job of each partition key that was claimed last, in queues with a strict order.';

-- Hints of keys that may be ready: a job of the key was added or became due, a job of it has ended, or the key was
-- resumed. Whoever does that adds a row in the same transaction, and so never waits for a lane. The next claim deletes
-- it. The hint of a pause has an id below 0: claims take those first, however many others there are (lane_pause).
create table jobq.lane_hint (
  id    bigint not null generated always as identity,
  queue text   not null,
  key   text   not null,
  constraint lane_hint_pkey primary key (queue, id)
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);
comment on table jobq.lane_hint is 'Partition keys that a claim is to look at; ids below 0: that were paused.';

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
comment on table jobq.paused_key is 'Partition keys of queues that are paused. Change them with jobq.act_key.';
comment on column jobq.paused_key.queue is 'The queue.';
comment on column jobq.paused_key.key is 'The partition key.';
comment on column jobq.paused_key.paused_at is 'Since when no job of it is claimed.';
comment on column jobq.paused_key.paused_by is 'Who paused it.';
comment on column jobq.paused_key.pause_reason is 'And why.';
-- For jobq doctor, which names those that are paused for long.
create index paused_key_paused_at_idx on jobq.paused_key (paused_at);

-- The weights of partition keys: how many jobs a turn of the key is long. A key without a row has the weight 1. This is
-- a table of its own, since a weight stays when no job of the key is left.
--
-- Example: of the keys a (weight 3) and b, many jobs wait. Claims of one job each get a a a b a a a b; after the first
-- of these, the lane of a keeps its turn, with due 2. A claim of 10 jobs gets 8 of a and 2 of b: two turns of each, and
-- two jobs of the third turn of a.
create table jobq.key_weight (
  queue  text     not null,
  key    text     not null,
  weight smallint not null,
  constraint key_weight_pkey primary key (queue, key),
  constraint "queue must be 1 to 128 characters" check (char_length(queue) between 1 and 128),
  constraint "partition_key must be 1 to 255 characters" check (char_length(key) between 1 and 255),
  constraint "weight must be 2 to 100" check (weight between 2 and 100)
);
comment on table jobq.key_weight is
  'Partition keys of queues that have a weight other than 1. Change them with jobq.act_key_weight.';
comment on column jobq.key_weight.queue is 'The queue.';
comment on column jobq.key_weight.key is 'The partition key.';
comment on column jobq.key_weight.weight is 'How many of its jobs start where one of a key without a weight does.';

-- The groups of partition keys, in queues with a key_separator. All groups have the same share, however many keys they
-- have, or a share by weight: the weight of the key that has the group's name.
--
-- A lane that becomes ready gets the next turn of its group. So lanes of one group have turns one after the other, and
-- lanes of different groups have equal turns. Each further job that a lane gives moves its group's next turn on by one.
-- A group that had no jobs begins at the queue's clock (lane.group_clock), where the other groups are: it has lost
-- nothing, and owes nothing.
--
-- Example: of the group a, the keys a/1, a/2 and a/3 have one job each, and of b the key b/1 has many. They get the
-- turns 1, 2, 3, and 1. Claims of one job take from a/1, b/1 (then it has 2), a/2, b/1 (then it has 3), a/3, b/1.
--
-- lane.turn holds two things: the turn of the group, which orders lanes first (group_turn), and in its last bits the
-- number of the sequence (lane_group). Only claims that have the queue's turn write this table.
create table jobq.key_group (
  queue     text   not null,
  name      text   not null,
  -- of the lane of the group that becomes ready next; a job of a group with a weight is a part of a turn
  next_turn float8 not null,
  constraint key_group_pkey primary key (queue, name)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);
comment on table jobq.key_group is
  'Groups of partition keys, in queues with a key_separator: which turn each gets next.';
-- Claims delete groups whose next turn is long before the clock.
create index key_group_next_turn_idx on jobq.key_group (queue, next_turn);

-- lane_come adds hints (lane_hint) for keys of which a job became available, or which were resumed. If
-- the queue has had no keys until now, it tells idle workers to read the queue's settings.
create function jobq.lane_come(of_queue text, keys text[]) returns void
  language plpgsql
  as $$
begin
  insert into jobq.lane_hint (queue, key) select of_queue, k.key from unnest(keys) as k(key);
  if jobq.worker_is_waiting(of_queue) and not exists (select from jobq.lane l
      where l.queue = of_queue and l.key = '') then
    perform jobq.notify('settings', of_queue);
  end if;
end $$;

-- lane_pause handles the hints of pauses: the lane of a key that was paused since the last claim becomes not ready, not
-- full and not throttled. It takes up to 1,000 of these hints, and returns whether those were all. Afterwards
-- lane_hints_take and lane_prune leave the lanes of paused keys as they are. The caller has the queue's turn. Needs
-- lane_hint_pkey, paused_key_pkey and lane_pkey only.
create function jobq.lane_pause(of_queue text) returns boolean
  language plpgsql
  as $$
declare
  hints_max constant integer := 1000;
  hints integer;
begin
  with hints_taken as (
    delete from jobq.lane_hint h
      where h.ctid = any(array(select x.ctid from jobq.lane_hint x where x.queue = of_queue and x.id < 0
          order by x.id limit hints_max))
      returning h.key
  ), stopped as (
    update jobq.lane l
      set turn = null, full_limit = null, throttled_until = null, due = null, due_turn = null
      where l.ctid = any(array(
        select (select x.ctid from jobq.lane x
            where x.queue = of_queue and x.key = k.key and (x.turn is not null or x.full_limit is not null
                or x.throttled_until is not null) limit 1)
          from (select e.key from hints_taken e group by e.key) k
          -- It may go on already.
          where (select p.key from jobq.paused_key p where p.queue = of_queue and p.key = k.key limit 1) is not null))
  )
  select count(*) into hints from hints_taken;
  return hints < hints_max;
end $$;

-- lane_hints_take deletes up to hints_max hints of a queue, and makes the lanes of their keys ready, in the order of
-- the hints. Lanes of paused keys and throttled lanes stay as they are.
--
--   after_hint  the id of the last hint that the claim has taken; later hints have a higher id
--   apart       a key without a lane gets none and is returned among fresh, since most such keys are empty before the
--               claim ends
--   shared      other claims run beside this one: the hint of a key stays if another claim has locked its lane, since
--               that claim may have looked at the key before the hint came
--
-- hints is how many it has looked at, and last_hint the id of the last one. readied are the keys whose lanes it has
-- made ready. The caller has the queue's turn. Needs lane_hint_pkey, paused_key_pkey and lane_pkey only.
create function jobq.lane_hints_take(of_queue text, after_hint bigint, hints_max integer, apart boolean, shared boolean)
  returns table (hints integer, last_hint bigint, readied text[], fresh text[])
  language plpgsql
  as $$
begin
  return query
    with found as materialized (
      select x.id, x.key, x.ctid as place from jobq.lane_hint x where x.queue = of_queue and x.id > after_hint
          order by x.id limit hints_max
    ), looked as materialized (
      -- A lane that is ready stays as it is. Nobody has locked it if it has no xmax: whoever does from now on finds
      -- what the hint tells of.
      select e.key, e.first, l.known is not null as known, coalesce(l.stays, false) as stays
        from (select f.key, min(f.id) as first from found f group by f.key) e
        left join lateral (
          select true as known, x.turn is not null and x.looks = '{}'
              and (not lane_hints_take.shared or x.xmax = 0) as stays
            from jobq.lane x where x.queue = of_queue and x.key = e.key limit 1
        ) l on true
    ), others as materialized (
      select o.key
        from looked o
        where lane_hints_take.shared and o.known and not o.stays
          and not exists (select from jobq.lane x where x.queue = of_queue and x.key = o.key limit 1
              for update skip locked)
    ), hints_taken as (
      delete from jobq.lane_hint h
        where h.ctid = any(array(select f.place from found f where f.key not in (select o.key from others o)))
    ), k as materialized (
      select o.key, o.first, o.known
        from looked o
        where not o.stays and o.key not in (select t.key from others t)
          -- asked once
          and ((select p.key from jobq.paused_key p where p.queue = of_queue order by p.key limit 1) is null
            or (select p.key from jobq.paused_key p where p.queue = of_queue and p.key = o.key limit 1) is null)
    ), hinted as (
      insert into jobq.lane as l (queue, key, turn, hinted)
        select of_queue, n.key, n.turn, n.turn
          from (
            select k.key, nextval('jobq.lane_turn_seq') as turn
              from (select x.key from k x where x.known or not lane_hints_take.apart order by x.first) k
          ) n
        on conflict on constraint lane_pkey do update
          set turn = case when l.throttled_until is null then coalesce(l.turn, l.due_turn, excluded.turn) end,
              full_limit = null, hinted = excluded.hinted
          where l.turn is null and l.throttled_until is null or l.looks <> '{}'
        returning l.key, l.turn in (l.hinted, l.due_turn) as readied
    )
    select (select count(*) from found)::integer, (select max(f.id) from found f), array(select h.key from hinted h
        where h.readied),
      array(select k.key from k where not k.known and lane_hints_take.apart order by k.first);
end $$;

-- lane_hints_add adds hints (lane_hint) for keys of which jobs have ended, if the queue has a limit of its
-- keys. With to_wake it wakes idle workers: the transaction will not claim itself.
create function jobq.lane_hints_add(of_queue text, keys text[], to_wake boolean) returns void
  language plpgsql
  as $$
begin
  if not exists (select from jobq.queue q where q.name = of_queue and q.key_limit is not null) then
    return; -- an end makes no key ready
  end if;
  insert into jobq.lane_hint (queue, key) select of_queue, k.key from unnest(keys) as k(key);
  if to_wake and jobq.worker_is_waiting(of_queue) then
    perform jobq.wake('work', of_queue);
  end if;
end $$;

-- lane_failed says whether a run has failed for good. It is planned anew for each lease, so that it locks
-- only one day of the history.
create function jobq.lane_failed(of_job bigint, of_lease bigint) returns boolean
  language plpgsql stable
  set plan_cache_mode = force_custom_plan set jit = off
  as $$
begin
  return exists (select from jobq.run r where r.id = of_job and r.lease_id = of_lease and r.state = 'failed');
end $$;

-- lane_freed says that a job of a key, null or '' for none, was cancelled or deleted: others of its key may have waited
-- for it.
create function jobq.lane_freed(of_queue text, of_key text) returns void
  language plpgsql security definer set search_path = pg_catalog, pg_temp
  as $$
begin
  if of_key <> '' then
    perform jobq.lane_hints_add(of_queue, array[of_key], true);
  end if;
end $$;

-- How many jobs of a queue, or of a key, may run at once or start in a time.

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
comment on table jobq.throttle is 'How far queues with a rate have used it.';

-- rate_burst_default is the burst of a rate for which none was set: the jobs of a tenth of a second, 1 at
-- least. A burst makes up for claims that come a little late: with a burst of 1, each late claim
-- would lower the rate.
create function jobq.rate_burst_default(rate_jobs integer, rate_period interval) returns integer
  language sql immutable parallel safe
  return least(greatest(ceil(rate_jobs * 0.1 / extract(epoch from rate_period)), 1), 1000000)::integer;

-- rate_step_us is the time from one job to the next at a rate, in microseconds, rounded up.
create function jobq.rate_step_us(rate_jobs integer, rate_period interval) returns bigint
  language sql immutable parallel safe
  return ceil(extract(epoch from rate_period) * 1000000 / rate_jobs)::bigint;

-- rate_ready_at is until when a rate is used up, at the time `at`, after it has changed from a step of was_step_us to
-- step_us: never before `at`. What was used of the earlier rate counts in jobs. Example: 5 jobs were used ahead, at 1 s
-- each; with 100 ms a job it is 500 ms from now. What lies further ahead than twice the burst, and 10 s, is of a clock
-- that was set back since, or of a burst that was far larger: nothing of the rate counts as used.
create function jobq.rate_ready_at(ready_at timestamptz, was_step_us bigint, step_us bigint, burst integer,
    at timestamptz) returns timestamptz
  language sql stable parallel safe
  return at + case
      when extract(epoch from ready_at - at) * 1000000 * step_us / was_step_us > 2 * burst * step_us::numeric + 10000000
          then 0
      else greatest(least(ceil(extract(epoch from ready_at - at) * 1000000 * step_us / was_step_us),
          burst * step_us::numeric), 0)
    end * interval '1 us';

-- throttle_ready_at is until when a queue's rate is used up, at the time `at`, for a rate of this step and burst
-- (rate_ready_at).
create function jobq.throttle_ready_at(of_queue text, step_us bigint, burst integer, at timestamptz) returns timestamptz
  language sql stable
  return coalesce((
    select jobq.rate_ready_at(t.ready_at, t.step_us, throttle_ready_at.step_us, throttle_ready_at.burst,
        throttle_ready_at.at)
      from jobq.throttle t
      where t.queue = of_queue
      order by t.number desc
      limit 1), at);

-- throttled_until is when a queue with this rate may start its next job; null if it may
-- do so now.
create function jobq.throttled_until(of_queue text, rate_jobs integer, rate_period interval, rate_burst integer)
    returns timestamptz
  language sql stable
  return (
    select nullif(greatest(jobq.throttle_ready_at(of_queue, r.step_us, r.burst,
        r.at) - (r.burst - 1) * r.step_us * interval '1 us', r.at), r.at)
      from (
        select jobq.rate_step_us(throttled_until.rate_jobs, throttled_until.rate_period) as step_us,
            coalesce(throttled_until.rate_burst, jobq.rate_burst_default(throttled_until.rate_jobs,
                throttled_until.rate_period)) as burst,
            statement_timestamp() as at
      ) r
      where throttled_until.rate_jobs is not null
  );

-- key_throttled_until is when a partition key of a queue with this rate of its keys may start its next job, null when
-- it may do so now. Needs lane_pkey only.
create function jobq.key_throttled_until(of_queue text, of_key text, rate_jobs integer, rate_period interval,
    rate_burst integer) returns timestamptz
  language sql stable
  return (
    select nullif(greatest(jobq.rate_ready_at(l.rate_ready_at, l.rate_step_us, r.step_us, r.burst,
        r.at) - (r.burst - 1) * r.step_us * interval '1 us', r.at), r.at)
      from (
        select jobq.rate_step_us(key_throttled_until.rate_jobs, key_throttled_until.rate_period) as step_us,
            coalesce(key_throttled_until.rate_burst, jobq.rate_burst_default(key_throttled_until.rate_jobs,
                key_throttled_until.rate_period)) as burst,
            statement_timestamp() as at
      ) r
      cross join lateral (
        select x.rate_ready_at, x.rate_step_us from jobq.lane x
          where key_throttled_until.rate_jobs is not null and x.queue = of_queue and x.key = of_key
            and x.rate_ready_at is not null limit 1
      ) l
  );

-- turn_shareable says whether several claims of a queue may have its turn at once: 200 lanes are ready, and there is no
-- work that needs one claim alone. Such work is a limit or a rate to keep, weights, groups, paused keys to handle, and
-- lanes that must become ready without being taken from. Needs lane_pkey, lane_turn_idx, lane_full_idx,
-- lane_throttled_idx, lane_hint_pkey, key_weight_pkey and queue_pkey only.
create function jobq.turn_shareable(of_queue text) returns boolean
  language plpgsql stable
  as $$
begin
  return exists (select from jobq.lane x where x.queue = of_queue and x.key = '' and x.unheld is not null
      and x.group_clock is null)
    and not exists (select from jobq.queue q where q.name = of_queue
      and (q.max_running is not null or q.rate_jobs is not null or q.key_limit is not null
          or q.key_rate_jobs is not null or q.key_separator is not null))
    and (select w.key from jobq.key_weight w where w.queue = of_queue order by w.key limit 1) is null
    and (select x.rate_step_us from jobq.lane x where x.queue = of_queue and x.throttled_until is not null
        order by x.rate_step_us limit 1) is null
    and (select h.id from jobq.lane_hint h where h.queue = of_queue and h.id < 0 order by h.id limit 1) is null
    and (select x.full_limit from jobq.lane x where x.queue = of_queue and x.full_limit is not null
        order by x.full_limit limit 1) is null
    and (select count(*) from (select from jobq.lane x where x.queue = of_queue and x.turn is not null
        order by x.turn limit 200) x) = 200;
end $$;

-- queue_admit says how many jobs of a queue may be claimed now, at most jobs_max, and keeps the number for the JobClaim
-- that follows in the same transaction. queue_charge is the last of the three. Without limits all are admitted.
--
-- Claims of one queue take turns: queue_admit locks the turn until the transaction ends. Ends, extensions and inserts
-- do not need the turn, and go on. A claim that carries results is not patient: waiting would delay the storing of the
-- results. It waits for about as long as one other claim takes, is then told that the queue is busy, and asks again. So
-- is any claim that has waited for five seconds.
--
-- The count comes after the lock, in a statement of its own, so that its snapshot has all that was claimed under the
-- lock before:
--
--   limit 3, two run; A and B want one each
--   A  lock; counts 2; claims 1; commits
--   B  lock, after that; counts 3; claims none
--
-- The jobs that run are counted from the leases: their jobs without those that have ended. There is no counter that
-- could be wrong. A job whose end is stored in its own row, and not yet in its lease, counts until it is there. The
-- jobs of a dead worker count until its leases are reaped.
--
-- slots_free is how many of the worker's slots have no job. If the limit leaves more than eight times as many jobs, up
-- to an eighth of those is admitted, to be claimed ahead. A job that waits in a worker counts as running.
--
-- With sharing, a claim of 100 jobs or more has the turn together with others like it, if turn_shareable says so.
-- lane_claim says how these keep apart. Claims that do not share wait for all of them, and the other way round. If a
-- limit has come while a sharing claim waited, it is told that the queue is busy.
--
-- blocked says why fewer were admitted than asked for: limit, rate or busy. With rate, wait_ms is how long to wait
-- until half of the burst may start, or all that is asked for: not only the next job, so that claims are few, and never
-- so late that the rate is not reached. Needs queue_pkey, lease_queue_idx and throttle_pkey only.
create function jobq.queue_admit(of_queue text, jobs_max integer, slots_free integer, patient boolean,
    sharing boolean default false)
  returns table (admitted integer, blocked text, wait_ms bigint)
  language plpgsql
  as $$
declare
  shared constant boolean := sharing and jobs_max >= 100 and jobq.turn_shareable(of_queue);
  -- a claim of 1,000 jobs has the turn for about 25 ms
  turn_wait_ms constant integer := case when patient then 5000 else 25 end;
  is_ours boolean; -- the turn
  q record;
  room bigint; -- what the limit leaves
  step bigint;
  burst integer;
  at timestamptz;
  left_us bigint; -- of the burst
begin
  admitted := 0;
  blocked := 'busy';
  wait_ms := 0;
  perform set_config('jobq_claim.running', '', true);
  perform set_config('jobq_claim.shared', shared::text, true);
  is_ours := case when shared then jobq.turn_share('queue ' || of_queue, turn_wait_ms)
      else jobq.turn_take('queue ' || of_queue, turn_wait_ms) end;
  select x.max_running, x.rate_jobs, x.rate_period, x.rate_burst into q from jobq.queue x where x.name = of_queue;
  if not is_ours or shared and (q.max_running is not null or q.rate_jobs is not null) then
    perform set_config('jobq_claim.admitted', '', true);
    return next;
    return;
  end if;
  admitted := jobs_max;
  blocked := '';
  if q.max_running is not null then
    select greatest(q.max_running - coalesce(sum(cardinality(l.job_ids) - cardinality(l.ended_slots)), 0), 0) into room
      from jobq.lease l where l.queue = of_queue;
    if admitted > room / 8 and admitted > least(slots_free, room) then
      admitted := greatest(least(slots_free, room), least(admitted, room / 8));
      blocked := 'limit';
    end if;
    perform set_config('jobq_claim.running', (q.max_running - room)::text, true);
  end if;
  if q.rate_jobs is not null and admitted > 0 then
    step := jobq.rate_step_us(q.rate_jobs, q.rate_period);
    burst := coalesce(q.rate_burst, jobq.rate_burst_default(q.rate_jobs, q.rate_period));
    at := clock_timestamp();
    left_us := burst * step
        - ceil(extract(epoch from jobq.throttle_ready_at(of_queue, step, burst, at) - at) * 1000000)::bigint;
    if left_us / step < admitted then
      wait_ms := greatest(ceil((least(admitted - left_us / step, greatest(burst / 2, 1)) * step
          - left_us % step) / 1000.0), 1);
      admitted := left_us / step;
      blocked := 'rate';
    end if;
  end if;
  perform set_config('jobq_claim.admitted', admitted::text, true);
  return next;
end $$;

-- queue_charge ends a claim of a queue with limits. It takes the claimed jobs from the rate, at the time of the claim:
-- so in no span of time, by claimed_at, have more jobs started than the rate and its burst allow. If the claim is
-- rolled back, so is this.
--
-- It also wakes other workers if the transaction has ended jobs of the queue (ended), found the queue at its limit, and
-- leaves room in it: they may have been refused before. Needs queue_pkey, lease_queue_idx and throttle_pkey only.
create function jobq.queue_charge(of_queue text, ended integer) returns void
  language plpgsql
  as $$
declare
  q record;
  c record;
  step bigint;
  burst integer;
  ready_at timestamptz;
begin
  select x.max_running, x.rate_jobs, x.rate_period, x.rate_burst into q from jobq.queue x where x.name = of_queue;
  if not found or (q.rate_jobs is null and (q.max_running is null or ended = 0)) then
    return;
  end if;
  -- queue_admit has counted after the ends.
  if q.rate_jobs is null
      and nullif(current_setting('jobq_claim.running', true), '')::bigint + ended < q.max_running then
    return;
  end if;
  -- A lease of this transaction's making was claimed since it began, and has no ends. One of
  -- before, which it was told of ends of, is of its writing as well.
  select coalesce(sum(cardinality(l.job_ids) - cardinality(l.ended_slots)), 0) as running,
      coalesce(sum(cardinality(l.job_ids)) filter (where l.xmin = pg_current_xact_id()::xid and l.claimed_at >= now()
          and l.ended_slots = '{}'), 0) as jobs,
      max(l.claimed_at) filter (where l.xmin = pg_current_xact_id()::xid and l.claimed_at >= now()
          and l.ended_slots = '{}') as claimed_at
    into c
    from jobq.lease l where l.queue = of_queue;
  -- Without the lock, as after a claim that was told that it is busy, the throttle is not
  -- written. With it, it is after a change of the rate as well: what was used of the old one
  -- would else come free at its pace.
  step := jobq.rate_step_us(q.rate_jobs, q.rate_period);
  if q.rate_jobs is not null and current_setting('jobq_claim.admitted', true) <> '' and (c.jobs > 0
      or step <> (select t.step_us from jobq.throttle t where t.queue = of_queue order by t.number desc limit 1)) then
    burst := coalesce(q.rate_burst, jobq.rate_burst_default(q.rate_jobs, q.rate_period));
    ready_at := jobq.throttle_ready_at(of_queue, step, burst, coalesce(c.claimed_at, clock_timestamp()))
        + c.jobs * step * interval '1 us';
    with old as (
      delete from jobq.throttle t
        where t.ctid = any(array(select x.ctid from jobq.throttle x where x.queue = of_queue
            order by x.number desc limit 1))
        returning t.number
    )
    insert into jobq.throttle (queue, number, step_us, ready_at)
      values (of_queue, coalesce((select o.number from old o), 0) + 1, step, ready_at);
  end if;
  if c.running < q.max_running and c.running - c.jobs + ended >= q.max_running then
    perform jobq.notify('room', of_queue);
  end if;
end $$;

-- Which keys a claim takes jobs from, and how many of each; and the head of a key whose jobs run in order.

-- lane_pick locks jobs for lane_claim_sets: of each of the keys, in their order, at most its share, and at most wanted
-- jobs of all keys together. It reads one job more than the share of each key, and never reads past jobs of other
-- kinds: it ends before the first key that has such jobs within its share, and mixed says so.
--
-- visited is how many of the keys it has looked at. served, emptied and unserved hold the numbers of these keys,
-- counted from 1:
--
--   emptied   all waiting jobs of the key were locked
--   served    some were locked, and others wait
--   unserved  none was locked, though jobs wait, for example because somebody else has locked them
--
-- last_taken is how many jobs it has locked of the last visited key. Needs pending_claim_idx only.
create function jobq.lane_pick(of_queue text, keys text[], kinds text[], shares integer[], wanted integer)
  returns table (ids bigint[], places tid[], visited integer, mixed boolean, served integer[], emptied integer[],
      unserved integer[], last_taken integer)
  language plpgsql
  as $$
begin
  return query
    with walk as materialized (
      select l.n::integer as n, l.share, w.places, cardinality(w.places) as found,
          coalesce(w.first_other <= l.share, false) as mixed
        from unnest(lane_pick.keys, lane_pick.shares) with ordinality as l(key, share, n)
        cross join lateral (
          select coalesce(array_agg(x.place), '{}') as places, array_position(array_agg(x.fits), false) as first_other
            from (
              select p.ctid as place, p.kind = any(lane_pick.kinds) as fits
                from jobq.pending p
                where p.queue = of_queue and p.partition_key = l.key and p.position is not null
                order by p.priority, p.position
                limit l.share + 1
            ) x
        ) w
    ), chosen as materialized (
      select w.n, w.found, w.places[1 : least(w.found, w.share, lane_pick.wanted - w.before)] as places
        from (
          select x.*, coalesce(sum(least(x.found, x.share))
              over (order by x.n rows between unbounded preceding and 1 preceding), 0) as before,
              bool_or(x.mixed) over (order by x.n rows unbounded preceding) as is_over
            from walk x
        ) w
        where w.before < lane_pick.wanted and not w.is_over
    ), locked as materialized (
      select coalesce(array_agg(y.id), '{}') as ids, coalesce(array_agg(y.place), '{}') as places
        from (
          -- Of a job that was changed since the statement began, the place is another one.
          select x.id, x.ctid as place
            from jobq.pending x
            where x.ctid = any(array(select unnest(c.places) from chosen c)) and x.queue = of_queue
              and x.position is not null and x.kind = any(lane_pick.kinds)
            for update skip locked
        ) y
    ), lane as materialized (
      select c.n, c.found, cardinality(c.places) - case -- seldom is any missed
          when (select cardinality(k.places) from locked k) = (select sum(cardinality(o.places)) from chosen o) then 0
          else (select count(*) from unnest(c.places) as p(place)
              where p.place not in (select unnest(k.places) from locked k))
        end as taken
        from chosen c
    )
    select k.ids, k.places, r.n, exists (select from walk w where w.n = r.n + 1 and w.mixed),
        array(select l.n from lane l where l.taken > 0 and l.taken < l.found order by l.n),
        array(select l.n from lane l where l.taken = l.found order by l.n),
        array(select l.n from lane l where l.taken = 0 and l.found > 0 order by l.n),
        (select l.taken from lane l where l.n = r.n)::integer
      from locked k
      cross join (select coalesce(max(l.n), 0) as n from lane l) r;
end $$;

-- lane_weights sums up the weights of lanes, and the jobs that are due of their turns. The lanes are the first ones
-- with a turn after after_turn and up to to_turn, and then the given keys, which have no lane: lanes_max of both
-- together at most. Needs lane_turn_idx and key_weight_pkey only.
create function jobq.lane_weights(of_queue text, after_turn bigint, to_turn bigint, keys text[], lanes_max integer)
  returns table (weights integer, dues integer)
  language plpgsql
  as $$
begin
  return query
    select coalesce(sum(w.weight), 0)::integer, coalesce(sum(least(w.due, w.weight)), 0)::integer
      from (
        select k.due, coalesce((select x.weight from jobq.key_weight x where x.queue = of_queue and x.key = k.key
            limit 1), 1)::integer as weight
          from (
            (select x.key, x.due from jobq.lane x
              where x.queue = of_queue and x.turn is not null and x.turn > after_turn and x.turn <= lane_weights.to_turn
                  order by x.turn limit lanes_max)
            union all
            select f.key, null from unnest(lane_weights.keys) as f(key)
            limit lane_weights.lanes_max
          ) k
      ) w;
end $$;

-- lane_shares returns, for each of the keys, the number of jobs that a claim of wanted jobs takes, where some keys have
-- weights (lane_claim has the rule, and explains turns_at_once). dues is what is left of each key's current turn. lefts
-- is what is left of its next turn after the share was taken: 0 if the lane goes to the back, null if that turn has not
-- begun. Needs key_weight_pkey and lane_pkey only.
create function jobq.lane_shares(of_queue text, keys text[], wanted integer, turns_at_once text)
  returns table (shares integer[], dues integer[], lefts integer[])
  language plpgsql
  as $$
begin
  return query
    with own as materialized (
      select w.n, w.weight, least(w.due, w.weight) as due
        from (
          select k.n,
              coalesce((select x.weight from jobq.key_weight x where x.queue = of_queue and x.key = k.key
                  limit 1), 1)::integer as weight,
              (select x.due from jobq.lane x where x.queue = of_queue and x.key = k.key limit 1) as due
            from unnest(lane_shares.keys) with ordinality as k(key, n)
        ) w
    ), over as materialized ( -- what the claim takes beyond the turns that the keys have
      select greatest(lane_shares.wanted - sum(o.due), 0)::integer as jobs, sum(o.weight)::integer as weights from own o
    ), part as materialized (
      select o.n, o.due, o.weight, v.jobs > 0 and turns_at_once = 'all' as laps,
          case
            when v.jobs = 0 or turns_at_once = 'one' then 0
            when turns_at_once = 'all' then v.jobs / v.weights
            else ceil(lane_shares.wanted::float8 / v.weights)::integer - 1
          end * o.weight as more,
          least(greatest(v.jobs % v.weights - (sum(o.weight) over (order by o.n) - o.weight), 0),
              o.weight)::integer as begun
        from own o
        cross join over v
    )
    select array_agg(p.due + p.more + case when p.laps then p.begun else 0 end order by p.n), array_agg(p.due
        order by p.n),
        array_agg(case when not p.laps then 0 when p.begun > 0 then p.weight - p.begun end order by p.n)
      from part p;
end $$;

-- lane_note is for a queue that has got a key_limit: it makes the lanes hold what was claimed before. Each call looks
-- at leases of 1,000 jobs, and returns whether all of them are noted. Needs lane_pkey, lease_queue_idx or lease_pkey,
-- and run_id_idx only.
create function jobq.lane_note(of_queue text) returns boolean
  language plpgsql
  as $$
declare
  jobs_max constant integer := 1000;
  begins bigint := (select l.unheld from jobq.lane l where l.queue = of_queue and l.key = '');
  ends bigint;
begin
  if begins is null then
    return true;
  end if;
  with batch as materialized (
    select s.id, s.job_ids, s.ended_slots
      from (
        select l.id, l.job_ids, l.ended_slots,
            sum(cardinality(l.job_ids)) over (order by l.id) - cardinality(l.job_ids) as before
          from (select x.id, x.job_ids, x.ended_slots from jobq.lease x where x.queue = of_queue and x.id > begins
              order by x.id limit jobs_max) l
      ) s
      where s.before < jobs_max
  ), runs as materialized (
    select r.partition_key as key, s.id as lease, j.slot::smallint as slot
      from batch s
      cross join lateral unnest(s.job_ids) with ordinality as j(id, slot)
      cross join lateral (select x.partition_key from jobq.run x where x.id = j.id and x.lease_id = s.id limit 1) r
      where j.slot <> all(s.ended_slots) and r.partition_key is not null
  ), noted as (
    insert into jobq.lane as l (queue, key, held_leases, held_slots)
      select of_queue, r.key, array_agg(r.lease), array_agg(r.slot) from runs r group by r.key
      on conflict on constraint lane_pkey do update
        set held_leases = l.held_leases || excluded.held_leases, held_slots = l.held_slots || excluded.held_slots
  )
  select max(s.id) into ends from batch s;
  if not exists (select from jobq.lease x where x.queue = of_queue and x.id > ends) then
    ends := null;
  end if;
  update jobq.lane l set unheld = ends where l.queue = of_queue and l.key = '';
  return ends is null;
end $$;

-- rate_again_at is when a claim looks again at a key whose rate is used up until ready_at: when its next job may start.
-- At a fast rate it is later, so that there are fewer claims: when half of the burst may start, or as many jobs as
-- start in 10 ms, whichever are fewer.
create function jobq.rate_again_at(ready_at timestamptz, step_us bigint, burst integer) returns timestamptz
  language sql stable parallel safe
  return ready_at - (burst - greatest(least(burst / 2, 10000 / step_us), 1)) * step_us * interval '1 us';

-- lane_due makes lanes ready whose throttling is over, and returns how many: up to lanes_max whose time has come, and
-- as many whose time is further ahead than it may be, since the clock was set back (rate_ready_at). step_us and burst
-- are of the queue's rate of its keys now, 0 for no rate. Lanes that were throttled by another rate become ready too,
-- lanes_max of slower ones and lanes_max of faster ones; their next claim counts what they have used by the new rate.
-- It also deletes up to lanes_max lanes of which nothing waits, nothing runs, and nothing of the rate is used. The
-- caller has the queue's turn. Needs lane_throttled_idx and lane_spent_idx only.
create function jobq.lane_due(of_queue text, step_us bigint, burst integer, lanes_max integer) returns integer
  language plpgsql
  as $$
declare
  at constant timestamptz := clock_timestamp();
  due integer;
begin
  update jobq.lane l
    set turn = coalesce(l.due_turn, nextval('jobq.lane_turn_seq')), throttled_until = null
    where l.ctid = any(
      array(select x.ctid from jobq.lane x
        where x.queue = of_queue and x.rate_step_us = lane_due.step_us and x.rate_burst = lane_due.burst
          and x.throttled_until <= at
        order by x.throttled_until limit lanes_max)
      || array(select x.ctid from jobq.lane x
        where x.queue = of_queue and x.rate_step_us = lane_due.step_us and x.rate_burst = lane_due.burst
          and x.throttled_until > at + interval '10 s' + 2 * lane_due.burst * lane_due.step_us * interval '1 us'
        order by x.throttled_until desc limit lanes_max)
      || array(select x.ctid from jobq.lane x
        where x.queue = of_queue and (x.rate_step_us, x.rate_burst) < (lane_due.step_us, lane_due.burst)
          and x.throttled_until is not null
        order by x.rate_step_us, x.rate_burst, x.throttled_until limit lanes_max)
      || array(select x.ctid from jobq.lane x
        where x.queue = of_queue and (x.rate_step_us, x.rate_burst) > (lane_due.step_us, lane_due.burst)
          and x.throttled_until is not null
        order by x.rate_step_us, x.rate_burst, x.throttled_until limit lanes_max));
  get diagnostics due = row_count;
  delete from jobq.lane l
    where l.ctid = any(array(
      select x.ctid from jobq.lane x
        where x.queue = of_queue and x.turn is null and x.full_limit is null and x.throttled_until is null
          and x.held_leases = '{}'
          and x.rate_ready_at <= case when lane_due.step_us > 0 then at else 'infinity' end
        order by x.rate_ready_at limit lanes_max));
  return due;
end $$;

-- lane_unfill makes lanes ready that were full with another limit than key_limit, which is null for no limit: up to
-- lanes_max with a lower limit, and as many with a higher one. lanes is how many became ready, and more says whether
-- others are left. The caller has the queue's turn. Needs lane_full_idx only.
create function jobq.lane_unfill(of_queue text, key_limit integer, lanes_max integer, out lanes integer,
    out more boolean)
  language plpgsql
  as $$
declare
  new_limit constant integer := coalesce(key_limit, 1000000);
begin
  update jobq.lane l
    set turn = coalesce(l.due_turn, nextval('jobq.lane_turn_seq')), full_limit = null
    where l.ctid = any(
      array(select x.ctid from jobq.lane x where x.queue = of_queue and x.full_limit < new_limit
          order by x.full_limit limit lanes_max)
      || array(select x.ctid from jobq.lane x where x.queue = of_queue and x.full_limit > new_limit
          order by x.full_limit limit lanes_max));
  get diagnostics lanes = row_count;
  more := exists (select from jobq.lane x where x.queue = of_queue and x.full_limit < new_limit
      order by x.full_limit limit 1)
    or exists (select from jobq.lane x where x.queue = of_queue and x.full_limit > new_limit
        order by x.full_limit limit 1);
end $$;

-- lane_look_again makes up to 10 full lanes ready at which no claim has looked for a minute, at most once a
-- second, in case a hint is missing. A look that lies ahead is of a clock that was set back, and counts as long ago.
-- The caller has the queue's turn. Needs lane_pkey and lane_full_idx only.
create function jobq.lane_look_again(of_queue text, key_limit integer) returns void
  language plpgsql
  as $$
begin
  update jobq.lane l
    set looked_at = statement_timestamp()
    where l.queue = of_queue and l.key = ''
      and (coalesce(l.looked_at, '-infinity') < statement_timestamp() - interval '1 s'
          or l.looked_at > statement_timestamp() + interval '1 s')
      and (exists (select from jobq.lane x where x.queue = of_queue and x.full_limit = key_limit
          and x.looked_at < statement_timestamp() - interval '1 minute' order by x.looked_at limit 1)
        or exists (select from jobq.lane x where x.queue = of_queue and x.full_limit = key_limit
          and x.looked_at > statement_timestamp() + interval '1 minute' order by x.looked_at desc limit 1));
  if found then
    update jobq.lane l
      set turn = coalesce(l.due_turn, nextval('jobq.lane_turn_seq')), full_limit = null
      where l.ctid = any(
        array(select x.ctid from jobq.lane x where x.queue = of_queue and x.full_limit = key_limit
          and x.looked_at < statement_timestamp() - interval '1 minute' order by x.looked_at limit 10)
        || array(select x.ctid from jobq.lane x where x.queue = of_queue and x.full_limit = key_limit
          and x.looked_at > statement_timestamp() + interval '1 minute' order by x.looked_at desc limit 10));
  end if;
end $$;

-- lane_next is the next job of a key that may run, in a queue with a key_order, when none of the key's jobs runs; no
-- row if none waits.
--
-- The jobs of a key run in the order of their line. A job that has run and comes back gets another place there, mostly
-- at the end. So the job that ran last, the key's head, is found by its id (lane_head): while it waits it is the next
-- one, whatever its place. waits says that the key has to wait for its head, because the head waits for its retry or
-- for other jobs (step_await); with the order pass, the key does not wait. With the order stop, a head that has failed
-- for good stops its key until it is requeued or deleted.
--
-- Example: 7, 8 and 9 wait. 7 runs, fails, and waits for its retry. Until then hold takes nothing, and pass takes 8.
-- When 7 has failed for the last time, hold takes 8, and stop takes nothing.
--
-- Needs lane_head_pkey, pending_pkey, pending_claim_idx and run_id_idx only.
create function jobq.lane_next(of_queue text, of_key text, of_order text)
  returns table (job_id bigint, waits text, waits_until timestamptz)
  language plpgsql stable
  as $$
declare
  head record;
  waiting record;
begin
  select h.job_id, h.lease_id into head from jobq.lane_head h where h.queue = of_queue and h.key = of_key;
  if head.job_id is not null then
    select p.id, p.position, p.run_at, p.waits into waiting from jobq.pending p
      where p.id = head.job_id and p.queue = of_queue and p.partition_key = of_key;
    if waiting.position is not null then
      return query select head.job_id, null::text, null::timestamptz;
      return;
    elsif waiting.id is not null and of_order <> 'pass' then
      return query select head.job_id, case when waiting.waits then 'waiting' else 'retry' end, case
          when waiting.waits is null then waiting.run_at::timestamptz end;
      return;
    elsif waiting.id is null and of_order = 'stop' and jobq.lane_failed(head.job_id, head.lease_id) then
      return query select head.job_id, 'failed', null::timestamptz;
      return;
    end if;
  end if;
  return query select p.id, null::text, null::timestamptz
    from jobq.pending p
    where p.queue = of_queue and p.partition_key = of_key and p.position is not null
    order by p.priority, p.position
    limit 1;
end $$;

-- lane_work says whether a queue has a job of these kinds, with a key, that could run now or after the end of a running
-- one. A job does not count if its key is paused or, with a key_order, if the key waits for the retry of its head or is
-- stopped by a failed one. It looks at 1,000 keys. If there are more, the answer is true with a key_order; without one,
-- it is true if a further key has a job of these kinds. Needs pending_claim_idx, pending_pkey, paused_key_pkey, and
-- what lane_next needs.
create function jobq.lane_work(of_queue text, of_order text, kinds text[]) returns boolean
  language plpgsql stable
  set enable_sort = off set enable_seqscan = off set enable_bitmapscan = off set jit = off
  as $$
declare
  last_key text := '';
begin
  for looked in 1 .. 1000 loop
    select p.partition_key into last_key from jobq.pending p
      where p.queue = of_queue and p.position is not null and p.partition_key > last_key
      order by p.partition_key, p.priority, p.position limit 1;
    if not found then
      return false;
    end if;
    continue when exists (select from jobq.paused_key k where k.queue = of_queue and k.key = last_key);
    if of_order is null then
      perform from jobq.pending p
        where p.queue = of_queue and p.partition_key = last_key and p.position is not null
          and p.kind = any(lane_work.kinds)
        order by p.priority, p.position limit 1;
    else
      perform from jobq.lane_next(of_queue, last_key, of_order) n
        where n.waits is null and (select p.kind from jobq.pending p
            where p.id = n.job_id limit 1) = any(lane_work.kinds);
    end if;
    if found then
      return true;
    end if;
  end loop;
  if of_order is null then
    perform from jobq.pending p
      where p.queue = of_queue and p.position is not null and p.partition_key > last_key
        and p.kind = any(lane_work.kinds)
      order by p.partition_key, p.priority, p.position limit 1;
    return found;
  end if;
  return true;
end $$;

-- lane_next_lock locks the next job of a key for lane_claim_each, if it is of these kinds and nobody else has
-- locked it. free is 0 if the key has to wait for its head, which waits for its retry or for other jobs, or
-- has failed; else 1. The caller has the queue's turn.
create function jobq.lane_next_lock(of_queue text, of_key text, of_order text, kinds text[])
  returns table (free integer, ids bigint[], places tid[])
  language plpgsql
  as $$
declare
  head record;
begin
  select n.job_id, n.waits into head from jobq.lane_next(of_queue, of_key, of_order) n;
  free := case when head.waits is null then 1 else 0 end;
  select array[x.id], array[x.ctid] into ids, places
    from jobq.pending x
    -- not by pending_claim_idx, which would walk the key's line
    where free = 1 and x.id = head.job_id and x.queue || '' = of_queue and x.partition_key || '' = of_key
      and x.position is not null and x.kind = any(kinds)
    for update skip locked;
  ids := coalesce(ids, '{}');
  places := coalesce(places, '{}');
  return next;
end $$;

-- lane_take lets one job of a partition key start, beside the claims that go by lanes, if the limit, the rate and the
-- order of the queue's keys allow it, and notes that: it returns whether it may. The job is one that came back
-- (claim_alone), so with an order it is mostly the key's head. A lane that is full afterwards is found to be so by the
-- next claim that looks at it. The caller has the queue's turn. Needs lane_pkey, lane_head_pkey and lease_pkey, and
-- what lane_next needs.
create function jobq.lane_take(q jobq.queue, of_key text, of_job bigint, lease bigint, claimed timestamptz)
    returns boolean
  language plpgsql
  as $$
#variable_conflict use_variable
declare
  key_step constant bigint := jobq.rate_step_us(q.key_rate_jobs, q.key_rate_period);
  key_burst constant integer := coalesce(q.key_rate_burst, jobq.rate_burst_default(q.key_rate_jobs, q.key_rate_period));
  lane jobq.lane;
  ready_at timestamptz;
begin
  if q.key_limit is null and key_step is null then
    return true;
  elsif q.key_limit is not null and exists (select from jobq.lane l
      where l.queue = q.name and l.key = '' and l.unheld is not null) then
    return false; -- what runs is not known yet: see lane_note
  end if;
  select l.* into lane from jobq.lane l where l.queue = q.name and l.key = of_key;
  if q.key_limit <= (
      select count(*) from (select distinct h.lease, h.slot
          from unnest(lane.held_leases, lane.held_slots) as h(lease, slot)) h
        where h.slot <> all(array(select unnest(x.ended_slots) from jobq.lease x where x.id = h.lease))
          and exists (select from jobq.lease x where x.id = h.lease)) then
    return false;
  elsif q.key_order <> 'pass' and exists (
      select from jobq.lane_next(q.name, of_key, q.key_order) n where n.waits is not null and n.job_id <> of_job) then
    return false;
  end if;
  if key_step is not null then
    ready_at := jobq.rate_ready_at(coalesce(lane.rate_ready_at, claimed), coalesce(lane.rate_step_us, key_step),
        key_step, key_burst, claimed);
    if key_burst - extract(epoch from ready_at - claimed) * 1000000 / key_step < 1 then
      return false;
    end if;
    ready_at := ready_at + key_step * interval '1 us';
  end if;
  insert into jobq.lane as l (queue, key, held_leases, held_slots, rate_ready_at, rate_step_us, rate_burst)
    values (q.name, of_key, case when q.key_limit is null then '{}' else coalesce(lane.held_leases, '{}') || lease end,
      case when q.key_limit is null then '{}' else coalesce(lane.held_slots, '{}') || 1::smallint end,
      ready_at, key_step, case when key_step is not null then key_burst end)
    on conflict on constraint lane_pkey do update set held_leases = excluded.held_leases,
      held_slots = excluded.held_slots, rate_ready_at = excluded.rate_ready_at, rate_step_us = excluded.rate_step_us,
          rate_burst = excluded.rate_burst;
  if q.key_order is not null then
    insert into jobq.lane_head as h (queue, key, job_id, lease_id) values (q.name, of_key, of_job, lease)
      on conflict on constraint lane_head_pkey do update set job_id = excluded.job_id, lease_id = excluded.lease_id;
  end if;
  return true;
end $$;

-- Groups of partition keys: the keys of one group share its turns. See docs/decisions/0032.

-- group_turn_first is the first turn that a group has given (key_group): those before it are numbers of lane_turn_seq.
create function jobq.group_turn_first() returns bigint
  language sql immutable parallel safe
  return 4503599627370496; -- 2^52

-- group_turn is the turn of a lane among those of all groups.
create function jobq.group_turn(turn bigint) returns bigint
  language sql immutable parallel safe
  return (turn - jobq.group_turn_first()) >> 20;

-- lane_group gives the lanes that became ready since the last claim a turn of their group (key_group): up to lanes_max
-- of them, in the order in which they became ready. It returns their keys. With weighted, some keys have weights: the
-- turn of such a key is as many jobs long.
--
-- A lane of which no job waits, as is usual after the end of a job, takes no turn from its group: it is due 0 jobs. The
-- last 20 bits of a turn are those of the number that the lane had before, so that two lanes hardly ever have the same
-- turn. The caller has the queue's turn. Needs lane_pkey, lane_turn_idx, pending_claim_idx, key_group_pkey and
-- key_weight_pkey only.
create function jobq.lane_group(of_queue text, separator text, weighted boolean, lanes_max integer) returns text[]
  language plpgsql
  as $$
declare
  clock bigint := (select x.group_clock from jobq.lane x where x.queue = of_queue and x.key = '');
  grouped text[];
begin
  if clock is null then
    clock := 0;
    update jobq.lane x set group_clock = clock where x.queue = of_queue and x.key = '';
  end if;
  with ready as materialized (
    select x.key, x.turn, x.due, split_part(x.key, separator, 1) as name
      from jobq.lane x
      where x.queue = of_queue and x.turn is not null and x.turn < jobq.group_turn_first()
      order by x.turn
      limit lanes_max
  ), own as materialized (
    select r.key, r.turn, r.name, case when f.is_waiting then least(r.due, w.weight) else 0 end as jobs
      from ready r
      cross join lateral (
        select exists (
          select from jobq.pending p where p.queue = of_queue and p.partition_key = r.key and p.position is not null
              order by p.priority, p.position limit 1) as is_waiting
      ) f
      cross join lateral (
        select coalesce(case when weighted then (select x.weight from jobq.key_weight x
            where x.queue = of_queue and x.key = r.key limit 1) end, 1)::integer as weight
      ) w
  ), placed as materialized (
    select o.key, o.turn, o.name, o.jobs, sum(o.jobs) over (partition by o.name order by o.turn) - o.jobs as before
        from own o
  ), began as materialized (
    select g.name, g.jobs,
        greatest((select x.next_turn from jobq.key_group x where x.queue = of_queue and x.name = g.name
            limit 1), clock) as turn,
        coalesce(case when weighted then (select w.weight from jobq.key_weight w
            where w.queue = of_queue and w.key = g.name limit 1) end, 1)::float8 as weight
      from (select p.name, sum(p.jobs) as jobs from placed p group by p.name) g
  ), noted as (
    insert into jobq.key_group (queue, name, next_turn)
      select of_queue, b.name, b.turn + b.jobs / b.weight from began b
      on conflict on constraint key_group_pkey do update set next_turn = excluded.next_turn
  ), turned as (
    insert into jobq.lane as l (queue, key, turn, due)
      select of_queue, p.key, jobq.group_turn_first() + (floor(b.turn + p.before / b.weight)::bigint << 20)
          + (p.turn & 1048575), case when p.jobs = 0 then 0 end
        from placed p join began b on b.name = p.name
      on conflict on constraint lane_pkey do update set turn = excluded.turn, due = coalesce(excluded.due, l.due)
      returning l.key
  )
  select coalesce(array_agg(t.key), '{}') into grouped from turned t;
  return grouped;
end $$;

-- lane_ungroup is for a queue that has no key_separator any more: lanes get turns of lane_turn_seq again, and groups
-- are deleted, up to lanes_max of each with each call. It returns the greater of the two numbers. The caller has the
-- queue's turn. Needs lane_pkey, lane_turn_idx and key_group_pkey only.
create function jobq.lane_ungroup(of_queue text, lanes_max integer) returns integer
  language plpgsql
  as $$
declare
  lanes integer;
  groups integer;
begin
  insert into jobq.lane (queue, key, turn)
    select of_queue, r.key, nextval('jobq.lane_turn_seq')
      from (
        select x.key from jobq.lane x
          where x.queue = of_queue and x.turn is not null and x.turn >= jobq.group_turn_first()
              order by x.turn limit lanes_max
      ) r
    on conflict on constraint lane_pkey do update set turn = excluded.turn;
  get diagnostics lanes = row_count;
  delete from jobq.key_group g
    where g.ctid = any(array(select x.ctid from jobq.key_group x where x.queue = of_queue
        order by x.name limit lanes_max));
  get diagnostics groups = row_count;
  if lanes < lanes_max and groups < lanes_max then
    update jobq.lane x set group_clock = null where x.queue = of_queue and x.key = '';
  end if;
  return greatest(lanes, groups);
end $$;

-- lane_group_shares returns how many jobs a claim takes of each group, where the queue has a key_separator.
--
-- It looks at up to lanes_max lanes with a turn after after_turn and up to to_turn, and at up to lanes_max lanes of the
-- keys in new whose turn is before these. keys and turns are those lanes, in their order. room is how many jobs the
-- claim may take. With with_plain, jobs without a key count as one more group, and wanted is what they leave of room.
--
--   names, group_weights  the groups
--   jobs                  how many to take of each group
--   dues, weights         of the lanes of each group: the sum of the jobs that are due, and the sum of the weights
--
-- Each group gives the jobs that come before one and the same turn (level), one job to a turn: just those that claims
-- of one job each would take. If there are more lanes than it looks at, the level is at most the turn after the last
-- lane. Needs lane_turn_idx, key_group_pkey and key_weight_pkey only.
--
-- Example: 8 jobs are wanted, and the lanes are a/1, a/2 and a/3 with the turns 1, 2 and 3, and b/1 with 1. Both groups
-- give the jobs of the turns 1 to 4: a/1 gives 2, a/2 and a/3 one each, and b/1 gives 4. Of 4 jobs it would be one of
-- a/1, one of a/2, and 2 of b/1.
create function jobq.lane_group_shares(
  of_queue text, separator text, weighted boolean, new text[], after_turn bigint, to_turn bigint, lanes_max integer,
      room integer, with_plain boolean
) returns table (
  names text[], group_weights float8[], jobs integer[], dues integer[], weights integer[], wanted integer, keys text[],
      turns bigint[]
)
  language plpgsql
  as $$
begin
  return query
    with looked as materialized (
      select x.key, x.turn, x.due, split_part(x.key, separator, 1) as name
        from jobq.lane x
        where x.queue = of_queue and x.turn is not null and x.turn > after_turn and x.turn <= lane_group_shares.to_turn
        order by x.turn
        fetch first (lanes_max) rows with ties -- of the same turn, which a pass could end between
    ), each_lane as materialized (
      select l.key, l.turn, l.due, l.name from looked l
      union all
      (select y.key, y.turn, y.due, split_part(y.key, separator, 1)
        from unnest(lane_group_shares.new) as k(key)
        cross join lateral (select x.key, x.turn, x.due from jobq.lane x where x.queue = of_queue and x.key = k.key
            limit 1) y
        where y.turn <= after_turn
        order by y.turn
        limit lanes_max)
    ), own as materialized (
      select l.key, l.name, l.turn, w.weight, least(l.due, w.weight) as due
        from each_lane l
        cross join lateral (
          select coalesce(case when weighted then (select x.weight from jobq.key_weight x
              where x.queue = of_queue and x.key = l.key limit 1) end, 1)::integer as weight
        ) w
    ), each as materialized (
      select g.name, g.first, g.last, g.dues, g.weights,
          coalesce(case when weighted then (select w.weight from jobq.key_weight w
              where w.queue = of_queue and w.key = g.name limit 1) end, 1)::float8 as weight
        from (
          select o.name, jobq.group_turn(min(o.turn)) as first, jobq.group_turn(max(o.turn)) as last,
              sum(o.due)::integer as dues, sum(o.weight)::integer as weights
            from own o group by o.name
        ) g
    ), part as materialized (
      select (lane_group_shares.room - case
          when with_plain and count(*) > 0 then floor(lane_group_shares.room / (sum(e.weight) + 1) + random())
              else 0 end)::integer as wanted
        from each e
    -- over the first groups, for each number of them; the least one is that of those that it reaches
    ), level as materialized (
      select least(min(f.level), case when (select count(*) from looked) >= lanes_max then max(f.last) + 1 end) as turn
        from (
          select e.last,
              (p.wanted + sum(e.weight * e.first) over (order by e.first, e.name)) / sum(e.weight)
                  over (order by e.first, e.name) as level
            from each e cross join part p
        ) f
    ), share as materialized (
      -- without the last digits of the float
      select e.*, ceil(e.weight * greatest(v.turn - e.first, 0) - 0.000001)::integer as jobs
        from each e cross join level v
    )
    select coalesce(array_agg(s.name), '{}'), coalesce(array_agg(s.weight), '{}'), coalesce(array_agg(s.jobs), '{}'),
        coalesce(array_agg(s.dues), '{}'), coalesce(array_agg(s.weights), '{}'), (select p.wanted from part p),
        (select coalesce(array_agg(o.key order by o.turn), '{}')
            from own o), (select coalesce(array_agg(o.turn order by o.turn), '{}') from own o)
      from share s;
end $$;

-- lane_group_charge moves the next turns of groups after a claim: later by the jobs that their lanes gave (taken)
-- beyond their turns (dues), earlier by the jobs that they did not give. A lane that keeps its turn for the rest of its
-- jobs, now or as due_turn, is left out. It also sets the queue's clock, and deletes up to 100 groups whose next turn
-- is more than 1,000 turns before the clock. The caller has the queue's turn. Needs lane_pkey, key_group_pkey,
-- key_group_next_turn_idx and key_weight_pkey only.
create function jobq.lane_group_charge(
  of_queue text, separator text, weighted boolean, clock bigint, keys text[], turns bigint[], dues integer[],
      taken integer[]
) returns void
  language plpgsql
  as $$
declare
  kept_for constant integer := 1000; -- turns of the clock
begin
  update jobq.lane x set group_clock = clock where x.queue = of_queue and x.key = '' and x.group_clock < clock;
  insert into jobq.key_group (queue, name, next_turn)
    select of_queue, g.name,
        coalesce((select x.next_turn from jobq.key_group x where x.queue = of_queue and x.name = g.name limit 1), clock)
          + g.jobs / coalesce(case when weighted then (select w.weight from jobq.key_weight w
              where w.queue = of_queue and w.key = g.name limit 1) end, 1)::float8
      from (
        select split_part(k.key, separator, 1) as name, sum(k.taken - k.due) as jobs
          from unnest(lane_group_charge.keys, lane_group_charge.turns, lane_group_charge.dues,
              lane_group_charge.taken) as k(key, turn, due, taken)
          where (select x.turn = k.turn or x.due_turn = k.turn from jobq.lane x
              where x.queue = of_queue and x.key = k.key limit 1) is not true
          group by 1
      ) g
      where g.jobs <> 0
    on conflict on constraint key_group_pkey do update set next_turn = excluded.next_turn;
  delete from jobq.key_group g
    where g.ctid = any(array(select x.ctid from jobq.key_group x
        where x.queue = of_queue and x.next_turn < clock - kept_for order by x.next_turn limit 100));
end $$;

-- Claims that look at one key after the other, since keys have limits, rates or an order.

-- lane_walk locks up to jobs_max jobs of a key, of these kinds, for lane_claim_each. It reads at most 1,000 jobs of the
-- key's line. If it has read so many and locked fewer than jobs_max, stopped is true, and the new looks has the place:
-- later claims of the same kinds, which kinds_id identifies, go on from there. At the end of the line they begin anew
-- if a hint has come since they began. again says that another claim may find more. Needs pending_claim_idx only.
create function jobq.lane_walk(
  of_queue text, of_key text, kinds text[], kinds_id text, hinted bigint, jobs_max integer,
  inout looks jsonb, out ids bigint[], out places tid[], out stopped boolean, out again boolean
)
  language plpgsql
  as $$
declare
  walk_max constant integer := 1000; -- jobs to look at
  looks_max constant integer := 8; -- sets of kinds that a lane notes a place for
  -- priority, position, and the last hint when it began at the head
  begins constant jsonb := coalesce(looks -> kinds_id, jsonb_build_array(-32769, 0, hinted));
  stop record;
begin
  stopped := false;
  again := false;
  with found as materialized (
    select c.id, c.place
      from (
        select p.ctid as place, p.kind
          from jobq.pending p
          where p.queue = of_queue and p.partition_key = of_key and p.position is not null
            and (p.priority, p.position) > ((begins ->> 0)::integer, (begins ->> 1)::bigint)
          order by p.priority, p.position
          limit walk_max
      ) w
      cross join lateral (
        select x.id, x.ctid as place from jobq.pending x
          where x.ctid = w.place and x.queue = of_queue and x.partition_key = of_key and x.position is not null
            and x.kind = any(kinds)
          for update skip locked
      ) c
      where w.kind = any(kinds)
      limit jobs_max
  )
  select array(select f.id from found f), array(select f.place from found f) into ids, places;
  if cardinality(ids) = jobs_max then
    return;
  end if;
  select p.priority, p.position into stop
    from jobq.pending p
    where p.queue = of_queue and p.partition_key = of_key and p.position is not null
      and (p.priority, p.position) > ((begins ->> 0)::integer, (begins ->> 1)::bigint)
    order by p.priority, p.position
    offset walk_max - 1 limit 1;
  if stop.position is not null then
    looks := looks || jsonb_build_object(kinds_id, jsonb_build_array(stop.priority, stop.position, begins -> 2));
    stopped := true;
    again := true;
  elsif looks ? kinds_id and hinted > (begins ->> 2)::bigint then
    looks := looks || jsonb_build_object(kinds_id, jsonb_build_array(-32769, 0, hinted));
    again := true;
  else
    looks := looks - kinds_id;
  end if;
  if (select count(*) from jsonb_object_keys(looks)) > looks_max then
    looks := jsonb_build_object(kinds_id, looks -> kinds_id);
  end if;
end $$;

-- lane_claim_each locks jobs for lane_claim from one lane after the other: from up to lanes_max lanes, after the turn
-- looked. It is for queues whose keys have a limit, a rate, an order or groups, and for lanes that have jobs of other
-- kinds (lane_claim_sets).
--
-- How much it takes of a key:
-- - An equal part of what is wanted, with weights so many times as much. all_weights and all_dues are the sums over the
--   lanes that share it; lane_claim explains turns_at_once.
-- - With groups, what lane_group_shares says. new are the keys that have just got a turn of their group; wanted is then
--   the room that the claim has, and with with_plain it shares that with jobs without a key.
-- - With a limit, at most what the limit leaves beside the jobs that run. The leases say which ones of held_leases and
--   held_slots still run.
-- - With a rate, at most what the rate leaves at the time claimed. The lane's rate_ready_at moves on. A throttled lane
--   has no turn, so it costs claims nothing until lane_due finds that its time has come. LaneMore says in how many
--   milliseconds the next lane is due, for the worker's timer.
-- - With an order, the next job of the key or none (lane_next_lock). That job is noted as the key's head. A key whose
--   head waits for its retry is handled as a full one.
--
-- All jobs get the same lease, with the slots after slots_used; with lease_per_job, each has one of its own. again
-- says that another claim would find more. looked is the turn of the last lane that it has looked at, and unserved the
-- turn of the last lane that gave nothing. With groups it looks at lanes_max lanes after looked, and at as many of the
-- keys in new before it. Then the new looked is the turn before the first lane that it has not looked at, and unserved
-- counts only lanes before that. Needs lane_pkey, lane_turn_idx, lane_head_pkey, key_weight_pkey, key_group_pkey,
-- key_group_next_turn_idx, pending_pkey, pending_claim_idx, run_id_idx and lease_pkey only.
create function jobq.lane_claim_each(
  of_queue text, q jobq.queue, kinds text[], from_turn bigint, to_turn bigint, lanes_max integer, lanes integer,
      shared boolean,
  weighted boolean, turns_at_once text, all_weights integer, all_dues integer, new text[], with_plain boolean,
  lease bigint, slots_used integer, lease_per_job boolean, claimed timestamptz,
  inout wanted integer, inout looked bigint, inout unserved bigint,
  out ids bigint[], out places tid[], out leases bigint[], out slots smallint[], out again boolean
)
  language plpgsql
  as $$
#variable_conflict use_column
declare
  grouped constant boolean := q.key_separator is not null;
  key_limit constant integer := q.key_limit;
  -- of the rate of each key, in microseconds; null without one
  key_step constant bigint := jobq.rate_step_us(q.key_rate_jobs, q.key_rate_period);
  key_burst constant integer := coalesce(q.key_rate_burst, jobq.rate_burst_default(q.key_rate_jobs, q.key_rate_period));
  kinds_id constant text := hashtextextended(kinds::text, 0)::text;
  walks_left integer := 10; -- lanes of which to look at a thousand jobs
  unlocked text[]; -- keys of lanes that no other claim of a shared turn has locked
  lane record;
  walk record;
  share integer;
  own_weight integer;
  own_due integer;
  beyond boolean := false; -- it takes all turns that lanes have, and more
  begun integer; -- so many jobs of the turn after it are in the share
  left_due integer := 0; -- of the lane's turn: 0 when it goes to the back, null when its next one has not begun
  free integer; -- what the limit leaves of the lane
  rate_free integer; -- what the rate leaves of it
  found_ids bigint[];
  found_places tid[];
  taken integer;
  new_leases bigint[];
  new_slots smallint[];
  group_from constant bigint := looked;
  group_clock bigint;
  group_names text[]; -- of lane_group_shares
  group_own_weights float8[];
  group_jobs integer[];
  group_dues integer[];
  group_weights integer[];
  group_keys text[]; -- the lanes to look at: for what their groups are to give, and then for what that leaves
  group_turns bigint[];
  n_group integer; -- of these groups, that of the lane
  unserved_turns bigint[] := '{}';
  unseen bigint; -- the first turn of those that it has not looked at
  given_keys text[] := '{}'; -- lanes that were looked at, with groups
  given_turns bigint[] := '{}';
  given_dues integer[] := '{}';
  given integer[] := '{}';
begin
  ids := '{}';
  places := '{}';
  leases := '{}';
  slots := '{}';
  again := false;
  if grouped then
    select x.group_clock into group_clock from jobq.lane x where x.queue = of_queue and x.key = '';
    select s.names, s.group_weights, s.jobs, s.dues, s.weights, s.wanted, s.keys, s.turns
      into group_names, group_own_weights, group_jobs, group_dues, group_weights, wanted, group_keys, group_turns
      from jobq.lane_group_shares(of_queue, q.key_separator, weighted, new, looked, to_turn, lanes_max, wanted,
          with_plain) s;
    if wanted = 0 then
      return;
    end if;
  end if;
  unlocked := array(select x.key from jobq.lane x where shared and x.queue = of_queue and x.turn is not null
      and x.turn > looked and x.turn <= to_turn
    order by x.turn limit lanes_max for update skip locked);
  for lane in
    select x.key, x.turn, x.held_leases, x.held_slots, cardinality(x.held_leases) as held_before, x.looks,
        x.looks as looks_before, x.hinted,
        x.rate_ready_at, x.rate_step_us, x.due, x.n,
        case when weighted then (select w.weight from jobq.key_weight w where w.queue = of_queue and w.key = x.key
            limit 1) end as weight
      from (
        (select y.*, null::bigint as n from jobq.lane y
          where not grouped and y.queue = of_queue and y.turn is not null and y.turn > looked and y.turn <= to_turn
            and (not shared or y.key = any(unlocked))
          order by y.turn
          limit lanes_max)
        union all
        (select y.*, k.n from unnest(group_keys || group_keys) with ordinality as k(key, n)
          cross join lateral (select l.* from jobq.lane l where l.queue = of_queue and l.key = k.key limit 1) y
          where grouped
          order by k.n)
      ) x
  loop
    exit when wanted = 0 or walks_left = 0;
    looked := lane.turn;
    if grouped then
      n_group := array_position(group_names, split_part(lane.key, q.key_separator, 1));
      continue when lane.key = any(given_keys) or group_jobs[n_group] <= 0 and lane.n <= cardinality(group_keys);
      own_weight := coalesce(lane.weight, 1);
      own_due := least(lane.due, own_weight);
      -- turns beyond its own
      share := greatest(ceil((group_jobs[n_group] - group_dues[n_group])::float8 / group_weights[n_group]), 0)::integer;
      share := case when group_jobs[n_group] > 0 then least(own_due + own_weight * share, group_jobs[n_group], wanted)
          else least(own_due, wanted) end;
      share := greatest(share, 1); -- where nothing was due
      left_due := case when share < own_due then own_due - share
          else (own_weight - (share - own_due) % own_weight) % own_weight end;
    elsif weighted then
      own_weight := coalesce(lane.weight, 1);
      own_due := least(lane.due, own_weight);
      if all_dues is not null then -- and some have come since they were counted
        all_weights := greatest(all_weights, own_weight);
        all_dues := greatest(all_dues, own_due);
      end if;
      beyond := beyond or turns_at_once = 'all' and coalesce(wanted > all_dues, false);
      begun := case when beyond then least(greatest(wanted - all_dues, 0) % all_weights, own_weight) else 0 end;
      share := own_due + begun + own_weight * case
        when coalesce(wanted <= all_dues, true) or turns_at_once = 'one' then 0
        when turns_at_once = 'all' then (wanted - all_dues) / all_weights
        else ceil(wanted::float8 / all_weights)::integer - 1 end;
      share := least(share, wanted);
      left_due := case when beyond then nullif(own_weight - begun, own_weight) else greatest(own_due - share, 0) end;
      all_weights := all_weights - own_weight;
      all_dues := all_dues - own_due;
    else
      share := ceil(wanted::float8 / greatest(lanes, 1));
    end if;
    if key_limit is not null then
      select coalesce(array_agg(u.lease), '{}'), coalesce(array_agg(u.slot), '{}')
          into lane.held_leases, lane.held_slots
        from (select h.lease, array_agg(distinct h.slot) as slots
            from unnest(lane.held_leases, lane.held_slots) as h(lease, slot) group by h.lease) g
        -- the limit keeps it a lookup
        cross join lateral (select x.ended_slots from jobq.lease x where x.id = g.lease limit 1) x
        cross join lateral (select g.lease, s.slot from unnest(g.slots) as s(slot)
            where s.slot <> all(x.ended_slots)) u;
    else
      lane.held_leases := '{}';
      lane.held_slots := '{}';
    end if;
    free := key_limit - cardinality(lane.held_leases); -- null without a limit
    if free < 0 then -- it was lowered
      free := 0;
    end if;
    if key_step is null then
      lane.rate_ready_at := null; -- an earlier rate's
    else
      lane.rate_ready_at := jobq.rate_ready_at(coalesce(lane.rate_ready_at, claimed),
          coalesce(lane.rate_step_us, key_step), key_step, key_burst, claimed);
      rate_free := floor(key_burst - extract(epoch from lane.rate_ready_at - claimed) * 1000000 / key_step);
    end if;
    if q.key_order is not null and free > 0 and rate_free is distinct from 0 then
      select t.free, t.ids, t.places into free, found_ids, found_places
          from jobq.lane_next_lock(of_queue, lane.key, q.key_order, kinds) t;
    else
      select w.ids, w.places, w.looks, w.stopped, w.again into walk
        from jobq.lane_walk(of_queue, lane.key, kinds, kinds_id, lane.hinted, least(share, free, rate_free),
            lane.looks) w;
      found_ids := walk.ids;
      found_places := walk.places;
      lane.looks := walk.looks;
      again := again or walk.again;
      walks_left := walks_left - walk.stopped::integer;
    end if;
    taken := cardinality(found_ids);
    if grouped and taken > 0 then
      group_clock := greatest(group_clock,
          jobq.group_turn(lane.turn) + floor((taken - 1) / group_own_weights[n_group])::bigint);
    end if;
    if lease_per_job then
      new_leases := array(select jobq.lease_id_next() from generate_series(1, taken));
      new_slots := array_fill(1::smallint, array[taken]);
    else
      new_leases := array_fill(lease, array[taken]);
      new_slots := array(select (slots_used + cardinality(ids) + i)::smallint from generate_series(1, taken) i);
    end if;
    ids := ids || found_ids;
    places := places || found_places;
    leases := leases || new_leases;
    slots := slots || new_slots;
    if key_limit is not null then
      lane.held_leases := lane.held_leases || new_leases;
      lane.held_slots := lane.held_slots || new_slots;
    end if;
    if q.key_order is not null and taken > 0 then
      insert into jobq.lane_head (queue, key, job_id, lease_id) values (of_queue, lane.key, found_ids[1], new_leases[1])
        on conflict on constraint lane_head_pkey do update set job_id = excluded.job_id, lease_id = excluded.lease_id;
    end if;
    if key_step is not null and taken > 0 then
      lane.rate_ready_at := lane.rate_ready_at + taken * key_step * interval '1 us';
      update jobq.lane x set rate_ready_at = lane.rate_ready_at, rate_step_us = key_step, rate_burst = key_burst
        where x.queue = of_queue and x.key = lane.key;
    end if;
    if key_step is not null and taken = rate_free and exists ( -- null would not keep it from being asked
        select from jobq.pending p where p.queue = of_queue and p.partition_key = lane.key and p.position is not null
            and p.id <> all(found_ids)) then
      update jobq.lane x
        set turn = null, throttled_until = jobq.rate_again_at(lane.rate_ready_at, key_step, key_burst),
          rate_ready_at = lane.rate_ready_at, rate_step_us = key_step, rate_burst = key_burst,
          -- its turn is kept for it, as that of a full one
          held_leases = lane.held_leases, held_slots = lane.held_slots, looks = lane.looks,
          due = case when taken = 0 then lane.due when own_due > taken then own_due - taken end,
          due_turn = case when taken = 0 and lane.due is not null or own_due > taken and taken > 0 then lane.turn end
        where x.queue = of_queue and x.key = lane.key;
    elsif taken = free then
      update jobq.lane x
        set turn = null, full_limit = key_limit, looked_at = clock_timestamp(), held_leases = lane.held_leases,
          held_slots = lane.held_slots, looks = lane.looks, due = case when taken = 0 then lane.due
              when own_due > taken then own_due - taken end,
          due_turn = case when taken = 0 and lane.due is not null or own_due > taken and taken > 0 then lane.turn end
        where x.queue = of_queue and x.key = lane.key;
    elsif taken = share or exists ( -- jobs of other kinds, or that somebody has locked
        select from jobq.pending p where p.queue = of_queue and p.partition_key = lane.key and p.position is not null
            and p.id <> all(found_ids)) then
      again := again or taken = share;
      if taken > 0 then
        update jobq.lane x
          set turn = case
              when taken = share and left_due is distinct from 0 and (not grouped or taken < own_due) then lane.turn
              -- it gets one of its group before lanes that became ready by a hint
              when grouped then nextval('jobq.lane_turn_seq') - (1::bigint << 51)
              else nextval('jobq.lane_turn_seq')
            end,
            due = case when left_due > 0 and taken = share then left_due end, due_turn = null,
            held_leases = lane.held_leases, held_slots = lane.held_slots, looks = lane.looks
          where x.queue = of_queue and x.key = lane.key;
      else
        unserved := lane.turn;
        unserved_turns := unserved_turns || lane.turn;
        if cardinality(lane.held_leases) < lane.held_before or lane.looks <> lane.looks_before then
          update jobq.lane x set held_leases = lane.held_leases, held_slots = lane.held_slots, looks = lane.looks
            where x.queue = of_queue and x.key = lane.key;
        end if;
      end if;
    elsif lane.held_leases = '{}' and (lane.rate_ready_at > claimed) is not true then
      delete from jobq.lane x where x.queue = of_queue and x.key = lane.key;
      if q.key_order is not null then
        -- One that somebody has just edited to run later waits, and keeps its key.
        delete from jobq.lane_head h where h.queue = of_queue and h.key = lane.key
          and not exists (select from jobq.pending p where p.id = h.job_id);
      end if;
    else
      update jobq.lane x set turn = null, due = null, due_turn = null, held_leases = lane.held_leases,
          held_slots = lane.held_slots, looks = '{}'
        where x.queue = of_queue and x.key = lane.key;
    end if;
    wanted := wanted - taken;
    lanes := lanes - 1;
    if grouped then
      given_keys := given_keys || lane.key;
      given_turns := given_turns || lane.turn;
      given_dues := given_dues || own_due;
      given := given || taken;
      group_jobs[n_group] := group_jobs[n_group] - taken;
      group_dues[n_group] := group_dues[n_group] - own_due;
      group_weights[n_group] := greatest(group_weights[n_group] - own_weight, 1);
    end if;
  end loop;
  if grouped then
    unseen := (select min(u.turn) from unnest(group_keys, group_turns) as u(key, turn)
        where u.turn > group_from and u.key <> all(given_keys));
    unserved := greatest((select max(b.turn) from unnest(unserved_turns) as b(turn)
        where b.turn < unseen or unseen is null), from_turn);
    looked := greatest(coalesce(unseen - 1, (select max(u.turn) from unnest(group_turns) as u(turn))), group_from);
    perform jobq.lane_group_charge(of_queue, q.key_separator, weighted, group_clock, given_keys, given_turns,
        given_dues, given);
  end if;
end $$;

-- Claims of jobs whose keys have no limit, no rate and no groups: from many keys at once.

-- lane_claim_sets locks jobs for lane_claim where keys have no limit, no rate and no groups (lane_pick): from up to
-- lanes_max lanes at a time until it has found a job, and from at most 1,000 lanes in all. It ends before the first
-- lane that has jobs of other kinds within its share, or in whose line a claim has stopped (looks), and others_follow
-- says so.
--
--   fresh       keys that hints have told of and that have no lane. Such a key gets a lane only if the claim leaves
--               jobs of it
--   hints       how many hints the claim has taken until now, up to the id last_hint. In a new pass (from_turn 0) it
--               takes more if lanes and fresh keys are too few, up to 1,000 in all
--   hints_left  there may be more hints
--   again       another claim would find more
--   readied     keys whose lanes became ready, or are new
--
-- looked is the turn of the last lane that it has looked at, and unserved the turn of the last lane that gave nothing.
-- Needs lane_pkey, lane_turn_idx, lane_hint_pkey, paused_key_pkey, key_weight_pkey and pending_claim_idx only.
create function jobq.lane_claim_sets(
  of_queue text, kinds text[], from_turn bigint, lanes_max integer, weighted boolean, shared boolean, fresh text[],
  hints integer, last_hint bigint, hints_left boolean, inout wanted integer, inout to_turn bigint, inout again boolean,
  inout readied text[], out looked bigint, out unserved bigint, out ids bigint[], out places tid[],
  out others_follow boolean
)
  language plpgsql
  as $$
#variable_conflict use_column
declare
  hints_max constant integer := 1000;
  lanes_left integer := 1000;
  hints_taken record;
  hints_asked integer;
  fresh_turns bigint[] := '{}'; -- which these keys would have
  fresh_seen integer := 0; -- of these
  visited integer := 0; -- lanes, and keys without one
  lanes integer; -- to look at now
  lane_places tid[];
  keys text[]; -- to take from, in the order of their turns
  turns bigint[];
  laned integer; -- so many of these have a lane
  batch record;
  picked record;
  share integer;
  split_shares integer[]; -- of lane_shares
  split_dues integer[];
  split_lefts integer[];
  n_begun integer; -- the place among keys of one that has begun a turn, and keeps it
  due_key text; -- which has begun a turn, and keeps it
  due_left integer;
  emptied text[] := '{}'; -- keys that have nothing left
  served text[] := '{}'; -- keys without a lane that get one at the back
  served_lanes tid[] := '{}'; -- that go to the back
  kept text[] := '{}'; -- keys without a lane that get one with these turns
  kept_turns bigint[] := '{}';
  kept_places tid[] := '{}'; -- of lanes that keep their turns, which they have not begun
  in_order boolean;
begin
  looked := from_turn;
  unserved := from_turn;
  ids := '{}';
  places := '{}';
  others_follow := false;
  while not others_follow and wanted > 0 and lanes_left > 0 loop
    -- Each gives a job, but for those that are empty; and the others as many as those before.
    lanes := least(case when ids = '{}' then lanes_max else lanes_left end,
      greatest(case when ids = '{}' then wanted
          else ceil(wanted::float8 * visited / cardinality(ids)) end, 10))::integer;
    lane_places := case
      when shared then array(select x.ctid from jobq.lane x where x.queue = of_queue and x.turn is not null
          and x.turn > looked and x.turn <= to_turn
        order by x.turn limit lanes for update skip locked)
      else array(select x.ctid from jobq.lane x where x.queue = of_queue and x.turn is not null and x.turn > looked
          and x.turn <= to_turn
        order by x.turn limit lanes)
      end;
    select coalesce(array_agg(x.key order by x.turn), '{}') as keys, coalesce(array_agg(x.turn
        order by x.turn), '{}') as turns,
        coalesce(array_agg(x.ctid order by x.turn), '{}') as lane_places,
        min(x.turn) filter (where x.looks <> '{}') as walked
      into batch
      -- so that no index is read for what is asked of them
      from (select y.key, y.turn, y.looks, y.ctid from jobq.lane y where y.ctid = any(lane_places) offset 0) x
      where x.turn is not null;
    keys := batch.keys;
    turns := batch.turns;
    laned := cardinality(keys);
    while laned + cardinality(fresh) - fresh_seen < lanes and from_turn = 0 and hints_left and hints < hints_max loop
      hints_asked := least(greatest(lanes - laned - cardinality(fresh) + fresh_seen, lanes_max), hints_max - hints);
      select e.hints, e.last_hint, e.readied, e.fresh into hints_taken
          from jobq.lane_hints_take(of_queue, last_hint, hints_asked, true, shared) e;
      last_hint := coalesce(hints_taken.last_hint, last_hint);
      hints_left := hints_taken.hints = hints_asked;
      hints := hints + hints_taken.hints;
      readied := readied || hints_taken.readied;
      -- What this claim has found empty before is for the next one: it would find the jobs again that it has locked.
      served := served || array(select k from unnest(hints_taken.fresh) k intersect select e
          from unnest(emptied) e except select s from unnest(served) s);
      fresh := fresh || array(select k from unnest(hints_taken.fresh) k except select f
          from unnest(fresh || served || kept || emptied) f);
    end loop;
    if cardinality(fresh_turns) < cardinality(fresh) then
      fresh_turns := fresh_turns || array(select nextval('jobq.lane_turn_seq')
          from generate_series(cardinality(fresh_turns) + 1, cardinality(fresh)));
      to_turn := fresh_turns[cardinality(fresh)];
    end if;
    keys := keys || fresh[fresh_seen + 1 : fresh_seen + lanes - laned];
    turns := turns || fresh_turns[fresh_seen + 1 : fresh_seen + lanes - laned];
    exit when keys = '{}';
    share := ceil(wanted::float8 / cardinality(keys));
    if weighted then
      select s.shares, s.dues, s.lefts into split_shares, split_dues, split_lefts
        from jobq.lane_shares(of_queue, keys, wanted,
          case when cardinality(keys) = lanes or looked > from_turn then 'many' when from_turn = 0 then 'all'
              else 'one' end) s;
    end if;
    if batch.walked is not null then -- where claims have stopped in the line of a key, it takes a look of its own
      keys := keys[1 : array_position(turns, batch.walked) - 1];
    end if;
    select p.ids, p.places, p.visited, p.mixed, p.served, p.emptied, p.unserved, p.last_taken into picked
      from jobq.lane_pick(of_queue, keys, kinds,
        case when weighted then split_shares[1 : cardinality(keys)]
            else array_fill(share, array[cardinality(keys)]) end, wanted) p;
    if weighted then
      -- it may have given less than its share
      if cardinality(picked.ids) = wanted and split_lefts[picked.visited] = 0 then
        split_lefts[picked.visited] := greatest(split_dues[picked.visited] - picked.last_taken, 0);
      end if;
      kept := kept || array(select keys[n] from unnest(picked.served) n
          where n > laned and split_lefts[n] is distinct from 0);
      kept_turns := kept_turns || array(select turns[n] from unnest(picked.served) n
          where n > laned and split_lefts[n] is distinct from 0);
      kept_places := kept_places || array(select batch.lane_places[n] from unnest(picked.served) n
          where n <= laned and split_lefts[n] is null);
      n_begun := (select n from unnest(picked.served) n where split_lefts[n] > 0 limit 1);
      if n_begun is not null then
        due_key := keys[n_begun];
        due_left := split_lefts[n_begun];
      end if;
      again := again or picked.served <> '{}';
      picked.served := array(select n from unnest(picked.served) n where split_lefts[n] = 0);
    end if;
    ids := ids || picked.ids;
    places := places || picked.places;
    served := served || array(select keys[n] from unnest(picked.served) n where n > laned);
    served_lanes := served_lanes || array(select batch.lane_places[n] from unnest(picked.served) n where n <= laned);
    emptied := emptied || array(select keys[n] from unnest(picked.emptied) n);
    -- Before more hints are taken: one that has come since would find the lane ready, and that would be all.
    delete from jobq.lane x
        where x.ctid = any(array(select batch.lane_places[n] from unnest(picked.emptied) n where n <= laned));
    kept := kept || array(select keys[n] from unnest(picked.unserved) n where n > laned);
    kept_turns := kept_turns || array(select turns[n] from unnest(picked.unserved) n where n > laned);
    unserved := greatest(unserved, (select turns[max(n)] from unnest(picked.unserved) n));
    fresh_seen := fresh_seen + greatest(picked.visited - laned, 0);
    looked := coalesce(turns[picked.visited], looked);
    wanted := wanted - cardinality(picked.ids);
    lanes_left := lanes_left - cardinality(keys);
    visited := visited + picked.visited;
    others_follow := picked.visited = cardinality(keys) and cardinality(keys) < cardinality(turns) or picked.mixed;
  end loop;
  if from_turn = 0 and cardinality(fresh_turns) < cardinality(fresh) then
    fresh_turns := fresh_turns || array(select nextval('jobq.lane_turn_seq')
        from generate_series(cardinality(fresh_turns) + 1, cardinality(fresh)));
    to_turn := fresh_turns[cardinality(fresh)];
  end if;
  kept := kept || fresh[fresh_seen + 1 : cardinality(fresh)];
  kept_turns := kept_turns || fresh_turns[fresh_seen + 1 : cardinality(fresh)];
  again := again or served <> '{}' or served_lanes <> '{}' or hints_left;
  readied := served || kept || readied;
  if served_lanes <> '{}' then
    -- some may have had more turns than those behind them
    in_order := weighted and cardinality(served_lanes) <= lanes_max;
    if in_order then
      turns := array(select nextval('jobq.lane_turn_seq') from generate_series(1, cardinality(served_lanes)));
    end if;
    update jobq.lane x
      set turn = case when in_order then turns[array_position(served_lanes, x.ctid)]
          else nextval('jobq.lane_turn_seq') end,
        due = null, due_turn = null
      where x.ctid = any(served_lanes);
  end if;
  if kept_places <> '{}' then
    update jobq.lane x set due = null, due_turn = null where x.ctid = any(kept_places) and x.due is not null;
  end if;
  if served <> '{}' or kept <> '{}' then
    insert into jobq.lane (queue, key, turn)
      select of_queue, k.key, k.turn from unnest(kept, kept_turns) as k(key, turn)
      union all
      select of_queue, s.key, nextval('jobq.lane_turn_seq') from unnest(served) as s(key);
  end if;
  if due_key is not null then
    update jobq.lane x set due = due_left, due_turn = null where x.queue = of_queue and x.key = due_key;
  end if;
end $$;

-- Claims of jobs that have partition keys.

-- lane_claim claims jobs with partition keys, as JobClaim claims jobs without. Both are part of one transaction:
-- queue_admit says how many jobs may start, lane_claim takes its part, and JobClaim gets what is left. lane_claim takes
-- nothing if another claim has the queue's turn.
--
-- It first makes lanes ready (lane_hints_take, lane_unfill, lane_due, lane_look_again). Then it takes jobs: of many
-- lanes with one statement (lane_claim_sets), or of one lane after the other (lane_claim_each), which costs some ten
-- times as much for each job.
--
-- Keys take turns. Each ready lane gives the same share of the claim, in the order of turn, and then goes to the back.
-- Within a key, jobs go by priority and position.
--
-- Example: it may take 4 jobs. Many jobs wait with the key a, one with the key b, and others without a key. These are 3
-- lanes, so jobs without a key get 1 or 2 of the 4: by lot, since 4 / 3 is not whole. If lane_claim takes 3, they are 2
-- of a and 1 of b.
--
-- A lane that gives nothing, because its jobs are of other kinds or locked, keeps its turn: otherwise claims for some
-- kinds would put the keys of others back again and again. So that such lanes do not hide the lanes after them, a
-- worker looks at lanes in passes. Each claim of a pass begins after the last lane that gave nothing (from_turn). A
-- pass ends with the turn that was the last one when it began (to_turn); lanes that were served go behind it. Both are
-- 0 for a new pass.
--
-- A weight (key_weight) makes the turn of a key so many jobs long. A lane that has given fewer keeps its turn, and the
-- rest is due. If the key becomes full before that, it gets the turn back when it is ready again. turns_at_once says
-- how many turns of each lane a claim takes:
--
--   all   it looks at all ready lanes: one round of turns after the other, the last one as far as it goes. So the size
--         of claims makes no difference
--   one   it looks at the last lanes of a pass: the next pass takes more
--   many  there are more lanes than it looks at: as many turns as it needs for its jobs, and the last lane may give
--         less
--
-- With a key_separator, lanes are in the order of what their groups have had (key_group). Lanes that became ready since
-- the last claim, or since the setting came, first get their turns of the group, 1,000 with each claim.
--
-- A claim costs as much as the lanes that it takes from, however many are full or empty: those are not looked at again
-- until there is a hint (lane_hint). A lane is deleted when nothing of its key waits or runs. The lane of a paused key
-- is neither ready nor full, so no claim looks at it until the key is resumed. Lanes hold leases and slots only while
-- the queue has a limit of its keys. When it gets one, lane_note comes first, and nothing is taken until it has ended.
--
-- lane_claim moves the jobs to run itself if it has looked at lanes one after the other, or if each job gets a lease of
-- its own. Otherwise it has only locked them, and LaneTake moves them: their places are in the setting
-- jobq_claim.places. To return a thousand rows from a function costs twice as much.
--
-- The setting jobq_claim.lanes says whether another claim of this worker would find more, and where its pass goes on
-- (LaneMore). If a lane that hints made ready still is, other workers may have slots for it, or run its kinds:
-- lane_claim wakes those that are idle. It also does so if the end of a job has made room in a key that is throttled
-- now: workers that did not see it then must learn when the key may go on.
--
-- Only the claim that has the queue's turn writes lanes and takes hints, so no statement here waits for another claim.
-- Claims that share the turn (queue_admit) lock the lanes that they take from, skip lanes that others have locked, and
-- leave the hints of those lanes. Only one of these claims at a time takes hints, since a key without a lane cannot be
-- locked. Each of them says that another claim would find more. If one has not found all that it was to take, the
-- worker's next claim has the turn alone, and misses nothing. Needs lane_pkey, lane_turn_idx, lane_throttled_idx,
-- lane_hint_pkey, key_weight_pkey and lease_pkey, and what the functions need that it calls.
create function jobq.lane_claim(
  of_queue text, of_kinds text[], of_owner text, lease_time interval, lease_per_job boolean, with_plain boolean,
  from_turn bigint, to_turn bigint, again boolean, -- of this pass, that another one would find more
  begin_count smallint default 32767 -- as in JobClaim
) returns table (
  id bigint, lease_token bigint, slot smallint, "position" bigint, priority smallint, attempts smallint,
      max_attempts smallint, crashes smallint,
  queue text, kind text, created_at timestamptz, run_at timestamptz, started_at timestamptz, timeout_ms bigint,
      args jsonb, checkpoint jsonb,
  metadata jsonb, tags text[], last_error text, clear_reason text, has_key boolean, partition_key text, lost smallint
)
  language plpgsql
  as $$
#variable_conflict use_column
declare
  lanes_max integer := 100; -- to look at; in sets, at a time
  hints_max constant integer := 1000;
  room integer := nullif(current_setting('jobq_claim.admitted', true), '')::integer;
  -- the turn
  shared constant boolean := coalesce(nullif(current_setting('jobq_claim.shared', true), '')::boolean, false);
  q jobq.queue;
  counted boolean; -- keys have a limit or a rate
  grouped boolean; -- or a share of their group's
  each_key boolean; -- so they are looked at one by one
  group_clock bigint; -- not null: some lanes may have turns of groups
  new text[] := '{}'; -- keys of lanes that got such turns now
  regrouped integer := 0; -- so many did, or lost them
  key_step bigint; -- of the rate of each key, in microseconds
  key_burst integer;
  throttled boolean; -- some lanes are, perhaps by a rate of before
  due integer := 0; -- lanes that are so no more
  wait_ms bigint; -- until the next one is; null: none is throttled
  unheld bigint;
  unfill_more boolean;
  pauses boolean; -- of keys, since the last claim
  kinds text[]; -- that are not paused
  hints_taken record;
  hints_asked integer := lanes_max; -- hints that were asked for last
  hints integer := 0;
  last_hint bigint := 0; -- the others are behind it, but for those that commit late
  readied text[] := '{}'; -- by hints
  fresh text[] := '{}'; -- keys that hints have told of and that have no lane
  one_by_one boolean;
  many boolean; -- LaneTake takes them
  changed integer := 0; -- lanes that are ready now
  unserved bigint := from_turn; -- turn of the last lane that gave nothing
  looked bigint := from_turn; -- turn of the last lane
  lanes integer; -- that share what is wanted
  weighted boolean; -- some keys of the queue have a weight
  turns_at_once text; -- of each lane, where some keys have a weight: one, many or all
  all_weights integer; -- of the lanes that share what is wanted
  all_dues integer; -- what is left of the turns that these have begun, or are to begin; null: more than wanted
  wanted integer; -- how many to take
  one record; -- of lane_claim_each
  ids bigint[];
  places tid[];
  leases bigint[] := '{}';
  slots smallint[] := '{}';
  lease bigint;
  claimed timestamptz;
  more boolean;
begin
  perform set_config('jobq_claim.lanes', '', true);
  perform set_config('jobq_claim.places', '', true);
  if room is null then
    return;
  end if;
  select x.unheld, x.group_clock, (select h.id from jobq.lane_hint h where h.queue = of_queue and h.id < 0
      order by h.id limit 1) is not null,
      (select w.key from jobq.key_weight w where w.queue = of_queue order by w.key limit 1) is not null,
      (select t.rate_step_us from jobq.lane t where t.queue = of_queue and t.throttled_until is not null
          order by t.rate_step_us limit 1) is not null
    into unheld, group_clock, pauses, weighted, throttled
    from jobq.lane x where x.queue = of_queue and x.key = '';
  if shared and (pauses or unheld is null or group_clock is not null or weighted or throttled
      or exists (select from jobq.queue x
        where x.name = of_queue and (x.key_limit is not null or x.key_rate_jobs is not null
            or x.key_separator is not null))) then
    perform set_config('jobq_claim.lanes', '{1,0,0,0,1}', true); -- it is for a claim with a turn of its own
    return;
  end if;
  if not found then
    if not exists (select from jobq.lane x where x.queue = of_queue)
        -- it has no key yet, or none any more
        and not exists (select from jobq.lane_hint x where x.queue = of_queue and x.id > 0) then
      return;
    end if;
    unheld := 0;
    pauses := true;
    weighted := exists (select from jobq.key_weight w where w.queue = of_queue);
    throttled := true;
    insert into jobq.lane (queue, key, unheld) values (of_queue, '', unheld);
  end if;
  select x.* into q from jobq.queue x where x.name = of_queue;
  if q.paused_at is not null then
    return;
  end if;
  counted := coalesce(q.key_limit, q.key_rate_jobs) is not null;
  grouped := q.key_separator is not null;
  each_key := counted or grouped;
  if q.key_rate_jobs is not null then
    key_step := jobq.rate_step_us(q.key_rate_jobs, q.key_rate_period);
    key_burst := coalesce(q.key_rate_burst, jobq.rate_burst_default(q.key_rate_jobs, q.key_rate_period));
  end if;
  if not each_key and not weighted then
    lanes_max := 50;
  end if;
  if pauses and not jobq.lane_pause(of_queue) then -- the next call goes on
    perform set_config('jobq_claim.lanes', array[1, 0, 0, 0, counted::integer]::text, true);
    return;
  end if;
  if q.key_limit is null and unheld is null then
    update jobq.lane l set unheld = 0 where l.queue = of_queue and l.key = '';
  elsif q.key_limit is not null and unheld is not null and not jobq.lane_note(of_queue) then
    perform set_config('jobq_claim.lanes', '{1,0,0,0,1}', true);
    return;
  end if;
  if each_key then
    hints_asked := hints_max;
  end if;
  select 0 as hints, null::bigint as last_hint, '{}'::text[] as readied, '{}'::text[] as fresh into hints_taken;
  -- without a limit, until there are so many new keys that a claim can begin with them
  while not shared or jobq.turn_take('hints ' || of_queue, 0) loop
    select e.hints, e.last_hint, e.readied, e.fresh into hints_taken
        from jobq.lane_hints_take(of_queue, last_hint, hints_asked, not each_key and from_turn = 0, shared) e;
    last_hint := coalesce(hints_taken.last_hint, last_hint);
    hints := hints + hints_taken.hints;
    readied := readied || hints_taken.readied;
    fresh := fresh || array(select k from unnest(hints_taken.fresh) k except select f from unnest(fresh) f);
    exit when hints_taken.hints < hints_asked or cardinality(fresh) >= lanes_max or hints >= hints_max;
  end loop;
  if not shared then
    select u.lanes, u.more into changed, unfill_more from jobq.lane_unfill(of_queue, q.key_limit, lanes_max) u;
  end if;
  if throttled or key_step is not null then
    due := jobq.lane_due(of_queue, coalesce(key_step, 0), coalesce(key_burst, 0), lanes_max);
    changed := changed + due;
  end if;

  lanes := least(lanes_max, cardinality(fresh) + (select count(*) from (
    select from jobq.lane x where x.queue = of_queue and x.turn is not null and x.turn > from_turn
        order by x.turn limit lanes_max) x));
  if weighted then
    turns_at_once := case when lanes = lanes_max then 'many' when from_turn = 0 then 'all' else 'one' end;
    if with_plain or room > lanes then
      select w.weights, w.dues into all_weights, all_dues
          from jobq.lane_weights(of_queue, from_turn, 9223372036854775807, fresh, lanes_max) w;
    end if;
  end if;
  if q.key_limit is not null then
    perform jobq.lane_look_again(of_queue, q.key_limit);
  end if;

  if grouped then
    new := jobq.lane_group(of_queue, q.key_separator, weighted, hints_max);
    regrouped := cardinality(new);
    -- lanes that have no turn of their group yet are for a later claim
    looked := greatest(from_turn, jobq.group_turn_first() - 1);
  elsif group_clock is not null then
    regrouped := jobq.lane_ungroup(of_queue, hints_max);
  end if;

  if from_turn = 0 then
    to_turn := coalesce((select x.turn from jobq.lane x where x.queue = of_queue and x.turn is not null
        order by x.turn desc limit 1), 0);
    again := false;
  else
    again := again or changed > 0 or readied <> '{}' or regrouped > 0; -- which are behind to_turn, or were passed by
  end if;
  again := again or due >= lanes_max or coalesce(unfill_more, false);
  wanted := room;
  if not grouped and with_plain and lanes > 0 then
    wanted := room - floor(room::float8 / (coalesce(all_weights, lanes) + 1) + random())::integer;
  end if;
  kinds := array(select k.kind from unnest(of_kinds) as k(kind)
    where k.kind <> all(array(select x.name from jobq.kind x where x.paused_at is not null)) order by k.kind);
  claimed := clock_timestamp();
  lease := jobq.lease_id_next();

  if each_key then
    ids := '{}';
    places := '{}';
    one_by_one := true;
    again := again or hints_taken.hints = hints_asked;
  else
    select s.wanted, s.to_turn, s.again, s.readied, s.looked, s.unserved, s.ids, s.places, s.others_follow
      into wanted, to_turn, again, readied, looked, unserved, ids, places, one_by_one
      from jobq.lane_claim_sets(of_queue, kinds, from_turn, lanes_max, weighted, shared, fresh, hints, last_hint,
        hints_taken.hints = hints_asked, wanted, to_turn, again, readied) s;
    if one_by_one and wanted > 0 and to_turn > looked then
      lanes := (select count(*) from (
        select from jobq.lane x where x.queue = of_queue and x.turn is not null and x.turn > looked
            and x.turn <= to_turn order by x.turn limit lanes_max) x);
      if weighted then
        turns_at_once := case when lanes = lanes_max or looked > from_turn then 'many' when from_turn = 0 then 'all'
            else 'one' end;
        select w.weights, w.dues into all_weights, all_dues
            from jobq.lane_weights(of_queue, looked, to_turn, '{}', lanes_max) w where wanted > lanes;
      end if;
    end if;
  end if;
  many := not one_by_one and not lease_per_job;
  if lease_per_job then
    leases := array(select jobq.lease_id_next() from generate_series(1, cardinality(ids)));
    slots := array_fill(1::smallint, array[cardinality(ids)]);
  elsif not many then
    leases := array_fill(lease, array[cardinality(ids)]);
    slots := array(select i::smallint from generate_series(1, cardinality(ids)) i);
  end if;
  if one_by_one and wanted > 0 and to_turn > looked then
    select e.* into one from jobq.lane_claim_each(of_queue, q, kinds, from_turn, to_turn, lanes_max, lanes, shared,
      weighted, turns_at_once, all_weights, all_dues, new, with_plain, lease, cardinality(ids), lease_per_job, claimed,
          wanted, looked, unserved) e;
    wanted := one.wanted;
    looked := one.looked;
    unserved := one.unserved;
    ids := ids || one.ids;
    places := places || one.places;
    leases := leases || one.leases;
    slots := slots || one.slots;
    again := again or one.again;
  end if;
  again := again or shared;
  more := again;
  if shared and wanted > 0 then
    unserved := 0; -- so that the pass begins anew: it may have passed by lanes
  elsif exists (
      select from jobq.lane x where x.queue = of_queue and x.turn is not null and x.turn > looked and x.turn <= to_turn
          order by x.turn limit 1) then
    more := true;
  else
    unserved := 0; -- the pass is over
  end if;
  if key_step is not null then
    select greatest(ceil(extract(epoch from x.throttled_until - clock_timestamp()) * 1000), 1) into wait_ms
      from jobq.lane x
      where x.queue = of_queue and x.rate_step_us = key_step and x.rate_burst = key_burst
        and x.throttled_until is not null
      order by x.throttled_until limit 1;
  end if;
  perform set_config('jobq_claim.admitted',
      (nullif(current_setting('jobq_claim.admitted', true), '')::integer - cardinality(ids))::text, true);
  perform set_config('jobq_claim.lanes', array[more::integer, unserved, to_turn, again::integer, counted::integer,
      wait_ms]::text, true);
  if jobq.worker_is_waiting(of_queue)
      and exists (
        select from unnest(readied) as r(key)
          cross join lateral (select from jobq.lane x where x.queue = of_queue and x.key = r.key
            and (x.turn is not null or q.key_limit is not null and x.throttled_until is not null) limit 1) x) then
    perform jobq.wake('work', of_queue);
  end if;
  if many then
    perform set_config('jobq_claim.places', places::text, true);
    return;
  end if;
  if ids = '{}' then
    return;
  end if;
  insert into jobq.lease (id, claimed_at, expires_at, begun, owner, queue, job_ids)
    select s.lease, claimed, claimed + lease_time, begin_count, of_owner, of_queue, s.ids
      from (
        select lease, ids where not lease_per_job
        union all
        select s.lease, array[s.id] from unnest(ids, leases) as s(id, lease) where lease_per_job
      ) s(lease, ids);
  return query
    with taken as (
      delete from jobq.pending p
        where p.ctid = any(places)
        returning p.*
    )
    insert into jobq.run as r
      select n.*
        from taken t
        join unnest(ids, leases, slots) as s(id, lease, slot) on s.id = t.id
        cross join lateral jobq.run_of(row(t.*)::jobq.pending, s.lease, s.slot) n
      returning r.id, r.lease_id, r.slot, r.position, r.priority, r.attempts, r.max_attempts, r.crashes, r.queue,
        r.kind, r.created_at, coalesce(r.run_at, r.created_at), claimed,
            coalesce(ceil(extract(epoch from r.timeout) * 1000), 0)::bigint,
        coalesce(r.args, (select a.args from jobq.payload a where a.job_id = r.id)), r.checkpoint,
        r.metadata, r.tags, r.last_error, r.clear_reason, r.unique_key is not null, r.partition_key, r.lost;
end $$;

-- What the janitor clears away of partition keys.

-- lane_prune does for queues that nobody claims from what claims do for the others: it takes hints, and deletes lanes
-- of which nothing waits or runs. If it has found no lane for a day, each time that it looked, it deletes the row '':
-- then workers claim from the queue as from one that never had keys.
--
-- Each call looks at up to row_count hints and up to row_count lanes of one queue: of after_queue behind after_key and
-- after_hint, or of the next queue if after_key is ''. It returns where it has ended; last_queue is null after the last
-- queue. It skips a queue while a claim has its turn. Needs lane_pkey, lane_hint_pkey, paused_key_pkey, key_group_pkey,
-- pending_claim_idx and lease_pkey only.
create function jobq.lane_prune(after_queue text, after_key text, after_hint bigint, row_count integer)
  returns table (last_queue text, last_key text, last_hint bigint)
  language plpgsql
  set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off
      set enable_sort = off set jit = off
  as $$
declare
  hints integer;
  readied boolean;
  lanes integer;
begin
  last_queue := after_queue;
  last_key := '';
  last_hint := 0;
  if after_key = '' then
    last_queue := least(
      (select x.queue from jobq.lane x where x.queue > after_queue order by x.queue, x.key limit 1),
      (select x.queue from jobq.lane_hint x where x.queue > after_queue order by x.queue, x.id limit 1));
  end if;
  if last_queue is null or not jobq.turn_take('queue ' || last_queue, 25) then -- as queue_admit
    return next;
    return;
  end if;
  perform jobq.lane_pause(last_queue);
  with hints_taken as (
    delete from jobq.lane_hint h
      where h.queue = last_queue and h.id = any(array(
        select x.id from jobq.lane_hint x
          where x.queue = last_queue and x.id > case when after_key = '' then 0 else after_hint end
          order by x.id limit row_count for update skip locked))
      returning h.id, h.key
  ), due as materialized (
    select e.key
      from (select x.key from hints_taken x group by x.key) e
      -- asked once
      where (select p.key from jobq.paused_key p where p.queue = last_queue order by p.key limit 1) is null
        or (select p.key from jobq.paused_key p where p.queue = last_queue and p.key = e.key limit 1) is null
  ), hinted as (
    insert into jobq.lane as l (queue, key, turn, hinted)
      select last_queue, k.key, k.turn, k.turn
        from (select p.key, nextval('jobq.lane_turn_seq') as turn from due p) k
      on conflict on constraint lane_pkey do update
        set turn = case when l.throttled_until is null then coalesce(l.turn, l.due_turn, excluded.turn) end,
            full_limit = null, hinted = excluded.hinted
        where l.turn is null and l.throttled_until is null or l.looks <> '{}'
      returning l.turn in (l.hinted, l.due_turn) as readied
  )
  select e.hints, coalesce(e.last, after_hint), (select bool_or(h.readied) from hinted h) into hints, last_hint, readied
    from (select count(*) as hints, max(e.id) as last from hints_taken e) e;
  if hints > 0 and not exists (select from jobq.lane x where x.queue = last_queue and x.key = '') then
    insert into jobq.lane (queue, key, unheld) values (last_queue, '', 0);
  end if;
  if readied and jobq.worker_is_waiting(last_queue) then -- who is notified of the hint has not found it
    perform jobq.wake('work', last_queue);
  end if;
  with looked as materialized (
    select x.key, x.held_leases, x.held_slots, x.rate_ready_at
      from jobq.lane x where x.queue = last_queue and x.key > after_key order by x.key limit row_count
  ), over as materialized (
    select k.key
      from looked k
      where (
          select p.id from jobq.pending p
            where p.queue = last_queue and p.partition_key = k.key and p.position is not null
            order by p.priority, p.position limit 1
        ) is null
        and (
          select u.lease
            from unnest(k.held_leases, k.held_slots) as u(lease, slot)
            -- the limit keeps it a lookup
            cross join lateral (select from jobq.lease x where x.id = u.lease and u.slot <> all(x.ended_slots)
                limit 1) x
            limit 1
        ) is null
        -- Else the key would have its whole burst again.
        and (k.rate_ready_at > statement_timestamp() and exists (select from jobq.queue q
            where q.name = last_queue and q.key_rate_jobs is not null)) is not true
  ), gone as (
    delete from jobq.lane l where l.queue = last_queue and l.key = any(array(select o.key from over o))
  )
  select count(*), max(k.key) into lanes, last_key from looked k;
  if hints < row_count and lanes < row_count then
    last_key := '';
    if not exists (select from jobq.lane x where x.queue = last_queue and x.key > '')
        and not exists (select from jobq.lane_hint x where x.queue = last_queue) then
      delete from jobq.key_group g
        where g.ctid = any(array(select x.ctid from jobq.key_group x where x.queue = last_queue
            order by x.name limit row_count))
          and exists (select from jobq.lane l where l.queue = last_queue and l.key = ''
              and l.looked_at < statement_timestamp() - interval '1 day');
      delete from jobq.lane l where l.queue = last_queue and l.key = ''
          and l.looked_at < statement_timestamp() - interval '1 day'
        -- else later
        and (select x.name from jobq.key_group x where x.queue = last_queue order by x.name limit 1) is null;
      if found then
        perform jobq.turn_forget('queue ' || last_queue), jobq.turn_forget('hints ' || last_queue);
      end if;
      update jobq.lane l set looked_at = statement_timestamp() where l.queue = last_queue and l.key = ''
          and l.looked_at is null;
    else
      update jobq.lane l set looked_at = null where l.queue = last_queue and l.key = '' and l.looked_at is not null;
    end if;
  else
    last_key := coalesce(last_key, after_key);
  end if;
  return next;
end $$;

-- lane_head_prune deletes the rows of lane_head that nobody needs any more. That is so if the queue has no
-- order; if it gets one again, jobs of before hold nobody. It is also so if the key has no lane, because
-- nothing of it runs or is in the line, and the job neither waits nor stops its key. Each call looks at
-- row_count keys after the given place, and returns where it has ended; null after the last one. It waits
-- for no lock. Needs queue_pkey, lane_head_pkey, lane_pkey, pending_pkey and run_id_idx only.
create function jobq.lane_head_prune(after_queue text, after_key text, row_count integer)
  returns table (last_queue text, last_key text)
  language plpgsql
  set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off
      set enable_sort = off set jit = off
  as $$
declare
  over_queues text[];
  over_keys text[];
  over_jobs bigint[];
  over_leases bigint[];
begin
  with looked as materialized (
    select h.queue, h.key, h.job_id, h.lease_id from jobq.lane_head h
      where (h.queue, h.key) > (after_queue, after_key)
      order by h.queue, h.key limit row_count
  ), over as materialized (
    select k.*
      from looked k
      cross join lateral (select (select q.key_order from jobq.queue q where q.name = k.queue limit 1) as key_order) q
      where q.key_order is null
        or (select l.key from jobq.lane l where l.queue = k.queue and l.key = k.key limit 1) is null
        and (select p.id from jobq.pending p where p.id = k.job_id limit 1) is null
        and (q.key_order <> 'stop' or not jobq.lane_failed(k.job_id, k.lease_id))
  )
  select array(select o.queue from over o), array(select o.key from over o), array(select o.job_id
      from over o), array(select o.lease_id from over o),
      (select k.queue from looked k offset row_count - 1 limit 1), (select k.key
          from looked k offset row_count - 1 limit 1)
    into over_queues, over_keys, over_jobs, over_leases, last_queue, last_key;
  -- A claim may have noted another one since, or be about to.
  delete from jobq.lane_head d
    where d.ctid = any(array(
      select h.place
        from unnest(over_queues, over_keys, over_jobs, over_leases) as o(queue, key, job_id, lease_id)
        cross join lateral (
          select x.ctid as place from jobq.lane_head x
            where x.queue = o.queue and x.key = o.key and x.job_id = o.job_id and x.lease_id = o.lease_id
            for update skip locked
        ) h));
  return next;
end $$;

-- How jobs come in: one by one, many at once, and by a plain INSERT, from any language.

-- pending_json_require raises for a job whose JSON is too long or nested too deeply. pending_before_insert leaves out
-- args over 1000 bytes, which have their CHECK in payload.
create function jobq.pending_json_require(args jsonb, metadata jsonb, checkpoint jsonb) returns void
  language plpgsql
  as $$
begin
  perform jobq.json_require('args', args, jobq.args_bytes_max()), jobq.json_require('metadata', metadata, 65536),
    jobq.json_require('checkpoint', checkpoint, 1048576);
end $$;

-- Called only for the few rows that need it: see the trigger's WHEN. Of args that are stored in at most 100 bytes, the
-- text cannot be too long, and in at most 800, they cannot be nested too deeply. To make the text costs less than to
-- call this function.
create function jobq.pending_before_insert() returns trigger
  language plpgsql security definer set search_path = pg_catalog, pg_temp
  as $$
declare
  holder bigint;
  apart boolean := pg_column_size(new.args) > 1000; -- once: it may be compressed here, and not where it is an argument
begin
  -- what has been claimed was accepted: a limit lowered since must not keep it from coming back
  if new.lease_token = 0 then
    perform jobq.pending_json_require(case when not apart then new.args end, new.metadata, new.checkpoint);
  end if;
  -- a suspect: see pending_suspect_idx
  if new.run_at > clock_timestamp()
      or new.crashes >= least(2, coalesce(new.lost + 1, new.max_attempts - new.attempts)) then
    new.position := null;
  end if;
  new.partition_key := coalesce(new.partition_key, ''); -- as an application writes that has none
  if (new.position is null and new.waits is null or new.partition_key <> '')
      -- to set it costs as much as all the rest
      and current_setting('jobq_pending.marked', true) is distinct from 'on' then
    perform set_config('jobq_pending.marked', 'on', true); -- for pending_after_insert
  end if;
  if new.unique_key is not null then
    holder := jobq.unique_key_take(new.kind, new.unique_key, new.id);
    if holder <> new.id then
      raise unique_violation using
        message = jobq.unique_key_problem(new.kind, new.unique_key, holder),
        hint = 'The function enqueue returns the id of that job instead.',
        constraint = 'unique_key_pkey', table = 'unique_key';
    end if;
  end if;
  if apart then
    insert into jobq.payload (job_id, args) values (new.id, new.args);
    new.args := null;
    new.args_apart := true;
  end if;
  return new;
end $$;
create trigger pending_before_insert before insert on jobq.pending
  for each row when (new.run_at > now() or new.position is null or new.crashes > 0 or new.unique_key is not null
      or new.partition_key is distinct from ''
    or pg_column_size(new.args) > 100 and (pg_column_size(new.args) > 800 or octet_length(new.args::text) > 10000)
    or pg_column_compression(new.args) is not null or new.metadata is not null or new.checkpoint is not null)
  execute function jobq.pending_before_insert();

create function jobq.pending_before_update() returns trigger
  language plpgsql security definer set search_path = pg_catalog, pg_temp
  as $$
begin
  perform jobq.pending_json_require(new.args, new.metadata, new.checkpoint); -- args over 1000 bytes are not here
  return new;
end $$;
create trigger pending_before_update before update of args, metadata, checkpoint on jobq.pending
  for each row when (new.args is distinct from old.args or new.metadata is distinct from old.metadata
      or new.checkpoint is distinct from old.checkpoint)
  execute function jobq.pending_before_update();

-- pending_after_insert tells the janitor when the earliest of the new jobs becomes due, if the janitor sleeps until
-- then (sleep_announce), and adds hints for claims of keys. It is called only in transactions in which
-- pending_before_insert has seen such a job. It is one trigger for both, because each insert of a single job pays a few
-- microseconds for every trigger with a WHEN.
create function jobq.pending_after_insert() returns trigger
  language plpgsql security definer set search_path = pg_catalog, pg_temp
  as $$
declare
  due timestamptz;
begin
  select min(i.run_at) into due from inserted i where i.position is null and i.waits is null;
  if extract(epoch from due) * 1000 < pg_sequence_last_value('jobq.asleep_seq') then
    perform jobq.notify('due', extract(epoch from due)::text);
  end if;
  perform jobq.lane_come(k.queue, k.keys)
    from (
      select i.queue, array_agg(distinct i.partition_key::text) as keys
        from inserted i where i.partition_key <> '' and i.position is not null
        group by i.queue
    ) k;
  return null;
end $$;
create trigger pending_after_insert after insert on jobq.pending
  referencing new table as inserted
  for each statement when (current_setting('jobq_pending.marked', true) = 'on')
  execute function jobq.pending_after_insert();

-- pending_after_update adds the same hints when a job with a key becomes available later, or goes to another queue. For
-- the latter it adds a hint for the key in the old queue, too (lane_hints_add).
create function jobq.pending_after_update() returns trigger
  language plpgsql security definer set search_path = pg_catalog, pg_temp
  as $$
begin
  if new.position is not null then
    perform jobq.lane_come(new.queue, array[new.partition_key::text]);
  end if;
  if old.queue <> new.queue then
    perform jobq.lane_hints_add(old.queue, array[old.partition_key::text], true);
  end if;
  return null;
end $$;
create trigger pending_after_update after update on jobq.pending
  for each row when (new.partition_key <> ''
    and (old.queue <> new.queue or new.position is not null
        and (old.position is null or old.partition_key <> new.partition_key)))
  execute function jobq.pending_after_update();

-- after_require raises an error for a value that cannot be the id of a job to wait for.
create function jobq.after_require(after bigint[]) returns void
  language plpgsql
  as $$
declare
  odd bigint;
begin
  select u.id into odd from unnest(after) as u(id) where u.id is null or u.id < 1 limit 1;
  if found then
    raise sqlstate 'JQ001' using message = format('after must be ids of jobs, not %s', coalesce(odd::text, 'null'));
  end if;
end $$;

-- after_failure_require raises an error for a policy that does not exist.
create function jobq.after_failure_require(policy text) returns void
  language plpgsql
  as $$
begin
  if policy not in ('cancel', 'run', 'wait') then
    raise sqlstate 'JQ001'
        using message = format('after_failure must be cancel, run or wait, not %L', left(policy, 40));
  end if;
end $$;

-- enqueue adds one job and returns its id. With a unique_key that an
-- unfinished job of the kind holds, it adds nothing and returns that job's id:
-- enqueue_many tells the two apart. uniqueness says how long a key is held, that it is
-- made of the args, and what is done when it is held: see unique_rule.
-- Every argument but kind may be left out or null, which means its default: that of the kind (kind_setting), or that of
-- all kinds.
-- With its owner's rights: whoever chooses ids himself could choose one that a
-- running job has, and then neither row could move.
-- The job waits until the jobs of after are over; after_failure says what becomes of it
-- when one of them fails or is cancelled: see docs/dependencies.md.
-- It calls enqueue_arrays in few lines, since the context of an error has all of them: after_jobs says there that the
-- job, the first, waits for all of after.
create function jobq.enqueue(
  kind         text,
  args         jsonb       default null,
  queue        text        default null,
  priority     bigint      default null,
  run_at       timestamptz default null,
  max_attempts bigint      default null,
  unique_key   text        default null,
  timeout      interval    default null,
  backoff_base interval    default null,
  backoff_max  interval    default null,
  tags         text[]      default null,
  metadata     jsonb       default null,
  after        bigint[]    default null,
  after_failure text       default null,
  partition_key text       default null,
  uniqueness   jsonb       default null,
  max_lost     bigint      default null
) returns bigint
  language plpgsql security definer set search_path = pg_catalog, pg_temp
  as $$
declare
  job_id bigint;
  holder bigint;
  problem text := jobq.job_problem(kind, args, queue, priority, run_at, max_attempts, unique_key, timeout, backoff_base,
    backoff_max, tags, metadata, partition_key, max_lost);
begin
  if problem is not null then
    raise sqlstate 'JQ001' using message = problem, hint = 'docs/sql.md lists the limits of all arguments.';
  end if;
  if enqueue.after_failure is not null then
    perform jobq.after_failure_require(enqueue.after_failure);
  end if;
  if cardinality(enqueue.after) > 0 or enqueue.uniqueness is not null then
    perform jobq.after_require(enqueue.after);
    return (select e.id from jobq.enqueue_arrays(array[kind], array[args], array[queue], array[priority], array[run_at],
      array[null::interval], array[max_attempts], array[unique_key], array[timeout], array[backoff_base],
      array[backoff_max], array[to_jsonb(tags)], array[metadata], array_fill(1, array[coalesce(cardinality(after), 0)]),
      after, array[after_failure], array[partition_key], array[uniqueness], array[max_lost]) e);
  end if;
  if pg_sequence_last_value('jobq.kind_setting_seq') is not null then -- has any kind settings?
    select coalesce(enqueue.max_attempts, k.max_attempts), coalesce(enqueue.priority, k.priority),
        coalesce(enqueue.backoff_base, k.backoff_base), coalesce(enqueue.backoff_max, k.backoff_max),
        coalesce(enqueue.queue, k.queue), coalesce(enqueue.timeout, k.timeout)
      into max_attempts, priority, backoff_base, backoff_max, queue, timeout
      from (values (enqueue.kind)) as j(kind) left join jobq.kind_setting k on k.name = j.kind;
  end if;
  job_id := nextval('jobq.job_id_seq');
  if enqueue.unique_key is not null then
    holder := jobq.unique_key_take(enqueue.kind, enqueue.unique_key, job_id);
    if holder <> job_id then return holder; end if;
  end if;
  insert into jobq.pending (id, kind, args, queue, priority, run_at, max_attempts, unique_key, timeout, backoff_base,
      backoff_max, tags, metadata, partition_key, max_lost)
    values (job_id, enqueue.kind, coalesce(enqueue.args, '{}'), coalesce(enqueue.queue, 'default'),
      coalesce(enqueue.priority, 0), coalesce(enqueue.run_at, now()), coalesce(enqueue.max_attempts,
        jobq.max_attempts_default()), enqueue.unique_key, enqueue.timeout, enqueue.backoff_base, enqueue.backoff_max,
      nullif(enqueue.tags, '{}'), enqueue.metadata, coalesce(enqueue.partition_key, ''), enqueue.max_lost);
  return job_id;
end $$;
comment on function jobq.enqueue(text, jsonb, text, bigint, timestamptz, bigint, text, interval, interval, interval,
    text[], jsonb, bigint[], text, text, jsonb, bigint) is
  'Adds a job and returns its id: docs/sql.md. Only kind is required; null means the default.';

-- enqueue for args and metadata that a driver sends as json, and as text. An
-- untyped value, such as a literal, becomes text: PostgreSQL prefers that to any
-- other type. args has no default here, so that a call without it is the one above.
create function jobq.enqueue(
  kind         text,
  args         json,
  queue        text        default null,
  priority     bigint      default null,
  run_at       timestamptz default null,
  max_attempts bigint      default null,
  unique_key   text        default null,
  timeout      interval    default null,
  backoff_base interval    default null,
  backoff_max  interval    default null,
  tags         text[]      default null,
  metadata     json        default null,
  after        bigint[]    default null,
  after_failure text       default null,
  partition_key text       default null,
  uniqueness   json        default null,
  max_lost     bigint      default null
) returns bigint
  language plpgsql security definer set search_path = pg_catalog, pg_temp
  as $$
begin
  return jobq.enqueue(kind, jobq.json_of('args', args::text), queue, priority, run_at, max_attempts, unique_key,
    timeout, backoff_base, backoff_max, tags, jobq.json_of('metadata', metadata::text), after, after_failure,
        partition_key,
    case when uniqueness is not null then jobq.json_of('uniqueness', uniqueness::text) end, max_lost);
end $$;
comment on function jobq.enqueue(text, json, text, bigint, timestamptz, bigint, text, interval, interval, interval,
    text[], json, bigint[], text, text, json, bigint) is
  'Adds a job and returns its id: docs/sql.md. Only kind is required; null means the default.';

create function jobq.enqueue(
  kind         text,
  args         text,
  queue        text        default null,
  priority     bigint      default null,
  run_at       timestamptz default null,
  max_attempts bigint      default null,
  unique_key   text        default null,
  timeout      interval    default null,
  backoff_base interval    default null,
  backoff_max  interval    default null,
  tags         text[]      default null,
  metadata     text        default null,
  after        bigint[]    default null,
  after_failure text       default null,
  partition_key text       default null,
  uniqueness   text        default null,
  max_lost     bigint      default null
) returns bigint
  language plpgsql security definer set search_path = pg_catalog, pg_temp
  as $$
begin
  return jobq.enqueue(kind, jobq.json_of('args', args), queue, priority, run_at, max_attempts, unique_key, timeout,
    backoff_base, backoff_max, tags, jobq.json_of('metadata', metadata), after, after_failure, partition_key,
    case when uniqueness is not null then jobq.json_of('uniqueness', uniqueness) end, max_lost);
end $$;
comment on function jobq.enqueue(text, text, text, bigint, timestamptz, bigint, text, interval, interval, interval,
    text[], text, bigint[], text, text, text, bigint) is
  'Adds a job and returns its id: docs/sql.md. Only kind is required; null means the default.';

-- jobs_problem says what is wrong with new jobs, given as columns: that they are too many, or what the first one has
-- that has a problem (job_problem).
create function jobq.jobs_problem(
  kinds text[], args jsonb[], queues text[], priorities bigint[], run_ats timestamptz[], delays interval[],
  max_attempts bigint[], unique_keys text[], timeouts interval[], backoff_bases interval[], backoff_maxes interval[],
  tags jsonb[], metadata jsonb[], partition_keys text[], max_losts bigint[]
) returns text
  language plpgsql
  as $$
declare
  problem text;
begin
  if cardinality(kinds) > 100000 then
    return format('jobs must be at most 100000 in one call, not %s', cardinality(kinds));
  end if;
  select format('jobs[%s]: %s', j.i - 1, x.problem) into problem
    from unnest(kinds, args, queues, priorities, run_ats, delays, max_attempts, unique_keys, timeouts, backoff_bases,
        backoff_maxes, tags, metadata, partition_keys, max_losts)
      with ordinality as j(kind, args, queue, priority, run_at, delay, attempts, key, timeout, base, max, tags,
        metadata, partition, max_lost, i)
    cross join lateral (
      -- offset 0, because an argument with a subquery would keep job_problem from being inlined
      select case jsonb_typeof(j.tags) when 'array' then array(select jsonb_array_elements_text(j.tags)) end as tags
        offset 0
    ) t
    cross join lateral (
      select case when jsonb_typeof(j.tags) <> 'array'
          then format('tags must be an array of texts, not %s', jsonb_typeof(j.tags))
        else jobq.job_problem(j.kind, j.args, j.queue, j.priority, coalesce(j.run_at, now() + j.delay), j.attempts,
          j.key, j.timeout, j.base, j.max, t.tags, j.metadata, j.partition, j.max_lost) end as problem
    ) x
    where x.problem is not null
    order by j.i
    limit 1;
  return problem;
end $$;

-- enqueue_arrays adds up to 100,000 jobs in one statement, given as columns: element i of each array belongs to job i,
-- and null means the default. It returns one row for each job, in the same order. The Go client uses it.
--
-- Jobs that wait for others are given by two arrays: after_jobs has the place of such a job, from 1, and after_parents
-- at the same place the id of the job to wait for; a number below 0 is the place of another job of the call
-- (dependencies_add). replaced says that id is the holder of the key, which has got the new args.
create function jobq.enqueue_arrays(
  kinds text[], args jsonb[], queues text[], priorities bigint[], run_ats timestamptz[], delays interval[],
  max_attempts bigint[], unique_keys text[], timeouts interval[], backoff_bases interval[], backoff_maxes interval[],
  tags jsonb[], metadata jsonb[], after_jobs integer[] default null, after_parents bigint[] default null,
  after_failures text[] default null, partition_keys text[] default null, uniques jsonb[] default null,
  max_losts bigint[] default null
) returns table (id bigint, duplicate boolean, replaced boolean)
  language plpgsql security definer set search_path = pg_catalog, pg_temp
  as $$
declare
  problem text := jobq.jobs_problem(kinds, args, queues, priorities, run_ats, delays, max_attempts, unique_keys,
    timeouts, backoff_bases, backoff_maxes, tags, metadata, partition_keys, max_losts);
  job_ids bigint[];
  rules record;
  holders bigint[]; -- of the unique keys: the job itself, or another one
  untils timestamptz[];
  conflicts text[];
  waits boolean[]; -- for other jobs
  replacing boolean[];
begin
  if problem is not null then
    raise sqlstate 'JQ001' using message = problem, hint = 'docs/sql.md lists the limits of all arguments.';
  end if;
  if pg_sequence_last_value('jobq.kind_setting_seq') is not null then -- has any kind settings?
    select d.* into queues, priorities, max_attempts, timeouts, backoff_bases, backoff_maxes
      from jobq.kind_defaults(kinds, queues, priorities, max_attempts, timeouts, backoff_bases, backoff_maxes) d;
  end if;
  select array_agg(nextval('jobq.job_id_seq')) into job_ids from generate_series(1, cardinality(kinds));
  holders := job_ids;
  if uniques is not null then
    rules := jobq.unique_rules(unique_keys, args, uniques, after_jobs);
    unique_keys := rules.keys;
    untils := rules.untils;
    conflicts := rules.conflicts;
  end if;
  if exists (select from unnest(unique_keys) as k(key) where k.key is not null) then
    holders := jobq.unique_keys_take(kinds, unique_keys, job_ids, untils);
    perform jobq.unique_conflicts_refuse(job_ids, holders, kinds, unique_keys, conflicts);
  end if;
  perform jobq.after_failure_require(p.policy) from unnest(after_failures) as p(policy) group by p.policy;
  if cardinality(after_jobs) > 0 then
    waits := jobq.dependencies_add(job_ids, holders, after_jobs, after_parents, after_failures);
  end if;
  insert into jobq.pending (id, position, waits, kind, args, queue, priority, run_at, max_attempts, unique_key, timeout,
      backoff_base, backoff_max, tags, metadata, partition_key, max_lost)
    select j.id, case when j.waits is null then nextval('jobq.position_seq') end, j.waits, j.kind,
        coalesce(j.args, '{}'), coalesce(j.queue, 'default'), coalesce(j.priority, 0),
        coalesce(j.run_at, now() + j.delay, now()), coalesce(j.attempts, jobq.max_attempts_default()), j.key, j.timeout,
        j.base, j.max, case when j.tags is not null then nullif(array(select jsonb_array_elements_text(j.tags)), '{}')
          end, j.metadata, coalesce(j.partition, ''), j.max_lost
      from unnest(job_ids, holders, kinds, args, queues, priorities, run_ats, delays, max_attempts, unique_keys,
          timeouts, backoff_bases, backoff_maxes, tags, metadata, waits, partition_keys, max_losts)
        as j(id, holder, kind, args, queue, priority, run_at, delay, attempts, key, timeout, base, max, tags, metadata,
          waits, partition, max_lost) where j.id = j.holder;
  if uniques is not null then
    replacing := jobq.jobs_replace(job_ids, holders, conflicts, args, priorities, run_ats, delays);
  end if;
  return query select h.holder, h.holder <> h.job_id, coalesce(h.replaced, false)
      from unnest(holders, job_ids, replacing) as h(holder, job_id, replaced);
end $$;

-- Many jobs at once, as a JSON array.

-- object_problem checks a JSON object whose members are to be arguments of enqueue. It returns what is wrong, or null:
-- a member that is not among names, which would otherwise be ignored, a member of another type, or one beyond its
-- limit. It tries one member after the other, which is slow: enqueue_many calls it only if a job looks wrong. A new job
-- needs a kind; with is_change the object changes a job, and needs none.
create function jobq.object_problem(object jsonb, names text[], is_change boolean default false) returns text
  language plpgsql stable
  as $$
declare
  name text;
  value jsonb;
begin
  if jsonb_typeof(object) is distinct from 'object' then
    return format('must be a JSON object such as {"kind": "resize", "args": {}}, not %s',
        coalesce(jsonb_typeof(object), 'null'));
  end if;
  for name, value in select m.key, m.value from jsonb_each(object) m order by m.key loop
    if name <> all(names) then
      return format('unknown member %s; there are %s', to_json(left(name, 128)), array_to_string(names, ', '));
    end if;
    continue when value = 'null'; -- as if it were left out
    if name in ('kind', 'queue', 'unique_key', 'partition_key', 'name', 'after_failure')
        and jsonb_typeof(value) not in ('string', 'number') then
      return format('%s must be text, not %s', name, jsonb_typeof(value));
    end if;
    if name = 'tags' and jsonb_typeof(value) <> 'array' then
      return format('tags must be an array of texts, not %s', jsonb_typeof(value));
    end if;
    begin
      perform r from jsonb_to_record(jsonb_build_object(name, value)) as r(priority bigint, run_at timestamptz,
        max_attempts bigint, max_lost bigint, timeout interval, backoff_base interval, backoff_max interval);
    exception when data_exception then
      return left(format('%s must be %s: %s', name,
        case name when 'priority' then 'a whole number, -32768 to 32767'
            when 'max_attempts' then 'a whole number, 1 to 32767' when 'max_lost' then 'a whole number, 1 to 32767'
          when 'run_at' then 'a time in the years 1 to 9999'
              else 'an interval, positive, at most 10 years' end, sqlerrm), 300);
    end;
  end loop;
  return (
    select jobq.job_problem(case when is_change then coalesce(r.kind, 'k')
        else r.kind end, r.args, r.queue, r.priority, r.run_at,
        r.max_attempts, r.unique_key, r.timeout, r.backoff_base, r.backoff_max,
        case when r.tags is not null then array(select jsonb_array_elements_text(r.tags)) end, r.metadata,
        r.partition_key, r.max_lost)
      from jsonb_to_record(object) as r(kind text, args jsonb, queue text, priority bigint, run_at timestamptz,
        max_attempts bigint, unique_key text, timeout interval, backoff_base interval, backoff_max interval, tags jsonb,
            metadata jsonb,
        partition_key text, max_lost bigint));
end $$;

-- enqueue_many adds the jobs of a JSON array of objects, whose members are
-- the arguments of enqueue: [{"kind": "resize", "args": {"id": 1}}, …]. Other jobs of the
-- array may wait for one by its name: [{"kind": "a", "name": "first"}, {"kind": "b", "after": ["first", 12]}].
create function jobq.enqueue_many(jobs jsonb) returns table (id bigint, duplicate boolean, replaced boolean)
  language plpgsql security definer set search_path = pg_catalog, pg_temp
  as $$
declare
  names constant text[] := '{kind, args, queue, priority, run_at, max_attempts, unique_key, timeout, backoff_base,
    backoff_max, tags, metadata, partition_key, name, after, after_failure, uniqueness, max_lost}';
  texts constant text[] := '{kind, queue, unique_key, partition_key, name, after_failure}';
  odd boolean := false;
  problem text;
  c record; -- the jobs as columns
  children integer[]; -- which wait for others
  parents bigint[];
begin
  if jsonb_typeof(jobs) is distinct from 'array' then
    raise sqlstate 'JQ001' using message = format(
      'jobs must be a JSON array of objects such as {"kind": "resize", "args": {}}, not %s',
          coalesce(jsonb_typeof(jobs), 'null'));
  elsif jsonb_array_length(jobs) > 100000 then
    raise sqlstate 'JQ001'
        using message = format('jobs must be at most 100000 in one call, not %s', jsonb_array_length(jobs));
  end if;
  begin
    odd := exists (
      select from jsonb_array_elements(jobs) as x(job) cross join lateral jsonb_each(x.job) m
        where m.key <> all(names) or m.key = any(texts) and jsonb_typeof(m.value) not in ('string', 'number', 'null'));
    select array_agg(j.kind) as kinds, array_agg(j.args) as args, array_agg(j.queue) as queues,
        array_agg(j.priority) as priorities, array_agg(j.run_at) as run_ats, array_agg(j.max_attempts) as attempts,
        array_agg(j.unique_key) as keys, array_agg(j.timeout) as timeouts, array_agg(j.backoff_base) as bases,
        array_agg(j.backoff_max) as maxes, array_agg(j.tags) as tags, array_agg(j.metadata) as metadata,
        array_agg(j.partition_key) as partition_keys, array_agg(j.after_failure) as policies,
        array_agg(j.name) as names, array_agg(j.after) as afters, count(j.name) + count(j.after) > 0 as linked,
        case when count(nullif(j.uniqueness, 'null')) > 0 then array_agg(j.uniqueness) end as uniques,
        array_agg(j.max_lost) as max_losts
      into c
      from (
        select r.* from jsonb_array_elements(jobs) with ordinality as x(job, i)
          cross join lateral jsonb_to_record(x.job) as r(kind text, args jsonb, queue text, priority bigint,
            run_at timestamptz, max_attempts bigint, unique_key text, timeout interval, backoff_base interval,
            backoff_max interval, tags jsonb, metadata jsonb, partition_key text, name text, after jsonb,
            after_failure text, uniqueness jsonb, max_lost bigint)
          order by x.i
      ) j;
  exception when data_exception then
    odd := true;
  end;
  if odd then -- now find the job and the member
    for i in 0..jsonb_array_length(jobs) - 1 loop
      problem := jobq.object_problem(jobs -> i, names);
      if problem is not null then
        raise sqlstate 'JQ001' using message = format('jobs[%s]: %s', i, problem),
            hint = 'docs/sql.md lists the limits of all members.';
      end if;
    end loop;
  end if;
  if c.linked then
    select n.children, n.parents into children, parents from jobq.dependencies_named(c.names, c.afters) n;
  end if;
  return query select e.id, e.duplicate, e.replaced
    from jobq.enqueue_arrays(c.kinds, c.args, c.queues, c.priorities, c.run_ats, null, c.attempts, c.keys, c.timeouts,
      c.bases, c.maxes, c.tags, c.metadata, children, parents, c.policies, c.partition_keys, c.uniques, c.max_losts)
      e;
end $$;
comment on function jobq.enqueue_many(jsonb) is
  'Adds up to 100,000 jobs, given as an array of objects with the arguments of enqueue, all or none.';

-- enqueue_many for jobs that a driver sends as json, and as text or untyped.
create function jobq.enqueue_many(jobs json) returns table (id bigint, duplicate boolean, replaced boolean)
  language plpgsql security definer set search_path = pg_catalog, pg_temp
  as $$
begin
  return query select * from jobq.enqueue_many(jobq.json_of('jobs', jobs::text));
end $$;
comment on function jobq.enqueue_many(json) is
  'Adds up to 100,000 jobs, given as an array of objects with the arguments of enqueue, all or none.';

create function jobq.enqueue_many(jobs text) returns table (id bigint, duplicate boolean, replaced boolean)
  language plpgsql security definer set search_path = pg_catalog, pg_temp
  as $$
begin
  return query select * from jobq.enqueue_many(jobq.json_of('jobs', jobs));
end $$;
comment on function jobq.enqueue_many(text) is
  'Adds up to 100,000 jobs, given as an array of objects with the arguments of enqueue, all or none.';

-- The line of a queue as people see it: what is next, and what keeps a key back.

-- key_held says whether a limit, a rate or an order of the keys keeps the jobs of a partition key from being claimed.
-- That is so if it is throttled, if the last claim that looked at the key found it full and no place has become free
-- since, or if its head still keeps the others waiting. It looks up the ten oldest places that the key holds. It is for
-- people: a claim looks for itself. Needs lane_pkey, lease_pkey, and what lane_next needs.
create function jobq.key_held(of_queue text, of_key text, key_limit integer, key_order text) returns boolean
  language plpgsql stable
  set enable_sort = off set enable_seqscan = off set enable_bitmapscan = off set jit = off
  as $$
declare
  lane record;
begin
  select x.full_limit, x.held_leases, x.held_slots, x.throttled_until into lane from jobq.lane x
      where x.queue = of_queue and x.key = of_key;
  if lane.throttled_until > statement_timestamp() then
    return true;
  elsif lane.full_limit is null then
    return false;
  elsif cardinality(lane.held_leases) >= key_limit then
    return not exists (
      select from unnest(lane.held_leases[:10], lane.held_slots[:10]) as h(lease, slot)
        where (select h.slot <> all(l.ended_slots) from jobq.lease l where l.id = h.lease limit 1) is not true);
  end if;
  return exists (select from jobq.lane_next(of_queue, of_key, key_order) n where n.waits is not null);
end $$;

-- line_last is the least urgent priority, more urgent than a given one, of the jobs of a partition key, or of those
-- without a key (''); null if there is none. Needs pending_claim_idx, and the settings of line_heads.
create function jobq.line_last(of_queue text, of_key text, before_priority integer) returns smallint
  language plpgsql stable
  as $$
begin
  return (select p.priority from jobq.pending p
    where p.queue = of_queue and p.partition_key = of_key and p.position is not null and p.priority < before_priority
    order by p.priority desc, p.position desc limit 1);
end $$;

-- line_head is the first job of a partition key, or of those without a key (''), that has this priority or a less
-- urgent one. Needs pending_claim_idx, and the settings of line_heads.
create function jobq.line_head(of_queue text, of_key text, from_priority integer)
  returns table (key text, priority smallint, "position" bigint, since timestamptz)
  language plpgsql stable rows 1
  as $$
begin
  return query select p.partition_key::text, p.priority::smallint, p.position, greatest(p.run_at, p.created_at)
    from jobq.pending p
    where p.queue = of_queue and p.partition_key = of_key and p.position is not null and p.priority >= from_priority
    order by p.priority, p.position limit 1;
end $$;

-- line_heads_in_turn is the first job of each key that comes after another one in the order of keys, at its most and at
-- its least urgent priority, for line_heads. Of the keys that may have a job to be claimed it looks at the lines_max
-- whose last turn is longest ago.
create function jobq.line_heads_in_turn(of_queue text, after_key text, lines_max integer)
  returns table (key text, priority smallint, "position" bigint, since timestamptz)
  language plpgsql stable rows 10
  as $$
declare
  paused_max constant integer := 5 * lines_max;
  paused integer := 0;
  looked integer := 0;
  lane_key text;
  head record;
  least_urgent smallint;
begin
  for lane_key in select l.key from jobq.lane l where l.queue = of_queue and l.turn is not null
      order by l.turn limit lines_max + paused_max loop
    -- and no claim has been made since
    if exists (select from jobq.paused_key k where k.queue = of_queue and k.key = lane_key) then
      paused := paused + 1;
      exit when paused = paused_max;
      continue;
    end if;
    exit when looked = lines_max;
    looked := looked + 1;
    continue when lane_key <= after_key;
    select h.key, h.priority, h.position, h.since into head from jobq.line_head(of_queue, lane_key, -32768) h;
    continue when not found;
    return query select head.key, head.priority, head.position, head.since;
    least_urgent := jobq.line_last(of_queue, lane_key, 32768);
    if least_urgent > head.priority then
      return query select h.key, h.priority, h.position, h.since
        from jobq.line_head(of_queue, lane_key, least_urgent) h;
    end if;
  end loop;
end $$;

-- line_heads is the first job of each line of a queue, and since when it could have run. The jobs of a queue form one
-- line for each partition key and priority. The first job of a line has waited longest, except for some that came back.
-- Keys that are paused, or that their limit, rate or order holds, are left out.
--
-- Example: a queue has jobs of two priorities without a key, and of the keys a, which is full, and b.
--
--   key  priority  position  since
--                9        17  11:58   the least urgent priority
--                0       501  12:00
--   b            0       430  11:30
--
-- Of jobs without a key it looks at the lines_max least urgent priorities. Of keys it looks at as many lines, in the
-- order of the index. If there may be more keys, it also looks at lines_max of those that may have a job to be claimed,
-- the ones whose last turn is longest ago, each at its most and least urgent priority. Keys that have jobs but no turn
-- yet, because no claim has been made since, are not among these. Paused keys do not count, up to five times lines_max:
-- otherwise a few paused keys would hide all others. So it costs the same however many jobs and keys there are. Needs
-- pending_claim_idx, lane_turn_idx, paused_key_pkey, and what key_held needs.
create function jobq.line_heads(of_queue text, lines_max integer)
  returns table (key text, priority smallint, "position" bigint, since timestamptz)
  language plpgsql stable rows 10
  set enable_sort = off set enable_seqscan = off set enable_bitmapscan = off set jit = off
  as $$
declare
  q record;
  head record;
  looked integer := 0;
  paused integer := 0;
  at_key text := '';
  at_priority integer := 32768;
  held boolean;
begin
  for line in 1 .. lines_max loop
    at_priority := jobq.line_last(of_queue, '', at_priority);
    exit when at_priority is null;
    return query select h.key, h.priority, h.position, h.since from jobq.line_head(of_queue, '', at_priority) h;
  end loop;
  select x.key_limit, x.key_order, x.key_rate_jobs into q from jobq.queue x where x.name = of_queue;
  at_priority := 32768; -- behind the line of jobs without a key
  loop
    select p.partition_key, p.priority, p.position, greatest(p.run_at, p.created_at) as since into head
      from jobq.pending p
      where p.queue = of_queue and p.position is not null and (p.partition_key, p.priority) > (at_key, at_priority)
      order by p.partition_key, p.priority, p.position limit 1;
    if not found then
      return;
    end if;
    exit when looked = lines_max;
    if head.partition_key <> at_key then
      at_key := head.partition_key;
      if exists (select from jobq.paused_key k where k.queue = of_queue and k.key = at_key) then
        at_priority := 32768;
        paused := paused + 1;
        exit when paused = 5 * lines_max;
        continue;
      end if;
      held := (q.key_limit is not null or q.key_rate_jobs is not null)
          and jobq.key_held(of_queue, at_key, q.key_limit, q.key_order);
    end if;
    at_priority := head.priority;
    looked := looked + 1;
    if held then
      at_priority := 32768;
    else
      return query select head.partition_key::text, head.priority, head.position, head.since;
    end if;
  end loop;
  return query select h.key, h.priority, h.position, h.since
    from jobq.line_heads_in_turn(of_queue, at_key, lines_max) h;
end $$;

-- why_key_runs are the running jobs of a partition key, as a claim counts them: the lane holds
-- what was claimed, and the leases say what has ended. Needs lane_pkey and lease_pkey.
create function jobq.why_key_runs(of_queue text, of_key text) returns bigint[]
  language sql stable
  as $$
    select coalesce(array_agg(l.job_ids[h.slot] order by l.claimed_at, l.job_ids[h.slot]), '{}')
      from jobq.lane x
      cross join lateral unnest(x.held_leases, x.held_slots) as h(lease, slot)
      join jobq.lease l on l.id = h.lease and h.slot <> all(l.ended_slots)
      where x.queue = of_queue and x.key = of_key
  $$;

-- why_before counts the jobs in a line before a place; the line is that of a partition key, or of jobs without one
-- (''). It counts from the place towards the head, because at the head there may be dead index entries of many claims,
-- and stops at count_max. Needs pending_claim_idx, and nothing else whatever the statistics say: without statistics,
-- the planner would sort the whole line (docs/decisions/0002).
create function jobq.why_before(line_queue text, line_key text, line_priority smallint, line_position bigint,
    count_max bigint) returns bigint
  language sql stable
  set enable_sort = off set enable_seqscan = off set enable_bitmapscan = off set jit = off
  as $$
    select count(*)
      from (select from jobq.pending p
        where p.queue = line_queue and p.partition_key = line_key and p.position is not null
          and (p.priority, p.position) < (line_priority, line_position)
        order by p.priority desc, p.position desc
        limit count_max) line
  $$;

-- Sessions and locks that jobs wait for. They have no snapshots: they are read as they are at the moment.

-- why_session is what may be seen of a session of the server. PostgreSQL hides all but the role of other roles'
-- sessions from roles that are not in pg_read_all_stats.
create function jobq.why_session(pid integer) returns jsonb
  language sql stable
  as $$
    select jsonb_strip_nulls(jsonb_build_object('pid', a.pid, 'role', a.usename, 'application',
        nullif(a.application_name, ''), 'state', a.state, 'since', a.xact_start, 'query', left(a.query, 200))
        - case when a.backend_start is null then array['query'] else '{}'::text[] end
        || jsonb_build_object('hidden', a.backend_start is null))
      from pg_catalog.pg_stat_activity a
      where a.pid = why_session.pid
  $$;

-- why_row_locked is the session that has locked a row or is changing it; null if there is none. A row's
-- xmax is the transaction that locked it last. It counts only while that transaction is open and
-- holds a lock on the row's table, too. If several transactions share a lock, xmax
-- is a number of another kind, and no session is found. A prepared transaction has no session.
create function jobq.why_row_locked(row_xmax xid, row_table oid) returns jsonb
  language sql stable
  as $$
    select coalesce(jobq.why_session(x.pid), (
          select jsonb_build_object('prepared', p.gid, 'role', p.owner, 'since', p.prepared)
            from pg_catalog.pg_prepared_xacts p where p.transaction = x.transactionid),
        jsonb_build_object('hidden', true))
      from pg_catalog.pg_locks x
      where x.locktype = 'transactionid' and x.granted and x.mode = 'ExclusiveLock'
        and x.transactionid = why_row_locked.row_xmax
        and exists (
          select from pg_catalog.pg_locks t
            where t.locktype = 'relation' and t.granted and t.virtualtransaction = x.virtualtransaction
              and t.relation = why_row_locked.row_table
              and t.database = (select d.oid from pg_catalog.pg_database d where d.datname = current_database()))
      limit 1
  $$;

-- why_table_locked is a session that has locked, in one of these modes, a table that claims write to; null if there is
-- none.
create function jobq.why_table_locked(modes text[]) returns jsonb
  language sql stable
  as $$
    select coalesce(jobq.why_session(l.pid), jsonb_build_object('hidden', true)) || jsonb_build_object('table',
        c.relname, 'mode', l.mode)
      from pg_catalog.pg_locks l
      join pg_catalog.pg_class c on c.oid = l.relation
      where l.locktype = 'relation' and l.granted and l.mode = any(why_table_locked.modes)
        and l.pid is distinct from pg_backend_pid()
        and l.database = (select d.oid from pg_catalog.pg_database d where d.datname = current_database())
        and c.relnamespace = (select p.relnamespace from pg_catalog.pg_class p where p.oid = 'jobq.pending'::regclass)
        and c.relname in ('pending', 'lease', 'run', 'queue')
      order by c.relname, l.pid
      limit 1
  $$;

-- why_janitor says whether a session holds the janitor's lock. A janitor behind a transaction pooler holds it only
-- while it works. A standby does not know of locks on its primary: then the answer is null.
create function jobq.why_janitor() returns jsonb
  language sql stable
  as $$
    select case when pg_is_in_recovery() then null else to_jsonb(exists (
      select from pg_catalog.pg_locks l
        where l.locktype = 'advisory' and l.granted and l.objid = 1 and l.objsubid = 2
          and l.database = (select d.oid from pg_catalog.pg_database d where d.datname = current_database())
          and l.classid::bigint = (
            select ('x' || left(md5('jobq advisory lock ' || n.nspname), 8))::bit(32)::bigint
              from pg_catalog.pg_class p
              join pg_catalog.pg_namespace n on n.oid = p.relnamespace
              where p.oid = 'jobq.pending'::regclass))) end
  $$;

-- What people do to one job: cancel, requeue, delete, edit.

-- cancel ends a waiting job, and asks the worker of a running one to stop. It returns the job's state afterwards:
-- cancelled, or running until the worker has stopped it, or the state in which the job had already ended; null if there
-- is no such job. A job that is cancelled while it waits gets a lease_id of today, for which there is no lease.
create function jobq.cancel(job_id bigint) returns jobq.job_state
  language plpgsql
  as $$
declare
  ended jobq.job_state;
  was_queue text;
  was_key text;
begin
  if job_id is null then
    raise sqlstate 'JQ001' using message = 'job_id must not be null';
  end if;
  -- A job may change tables between two of these statements, each of which
  -- sees what was committed before it: mostly the second round finds it.
  for round in 1..100 loop
    with taken as (
      delete from jobq.pending p where p.id = cancel.job_id
        returning p.*
    ), counted as (
      insert into jobq.stat_delta (minute, queue, kind, cancelled)
        select date_trunc('minute', clock_timestamp()), t.queue, t.kind, 1 from taken t
    )
    insert into jobq.run as r
      select n.*
        from taken t
        cross join lateral jobq.run_of(row(t.*)::jobq.pending, jobq.lease_id_next(), 0::smallint, 'cancelled',
          clock_timestamp()) n
      returning r.queue, r.partition_key into was_queue, was_key;
    if found then
      perform jobq.lane_freed(was_queue, was_key);
      if pg_sequence_last_value('jobq.awaited_seq') >= extract(epoch from clock_timestamp()) then
        perform jobq.waiters_wake(array[cancel.job_id]);
      end if;
      if pg_sequence_last_value('jobq.dependency_seq') is not null then
        perform jobq.parents_ended(array[cancel.job_id]);
      end if;
      return 'cancelled';
    end if;
    -- Its lease is left alone: the owner may write that meanwhile.
    update jobq.run r
      set cancel_requested_at = coalesce(r.cancel_requested_at, clock_timestamp())
      where r.id = cancel.job_id and (select e.ended_at is null from jobq.run_end(r.lease_id, r.slot, r.finished_at) e);
    if found then
      perform jobq.notify('cancel', cancel.job_id::text);
      return 'running';
    end if;
    select coalesce(r.state, 'completed') into ended
      from jobq.run r
      cross join lateral jobq.run_end(r.lease_id, r.slot, r.finished_at) e
      where r.id = cancel.job_id and e.ended_at is not null;
    if found then
      return ended;
    end if;
    if not jobq.job_exists(cancel.job_id) then
      return null;
    end if;
  end loop;
  perform jobq.moving_refuse(cancel.job_id);
end $$;
comment on function jobq.cancel is
  'Ends a job that waits, or asks the worker of a running one to stop; returns the state afterwards, null for no '
  'such job.';

-- run_renewed is the row of run of a job that is to run again: it has one attempt at least, and all of its max_lost.
create function jobq.run_renewed(ended jobq.run) returns jobq.run
  language plpgsql immutable
  as $$
begin
  ended.attempts := least(ended.attempts, 32766);
  ended.max_attempts := greatest(ended.max_attempts, ended.attempts + 1);
  ended.lost := null;
  return ended;
end $$;

-- requeue makes a finished, scheduled or waiting job available now, with at least one attempt left, and with all of
-- its max_lost if it had ended. It returns the job's state afterwards, or null if there is no such job. It raises an
-- error if the job runs, if its args are gone, or if another unfinished job holds its unique key.
create function jobq.requeue(job_id bigint) returns jobq.job_state
  language plpgsql
  as $$
declare
  kinds text[];
  keys text[];
  holder bigint;
  ended jobq.run;
  went_to jobq.job_state; -- scheduled for a suspect, which has no position
begin
  if job_id is null then
    raise sqlstate 'JQ001' using message = 'job_id must not be null';
  end if;
  for round in 1..100 loop -- see cancel
    -- The key before the row: see unique_keys_take.
    select array[r.kind], array[r.unique_key] into kinds, keys
      from jobq.run r where r.id = requeue.job_id and r.unique_key is not null and r.state is not null;
    if found then
      holder := jobq.unique_key_take(kinds[1], keys[1], requeue.job_id);
      if holder <> requeue.job_id then
        perform jobq.unique_key_refuse(kinds[1], keys[1], holder);
      end if;
    end if;
    delete from jobq.run r
      where r.id = requeue.job_id and (select e.ended_at is not null
          from jobq.run_end(r.lease_id, r.slot, r.finished_at) e)
        and r.unique_key is not distinct from keys[1] -- else it has ended since, and the next round takes its key
      returning r.* into ended;
    if found then
      ended := jobq.run_renewed(ended);
      insert into jobq.pending as p
        select n.* from jobq.pending_of(ended, nextval('jobq.position_seq'), clock_timestamp(), ended.attempts,
          ended.crashes, ended.last_error, null, ended.checkpoint) n
        returning case when p.position is null then 'scheduled' else 'available' end into went_to;
      perform jobq.args_require(requeue.job_id);
      return went_to;
    end if;
    if keys is not null then -- somebody else has requeued or deleted it since
      perform jobq.unique_keys_release(kinds, keys, array[requeue.job_id]);
    end if;
    update jobq.pending p
      set run_at = clock_timestamp(), position = case
          when p.crashes < least(2, coalesce(p.lost + 1, p.max_attempts - p.attempts)) then nextval('jobq.position_seq')
        end, waits = null
      where p.id = requeue.job_id and p.position is null
      returning case when p.position is null then 'scheduled' else 'available' end into went_to;
    if found then
      perform jobq.wake('work', (select p.queue from jobq.pending p where p.id = requeue.job_id));
      return went_to;
    end if;
    if exists (select from jobq.pending p where p.id = requeue.job_id) then
      return 'available';
    end if;
    perform jobq.running_refuse(requeue.job_id);
    if not jobq.job_exists(requeue.job_id) then
      return null;
    end if;
  end loop;
  perform jobq.moving_refuse(requeue.job_id);
end $$;
comment on function jobq.requeue is 'Makes a job that does not run available now; null for no such job.';

-- delete_job deletes a job that does not run, and says whether there was one. It also deletes the job's latest 10,000
-- attempts. Only a job that has snoozed for days can have more; retention deletes the others. (DELETE is a reserved
-- word, hence the name.)
create function jobq.delete_job(job_id bigint) returns boolean
  language plpgsql
  as $$
declare
  deleted boolean := false;
  ended jobq.job_state; -- null: it had not
  held_kind text;
  held_key text;
  was_queue text;
  was_key text;
begin
  if job_id is null then
    raise sqlstate 'JQ001' using message = 'job_id must not be null';
  end if;
  for round in 1..100 loop -- see cancel
    delete from jobq.pending p where p.id = delete_job.job_id
      returning p.kind, p.unique_key, p.queue, p.partition_key into held_kind, held_key, was_queue, was_key;
    deleted := found;
    if not deleted then
      delete from jobq.run r
        where r.id = delete_job.job_id and (select e.ended_at is not null
            from jobq.run_end(r.lease_id, r.slot, r.finished_at) e)
        returning coalesce(r.state, 'completed'), r.kind, r.unique_key, r.queue, r.partition_key
            into ended, held_kind, held_key, was_queue, was_key;
      deleted := found;
    end if;
    if deleted then -- a key that is kept for a time is free as well
      -- One whose time has come is left to the janitor: somebody may be taking it, and others, at this moment.
      delete from jobq.unique_key u where u.kind = held_kind and u.key = held_key and u.job_id = delete_job.job_id
        and not (u.job_over and u.kept_until <= statement_timestamp());
    end if;
    exit when deleted;
    perform jobq.running_refuse(delete_job.job_id);
    if not jobq.job_exists(delete_job.job_id) then
      return false;
    end if;
  end loop;
  if not deleted then
    perform jobq.moving_refuse(delete_job.job_id);
  end if;
  if pg_sequence_last_value('jobq.dependency_seq') is not null then
    perform jobq.parents_ended(array[delete_job.job_id], as_ended => ended);
  end if;
  perform jobq.lane_freed(was_queue, was_key);
  delete from jobq.payload a where a.job_id = delete_job.job_id;
  delete from jobq.progress p where p.job_id = delete_job.job_id;
  delete from jobq.attempt t
    where t.job_id = delete_job.job_id and t.lease_token >= coalesce((
      select a.lease_token from jobq.attempt a where a.job_id = delete_job.job_id
        order by a.lease_token desc offset 9999 limit 1), 0);
  if pg_sequence_last_value('jobq.awaited_seq') >= extract(epoch from clock_timestamp()) then
    perform jobq.waiters_wake(array[delete_job.job_id]);
  end if;
  return true;
end $$;
comment on function jobq.delete_job is 'Removes a job that does not run; returns whether there was one.';

-- job_lock locks a job's row and returns it, with its table and state; null if there is no such job. With whole, it
-- returns everything that belongs to the job: of its attempts the latest 100, and key_until if its unique key is kept
-- for a time. Without, it leaves out what only a delete would lose. A running job may still end with its lease, which
-- is not locked.
create function jobq.job_lock(job_id bigint, whole boolean) returns jsonb
  language plpgsql
  as $$
declare
  ran jobq.run;
  found_row jsonb;
  stage text;
begin
  for round in 1..100 loop -- see cancel
    stage := 'pending';
    select to_jsonb(p) || jsonb_build_object('state', case when p.waits then 'waiting'
        when p.position is null then 'scheduled' else 'available' end)
      into found_row from jobq.pending p where p.id = job_lock.job_id for update;
    exit when found;
    select r.* into ran from jobq.run r where r.id = job_lock.job_id for update;
    exit when found;
    if not jobq.job_exists(job_lock.job_id) then
      return null;
    end if;
  end loop;
  if ran.id is not null then
    select case when e.ended_at is null then 'running' else 'finished' end,
        to_jsonb(ran) || jsonb_build_object('lease_token', ran.lease_id, 'run_at', coalesce(ran.run_at, ran.created_at),
          'started_at', e.claimed_at, 'finished_at', e.ended_at, 'lease_owner', e.owner,
          'state', coalesce(ran.state::text, case when e.ended_at is null then 'running' else 'completed' end))
      into stage, found_row
      from jobq.run_end(ran.lease_id, ran.slot, ran.finished_at) e;
  end if;
  if found_row is null then
    perform jobq.moving_refuse(job_lock.job_id);
  end if;
  if not whole then
    return jsonb_build_object('stage', stage, 'row',
      found_row - array['args', 'checkpoint', 'metadata', 'tags', 'timeout', 'backoff_base', 'backoff_max']);
  end if;
  return jsonb_build_object('stage', stage, 'row', found_row,
    'payload', (select a.args from jobq.payload a where a.job_id = job_lock.job_id),
    'attempts', (select jsonb_agg(to_jsonb(t)) from (
      select a.* from jobq.attempt a where a.job_id = job_lock.job_id order by a.lease_token desc limit 100) t))
    || coalesce((select jsonb_build_object('key_until', u.kept_until) from jobq.unique_key u
      where u.kind = found_row ->> 'kind' and u.key = found_row ->> 'unique_key' and u.job_id = job_lock.job_id
        and u.kept_until is not null), '{}');
end $$;

-- job_rewrite writes an edit of a waiting job, which is locked: its columns were as was has them, and become as wanted
-- has them.
--
-- An available job keeps its place in the line, unless its queue or priority changes: workers may have looked beyond
-- its old place in the new line, so it goes to the end, like every job that becomes available. Args move between the
-- row and the payload table as they grow and shrink.
create function jobq.job_rewrite(job jobq.pending, was jsonb, wanted jsonb) returns void
  language plpgsql
  as $$
declare
  due timestamptz := (wanted ->> 'run_at')::timestamptz;
  apart boolean := job.args_apart;
  place bigint := case
    when due > clock_timestamp() or job.waits
        or job.crashes >= least(2, coalesce(job.lost + 1, (wanted -> 'max_attempts')::integer - job.attempts)) then null
    when job.position is null or (wanted ->> 'queue', (wanted -> 'priority')::integer) <> (job.queue, job.priority)
      then nextval('jobq.position_seq')
    else job.position end;
begin
  if wanted -> 'args' <> was -> 'args' then
    apart := pg_column_size(wanted -> 'args') > 1000; -- as pending_before_insert has it
    if apart then
      insert into jobq.payload as a (job_id, args) values (job.id, wanted -> 'args')
        on conflict on constraint payload_pkey do update set args = excluded.args;
    else
      delete from jobq.payload a where a.job_id = job.id;
    end if;
  end if;
  update jobq.pending p
    set queue = wanted ->> 'queue', priority = (wanted -> 'priority')::smallint, run_at = due, position = place,
      max_attempts = (wanted -> 'max_attempts')::smallint, metadata = nullif(wanted -> 'metadata', 'null'),
      tags = case when jsonb_typeof(wanted -> 'tags') = 'array' then
        nullif(array(select jsonb_array_elements_text(wanted -> 'tags')), '{}') end,
      args = case when not apart then wanted -> 'args' end, args_apart = apart
    where p.id = job.id;
  if job.waits then
    null; -- nobody looks for it yet
  elsif place is null then
    perform jobq.notify('due', extract(epoch from due)::text);
  elsif place is distinct from job.position then
    perform jobq.wake('work', wanted ->> 'queue');
  else -- while the row was locked, whoever looked passed it by
    perform jobq.wake('head', job.queue);
  end if;
end $$;

-- args_patched is args with a JSON merge patch (RFC 7396): its members replace those of args, null removes one, and an
-- object patches an object.
--
--   {"dt": 0.1, "model": {"depth": 3, "width": 5}} with {"dt": 0.01, "model": {"width": null}}
--   is {"dt": 0.01, "model": {"depth": 3}}
create function jobq.args_patched(args jsonb, patch jsonb) returns jsonb
  language plpgsql immutable
  as $$
begin
  if jsonb_typeof(patch) <> 'object' then
    return patch;
  end if;
  return coalesce((select jsonb_object_agg(m.key, m.value) from (
      select a.key, a.value
        from jsonb_each(case when jsonb_typeof(args) = 'object' then args else '{}' end) a
        where not patch ? a.key
      union all
      select p.key, jobq.args_patched(args -> p.key, p.value)
        from jsonb_each(patch) p
        where p.value <> 'null') m), '{}');
end $$;

-- args_patch is args_patched of a job's args. It raises an error if they have no members to set, or if they would be
-- too large.
create function jobq.args_patch(args jsonb, patch jsonb) returns jsonb
  language plpgsql stable
  as $$
declare
  patched jsonb := jobq.args_patched(args, patch);
  problem text := case
    when args ->> '$jobq' = 'enc' then
      format('its args are encrypted with key "%s": members of them cannot be set, only all of them', args ->> 'key')
    when jsonb_typeof(args) is distinct from 'object' then 'its args are not an object: they have no members to set'
    else jobq.json_problem('its args', patched, jobq.args_bytes_max()) end;
begin
  if problem is not null then
    raise sqlstate 'JQ003' using message = problem;
  end if;
  return patched;
end $$;

-- job_anew lets a waiting job, which is locked, begin without what its runs have saved: its checkpoint, and its steps,
-- which an undo does not bring back. It returns the checkpoint for an undo.
create function jobq.job_anew(job_id bigint) returns jsonb
  language plpgsql
  as $$
declare
  saved jsonb;
begin
  select p.checkpoint into saved from jobq.pending p where p.id = job_anew.job_id;
  update jobq.pending p set checkpoint = null where p.id = job_anew.job_id and p.checkpoint is not null;
  perform jobq.step_forget(s.job_id, s.name)
    from (select x.job_id, x.name from jobq.step x where x.job_id = job_anew.job_id order by x.number limit 1) s;
  return case when saved is null then '{}' else jsonb_build_object('checkpoint', saved) end;
end $$;

-- job_edit changes a waiting job: the columns that are named in change, of which args_patch is a merge patch of
-- the args (args_patched). The columns named in
-- seen must still have the values given there. It returns the values of the columns
-- before and after, or null if they have the new values already. The job keeps its unique key,
-- which belongs to its kind, and an edit does not change the kind.
create function jobq.job_edit(job_id bigint, change jsonb, seen jsonb) returns jsonb
  language plpgsql
  as $$
declare
  job jobq.pending;
  was jsonb;
  wanted jsonb;
  other text;
begin
  select p.* into job from jobq.pending p where p.id = job_edit.job_id for update;
  if not found then
    raise sqlstate 'JQ003' using
      message = coalesce((select format('job %s is %s', job_edit.job_id, j.state) from jobq.job j
          where j.id = job_edit.job_id),
        format('job %s is gone', job_edit.job_id)),
      hint = 'Only a job that waits can be edited.';
  end if;
  was := jsonb_build_object('queue', job.queue, 'priority', job.priority, 'run_at', job.run_at, 'max_attempts',
    job.max_attempts, 'tags', nullif(job.tags, '{}'), 'metadata', job.metadata,
    'args', coalesce(job.args, (select a.args from jobq.payload a where a.job_id = job.id)));
  if change ? 'args_patch' then
    change := change - 'args_patch'
      || jsonb_build_object('args', jobq.args_patch(was -> 'args', change -> 'args_patch'));
  end if;
  -- One moment has as many texts as there are time zones.
  if change ? 'run_at' then
    change := change || jsonb_build_object('run_at', (change ->> 'run_at')::timestamptz);
  end if;
  if seen ? 'run_at' then
    seen := seen || jsonb_build_object('run_at', (seen ->> 'run_at')::timestamptz);
  end if;
  select s.key into other from jsonb_each(seen) s where was -> s.key is distinct from s.value limit 1;
  if found then
    raise sqlstate 'JQ003' using message = format('its %s has changed meanwhile', other);
  end if;
  wanted := was || change;
  if wanted = was then
    return null;
  end if;
  if (wanted -> 'max_attempts')::integer <= job.attempts then
    raise sqlstate 'JQ003' using
      message = format('it has used %s attempts: max_attempts must be more', job.attempts);
  end if;
  perform jobq.job_rewrite(job, was, wanted);
  return jsonb_build_object(
    'before', (select jsonb_object_agg(w.key, w.value) from jsonb_each(was) w where change ? w.key),
    'after', (select jsonb_object_agg(w.key, w.value) from jsonb_each(wanted) w where change ? w.key));
end $$;

-- plain_args_refuse raises an error for an edit that replaces encrypted args by plain ones: somebody without the keys
-- would do that without noticing. An undo may do it.
create function jobq.plain_args_refuse(before jsonb, after jsonb) returns void
  language plpgsql
  as $$
begin
  if before ->> '$jobq' = 'enc' and after ->> '$jobq' is distinct from 'enc' then
    raise sqlstate 'JQ003'
        using message = format('its args are encrypted with key "%s", and the new ones are plain text',
        before ->> 'key'),
      hint = 'Give the keys, as with jobq edit --keys-file.';
  end if;
end $$;

-- change_problem says what is wrong with the change of an edit or a clone; null if nothing is.
create function jobq.change_problem(change jsonb, names text[]) returns text
  language plpgsql stable
  as $$
declare
  problem text := jobq.object_problem(change, names, true);
begin
  return case
    when problem is null then coalesce(
      (select format('change: %s must not be null', m.key) from jsonb_each(change) m
        where m.value = 'null' and m.key in ('kind', 'queue', 'priority', 'run_at', 'max_attempts') limit 1),
      case when change ? 'args' and change ? 'args_patch' then 'change: give args or args_patch, and not both' end,
      jobq.json_problem('change: args', change -> 'args', jobq.args_bytes_max()),
      jobq.json_problem('change: args_patch', change -> 'args_patch', jobq.args_bytes_max()),
      case when jsonb_typeof(change -> 'args_patch') <> 'object' then
        'change: args_patch must be an object such as {"dt": 0.01}' end,
      jobq.json_problem('change: metadata', change -> 'metadata', 65536))
    when problem like 'must be %' then format('change must be a JSON object such as {"priority": 1}, not %s',
        coalesce(jsonb_typeof(change), 'null'))
    else 'change: ' || problem
  end;
end $$;

-- The days of the history: made ahead, kept as long as each queue wants, and dropped.

-- partition_yield raises the error of a lock timeout if a transaction older than a second, such as pg_dump's, has a
-- lock on one of the tables. Whoever waits for a table to be theirs alone makes everybody wait who comes later, so it
-- is better not to begin. The owner of jobq may not be allowed to see how old the transactions of other roles are: then
-- a transaction counts as old if it uses the table `rare`, as hardly any other does.
create function jobq.partition_yield(rare regclass, busy regclass[]) returns void
  language plpgsql security definer set search_path = pg_catalog, pg_temp
  as $$
declare
  holder record;
begin
  select a.pid, a.application_name as application, l.relation::regclass as name into holder
    from pg_locks l
    join pg_stat_activity a on a.pid = l.pid
    where l.locktype = 'relation' and l.granted and l.pid <> pg_backend_pid() and a.datname = current_database()
      and (l.relation = rare or l.relation = any(busy::oid[]))
      and (a.xact_start < clock_timestamp() - interval '1 s' or a.xact_start is null and l.relation = rare)
    order by a.xact_start
    limit 1;
  if found then
    raise lock_not_available
        using message = format('table %s is in use by session %s (%s)', holder.name, holder.pid, holder.application);
  end if;
end $$;

-- partition_add makes the partition of a day of run, past_lease or attempt, if it does not exist. It makes a table and
-- then attaches it, so that ends of jobs wait only for a moment. If the default partition has rows of the day, they
-- stay there and the day gets no partition: there may be millions of them, and ends would wait while they move.
--
-- It runs with its owner's rights, because only the owner may do this. So do partition_prune, payload_prune,
-- default_prune, history_sweep and history_analyze.
create function jobq.partition_add(parent text, day date) returns boolean
  language plpgsql security definer set search_path = pg_catalog, pg_temp
  as $$
declare
  name text := parent || '_' || to_char(day, 'YYYYMMDD');
  key text := case parent when 'run' then 'lease_id' when 'past_lease' then 'id' when 'attempt' then 'finished_at' end;
  low text := jobq.lease_day(day);
  high text := jobq.lease_day(day + 1);
  caught boolean;
begin
  if key is null then
    raise sqlstate 'JQ001' using message = format('no partitioned table %L', parent);
  end if;
  if parent = 'attempt' then
    low := day::timestamp at time zone 'UTC';
    high := (day + 1)::timestamp at time zone 'UTC';
  end if;
  if to_regclass(format('jobq.%I', name)) is not null then
    return false;
  end if;
  -- Those who make and drop days take turns; nobody else waits for this lock. Not
  -- on the days: it would be refused while one of them is vacuumed.
  execute format('lock table only jobq.%I in share update exclusive mode', parent);
  if to_regclass(format('jobq.%I', name)) is not null then
    return false;
  end if;
  execute format('select exists (select from jobq.%I where %I >= %L and %2$I < %L)', parent || '_default', key, low,
      high) into caught;
  if caught then
    return false;
  end if;
  perform jobq.partition_yield(null, array[format('jobq.%I', parent || '_default')]::regclass[]);
  begin
    execute format('create table jobq.%I (like jobq.%I including defaults including constraints including storage)',
        name, parent);
    if (select c.relreplident from pg_class c where c.oid = format('jobq.%I', parent)::regclass) = 'f' then
      execute format('alter table jobq.%I replica identity full', name); -- see the table run
    end if;
    -- It locks the default partition, and reads it once more.
    execute format('alter table jobq.%I attach partition jobq.%I for values from (%L) to (%L)', parent, name, low,
        high);
  exception when check_violation then -- caught since
    return false;
  end;
  return true;
end $$;
-- For partition_add, default_prune, day_needed and export_first.
create index run_default_place_idx on jobq.run_default (lease_id, id);

-- kept_for is a retention within its limits, 1 day and 10 years, whatever a row says. Arithmetic with a longer one
-- would fail, and each sweep with it.
create function jobq.kept_for(retention interval) returns interval
  language sql immutable parallel safe
  return least(greatest(retention, interval '1 day'), interval '10 years');

-- retention_of is for how long a job of a queue is kept that has ended in this state; null, as in run, is a plain
-- success. What failed or was cancelled is kept for as long as its queue says of such jobs, or of all its jobs, or as
-- the setting says. The planner inlines the function. Needs queue_pkey.
create function jobq.retention_of(of_queue text, of_state jobq.job_state) returns table (retention interval)
  language sql stable rows 1
  begin atomic
    select jobq.kept_for(case when of_state <> 'completed'
        then coalesce(q.failed_retention, q.retention, s.failed_retention, s.finished_retention)
        else coalesce(q.retention, s.finished_retention) end)
      from jobq.setting s
      left join lateral (
        select x.retention, x.failed_retention from jobq.queue x where x.name = of_queue limit 1) q on true;
  end;

-- keep_from is the time before which a job must have ended to be removed, for queues and states without a retention of
-- their own.
create function jobq.keep_from() returns timestamptz
  language sql stable
  return statement_timestamp() - (select jobq.kept_for(s.finished_retention) from jobq.setting s);

-- retention_span is the shortest and the longest time for which finished jobs of any queue and state are
-- kept. Both are finished_retention if there is no failed_retention, and no queue has a retention of its
-- own. Needs queue_retention_idx.
create function jobq.retention_span(out shortest interval, out longest interval)
  language sql stable set enable_seqscan = off set jit = off
  as $$
    select jobq.kept_for(least(s.finished_retention, s.failed_retention, q.shortest)),
        jobq.kept_for(greatest(s.finished_retention, s.failed_retention, q.longest))
      from jobq.setting s
      cross join (
        select least(min(x.retention), min(x.failed_retention)) as shortest,
            greatest(max(x.retention), max(x.failed_retention)) as longest
          from jobq.queue x where x.retention is not null or x.failed_retention is not null
      ) q
  $$;

-- keep_from_day is the first day whose leases may hold a job that ended less than a retention ago; the default is
-- finished_retention. If days are kept until they are exported, it is the first day that was not, if that is earlier.
--
-- A job whose end is stored with its lease ends within 33 seconds of the claim, so at most on the next day: hence the
-- minute that is subtracted. A later end is stored in the job's own row (day_needed).
create function jobq.keep_from_day(retention interval default null) returns date
  language sql stable
  return (select least(((statement_timestamp() - jobq.kept_for(coalesce(retention, s.finished_retention))
      - interval '1 minute') at time zone 'UTC')::date,
    case when s.keep_until_exported then s.exported_before end) from jobq.setting s);

-- day_needed says whether a day that is to be dropped must stay. A day of run stays if one of its leases
-- is held, if one of its jobs ended within the longest retention, or if there are dependencies on its
-- jobs, which stay while the child is unfinished (dependency_prune). So a job that runs for weeks keeps its
-- day. A day of past_lease stays while its jobs are visible.
--
-- It asks for the last end, which is an index look-up whatever the statistics say. If it asked for any end
-- since some time, the planner might read the whole day.
create function jobq.day_needed(parent text, day date) returns boolean
  language plpgsql stable
  as $$
declare
  low bigint := jobq.lease_day(day);
  high bigint := jobq.lease_day(day + 1);
  name text := 'run_' || to_char(day, 'YYYYMMDD');
  needed boolean := false;
begin
  if parent = 'run' then
    execute format($sql$
      select exists (select from jobq.lease l where l.id >= $1 and l.id < $2)
        or coalesce((select r.finished_at from jobq.%1$I r where r.state = 'completed'
            order by r.finished_at desc limit 1) >= $3, false)
        or coalesce((select r.finished_at from jobq.%1$I r where r.state <> 'completed'
            order by r.finished_at desc limit 1) >= $3, false)
        or exists (select from jobq.dependency d where d.parent_lease >= $1 and d.parent_lease < $2)
    $sql$, name) using low, high, statement_timestamp() - (select t.longest from jobq.retention_span() t) into needed;
  elsif parent = 'past_lease' then
    needed := to_regclass(format('jobq.%I', name)) is not null
      or exists (select from jobq.run_default r where r.lease_id >= low and r.lease_id < high);
  end if;
  return needed;
end $$;

-- partition_prune takes one day out of run, past_lease or attempt: the earliest that is past the longest retention, or
-- of which history_sweep has left nothing. It returns the name of its table, or null if there is no such day. It takes
-- one day a transaction, because its lock makes ends of jobs wait. It gives up at once if a transaction older than a
-- second, such as pg_dump's, uses that day or its parent table (partition_yield).
--
-- A day of past_lease or attempt is dropped. A day of run becomes a table of its own, in which nobody finds its jobs
-- any more. payload_prune removes the large args of its jobs in steps, and then drops it. The table is renamed, from
-- run_20261101 to run_20261101_past, so that payload_prune can tell it from a day that an operator has detached in
-- order to keep it.
--
-- A day counts as empty if its file is empty: autovacuum truncates the file when all is deleted, and a search for rows
-- would read the whole file. The leases of a day go with its last jobs.
create function jobq.partition_prune(parent text) returns text
  language plpgsql security definer set search_path = pg_catalog, pg_temp
  as $$
declare
  old record;
  -- days before this one go as a whole
  all_before date := jobq.keep_from_day((select t.longest from jobq.retention_span() t));
begin
  if parent not in ('run', 'past_lease', 'attempt') then
    raise sqlstate 'JQ001' using message = format('no partitioned table %L', parent);
  end if;
  for old in
    select c.oid, c.relname as name, to_date(right(c.relname, 8), 'YYYYMMDD') as day
      from pg_inherits i
      join pg_class c on c.oid = i.inhrelid
      where i.inhparent = format('jobq.%I', parent)::regclass
        and c.relname ~ ('^' || parent || '_[0-9]{8}$')
        and right(c.relname, 8) < to_char(jobq.keep_from_day(), 'YYYYMMDD')
        and to_regclass(format('jobq.%I', c.relname || '_past')) is null -- else it waits until that one is dropped
      order by 2
  loop
    continue when old.day >= all_before and parent <> 'past_lease' and pg_relation_size(old.oid) > 0;
    continue when jobq.day_needed(parent, old.day);
    execute format('lock table only jobq.%I in share update exclusive mode', parent); -- see partition_add
    -- another session was faster
    continue when not exists (select from pg_class c where c.oid = old.oid and c.relispartition);
    perform jobq.partition_yield(old.oid::regclass,
      array[format('jobq.%I', parent), format('jobq.%I', parent || '_default')]::regclass[]);
    -- An undo may have put a job back into the day since, which is to be exported again:
    -- nobody does from here on. Or days are to be kept until they are exported.
    execute format('lock table only jobq.%I in access exclusive mode', parent);
    all_before := jobq.keep_from_day((select t.longest from jobq.retention_span() t));
    if old.day >= jobq.keep_from_day() or jobq.day_needed(parent, old.day)
        or old.day >= all_before and parent <> 'past_lease' and pg_relation_size(old.oid) > 0 then
      return null;
    end if;
    if parent = 'run' then
      delete from jobq.sweep w where w.day = old.day;
      execute format('alter table jobq.run detach partition jobq.%I', old.name);
      execute format('alter table jobq.%I rename to %I', old.name, old.name || '_past');
    else
      execute format('drop table jobq.%I', old.name);
    end if;
    return old.name;
  end loop;
  return null;
end $$;

-- payload_prune removes the large args of jobs of the earliest day that partition_prune has taken out. A call removes
-- those of at most payload_count jobs, and looks at job_count jobs at most, in the order of their ids, after the given
-- job of the given day. If another day is the earliest now, it begins with that day's first job. It returns the place
-- where the next call goes on, and how many payloads it has removed. If the day has no more jobs it drops the day, and
-- returns no job. It returns no day if there is none.
--
-- Example: with a day of 25,000 jobs and a job_count of 10,000, the first three calls look at 10,000, 10,000 and 5,000
-- jobs, and the fourth drops the day.
--
-- Only a table with the name that partition_prune gives is such a day. A table run_20261101 that is not a partition
-- belongs to an operator, and stays.
create function jobq.payload_prune(after_day text, after_job bigint, job_count integer, payload_count integer)
  returns table (day text, last_job bigint, removed bigint)
  language plpgsql security definer set search_path = pg_catalog, pg_temp
  as $$
begin
  select c.relname into day
    from pg_class c
    where c.relnamespace = (select p.relnamespace from pg_class p where p.oid = 'jobq.run'::regclass)
      and c.relkind = 'r' and not c.relispartition and c.relname ~ '^run_[0-9]{8}_past$'
    order by 1
    limit 1;
  if day is null then
    return;
  end if;
  begin
    execute format($sql$
      with looked as materialized (
        select r.id, r.args_apart,
            count(*) filter (where r.args_apart) over (order by r.id rows unbounded preceding) as payloads
          from jobq.%I r
          where r.id > $1
          order by r.id
          limit $2
      ), taken as (
        select l.id, l.args_apart from looked l where l.payloads <= $3
      ), gone as (
        delete from jobq.payload a
          where a.job_id = any(array(select t.id from taken t where t.args_apart))
          returning a.job_id
      )
      select (select max(t.id) from taken t), (select count(*) from gone)
    $sql$, day)
      using case when day = after_day then after_job else 0 end, job_count, payload_count
      into last_job, removed;
    if last_job is null then
      execute format('drop table jobq.%I', day);
    end if;
  exception when undefined_table then -- another session was faster
    last_job := null;
    removed := 0;
  end;
  return next;
end $$;

-- attempts_forget deletes the attempts of jobs that were deleted: created has when each job was added, and ended_before
-- when all of them had ended. An attempt is in the partition of the day on which it ended, so the query is planned for
-- the days between. For 1,000 jobs of one day, most of which were added shortly before, these are two or three days;
-- jobs that were added long ago cost more.
create function jobq.attempts_forget(jobs bigint[], created timestamptz[], ended_before timestamptz) returns void
  language plpgsql security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off
      set enable_bitmapscan = off set jit = off
  as $$
declare
  part record;
begin
  for part in
    select array_agg(j.id) as ids, min(j.created_at) as since
      from unnest(jobs, created) j(id, created_at)
      group by j.created_at >= ended_before - interval '3 days'
  loop
    execute format($sql$
      delete from jobq.attempt a where a.job_id = any($1) and a.finished_at >= %L and a.finished_at < %L
    $sql$, part.since - interval '1 minute', ended_before) using part.ids;
  end loop;
end $$;

-- retention_changed makes history_sweep look again through days that are past a retention that has changed.
-- No day is looked through until it commits: otherwise the sweep of a day would go on with the retention of
-- before.
create function jobq.retention_changed() returns trigger
  language plpgsql security definer set search_path = pg_catalog, pg_temp
  as $$
declare
  own_retention interval; -- of a queue; null: as of all
  own_failed_retention interval;
begin
  lock table jobq.sweep in exclusive mode;
  if tg_relid = 'jobq.queue'::regclass and tg_op <> 'DELETE' then
    own_retention := new.retention;
    own_failed_retention := new.failed_retention;
  end if;
  update jobq.sweep w set again_at = clock_timestamp()
    from jobq.setting s
    where w.day < ((statement_timestamp() - least(coalesce(own_retention, s.finished_retention),
        coalesce(own_failed_retention, own_retention, s.failed_retention,
            s.finished_retention))) at time zone 'UTC')::date;
  return null;
end $$;
create trigger retention_changed after update of finished_retention, failed_retention on jobq.setting
  for each row when (old.finished_retention is distinct from new.finished_retention
      or old.failed_retention is distinct from new.failed_retention)
  execute function jobq.retention_changed();
create trigger retention_changed after update of retention, failed_retention on jobq.queue
  for each row when (old.retention is distinct from new.retention
      or old.failed_retention is distinct from new.failed_retention)
  execute function jobq.retention_changed();
create trigger retention_added after insert on jobq.queue
  for each row when (new.retention is not null or new.failed_retention is not null)
      execute function jobq.retention_changed();
create trigger retention_removed after delete on jobq.queue
  for each row when (old.retention is not null or old.failed_retention is not null)
      execute function jobq.retention_changed();

-- run_default_prune is default_prune for run. Attempts go with their jobs if some queues or states are kept for longer
-- than others; otherwise their own days end at the same time.
create function jobq.run_default_prune(after bigint, after_job bigint, row_count integer)
  returns table (looked bigint, last bigint, last_job bigint)
  language plpgsql
  as $$
declare
  span record;
  gone_ids bigint[];
  gone_created timestamptz[];
begin
  select t.shortest, t.longest into span from jobq.retention_span() t;
  with page as materialized (
    select x.ctid as place, x.id, x.lease_id, x.slot, x.finished_at, x.queue, x.state
      from jobq.run_default x
      where (x.lease_id, x.id) > (run_default_prune.after, run_default_prune.after_job)
        and x.lease_id < (select jobq.lease_day(jobq.keep_from_day(span.shortest)))
      order by x.lease_id, x.id
      limit run_default_prune.row_count
  ), old as materialized (
    select l.place
      from page p
      cross join lateral jobq.retention_of(p.queue, p.state) k
      cross join lateral jobq.run_end(p.lease_id, p.slot, p.finished_at) e
      cross join lateral (select x.ctid as place from jobq.run_default x
          where x.ctid = p.place for update skip locked) l
      where e.ended_at < statement_timestamp() - k.retention
        and not exists (select from jobq.dependency d where d.parent = p.id and d.parent_lease = p.lease_id)
  ), gone as (
    delete from jobq.run_default r where r.ctid = any(array(select o.place from old o))
        returning r.id, r.args_apart, r.created_at
  ), args_gone as (
    delete from jobq.payload a where a.job_id = any(array(select g.id from gone g where g.args_apart))
  )
  select count(*), max(p.lease_id), (select p.id from page p order by p.lease_id desc, p.id desc limit 1),
      (select array_agg(g.id) from gone g), (select array_agg(g.created_at) from gone g)
    into looked, last, last_job, gone_ids, gone_created from page p;
  if span.shortest < span.longest then
    perform jobq.attempts_forget(gone_ids, gone_created, statement_timestamp());
  end if;
  return next;
end $$;

-- default_prune deletes rows of the default partition of run, past_lease or attempt that are past the retention of
-- their queue and state. Attempts go with their jobs, and at the latest after the longest retention. The large args of
-- jobs go with them.
--
-- A call looks at up to row_count rows of days before keep_from_day, after the given place (of attempts, from it on):
-- in the order of lease and job, or of finished_at as microseconds since 1970. It returns how many rows it has looked
-- at, and the place of the last one, where the next call begins. Without the place, the next call would read what this
-- one has deleted, for as long as any transaction can still see that, and all rows that stay because their jobs run or
-- ended later.
--
-- The statement that deletes also reads what must be kept. So if a transaction brings a row back, such as an undo, and
-- says that the row's day is to be exported again, both are seen or neither.
create function jobq.default_prune(parent text, after bigint, after_job bigint, row_count integer)
  returns table (looked bigint, last bigint, last_job bigint)
  language plpgsql security definer set search_path = pg_catalog, pg_temp
  as $$
begin
  if parent = 'attempt' then
    with gone as (
      delete from jobq.attempt_default t
        where t.ctid = any(array(
          select x.ctid from jobq.attempt_default x
            where x.finished_at >= timestamptz 'epoch' + default_prune.after * interval '1 microsecond'
              and x.finished_at < (select jobq.keep_from_day(t.longest) from jobq.retention_span() t)::timestamp
                at time zone 'UTC'
            order by x.finished_at limit default_prune.row_count for update skip locked))
        returning t.finished_at
    )
    select count(*), (extract(epoch from max(g.finished_at)) * 1000000)::bigint, 0 into looked, last, last_job
        from gone g;
  elsif parent = 'run' then
    select p.looked, p.last, p.last_job into looked, last, last_job
      from jobq.run_default_prune(after, after_job, row_count) p;
  elsif parent = 'past_lease' then
    with page as materialized (
      select x.id from jobq.past_lease_default x
        where x.id > default_prune.after and x.id < (select jobq.lease_day(jobq.keep_from_day()))
        order by x.id
        limit default_prune.row_count
    ), gone as (
      delete from jobq.past_lease_default l
        where l.id = any(array(
          select p.id from page p
            where not exists (select from jobq.run_default r where r.lease_id = p.id)
              and to_regclass(format('jobq.run_%s', to_char(date '2026-01-01' + (p.id >> 40)::integer, 'YYYYMMDD')))
                  is null))
    )
    select count(*), max(p.id), 0 into looked, last, last_job from page p;
  else
    raise sqlstate 'JQ001' using message = format('no partitioned table %L', parent);
  end if;
  last := coalesce(last, after);
  last_job := coalesce(last_job, after_job);
  return next;
end $$;

-- history_analyze makes the statistics of run as a whole, if it is time, and says whether it did. Autovacuum makes
-- statistics of each day, but never of the whole: then the planner does not know that many jobs have the same lease,
-- and lists look up the lease of each job one by one. The queries of jobq need no other statistics of the whole, so the
-- lease is the only column.
--
-- It is time if there are 1,000 rows or more, and either no statistics, or statistics as old as `every`, or ten times
-- as many rows as then. It looks for the statistics themselves, too, because PostgreSQL keeps the time of an analyze
-- that was rolled back.
--
-- An analyze of the whole makes statistics of each day as well. It reads at most 300 pages of each day, and of the
-- whole, for each 1 of the statistics target. So the target is smaller the more days there are. A day that is being
-- vacuumed is left out.
create function jobq.history_analyze(every interval) returns boolean
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp set default_statistics_target = 10 set client_min_messages = error
  as $$
declare
  now_rows float8; -- as far as it is known without counting
  day_count bigint;
  known_rows float8;
  analyzed_at timestamptz;
begin
  select sum(greatest(pg_stat_get_live_tuples(d.oid), d.reltuples)), count(*) into now_rows, day_count
    from pg_inherits i
    join pg_class d on d.oid = i.inhrelid
    where i.inhparent = 'jobq.run'::regclass;
  select w.reltuples, pg_stat_get_last_analyze_time(w.oid) into known_rows, analyzed_at
    from pg_class w
    join pg_namespace n on n.oid = w.relnamespace
    join pg_stats s on s.schemaname = n.nspname and s.tablename = w.relname and s.inherited and s.attname = 'lease_id'
    where w.oid = 'jobq.run'::regclass;
  if now_rows < 1000 or analyzed_at > clock_timestamp() - every and now_rows < 10 * known_rows then
    return false;
  end if;
  perform set_config('default_statistics_target', greatest(1, least(10, 100 / day_count))::text, true);
  lock table only jobq.run in share update exclusive mode; -- see partition_add
  analyze (skip_locked) jobq.run (lease_id);
  return true;
end $$;

-- The first days. The janitor makes the others ahead of need.
select jobq.partition_add(parent, (now() at time zone 'UTC')::date + ahead)
  from unnest(array['run', 'past_lease', 'attempt']) as parent, generate_series(0, 3) as ahead;

-- Jobs that are kept for less long than others of their day.

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
  -- jobs stay whose time has come: they run, say, or ended later than others of the day
  left_over  boolean     not null default false
);
comment on table jobq.sweep is
  'How far jobs were deleted from days of the history that stay for others, which are kept for longer.';
comment on column jobq.sweep.day is 'The day (UTC).';
comment on column jobq.sweep.began_at is 'When it was last begun.';
comment on column jobq.sweep.again_at is
  'When the day is to be looked through once more; null: when the next retention is over.';
comment on column jobq.sweep.next_block is 'The block of its partition of run at which it goes on; null: it does not.';
comment on column jobq.sweep.next_lease is 'The lease after which it goes on; null: it does not.';
comment on column jobq.sweep.last_lease is 'The last lease at which it looks; null: at none.';
comment on column jobq.sweep.left_over is 'Whether jobs stay whose time has come, such as those that run.';

-- Leases of the day that is being swept whose jobs are kept. They go when the leases were looked at.
create table jobq.sweep_lease (lease_id bigint not null primary key);
comment on table jobq.sweep_lease is 'Leases of the day that is being swept whose jobs are kept.';
comment on column jobq.sweep_lease.lease_id is 'The lease.';

-- Leases of jobs that came back into the history, by an undo: their days are to be swept again. Rows go when the next
-- sweep begins. Without a key, so that nobody waits.
create table jobq.sweep_again (lease_id bigint not null);
comment on table jobq.sweep_again is 'Leases of jobs that an undo has brought back: their days are to be swept again.';
comment on column jobq.sweep_again.lease_id is 'The lease.';
create index sweep_again_lease_idx on jobq.sweep_again (lease_id);
alter table jobq.sweep_again replica identity full; -- as run

-- sweep_next is the day that is to be looked through next: one that stays because of the longest retention, and has
-- passed a shorter one since it was last looked through; null if there is none.
--
-- Example: with retentions of 1, 7 and 90 days, a day is looked through when it is 1 and 7 days old, and dropped when
-- it is 90. If jobs of an earlier day were left over, again_at says when that day is looked through again.
create function jobq.sweep_next(shortest interval, longest interval) returns date
  language plpgsql stable
  as $$
begin
  return (
    with kept as materialized (
      select jobq.kept_for(k.retention) as retention, jobq.keep_from_day(k.retention) as from_day
        from (
          select s.finished_retention from jobq.setting s
          union select s.failed_retention from jobq.setting s
          union select q.retention from jobq.queue q where q.retention is not null or q.failed_retention is not null
          union select q.failed_retention from jobq.queue q
              where q.retention is not null or q.failed_retention is not null
        ) k(retention)
        where k.retention is not null
    )
    select d.day
      from (
        select to_date(right(c.relname, 8), 'YYYYMMDD') as day
          from pg_inherits i
          join pg_class c on c.oid = i.inhrelid
          where i.inhparent = 'jobq.run'::regclass and c.relname ~ '^run_[0-9]{8}$'
      ) d
      left join jobq.sweep w on w.day = d.day
      where d.day >= jobq.keep_from_day(sweep_next.longest) and d.day < jobq.keep_from_day(sweep_next.shortest)
        and (w.day is null or w.again_at <= statement_timestamp() or w.began_at > statement_timestamp()
          or exists (
            select from kept k
              where d.day < k.from_day
                and d.day >= ((w.began_at - k.retention - interval '1 minute') at time zone 'UTC')::date))
      order by d.day
      limit 1);
end $$;

-- sweep_begin notes that the day begins that history_sweep looks through next, and returns it; null if there is none.
create function jobq.sweep_begin() returns date
  language plpgsql security definer set search_path = pg_catalog, pg_temp
  as $$
declare
  span record;
  chosen date;
  held boolean;
  last_lease bigint;
begin
  with restored as (
    delete from jobq.sweep_again g
      where g.ctid = any(array(select x.ctid from jobq.sweep_again x order by x.lease_id limit 10000))
      returning g.lease_id
  )
  update jobq.sweep w set again_at = least(w.again_at, statement_timestamp())
    where w.day in (select date '2026-01-01' + (r.lease_id >> 40)::integer from restored r);
  select t.* into span from jobq.retention_span() t;
  if span.shortest = span.longest then
    return null;
  end if;
  -- What a sweep has left that did not come to its end: its day was dropped.
  delete from jobq.sweep_lease k
    where k.lease_id = any(array(
      select x.lease_id from jobq.sweep_lease x where x.lease_id < jobq.lease_day(jobq.keep_from_day(span.longest))
          order by x.lease_id limit 10000));
  chosen := jobq.sweep_next(span.shortest, span.longest);
  if chosen is null then
    return null;
  end if;
  -- While one of its leases is held, a row may move to a place that was looked at.
  held := exists (select from jobq.lease l where l.id >= jobq.lease_day(chosen) and l.id < jobq.lease_day(chosen + 1));
  if not held and chosen < jobq.keep_from_day()
      and to_regclass(format('jobq.past_lease_%s', to_char(chosen, 'YYYYMMDD'))) is not null then
    execute format('select l.id from jobq.past_lease_%s l order by l.id desc limit 1', to_char(chosen, 'YYYYMMDD'))
        into last_lease;
  end if;
  insert into jobq.sweep as w (day, began_at, next_block, last_lease, left_over)
      values (chosen, statement_timestamp(), 0, last_lease, held)
    on conflict (day) do update
      set began_at = excluded.began_at, again_at = null, next_block = 0, next_lease = null,
          last_lease = excluded.last_lease, left_over = held;
  return chosen;
end $$;

-- history_sweep deletes jobs that are past their retention from days of the history that stay because of other jobs. A
-- call looks at block_count blocks of a day's partition, or begins a day, or looks at lease_count of its leases. The
-- table sweep holds the place where the next call goes on, whoever makes it. It returns the day and how many jobs it
-- has deleted; no day if there is nothing to do.
--
-- Example: block_count 16, and a day of 40 blocks. The first call begins the day, the next three look at the blocks 0
-- to 15, 16 to 31 and 32 to 39, and the fifth at the first of its leases.
--
-- As in default_prune, the statement that deletes also checks that the day may be deleted from. The large args and the
-- attempts of a job are deleted with it, its steps with the next step_prune. A job is left over if it has not ended,
-- has ended later than others of its day, is locked, or waits until the dependencies on it are deleted
-- (dependency_prune): then the day is looked through again a day later.
--
-- If the day is past finished_retention, its leases of which no job is left are deleted. A row of past_lease does not
-- say which these are, so each lease that is still needed is noted in sweep_lease. A lease that was written after the
-- day was begun has a greater id than last_lease, and stays.
create function jobq.history_sweep(block_count integer, lease_count integer) returns table (day date, removed bigint)
  language plpgsql security definer set search_path = pg_catalog, pg_temp
  as $$
declare
  place jobq.sweep;
  name text;
begin
  removed := 0;
  select w.* into place from jobq.sweep w where w.next_block is not null or w.next_lease is not null
      order by w.day limit 1 for update;
  if not found then
    day := jobq.sweep_begin();
    if day is not null then
      return next;
    end if;
    return;
  end if;
  day := place.day;
  name := to_char(day, 'YYYYMMDD');
  if to_regclass('jobq.run_' || name) is null
      -- dropped; or kept for longer, or not exported, from now on
      or day >= (select jobq.keep_from_day(t.shortest) from jobq.retention_span() t) then
    delete from jobq.sweep w where w.day = place.day;
  elsif place.next_block is not null then
    removed := jobq.sweep_blocks(place, name, block_count);
  elsif to_regclass('jobq.past_lease_' || name) is null then
    update jobq.sweep w set next_lease = null where w.day = place.day;
  else
    perform jobq.sweep_leases(place, name, lease_count);
  end if;
  return next;
end $$;

-- sweep_blocks looks at the next blocks of a day, for history_sweep. It names the day's partition of run, and the
-- bounds of its leases are constants of the query, so that the other days are not locked.
create function jobq.sweep_blocks(place jobq.sweep, name text, block_count integer) returns bigint
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp set enable_seqscan = off set enable_bitmapscan = off set jit = off
  as $$
declare
  block_end bigint := place.next_block + block_count;
  is_last boolean := block_end >= pg_relation_size(format('jobq.run_%s',
      name)::regclass) / current_setting('block_size')::bigint;
  removed bigint;
  stays boolean; -- some job whose time has come
  gone_ids bigint[];
  gone_created timestamptz[];
  last_end timestamptz;
begin
  execute format($sql$
    with page as materialized (
      select r.ctid as place, r.id, r.lease_id, r.slot, r.state, r.queue, r.created_at, r.finished_at
        from jobq.run_%1$s r
        where r.ctid >= %2$L and r.ctid < %3$L
    ), known as materialized (
      select p.place, p.id, p.lease_id, p.slot,
          coalesce(p.finished_at, l.claimed_at + nullif(l.ended_ms, -1) * interval '1 ms') as ended_at,
          k.retention, s.keep_until_exported and $1 >= s.exported_before as is_kept
        from page p
        cross join jobq.setting s
        cross join lateral jobq.retention_of(p.queue, p.state) k
        left join lateral (
          select x.claimed_at, x.ended_ms[array_position(x.ended_slots, p.slot)] as ended_ms from jobq.lease x
              where x.id = p.lease_id
          union all
          select x.claimed_at, x.ended[p.slot] from jobq.past_lease x where x.id = p.lease_id and x.id >= %4$s
              and x.id < %5$s
          limit 1
        ) l on true
    ), due as materialized (
      select k.place, k.id, k.lease_id, k.ended_at,
          not k.is_kept and k.ended_at < statement_timestamp() - k.retention
            and (select true from jobq.dependency d where d.parent = k.id and d.parent_lease = k.lease_id
                limit 1) is null as goes
        from known k
        where k.ended_at is null
          or $1 < ((statement_timestamp() - k.retention - interval '1 minute') at time zone 'UTC')::date
    ), old as materialized (
      select d.place, d.ended_at
        from due d
        cross join lateral (select x.ctid from jobq.run_%1$s x where x.ctid = d.place for update skip locked) l
        where d.goes
    ), gone as materialized (
      delete from jobq.run_%1$s r
        where r.ctid = any(array(select o.place from old o))
        returning r.ctid as place, r.id, r.args_apart, r.created_at
    ), args_gone as (
      delete from jobq.payload a where a.job_id = any(array(select g.id from gone g where g.args_apart))
    ), noted as (
      insert into jobq.sweep_lease (lease_id)
        select distinct k.lease_id
          from known k
          where $2 and k.slot > 0 and not exists (select from gone g where g.place = k.place)
          order by k.lease_id
        on conflict do nothing
    )
    select count(*), (select count(*) from due) > count(*), array_agg(g.id), array_agg(g.created_at),
        (select max(o.ended_at) from old o)
      from gone g
  $sql$, name, format('(%s,0)', place.next_block), format('(%s,0)', block_end), jobq.lease_day(place.day),
      jobq.lease_day(place.day + 1))
    using place.day, place.last_lease is not null
    into removed, stays, gone_ids, gone_created, last_end;
  if removed > 0 then
    perform jobq.attempts_forget(gone_ids, gone_created, last_end + interval '1 minute');
  end if;
  stays := stays or place.left_over;
  update jobq.sweep w
    set next_block = case when not is_last then block_end end,
      next_lease = case when is_last and place.last_lease is not null then jobq.lease_day(place.day) - 1 end,
      left_over = stays,
      again_at = least(w.again_at, case when is_last and stays then place.began_at + interval '1 day' end)
    where w.day = place.day;
  return removed;
end $$;

-- sweep_leases looks at the next leases of a day, for history_sweep.
create function jobq.sweep_leases(place jobq.sweep, name text, lease_count integer) returns void
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp set enable_seqscan = off set enable_bitmapscan = off set jit = off
  as $$
declare
  last bigint; -- null: there are no more
begin
  execute format($sql$
    with page as materialized (
      select l.id from jobq.past_lease_%s l where l.id > $1 and l.id <= $2 order by l.id limit $3
    ), gone as (
      delete from jobq.past_lease_%1$s l
        where l.id = any(array(
          select p.id from page p
            where (select true from jobq.sweep_lease k where k.lease_id = p.id) is null
              and (select true from jobq.sweep_again g where g.lease_id = p.id limit 1) is null))
    )
    select max(p.id) from page p
  $sql$, name) using place.next_lease, place.last_lease, lease_count into last;
  -- No more of this day than there are leases: an index range, from where the last call has ended.
  delete from jobq.sweep_lease k
    where k.lease_id > place.next_lease and k.lease_id <= coalesce(last, jobq.lease_day(place.day + 1) - 1);
  update jobq.sweep w set next_lease = last where w.day = place.day;
end $$;

-- Jobs that cannot be read, or have values that cannot be: they are set apart, and stop nobody.

-- job_problem says in words which value of a new job is beyond its limit, and what the limit is; null if none is. The
-- CHECKs of pending refuse such a row whichever way it comes in, but their errors quote the whole INSERT, and do not
-- say which of many jobs is wrong.
create function jobq.job_problem(
  kind text, args jsonb, queue text, priority bigint, run_at timestamptz, max_attempts bigint, unique_key text,
  timeout interval, backoff_base interval, backoff_max interval, tags text[], metadata jsonb,
  partition_key text default null, max_lost bigint default null
) returns text
  language sql stable parallel safe
  return case
    when kind is null then 'kind must be 1 to 128 characters, not null'
    when char_length(kind) not between 1 and 128
        then format('kind must be 1 to 128 characters, not %s', char_length(kind))
    when pg_column_size(args) > jobq.args_bytes_max() then
      format('args must be at most %s bytes as stored, not %s', jobq.args_bytes_max(), pg_column_size(args))
    when char_length(queue) not between 1 and 128
        then format('queue must be 1 to 128 characters, not %s', char_length(queue))
    when priority not between -32768 and 32767 then format('priority must be -32768 to 32767, not %s', priority)
    when run_at < '0001-01-01 00:00:00+00' or run_at >= '10000-01-01 00:00:00+00' then
      format('run_at must be in the years 1 to 9999, not %s', run_at)
    when max_attempts not between 1 and 32767 then format('max_attempts must be 1 to 32767, not %s', max_attempts)
    when max_lost not between 1 and 32767 then format('max_lost must be 1 to 32767, not %s', max_lost)
    when char_length(unique_key) not between 1 and 255 then
      format('unique_key must be 1 to 255 characters, not %s', char_length(unique_key))
    when char_length(partition_key) not between 1 and 255 then
      format('partition_key must be 1 to 255 characters, not %s', char_length(partition_key))
    when timeout <= '0' or timeout > '10 years'
        then format('timeout must be positive, at most 10 years, not %s', timeout)
    when backoff_base <= '0' or backoff_base > '10 years' then
      format('backoff_base must be positive, at most 10 years, not %s', backoff_base)
    when backoff_max <= '0' or backoff_max > '10 years' then
      format('backoff_max must be positive, at most 10 years, not %s', backoff_max)
    when coalesce(timeout, backoff_base, backoff_max) is not null
        and jobq.has_months(array[timeout, backoff_base, backoff_max]) then
      'timeout and backoff must be without months and years'
    when array_ndims(tags) > 1 then 'tags must be one list of texts, not a list of lists'
    when cardinality(tags) > 32 then
      format('tags must be at most 32, without nulls, 8 KiB in all, not %s', cardinality(tags))
    when array_position(tags, null) is not null
        then 'tags must be at most 32, without nulls, 8 KiB in all, not with a null'
    when pg_column_size(tags) > 8192 then
      format('tags must be at most 32, without nulls, 8 KiB in all, not %s bytes', pg_column_size(tags))
    when pg_column_size(metadata) > 65536 then
      format('metadata must be at most 64 KiB as stored, not %s bytes', pg_column_size(metadata))
  end;

-- job_unreadable says why no claim can read a job that waits; null if it can. It reads all that a claim returns, and
-- catches whatever that raises. Of JSON that is far too long it makes no text.
create function jobq.job_unreadable(of_job bigint) returns text
  language plpgsql
  as $$
declare
  problem text;
  bytes bigint;
begin
  select coalesce(jobq.json_problem('args', v.args, 67108864), jobq.json_problem('metadata', v.metadata, 67108864),
      jobq.json_problem('checkpoint', v.checkpoint, 67108864))
    into problem
    from (select p.metadata, p.checkpoint, coalesce(p.args, (select a.args from jobq.payload a
        where a.job_id = p.id)) as args
      from jobq.pending p where p.id = of_job) v;
  if problem is null then
    -- In this database's encoding everything has a text, but not always in the worker's, which is UTF8.
    select octet_length(convert_to(concat(p.queue, p.kind, p.partition_key, p.unique_key, p.last_error, p.clear_reason,
          p.tags, p.metadata, p.checkpoint, p.args, (select a.args from jobq.payload a where a.job_id = p.id)), 'UTF8'))
        + ceil(extract(epoch from p.timeout) * 1000)::bigint
      into bytes from jobq.pending p where p.id = of_job;
  end if;
  return problem;
exception when others then
  return sqlerrm;
end $$;

-- job_set_apart fails a job that no claim can read, for good, and returns the reason; null if it has not done so. The
-- job never began, and uses no attempt. What can be moved of its values stays with it. Another session's claim may have
-- locked the job, until the server has given up making its text, even after the claim was cancelled. So it can wait for
-- the lock.
create function jobq.job_set_apart(of_job bigint, waits boolean) returns text
  language plpgsql set lock_timeout = '1min'
  as $$
declare
  job jobq.run;
  problem text;
begin
  begin
    if waits then
      perform from jobq.pending p where p.id = of_job and p.position is not null for update;
    else
      perform from jobq.pending p where p.id = of_job and p.position is not null for update skip locked;
    end if;
  exception when lock_not_available then
    return null;
  end;
  if found then
    problem := jobq.job_unreadable(of_job); -- as it is now: it may have been edited
  end if;
  if problem is null then
    return null;
  end if;
  -- Not with run_of: each of the values that are missing here may be the one that cannot be read.
  insert into jobq.run
      (id, lease_id, slot, state, finished_at, position, run_at, created_at, priority, attempts, max_attempts, crashes,
       args_apart, queue, kind, unique_key, last_error, partition_key)
    select p.id, jobq.lease_id_next(), 0, 'failed', clock_timestamp(), p.position, nullif(p.run_at, p.created_at),
        p.created_at, p.priority, p.attempts, p.max_attempts, p.crashes, true, p.queue, p.kind, p.unique_key,
        left('the job cannot be read: ' || problem, 1000), nullif(p.partition_key, '')
      from jobq.pending p where p.id = of_job
    returning * into job;
  begin
    update jobq.run r
      set args = p.args, args_apart = p.args_apart, metadata = p.metadata, checkpoint = p.checkpoint, tags = p.tags,
          timeout = p.timeout
      from jobq.pending p where p.id = of_job and r.id = of_job and r.lease_id = job.lease_id;
  exception when others then
    null; -- they are damaged, and gone
  end;
  delete from jobq.pending p where p.id = of_job;
  insert into jobq.stat_delta (minute, queue, kind, failed)
    values (date_trunc('minute', clock_timestamp()), job.queue, job.kind, 1);
  perform jobq.lane_freed(job.queue, job.partition_key);
  if pg_sequence_last_value('jobq.awaited_seq') >= extract(epoch from clock_timestamp()) then
    perform jobq.waiters_wake(array[of_job]);
  end if;
  if pg_sequence_last_value('jobq.dependency_seq') is not null then
    perform jobq.parents_ended(array[of_job]);
  end if;
  return problem;
end $$;

-- unreadable_set_apart looks at up to job_count available jobs of a queue after a place, in the order of
-- pending_claim_idx, and sets those apart that no claim can read. Workers call it after a claim that has failed for
-- what it has read: one such job would make each claim of the queue fail. It returns these jobs, and the place for the
-- next call; a null key when it has come to the end. It waits for the lock of the first of them, while it has locked
-- nothing itself, and leaves out others that are locked.
create function jobq.unreadable_set_apart(
  of_queue text, inout key text, inout priority integer, inout place bigint, job_count integer, out ids bigint[],
      out problems text[]
)
  language plpgsql security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off set jit = off
  as $$
#variable_conflict use_variable
declare
  job record;
  problem text;
  looked integer := 0;
  waits boolean := true;
begin
  ids := '{}';
  problems := '{}';
  for job in
    select p.id, p.partition_key, p.priority, p.position from jobq.pending p
      where p.queue = of_queue and p.position is not null
        and (p.partition_key, p.priority, p.position) > (key, priority, place)
      order by p.partition_key, p.priority, p.position limit job_count
  loop
    looked := looked + 1;
    key := job.partition_key;
    priority := job.priority;
    place := job.position;
    continue when jobq.job_unreadable(job.id) is null;
    problem := jobq.job_set_apart(job.id, waits);
    waits := false;
    if problem is not null then
      ids := ids || job.id;
      problems := problems || left(problem, 300);
    end if;
  end loop;
  if looked < job_count then
    key := null;
  end if;
end $$;

-- Who did what to which jobs and queues, and what is needed to undo it.

-- One row per action of a person, however many jobs it is about.
create table jobq.audit (
  id           bigint      not null generated always as identity primary key,
  at           timestamptz not null default clock_timestamp(),
  snapshot_at  timestamptz, -- of an action by filter: jobs that came later are left alone
  id_max       bigint,      -- likewise
  id_done      bigint,      -- how far it has come, from id_max down; of an undo, from the lowest id up
  undone_by    bigint,      -- the undo of this action
  undoes       bigint,      -- the action that this undo is of
  ended_at     timestamptz, -- of an action by filter, or of an undo, that has come to its end
  done         integer     not null default 0, -- jobs changed
  refused      integer     not null default 0, -- jobs that could not be
  done_max     integer,     -- of an action by filter: how many jobs a run of it changes at most
  held_until   timestamptz, -- likewise: until then, nobody else works on it
  held_by      text,        -- likewise: a random name for each who does
  actor        text        not null,
  action       text        not null,
  target       text,        -- the filter, the queue, the kind, the worker, the host or the schedule
  note         text,
  -- what an edit, a clone, or a change of settings or of a schedule sets, by the names of columns; of a key: which, and
  -- its weight
  change       jsonb,
  -- of a change of settings or of a schedule: what was set before, likewise; of a key: its weight; of what goes on: why
  -- it was paused
  replaced     jsonb,
  constraint "actor must be 1 to 255 characters" check (char_length(actor) between 1 and 255),
  constraint "action must be known"
  check (action in ('requeue', 'cancel', 'delete', 'edit', 'clone', 'pause', 'resume', 'drain', 'lost', 'settings',
    'export', 'undo', 'kind_pause', 'kind_resume', 'kind_settings', 'key_pause', 'key_resume', 'key_weight',
    'schedule_set', 'schedule_pause', 'schedule_resume', 'schedule_remove', 'schedule_run', 'host_hold',
    'host_release')),
  constraint "target must be at most 8192 characters" check (char_length(target) <= 8192),
  constraint "note must be at most 1024 characters" check (char_length(note) <= 1024),
  constraint "done_max must be positive" check (done_max > 0),
  constraint "held_by must be at most 64 characters" check (char_length(held_by) <= 64)
);
comment on table jobq.audit is 'What people did: one row for each action.';
-- For the janitor, which forgets old actions.
create index audit_at_idx on jobq.audit (at);

-- One row per job changed. `before` is what an undo needs that the job's row
-- does not have any more; `version` is the moment that the action wrote into
-- the job's row, and a row that still has it was at most edited since. `seq` is
-- the order of events: an action on many jobs may take long.
create table jobq.audit_job (
  seq          bigint      not null generated always as identity,
  audit_id     bigint      not null references jobq.audit (id) on delete cascade,
  job_id       bigint      not null,
  lease_token  bigint      not null,
  version      timestamptz,
  state_before text        not null,
  state_after  text        not null,
  before       jsonb       not null,
  primary key (audit_id, job_id)
);
comment on table jobq.audit_job is 'What an action did to each of its jobs, for the undo.';
create index audit_job_job_id_idx on jobq.audit_job (job_id, audit_id);

-- length_problem says that a text is missing, empty or too long; null if it is not.
create function jobq.length_problem(name text, value text, length_max integer) returns text
  language sql stable
  return case when value is null or char_length(value) not between 1 and length_max then
    format('%s must be 1 to %s characters, not %s', name, length_max, coalesce(char_length(value)::text, 'null')) end;

-- note_problem says that a note is too long; null if it is not. An action needs none.
create function jobq.note_problem(note text) returns text
  language sql stable
  return case when char_length(note) > 1024 then
    format('note must be at most 1024 characters, not %s', char_length(note)) end;

-- actor_of is who acts, for the audit: the name that a call gives; without one what the session says in the setting
-- jobq.actor, and without that too the role that logged in. An empty name is given, and is refused. The setting has
-- the same name in every schema: in one piece, it would be taken for the schema's name.
create function jobq.actor_of(given text) returns text
  language sql stable
  return coalesce(given, nullif(current_setting('jobq' || '.actor', true), ''), session_user::text);

-- audit_begin records that an action begins.
create function jobq.audit_begin(actor text, action text, target text, note text, change jsonb default null,
    replaced jsonb default null) returns bigint
  language plpgsql
  as $$
declare
  begun bigint;
  problem text := coalesce(
    jobq.length_problem('actor', jobq.actor_of(actor), 255),
    case when char_length(target) > 8192 then
      format('target must be at most 8192 characters, not %s', char_length(target)) end,
    jobq.note_problem(note));
begin
  if problem is not null then
    raise sqlstate 'JQ001' using message = problem;
  end if;
  insert into jobq.audit (actor, action, target, note, change, replaced)
    values (jobq.actor_of(audit_begin.actor), audit_begin.action, audit_begin.target, audit_begin.note,
      audit_begin.change, audit_begin.replaced)
    returning id into begun;
  return begun;
end $$;

-- audit_prune deletes actions of more than 90 days ago, the earliest first. An action
-- is deleted after all its jobs. It deletes about row_count rows, and
-- returns how many it has deleted; 0 if nothing is left. If an
-- action had more jobs, it returns the action and the last job deleted, where the
-- next call goes on: otherwise it would read a million deleted rows each time.
-- It runs with its owner's rights, because the janitor of a worker has no other rights on the audit.
create function jobq.audit_prune(after_audit bigint, after_job bigint, row_count integer)
  returns table (deleted bigint, last_audit bigint, last_job bigint)
  language plpgsql security definer set search_path = pg_catalog, pg_temp
  as $$
declare
  old bigint;
  jobs bigint;
begin
  deleted := 0;
  for old in
    select a.id from jobq.audit a where a.at < statement_timestamp() - interval '90 days'
        order by a.at limit audit_prune.row_count
  loop
    with gone as (
      delete from jobq.audit_job t
        where t.ctid = any(array(
          select x.ctid from jobq.audit_job x
            where x.audit_id = old and (old <> audit_prune.after_audit or x.job_id > audit_prune.after_job)
            order by x.job_id
            limit audit_prune.row_count - deleted))
        returning t.job_id
    )
    select count(*), max(g.job_id) into jobs, last_job from gone g;
    deleted := deleted + jobs;
    last_audit := old;
    exit when deleted >= audit_prune.row_count;
    delete from jobq.audit a where a.id = old;
    deleted := deleted + 1;
    exit when deleted >= audit_prune.row_count;
  end loop;
  return next;
end $$;

-- audit_begin_many is audit_begin for an action by filter, which takes many calls of
-- act. It fixes which jobs are meant, so that jobs added later are not. If somebody
-- counted the jobs before, snapshot_at and id_max are those of the count.
create function jobq.audit_begin_many(
  actor text, action text, target text, change jsonb,
  snapshot_at timestamptz default null, id_max bigint default null, done_max integer default null
) returns bigint
  language plpgsql
  as $$
declare
  begun bigint := jobq.audit_begin(audit_begin_many.actor, audit_begin_many.action, audit_begin_many.target, null,
      audit_begin_many.change);
begin
  update jobq.audit a
    set snapshot_at = least(audit_begin_many.snapshot_at, clock_timestamp()),
      id_max = (select least(audit_begin_many.id_max, s.last_value) from jobq.job_id_seq s),
      done_max = audit_begin_many.done_max
    where a.id = begun;
  return begun;
end $$;

-- audit_resume continues an action by filter that was stopped, and notes who
-- did so. An action that is complete, or was undone, cannot be continued.
create function jobq.audit_resume(actor text, audit_id bigint) returns void
  language plpgsql
  as $$
declare
  stopped jobq.audit;
begin
  select a.* into stopped from jobq.audit a where a.id = audit_resume.audit_id for update;
  if not found then
    raise sqlstate 'JQ002' using message = format('no action %s', audit_resume.audit_id);
  end if;
  if stopped.id_max is null or stopped.ended_at is not null or stopped.undone_by is not null then
    raise sqlstate 'JQ003' using message = format(
      case when stopped.id_max is null then 'action %s is not one by filter'
        when stopped.undone_by is not null then 'action %s is undone'
        else 'action %s has come to its end' end, audit_resume.audit_id);
  end if;
  update jobq.audit a set note = format('resumed by %s', jobq.actor_of(audit_resume.actor))
    where a.id = audit_resume.audit_id;
end $$;

-- Schedules: jobs that are added by themselves, by a cron expression in a time zone
-- or every so often. A moment at which a schedule fires is a tick.
--
-- A janitor computes ticks (Go package internal/schedule), and schedule_fire adds
-- their jobs. What makes each tick once is in the rows, so that any number of
-- janitors may try, stop in the middle, and disagree about the time:
--
--   name    cursor_at  due_at    it is 12:00:00.004, and two janitors look
--   report  11:00:00   12:00:00
--   the first:  fire (cursor_at 11:00:00, ticks {12:00:00}): adds the job, and
--               sets cursor_at to 12:00:00.004 and due_at to 13:00:00
--   the second: fire (cursor_at 11:00:00, ticks {12:00:00}): the cursor is another
--               one by now, and nothing happens

create table jobq.schedule (
  name            text        not null primary key,
  revision        bigint      not null default 1, -- grows with each change that people make
  cron            text,       -- either this
  every           interval,   -- or this
  time_zone       text        not null default 'UTC', -- of cron
  -- The job to add.
  kind            text        not null,
  args            jsonb       not null default '{}',
  queue           text,       -- null, as of what follows: the default of the kind when the job is added
  priority        smallint,
  max_attempts    smallint,
  timeout         interval,
  backoff_base    interval,
  backoff_max     interval,
  tags            text[],
  metadata        jsonb,
  partition_key   text,
  -- What becomes of ticks that no janitor was there for: none of them, the latest,
  -- or the latest catch_up_max; but none that is later than catch_up_within.
  catch_up        text        not null default 'latest',
  catch_up_max    integer     not null default 100,
  catch_up_within interval    not null default '1 day',
  -- What becomes of a tick while the job of the one before is unfinished: it is
  -- added all the same (allow), or not (skip).
  overlap         text        not null default 'allow',
  source          text        not null default '', -- where it is declared, such as a file
  created_at      timestamptz not null default clock_timestamp(),
  paused_at       timestamptz,
  paused_by       text,
  pause_reason    text,
  -- What janitors keep. All ticks up to the cursor are dealt with.
  cursor_at       timestamptz not null default clock_timestamp(),
  -- When a janitor is to look at it: at its next tick; at once when somebody has
  -- changed it; later after an error; never (null) while it is paused, or when it
  -- has no ticks any more.
  due_at          timestamptz default clock_timestamp(),
  last_tick_at    timestamptz,
  last_job_id     bigint,     -- of the latest tick that added one; not of schedule_run
  failures        integer     not null default 0, -- in a row
  error           text,       -- why it did not work, until it works again
  error_at        timestamptz,
  constraint "name must be 1 to 128 characters" check (char_length(name) between 1 and 128),
  constraint "either cron or every must be given" check ((cron is null) <> (every is null)),
  constraint "cron must be 1 to 255 characters" check (char_length(cron) between 1 and 255),
  constraint "every must be whole seconds, 1 second to 366 days"
  check (every between interval '1 s' and interval '366 days'
    and extract(epoch from every) = trunc(extract(epoch from every))),
  constraint "every, timeout, backoff and catch_up_within are without months"
    check (not jobq.has_months(array[every, timeout, backoff_base, backoff_max, catch_up_within])),
  constraint "time_zone must be 1 to 64 characters" check (char_length(time_zone) between 1 and 64),
  constraint "catch_up must be none, latest or all" check (catch_up in ('none', 'latest', 'all')),
  constraint "catch_up_max must be 1 to 1000" check (catch_up_max between 1 and 1000),
  constraint "catch_up_within must be 1 second to 10 years"
  check (catch_up_within between interval '1 s' and interval '10 years'), constraint "overlap must be allow or skip"
  check (overlap in ('allow', 'skip')), constraint "source must be at most 255 characters"
  check (char_length(source) <= 255), constraint "pause_reason must be at most 1024 characters"
  check (char_length(pause_reason) <= 1024), constraint "error must be at most 1000 characters"
  check (char_length(error) <= 1000), constraint "a paused schedule is not due"
      check (paused_at is null or due_at is null)
) with (fillfactor = 70);
comment on table jobq.schedule is 'Jobs that are added at fixed times. Change it with jobq.schedule_set and its like.';
comment on column jobq.schedule.name is 'The schedule.';
comment on column jobq.schedule.revision is 'Grows with each change that people make.';
comment on column jobq.schedule.cron is 'A cron expression; null: see every.';
comment on column jobq.schedule.every is 'Or how often; null: see cron.';
comment on column jobq.schedule.time_zone is 'Of cron: a name of the IANA database.';
comment on column jobq.schedule.kind is 'Of the jobs to add.';
comment on column jobq.schedule.args is 'Of the jobs.';
comment on column jobq.schedule.queue is 'Of the jobs; null: the default of the kind.';
comment on column jobq.schedule.priority is 'Of the jobs; null: the default of the kind.';
comment on column jobq.schedule.max_attempts is 'Of the jobs; null: the default of the kind.';
comment on column jobq.schedule.timeout is 'Of the jobs; null: the default of the kind.';
comment on column jobq.schedule.backoff_base is 'Of the jobs; null: the default of the kind.';
comment on column jobq.schedule.backoff_max is 'Of the jobs; null: the default of the kind.';
comment on column jobq.schedule.tags is 'Of the jobs; null: none.';
comment on column jobq.schedule.metadata is 'Of the jobs; null: none.';
comment on column jobq.schedule.partition_key is 'Of the jobs; null: none.';
comment on column jobq.schedule.catch_up is 'Which missed ticks are made up for: none, the latest, or all.';
comment on column jobq.schedule.catch_up_max is 'How many at most.';
comment on column jobq.schedule.catch_up_within is 'None that is later than this.';
comment on column jobq.schedule.overlap is 'allow, or skip: no new job while the last one is unfinished.';
comment on column jobq.schedule.source is 'Where it is declared, such as a file; empty: nowhere.';
comment on column jobq.schedule.created_at is 'When it was made.';
comment on column jobq.schedule.paused_at is 'Since when it adds nothing; null: it is not paused.';
comment on column jobq.schedule.paused_by is 'Who paused it.';
comment on column jobq.schedule.pause_reason is 'And why.';
comment on column jobq.schedule.cursor_at is 'All ticks up to this moment are dealt with.';
comment on column jobq.schedule.due_at is 'When a janitor looks at it next; null: never.';
comment on column jobq.schedule.last_tick_at is 'The last tick dealt with.';
comment on column jobq.schedule.last_job_id is 'The last job that a tick added.';
comment on column jobq.schedule.failures is 'How many times in a row it did not work.';
comment on column jobq.schedule.error is 'Why it does not work; null: it does.';
comment on column jobq.schedule.error_at is 'Since when.';
-- The janitor reads what is due, and when the next one is, from this one.
create index schedule_due_idx on jobq.schedule (due_at, name) where due_at is not null;

-- The ticks that were dealt with, each once, and the job of each: null when it was
-- not added, because the one before was unfinished. They are kept for 7 days, also
-- when the schedule is gone: one of the same name makes none of them again, not even
-- when the clock was set back.
create table jobq.schedule_tick (
  schedule text        not null,
  tick_at  timestamptz not null,
  job_id   bigint,
  constraint schedule_tick_pkey primary key (schedule, tick_at)
);
comment on table jobq.schedule_tick is 'Moments at which schedules fired, for 7 days.';
comment on column jobq.schedule_tick.schedule is 'Its name.';
comment on column jobq.schedule_tick.tick_at is 'The moment by the schedule, not when the job was added.';
comment on column jobq.schedule_tick.job_id is 'The job; null: the tick was skipped.';
-- For the janitor, which forgets old ticks.
create index schedule_tick_at_idx on jobq.schedule_tick (tick_at);

-- schedule_problem says in words what is wrong with a new schedule, or null. Whether
-- the cron expression and the time zone are right, only janitors know, and Go.
create function jobq.schedule_problem(s jobq.schedule) returns text
  language sql stable
  as $$
    select case
      when s.name is null then 'name must be 1 to 128 characters, not null'
      when char_length(s.name) not between 1 and 128
          then format('name must be 1 to 128 characters, not %s', char_length(s.name))
      when (s.cron is null) = (s.every is null) then 'either cron or every must be given'
      when char_length(s.cron) not between 1 and 255
          then format('cron must be 1 to 255 characters, not %s', char_length(s.cron))
      when jobq.has_months(array[s.every]) then
        format('every must be in weeks, days, hours, minutes or seconds, not %s: a month or a year is said with cron, '
          'such as 0 0 1 * *', s.every)
      when s.every not between interval '1 s' and interval '366 days'
          or extract(epoch from s.every) <> trunc(extract(epoch from s.every)) then
        format('every must be whole seconds, 1 second to 366 days, not %s', s.every)
      when s.every is not null
          and s.time_zone <> 'UTC' then 'time_zone is for cron: every so often is the same everywhere'
      when char_length(s.time_zone) not between 1 and 64
          then format('time_zone must be 1 to 64 characters, not %s', char_length(s.time_zone))
      when s.catch_up not in ('none', 'latest', 'all')
          then format('catch_up must be none, latest or all, not %s', left(s.catch_up, 100))
      when s.catch_up_max not between 1 and 1000 then format('catch_up_max must be 1 to 1000, not %s', s.catch_up_max)
      when s.catch_up_within not between interval '1 s' and interval '10 years' then
        format('catch_up_within must be 1 second to 10 years, not %s', s.catch_up_within)
      when jobq.has_months(array[s.catch_up_within]) then
        format('catch_up_within must be in weeks, days, hours, minutes or seconds, not %s', s.catch_up_within)
      when s.overlap not in ('allow', 'skip') then format('overlap must be allow or skip, not %s', left(s.overlap, 100))
      when char_length(s.source) > 255
          then format('source must be at most 255 characters, not %s', char_length(s.source))
      when jsonb_typeof(s.metadata) <> 'object'
          then format('metadata must be a JSON object, not %s', jsonb_typeof(s.metadata))
      else coalesce(
        jobq.job_problem(s.kind, s.args, s.queue, s.priority, null, s.max_attempts, null, s.timeout, s.backoff_base,
          s.backoff_max, s.tags, s.metadata || jsonb_build_object('schedule', s.name, 'tick', '2000-01-01T00:00:00Z'),
              s.partition_key),
        jobq.json_problem('args', s.args, jobq.args_bytes_max()), jobq.json_problem('metadata', s.metadata, 65000))
    end
  $$;

-- schedule_record writes into the audit what somebody does to a schedule, with what
-- its undo needs, and tells the janitor that leads to look at schedules now. It
-- returns the id of the entry.
create function jobq.schedule_record(actor text, action text, name text, note text, replaced jsonb,
    change jsonb default null) returns bigint
  language plpgsql
  as $$
declare
  begun bigint := jobq.audit_begin(actor, action, name, note, change, replaced);
begin
  perform jobq.notify('schedule', '');
  return begun;
end $$;

-- schedule_wishes is what people set of a schedule, and not what janitors keep.
create function jobq.schedule_wishes(s jobq.schedule) returns jsonb
  language sql stable
  return to_jsonb(s) - '{revision, created_at, paused_at, paused_by, pause_reason, cursor_at, due_at, last_tick_at,
    last_job_id, failures, error, error_at}'::text[];

-- schedule_put makes a schedule, or changes the one of that name into this one, and
-- records it. It returns the id of the entry in the audit, or null when it is so
-- already. A new one begins at the ticks from now on; one that was removed is as it
-- was, and of one that is there only what people set changes. With fresh, one that is
-- there is a conflict.
create function jobq.schedule_put(new jobq.schedule, actor text, note text default null, fresh boolean default false)
    returns bigint
  language plpgsql
  as $$
declare
  old jobq.schedule;
begin
  new.revision := 1;
  new.cursor_at := clock_timestamp();
  new.due_at := case when new.paused_at is null then new.cursor_at end;
  new.failures := 0;
  new.error := null;
  new.error_at := null;
  loop
    insert into jobq.schedule select new.* on conflict on constraint schedule_pkey do nothing;
    exit when found;
    if fresh then
      raise sqlstate 'JQ003' using message = format('schedule %s has been made meanwhile', new.name);
    end if;
    select s.* into old from jobq.schedule s where s.name = new.name for update;
    continue when not found; -- removed meanwhile
    if jobq.schedule_wishes(old) = jobq.schedule_wishes(new) then
      return null;
    end if;
    new.revision := old.revision + 1;
    if (old.cron, old.every, old.time_zone) is not distinct from (new.cron, new.every, new.time_zone) then
      new.cursor_at := old.cursor_at;
    end if;
    if old.paused_at is not null then
      new.due_at := null;
    end if;
    -- In place: whoever waits for the row is to find it.
    update jobq.schedule s
      set revision = new.revision, cron = new.cron, every = new.every, time_zone = new.time_zone, kind = new.kind,
        args = new.args, queue = new.queue, priority = new.priority, max_attempts = new.max_attempts,
        timeout = new.timeout, backoff_base = new.backoff_base, backoff_max = new.backoff_max, tags = new.tags,
        metadata = new.metadata, partition_key = new.partition_key, catch_up = new.catch_up,
        catch_up_max = new.catch_up_max, catch_up_within = new.catch_up_within, overlap = new.overlap,
        source = new.source, cursor_at = new.cursor_at, due_at = new.due_at, failures = new.failures, error = null,
        error_at = null
      where s.name = new.name;
    exit;
  end loop;
  return jobq.schedule_record(schedule_put.actor, 'schedule_set', new.name, schedule_put.note, case
      when old.name is not null then jobq.schedule_wishes(old) end,
    jobq.schedule_wishes(new) - 'name' || case when pg_column_size(new.args) > 1000 then '{"args": "..."}'
        else '{}'::jsonb end);
end $$;

-- schedule_set makes a schedule, or changes the one of that name into this one: what
-- is left out, or null, gets its default; of the jobs, that of their kind when they are
-- added. It returns the id of the entry in the
-- audit, for undo; when it is so already, null, and nothing is written. With another
-- cron expression, interval or time zone, its ticks are those from now on. A paused
-- one stays paused.
create function jobq.schedule_set(
  name            text,
  kind            text,
  cron            text     default null,
  every           interval default null,
  time_zone       text     default null,
  args            jsonb    default null,
  queue           text     default null,
  priority        bigint   default null,
  max_attempts    bigint   default null,
  timeout         interval default null,
  backoff_base    interval default null,
  backoff_max     interval default null,
  tags            text[]   default null,
  metadata        jsonb    default null,
  partition_key   text     default null,
  catch_up        text     default null,
  catch_up_max    integer  default null,
  catch_up_within interval default null,
  overlap         text     default null,
  source          text     default null,
  actor           text     default null
) returns bigint
  language plpgsql
  as $$
declare
  new jobq.schedule;
  problem text := jobq.job_problem(kind, args, queue, priority, null, max_attempts, null, timeout, backoff_base,
      backoff_max, tags, metadata);
begin
  if problem is not null then -- before numbers are cut to the size of their columns
    raise sqlstate 'JQ001' using message = problem, hint = 'docs/sql.md lists the limits of all arguments.';
  end if;
  new.name := schedule_set.name;
  new.cron := schedule_set.cron;
  new.every := schedule_set.every;
  new.time_zone := coalesce(schedule_set.time_zone, 'UTC');
  new.kind := schedule_set.kind;
  new.args := coalesce(schedule_set.args, '{}');
  new.queue := schedule_set.queue;
  new.priority := schedule_set.priority;
  new.max_attempts := schedule_set.max_attempts;
  new.timeout := schedule_set.timeout;
  new.backoff_base := schedule_set.backoff_base;
  new.backoff_max := schedule_set.backoff_max;
  new.tags := nullif(schedule_set.tags, '{}');
  new.metadata := schedule_set.metadata;
  new.partition_key := schedule_set.partition_key;
  new.catch_up := coalesce(schedule_set.catch_up, 'latest');
  new.catch_up_max := coalesce(schedule_set.catch_up_max, 100);
  new.catch_up_within := coalesce(schedule_set.catch_up_within, interval '1 day');
  new.overlap := coalesce(schedule_set.overlap, 'allow');
  new.source := coalesce(schedule_set.source, '');
  new.created_at := clock_timestamp();
  problem := jobq.schedule_problem(new);
  if problem is not null then
    raise sqlstate 'JQ001' using message = problem, hint = 'docs/schedules.md has examples.';
  end if;
  return jobq.schedule_put(new, schedule_set.actor);
end $$;
comment on function jobq.schedule_set is
  'Makes or changes a schedule; returns the number of the action, or null if nothing changed.';

-- schedule_lock locks a schedule and returns it. A name that nobody has is refused.
create function jobq.schedule_lock(name text) returns jobq.schedule
  language plpgsql
  as $$
declare
  s jobq.schedule;
begin
  select x.* into s from jobq.schedule x where x.name = schedule_lock.name for update;
  if not found then
    raise sqlstate 'JQ002'
        using message = format('no schedule %s', coalesce(to_json(left(schedule_lock.name, 128))::text, 'null'));
  end if;
  return s;
end $$;

-- schedule_pause stops a schedule, until schedule_resume: nothing fires once this is
-- committed. It returns the id of the entry in the audit, or null when it was paused
-- already.
create function jobq.schedule_pause(name text, reason text default null, actor text default null) returns bigint
  language plpgsql
  as $$
begin
  if char_length(reason) > 1024 then
    raise sqlstate 'JQ001'
        using message = format('reason must be at most 1024 characters, not %s', char_length(reason));
  end if;
  if (jobq.schedule_lock(name)).paused_at is not null then
    return null;
  end if;
  update jobq.schedule s
    set paused_at = clock_timestamp(), paused_by = jobq.actor_of(actor), pause_reason = reason, due_at = null,
        revision = s.revision + 1
    where s.name = schedule_pause.name;
  return jobq.schedule_record(actor, 'schedule_pause', name, reason, null);
end $$;
comment on function jobq.schedule_pause is 'The schedule adds nothing until schedule_resume.';

-- schedule_resume lets a schedule fire again, at the ticks from now on. It returns
-- the id of the entry in the audit, or null when it was not paused.
create function jobq.schedule_resume(name text, actor text default null, note text default null) returns bigint
  language plpgsql
  as $$
declare
  old jobq.schedule := jobq.schedule_lock(name);
begin
  if old.paused_at is null then
    return null;
  end if;
  update jobq.schedule s
    set paused_at = null, paused_by = null, pause_reason = null, cursor_at = greatest(s.cursor_at, clock_timestamp()),
      due_at = clock_timestamp(), revision = s.revision + 1
    where s.name = schedule_resume.name;
  return jobq.schedule_record(actor, 'schedule_resume', name, note,
      jsonb_build_object('pause_reason', old.pause_reason));
end $$;
comment on function jobq.schedule_resume is 'The schedule goes on.';

-- schedule_remove forgets a schedule. Its jobs stay. It returns the id of the entry
-- in the audit.
create function jobq.schedule_remove(name text, actor text default null, note text default null) returns bigint
  language plpgsql
  as $$
declare
  old jobq.schedule := jobq.schedule_lock(name);
begin
  delete from jobq.schedule s where s.name = schedule_remove.name;
  return jobq.schedule_record(actor, 'schedule_remove', name, note, to_jsonb(old));
end $$;
comment on function jobq.schedule_remove is 'Removes a schedule; its jobs stay.';

-- schedule_undo takes back what was done to a schedule, if nothing was done to it
-- since that this would take back, too:
--
--   set      it is as it was before, or is removed if it was not there
--   remove   it is there again, paused if it was, and fires at the ticks from now on
--   pause    it goes on, at the ticks from now on
--   resume   it is paused again, for the reason that it was paused for
--
-- A pause is not in the way of undoing a change, nor a change in the way of undoing a
-- pause. Whoever makes or removes the schedule is in the way of both.
create function jobq.schedule_undo(actor text, undone jobq.audit) returns void
  language plpgsql
  as $$
declare
  whole constant boolean := undone.action = 'schedule_remove' or undone.action = 'schedule_set'
      and undone.replaced is null;
  later jobq.audit;
  was jobq.schedule;
begin
  perform from jobq.schedule s where s.name = undone.target for update; -- nobody changes it from here on
  select a.* into later
    from jobq.audit a
    where a.id > undone.id and a.target = undone.target and a.action like 'schedule\_%' and a.action <> 'schedule_run'
      and (whole or a.action = 'schedule_remove' or (a.action = 'schedule_set') = (undone.action = 'schedule_set'))
    order by a.id
    limit 1;
  if found then
    raise sqlstate 'JQ003' using message = format('schedule %s has had a %s meanwhile, by action %s', undone.target,
      case later.action when 'schedule_set' then 'change' when 'schedule_remove' then 'removal'
          else substr(later.action, 10) end, later.id);
  end if;
  if undone.replaced is not null then
    was := jsonb_populate_record(was, undone.replaced);
    if undone.replaced -> 'args' = 'null' then -- JSON's null, not ours
      was.args := 'null';
    end if;
  end if;
  case
    when undone.action = 'schedule_pause' then
      perform jobq.schedule_resume(undone.target, actor, 'undo');
    when undone.action = 'schedule_resume' then
      perform jobq.schedule_pause(undone.target, was.pause_reason, actor);
    when undone.replaced is null then
      perform jobq.schedule_remove(undone.target, actor, 'undo');
    else
      was.created_at := coalesce(was.created_at, clock_timestamp());
      -- Somebody may be making one of that name: it waits for them, and then is refused.
      perform jobq.schedule_put(was, actor, 'undo', undone.action = 'schedule_remove');
  end case;
end $$;

-- schedule_run adds the job of a schedule now, whatever its ticks are and also when
-- it is paused, and returns its id. For overlap skip, that job does not count.
create function jobq.schedule_run(name text, actor text default null) returns bigint
  language plpgsql
  as $$
declare
  s jobq.schedule := jobq.schedule_lock(name);
  job bigint;
begin
  job := jobq.schedule_job(s, null);
  perform jobq.audit_begin(actor, 'schedule_run', name, format('job %s', job));
  return job;
end $$;
comment on function jobq.schedule_run is 'Adds the schedule''s job now, and returns its id.';

-- What janitors do with schedules: the jobs of ticks.

-- schedule_job adds the job of a schedule: of a tick, or of none when a person wants
-- it now. It is to run from the tick on, and its metadata say which one it is of.
create function jobq.schedule_job(s jobq.schedule, tick_at timestamptz) returns bigint
  language sql
  as $$
    select jobq.enqueue(s.kind, s.args, s.queue, s.priority, coalesce(tick_at, clock_timestamp()), s.max_attempts, null,
      s.timeout, s.backoff_base, s.backoff_max, s.tags,
          coalesce(s.metadata, '{}') || jsonb_strip_nulls(jsonb_build_object('schedule', s.name,
        'tick', to_char(tick_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'))), partition_key => s.partition_key)
  $$;

-- schedule_fire adds the jobs of ticks of a schedule that is as a janitor has seen
-- it (revision, cursor_at), and returns their ids. All ticks up to looked_at are
-- dealt with then, whether they are among these or not, and due_at is the next one.
-- Null, and nothing done, when somebody else has dealt with it, changed it, or has
-- it locked: it then waits for nobody. What the insert of a job fails with undoes all.
create function jobq.schedule_fire(
  name text, revision bigint, cursor_at timestamptz, ticks timestamptz[], looked_at timestamptz, due_at timestamptz
) returns bigint[]
  language plpgsql
  as $$
declare
  s jobq.schedule;
  tick timestamptz;
  job bigint;
  jobs bigint[] := '{}';
begin
  select x.* into s from jobq.schedule x
    where x.name = schedule_fire.name and x.revision = schedule_fire.revision and x.cursor_at = schedule_fire.cursor_at
      and x.paused_at is null
    for update skip locked;
  if not found then
    return null;
  end if;
  foreach tick in array ticks loop
    -- One that was made before a clock was set back, or by a schedule of this name that was removed since.
    continue when exists (select from jobq.schedule_tick t where t.schedule = s.name and t.tick_at = tick);
    job := null;
    if s.overlap = 'allow' or not (
        exists (select from jobq.pending p where p.id = s.last_job_id)
        or exists (
          select from jobq.run r
            cross join lateral jobq.run_end(r.lease_id, r.slot, r.finished_at) e
            where r.id = s.last_job_id and e.ended_at is null)) then
      job := jobq.schedule_job(s, tick);
      jobs := jobs || job;
      s.last_job_id := job;
      s.error := null;
      s.error_at := null;
    end if;
    insert into jobq.schedule_tick (schedule, tick_at, job_id) values (s.name, tick, job);
    s.last_tick_at := tick;
  end loop;
  update jobq.schedule x
    set cursor_at = greatest(s.cursor_at, schedule_fire.looked_at), due_at = schedule_fire.due_at,
      last_tick_at = s.last_tick_at, last_job_id = s.last_job_id, failures = 0, error = s.error, error_at = s.error_at
    where x.name = s.name;
  return jobs;
end $$;

-- schedule_turn takes turns among applications that declare their schedules: until the transaction ends, for ten
-- seconds at most.
create function jobq.schedule_turn() returns void
  language plpgsql security definer set search_path = pg_catalog, pg_temp
  as $$
begin
  if not jobq.turn_take('schedules', 10000) then
    raise lock_not_available using message = 'somebody else has been declaring schedules for 10 seconds',
      detail = coalesce(jobq.turn_holder('schedules')::text, 'Its process is not known.'),
          hint = 'Try again when that transaction has ended.';
  end if;
end $$;

-- Jobs that wait for other jobs, their parents: see docs/dependencies.md, and docs/decisions/0024 for the order of
-- commits in each case.

-- Has a value since the first dependency was added. A sequence, because its value is
-- read as it is and not as of a snapshot: until then, whoever ends a job looks at no
-- more than this.
create sequence jobq.dependency_seq as bigint;

-- The child waits for the parent. A row stays when the parent is over, for people and
-- for the results of parents, until the parent's day of the history goes.
create table jobq.dependency (
  child        bigint not null,
  parent       bigint not null,
  parent_lease bigint, -- of the parent's last run, known when that was over: retention keeps its day
  parent_state jobq.job_state, -- null: the child waits for it; else as the parent has ended
  on_failure   text   not null, -- what becomes of the child when the parent fails or is cancelled
  constraint dependency_pkey primary key (child, parent),
  constraint "after_failure must be cancel, run or wait" check (on_failure in ('cancel', 'run', 'wait'))
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000);
comment on table jobq.dependency is 'Which job waits, or has waited, for which: read jobq.parents.';
-- What each end of a job, and the janitor, ask.
create index dependency_open_idx on jobq.dependency (parent, child) where parent_state is null;
-- Whether a child still waits.
create index dependency_waits_idx on jobq.dependency (child, parent) where parent_state is null;
-- For people. Without those that are open: who asks for these alone must not come here, where
-- there may be a history of others.
create index dependency_parent_idx on jobq.dependency (parent, child) where parent_state is not null;
-- For retention.
create index dependency_kept_idx on jobq.dependency (parent_lease, child, parent) where parent_lease is not null;

-- Jobs that the janitor is to look at: parents that are over, new ones that may have
-- ended at the same moment, and jobs that wait and perhaps need not. A row is a hint;
-- what counts is what the rows of the job say.
create table jobq.dependency_look (
  id          bigint      not null generated always as identity,
  look_at     timestamptz not null default clock_timestamp(),
  job_id      bigint      not null,
  after_child bigint      not null default 0, -- its children up to this one have been dealt with
  is_new      boolean     not null default false, -- a dependency on it was added: see dependency_step
  first_at    timestamptz, -- of a new one: when it was looked at first
  sure_from   xid8, -- and in which transaction
  locked      boolean     not null default false, -- some of its children were
  ended       jobq.job_state, -- of one that was deleted: how it had ended
  constraint dependency_look_pkey primary key (id)
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);
comment on table jobq.dependency_look is 'Jobs at whose ends, and children, a janitor is to look.';
create index dependency_look_due_idx on jobq.dependency_look (look_at, id);
create index dependency_look_ended_idx on jobq.dependency_look (job_id) where ended is not null;

-- look_soon makes the janitor look at these jobs when the transaction is committed. ended is how deleted jobs had
-- ended. PostgreSQL merges equal notifications of a transaction: all of one second are one notification, and the
-- janitor begins its looks 2 s earlier.
create function jobq.look_soon(jobs bigint[], is_new boolean default false, ended jobq.job_state default null)
    returns void
  language plpgsql security definer set search_path = pg_catalog, pg_temp
  as $$
begin
  if cardinality(jobs) > 0 then
    insert into jobq.dependency_look (job_id, is_new, ended) select j.id, look_soon.is_new, look_soon.ended
        from unnest(jobs) as j(id);
    perform jobq.notify('due', extract(epoch from date_trunc('second', clock_timestamp()))::text);
  end if;
end $$;

-- parents_ended makes the janitor look at those of these jobs for which others wait. With slots, only the jobs at these
-- places of the array count. as_ended is how deleted jobs had ended.
--
-- Once any dependency was ever added, it is called for plain ends and for jobs that end before they have begun;
-- run_parents_ended does the same for all other ends. It writes no row of another job, so it waits for nobody.
--
-- It sees each dependency that was committed before. Who commits a dependency later finds this transaction open, or
-- ended, since it has its id already (dependency_step). In a transaction with an older snapshot, the janitor looks at
-- all the jobs.
create function jobq.parents_ended(jobs bigint[], slots smallint[] default null, as_ended jobq.job_state default null)
    returns void
  language plpgsql security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off set jit = off
  as $$
declare
  ended bigint[] := case when slots is null then jobs else array(select jobs[s] from unnest(slots) s) end;
  low bigint;
  high bigint;
begin
  if current_setting('transaction_isolation') = 'read committed' then
    -- Most jobs that end together are near one another, and far from those for which others
    -- wait: one look at the index tells. Over a wide range it could meet many entries of
    -- dependencies that are over.
    select min(e.id), max(e.id) into low, high from unnest(ended) as e(id);
    if cardinality(ended) > 20 and high - low < 4 * cardinality(ended)
        and not exists (select from jobq.dependency d where d.parent >= low and d.parent <= high
            and d.parent_state is null) then
      return;
    end if;
    ended := array(
      select e.id from unnest(ended) as e(id)
        where (select true from jobq.dependency d where d.parent = e.id and d.parent_state is null limit 1));
  end if;
  perform jobq.look_soon(ended, false, as_ended);
end $$;

-- run_parents_ended is parents_ended for one job, without the call: no other job waits for most jobs.
create function jobq.run_parents_ended() returns trigger
  language plpgsql security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off set jit = off
  as $$
begin
  if current_setting('transaction_isolation') <> 'read committed'
      or (select true from jobq.dependency d where d.parent = new.id and d.parent_state is null limit 1) then
    perform jobq.look_soon(array[new.id]);
  end if;
  return null;
end $$;
-- Of all ends on rows of their own, whoever writes them. Plain ends are not seen here:
-- LeaseEnd tells of these; nor are jobs that end without having begun, or are put back into the
-- history: cancel, delete_job, waiting_cancel and run_restore tell of them.
create trigger run_parents_ended after update on jobq.run
  for each row when (new.state is not null and old.state is null
      and pg_sequence_last_value('jobq.dependency_seq') is not null)
  execute function jobq.run_parents_ended();

-- job_over is how a job has ended, with the lease of its last run; no row if it has not. A deleted job counts as ended
-- today, in the way that whoever deleted it has noted, or as cancelled if it had not ended.
create function jobq.job_over(job_id bigint) returns table (state jobq.job_state, lease_id bigint, gone boolean)
  language plpgsql
  as $$
begin
  return query
    select coalesce(r.state, 'completed'), r.lease_id, false
      from jobq.run r
      cross join lateral jobq.run_end(r.lease_id, r.slot, r.finished_at) e
      where r.id = job_over.job_id and e.ended_at is not null
      limit 1;
  if not found and not jobq.job_exists(job_over.job_id) then
    return query
      select coalesce((select l.ended from jobq.dependency_look l
          where l.job_id = job_over.job_id and l.ended is not null limit 1), 'cancelled'),
        jobq.lease_day((clock_timestamp() at time zone 'UTC')::date), true;
  end if;
end $$;

-- waiting_free takes those of these jobs that wait for no other job any more, and makes them available or scheduled.
-- The time for which they waited for other jobs does not count as time in the line. The index is read in the order of
-- the ids, so jobs that one parent frees are in the line in the order in which they were added; in the order of the
-- table they would not be.
create function jobq.waiting_free(jobs bigint[]) returns void
  language plpgsql set enable_seqscan = off set enable_bitmapscan = off set jit = off
  as $$
declare
  due timestamptz;
begin
  with freed as (
    update jobq.pending p
      set waits = null, run_at = greatest(p.run_at, clock_timestamp()), position = case
          when p.run_at <= clock_timestamp() then nextval('jobq.position_seq') end
      where p.id = any(jobs) and p.waits
        -- The last ones first: parents mostly end in the order in which they were added, and
        -- the entries of those that are over stay in the index for a while.
        and (select true from jobq.dependency d where d.child = p.id and d.parent_state is null
            order by d.parent desc limit 1) is null
      returning p.queue, p.position, p.run_at
  ), woken as materialized (
    select jobq.wake('work', q.queue) from (select distinct f.queue from freed f where f.position is not null) q
  )
  select min(f.run_at) filter (where f.position is null) into due from freed f where (select count(*) from woken) >= 0;
  if due is not null then
    perform jobq.notify('due', extract(epoch from due)::text);
  end if;
end $$;

-- parent_error is the last error of a job that is cancelled with its parent, and parent_named the parent in such an
-- error: null for any other error.
create function jobq.parent_error(parent bigint, ended jobq.job_state, gone boolean) returns text
  language sql stable
  return format('job %s, for which it waited, %s', parent, case when ended = 'failed' then 'has failed'
      when gone then 'is gone' else 'was cancelled' end);

create function jobq.parent_named(last_error text) returns bigint
  language sql immutable
  return substring(last_error
      from '^job ([1-9][0-9]{0,17}), for which it waited, (?:has failed|is gone|was cancelled)$')::bigint;

-- waiting_cancel cancels those of these jobs that still wait, with the reason as their last_error.
create function jobq.waiting_cancel(jobs bigint[], reason text) returns void
  language plpgsql set enable_seqscan = off set jit = off
  as $$
declare
  was_queues text[]; -- of those with a partition key, which one that had run before may have held
  was_keys text[];
begin
  with taken as (
    delete from jobq.pending p where p.id = any(jobs) and p.waits
      returning p.*
  ), counted as (
    insert into jobq.stat_delta (minute, queue, kind, cancelled)
      select date_trunc('minute', clock_timestamp()), t.queue, t.kind, count(*) from taken t group by t.queue, t.kind
  ), added as (
    insert into jobq.run as r
      select n.*
        from taken t
        cross join lateral jobq.run_of(row(t.*)::jobq.pending, jobq.lease_id_next(), 0::smallint, 'cancelled',
          clock_timestamp(), waiting_cancel.reason) n
      returning r.queue, r.partition_key
  )
  select array_agg(a.queue), array_agg(a.partition_key) into was_queues, was_keys from added a
      where a.partition_key is not null;
  perform jobq.lane_hints_add(k.queue, array_agg(distinct k.key), true)
      from unnest(was_queues, was_keys) as k(queue, key) group by k.queue;
  if pg_sequence_last_value('jobq.awaited_seq') >= extract(epoch from clock_timestamp()) then
    perform jobq.waiters_wake(jobs); -- a hint, which those that were not cancelled may have as well
  end if;
  perform jobq.parents_ended(jobs); -- likewise
end $$;

-- dependents_settle handles these children of a parent that has ended, in the order of their ids: it notes how the
-- parent has ended, and cancels the children, or frees those that wait for no other job. It
-- returns whether it has skipped some that somebody has locked.
create function jobq.dependents_settle(of_parent bigint, lease bigint, ended jobq.job_state, gone boolean,
    children bigint[]) returns boolean
  language plpgsql set enable_seqscan = off set jit = off
  as $$
declare
  mine bigint[]; -- which wait, locked
  busy bigint[];
  lost bigint[]; -- of mine, those that are cancelled
begin
  if children = '{}' then
    return false;
  end if;
  mine := array(select p.id from jobq.pending p where p.id = any(children) and p.waits for update skip locked);
  busy := array(select p.id from jobq.pending p where p.id = any(children) and p.waits and p.id <> all(mine));
  update jobq.dependency d
    set parent_lease = lease, parent_state = case when ended = 'completed' or d.on_failure <> 'wait' then ended end
    where d.parent = of_parent and d.child = any(children) and d.child <> all(busy) and d.parent_state is null
      -- For the planner: without, it may read all children of the parent, of which there can be millions.
      and d.child >= children[1] and d.child <= children[cardinality(children)];
  if ended <> 'completed' then
    lost := array(select d.child from jobq.dependency d where d.parent = of_parent and d.child = any(mine)
        and d.on_failure = 'cancel');
    if lost <> '{}' then
      perform jobq.waiting_cancel(lost, jobq.parent_error(of_parent, ended, gone));
    end if;
  end if;
  perform jobq.waiting_free(mine);
  return cardinality(busy) > 0;
end $$;

-- waiting_settle handles a job that waits, put back by an undo, when its parents may be over by now: it cancels the
-- job, or frees it if it waits for no other job. It returns false if somebody has locked the job.
create function jobq.waiting_settle(of_job bigint) returns boolean
  language plpgsql set enable_seqscan = off set jit = off
  as $$
declare
  lost record;
begin
  perform from jobq.pending p where p.id = of_job and p.waits for update skip locked;
  if not found then
    return not exists (select from jobq.pending p where p.id = of_job and p.waits);
  end if;
  select d.parent, d.parent_state as ended into lost
    from jobq.dependency d
    where d.child = of_job and d.parent_state <> 'completed' and d.on_failure = 'cancel'
    limit 1;
  if found then
    perform jobq.waiting_cancel(array[of_job], jobq.parent_error(lost.parent, lost.ended, false));
  else
    perform jobq.waiting_free(array[of_job]);
  end if;
  return true;
end $$;

-- look_ended looks at a job that has ended, and handles up to row_count of its children. It returns how many these are.
-- If there may be more, the row of the look stays, to go on behind them. After the last child the look begins anew
-- 200 ms later if some children were locked.
create function jobq.look_ended(look jobq.dependency_look, ended jobq.job_state, lease bigint, gone boolean,
    row_count integer) returns integer
  language plpgsql set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set jit = off
  as $$
declare
  children bigint[];
  is_full boolean; -- there may be more children
  last_child bigint; -- the last one that is handled now: as one value, so that none behind it is read
  has_locked boolean;
begin
  children := array(
    select d.child from jobq.dependency d
      where d.parent = look.job_id and d.parent_state is null and d.child > look.after_child
      order by d.child
      limit row_count
      for update skip locked);
  is_full := cardinality(children) >= row_count;
  last_child := case when is_full then children[cardinality(children)] else 9223372036854775807 end;
  has_locked := look.locked or exists (
    select from jobq.dependency d
      where d.parent = look.job_id and d.parent_state is null and d.child > look.after_child and d.child <= last_child
        and d.child <> all(children));
  has_locked := jobq.dependents_settle(look.job_id, lease, ended, gone, children) or has_locked;
  if is_full then -- other looks come in between
    update jobq.dependency_look l set after_child = last_child, locked = has_locked, look_at = clock_timestamp()
        where l.id = look.id;
  elsif has_locked then
    update jobq.dependency_look l
      set after_child = 0, locked = false, look_at = clock_timestamp() + interval '200 ms'
      where l.id = look.id;
  else
    delete from jobq.dependency_look l where l.id = look.id;
  end if;
  return cardinality(children);
end $$;

-- dependency_step looks at jobs of dependency_look that are due from look_from on, and handles up to row_count children
-- of those that have ended. It returns how many it has looked at, whether there may be more, and when the last of them
-- was due.
--
-- Several sessions may do this at once. The row of a child is locked before its dependencies are written; its other
-- dependencies are read after that, with a younger snapshot. So of two parents that are handled at once, the later one
-- sees the earlier. A transaction that keeps its snapshot has no younger one, and is refused.
--
-- A new parent had not ended when the dependency on it was added. It may have ended at the same moment, in a
-- transaction that had looked for dependencies before:
--
--    0 ms  the end of job 7 begins; nobody waits for it
--    1 ms  job 8, which waits for 7, is committed: 7 runs, as far as anybody can see
--    2 ms  the end of job 7 is committed
--
-- So a new parent is looked at again, each time that the time since the first look has doubled, until all transactions
-- have ended whose ids are older than that of the first look. A younger transaction that ends the parent sees the
-- dependency. (The xmax of a snapshot cannot be used for that: ids that were given already may be beyond it.)
--
-- (After a minute, it is looked at each minute.)
--
-- A step never waits for a row. Children that somebody has locked come again a little later. So do dependencies that
-- another janitor is handling or deleting.
create function jobq.dependency_step(look_from timestamptz, row_count integer)
  returns table (looked integer, more boolean, last_at timestamptz)
  language plpgsql set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set jit = off
  as $$
declare
  looks_max constant integer := 100;
  look jobq.dependency_look;
  ended record;
  is_sure boolean;
  room integer := row_count; -- for children
begin
  if current_setting('transaction_isolation') <> 'read committed' then
    raise invalid_transaction_state
        using message = format('dependency_step needs read committed, not %s',
        current_setting('transaction_isolation'));
  end if;
  looked := 0;
  last_at := look_from;
  -- No look is planned for more than a minute from now: one that is later is of a clock that was set back.
  update jobq.dependency_look l set look_at = clock_timestamp()
    where l.ctid = any(array(
      select x.ctid from jobq.dependency_look x where x.look_at > statement_timestamp() + interval '2 minutes'
        order by x.look_at desc limit looks_max for update skip locked));
  for look in
    select l.* from jobq.dependency_look l
      where l.look_at >= look_from and l.look_at <= statement_timestamp()
      order by l.look_at, l.id
      limit looks_max
      for update skip locked
  loop
    exit when room <= 0;
    looked := looked + 1;
    last_at := look.look_at;
    -- before the look at the job
    is_sure := not look.is_new or coalesce(look.sure_from <= pg_snapshot_xmin(pg_current_snapshot()), false);
    select o.state, o.lease_id, o.gone into ended from jobq.job_over(look.job_id) o;
    if found then
      room := room - jobq.look_ended(look, ended.state, ended.lease_id, ended.gone, room);
    elsif not jobq.waiting_settle(look.job_id) then
      update jobq.dependency_look l set look_at = clock_timestamp() + interval '200 ms' where l.id = look.id;
    elsif is_sure then
      delete from jobq.dependency_look l where l.id = look.id;
    else
      update jobq.dependency_look l
        set first_at = coalesce(l.first_at, clock_timestamp()), sure_from = coalesce(l.sure_from, pg_current_xact_id()),
          look_at = clock_timestamp() + greatest(least(clock_timestamp() - coalesce(l.first_at, clock_timestamp()),
              interval '1 minute'), interval '20 ms')
        where l.id = look.id;
    end if;
  end loop;
  more := room <= 0 or looked >= looks_max;
  return next;
end $$;

-- dependency_prune deletes dependencies if the day of the parent is past finished_retention
-- (keep_from_day) and the child has ended. It looks at up to row_count dependencies, after the
-- given place, and returns how many, and the place of the last. The other dependencies keep
-- the parent's day.
create function jobq.dependency_prune(after_lease bigint, after_child bigint, after_parent bigint, row_count integer)
  returns table (looked bigint, last_lease bigint, last_child bigint, last_parent bigint)
  language plpgsql security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off
      set enable_bitmapscan = off set enable_sort = off set jit = off
  as $$
begin
  with page as materialized (
    select d.ctid as place, d.parent_lease, d.child, d.parent
      from jobq.dependency d
      where (d.parent_lease, d.child, d.parent) > (dependency_prune.after_lease, dependency_prune.after_child,
          dependency_prune.after_parent)
        and d.parent_lease < (select jobq.lease_day(jobq.keep_from_day()))
      order by d.parent_lease, d.child, d.parent
      limit row_count
      for update skip locked
  ), gone as (
    delete from jobq.dependency d
      where d.ctid = any(array(
        select p.place from page p
          -- Scalar subqueries, which never become joins.
          where (select true from jobq.pending x where x.id = p.child) is null
            and (select true from jobq.run x cross join lateral jobq.run_end(x.lease_id, x.slot, x.finished_at) e
              where x.id = p.child and e.ended_at is null limit 1) is null))
  )
  select count(*), (select p.parent_lease from page p order by p.parent_lease desc, p.child desc, p.parent desc
      limit 1),
      (select p.child from page p order by p.parent_lease desc, p.child desc, p.parent desc limit 1),
      (select p.parent from page p order by p.parent_lease desc, p.child desc, p.parent desc limit 1)
    into looked, last_lease, last_child, last_parent
    from page;
  last_lease := coalesce(last_lease, after_lease);
  last_child := coalesce(last_child, after_child);
  last_parent := coalesce(last_parent, after_parent);
  return next;
end $$;

-- How new jobs say for which others they wait.

-- dependencies_named reads for which jobs the jobs of an enqueue_many wait, from their names and their after arrays,
-- which hold ids and names. It returns what enqueue_arrays takes as after_jobs and after_parents.
create function jobq.dependencies_named(names text[], afters jsonb[])
    returns table (children integer[], parents bigint[])
  language plpgsql
  as $$
declare
  problem text;
begin
  with named as materialized (
    select n.name, min(n.place) as place, count(*) as jobs from unnest(names) with ordinality as n(name, place)
        where n.name is not null group by n.name
  ), edge as materialized (
    select a.place, p.value, p.i,
        case when p.value is null then null
          when jsonb_typeof(p.value) = 'number' and p.value #>> '{}' ~ '^[1-9][0-9]{0,17}$'
              then (p.value #>> '{}')::bigint
          when jsonb_typeof(p.value) = 'string' then -n.place end as parent
      from unnest(afters) with ordinality as a(after, place)
      left join lateral jsonb_array_elements(case
          when jsonb_typeof(a.after) = 'array' then a.after end) with ordinality as p(value, i) on true
      left join named n on jsonb_typeof(p.value) = 'string' and n.name = p.value #>> '{}'
      where a.after is not null
  )
  select (
      select format('jobs[%s]: %s', x.place - 1, x.problem)
        from (
          select n.place, format('name %s is that of several jobs', to_json(left(n.name, 128))) as problem from named n
              where n.jobs > 1
          union all
          select e.place, case when e.value is null then 'after must be an array of ids and names of jobs'
              when jsonb_typeof(e.value) = 'string'
                  then format('after: no job of the list has the name %s', left(e.value::text, 128))
              else format('after must be ids and names of jobs, not %s', left(e.value::text, 128)) end
            from edge e
            where e.parent is null and (e.value is not null or jsonb_typeof(afters[e.place]) not in ('array', 'null'))
        ) x
        order by x.place
        limit 1),
      (select array_agg(e.place::integer order by e.place, e.i) from edge e where e.parent is not null),
      (select array_agg(e.parent order by e.place, e.i) from edge e where e.parent is not null)
    into problem, children, parents;
  if problem is not null then
    raise sqlstate 'JQ001' using message = problem, hint = 'docs/dependencies.md has examples.';
  end if;
  return next;
end $$;

-- dependencies_require raises an error for the first of these edges that cannot be: see dependencies_add.
create function jobq.dependencies_require(children integer[], parents bigint[]) returns void
  language plpgsql
  as $$
declare
  odd record;
begin
  if cardinality(children) > 1000000 then
    raise sqlstate 'JQ001'
        using message = format('jobs must wait for at most 1000000 others in one call, not %s', cardinality(children));
  end if;
  select e.child - 1 as place, e.parent into odd
    from unnest(children, parents) as e(child, parent)
    where e.parent is null or e.parent = 0 or e.parent < 0 and -e.parent >= e.child
    order by e.child
    limit 1;
  if found then
    raise sqlstate 'JQ001' using message = case
      when odd.parent < 0
          then format('jobs[%s]: after: a job waits only for jobs before it in the list, not for jobs[%s]', odd.place,
            -odd.parent - 1)
      else format('jobs[%s]: after must be ids of jobs, not %s', odd.place, coalesce(odd.parent::text, 'null')) end;
  end if;
end $$;

-- dependencies_add stores for which jobs the jobs of an enqueue_arrays wait, before the jobs
-- themselves are added. It returns for each job, by its place in the call, whether it
-- waits: true, or null. Edge i says that the job at place children[i] waits for
-- parents[i]: the id of a job, or, if below 0, an earlier place of the call.
-- holders are the ids of the jobs, or of the jobs that hold their unique keys: a job that is
-- not added waits for nothing.
--
-- Parents that have completed count at once. The janitor looks at parents that have not, unless they are
-- jobs of this call: they may be ending just now. Nobody else can see the jobs of
-- the call before it is committed. dependency_seq gets a value only after all that can be refused: a call that
-- fails, or that adds no dependency, costs the ends of jobs nothing.
create function jobq.dependencies_add(job_ids bigint[], holders bigint[], children integer[], parents bigint[],
    policies text[])
  returns boolean[]
  language plpgsql set enable_seqscan = off set jit = off
  as $$
declare
  problem record;
  older bigint[]; -- parents that were there before
  waits boolean[];
begin
  perform jobq.dependencies_require(children, parents);
  -- Jobs of the call are parents by their places alone: an id that the call itself has just drawn is
  -- nobody's yet, and would make a circle.
  older := array(
    select distinct p.id
      from (select e.parent > 0 as is_id, case when e.parent < 0 then holders[-e.parent] else e.parent end as id
          from unnest(parents) as e(parent)) p
      where p.is_id or p.id not in (select unnest(job_ids))); -- hashed
  with known as materialized (
    select o.id, o.is_pending is null and r.id is null as missing, r.lease -- of the run that has completed
      from (select u.id, (select true from jobq.pending p where p.id = u.id) as is_pending
          from unnest(older) as u(id) offset 0) o -- so that pending is asked once
      left join lateral (
        select x.id, case when e.ended_at is not null and coalesce(x.state, 'completed') = 'completed'
            then x.lease_id end as lease
          from jobq.run x
          cross join lateral jobq.run_end(x.lease_id, x.slot, x.finished_at) e
          where o.is_pending is null and x.id = o.id -- to look for a job here is to look at each day
          limit 1
      ) r on true
  ), edge as materialized (
    select e.child - 1 as place, job_ids[e.child] as child, p.id as parent, k.missing is true as missing, k.lease,
        coalesce(policies[e.child], 'cancel') as policy, e.parent < 0 as of_call
      from unnest(children, parents) as e(child, parent)
      cross join lateral (select case when e.parent < 0 then holders[-e.parent] else e.parent end as id) p
      left join known k on k.id = p.id
      where job_ids[e.child] = holders[e.child]
  ), added as (
    insert into jobq.dependency (child, parent, parent_lease, parent_state, on_failure)
      select e.child, e.parent, e.lease, case when e.lease is not null then 'completed'::jobq.job_state end, e.policy
        from edge e where not e.missing
      on conflict do nothing
  )
  select e.place, e.parent, e.of_call into problem from edge e where e.missing order by e.place limit 1;
  if found then
    raise sqlstate 'JQ002' using message = format('jobs[%s]: after: no such job: %s', problem.place, problem.parent)
      || case when problem.of_call then ', which still has the unique key of one of these jobs' else '' end;
  end if;
  waits := array(
    select (select true from jobq.dependency d where d.child = j.id and d.parent_state is null limit 1)
      from unnest(job_ids) with ordinality as j(id, place)
      order by j.place);
  if true = any(waits) then
    perform nextval('jobq.dependency_seq');
    perform jobq.look_soon(array(
      select o.id from unnest(older) as o(id)
        where (select true from jobq.dependency d where d.parent = o.id and d.parent_state is null limit 1)), true);
  end if;
  return waits;
end $$;

-- The jobs with which a job belongs together.

-- parents are the jobs for which a job waits or has waited, with how each has ended and
-- its result; the state is null while the child waits for it. They are in the order of ids, after
-- after_parent: all, or the first row_count.
create function jobq.parents(job_id bigint, after_parent bigint default 0, row_count bigint default null)
  returns table (id bigint, kind text, state jobq.job_state, result jsonb)
  language sql stable
  begin atomic
    select d.parent, j.kind, d.parent_state, j.result
      from (
        select x.parent, x.parent_state from jobq.dependency x
          where x.child = parents.job_id and x.parent > parents.after_parent
          order by x.parent
          limit parents.row_count
      ) d
      left join lateral (select x.kind, x.result from jobq.job x where x.id = d.parent limit 1) j on true
      order by d.parent;
  end;
comment on function jobq.parents is 'The jobs for which a job waits or has waited.';

-- graph is a job, the jobs for which it waits or has waited, the jobs for which these wait or have waited, and so on,
-- up to 1,000; and the jobs that wait or have waited for it, and so on, up to 1,000. They are in the order of ids. Each
-- has up to 100 jobs for which it waits or has waited, and the job itself if it is one of them; the job itself has up
-- to 1,000. A job that is gone has no state.
create function jobq.graph(job_id bigint)
    returns table (id bigint, kind text, queue text, state jobq.job_state, after bigint[])
  language sql stable set enable_seqscan = off set jit = off
  as $$
    with recursive above(id) as (
      select graph.job_id
      union
      select d.parent
        from above a
        cross join lateral (select x.parent from jobq.dependency x where x.child = a.id order by x.parent limit 1000) d
    ), below(id) as (
      select graph.job_id
      union
      select d.child
        from below b
        cross join lateral (
          select x.child
            from (
              (select o.child from jobq.dependency o where o.parent = b.id and o.parent_state is null
                  order by o.child limit 1000)
              union all
              (select o.child from jobq.dependency o where o.parent = b.id and o.parent_state is not null
                  order by o.child limit 1000)
            ) x
            order by x.child
            limit 1000
        ) d
    ), near as (
      (select a.id from above a limit 1000)
      union
      (select b.id from below b limit 1000)
    )
    select n.id, j.kind, j.queue, j.state, array(
        (select x.parent from jobq.dependency x where x.child = n.id order by x.parent limit case
            when n.id = graph.job_id then 1000 else 100 end)
        union
        select x.parent from jobq.dependency x where x.child = n.id and x.parent = graph.job_id
        order by parent)
      from near n
      left join lateral (select x.kind, x.queue, x.state from jobq.job x where x.id = n.id limit 1) j on true
      order by n.id
  $$;
comment on function jobq.graph is 'The jobs with which a job belongs together.';

-- Durable steps: what a job has done so far, so that its next run goes on from there;
-- sleeps that hold no slot; and events, for which jobs wait. See docs/steps.md, and
-- docs/decisions/0023 for the reasons. Calls name their run by the token of
-- jobq.complete, and are fenced as that is. A job without steps has no row here, and no
-- statement of a worker reads these tables for it.

-- The limit on results of steps and on what events bring, in bytes of jsonb as
-- PostgreSQL stores it; on the results of jobs that one step awaits, all together; and how
-- many steps a job can have.
create function jobq.step_bytes_max() returns integer
  language sql immutable parallel safe
  return 1048576;

create function jobq.awaited_bytes_max() returns integer
  language sql immutable parallel safe
  return 16777216;

create function jobq.steps_max() returns integer
  language sql immutable parallel safe
  return 10000;

-- The steps of jobs. A row is written when a run comes to the step, and has finished_at
-- and the result once it is done, for good.
create table jobq.step (
  job_id      bigint      not null,
  started_at  timestamptz not null, -- when a run first came to it
  finished_at timestamptz,
  wake_at     timestamptz, -- of a sleep: until when; of an event: how long it is waited for
  -- The run that came to the step last: a run that comes to a finished step twice has
  -- two steps of the same name.
  lease_token bigint      not null,
  claimed_at  timestamptz not null,
  number      integer     not null, -- the order in which a job first came to its steps, from 1
  attempts    integer     not null default 1, -- how often a run began it; of sleeps and events 1
  type        text        not null,
  timed_out   boolean     not null default false, -- the event did not come in time
  name        text        not null,
  result      jsonb, -- null while not finished
  constraint step_pkey primary key (job_id, name),
  constraint step_number_key unique (job_id, number),
  constraint "type must be step, sleep, event or await" check (type in ('step', 'sleep', 'event', 'await')),
  constraint "name must be 1 to 255 characters" check (char_length(name) between 1 and 255),
  constraint "number must be positive" check (number >= 1),
  constraint "result must be at most 1 MiB, of awaited jobs 16 MiB"
    check (pg_column_size(result) <= case when type = 'await' then jobq.awaited_bytes_max()
        else jobq.step_bytes_max() end)
) with (fillfactor = 80);
comment on table jobq.step is 'Durable steps of jobs. Programs write them with jobq.step_put and its like.';
comment on column jobq.step.job_id is 'The job.';
comment on column jobq.step.started_at is 'When a run first came to it.';
comment on column jobq.step.finished_at is 'When it was done; null: it is not.';
comment on column jobq.step.wake_at is 'Of a sleep: its end; of an event: its timeout; null: neither.';
comment on column jobq.step.lease_token is 'The run that came to it last.';
comment on column jobq.step.claimed_at is 'When that run was claimed.';
comment on column jobq.step.number is 'The order in which the job came to its steps, from 1.';
comment on column jobq.step.attempts is 'How many runs began it.';
comment on column jobq.step.type is 'step, sleep, event or await.';
comment on column jobq.step.timed_out is 'Whether the event did not come in time.';
comment on column jobq.step.name is 'Within the job.';
comment on column jobq.step.result is 'What it gave; null while it is not done.';
-- Which jobs wait for an event.
create index step_event_idx on jobq.step (name, job_id) where type = 'event' and finished_at is null;

-- step_value_require raises for a name or a value that is beyond its limit.
create function jobq.step_value_require(what text, name text, value_name text, value jsonb) returns void
  language plpgsql
  as $$
begin
  if name is null or char_length(name) not between 1 and 255 then
    raise sqlstate 'JQ001'
        using message = format('the name of %s must be 1 to 255 characters, not %s', what,
        coalesce(char_length(name)::text, 'null'));
  end if;
  if value is not null then
    perform jobq.json_require(format('%s of %s %L', value_name, what, left(name, 40)), value, jobq.step_bytes_max());
  end if;
end $$;

-- step_use notes that a run has come to a step, and returns it. It locks the row of the
-- run, so the steps of a job are written by one transaction at a time.
-- Needs run_id_idx, lease_pkey, step_pkey and step_number_key only.
create function jobq.step_use(of_job bigint, run_token text, step_name text, step_type text, wake_after interval
    default null) returns jobq.step
  language plpgsql set plan_cache_mode = force_custom_plan set enable_seqscan = off set jit = off
  as $$
declare
  held record;
  found_step jobq.step;
  next_number integer;
begin
  perform jobq.step_value_require('a step', step_name, null, null);
  select * into held from jobq.run_held(of_job, run_token);
  select s.* into found_step from jobq.step s where s.job_id = of_job and s.name = step_name;
  if not found then
    next_number := coalesce((select s.number from jobq.step s where s.job_id = of_job
        order by s.number desc limit 1), 0) + 1;
    if next_number > jobq.steps_max() then
      raise sqlstate 'JQ001'
        using message = format('job %s has %s steps, which is the limit', of_job, jobq.steps_max()),
            hint = 'Add another job for the rest.';
    end if;
    insert into jobq.step (job_id, started_at, wake_at, lease_token, claimed_at, number, type, name)
      values (of_job, clock_timestamp(), clock_timestamp() + wake_after, held.lease_id, held.claimed_at, next_number,
          step_type, step_name)
      returning * into found_step;
    return found_step;
  end if;
  if found_step.type <> step_type then
    raise sqlstate 'JQ003'
        using message = format('job %s has used the name %L for %s, and now uses it for %s', of_job, step_name,
        jobq.step_noun(found_step.type), jobq.step_noun(step_type)),
      hint = 'Give each step of a job a name of its own.';
  end if;
  if found_step.finished_at is not null
      and (found_step.lease_token, found_step.claimed_at) = (held.lease_id, held.claimed_at) then
    raise sqlstate 'JQ003'
      using message = format('job %s has two steps with the name %L in one run', of_job, step_name),
          hint = 'Give each step of a job a name of its own; in a loop, put the number or the id of the item in it.';
  end if;
  -- An event that is waited for comes after what was done since: step_forget keeps its row.
  update jobq.step s
    set lease_token = held.lease_id, claimed_at = held.claimed_at,
      number = case when s.type = 'event' and s.finished_at is null
        then (select x.number + (x.name <> step_name)::integer from jobq.step x where x.job_id = of_job
            order by x.number desc limit 1)
        else s.number end,
      attempts = s.attempts + case when s.type = 'step' and s.finished_at is null then 1 else 0 end
    where s.job_id = of_job and s.name = step_name
    returning s.* into found_step;
  return found_step;
end $$;

-- step_noun is what people call a step of that type.
create function jobq.step_noun(type text) returns text
  language sql immutable parallel safe
  return case type when 'step' then 'a step' when 'sleep' then 'a sleep' when 'event' then 'an event'
      else 'jobs that it awaits' end;

-- step_finish stores that a step is done. Needs step_pkey only.
create function jobq.step_finish(of_job bigint, step_name text, step_result jsonb, late boolean default false)
    returns void
  language sql
  as $$
    update jobq.step s
      set finished_at = clock_timestamp(), result = coalesce(step_result, 'null'), timed_out = late
      where s.job_id = of_job and s.name = step_name
  $$;

-- step_get says whether a step of the job is done, and what it has returned. If it is
-- not, it is noted that the run has begun it.
create function jobq.step_get(job_id bigint, token text, name text, out done boolean, out result jsonb)
  language plpgsql security definer set search_path = pg_catalog, pg_temp
  as $$
declare
  used jobq.step := jobq.step_use(job_id, token, name, 'step');
begin
  done := used.finished_at is not null;
  result := used.result;
end $$;
comment on function jobq.step_get is 'Whether a durable step is done, and its result.';

-- step_put stores that a step is done, and what it has returned, once.
create function jobq.step_put(job_id bigint, token text, name text, result jsonb default null) returns void
  language plpgsql security definer set search_path = pg_catalog, pg_temp set plan_cache_mode = force_custom_plan
      set enable_seqscan = off set jit = off
  as $$
declare
  held record;
  found_step jobq.step;
begin
  perform jobq.step_value_require('a step', name, 'the result', result);
  select * into held from jobq.run_held(step_put.job_id, token);
  select s.* into found_step from jobq.step s where s.job_id = step_put.job_id and s.name = step_put.name;
  if found_step.type = 'step' and found_step.finished_at is not null then
    raise sqlstate 'JQ003' using message = format('step %L of job %s is done already', name, step_put.job_id),
      hint = 'Ask jobq.step_get first. Give each step of a job a name of its own.';
  end if;
  if found_step.job_id is null or found_step.type <> 'step'
      or (found_step.lease_token, found_step.claimed_at) <> (held.lease_id, held.claimed_at) then
    perform jobq.step_use(job_id, token, name, 'step'); -- it was not asked for in this run
  end if;
  perform jobq.step_finish(job_id, name, result);
end $$;
comment on function jobq.step_put is 'Stores the result of a durable step.';

-- run_suspend ends a run whose job sleeps or waits for an event, or, with waits, for other
-- jobs. Such an end is in no statistics, by which other ends show that a kind has not crashed
-- (kinds_crashed). So it deletes the crashes of the kind itself, unless somebody has locked
-- the row: then either another crash is being counted, or another run is doing the same.
-- Needs run_id_idx and kind_pkey, and what run_close needs.
create function jobq.run_suspend(of_job bigint, run_token text, delay interval, waits boolean default null) returns void
  language plpgsql set plan_cache_mode = force_custom_plan set enable_seqscan = off set jit = off
  as $$
begin
  delete from jobq.kind k
    where k.name = any(array(
      select x.name from jobq.kind x
        where x.name = (select r.kind from jobq.run r where r.id = of_job limit 1) and x.paused_at is null
        for update skip locked));
  perform jobq.run_close(of_job, run_token, 'snoozed', null, delay, false, null, run_suspend.waits);
end $$;

-- step_sleep says whether the time of a sleep is over. If not, it ends the run, and the
-- job runs again then. The time counts from the first call; later ones do not change it.
create function jobq.step_sleep(job_id bigint, token text, name text, delay interval) returns boolean
  language plpgsql security definer set search_path = pg_catalog, pg_temp set plan_cache_mode = force_custom_plan
      set enable_seqscan = off set jit = off
  as $$
declare
  used jobq.step;
begin
  if delay is null then
    raise sqlstate 'JQ001' using message = 'delay must not be null';
  end if;
  perform jobq.delay_require('delay', delay);
  used := jobq.step_use(job_id, token, name, 'sleep', delay);
  if used.finished_at is not null then
    return true;
  end if;
  if used.wake_at <= clock_timestamp() then
    perform jobq.step_finish(job_id, name, null);
    return true;
  end if;
  perform jobq.run_suspend(job_id, token, used.wake_at - clock_timestamp());
  return false;
end $$;
comment on function jobq.step_sleep is
  'Sleeps without holding a slot; false: it has ended the run, which comes back later.';

-- step_wait says whether an event has come, and what it has brought, or that it has not
-- come in time (timed_out). If neither, it ends the run, and the job runs again when
-- the event comes, or when the timeout has passed since the first call; null means no
-- timeout. What was answered once is answered again in later runs.
create function jobq.step_wait(job_id bigint, token text, name text, timeout interval default null,
    out done boolean, out timed_out boolean, out result jsonb)
  language plpgsql security definer set search_path = pg_catalog, pg_temp set plan_cache_mode = force_custom_plan
      set enable_seqscan = off set jit = off
  as $$
declare
  used jobq.step;
  locked boolean;
  remaining interval;
begin
  perform jobq.delay_require('timeout', timeout);
  used := jobq.step_use(job_id, token, name, 'event', coalesce(timeout, interval '10 years'));
  if used.finished_at is null then
    -- Without the lock, an event that has been committed is seen as well. One that is committed now may be missed.
    locked := jobq.event_lock(name, false);
    select e.payload into result from jobq.emitted e where e.name = step_wait.name;
    remaining := used.wake_at - clock_timestamp();
    if result is not null or remaining <= interval '0' then
      perform jobq.step_finish(job_id, name, result, result is null);
      done := true;
      timed_out := result is null;
      return;
    elsif not locked then -- look again soon, and ever more rarely
      remaining := least(remaining, greatest((clock_timestamp() - used.started_at) / 2, interval '1 s'),
          interval '30 s');
    end if;
    perform jobq.run_suspend(job_id, token, remaining);
  end if;
  done := used.finished_at is not null;
  timed_out := used.timed_out;
  result := case when not timed_out then used.result end;
end $$;
comment on function jobq.step_wait is 'Waits for an event; not done: it has ended the run, which comes back later.';

-- step_forget makes a job that does not run do a step again, and those that it came to
-- after it: it deletes them, and returns how many. An event that the job still waits for
-- keeps its row, by which emit finds the job: with the time of the first call.
create function jobq.step_forget(job_id bigint, name text) returns integer
  language plpgsql
  as $$
declare
  job jsonb;
  first_number integer;
  forgotten integer;
begin
  if job_id is null then
    raise sqlstate 'JQ001' using message = 'job_id must not be null';
  end if;
  job := jobq.job_lock(job_id, false);
  if job is null then
    raise sqlstate 'JQ002' using message = format('no job %s', job_id);
  end if;
  if job ->> 'stage' = 'running' then
    raise sqlstate 'JQ003' using message = format('job %s is running', job_id),
        hint = 'Cancel it first, or let it end.';
  end if;
  select s.number into first_number from jobq.step s where s.job_id = step_forget.job_id and s.name = step_forget.name;
  if not found then
    raise sqlstate 'JQ002' using message = format('job %s has no step %L', job_id, name),
        hint = 'jobq show lists its steps.';
  end if;
  select count(*) into forgotten from jobq.step s where s.job_id = step_forget.job_id and s.number >= first_number;
  delete from jobq.step s
    where s.job_id = step_forget.job_id and s.number >= first_number
      and not (s.type = 'event' and s.finished_at is null);
  return forgotten;
end $$;
comment on function jobq.step_forget is
  'Makes a job that does not run do a step again, and those after it; returns how many.';

-- why_suspended is the reason that jobq.why has for a job whose last run, which had that
-- token, has ended in a sleep or in the wait for an event; no row for another job. Its
-- next run is at runs_at. A wait of ten years is one without a timeout.
-- Needs step_number_key only.
create function jobq.why_suspended(job_id bigint, token bigint, runs_at timestamptz)
    returns table (reason text, facts jsonb)
  language sql stable
  set enable_sort = off set enable_seqscan = off set enable_bitmapscan = off set jit = off
  as $$
    select case s.type when 'sleep' then 'sleeping' else 'waits_for_event' end,
        jsonb_build_object('step', s.name, 'since', s.started_at, 'until', runs_at, 'janitor', jobq.why_janitor(),
          'step_until', case when s.type = 'sleep' or s.wake_at - s.started_at < interval '3650 days'
              then s.wake_at end)
      from jobq.step s
      where s.job_id = why_suspended.job_id and s.lease_token = token and s.finished_at is null
        and s.type in ('sleep', 'event')
      order by s.number desc
      limit 1
  $$;

-- step_prune deletes the steps of jobs that are gone. It looks at row_count steps at
-- most, after the given one in the order of job and name, and returns at how many it has
-- looked, and at which one last. The steps of a deleted job stay while an undo could
-- bring the job back. It does not look up jobs with a step that began within the shortest
-- retention. Needs step_pkey, pending_pkey, run_id_idx and audit_job_job_id_idx only; as the
-- owner, since the janitor of a worker has no rights on the audit.
create function jobq.step_prune(after_job bigint, after_name text, row_count integer, out looked bigint,
    out last_job bigint, out last_name text)
  language plpgsql security definer set search_path = pg_catalog, pg_temp set plan_cache_mode = force_custom_plan
      set enable_seqscan = off set jit = off
  as $$
begin
  with page as materialized (
    select s.ctid as place, s.job_id, s.name, s.started_at
      from jobq.step s
      where (s.job_id, s.name) > (after_job, after_name)
      order by s.job_id, s.name
      limit step_prune.row_count
  ), gone as materialized (
    -- The looks are scalar subqueries, which never become joins.
    select j.job_id
      from (select p.job_id from page p
          group by p.job_id having max(p.started_at) < (select statement_timestamp() - t.shortest
          from jobq.retention_span() t)) j
      where (select true from jobq.pending x where x.id = j.job_id limit 1) is null
        and (select true from jobq.run x where x.id = j.job_id limit 1) is null
        and (select true from jobq.audit_job x where x.job_id = j.job_id and x.state_after = 'deleted' limit 1) is null
  ), deleted as (
    delete from jobq.step s
      where s.ctid = any(array(select p.place from page p where p.job_id in (select g.job_id from gone g)))
  )
  select count(*), max(p.job_id), (select x.name from page x order by x.job_id desc, x.name desc limit 1)
    into looked, last_job, last_name from page p;
  last_job := coalesce(last_job, after_job);
  last_name := coalesce(last_name, after_name);
end $$;

-- ends_awaited is how each of these jobs has ended, for the job that awaits them. A job without a state has not ended,
-- unless it is gone. A job that is gone has no result. It has a state only if it is known that it failed or was
-- cancelled: because of_job has waited for it, or because whoever deleted it has noted the state. All is read with one
-- statement, so a job that moves between tables does not count as gone. Needs run_id_idx, pending_pkey, lease_pkey,
-- past_lease_pkey, dependency_pkey and dependency_look_ended_idx only.
create function jobq.ends_awaited(of_job bigint, jobs bigint[])
  returns table (id bigint, gone boolean, lease_id bigint, state jobq.job_state, kind text, result jsonb, error text,
      finished_at timestamptz)
  language sql stable
  begin atomic
    select a.id, g.known is not null, e.lease_id,
        coalesce(e.state, nullif(nullif(g.known, ''), 'completed')::jobq.job_state), e.kind, e.result,
        case when g.known is null then e.error
          else 'it is gone: it was deleted, or its retention has ended' || case
              when g.known = 'completed' then '; it had completed' else '' end end,
        e.ended_at
      from unnest(jobs) as a(id)
      left join lateral (
        select r.lease_id, coalesce(r.state, 'completed') as state, r.kind, r.result, case
            when r.state <> 'completed' then r.last_error end as error, o.ended_at
          from jobq.run r
          cross join lateral jobq.run_end(r.lease_id, r.slot, r.finished_at) o
          where r.id = a.id and o.ended_at is not null
          limit 1
      ) e on true
      left join lateral (
        select coalesce(
            (select d.parent_state::text from jobq.dependency d where d.child = of_job and d.parent = a.id),
            (select l.ended::text from jobq.dependency_look l where l.job_id = a.id and l.ended is not null
                limit 1), '') as known
          where e.state is null and (select true from jobq.pending p where p.id = a.id) is null
            and (select true from jobq.run r where r.id = a.id limit 1) is null
      ) g on true;
  end;

-- run_await ends a run, whose job then waits for these jobs. Those that have ended already are given with their state
-- and the lease of their last run: they get a row as well, so that retention keeps them for the next run.
create function jobq.run_await(of_job bigint, run_token text, jobs bigint[], leases bigint[], states jobq.job_state[])
    returns void
  language plpgsql set plan_cache_mode = force_custom_plan set enable_seqscan = off set jit = off
  as $$
declare
  open_jobs bigint[] := array(select j.id from unnest(jobs, states) as j(id, state) where j.state is null);
begin
  -- It waits for these alone: not for parents without which an operator has made it run, nor for one
  -- of these that is gone, at which nobody would look again. And what became of its parents before
  -- has no say any more.
  delete from jobq.dependency d where d.child = of_job and d.parent_state is null and d.parent <> all(open_jobs);
  update jobq.dependency d set on_failure = 'run' where d.child = of_job and d.on_failure = 'cancel'
      and d.parent_state <> 'completed';
  insert into jobq.dependency as d (child, parent, parent_lease, parent_state, on_failure)
    select of_job, j.id, j.lease, j.state, 'run' from unnest(jobs, leases, states) as j(id, lease, state)
    on conflict on constraint dependency_pkey do update
      set parent_lease = excluded.parent_lease, parent_state = excluded.parent_state, on_failure = excluded.on_failure;
  perform nextval('jobq.dependency_seq');
  perform jobq.look_soon(open_jobs, true);
  perform jobq.run_suspend(of_job, run_token, interval '0', true);
end $$;

-- step_await returns how jobs have ended, as an array in the order of their ids: each with its
-- id, kind, state, result, error and finished_at. While one of them has not ended, it ends the
-- run, and the job waits for them as for its parents, until all have ended in whatever way.
-- Later runs get the answer that was given once.
--
-- A job that ends at the same moment is found as with any new dependency
-- (dependency_step). The login must be allowed to read jobs, since it gets their results.
create function jobq.step_await(job_id bigint, token text, name text, jobs bigint[], out done boolean, out result jsonb)
  language plpgsql security definer set search_path = pg_catalog, pg_temp set plan_cache_mode = force_custom_plan
      set enable_seqscan = off set jit = off
  as $$
declare
  ids bigint[] := array(select distinct j.id from unnest(jobs) as j(id) order by j.id);
  problem text := case
    when jobs is null or array_position(ids, null) is not null then 'jobs must be ids of jobs, not null'
    when cardinality(ids) > 10000 then format('jobs must be at most 10000 in one call, not %s', cardinality(ids))
    when job_id = any(ids) then format('job %s cannot wait for itself', job_id) end;
  used jobq.step;
  seen record;
begin
  if not has_table_privilege(coalesce(nullif(current_setting('role'), 'none'), session_user), 'jobq.run', 'select') then
    raise insufficient_privilege using message = 'to await jobs, a login must be able to read them',
      hint = 'Grant it the role jobq_viewer.';
  end if;
  if problem is not null then
    raise sqlstate 'JQ001' using message = problem;
  end if;
  used := jobq.step_use(job_id, token, name, 'await');
  done := used.finished_at is not null;
  result := used.result;
  if done and array(select (e.value ->> 'id')::bigint
      from jsonb_array_elements(result) with ordinality as e(value, place) order by e.place) <> ids then
    raise sqlstate 'JQ003' using message = format('step %L of job %s has awaited other jobs', name, job_id),
        hint = 'Give each step of a job a name of its own.';
  elsif done then
    return;
  end if;
  with ended as materialized (
    select e.* from jobq.ends_awaited(job_id, ids) e
  ), known as materialized (
    select array_agg(e.id) filter (where not e.gone) as ids, array_agg(e.lease_id) filter (where not e.gone) as leases,
        array_agg(e.state) filter (where not e.gone) as states,
        min(e.id) filter (where e.gone
            and (e.id < 1 or e.id > coalesce(pg_sequence_last_value('jobq.job_id_seq'), 0))) as unknown,
        count(*) filter (where e.state is null and not e.gone) > 0 as waits,
        coalesce(sum(octet_length(e.result::text)), 0) <= jobq.awaited_bytes_max() as fits
      from ended e
  )
  select k.*, case when k.fits and not k.waits then (
        select coalesce(jsonb_agg(jsonb_build_object('id', e.id, 'kind', e.kind, 'state', e.state, 'result', e.result,
            'error', e.error, 'finished_at', e.finished_at) order by e.id), '[]')
          from ended e) end as ends
    into seen from known k;
  if seen.unknown is not null then
    raise sqlstate 'JQ002' using message = format('no such job: %s', seen.unknown);
  elsif seen.waits then
    perform jobq.run_await(job_id, token, seen.ids, seen.leases, seen.states);
    return;
  elsif not seen.fits or pg_column_size(seen.ends) > jobq.awaited_bytes_max() then
    raise sqlstate 'JQ001'
      using message = format('the results of the jobs that step %L awaits must be at most 16 MiB together', name),
          hint = 'Await fewer jobs in one step, or let them keep the bulk elsewhere, and say in the result where.';
  end if;
  perform jobq.step_finish(job_id, name, seen.ends);
  done := true;
  result := seen.ends;
end $$;
comment on function jobq.step_await is 'Waits for other jobs; not done: it has ended the run, which comes back later.';

-- Events, for which jobs wait (docs/steps.md).

-- Events that were emitted: the first one of a name. They are kept as long as finished
-- jobs, and longer while a job waits that has not taken its event yet.
create table jobq.emitted (
  name       text        not null,
  emitted_at timestamptz not null,
  woken_to   bigint, -- not null: jobs after this one wait for it, and were not woken yet
  payload    jsonb       not null,
  -- If emit could not keep out those that began to wait at the same time: when event_wake_rest looks for them again,
  -- and the transaction before which all must have ended, so that it has found the last of them.
  again_at   timestamptz,
  again_before xid8,
  constraint emitted_pkey primary key (name),
  constraint "name must be 1 to 255 characters" check (char_length(name) between 1 and 255),
  constraint "payload must be at most 1 MiB" check (pg_column_size(payload) <= jobq.step_bytes_max())
);
comment on table jobq.emitted is 'Events that were emitted: the first of each name counts.';
comment on column jobq.emitted.name is 'The event.';
comment on column jobq.emitted.emitted_at is 'When.';
comment on column jobq.emitted.woken_to is 'Jobs up to this one were woken; null: all.';
comment on column jobq.emitted.again_at is
  'When the janitor looks again for jobs that began to wait while it was emitted; null: that is done.';
comment on column jobq.emitted.again_before is 'It looks until all transactions before this one have ended.';
comment on column jobq.emitted.payload is 'What it carries.';
-- For the janitor, which forgets old ones, and wakes those that emit could not wake.
create index emitted_at_idx on jobq.emitted (emitted_at, name);
create index emitted_woken_idx on jobq.emitted (name) where woken_to is not null;

-- A lock keeps events from being missed. Whoever emits an event has the
-- lock of its name for himself until his transaction ends; those who begin to wait for
-- it share it. For example, job 7 waits for `paid`, which is emitted at the same time:
--
--   waiter first: it has the lock, sees no event, stores that it waits and puts its job
--     back, and commits. The emitter, who has waited for the lock, sees job 7, and wakes it
--   emitter first: it has the lock, sees nobody, stores the event and commits. The
--     waiter, who gets the lock then, sees the event
--
-- The look comes after the lock, in a statement with a snapshot of its own, and so
-- needs READ COMMITTED. event_place is the number of the lock.
create function jobq.event_place(name text) returns bigint
  language plpgsql
  as $$
begin
  if current_setting('transaction_isolation') <> 'read committed' then
    raise sqlstate 'JQ001'
        using message = format('to wait for an event or to emit one, the transaction must be READ COMMITTED, not %s',
        upper(current_setting('transaction_isolation'))),
      hint = 'Do it in a transaction of its own.';
  end if;
  return hashtextextended('jobq.event ' || name, 0);
end $$;

-- event_lock takes the lock, shared or alone, and says whether it was to be had. Any login can take such a lock, and
-- keep it. So nobody waits for it for long, and both sides are right without it: who waits for the event looks again
-- soon (step_wait), and the janitor looks for those who began to wait at the same time (event_wake_rest). It waits for
-- half a second, or for the caller's lock_timeout if that is shorter.
create function jobq.event_lock(name text, alone boolean, own_limit text default current_setting('lock_timeout'))
    returns boolean
  language plpgsql set lock_timeout = '500ms'
  as $$
begin
  if own_limit::interval between interval '1 ms' and interval '500 ms' then
    perform set_config('lock_timeout', own_limit, true);
  end if;
  if alone then
    perform pg_advisory_xact_lock(jobq.event_place(name));
  else
    perform pg_advisory_xact_lock_shared(jobq.event_place(name));
  end if;
  return true;
exception when lock_not_available then
  return false;
end $$;

-- event_wake makes available the jobs that wait for an event: of those after the given
-- one, jobs_max at most. It returns the last one of these if there may be more. A job
-- that has run since, and failed before it came to the event, waits for its retry: it
-- will see the event then. Needs step_event_idx and pending_pkey only.
create function jobq.event_wake(event_name text, after_job bigint, jobs_max integer) returns bigint
  language plpgsql set plan_cache_mode = force_custom_plan set enable_seqscan = off set jit = off
  as $$
declare
  ids bigint[];
  tokens bigint[];
  queue text;
begin
  select array_agg(w.job_id order by w.job_id), array_agg(w.lease_token order by w.job_id) into ids, tokens
    from (
      select s.job_id, s.lease_token from jobq.step s
        where s.name = event_name and s.type = 'event' and s.finished_at is null and s.job_id > after_job
        order by s.job_id
        limit jobs_max
    ) w;
  for queue in
    with due as materialized (
      select p.id
        from unnest(ids, tokens) as w(job_id, lease_token)
        cross join lateral (
          select x.id from jobq.pending x where x.id = w.job_id and x.lease_token = w.lease_token and x.position is null
              and x.waits is null for update
        ) p
        order by p.id
    ), woken as (
      update jobq.pending p set run_at = clock_timestamp(), position = nextval('jobq.position_seq')
        where p.id = any(array(select d.id from due d))
        returning p.queue
    )
    select distinct w.queue from woken w
  loop
    perform jobq.wake('work', queue);
  end loop;
  return case when cardinality(ids) = jobs_max then ids[jobs_max] end;
end $$;

-- event_look_again makes a job available that an undo has put back to where it waited for
-- an event. Whether that has come is not asked: who emits it at this moment finds no job
-- that waits, and the undo would not see the event. Needs step_pkey and pending_pkey only.
create function jobq.event_look_again(of_job bigint) returns void
  language plpgsql set plan_cache_mode = force_custom_plan set enable_seqscan = off set jit = off
  as $$
declare
  queue text;
begin
  update jobq.pending p set run_at = clock_timestamp(), position = nextval('jobq.position_seq')
    where p.id = of_job and p.position is null and p.waits is null
      and (select true from jobq.step s
        where s.job_id = of_job and s.type = 'event' and s.finished_at is null and s.lease_token = p.lease_token
            limit 1)
    returning p.queue into queue;
  if found then
    perform jobq.wake('work', queue);
  end if;
end $$;

-- advisory_holder describes a session that has the advisory lock of a number, other than this one; null if none has.
create function jobq.advisory_holder(place bigint) returns text
  language sql stable
  as $$
    select format('process %s (role %s%s)', l.pid, coalesce(a.usename::text, 'unknown'),
        coalesce(', application ' || nullif(a.application_name, ''), ''))
      from pg_catalog.pg_locks l
      left join pg_catalog.pg_stat_activity a on a.pid = l.pid
      where l.locktype = 'advisory' and l.granted and l.objsubid = 1 and l.pid is distinct from pg_backend_pid()
        and l.classid::bigint << 32 | l.objid::bigint = place
        and l.database = (select d.oid from pg_catalog.pg_database d where d.datname = current_database())
      order by l.pid
      limit 1
  $$;

-- event_store stores an event, and says whether it is the first of its name. It waits for another transaction that
-- emits the same event, but for wait_ms at most.
create function jobq.event_store(event_name text, payload jsonb, locked boolean, wait_ms bigint) returns boolean
  language plpgsql set lock_timeout = '10s'
  as $$
begin
  perform set_config('lock_timeout', wait_ms::text, true);
  insert into jobq.emitted (name, emitted_at, payload, woken_to, again_at, again_before)
    values (event_name, clock_timestamp(), coalesce(event_store.payload, 'null'),
      case when not locked then 0 end, case when not locked then clock_timestamp() end, case
          when not locked then '9223372036854775807'::xid8 end)
    on conflict on constraint emitted_pkey do nothing;
  return found;
exception when lock_not_available then
  raise lock_not_available
      using message = format('event %L: another transaction emits it, and has not ended for %s ms', event_name,
      wait_ms),
    detail = coalesce(jobq.advisory_holder(jobq.event_place(event_name)), 'Its process is not known.'),
        hint = 'Try again when that transaction has ended.';
end $$;

-- emit says that an event has happened, with what it brings, and wakes the jobs that wait
-- for it when the transaction commits. The first one of a name counts: for another it
-- returns false, and changes nothing. If more than a thousand jobs wait, the janitor
-- wakes the others.
--
-- It waits half a second for those who begin to wait for the event, and ten seconds, or the caller's lock_timeout, for
-- another transaction that emits the same event.
create function jobq.emit(name text, payload jsonb default null) returns boolean
  language plpgsql security definer set search_path = pg_catalog, pg_temp
  as $$
declare
  place bigint;
  locked boolean;
  patience_ms constant bigint := extract(epoch from current_setting('lock_timeout')::interval) * 1000;
  last_woken bigint;
begin
  perform jobq.step_value_require('an event', name, 'the payload', payload);
  place := jobq.event_place(name);
  locked := pg_try_advisory_xact_lock(place) or jobq.event_lock(name, true);
  if not jobq.event_store(name, payload, locked, least(nullif(patience_ms, 0), 10000)) then
    return false;
  elsif not locked then
    raise warning 'event %: another session has its lock, so a job that begins to wait now is woken late',
        quote_literal(name)
      using detail = coalesce(jobq.advisory_holder(place), 'Its process is not known.');
  end if;
  last_woken := jobq.event_wake(name, 0, 1000);
  if last_woken is not null then
    update jobq.emitted e set woken_to = last_woken where e.name = emit.name;
  end if;
  return true;
end $$;
comment on function jobq.emit is 'Emits an event; false: one of that name was there before, and counts.';

-- event_wake_rest wakes further jobs of an event for which more waited than emit could wake, and says whether there was
-- such an event.
--
-- If emit had no lock (again_at), a job may have begun to wait for the event at the same time, and be committed later.
-- So this looks from the first job on, every ten seconds, until all transactions have ended that may not have seen the
-- event:
--
--   emit stores the event without the lock, and commits; transaction 50 waits for it, and has not committed
--   a first look finds no job, and notes that transaction 52 is the next: again_before
--   50 commits
--   a look that begins when none before 52 is open finds the job of 50, and is the last one
--
-- Needs emitted_woken_idx.
create function jobq.event_wake_rest(jobs_max integer) returns boolean
  language plpgsql security definer set search_path = pg_catalog, pg_temp set plan_cache_mode = force_custom_plan
      set enable_seqscan = off set jit = off
  as $$
declare
  event record;
  snapshot constant pg_snapshot := pg_current_snapshot();
begin
  select e.name, e.woken_to, e.again_at, e.again_before into event from jobq.emitted e
    where e.woken_to is not null and (e.again_at is null or e.woken_to > 0 or e.again_at <= clock_timestamp())
    order by e.name limit 1 for update skip locked;
  if not found then
    return false;
  end if;
  if event.again_at is not null and event.woken_to = 0 then
    if pg_snapshot_xmin(snapshot) >= event.again_before then
      event.again_at := null; -- the last look
    else
      event.again_before := least(event.again_before, pg_snapshot_xmax(snapshot));
    end if;
  end if;
  event.woken_to := jobq.event_wake(event.name, event.woken_to, jobs_max);
  if event.woken_to is null and event.again_at is not null then
    event.woken_to := 0;
    event.again_at := clock_timestamp() + interval '10 s';
  end if;
  update jobq.emitted e
    set woken_to = event.woken_to, again_at = event.again_at, again_before = case
        when event.again_at is not null then event.again_before end
    where e.name = event.name;
  return true;
end $$;

-- emitted_prune deletes events that are older than finished_retention, unless a job still
-- waits that has not taken its event. It looks at row_count events at most,
-- after the given one in the order of time and name, and returns at how many it has
-- looked, and at which one last. Needs emitted_at_idx and step_event_idx only.
create function jobq.emitted_prune(after_at timestamptz, after_name text, row_count integer, out looked bigint,
    out last_at timestamptz, out last_name text)
  language plpgsql security definer set search_path = pg_catalog, pg_temp set plan_cache_mode = force_custom_plan
      set enable_seqscan = off set jit = off
  as $$
begin
  with page as materialized (
    select e.ctid as place, e.emitted_at, e.name, e.woken_to
      from jobq.emitted e
      where (e.emitted_at, e.name) > (after_at, after_name) and e.emitted_at < (select jobq.keep_from())
      order by e.emitted_at, e.name
      limit emitted_prune.row_count
  ), deleted as (
    delete from jobq.emitted e
      where e.ctid = any(array(
        select p.place from page p
          where p.woken_to is null
            and (select true from jobq.step s where s.name = p.name and s.type = 'event' and s.finished_at is null
                limit 1) is null))
  )
  select count(*), max(p.emitted_at), (select x.name from page x order by x.emitted_at desc, x.name desc limit 1)
    into looked, last_at, last_name from page p;
  last_at := coalesce(last_at, after_at);
  last_name := coalesce(last_name, after_name);
end $$;

-- Who waits for jobs to end, and how they hear of it: see docs/results.md.

-- Until when somebody waits for a job to end, as the epoch in seconds: while nobody does, whoever ends
-- a job looks at no more than this.
create sequence jobq.awaited_seq as bigint minvalue 0 start 0;

-- The processes that wait. Each renews its row; one that has died no longer does, and
-- the next that waits deletes what it has left. Neither table is worth anything after
-- a crash: whoever waits then has lost its connection, and says again for what.
create unlogged table jobq.waiter (
  id         bigint      not null,
  expires_at timestamptz not null,
  constraint waiter_pkey primary key (id)
);
comment on table jobq.waiter is 'Processes that wait for ends of jobs.';

-- The jobs for which they wait. Who ends a job only reads this, since it must not wait
-- for a row; who waits deletes its own.
create unlogged table jobq.awaited (
  job_id    bigint not null,
  waiter_id bigint not null,
  constraint awaited_pkey primary key (job_id, waiter_id)
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);
comment on table jobq.awaited is 'The jobs for which they wait.';
create index awaited_waiter_idx on jobq.awaited (waiter_id);

-- waiters_forget deletes what expired waiters have left: up to 2,000 jobs of up to 100
-- waiters, and up to 100 waiters that have no job any more. It waits for no row. It
-- returns true if it has deleted fewer than 2,000 jobs: then nothing is left, unless
-- more than 100 waiters had expired, or somebody had locked rows. It must be the last
-- call of a transaction: it locks rows of others, so the transaction must not wait for
-- anybody afterwards.
create function jobq.waiters_forget() returns boolean
  language plpgsql security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off set jit = off
  as $$
declare
  forgotten bigint;
begin
  with gone as (
    delete from jobq.awaited a
      where a.ctid = any(array(
        select x.place
          from (select w.id from jobq.waiter w where w.expires_at < statement_timestamp() limit 100) w
          cross join lateral (select x.ctid as place from jobq.awaited x
              where x.waiter_id = w.id limit 2000 for update skip locked) x
          limit 2000))
      returning a.job_id
  )
  select count(*) into forgotten from gone;
  delete from jobq.waiter w
    where w.ctid = any(array(
      select x.ctid
        from jobq.waiter x
        where x.expires_at < statement_timestamp() and (select true from jobq.awaited a
            where a.waiter_id = x.id limit 1) is null
        limit 100
        for update skip locked));
  return forgotten < 2000;
end $$;

-- await says that a process waits for jobs to end (jobs), and no longer for others
-- (done), and renews its lease when a third of that has gone. It returns whether the
-- process was known: if not, it has to say anew for which other jobs it waits. A lease
-- of more than a minute is one of a minute, since every end looks for waiters until the
-- last lease is over. Up to 1,000 jobs of each can be named; null stands for none.
--
-- Whoever waits must look at the jobs once more when this has been committed: what
-- has ended before that was told to nobody. And again a little later, because what
-- ends in the same moment may have read the table before, and be committed after:
--
--   0 ms  the end of job 7 begins; nobody waits for it
--   1 ms  await(…, '{7}') is committed; the waiter looks: job 7 is running
--   2 ms  the end of job 7 is committed, and nobody is told
create function jobq.await(waiter bigint, jobs bigint[], done bigint[], lease interval) returns boolean
  language plpgsql security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off set jit = off
  as $$
declare
  span constant interval := least(await.lease, interval '1 minute');
  until timestamptz;
  known boolean;
  renewed boolean;
  problem text;
begin
  problem := case
    when await.waiter is null then 'waiter must not be null'
    when await.lease is null
        or await.lease <= interval '0'
        then format('lease must be more than 0 s, not %s', coalesce(await.lease::text, 'null'))
    when greatest(cardinality(await.jobs), cardinality(await.done)) > 1000 then
      format('jobs and done must be at most 1000 each in one call, not %s',
          greatest(cardinality(await.jobs), cardinality(await.done)))
    when array_position(await.jobs, null) is not null then 'jobs must not be null'
  end;
  if problem is not null then
    raise sqlstate 'JQ001' using message = problem;
  end if;
  select w.expires_at into until from jobq.waiter w where w.id = await.waiter;
  known := found;
  renewed := not known or until < clock_timestamp() + span * 2 / 3;
  if renewed then
    insert into jobq.waiter as w (id, expires_at) values (await.waiter, clock_timestamp() + span)
      on conflict (id) do update set expires_at = excluded.expires_at; -- others may have deleted it meanwhile
    perform setval('jobq.awaited_seq', greatest(coalesce(pg_sequence_last_value('jobq.awaited_seq'), 0),
      ceil(extract(epoch from clock_timestamp() + span))::bigint));
  end if;
  delete from jobq.awaited a where a.waiter_id = await.waiter and a.job_id = any(await.done);
  insert into jobq.awaited (job_id, waiter_id)
    select j.id, await.waiter from unnest(await.jobs) as j(id)
    on conflict do nothing;
  if renewed then
    perform jobq.waiters_forget();
  end if;
  return known;
end $$;
comment on function jobq.await is 'Asks for notifications of the ends of jobs: docs/results.md.';

-- await_end says that a process waits no more. It returns whether all that it had
-- announced is deleted (waiters_forget): if not, call it again, or leave the rest to
-- those who wait next.
create function jobq.await_end(waiter bigint) returns boolean
  language plpgsql security definer set search_path = pg_catalog, pg_temp
  as $$
begin
  update jobq.waiter w set expires_at = '-infinity' where w.id = await_end.waiter;
  return jobq.waiters_forget();
end $$;
comment on function jobq.await_end is 'Takes that back.';

-- waiters_wake tells whoever waits for one of these jobs that it may have ended. With
-- slots, it is only about the jobs in these places of the array. A payload has ids
-- with spaces between them, 300 at most, so that it stays below the limit of 8,000 bytes.
--
-- Commits with a NOTIFY go one at a time, each with its own wait for the disk. So nothing is
-- said of jobs for which nobody waits.
create function jobq.waiters_wake(jobs bigint[], slots smallint[] default null) returns void
  language plpgsql security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off set jit = off
  as $$
declare
  ended bigint[] := case when waiters_wake.slots is null then jobs
      else array(select jobs[s] from unnest(waiters_wake.slots) s) end;
  payload text;
begin
  -- Most jobs that end are far from those for which somebody waits: one look at the
  -- index tells, in place of one for each.
  if not exists (
      select from jobq.awaited a
        where a.job_id >= (select min(e) from unnest(ended) e) and a.job_id <= (select max(e)
            from unnest(ended) e)) then
    return;
  end if;
  for payload in
    select string_agg(w.job_id::text, ' ')
      from (
        select d.job_id, row_number() over () / 300 as part
          from (select distinct a.job_id from jobq.awaited a where a.job_id = any(ended)) d
      ) w
      group by w.part
  loop
    perform jobq.notify('ended', payload);
  end loop;
end $$;

create function jobq.run_waiters_wake() returns trigger
  language plpgsql security definer set search_path = pg_catalog, pg_temp
  as $$
begin
  perform jobq.waiters_wake(array[new.id]);
  return null;
end $$;
-- Of all ends on rows of their own, whoever writes them. Plain ends are not seen here:
-- LeaseEnd tells of these; and cancel and delete_job of jobs that had not begun.
create trigger run_waiters_wake after update on jobq.run
  for each row when (new.state is not null and old.state is null
    and pg_sequence_last_value('jobq.awaited_seq') >= extract(epoch from clock_timestamp()))
  execute function jobq.run_waiters_wake();

-- result is how a job has ended: the state, the result that its handler gave, why it
-- did not complete, and when. While it waits or runs, there is only the state. No row
-- when there is no such job.
create function jobq.result(job_id bigint)
    returns table (state jobq.job_state, result jsonb, error text, finished_at timestamptz)
  language sql stable
  begin atomic
    select j.state, j.result, case when j.state in ('failed', 'cancelled') then j.last_error end, j.finished_at
      from jobq.job j
      where j.id = result.job_id;
  end;
comment on function jobq.result is 'State, result, error and end of a job: no row for no such job. Does not wait.';

-- What an application may do with its own jobs, and with no others: sql/roles.sql has the role jobq_web for it.
--
-- A job that own_enqueue adds has the login in its metadata: {"added_by": "shop"} for the login shop. The login is the
-- session's (session_user), which set role does not change. A role that can call these functions, but neither enqueue
-- nor an insert, can write no other login there.

-- own_has says whether a job was added by this login. It looks in all tables with one statement: see job_exists.
create function jobq.own_has(job_id bigint) returns boolean
  language sql stable
  return exists (select from jobq.pending p where p.id = job_id and p.metadata ->> 'added_by' = session_user)
    or exists (select from jobq.run r where r.id = job_id and r.metadata ->> 'added_by' = session_user);

-- own_problem is what is wrong with a job that a web application adds, or null: metadata that cannot have added_by, or
-- a job to wait for that is not its own. That one is refused as if it were not there.
create function jobq.own_problem(job jsonb) returns text
  language plpgsql stable
  as $$
declare
  parent text;
begin
  if jsonb_typeof(job -> 'metadata') not in ('object', 'null') then
    return format('metadata must be a JSON object, not %s', jsonb_typeof(job -> 'metadata'));
  end if;
  if jsonb_typeof(job -> 'after') = 'array' then
    for parent in
      select a.value #>> '{}' from jsonb_array_elements(job -> 'after') a where jsonb_typeof(a.value) = 'number'
    loop
      if parent !~ '^[0-9]{1,18}$' or not jobq.own_has(parent::bigint) then
        return format('after: no such job: %s', left(parent, 40));
      end if;
    end loop;
  end if;
  return null;
end $$;

-- own_enqueue adds jobs as enqueue_many does. It replaces no job of others: that one would run with other args.
create function jobq.own_enqueue(jobs jsonb) returns table (id bigint, duplicate boolean, replaced boolean)
  language plpgsql security definer set search_path = pg_catalog, pg_temp
  as $$
declare
  stamp constant jsonb := jsonb_build_object('added_by', session_user);
  place bigint := -1;
  problem text;
begin
  if jsonb_typeof(jobs) = 'array' then
    select format('jobs[%s]: %s', x.i - 1, x.problem) into problem
      from (select j.i, jobq.own_problem(j.job) as problem from jsonb_array_elements(jobs) with ordinality as j(job, i)
          where jsonb_typeof(j.job) = 'object' and (j.job ? 'metadata' or j.job ? 'after')) x
      where x.problem is not null order by x.i limit 1;
    if problem like 'jobs[%]: after: no such job: %' then
      raise sqlstate 'JQ002' using message = problem;
    elsif problem is not null then
      raise sqlstate 'JQ001' using message = problem;
    end if;
    jobs := (
      select coalesce(jsonb_agg(case jsonb_typeof(j.job) when 'object'
          then j.job || jsonb_build_object('metadata', coalesce(nullif(j.job -> 'metadata', 'null'), '{}') || stamp)
          else j.job end order by j.i), '[]')
        from jsonb_array_elements(jobs) with ordinality as j(job, i));
  end if;
  for id, duplicate, replaced in select e.id, e.duplicate, e.replaced from jobq.enqueue_many(jobs) e loop
    place := place + 1;
    if replaced and not jobq.own_has(id) then
      raise sqlstate 'JQ004'
          using message = format('jobs[%s]: another application has a job with this unique key', place);
    end if;
    return next;
  end loop;
end $$;
comment on function jobq.own_enqueue is
  'Adds jobs as enqueue_many does, as jobs of this login, which may then see and cancel them.';

-- own_cancel cancels a job as cancel does; null for no such job, or one of others.
create function jobq.own_cancel(job_id bigint) returns jobq.job_state
  language plpgsql security definer set search_path = pg_catalog, pg_temp
  as $$
begin
  if job_id is not null and not jobq.own_has(job_id) then
    return null;
  end if;
  return jobq.cancel(job_id);
end $$;
comment on function jobq.own_cancel is 'As cancel, of a job that this login has added; null for any other.';

-- own_job is how a job does; no row for no such job, or one of others.
create function jobq.own_job(job_id bigint)
    returns table (state jobq.job_state, progress_percent real, progress_stage text, progress_message text,
      result jsonb)
  language sql stable security definer set search_path = pg_catalog, pg_temp
  begin atomic
    select j.state, j.progress_percent, j.progress_stage, j.progress_message, j.result
      from jobq.job j
      where j.id = own_job.job_id and j.metadata ->> 'added_by' = session_user;
  end;
comment on function jobq.own_job is
  'State, progress and result of a job that this login has added; no row for any other.';

-- Why a waiting job is not claimed, for jobq.why: the conditions of JobClaim and queue_admit that do not hold, and
-- whether a live worker could claim the job.

-- why_first is the first job of a lease that still runs; null if none does.
create function jobq.why_first(job_ids bigint[], ended_slots smallint[]) returns bigint
  language sql stable
  as $$
    select j.id from unnest(job_ids) with ordinality as j(id, slot) where j.slot <> all(ended_slots)
        order by j.slot limit 1
  $$;

-- why_kind is the kind of a running job, by its lease; null if its row is gone. If a kind has slots of its
-- own in a worker, each claim takes either jobs of this kind only, or none of it. So the kind of one job says
-- whether the jobs of the lease are in these slots. Needs run_id_idx of the lease's day.
create function jobq.why_kind(of_lease bigint, of_job bigint) returns text
  language sql stable
  as $$
    select r.kind from jobq.run r where r.lease_id = of_lease and r.id = of_job limit 1
  $$;

-- why_oldest is the first job of a lease that still runs, and its worker; empty if none does.
create function jobq.why_oldest(of_lease bigint) returns jsonb
  language sql stable
  as $$
    select coalesce((
      select jsonb_build_object('oldest', jobq.why_first(l.job_ids, l.ended_slots), 'oldest_since', l.claimed_at,
          'oldest_worker', l.owner)
        from jobq.lease l where l.id = of_lease), '{}')
  $$;

-- why_turn is what is known about the turn of a job's key (lane_claim):
--
--   partition_key  the key of the job
--   keys_before    how many keys have their turn before it
--   keys_new       how many keys get their turn together with it, in an order that is not known yet, since their
--                  jobs came after the last claim
--   key_weight     the weight of the key, if it has one
--
-- Only hints tell of new keys (lane_hint). Hints also tell of lanes whose keys were paused since the last claim: these
-- keep their turns until the next claim, and do not count as before. Both numbers stop at keys_max + 1, and are left
-- out if more than 10,000 hints of jobs, or 100 of pauses, would have to be read.
--
-- For a job without a key it says whether keys take turns with such jobs. If the queue has groups of keys, it says
-- partition_key, key_group and their weights, but neither number: turns of groups are not places in one line, since
-- keys that come later may have turns before it. Needs queue_pkey, lane_pkey, lane_turn_idx, lane_hint_pkey,
-- key_weight_pkey and paused_key_pkey only.
--
-- Example: the keys a, b and p have their turns. Since then, jobs of c and d have come, and p was paused. For a job of
-- d, 2 keys are before, and 1 is new.
create function jobq.why_turn(of_queue text, of_key text, keys_max bigint) returns jsonb
  language plpgsql stable
  set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off
      set enable_sort = off set jit = off
  as $$
declare
  hints_max constant bigint := 10000;
  pauses_max constant bigint := 100;
  own bigint := (select l.turn from jobq.lane l where l.queue = of_queue and l.key = of_key);
  hints bigint;
  hinted text[];
  pauses bigint;
  paused_before bigint;
  separator text := (select q.key_separator from jobq.queue q where q.name = of_queue);
  facts jsonb := jsonb_build_object('partition_key', of_key);
begin
  if of_key = '' then
    return jsonb_build_object('keys_take_turns',
      exists (select from jobq.lane l where l.queue = of_queue and l.turn is not null order by l.turn limit 1)
      or exists (select from jobq.lane_hint h where h.queue = of_queue and h.id > 0 order by h.id limit 1));
  end if;
  facts := facts || coalesce((select jsonb_build_object('key_weight', w.weight) from jobq.key_weight w
      where w.queue = of_queue and w.key = of_key), '{}');
  if separator is not null then
    return facts || jsonb_build_object('key_group', split_part(of_key, separator, 1)) || coalesce((
      select jsonb_build_object('key_group_weight', w.weight) from jobq.key_weight w
          where w.queue = of_queue and w.key = split_part(of_key, separator, 1)), '{}');
  end if;
  if own is null then
    select count(*), array_agg(distinct h.key) into hints, hinted
      from (select x.key from jobq.lane_hint x where x.queue = of_queue and x.id > 0
          order by x.id limit hints_max + 1) h;
    if hints > hints_max or not coalesce(of_key = any(hinted), false) then
      return facts;
    end if;
  end if;
  own := coalesce(own, 9223372036854775807);
  select count(*), count(distinct h.key) filter (where
      (select l.turn from jobq.lane l where l.queue = of_queue and l.key = h.key) < own
      and exists (select from jobq.paused_key p where p.queue = of_queue and p.key = h.key)) -- it may go on already
    into pauses, paused_before
    from (select x.key from jobq.lane_hint x where x.queue = of_queue and x.id < 0
        order by x.id limit pauses_max + 1) h;
  if pauses > pauses_max then
    return facts;
  end if;
  return facts || jsonb_build_object('keys_before_max', keys_max,
    'keys_before', (select least(count(*) - paused_before, keys_max + 1) from (
      select from jobq.lane l
        where l.queue = of_queue and l.turn is not null and l.turn < own
        order by l.turn desc limit keys_max + 1 + paused_before) before),
    'keys_new', (select count(*) from (
      select from unnest(hinted) as k(key)
        where k.key <> of_key and not exists (select from jobq.lane l where l.queue = of_queue and l.key = k.key
            and l.turn is not null)
          and not exists (select from jobq.paused_key p where p.queue = of_queue and p.key = k.key)
        limit keys_max + 1) new));
end $$;

-- why_stopped returns the pauses and locks because of which nobody claims a job, whatever its place in the line.
create function jobq.why_stopped(job_queue text, job_kind text, job_key text, row_locked jsonb)
  returns table (reason text, facts jsonb)
  language plpgsql stable
  as $$
declare
  table_locked jsonb := jobq.why_table_locked('{ShareLock,ShareRowExclusiveLock,ExclusiveLock}');
begin
  return query
    select 'queue_paused', jsonb_build_object('queue', job_queue, 'since', q.paused_at, 'by', q.paused_by, 'note',
        q.pause_reason)
      from jobq.queue q where q.name = job_queue and q.paused_at is not null;
  return query
    select 'kind_paused', jsonb_build_object('kind', job_kind, 'since', k.paused_at, 'by', k.paused_by, 'note',
        k.pause_reason, 'crashes', nullif(k.crashes, 0))
      from jobq.kind k where k.name = job_kind and k.paused_at is not null;
  return query
    select 'key_paused', jsonb_build_object('queue', job_queue, 'partition_key', job_key, 'since', k.paused_at, 'by',
        k.paused_by, 'note', k.pause_reason)
      from jobq.paused_key k where k.queue = job_queue and k.key = job_key;
  return query select 'table_locked', jsonb_build_object('session', table_locked) where table_locked is not null;
  return query select 'row_locked', jsonb_build_object('session', row_locked) where row_locked is not null;
end $$;

-- why_workers returns the workers of a queue, 10,000 at most, and what each of them says about jobs of a kind. Its
-- state is
--
--   silent    it has sent nothing for 30 seconds, which are three heartbeats
--   draining  it takes no more jobs
--   lacking   it does not have the kind
--   held      it has the kind, and somebody holds its host
--   troubled  it has the kind, and cannot start it now
--   able      none of these
--
-- slots are those that a job of the kind could have: the kind's own slots, if it has some in this worker (own_slots),
-- otherwise those of the queue, without the jobs of kinds with slots of their own. own_slots is null if the worker is
-- of an earlier version, which does not tell. held is how many jobs an able worker has in these slots, and oldest their
-- first lease. Each lease of a worker in which some kind has slots of its own is asked for its kind, with one look-up.
create function jobq.why_workers(job_queue text, job_kind text)
  returns table (id text, heartbeat_at timestamptz, kinds text[], trouble text, state text, own_slots boolean,
    slots bigint, held bigint, oldest bigint, oldest_since timestamptz, host text)
  language plpgsql stable
  as $$
begin
  return query
    with serving as materialized (
      select w.id, w.hostname, w.heartbeat_at, w.kinds, w.kind_slots, w.programs -> job_kind ->> 'trouble' as trouble,
          coalesce(w.kind_slots ->> job_kind, w.queues ->> job_queue)::bigint as slots,
          case
            when w.heartbeat_at < statement_timestamp() - interval '30 s' then 'silent'
            when w.draining or w.drain_requested_at is not null then 'draining'
            when not w.kinds && array[job_kind] then 'lacking'
            when w.hostname = any(array(select h.host from jobq.held_host h)) then 'held' -- read once for all workers
            when w.programs -> job_kind ->> 'trouble' <> '' then 'troubled'
            else 'able'
          end as state
        from jobq.worker w
        where w.queues ? job_queue
        limit 10000
    ), leases as (
      select l.id, l.owner, l.claimed_at, cardinality(l.job_ids) - cardinality(l.ended_slots) as held, s.kind_slots,
          case when s.kind_slots <> '{}' then jobq.why_kind(l.id, jobq.why_first(l.job_ids, l.ended_slots)) end as kind
        from jobq.lease l
        join serving s on s.id = l.owner
        where l.queue = job_queue and l.lost_at is null and cardinality(l.ended_slots) < cardinality(l.job_ids)
          and s.state = 'able'
    ), leased as (
      select l.owner, sum(l.held) as held, (array_agg(l.id order by l.claimed_at, l.id))[1] as oldest,
          min(l.claimed_at) as oldest_since
        from leases l
        where case when l.kind_slots ? job_kind then l.kind = job_kind else (l.kind_slots ? l.kind) is not true end
        group by l.owner
    )
    select s.id, s.heartbeat_at, s.kinds, s.trouble, s.state, s.kind_slots ? job_kind, s.slots, coalesce(l.held, 0),
        l.oldest, l.oldest_since, s.hostname
      from serving s
      left join leased l on l.owner = s.id;
end $$;

-- why_served says whether a live worker could claim a job of this kind now. It could, or may, if the reason is
-- next_in_line; otherwise the reason is why none could.
create function jobq.why_served(job_queue text, job_kind text, out reason text, out facts jsonb)
  language plpgsql stable
  as $$
declare
  w record;
begin
  select count(*) filter (where x.state = 'silent') as silent, count(*) filter (where x.state = 'draining') as draining,
      count(*) filter (where x.state in ('lacking', 'held', 'troubled', 'able')) as live,
      count(*) filter (where x.state = 'troubled') as troubled, count(*) filter (where x.state = 'able') as able,
      count(*) filter (where x.state = 'held') as on_held_hosts,
      min(x.host) filter (where x.state = 'held') as held_host,
      max(x.heartbeat_at) as heard_at,
      (array_agg(x.id order by x.id) filter (where x.state = 'troubled'))[1] as troubled_worker,
      (array_agg(x.trouble order by x.id) filter (where x.state = 'troubled'))[1] as trouble,
      coalesce(bool_or(x.held < x.slots) filter (where x.state = 'able' and x.own_slots is not null), false) as room,
      count(*) filter (where x.state = 'able' and x.own_slots is null) as untold,
      bool_and(x.own_slots) filter (where x.state = 'able') as own_slots,
      sum(x.slots) filter (where x.state = 'able') as slots, sum(x.held) filter (where x.state = 'able') as held,
      (array_agg(x.oldest order by x.oldest_since, x.oldest))[1] as oldest
    into w
    from jobq.why_workers(job_queue, job_kind) x;
  if w.live = 0 then
    reason := 'no_worker';
    facts := jsonb_build_object('queue', job_queue, 'silent', w.silent, 'draining', w.draining, 'heard_at', w.heard_at);
  elsif w.able + w.troubled + w.on_held_hosts = 0 then
    reason := 'no_worker_of_kind';
    select jsonb_build_object('queue', job_queue, 'kind', job_kind, 'workers', w.live, 'kinds_total', count(*), 'kinds',
        coalesce((array_agg(k.kind order by k.kind))[:20], '{}'))
      into facts
      from (select distinct u.kind from jobq.why_workers(job_queue, job_kind) x cross join unnest(x.kinds) as u(kind)
          where x.state = 'lacking') k;
  elsif w.able + w.troubled = 0 then
    reason := 'workers_held';
    select jsonb_build_object('queue', job_queue, 'kind', job_kind, 'workers', w.on_held_hosts, 'host', h.host, 'since',
        h.held_at, 'by', h.held_by, 'note', h.hold_reason)
      into facts
      from jobq.held_host h where h.host = w.held_host;
  elsif w.able = 0 then
    reason := 'kind_in_trouble';
    facts := jsonb_build_object('kind', job_kind, 'workers', w.troubled, 'worker', w.troubled_worker, 'error',
        w.trouble);
  elsif w.room or w.untold > 0 then
    reason := 'next_in_line';
    facts := jsonb_build_object('queue', job_queue, 'workers', w.able, 'workers_unknown',
        case when not w.room then w.untold end);
  else
    reason := case when w.own_slots then 'kind_full' else 'workers_full' end;
    facts := jsonb_build_object('queue', job_queue, 'kind', case when w.own_slots then job_kind end, 'workers', w.able,
        'slots', w.slots, 'held', w.held) || jobq.why_oldest(w.oldest);
  end if;
end $$;

-- why_rate is how a rate is told, with its burst.
create function jobq.why_rate(jobs integer, period interval, burst integer) returns jsonb
  language sql stable
  return jsonb_build_object('jobs', jobs, 'period_ns', (extract(epoch from period) * 1000000000)::bigint, 'burst',
      coalesce(burst, jobq.rate_burst_default(jobs, period)));

-- why_key_limits returns what the order, the limit and the rate of its key have against a job: the job that the key
-- waits for, or those that run, and when its next job may start.
create function jobq.why_key_limits(job_id bigint, q jobq.queue, job_key text) returns table (reason text, facts jsonb)
  language plpgsql stable
  as $$
declare
  -- null: nothing limits them, so the key has no order either
  running bigint[] := case when q.key_limit is not null and job_key <> '' then jobq.why_key_runs(q.name, job_key) end;
begin
  return query
    select 'key_head', jsonb_build_object('queue', q.name, 'partition_key', job_key, 'head', h.job_id, 'head_state',
        coalesce(h.waits, 'available'), 'until', h.waits_until)
      from (
        select running[1] as job_id, 'running' as waits, null::timestamptz as waits_until where running <> '{}'
        union all
        select n.job_id, n.waits, n.waits_until from jobq.lane_next(q.name, job_key, q.key_order) n where running = '{}'
      ) h
      where q.key_order is not null and h.job_id <> why_key_limits.job_id;
  if not found then
    return query
      select 'key_limit', jsonb_build_object('queue', q.name, 'partition_key', job_key, 'running', cardinality(running),
          'limit', q.key_limit, 'holders', running[:20])
        where cardinality(running) >= q.key_limit;
  end if;
  return query
    select 'key_rate', jsonb_build_object('queue', q.name, 'partition_key', job_key, 'until', t.until, 'rate',
        jobq.why_rate(q.key_rate_jobs, q.key_rate_period, q.key_rate_burst))
      from jobq.key_throttled_until(q.name, job_key, q.key_rate_jobs, q.key_rate_period, q.key_rate_burst) t(until)
      where t.until is not null;
end $$;

-- why_limits returns what the limits and rates of its queue and key have against a job. Jobs that run are counted as
-- queue_admit counts them.
create function jobq.why_limits(job_id bigint, job_queue text, job_key text) returns table (reason text, facts jsonb)
  language plpgsql stable
  as $$
declare
  q jobq.queue;
begin
  select x.* into q from jobq.queue x where x.name = job_queue;
  return query
    select 'queue_limit', jsonb_build_object('queue', job_queue, 'running', r.jobs, 'limit', q.max_running)
        || jobq.why_oldest((select l.id from jobq.lease l
          where l.queue = job_queue and cardinality(l.ended_slots) < cardinality(l.job_ids)
          order by l.claimed_at, l.id limit 1))
      from (select sum(cardinality(l.job_ids) - cardinality(l.ended_slots)) as jobs
        from jobq.lease l where l.queue = job_queue and q.max_running is not null) r
      where r.jobs >= q.max_running;
  return query select k.reason, k.facts from jobq.why_key_limits(job_id, q, job_key) k;
  return query
    select 'queue_rate', jsonb_build_object('queue', job_queue, 'until', t.until, 'rate',
        jobq.why_rate(q.rate_jobs, q.rate_period, q.rate_burst))
      from jobq.throttled_until(job_queue, q.rate_jobs, q.rate_period, q.rate_burst) t(until)
      where t.until is not null;
end $$;

-- why_waiting returns the reasons why a waiting job is not claimed.
--
-- A scheduled job (queue_position null) has no place in the line yet. It gets only the reasons that hold whenever it
-- becomes due: not the limits of its queue, nor the slots of workers. Nor does a job that is stopped wait for its place
-- in the line, unless a limit holds as well.
--
-- Jobs before this one are counted up to 10,000, whatever their kinds: otherwise it would read the whole line of a
-- paused kind. They are those of the same partition key. Keys take turns, so keys with an earlier turn are counted as
-- well, up to 1,000, except for a job that its own key holds.
--
-- Example: queue email is paused, and its only worker handles other kinds. It returns both reasons.
create function jobq.why_waiting(
  job_id bigint, job_queue text, job_kind text, job_key text, job_priority smallint, queue_position bigint,
      row_locked jsonb
) returns table (reason text, facts jsonb)
  language plpgsql stable
  as $$
declare
  before_max constant bigint := 10000;
  keys_max constant bigint := 1000;
  stopped boolean;
  workers record;
begin
  return query select s.reason, s.facts from jobq.why_stopped(job_queue, job_kind, job_key, row_locked) s;
  stopped := found;
  select s.reason, s.facts into workers from jobq.why_served(job_queue, job_kind) s;
  if workers.reason in ('no_worker', 'no_worker_of_kind', 'workers_held', 'kind_in_trouble') then
    stopped := true;
    return query select workers.reason, workers.facts;
  end if;
  if queue_position is null then
    return;
  end if;
  return query
    with limits as materialized (
      select l.reason, l.facts from jobq.why_limits(job_id, job_queue, job_key) l
    ), reasons as (
      select l.reason, l.facts from limits l
      union all
      select workers.reason, workers.facts
        where not stopped and (workers.reason <> 'next_in_line' or not exists (select from limits))
    )
    -- The place in the line is the same for each reason: it is looked for once, and only if there is one.
    select r.reason, r.facts
        || (select jsonb_build_object('before', jobq.why_before(job_queue, job_key, job_priority, queue_position,
            before_max + 1), 'before_max', before_max))
        || case when r.reason not in ('key_head', 'key_limit', 'key_rate')
            then (select jobq.why_turn(job_queue, job_key, keys_max)) else '{}' end
      from reasons r;
end $$;

-- Why a job does not run (docs/why.md). The functions are stable, so that they read all tables with one snapshot, that
-- of the statement that calls them.

-- why_missing is the reason why there is no job with this id: who has deleted it, if the audit knows that, or whether
-- the id has ever been given.
create function jobq.why_missing(job_id bigint) returns table (reason text, facts jsonb)
  language plpgsql stable
  as $$
begin
  return query
    select 'deleted', jsonb_build_object('since', a.at, 'by', a.actor, 'note', a.note, 'audit', a.id)
      from (select x.audit_id, x.state_after from jobq.audit_job x where x.job_id = why_missing.job_id
          order by x.audit_id desc limit 1) j
      cross join lateral (select x.id, x.at, x.actor, x.note from jobq.audit x where x.id = j.audit_id limit 1) a
      where j.state_after = 'deleted';
  if not found then
    return query
      select case when why_missing.job_id > g.last_id then 'unknown' else 'gone' end,
          jsonb_build_object('last_id', g.last_id, 'retention_seconds', (
            select extract(epoch from s.finished_retention)::bigint from jobq.setting s))
        from (select case when s.is_called then s.last_value else s.last_value - 1 end as last_id
          from jobq.job_id_seq s) g;
  end if;
end $$;

-- why_parents returns the jobs that a job waits for: the first 10, and how many there are, up to 10,001. Among them are
-- those that are over, and for which it waits all the same: until they are requeued, or until a janitor has looked at
-- them.
create function jobq.why_parents(job_id bigint) returns jsonb
  language plpgsql stable
  as $$
begin
  return jsonb_build_object(
    'parents', (
      select jsonb_agg(jsonb_build_object('id', d.parent, 'state', (select j.state from jobq.job j
          where j.id = d.parent limit 1), 'on_failure', d.on_failure) order by d.parent)
        from (select x.parent, x.on_failure from jobq.dependency x
          where x.child = why_parents.job_id and x.parent_state is null order by x.parent limit 10) d),
    'parents_open', (select count(*)
        from (select from jobq.dependency x
          where x.child = why_parents.job_id and x.parent_state is null limit 10001) d),
    'janitor', jobq.why_janitor());
end $$;

-- why_lost_runs is how many runs of a job were lost without using an attempt, and how many may be; nothing if none was.
create function jobq.why_lost_runs(job_id bigint) returns jsonb
  language sql stable
  return coalesce((select jsonb_build_object('lost', j.lost, 'max_lost', j.max_lost)
    from jobq.job j where j.id = job_id and j.lost > 0), '{}');

-- why_scheduled is the reason why a job is not in the line yet: what its last run waits for in a durable step, or what
-- the time is for which it waits.
create function jobq.why_scheduled(job_id bigint) returns table (reason text, facts jsonb)
  language plpgsql stable
  as $$
declare
  job record;
  run record; -- the last one that ended
begin
  select p.run_at::timestamptz as run_at, p.lease_token, p.attempts, p.max_attempts, p.last_error, p.crashes, p.lost,
      p.crashes >= least(2, coalesce(p.lost + 1, p.max_attempts - p.attempts::integer)) as suspect
    into job from jobq.pending p where p.id = why_scheduled.job_id;
  if job.run_at > statement_timestamp() then
    return query select s.reason, s.facts from jobq.why_suspended(job_id, job.lease_token, job.run_at) s;
    if found then
      return;
    end if;
  end if;
  select a.outcome::text as outcome, a.finished_at into run
    from jobq.attempt a where a.job_id = why_scheduled.job_id order by a.lease_token desc, a.finished_at desc limit 1;
  reason := case when job.suspect then 'alone' when job.run_at <= statement_timestamp() then 'due'
      when run.outcome = 'lost' and job.lost > 0 then 'retry'
      when job.attempts > 0 and coalesce(run.outcome, '') not in ('snoozed', 'unreadable') then 'retry'
      else 'scheduled' end;
  facts := jsonb_build_object('until', job.run_at, 'attempts', job.attempts, 'max_attempts', job.max_attempts, 'error',
      job.last_error, 'outcome', run.outcome, 'outcome_at', run.finished_at, 'janitor', jobq.why_janitor(),
      'crashes', case when job.suspect then job.crashes end,
      'crashes_alone', case when job.suspect and job.crashes > 2 then job.crashes - 2 end)
    || jobq.why_lost_runs(job_id);
  return next;
end $$;

-- why_running returns the reasons why a claimed job is not claimed again.
create function jobq.why_running(job_id bigint, token bigint, job_queue text) returns table (reason text, facts jsonb)
  language plpgsql stable
  as $$
declare
  l record;
  w record;
  whole jsonb;
  locked jsonb;
begin
  select x.owner, x.claimed_at, x.expires_at, x.lost_at,
      x.expires_at + coalesce(q.stale_grace, interval '0') as reaped_from,
      array_position(x.job_ids, why_running.job_id) > x.begun as unbegun
    into l
    from jobq.lease x
    left join jobq.queue q on q.name = job_queue
    where x.id = token;
  if not found then -- a row without a lease is not of jobq's making
    return query select 'no_lease', jsonb_build_object('lease', token);
    return;
  end if;
  select x.heartbeat_at, x.draining or x.drain_requested_at is not null as draining into w from jobq.worker x
      where x.id = l.owner;
  whole := jsonb_build_object('worker', l.owner, 'since', l.claimed_at, 'until', l.expires_at,
    'heard_at', w.heartbeat_at, 'worker_draining', coalesce(w.draining, false))
    || case when l.unbegun then '{"not_begun": true}' else '{}'::jsonb end;
  if l.lost_at is not null or l.expires_at < statement_timestamp() then
    whole := whole || jsonb_build_object('reaped_from', l.reaped_from, 'lost_at', l.lost_at, 'janitor',
        jobq.why_janitor());
    return query select 'lease_expired', whole;
    select jobq.why_row_locked(r.xmax, r.tableoid) into locked from jobq.run r
        where r.id = why_running.job_id and r.lease_id = token;
    if locked is not null then
      return query select 'row_locked', jsonb_build_object('session', locked);
    end if;
  else
    return query select 'running', whole || coalesce((
      select jsonb_build_object('progressed_at', p.progressed_at, 'percent', p.percent, 'stage', p.stage, 'message',
          p.message)
        from jobq.progress p where p.job_id = why_running.job_id and p.lease_id = token), '{}');
  end if;
end $$;

-- why_ended returns the reason why a job that has ended does not run again, and what would prevent a requeue. It looks
-- up the job's row by its id, and its unique key by the primary key, without a join. Without statistics, the planner
-- expects very many rows for any id, and might read all keys, or the index of the times until which keys are kept: so
-- it asks for (kind, key) alone first. A job that plainly succeeded may have no row any more. Needs run_id_idx,
-- payload_pkey and unique_key_pkey only.
create function jobq.why_ended(job_id bigint, ended jsonb) returns jsonb
  language sql stable
  set enable_seqscan = off set enable_bitmapscan = off set jit = off
  as $$
    select ended || jsonb_build_object(
        'args_gone', coalesce(r.args_apart, false) and not exists (select from jobq.payload a
            where a.job_id = why_ended.job_id),
        'key_holder', (select k.job_id
            from (select x.* from jobq.unique_key x where x.kind = r.kind and x.key = r.unique_key offset 0) k
          where k.job_id <> why_ended.job_id and (not k.job_over or k.kept_until > statement_timestamp())),
        'key_until', (select k.kept_until
            from (select x.* from jobq.unique_key x where x.kind = r.kind and x.key = r.unique_key offset 0) k
          where k.job_over and k.kept_until > statement_timestamp()))
      from (select) job
      left join lateral (select x.kind, x.unique_key, x.args_apart from jobq.run x
          where x.id = why_ended.job_id limit 1) r on true
  $$;

-- why_cancelled is who has cancelled a job, if that is in the audit: of its last 100 actions, the one that ended it at
-- ended_at while it waited, or that asked the worker of this run to stop. The limits make the planner look each action
-- up by its key, whatever it knows of the tables.
create function jobq.why_cancelled(job_id bigint, token bigint, ended_at timestamptz) returns jsonb
  language plpgsql stable
  as $$
declare
  cancel record;
begin
  select a.actor, a.note into cancel
    from (select x.audit_id, x.lease_token, x.version, x.state_before from jobq.audit_job x
      where x.job_id = why_cancelled.job_id order by x.audit_id desc limit 100) j
    cross join lateral (select x.actor, x.note, x.action from jobq.audit x where x.id = j.audit_id limit 1) a
    where a.action = 'cancel' and (j.version = ended_at or j.state_before = 'running' and j.lease_token = token)
    order by j.audit_id desc
    limit 1;
  return jsonb_build_object('by', cancel.actor, 'note', cancel.note);
end $$;

-- why_lost is the parent with which a job was cancelled, by its last error, and the job that began it: 13 was cancelled
-- with 12, and 12 because 11 had failed. It looks back over 100 jobs at most.
create function jobq.why_lost(last_error text) returns jsonb
  language plpgsql stable
  as $$
declare
  parent constant bigint := jobq.parent_named(last_error);
  cause bigint := parent;
  next bigint;
  job record;
begin
  if parent is null then
    return '{}';
  end if;
  for step in 1..100 loop
    select j.id, j.state, j.last_error, j.lease_token, j.finished_at into job from jobq.job j where j.id = cause;
    next := case when job.state = 'cancelled' then jobq.parent_named(job.last_error) end;
    exit when next is null;
    cause := next;
  end loop;
  return jsonb_build_object(
    'parents', jsonb_build_array(jsonb_build_object('id', parent, 'on_failure', 'cancel',
      'state', (select j.state from jobq.job j where j.id = parent))),
    'cause', jsonb_build_object('id', cause, 'state', job.state, 'error', job.last_error) || case
      when job.state = 'cancelled' then jobq.why_cancelled(cause, job.lease_token, job.finished_at) else '{}' end);
end $$;

-- why says why a job is not running, or where it is: one row for each reason, with its facts. Each reason is enough by
-- itself. docs/sql.md lists the reasons. It locks and changes nothing, so that a viewer may call it. It does not wait
-- for a table that somebody has locked even for readers: that lock is then the only reason that it can give.
create function jobq.why(id bigint) returns table (reason text, facts jsonb)
  language plpgsql stable
  as $$
declare
  job record;
  waiting record; -- its row of pending
  locked jsonb;
begin
  if id is null or id < 1 then
    raise sqlstate 'JQ001'
        using message = format('id must be a positive number, not %s', coalesce(why.id::text, 'null'));
  end if;
  locked := jobq.why_table_locked('{AccessExclusiveLock}');
  if locked is not null then
    return query select 'table_locked', jsonb_build_object('session', locked);
    return;
  end if;
  select j.state::text as state, j.queue, j.kind, j.priority, j.attempts, j.max_attempts, j.lease_token, j.finished_at,
      j.lease_owner, j.cancel_requested_at, j.last_error, coalesce(j.partition_key, '') as partition_key
    into job from jobq.job j where j.id = why.id;
  if not found then
    return query select m.reason, m.facts from jobq.why_missing(why.id) m;
  elsif job.state = 'waiting' then
    return query select 'waits_for_jobs', jobq.why_parents(why.id);
  elsif job.state in ('scheduled', 'available') then
    if job.state = 'scheduled' then
      return query select s.reason, s.facts from jobq.why_scheduled(why.id) s;
    end if;
    select p.position, jobq.why_row_locked(p.xmax, p.tableoid) as locked into waiting from jobq.pending p
        where p.id = why.id;
    return query select w.reason, w.facts
      from jobq.why_waiting(why.id, job.queue, job.kind, job.partition_key, job.priority, waiting.position,
          waiting.locked) w;
  elsif job.state = 'running' then
    return query select r.reason, r.facts from jobq.why_running(why.id, job.lease_token, job.queue) r;
    if job.cancel_requested_at is not null then
      return query select 'cancel_requested', jsonb_build_object('since', job.cancel_requested_at)
          || jobq.why_cancelled(why.id, job.lease_token, job.finished_at);
    end if;
  else
    return query select job.state, jobq.why_ended(why.id,
      jsonb_build_object('since', job.finished_at, 'worker', job.lease_owner) || case job.state
        when 'failed' then jsonb_build_object('attempts', job.attempts, 'max_attempts', job.max_attempts, 'error',
            job.last_error) || jobq.why_lost_runs(why.id)
        when 'cancelled' then jsonb_build_object('error', job.last_error)
            || jobq.why_lost(job.last_error) || jobq.why_cancelled(why.id, job.lease_token, job.finished_at)
        else '{}'
      end);
  end if;
end $$;
comment on function jobq.why is 'Why a job does not run: a row for each reason.';

-- Actions of people on many jobs at once.

-- act_begin checks the arguments of act, and returns the row of the audit under which it records: the given one, or a
-- new one. The lock on it makes an undo wait for the batch, and the next batch see the undo.
create function jobq.act_begin(actor text, action text, ids bigint[], target text, audit_id bigint, change jsonb)
    returns jobq.audit
  language plpgsql
  as $$
declare
  problem text := case
    when action is null or action not in ('requeue', 'cancel', 'delete', 'edit') then
      format('action must be requeue, cancel, delete or edit, not %s', coalesce(left(action, 100), 'null'))
    when ids is null or cardinality(ids) not between 1 and 1000 then
      format('ids must be 1 to 1000 jobs, not %s', coalesce(cardinality(ids)::text, 'null'))
    when array_ndims(ids) > 1 or array_position(ids, null) is not null then 'ids must be 1 to 1000 jobs, without nulls'
    when change is not null or (action = 'edit' and coalesce(audit_id, 0) = 0) then -- else the audit has it
      jobq.change_problem(change, case when action = 'requeue' then '{args, args_patch}'
        else '{args, args_patch, queue, priority, run_at, max_attempts, tags, metadata}' end::text[])
  end;
  audit jobq.audit;
begin
  if problem is not null then
    raise sqlstate 'JQ001' using message = problem;
  end if;
  audit_id := coalesce(nullif(audit_id, 0), jobq.audit_begin(actor, action, target, null, change));
  select a.* into audit from jobq.audit a where a.id = act_begin.audit_id for update;
  if not found then
    raise sqlstate 'JQ002' using message = format('no action %s', audit_id);
  end if;
  if audit.undone_by is not null then
    raise sqlstate 'JQ003' using message = format('action %s is undone', audit_id);
  end if;
  return audit;
end $$;

-- act_job does an action to one job, which job_lock has locked and returned as before. It returns the job's state
-- afterwards, and what an edit, or a requeue with other args, has changed, if anything. It raises an error if the job
-- is not as expected, or the action is not possible. holder is the job that holds the unique key of one to requeue;
-- null if act took no such key. requeue_dependent is a requeue of a job that is to wait for its parents again.
create function jobq.act_job(action text, job_id bigint, before jsonb, expected text, holder bigint, change jsonb,
    seen jsonb, out state_after text, out edited jsonb)
  language plpgsql
  as $$
declare
  row jsonb := before -> 'row';
  state text := row ->> 'state';
  changed constant text := format('it has changed meanwhile, and is %s now', state);
begin
  if before is null then
    raise sqlstate 'JQ002' using message = 'no such job';
  elsif expected <> format('%s/%s', state, row ->> 'lease_token') then
    raise sqlstate 'JQ003' using message = changed;
  elsif state = 'running' and action in ('requeue', 'requeue_dependent', 'delete') then
    -- Even if it has ended with its lease just now: what would be put back is another row than the one seen.
    raise sqlstate 'JQ003' using message = format('job %s is running', job_id);
  end if;
  case action
    when 'requeue', 'requeue_dependent' then
      if before ->> 'stage' = 'finished' and row ->> 'unique_key' is not null then
        if holder is null then -- a key that was not to be had before the first job was locked is not waited for now
          raise sqlstate 'JQ003' using message = changed;
        elsif holder <> job_id then
          perform jobq.unique_key_refuse(row ->> 'kind', row ->> 'unique_key', holder);
        end if;
      end if;
      state_after := case when action = 'requeue' then jobq.requeue(job_id) else jobq.dependent_requeue(job_id) end;
      if change is not null then -- in this transaction: nobody has claimed it with its old args
        edited := jobq.job_edit(job_id, change, seen);
        perform jobq.plain_args_refuse(edited -> 'before' -> 'args', edited -> 'after' -> 'args');
        if edited is not null then -- else it has these args already
          edited := edited || jobq.job_anew(job_id);
        end if;
      end if;
    when 'cancel' then
      state_after := jobq.cancel(job_id);
    when 'delete' then
      perform jobq.delete_job(job_id);
      state_after := 'deleted';
    when 'edit' then
      edited := jobq.job_edit(job_id, change, seen);
      perform jobq.plain_args_refuse(edited -> 'before' -> 'args', edited -> 'after' -> 'args');
      select j.state into state_after from jobq.job j where j.id = act_job.job_id;
  end case;
end $$;

-- act_record records for undo what an action has changed of a job.
create function jobq.act_record(audit_id bigint, job_id bigint, state_before text, state_after text, before jsonb,
    edited jsonb) returns void
  language sql
  as $$
    insert into jobq.audit_job (audit_id, job_id, lease_token, version, state_before, state_after, before)
      values (act_record.audit_id, act_record.job_id, (act_record.before -> 'row' ->> 'lease_token')::bigint,
        coalesce((select p.run_at from jobq.pending p where p.id = act_record.job_id),
          (select r.finished_at from jobq.run r where r.id = act_record.job_id)),
        act_record.state_before, act_record.state_after,
        act_record.before || case when edited is null then '{}' else jsonb_build_object('edit', edited) end)
      on conflict do nothing
  $$;

-- act_each does an action to these jobs, for the action of the audit that has begun: see act, and act_job for what the
-- action can be.
create function jobq.act_each(begun jobq.audit, action text, ids bigint[], expected text[], seen jsonb[])
    returns table (audit bigint, job_id bigint, state_before text, state_after text, changed boolean, code text,
      problem text)
  language plpgsql
  as $$
declare
  taken record; -- unique keys of jobs to requeue
  holders bigint[]; -- and who has each
  job record;
  before jsonb;
  edited jsonb;
  changes integer := 0;
  refusals integer := 0;
  held text[] := '{}'; -- queues with available jobs that stay and were locked
begin
  audit := begun.id;
  select array_agg(r.kind) as kinds, array_agg(r.unique_key) as keys, array_agg(r.id) as ids into taken
    from jobq.run r
    where act_each.action like 'requeue%' and r.id = any(act_each.ids) and r.unique_key is not null
      and r.state is not null;
  holders := jobq.unique_keys_take(taken.kinds, taken.keys, taken.ids);
  for job in select j.id, j.expected, j.seen
      from unnest(act_each.ids, act_each.expected, act_each.seen) as j(id, expected, seen) order by j.id loop
    job_id := job.id;
    before := jobq.job_lock(job.id, act_each.action = 'delete');
    state_before := before -> 'row' ->> 'state';
    code := null;
    problem := null;
    begin
      select d.* into state_after, edited from jobq.act_job(act_each.action, job.id, before, job.expected,
        holders[array_position(taken.ids, job.id)], begun.change, job.seen) d;
      if state_after = 'completed' then -- meanwhile, if not before
        state_before := state_after;
      end if;
      changed := state_after <> state_before or state_before = 'running' or edited is not null;
    exception when sqlstate 'JQ002' or sqlstate 'JQ003' or sqlstate 'JQ004' then
      state_after := null;
      changed := false;
      code := sqlstate;
      problem := sqlerrm;
      refusals := refusals + 1;
    end;
    if changed then
      changes := changes + 1;
      perform jobq.act_record(audit, job.id, state_before, state_after, before, edited);
    elsif state_before = 'available' then
      held := held || (before -> 'row' ->> 'queue');
    end if;
    return next;
  end loop;
  update jobq.audit a
    set done = a.done + changes, refused = a.refused + refusals,
      id_done = case when a.id_max is not null then (select min(x) from unnest(act_each.ids) x) end
    where a.id = act_each.audit;
  perform jobq.unique_keys_release(taken.kinds, taken.keys, taken.ids);
  -- Whoever looked meanwhile passed those by.
  perform jobq.wake('head', h.queue) from (select distinct q.queue from unnest(held) as q(queue)) h;
end $$;

-- act requeues, cancels, deletes or edits jobs in the name of an actor, in the order of their
-- ids, and records it under the given row of the audit, or under a new one. If
-- expected has a text, such as 'failed/7', the job must be in that state with
-- that lease token; otherwise it stays as it is. For an edit, the changed columns must have the values in
-- seen. It returns for each job the states before and after, whether
-- it was changed, and if not, why, with one of the codes of docs/sql.md. A call takes
-- 1,000 jobs at most.
--
-- It takes the unique keys of the jobs to requeue before it locks any job
-- (unique_keys_take). Keys of jobs that were not requeued are released at the end.
create function jobq.act(
  actor text, action text, ids bigint[], expected text[], seen jsonb[], target text, audit_id bigint, change jsonb
) returns table (
  audit bigint, job_id bigint, state_before text, state_after text, changed boolean, code text, problem text)
  language plpgsql
  as $$
begin
  return query select e.* from jobq.act_each(
    jobq.act_begin(act.actor, act.action, act.ids, act.target, act.audit_id, act.change),
    act.action, act.ids, act.expected, act.seen) e;
end $$;
comment on function jobq.act is 'Does one action to up to 1000 jobs, and records it for jobq.undo.';

-- act_clone adds a copy of another job, in whatever state that
-- is, with the columns in change replaced. The copy is a new job: it has no attempts, no checkpoint
-- and no unique key, and is due now unless change says when. The audit has the new
-- job's id. It returns null if there is no such job. If the args of the other job are gone, change must have args.
create function jobq.act_clone(actor text, job_id bigint, change jsonb)
  returns table (audit bigint, clone_id bigint, clone_state text)
  language plpgsql
  as $$
declare
  wanted jsonb;
  args_gone boolean;
  changeable constant text[] := '{kind, args, args_patch, queue, priority, run_at, max_attempts, timeout,
    backoff_base, backoff_max, tags, metadata, partition_key}';
  problem text := case when job_id is null then 'job_id must not be null'
    else jobq.change_problem(change, changeable) end;
begin
  if problem is not null then
    raise sqlstate 'JQ001' using message = problem;
  end if;
  -- The view may have the max_lost of the queue.
  select to_jsonb(j) || jsonb_build_object('run_at', now(), 'max_lost', coalesce(
        (select p.max_lost::smallint from jobq.pending p where p.id = j.id),
        (select r.max_lost from jobq.run r where r.id = j.id limit 1))) || act_clone.change, j.args is null
    into wanted, args_gone
    from jobq.job j where j.id = act_clone.job_id;
  if not found then
    return;
  end if;
  if args_gone and not act_clone.change ? 'args' then
    raise sqlstate 'JQ003' using
      message = format(
        'job %s: its args have been removed by retention (they were over 1000 bytes): clone it with args',
        act_clone.job_id);
  end if;
  if act_clone.change ? 'args_patch' then
    wanted := wanted
      || jsonb_build_object('args', jobq.args_patch(wanted -> 'args', act_clone.change -> 'args_patch'));
  end if;
  if act_clone.change ? 'args' then
    perform jobq.plain_args_refuse((select j.args from jobq.job j where j.id = act_clone.job_id), wanted -> 'args');
  end if;
  insert into jobq.pending as p
      (kind, queue, priority, run_at, max_attempts, timeout, backoff_base, backoff_max, tags, metadata, args,
          partition_key, max_lost)
    select wanted ->> 'kind', wanted ->> 'queue', (wanted -> 'priority')::smallint, (wanted ->> 'run_at')::timestamptz,
        (wanted -> 'max_attempts')::smallint, (wanted ->> 'timeout')::interval, (wanted ->> 'backoff_base')::interval,
        (wanted ->> 'backoff_max')::interval,
        case when jsonb_typeof(wanted -> 'tags') = 'array'
        then nullif(array(select jsonb_array_elements_text(wanted -> 'tags')), '{}') end,
        nullif(wanted -> 'metadata', 'null'), wanted -> 'args', coalesce(wanted ->> 'partition_key', ''),
        (wanted ->> 'max_lost')::smallint
    returning p.id, case when p.position is null then 'scheduled' else 'available' end into clone_id, clone_state;
  audit := jobq.audit_begin(act_clone.actor, 'clone', null, format('of job %s', act_clone.job_id),
      nullif(act_clone.change, '{}'));
  insert into jobq.audit_job (audit_id, job_id, lease_token, state_before, state_after, before)
    values (audit, clone_id, 0, 'none', clone_state, '{}');
  update jobq.audit a set done = 1 where a.id = audit;
  return next;
end $$;

-- Actions of people on workers and hosts.

-- act_drain asks a worker to claim no more jobs, and to end when its running jobs
-- have ended. The worker learns of it at once, or with its next heartbeat. It
-- returns the id of the audit row, 0 if the worker drains already, or null if
-- there is no such worker.
create function jobq.act_drain(actor text, worker text) returns bigint
  language plpgsql
  as $$
begin
  if worker is null then
    raise sqlstate 'JQ001' using message = 'worker must not be null';
  end if;
  update jobq.worker w set drain_requested_at = clock_timestamp()
    where w.id = act_drain.worker and w.drain_requested_at is null and not w.draining;
  if found then
    perform jobq.notify('drain', act_drain.worker);
    return jobq.audit_begin(act_drain.actor, 'drain', act_drain.worker, null);
  end if;
  return (select 0 from jobq.worker w where w.id = act_drain.worker);
end $$;

-- act_lost takes the leases of a worker away now, for an operator who knows that it, or its host, does not come back.
-- The janitor puts the jobs back at once, as if the worker had released them: without an attempt or a crash, and with
-- the reason as the error of the run. If the worker lives all the same, what it stores for these jobs is refused, it
-- ends their programs when it hears of that, and it drains.
--
-- It returns the id of the audit row, 0 if there was nothing to do; how many jobs the worker held; and how many
-- leases somebody has locked, which stay: the same call takes them later. No row: there is no such worker. It takes
-- 1,000 leases at most. It runs with its owner's rights, because operators have no other right on leases. It reads all
-- of lease, which holds only what is claimed now.
create function jobq.act_lost(actor text, worker text, note text)
    returns table (audit bigint, jobs bigint, locked bigint)
  language plpgsql security definer set search_path = pg_catalog, pg_temp
  as $$
declare
  problem text := coalesce(jobq.length_problem('worker', worker, 255), jobq.note_problem(note),
    jobq.length_problem('actor', jobq.actor_of(actor), 255));
  why text := left(format('worker %s is lost, says %s', worker, jobq.actor_of(actor))
    || coalesce(': ' || nullif(note, ''), ''), 850);
  taken bigint;
begin
  if problem is not null then
    raise sqlstate 'JQ001' using message = problem;
  end if;
  if not exists (select from jobq.worker w where w.id = act_lost.worker)
      and not exists (select from jobq.lease l where l.owner = act_lost.worker) then
    return;
  end if;
  update jobq.worker w set drain_requested_at = clock_timestamp()
    where w.ctid = any(array(select x.ctid from jobq.worker x where x.id = act_lost.worker
      and x.drain_requested_at is null and not x.draining for update skip locked));
  audit := found::integer;
  with gone as (
    update jobq.lease l set lost_at = clock_timestamp(), lost_reason = why
      where l.ctid = any(array(select x.ctid from jobq.lease x where x.owner = act_lost.worker
        and x.lost_reason is null order by x.id limit 1000 for update skip locked))
      returning cardinality(l.job_ids) - cardinality(l.ended_slots) as jobs
  )
  select count(*), coalesce(sum(g.jobs), 0) into taken, act_lost.jobs from gone g;
  select count(*) into locked from jobq.lease l where l.owner = act_lost.worker and l.lost_reason is null;
  if audit > 0 or taken > 0 then
    perform jobq.notify('drain', act_lost.worker);
    perform jobq.notify('due', '-1'); -- a janitor that sleeps looks at leases
    audit := jobq.audit_begin(act_lost.actor, 'lost', act_lost.worker, nullif(act_lost.note, ''));
    update jobq.audit a set done = act_lost.jobs where a.id = act_lost.audit;
  end if;
  return next;
end $$;
comment on function jobq.act_lost is
  'Takes all leases of a worker away, which does not come back: its jobs use no attempt.';

-- act_host holds a host (host_hold), or releases it (host_release). The workers of a host that is held claim nothing,
-- also those that start later. What they run goes on, and what they have claimed and not begun goes back without an
-- attempt. They learn of it at once, or with their next heartbeat.
--
-- It returns the id of the audit row, null if the host was held, or not held, already; and how many workers the host
-- has now. The name must be equal to theirs in jobq.worker.hostname. One that no worker has can be held.
create function jobq.act_host(actor text, action text, host text, note text)
    returns table (audit bigint, workers bigint)
  language plpgsql
  as $$
declare
  was text; -- the reason for a hold that ends
  problem text := coalesce(
    jobq.length_problem('actor', jobq.actor_of(actor), 255),
    case when action is null or action not in ('host_hold', 'host_release') then
      format('action must be host_hold or host_release, not %s', coalesce(left(action, 100), 'null')) end,
    jobq.length_problem('host', host, 255),
    jobq.note_problem(note));
begin
  if problem is not null then
    raise sqlstate 'JQ001' using message = problem;
  end if;
  if act_host.action = 'host_hold' then
    insert into jobq.held_host (host, held_by, hold_reason)
      values (act_host.host, jobq.actor_of(act_host.actor), nullif(act_host.note, ''))
      on conflict on constraint held_host_pkey do nothing;
  else
    delete from jobq.held_host h where h.host = act_host.host returning h.hold_reason into was;
  end if;
  if found then
    perform jobq.notify('drain', w.id) from jobq.worker w where w.hostname = act_host.host;
    audit := jobq.audit_begin(act_host.actor, act_host.action, act_host.host, nullif(act_host.note, ''), null,
      case when was is not null then jsonb_build_object('hold_reason', was) end);
  end if;
  select count(*) into workers from jobq.worker w where w.hostname = act_host.host;
  return next;
end $$;
comment on function jobq.act_host is
  'Holds a host, whose workers then claim nothing, or releases it; returns the number of the action, null if nothing '
  'changed, and how many workers the host has.';

-- Jobs that were cancelled because a job for which they waited had failed, and that wait again when it is requeued.

-- parents_lost says why a job cannot wait for its parents again: one of them is over, in a way that cancels the job.
-- Null if it can.
create function jobq.parents_lost(of_child bigint) returns text
  language sql volatile set enable_seqscan = off set jit = off
  as $$
    select format('it also waits for job %s, which %s', d.parent, case when o.gone then 'is gone'
        when o.state = 'failed' then 'has failed: requeue that with it'
        else 'was cancelled: requeue that with it' end)
      from jobq.dependency d
      cross join lateral jobq.job_over(d.parent) o
      where d.child = of_child and d.on_failure = 'cancel' and d.parent_state is distinct from 'completed'
        and o.state <> 'completed'
      order by d.parent
      limit 1
  $$;

-- parents_reopen makes a job, whose row the caller has locked, wait for those of its parents again that are not over
-- any more. The janitor looks at these for a while, as at the parents of a new job: they may be ending just now.
create function jobq.parents_reopen(of_child bigint) returns void
  language plpgsql security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off set jit = off
  as $$
declare
  waits_for bigint[];
begin
  with parent as materialized (
    select d.parent, o.state, o.lease_id
      from jobq.dependency d
      left join lateral jobq.job_over(d.parent) o on true
      where d.child = of_child and d.parent_state <> 'completed'
  ), changed as (
    update jobq.dependency d set parent_state = p.state, parent_lease = p.lease_id
      from parent p
      where d.child = of_child and d.parent = p.parent
      returning d.parent, d.parent_state
  )
  select array_agg(c.parent) filter (where c.parent_state is null) into waits_for from changed c;
  if waits_for is null then
    perform jobq.look_soon(array[of_child]);
  else
    perform jobq.look_soon(waits_for, true);
  end if;
end $$;

-- dependent_requeue lets a job wait again that was cancelled with its parent, and that job_lock has locked. It raises
-- an error if another of its parents is over, in a way that would cancel it again, or if its args are gone.
create function jobq.dependent_requeue(job_id bigint) returns jobq.job_state
  language plpgsql
  as $$
declare
  lost text := jobq.parents_lost(job_id);
  ended jobq.run;
begin
  if lost is not null then
    raise sqlstate 'JQ003' using message = lost;
  end if;
  delete from jobq.run r where r.id = dependent_requeue.job_id and r.state = 'cancelled' returning r.* into ended;
  ended := jobq.run_renewed(ended);
  insert into jobq.pending
    select n.* from jobq.pending_of(ended, null, coalesce(ended.run_at, ended.created_at), ended.attempts,
      ended.crashes, null, null, ended.checkpoint, true) n;
  perform jobq.args_require(dependent_requeue.job_id);
  perform jobq.parents_reopen(dependent_requeue.job_id);
  return 'waiting';
end $$;

-- act_dependents lets those of these jobs wait again that were cancelled with a parent, and records it under a requeue
-- of the audit, or a new one. For example: 12 waits for 11, and 13 waits for 12; 11 has failed, so 12 and 13 were
-- cancelled. After a requeue of 11, it is called for 12, and then for 13. It returns what act returns. A job that
-- somebody has cancelled is left out. A job that cannot wait yet, because another parent is over, is returned with a
-- problem, and does not count as refused: it may be asked for again when that parent has come back. A call takes
-- 1,000 jobs at most.
create function jobq.act_dependents(actor text, ids bigint[], audit_id bigint) returns table (
    audit bigint, job_id bigint, state_before text, state_after text, changed boolean, code text, problem text)
  language plpgsql set enable_seqscan = off set jit = off
  as $$
declare
  begun jobq.audit := jobq.act_begin(act_dependents.actor, 'requeue', act_dependents.ids, null,
    act_dependents.audit_id, null);
  job record;
  ready bigint[] := '{}';
  expected text[] := '{}';
begin
  audit := begun.id;
  state_before := 'cancelled';
  changed := false;
  code := 'JQ003';
  for job in
    select i.id, r.lease_id
      from unnest(act_dependents.ids) as i(id)
      cross join lateral (select x.lease_id, x.last_error from jobq.run x
          where x.id = i.id and x.state = 'cancelled' and x.slot = 0 limit 1) r
      where jobq.parent_named(r.last_error) is not null
      order by i.id
  loop
    job_id := job.id;
    problem := jobq.parents_lost(job.id);
    if problem is not null then
      return next;
    else
      ready := ready || job.id;
      expected := expected || format('cancelled/%s', job.lease_id);
    end if;
  end loop;
  return query select e.* from jobq.act_each(begun, 'requeue_dependent', ready, expected, null) e;
end $$;
comment on function jobq.act_dependents is
  'Lets jobs wait again that were cancelled with a parent, and records it for jobq.undo.';

-- Actions of people on queues, kinds, keys and settings.

-- act_queue pauses or resumes a queue. It returns the id of the audit row, null if
-- the queue was paused, or not paused, already; and whether the queue was known
-- before. A queue that nobody knows yet can be paused: its first job then waits.
create function jobq.act_queue(actor text, action text, queue text, note text)
  returns table (audit bigint, known boolean)
  language plpgsql
  as $$
declare
  was text; -- the reason for a pause that ends
  problem text := coalesce(
    case when action is null or action not in ('pause', 'resume') then
      format('action must be pause or resume, not %s', coalesce(left(action, 100), 'null')) end,
    jobq.length_problem('queue', queue, 128),
    jobq.note_problem(note));
begin
  if problem is not null then
    raise sqlstate 'JQ001' using message = problem;
  end if;
  known := jobq.queue_known(act_queue.queue);
  if act_queue.action = 'pause' then
    insert into jobq.queue as q (name, paused_at, paused_by, pause_reason)
      values (act_queue.queue, clock_timestamp(), jobq.actor_of(act_queue.actor), act_queue.note)
      on conflict (name) do update
        set paused_at = excluded.paused_at, paused_by = excluded.paused_by, pause_reason = excluded.pause_reason
        where q.paused_at is null;
  else
    select q.pause_reason into was from jobq.queue q where q.name = act_queue.queue and q.paused_at is not null
        for update;
    update jobq.queue q
      set paused_at = null, paused_by = null, pause_reason = null
      where q.name = act_queue.queue and q.paused_at is not null;
  end if;
  if found then
    if act_queue.action = 'resume' then
      -- Whoever looked at the whole line meanwhile found nothing there, not even
      -- what has come back to its old place.
      perform jobq.wake('head', act_queue.queue);
    end if;
    audit := jobq.audit_begin(act_queue.actor, act_queue.action, act_queue.queue, act_queue.note, null,
      case when was is not null then jsonb_build_object('pause_reason', was) end);
  end if;
  return next;
end $$;

-- act_kind pauses or resumes a kind, in all queues. It returns the id of the audit row, or
-- null if the kind was paused, or not paused, already. Running jobs are not affected. To resume a kind
-- also sets its number of crashes to 0.
create function jobq.act_kind(actor text, action text, kind text, note text) returns bigint
  language plpgsql
  as $$
declare
  was text; -- the reason for a pause that ends
  problem text := coalesce(
    case when action is null or action not in ('kind_pause', 'kind_resume') then
      format('action must be kind_pause or kind_resume, not %s', coalesce(left(action, 100), 'null')) end,
    jobq.length_problem('kind', kind, 128),
    jobq.note_problem(note));
begin
  if problem is not null then
    raise sqlstate 'JQ001' using message = problem;
  end if;
  if act_kind.action = 'kind_pause' then
    insert into jobq.kind as k (name, paused_at, paused_by, pause_reason)
      values (act_kind.kind, clock_timestamp(), jobq.actor_of(act_kind.actor), act_kind.note)
      on conflict (name) do update
        set paused_at = excluded.paused_at, paused_by = excluded.paused_by, pause_reason = excluded.pause_reason
        where k.paused_at is null;
  else
    delete from jobq.kind k where k.name = act_kind.kind and k.paused_at is not null returning k.pause_reason into was;
  end if;
  if not found then
    return null;
  end if;
  if act_kind.action = 'kind_resume' then
    -- Who has the kind has looked beyond its jobs: see act_queue.
    perform jobq.wake('head', q.name)
      from (select distinct jsonb_object_keys(case when jsonb_typeof(w.queues) = 'object' then w.queues end) as name
          from jobq.worker w where act_kind.kind = any(w.kinds) limit 1000) q;
  end if;
  return jobq.audit_begin(act_kind.actor, act_kind.action, act_kind.kind, act_kind.note, null,
    case when was is not null then jsonb_build_object('pause_reason', was) end);
end $$;
comment on function jobq.act_kind is
  'Pauses a kind, or lets it go on; returns the number of the action, or null if nothing changed.';

-- act_key pauses or resumes a partition key of a queue. It returns the id of the audit row, or null if the key was
-- paused, or not paused, already; and whether a job of the key is available now. Running jobs are not affected. A key
-- that nobody knows yet can be paused: its first job then waits. It adds a hint for claims (lane_pause and
-- lane_hints_take), so it does not wait for claims, and they do not wait for it.
create function jobq.act_key(actor text, action text, queue text, key text, note text)
  returns table (audit bigint, has_jobs boolean)
  language plpgsql
  as $$
declare
  was text; -- the reason for a pause that ends
  problem text := coalesce(
    jobq.length_problem('actor', jobq.actor_of(actor), 255),
    case when action is null or action not in ('key_pause', 'key_resume') then
      format('action must be key_pause or key_resume, not %s', coalesce(left(action, 100), 'null')) end,
    jobq.length_problem('queue', queue, 128),
    jobq.length_problem('partition_key', key, 255),
    jobq.note_problem(note));
begin
  if problem is not null then
    raise sqlstate 'JQ001' using message = problem;
  end if;
  if act_key.action = 'key_pause' then
    insert into jobq.paused_key (queue, key, paused_at, paused_by, pause_reason)
      values (act_key.queue, act_key.key, clock_timestamp(), jobq.actor_of(act_key.actor), act_key.note)
      on conflict on constraint paused_key_pkey do nothing;
  else
    delete from jobq.paused_key k where k.queue = act_key.queue and k.key = act_key.key
        returning k.pause_reason into was;
  end if;
  if found then
    if act_key.action = 'key_pause' then
      insert into jobq.lane_hint (id, queue, key) overriding system value
        values (-nextval('jobq.lane_hint_id_seq'), act_key.queue, act_key.key);
    else
      perform jobq.lane_come(act_key.queue, array[act_key.key]);
      perform jobq.wake('work', act_key.queue);
    end if;
    audit := jobq.audit_begin(act_key.actor, act_key.action, act_key.queue, act_key.note,
      jsonb_build_object('partition_key', act_key.key),
      case when was is not null then jsonb_build_object('pause_reason', was) end);
  end if;
  perform from jobq.pending p where p.queue = act_key.queue and p.partition_key = act_key.key and p.position is not null
    order by p.priority, p.position limit 1;
  has_jobs := found;
  return next;
end $$;
comment on function jobq.act_key is
  'Pauses a partition key of a queue, or lets it go on; returns the number of the action, null if nothing changed, '
  'and whether a job of it is available.';

-- act_key_weight sets the weight of a partition key of a queue, from the next claim on; 1 is the weight of a key for
-- which none was set. It returns the id of the audit row, or null if the key has this weight already; and whether a job
-- of the key is available now. A key that nobody knows yet can have a weight.
create function jobq.act_key_weight(actor text, queue text, key text, weight integer, note text)
  returns table (audit bigint, has_jobs boolean)
  language plpgsql
  as $$
declare
  was integer;
  problem text := coalesce(
    jobq.length_problem('actor', jobq.actor_of(actor), 255),
    jobq.length_problem('queue', queue, 128),
    jobq.length_problem('partition_key', key, 255),
    case when weight is null or weight not between 1 and 100 then
      format('weight must be 1 to 100, not %s', coalesce(weight::text, 'null')) end,
    jobq.note_problem(note));
begin
  if problem is not null then
    raise sqlstate 'JQ001' using message = problem;
  end if;
  loop -- until it is known what the weight was: somebody may take it away meanwhile
    select w.weight into was from jobq.key_weight w where w.queue = act_key_weight.queue and w.key = act_key_weight.key
        for update;
    exit when found or act_key_weight.weight = 1;
    insert into jobq.key_weight (queue, key, weight)
        values (act_key_weight.queue, act_key_weight.key, act_key_weight.weight)
      on conflict on constraint key_weight_pkey do nothing;
    exit when found;
  end loop;
  if act_key_weight.weight = 1 then
    delete from jobq.key_weight w where w.queue = act_key_weight.queue and w.key = act_key_weight.key;
  else
    update jobq.key_weight w set weight = act_key_weight.weight
      where w.queue = act_key_weight.queue and w.key = act_key_weight.key and w.weight <> act_key_weight.weight;
  end if;
  if act_key_weight.weight <> coalesce(was, 1) then
    audit := jobq.audit_begin(act_key_weight.actor, 'key_weight', act_key_weight.queue, act_key_weight.note,
      jsonb_build_object('partition_key', act_key_weight.key, 'weight', act_key_weight.weight),
      jsonb_build_object('weight', coalesce(was, 1)));
  end if;
  perform from jobq.pending p where p.queue = act_key_weight.queue and p.partition_key = act_key_weight.key
      and p.position is not null
    order by p.priority, p.position limit 1;
  has_jobs := found;
  return next;
end $$;
comment on function jobq.act_key_weight is
  'Gives a partition key of a queue a weight, 1 to 100; returns the number of the action, null if nothing changed, '
  'and whether a job of it is available.';

-- act_settings changes the settings of the schema that are not null. A failed_retention of 0 means the default, which
-- is that of finished_retention. It returns the id of the audit row, or null if nothing changes.
create function jobq.act_settings(
    actor text, finished_retention interval default null, quarantine_crashes integer default null,
    note text default null,
    keep_until_exported boolean default null, exported_before date default null, failed_retention interval default null)
  returns bigint
  language plpgsql
  as $$
declare
  problem text := case
    when finished_retention not between interval '1 day' and interval '10 years' then
      format('finished_retention must be 1 day to 10 years, not %s', finished_retention)
    when failed_retention <> interval '0' and failed_retention not between interval '1 day' and interval '10 years' then
      format('failed_retention must be 1 day to 10 years, or 0 for as long as finished_retention, not %s',
        failed_retention)
    when quarantine_crashes not between 0 and 1000 then
      format('quarantine_crashes must be 0 to 1000, not %s', quarantine_crashes)
    when exported_before not between date '2026-01-01' and date '9999-12-31' then
      format('exported_before must be a day in the years 2026 to 9999, not %s', exported_before)
  end;
  old jobq.setting;
  was jsonb; -- what differs, before
  new jsonb; -- and after
begin
  if problem is not null then
    raise sqlstate 'JQ001' using message = problem;
  end if;
  select s.* into strict old from jobq.setting s for update;
  -- As text they would differ: 1 day and 24:00:00.
  select jsonb_object_agg(c.name, c.was), jsonb_object_agg(c.name, c.new) into was, new
    from (values
      ('finished_retention', to_jsonb(old.finished_retention), to_jsonb(act_settings.finished_retention),
        act_settings.finished_retention <> old.finished_retention),
      ('failed_retention', to_jsonb(old.failed_retention),
        to_jsonb(nullif(act_settings.failed_retention, interval '0')),
        act_settings.failed_retention <> coalesce(old.failed_retention, interval '0')),
      ('quarantine_crashes', to_jsonb(old.quarantine_crashes), to_jsonb(act_settings.quarantine_crashes),
        act_settings.quarantine_crashes <> old.quarantine_crashes),
      ('keep_until_exported', to_jsonb(old.keep_until_exported), to_jsonb(act_settings.keep_until_exported),
        act_settings.keep_until_exported <> old.keep_until_exported),
      ('exported_before', to_jsonb(old.exported_before), to_jsonb(act_settings.exported_before),
        act_settings.exported_before <> old.exported_before)) c (name, was, new, differs)
    where c.differs;
  if new is null then
    return null;
  end if;
  update jobq.setting s
    set finished_retention = coalesce(act_settings.finished_retention, s.finished_retention),
      failed_retention = nullif(coalesce(act_settings.failed_retention, s.failed_retention), interval '0'),
      quarantine_crashes = coalesce(act_settings.quarantine_crashes, s.quarantine_crashes),
      keep_until_exported = coalesce(act_settings.keep_until_exported, s.keep_until_exported),
      exported_before = coalesce(act_settings.exported_before, s.exported_before);
  return jobq.audit_begin(act_settings.actor, 'settings', null, act_settings.note, new, was);
end $$;
comment on function jobq.act_settings is
  'Changes settings of the whole schema; returns the number of the action, or null if nothing changed.';

-- queue_changed is a queue with the settings in change, for act_queue_set. If a new lease does not fit extend_every,
-- extend_every becomes null, which means a third of the lease. A key_order without a key_limit sets a key_limit of 1.
create function jobq.queue_changed(was jobq.queue, change jsonb) returns jobq.queue
  language plpgsql stable
  as $$
declare
  changed jobq.queue;
begin
  begin
    select r.* into changed from jsonb_populate_record(was, change) r;
  exception when data_exception then
    raise sqlstate 'JQ001' using message = format('change: %s', left(sqlerrm, 200));
  end;
  if not change ? 'extend_every' and changed.extend_every > changed.lease / 2 then
    changed.extend_every := null;
  end if;
  if not change ? 'key_limit' and changed.key_order is not null and changed.key_limit is null then
    changed.key_limit := 1;
  end if;
  return changed;
end $$;

-- act_queue_set changes settings of a queue: the members of change, which have the names of columns of jobq.queue. It
-- returns the id of the audit row, or null if nothing changes. The queue need not be known; it gets its row when a
-- setting differs from its default.
create function jobq.act_queue_set(actor text, queue text, change jsonb, note text default null) returns bigint
  language plpgsql
  as $$
declare
  names constant text[] := '{lease, extend_every, heartbeat, stale_grace, redelivery, redelivery_delay, reset_on_reap,
    max_lost, max_running, key_limit, key_order, key_separator, rate_jobs, rate_period, rate_burst, key_rate_jobs,
    key_rate_period, key_rate_burst, age_after, retention, failed_retention}';
  required constant text[] := '{lease, heartbeat, stale_grace, redelivery, redelivery_delay, reset_on_reap, age_after}';
  limits constant text[] := '{max_running, key_limit, key_order, key_separator, rate_jobs, rate_period, rate_burst,
    key_rate_jobs, key_rate_period, key_rate_burst}';
  problem text := coalesce(
    jobq.length_problem('queue', queue, 128),
    case when jsonb_typeof(change) is distinct from 'object' then 'change must be a JSON object' end,
    (select case when c.key <> all (names) then format('change: unknown member "%s"', left(c.key, 100))
        else format('change: %s must not be null', c.key) end
      from jsonb_each(change) c
      where c.key <> all (names) or (c.value = 'null' and c.key = any (required))
      order by c.key
      limit 1));
  was jobq.queue;
  wanted jobq.queue;
  added boolean; -- the queue had no row
  old jsonb; -- what differs, before
  new jsonb; -- and after
begin
  if problem is not null then
    raise sqlstate 'JQ001' using message = problem;
  end if;
  insert into jobq.queue (name) values (act_queue_set.queue) on conflict (name) do nothing;
  added := found;
  select q.* into strict was from jobq.queue q where q.name = act_queue_set.queue for update;
  wanted := jobq.queue_changed(was, change);
  -- As text they would differ: 1 day and 24:00:00.
  if wanted is not distinct from was then
    -- Else a misspelt name would be known, without an entry in the audit.
    delete from jobq.queue q where q.name = act_queue_set.queue and added;
    return null;
  end if;
  begin
    update jobq.queue q
      set lease = wanted.lease, extend_every = wanted.extend_every, heartbeat = wanted.heartbeat,
        stale_grace = wanted.stale_grace, redelivery = wanted.redelivery, redelivery_delay = wanted.redelivery_delay,
        reset_on_reap = wanted.reset_on_reap, max_lost = wanted.max_lost, max_running = wanted.max_running,
        key_limit = wanted.key_limit,
        key_order = wanted.key_order, key_separator = wanted.key_separator, rate_jobs = wanted.rate_jobs,
        rate_period = wanted.rate_period, rate_burst = wanted.rate_burst, key_rate_jobs = wanted.key_rate_jobs,
        key_rate_period = wanted.key_rate_period, key_rate_burst = wanted.key_rate_burst, age_after = wanted.age_after,
        retention = wanted.retention, failed_retention = wanted.failed_retention
      where q.name = act_queue_set.queue;
  exception when check_violation then
    get stacked diagnostics problem = constraint_name; -- which is the limit in words
    raise sqlstate 'JQ001' using message = problem;
  end;
  select jsonb_object_agg(b.key, b.value), jsonb_object_agg(a.key, a.value) into old, new
    from jsonb_each(to_jsonb(was)) b
    join jsonb_each(to_jsonb(wanted)) a on a.key = b.key
    where a.value <> b.value;
  if new ?| limits then -- workers claim otherwise from a queue with limits, and find nothing until they know
    perform jobq.notify('settings', act_queue_set.queue);
  end if;
  return jobq.audit_begin(act_queue_set.actor, 'settings', act_queue_set.queue, act_queue_set.note, new, old);
end $$;
comment on function jobq.act_queue_set is
  'Changes settings of a queue; returns the number of the action, or null if nothing changed.';

-- How actions are taken back.

-- run_restore puts a job that had ended back into the history, from a row of job_lock. The row itself says how the job
-- ended, even if its lease does, too: retention may drop the lease soon. If it has dropped it, a new lease without ends
-- says which worker had the job. If the day was swept (history_sweep), it is swept again.
create function jobq.run_restore(was jsonb) returns void
  language plpgsql
  as $$
declare
  ended jobq.run;
  lease record;
begin
  select r.* into ended from jsonb_populate_record(ended, was) r;
  if not ended.args_apart then
    ended.args := was -> 'args'; -- else JSON's null would be ours
  end if;
  select e.* into lease from jobq.run_end(ended.lease_id, ended.slot, null) e;
  if lease.owner is null and was ->> 'lease_owner' is not null then
    insert into jobq.past_lease (id, claimed_at, owner, ended)
      values (ended.lease_id, (was ->> 'started_at')::timestamptz, was ->> 'lease_owner', '{}')
      on conflict do nothing;
  end if;
  ended.run_at := nullif(ended.run_at, ended.created_at);
  insert into jobq.run select ended.*;
  insert into jobq.sweep_again (lease_id) values (ended.lease_id);
  if pg_sequence_last_value('jobq.dependency_seq') is not null then
    perform jobq.parents_ended(array[ended.id]);
  end if;
  perform jobq.export_again(date '2026-01-01' + (ended.lease_id >> 40)::integer);
end $$;

-- undo_delete puts a deleted job back, with its attempts. An available job goes to the end of its line.
create function jobq.undo_delete(entry jobq.audit_job) returns void
  language plpgsql
  as $$
declare
  row jsonb := entry.before -> 'row';
  waiting jobq.pending;
begin
  if entry.before ->> 'stage' = 'pending' then
    select p.* into waiting from jsonb_populate_record(waiting, row) p;
    if not waiting.args_apart then
      waiting.args := row -> 'args'; -- as in run_restore
    end if;
    waiting.position := case when entry.state_before = 'available' then nextval('jobq.position_seq') end;
    insert into jobq.pending select waiting.*;
  else
    perform jobq.run_restore(row);
  end if;
  if entry.before -> 'payload' <> 'null' then
    insert into jobq.payload (job_id, args) values (entry.job_id, entry.before -> 'payload');
  end if;
  if entry.before -> 'attempts' <> 'null' then
    insert into jobq.attempt select t.* from jsonb_populate_recordset(null::jobq.attempt, entry.before -> 'attempts') t;
    perform jobq.export_again(d.day)
      from (select distinct (t.finished_at at time zone 'UTC')::date as day
        from jsonb_populate_recordset(null::jobq.attempt, entry.before -> 'attempts') t) d;
  end if;
end $$;

-- undo_cancel lets a job wait again that a cancel had ended. It returns false if the job is not as the cancel left it.
create function jobq.undo_cancel(entry jobq.audit_job) returns boolean
  language plpgsql
  as $$
declare
  ended jobq.run;
begin
  delete from jobq.run r
    where r.id = entry.job_id and r.state = 'cancelled' and r.slot = 0 and r.finished_at = entry.version
    returning r.* into ended;
  if not found then
    return false;
  end if;
  insert into jobq.stat_delta (minute, queue, kind, cancelled)
    values (date_trunc('minute', entry.version), ended.queue, ended.kind, -1);
  ended.lease_id := entry.lease_token;
  insert into jobq.pending
    select n.*
      from jobq.pending_of(ended,
        case when entry.state_before = 'available' then nextval('jobq.position_seq') end,
        coalesce(ended.run_at, ended.created_at), ended.attempts, ended.crashes, ended.last_error,
        ended.clear_reason, ended.checkpoint, nullif(entry.state_before = 'waiting', false)) n;
  perform jobq.args_require(entry.job_id);
  return true;
end $$;

-- undo_requeue puts a job back where a requeue found it. It returns false if the job is not as the requeue left it. One
-- that was cancelled with its parent may have been cancelled again, since the undo has put back the parent before.
create function jobq.undo_requeue(entry jobq.audit_job) returns boolean
  language plpgsql
  as $$
declare
  row jsonb := entry.before -> 'row';
  waiting jobq.pending;
begin
  if entry.before ->> 'stage' = 'pending' then -- it was scheduled or waiting
    update jobq.pending p
      set position = null, run_at = (row ->> 'run_at')::timestamptz,
        waits = nullif(entry.state_before = 'waiting', false)
      where p.id = entry.job_id and p.position is not null and p.lease_token = entry.lease_token
        and p.run_at = entry.version
      returning p.* into waiting;
    if found and entry.state_before <> 'waiting' then
      perform jobq.notify('due', extract(epoch from waiting.run_at)::text);
    end if;
  else -- it had ended
    delete from jobq.pending p
      where p.id = entry.job_id and p.lease_token = entry.lease_token and p.run_at = entry.version
      returning p.* into waiting;
    if found then
      perform jobq.run_restore(to_jsonb(waiting) || row); -- which has what the requeue has changed
    elsif entry.state_after = 'waiting' then
      return exists (select from jobq.run r where r.id = entry.job_id and r.state = 'cancelled' and r.slot = 0
        and jobq.parent_named(r.last_error) is not null);
    end if;
  end if;
  return waiting.id is not null;
end $$;

-- undo_requeue_args gives a job that was requeued with other args those that it had, and its checkpoint. It returns
-- false if the job is not as the requeue left it, and locks it otherwise: then undo_requeue finds it so, too.
create function jobq.undo_requeue_args(entry jobq.audit_job) returns boolean
  language plpgsql
  as $$
declare
  edit jsonb := entry.before -> 'edit';
begin
  perform from jobq.pending p
    where p.id = entry.job_id and p.lease_token = entry.lease_token and p.run_at = entry.version
      and (p.position is not null or entry.before ->> 'stage' <> 'pending')
    for update;
  if not found then
    return false;
  end if;
  perform jobq.job_edit(entry.job_id, edit -> 'before', edit -> 'after');
  update jobq.pending p set checkpoint = edit -> 'checkpoint' where p.id = entry.job_id and edit ? 'checkpoint';
  return true;
end $$;

-- undo_job takes back what an action did to one job, if nothing has happened
-- to the job since; otherwise it returns why not.
create function jobq.undo_job(action text, entry jobq.audit_job) returns text
  language plpgsql
  as $$
declare
  edit jsonb := entry.before -> 'edit';
  editor bigint;
  undone boolean := true;
begin
  if entry.state_before = 'running' then
    return 'its worker has been told to stop it';
  end if;
  select min(t.audit_id) into editor
    from jobq.audit_job t
    where t.job_id = entry.job_id and t.seq > entry.seq
      -- One look-up for each, never a join with all actions.
      and (select a.action = 'edit' and a.undone_by is null from jobq.audit a where a.id = t.audit_id limit 1);
  if editor is not null then
    return format('it was edited meanwhile, by action %s', editor);
  end if;
  case undo_job.action
    when 'delete' then
      perform jobq.undo_delete(entry);
    when 'cancel' then
      undone := jobq.undo_cancel(entry);
    when 'requeue' then
      if edit is not null then -- with other args, which it is to lose first, while it waits
        undone := jobq.undo_requeue_args(entry);
      end if;
      undone := undone and jobq.undo_requeue(entry);
    else -- edit or clone
      perform from jobq.pending p where p.id = entry.job_id and p.lease_token = entry.lease_token for update;
      undone := found;
      if undone and undo_job.action = 'edit' then
        perform jobq.job_edit(entry.job_id, edit -> 'before', edit -> 'after');
      elsif undone then
        perform jobq.delete_job(entry.job_id);
      end if;
  end case;
  if not undone then
    return coalesce(
      (select format('it has changed meanwhile, and is %s now', j.state) from jobq.job j where j.id = entry.job_id),
      'it is gone');
  end if;
  -- What it waits for may have come meanwhile. An edit leaves that alone, unless it was of run_at.
  if entry.state_before = 'waiting' and undo_job.action <> 'edit' then
    perform jobq.look_soon(array[entry.job_id]);
  elsif entry.state_before = 'scheduled' and (undo_job.action <> 'edit' or edit -> 'before' ? 'run_at') then
    perform jobq.event_look_again(entry.job_id);
  end if;
  return null;
end $$;

-- undo_overtaken says which later action keeps one that was not on jobs from being taken back.
create function jobq.undo_overtaken(undone jobq.audit, later jobq.audit) returns text
  language sql stable
  return format('%s %s meanwhile, by action %s',
    case
      when undone.change ? 'partition_key' then
        format('key %s of queue %s', undone.change ->> 'partition_key', undone.target)
      when undone.action = 'kind_settings' then format('the settings of kind %s', undone.target)
      when undone.action like 'kind\_%' then format('kind %s', undone.target)
      when undone.action like 'host\_%' then format('host %s', undone.target)
      when undone.target is null then 'the settings'
      when undone.action = 'settings' then format('the settings of queue %s', undone.target)
      else format('queue %s', undone.target)
    end,
    case
      when later.action in ('settings', 'kind_settings') then 'have been changed'
      when later.action = 'key_weight' then 'has been given another weight'
      when later.action = 'host_hold' then 'has been held'
      when later.action = 'host_release' then 'has been released'
      when later.action like '%\_pause' then 'has been paused'
      when later.action like '%\_resume' then 'has been resumed'
      else format('has had a %s', later.action)
    end,
    later.id);

-- undo_whole takes back an action that was not on jobs: on a queue, a kind, a host, a partition key, or the
-- settings. It must have been the last action on them.
create function jobq.undo_whole(actor text, undone jobq.audit) returns void
  language plpgsql
  as $$
declare
  of_kind constant boolean := undone.action like 'kind\_%';
  partition_key constant text := undone.change ->> 'partition_key';
  was constant jsonb := undone.replaced;
  reason constant text := coalesce(was ->> 'pause_reason', was ->> 'hold_reason', 'undo');
  opposite constant text := case -- of a weight, and of settings, it is the same action
    when undone.action = 'host_hold' then 'host_release'
    when undone.action = 'host_release' then 'host_hold'
    when undone.action like '%pause' then replace(undone.action, 'pause', 'resume')
    else replace(undone.action, 'resume', 'pause') end;
  of_host constant boolean := undone.action like 'host\_%';
  later jobq.audit;
begin
  -- Nobody changes it from here on.
  perform from jobq.kind k where k.name = undone.target and of_kind for update;
  perform from jobq.kind_setting k where k.name = undone.target and undone.action = 'kind_settings' for update;
  perform from jobq.key_weight w where w.queue = undone.target and w.key = partition_key
    and undone.action = 'key_weight' for update;
  perform from jobq.paused_key k where k.queue = undone.target and k.key = partition_key
    and undone.action <> 'key_weight' for update;
  perform from jobq.held_host h where h.host = undone.target and of_host for update;
  perform from jobq.queue q where q.name = undone.target and not of_kind and not of_host and partition_key is null
    for update;
  perform from jobq.setting where undone.target is null for update;
  select a.* into later
    from jobq.audit a
    where a.id > undone.id and a.target is not distinct from undone.target and a.action in (undone.action, opposite)
      and a.change ->> 'partition_key' is not distinct from partition_key
    order by a.id
    limit 1;
  if found then
    raise sqlstate 'JQ003' using message = jobq.undo_overtaken(undone, later);
  end if;
  case
    when undone.action in ('pause', 'resume') then perform jobq.act_queue(actor, opposite, undone.target, reason);
    when undone.action = 'kind_settings' then perform jobq.act_kind_set(actor, undone.target, was, 'undo');
    when of_kind then perform jobq.act_kind(actor, opposite, undone.target, reason);
    when of_host then perform jobq.act_host(actor, opposite, undone.target, reason);
    when undone.action = 'key_weight' then
      perform jobq.act_key_weight(actor, undone.target, partition_key, (was ->> 'weight')::integer, 'undo');
    when partition_key is not null then
      perform jobq.act_key(actor, opposite, undone.target, partition_key, reason);
    when undone.target is not null then perform jobq.act_queue_set(actor, undone.target, was, 'undo');
    else
      perform jobq.act_settings(actor, (was ->> 'finished_retention')::interval,
        (was ->> 'quarantine_crashes')::integer, 'undo', (was ->> 'keep_until_exported')::boolean,
        -- Never later: a job may have come back into a day that had been exported.
        least((select s.exported_before from jobq.setting s), (was ->> 'exported_before')::date),
        case when was ? 'failed_retention' then coalesce((was ->> 'failed_retention')::interval, interval '0') end);
  end case;
end $$;

-- undo_begin returns the row of the audit for an undo: of one that has begun and goes on, or a new one. It raises an
-- error if the action cannot be undone. What was not on jobs is taken back here.
create function jobq.undo_begin(actor text, undone jobq.audit) returns jobq.audit
  language plpgsql
  as $$
declare
  undoing jobq.audit;
begin
  select a.* into undoing from jobq.audit a where a.id = undone.undone_by and a.ended_at is null;
  if found then
    return undoing;
  end if;
  if undone.action in ('undo', 'drain', 'lost', 'schedule_run', 'export') or undone.undone_by is not null then
    raise sqlstate 'JQ003' using message = case undone.action
      when 'undo' then 'an undo is not undone: act again instead'
      when 'drain' then 'a worker that drains is not called back: start another'
      when 'lost' then 'the jobs of a lost worker have gone back, and may run elsewhere: start another worker'
      when 'export' then 'an export is not undone: to have days exported again, set exported_before'
      when 'schedule_run' then format('a schedule that was run has added its job: cancel %s', undone.note)
      else format('action %s is undone already', undone.id) end;
  end if;
  if undone.action like 'schedule\_%' then
    perform jobq.schedule_undo(actor, undone);
  elsif undone.action not in ('requeue', 'cancel', 'delete', 'edit', 'clone') then
    perform jobq.undo_whole(actor, undone);
  end if;
  undoing.id := jobq.audit_begin(actor, 'undo', undone.target, undone.action);
  update jobq.audit a set undoes = undone.id where a.id = undoing.id;
  update jobq.audit a set undone_by = undoing.id where a.id = undone.id;
  return undoing;
end $$;

-- undo_keys_take takes the unique keys of the jobs that an undo is about to put back, whose ids are above first and at
-- most last. It returns them with the job that holds each. A deleted job takes its key until the same time as before.
-- A job that had ended does not need its key: it does not take one whose time is over.
create function jobq.undo_keys_take(undone jobq.audit, first bigint, last bigint,
    out kinds text[], out keys text[], out ids bigint[], out holders bigint[])
  language plpgsql
  as $$
declare
  untils timestamptz[];
begin
  select array_agg(k.kind), array_agg(k.key), array_agg(k.id), array_agg(k.until) into kinds, keys, ids, untils
    from (
      select t.before -> 'row' ->> 'kind' as kind, t.job_id as id, (t.before ->> 'key_until')::timestamptz as until,
          case undone.action when 'cancel' then r.unique_key else t.before -> 'row' ->> 'unique_key' end as key
        from jobq.audit_job t
        left join lateral ( -- one look-up for each, never a join with the history
          select x.unique_key from jobq.run x
            where undone.action = 'cancel' and x.id = t.job_id and x.state is not null limit 1) r on true
        where t.audit_id = undone.id and t.job_id > first and t.job_id <= last
          and undone.action in ('cancel', 'delete')
          and (t.before ->> 'stage' = 'pending' or (t.before ->> 'key_until')::timestamptz > statement_timestamp())
    ) k
    where k.key is not null;
  holders := jobq.unique_keys_take(kinds, keys, ids, untils);
end $$;

-- undo_try is undo_job for a job with a unique key, of which it says who holds it; or all are null. It also returns a
-- code for the reason why not.
create function jobq.undo_try(action text, entry jobq.audit_job, kind text, key text, holder bigint,
    out code text, out problem text)
  language plpgsql
  as $$
begin
  begin
    if holder <> entry.job_id and entry.before ->> 'stage' = 'pending' then
      perform jobq.unique_key_refuse(kind, key, holder);
    end if;
    problem := jobq.undo_job(action, entry);
    code := case when problem is not null then 'JQ003' end;
  exception
    when check_violation or sqlstate 'JQ003' then
      code := 'JQ003';
      problem := sqlerrm;
    when unique_violation or sqlstate 'JQ004' then
      code := 'JQ004';
      problem := sqlerrm;
  end;
  -- Nobody is to keep the key that was taken for a job that is still gone.
  if problem is not null and undo_try.action = 'delete' and not jobq.job_exists(entry.job_id) then
    delete from jobq.unique_key u
      where u.kind = undo_try.kind and u.key = undo_try.key and u.job_id = entry.job_id;
  end if;
end $$;

-- undo takes back an action, for the jobs to which nothing has happened since.
-- It returns for each job the states before and after the undo, or
-- why the job stays as it is, with one of the codes of docs/sql.md. For an action that was
-- not on jobs, such as a pause, it returns one row without states. Such an action must
-- have been the last one of its sort on its queue, kind, host, partition key or schedule, or
-- on the settings (undo_whole, schedule_undo).
--
-- A call takes the next 1,000 jobs of the action, by their ids; ended says
-- that there are no more. Of 2,500 jobs, the third
-- call ends. An action can be undone once, and an undo cannot be undone; but after an undo
-- that could take nothing back, the action can be undone again.
--
-- Unique keys are taken before any job is locked, as in act. A deleted job takes its key until the same time as before.
-- A job that had ended comes back without its key if the time of the key is over, or if another job holds the key: only
-- an unfinished job needs its key.
create function jobq.undo(actor text, audit_id bigint)
  returns table (audit bigint, job_id bigint, state_before text, state_after text, code text, problem text,
      ended boolean)
  language plpgsql
  as $$
declare
  undone jobq.audit;
  undoing jobq.audit;
  entry jobq.audit_job;
  first bigint; -- above this id
  last bigint;  -- up to this one
  taken record; -- unique keys, and who has each
  place integer;
  changed integer := 0;
  refusals integer := 0;
begin
  select a.* into undone from jobq.audit a where a.id = undo.audit_id for update;
  if not found then
    raise sqlstate 'JQ002' using message = format('no action %s', coalesce(undo.audit_id::text, 'null'));
  end if;
  undoing := jobq.undo_begin(undo.actor, undone);
  audit := undoing.id;
  first := coalesce(undoing.id_done, 0);
  last := coalesce((select t.job_id from jobq.audit_job t where t.audit_id = undone.id and t.job_id > first
    order by t.job_id offset 999 limit 1), 9223372036854775807);
  ended := not exists (select from jobq.audit_job t where t.audit_id = undone.id and t.job_id > last);
  taken := jobq.undo_keys_take(undone, first, last);
  for entry in select t.* from jobq.audit_job t
      where t.audit_id = undone.id and t.job_id > first and t.job_id <= last order by t.job_id loop
    job_id := entry.job_id;
    state_before := entry.state_after;
    state_after := entry.state_before;
    place := array_position(taken.ids, entry.job_id);
    select r.* into code, problem
      from jobq.undo_try(undone.action, entry, taken.kinds[place], taken.keys[place], taken.holders[place]) r;
    if problem is null then
      changed := changed + 1;
      insert into jobq.audit_job (audit_id, job_id, lease_token, state_before, state_after, before)
        values (audit, entry.job_id, entry.lease_token, undo.state_before, undo.state_after, '{}');
    else
      refusals := refusals + 1;
    end if;
    return next;
  end loop;
  perform jobq.unique_keys_release(taken.kinds, taken.keys, taken.ids);
  update jobq.audit a
    set done = a.done + changed, refused = a.refused + refusals,
      id_done = coalesce(nullif(last, 9223372036854775807), a.id_done),
      ended_at = case when undo.ended then clock_timestamp() end
    where a.id = undo.audit returning a.* into undoing;
  if ended and undoing.done = 0 and undoing.refused > 0 then
    update jobq.audit a set undone_by = null where a.id = undone.id;
    update jobq.audit a set undoes = null, note = format('undo of action %s: nothing could be taken back', undone.id)
      where a.id = undoing.id;
  end if;
  if changed + refusals = 0 then
    return next;
  end if;
end $$;
comment on function jobq.undo is 'Takes an action of the audit back, as far as its jobs are as it left them.';

-- Days of the history that are stored elsewhere before they go: see docs/decisions/0021.

-- export_first is the next day to be exported: all days before it were exported, or have nothing to export.
-- If there is no history, it is exported_before. Needs run_default_place_idx and
-- attempt_default_finished_at_idx.
create function jobq.export_first() returns date
  language sql stable
  as $$
    select greatest(s.exported_before, least(
        (select min(to_date(right(c.relname, 8), 'YYYYMMDD'))
          from pg_inherits i
          join pg_class c on c.oid = i.inhrelid
          where i.inhparent in ('jobq.run'::regclass, 'jobq.attempt'::regclass)
            and c.relname ~ '^(run|attempt)_[0-9]{8}$'),
        (select date '2026-01-01' + (r.lease_id >> 40)::integer from jobq.run_default r
            order by r.lease_id, r.id limit 1),
        (select (a.finished_at at time zone 'UTC')::date from jobq.attempt_default a order by a.finished_at limit 1)))
      from jobq.setting s
  $$;

-- export_begin notes that the export of a day begins, and returns when: export_end asks for
-- it. It raises an error if something can still be added to the day:
--
--   12 Nov 00:05  the 11th is not over for long enough: some transaction may still write
--   12 Nov 00:30  a job that was claimed on the 11th runs: its lease is held
--   12 Nov 01:00  nothing runs; the lock on the day proves that no transaction writes
--
-- From then on, rows leave the day when jobs are requeued or deleted, and come back only by an
-- undo, which calls export_again. The lock is held for this transaction only. It is tried 50
-- times, 200 ms apart. Each try waits for at most 100 ms, since ends of jobs wait behind it. A
-- vacuum of the day prevents the lock as well.
create function jobq.export_begin(day date) returns timestamptz
  language plpgsql security definer set search_path = pg_catalog, pg_temp
  as $$
declare
  low bigint := jobq.lease_day(day);
  high bigint := jobq.lease_day(day + 1);
  days text[];
  name text;
  tries integer := 0;
  began timestamptz;
begin
  if day is null or day < date '2026-01-01' or day > date '9999-12-30' then
    raise sqlstate 'JQ001'
        using message = format('the day must be in the years 2026 to 9999, not %s', coalesce(day::text, 'null'));
  end if;
  if clock_timestamp() < (day + 1)::timestamp at time zone 'UTC' + interval '10 minutes' then
    raise sqlstate 'JQ003'
        using message = format('%s is not over: it can be exported from 00:10 (UTC) of the next day on', day);
  end if;
  select array_agg(case when to_regclass(format('jobq.%I', d.name)) is null then p.parent || '_default' else d.name end)
      into days
    from unnest(array['run', 'past_lease', 'attempt']) as p(parent)
    cross join lateral (select p.parent || '_' || to_char(day, 'YYYYMMDD') as name) d;
  set local lock_timeout = '100ms';
  loop
    begin
      foreach name in array days loop
        execute format('lock table only jobq.%I in share mode', name);
      end loop;
      exit;
    exception when lock_not_available then
      tries := tries + 1;
      if tries = 50 then
        raise sqlstate 'JQ003' using message = format('%s is being written to, or vacuumed: try again later', day);
      end if;
      perform pg_sleep(0.2);
    end;
  end loop;
  if exists (select from jobq.lease l where l.id >= low and l.id < high) then
    raise sqlstate 'JQ003'
        using message = format('jobs that were claimed on %s still run: it can be exported when they have ended', day);
  end if;
  began := clock_timestamp();
  update jobq.setting s set export_day = day, export_began_at = began;
  return began;
end $$;

-- export_end records that a whole day was exported, and how much; it returns
-- the id of the audit row. It must be the export that began last, nothing may
-- have come back into the day since, and all days before must have been exported.
create function jobq.export_end(actor text, day date, began_at timestamptz, jobs bigint, attempts bigint) returns bigint
  language plpgsql
  as $$
declare
  old jobq.setting;
  first date;
begin
  select s.* into strict old from jobq.setting s for update;
  if old.export_day is distinct from day or old.export_began_at is distinct from began_at then
    raise sqlstate 'JQ003' using message = format('the export of %s does not count: another has begun since, or an '
      'undo has brought a job back; export it again', day);
  end if;
  first := jobq.export_first();
  if first < day then
    raise sqlstate 'JQ003' using message = format('%s is to be exported before %s', first, day);
  end if;
  update jobq.setting s set exported_before = greatest(s.exported_before, day + 1), export_began_at = null;
  return jobq.audit_begin(actor, 'export', day::text, null, jsonb_build_object('jobs', jobs, 'attempts', attempts));
end $$;

-- export_again notes that a job has come back into a day: an export of the day that is
-- under way does not count, and an earlier one is not complete.
create function jobq.export_again(day date) returns void
  language sql
  as $$
    update jobq.setting s
      set exported_before = least(s.exported_before, greatest(export_again.day, date '2026-01-01')),
        export_began_at = case when s.export_day = export_again.day then null else s.export_began_at end
      where s.exported_before > export_again.day or (s.export_day = export_again.day and s.export_began_at is not null)
  $$;

-- Counts and sums for charts.

-- Counts and sums for charts, so that charts never count job rows. Finishers
-- append to stat_delta in the transaction that finishes the jobs, and so never
-- wait for one another's row; the janitor rolls it up into stat by the minute.
create table jobq.stat_delta (
  minute      timestamptz      not null,
  run_seconds double precision not null default 0,
  wait_seconds double precision not null default 0,
  completed   integer          not null default 0,
  failed      integer          not null default 0,
  retried     integer          not null default 0,
  lost        integer          not null default 0,
  cancelled   integer          not null default 0,
  queue       text             not null,
  kind        text             not null
);
comment on table jobq.stat_delta is 'What is yet to be added to jobq.stat.';
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
comment on table jobq.stat is 'Sums by minute: read jobq.stats.';
-- Finding the sums of one queue, for queue_known.
create index stat_queue_idx on jobq.stat (queue, minute);

-- Charts read this: what is rolled up, and what is not yet.
create view jobq.stats as
  select s.minute, s.queue, s.kind, sum(s.completed)::bigint as completed, sum(s.failed)::bigint as failed,
      sum(s.retried)::bigint as retried, sum(s.lost)::bigint as lost, sum(s.cancelled)::bigint as cancelled,
      sum(s.run_seconds) as run_seconds, sum(s.wait_seconds) as wait_seconds
    from (
      select minute, queue, kind, completed, failed, retried, lost, cancelled, run_seconds, wait_seconds from jobq.stat
      union all
      select minute, queue, kind, completed, failed, retried, lost, cancelled, run_seconds, wait_seconds
          from jobq.stat_delta
    ) s
    group by s.minute, s.queue, s.kind;
comment on view jobq.stats is
  'How many jobs ended, by minute, queue and kind, and how long they ran and waited. For charts.';
comment on column jobq.stats.minute is 'Its beginning.';
comment on column jobq.stats.queue is 'Of the jobs.';
comment on column jobq.stats.kind is 'Of the jobs.';
comment on column jobq.stats.completed is 'Jobs that succeeded.';
comment on column jobq.stats.failed is 'Jobs that failed for good.';
comment on column jobq.stats.retried is 'Runs that failed and are tried again.';
comment on column jobq.stats.lost is 'Runs that were lost with their worker.';
comment on column jobq.stats.cancelled is 'Jobs that were cancelled.';
comment on column jobq.stats.run_seconds is 'How long those that ended ran, in all.';
comment on column jobq.stats.wait_seconds is 'How long these waited before, in all.';

-- Who watches. Workers send digests of what they do only while somebody does.

-- A watcher's lease, which it renews while it watches.
create table jobq.watcher (
  id         text        not null primary key,
  expires_at timestamptz not null,
  constraint "watcher id must be 1 to 255 characters" check (char_length(id) between 1 and 255)
);
comment on table jobq.watcher is 'Who watches, and until when.';

-- What workers tell watchers. The notification carries only the id of the row:
-- whoever may log in can listen, and this table can be kept from producers. Each
-- worker keeps its last few rows, for as long as somebody watches. They are worth
-- nothing after a crash.
create unlogged table jobq.digest (
  id      bigint      generated always as identity primary key,
  told_at timestamptz not null default clock_timestamp(),
  digest  text        not null,
  constraint "digest must be at most 8000 bytes" check (octet_length(digest) <= 8000)
);
comment on table jobq.digest is 'What workers tell who watches: rows that live for seconds.';
comment on column jobq.digest.id is 'Told to listeners.';
comment on column jobq.digest.told_at is 'When.';
comment on column jobq.digest.digest is 'Starts and ends of jobs since the last one.';

-- tell adds a digest, deletes earlier ones of the caller, and returns the id. It passes by those that a watcher's
-- transaction is deleting.
create function jobq.tell(digest text, forget bigint[]) returns bigint
  language plpgsql security definer set search_path = pg_catalog, pg_temp
  as $$
declare
  told bigint;
begin
  delete from jobq.digest d
    where d.id = any(array(select x.id from jobq.digest x where x.id = any(tell.forget) for update skip locked));
  insert into jobq.digest (digest) values (tell.digest) returning id into told;
  perform jobq.notify('event', told::text);
  return told;
end $$;

-- watch renews a watcher's lease, for a minute at most. It deletes the leases that have run out, and digests older
-- than a minute, which workers that have ended leave behind. If the watcher is new, it notifies workers at once, so
-- that they read this table; otherwise they would do so with their next heartbeat.
--
-- No role has rights in the two tables, because workers read one and write the other: a lock or an odd row would stop
-- them. So watch waits for no row of others, and there are at most 1,000 watchers.
create function jobq.watch(id text, lease interval) returns void
  language plpgsql security definer set search_path = pg_catalog, pg_temp set lock_timeout = '1s'
  as $$
declare
  is_new boolean;
begin
  delete from jobq.watcher w
    where w.id = any(array(select x.id from jobq.watcher x
        where x.expires_at < clock_timestamp() for update skip locked));
  delete from jobq.digest d
    where d.id = any(array(
      select x.id from jobq.digest x where x.told_at < statement_timestamp() - interval '1 min'
          for update skip locked));
  is_new := not exists (select from jobq.watcher w where w.id = watch.id);
  if is_new and (select count(*) from jobq.watcher) >= 1000 then
    raise sqlstate 'JQ001' using message = 'there are 1000 watchers, which is the most that there may be';
  end if;
  insert into jobq.watcher as w (id, expires_at)
    values (watch.id, clock_timestamp() + least(greatest(watch.lease, interval '0'), interval '1 min'))
    on conflict on constraint watcher_pkey do update set expires_at = excluded.expires_at;
  if is_new then
    perform jobq.notify('watch', '');
  end if;
end $$;

-- watch_end says that a watcher has gone.
create function jobq.watch_end(id text) returns void
  language sql security definer set search_path = pg_catalog, pg_temp set lock_timeout = '1s'
  as $$ delete from jobq.watcher w where w.id = watch_end.id $$;

-- What happened to jobs and janitors, for people.

-- What janitors and starting workers saw and did, for people: see docs/internals/guarantees.md.
create table jobq.event (
  id      bigint      not null generated always as identity primary key,
  at      timestamptz not null default clock_timestamp(),
  job_id  bigint,
  type    text        not null,
  source  text        not null, -- the id of the janitor or worker
  queue   text,
  message text        not null default '',
  constraint "type must be a known event"
    check (type in ('stalled', 'orphaned', 'quarantined', 'leadership_acquired', 'leadership_lost',
        'leadership_released', 'error')),
  constraint "message must be at most 1000 characters" check (char_length(message) <= 1000)
);
comment on table jobq.event is 'What janitors and starting workers saw and did, for people.';
-- For the janitor, which forgets old events.
create index event_at_idx on jobq.event (at);

-- error_pattern is what errors of the same cause have in common: the first line of an
-- error, with # for what differs from job to job, cut to 60 characters. Failures are
-- grouped by it, and a filter finds the jobs of a group with it (err:=).
--
-- Example: these two become 'user #: dial tcp #: connection refused'.
--
--   user 4711: dial tcp 10.0.0.7:5432: connection refused
--   user 815: dial tcp 10.0.0.9:5432: connection refused
--
-- A # stands for a text in quotes, a mail address, a uuid, an IPv6 address, and for a
-- word with a digit in it, together with such words that follow after . , : or -,
-- which is a number, a time, an id, or another address. An apostrophe within a word
-- (\u0027) opens no quote. What follows code, status, errno, signal, SQLSTATE, HTTP or SMTP
-- says which error it is, and stays: that alternative of the expression has a group,
-- and the # after it is taken away again. Of several alternatives that match at a
-- place, the longest counts.
--
-- Only the first 200 characters are looked at: about 50 microseconds for each error.
create function jobq.error_pattern(error text) returns text
  language sql immutable parallel safe
  return coalesce(left(regexp_replace(regexp_replace(left(split_part(error, chr(10), 1), 200),
    '((?:code|status|errno|signal|sqlstate|http|smtp)[ :=]{1,2}\w*[0-9]\w*)'
    '|"[^"]*"|`[^`]*`|(?<!\w)\u0027[^\u0027]*\u0027(?!\w)'
    '|[\w.+-]+@[\w.-]+'
    '|\m[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\M'
    '|\m[0-9a-f]{1,4}(?::[0-9a-f]{0,4}){2,7}'
    '|\m\w*[0-9]\w*(?:[.,:-]+\w*[0-9]\w*)*', '\1#', 'gi'),
    '((?:code|status|errno|signal|sqlstate|http|smtp)[ :=]{1,2}\w+)#', '\1', 'gi'), 60), '');
comment on function jobq.error_pattern is
  'What errors of the same cause have in common: # for numbers, ids and addresses.';

-- What programs write while they run.

-- Output of programs that run, in the pieces in which it was flushed: only
-- what is new is written. Unlogged: it is for who watches, the end of it is
-- kept with the attempt, and a crash of the server may empty it.
create unlogged table jobq.output (
  job_id      bigint      not null,
  lease_token bigint      not null,
  -- Of the content in all bytes that the run has written: where it begins, and
  -- where what comes next begins. Between two pieces there may be a gap.
  begins_at   bigint      not null,
  ends_at     bigint      not null,
  written_at  timestamptz not null default clock_timestamp(),
  content     text        not null,
  constraint output_pkey primary key (job_id, lease_token, begins_at),
  constraint "content must be at most 64 KiB" check (octet_length(content) <= 65536)
);
comment on table jobq.output is 'What running programs have written, while somebody watches.';
-- For the janitor, which drops what has been there for some minutes: what was
-- written since, and is still read, can be hundreds of thousands of pieces.
create index output_written_at_idx on jobq.output (written_at);

-- lost_output is what a lost run has written, as far as its worker has stored that: the end of it, as much as an
-- attempt holds, and not more than 2,000 pieces. A line says how many bytes are missing before it and where. Null:
-- nothing.
create function jobq.lost_output(of_job bigint, of_token bigint) returns text
  language sql stable
  begin atomic
    with pieces as (
      select o.begins_at, o.content, o.begins_at - coalesce(lag(o.ends_at) over (order by o.begins_at), 0) as missing
        from (
          select x.begins_at, x.ends_at, x.content
            from jobq.output x
            where x.job_id = of_job and x.lease_token = of_token
            order by x.begins_at desc
            limit 2000
        ) o
    ), whole as (
      select string_agg(
            case when p.missing > 0 then format(E'… %s bytes cut …\n', p.missing) else '' end || p.content,
            '' order by p.begins_at) as text
        from pieces p
    )
    -- In characters, each of which has 4 bytes at most.
    select case when octet_length(w.text) <= 65536 then w.text
        else E'…\n' || right(w.text, greatest(65532 - (octet_length(w.text) - char_length(w.text)), 16383)) end
      from whole w;
  end;

-- Who may call the functions, and where these look names up. It comes last.

-- Nobody but the owner and the roles that sql/roles.sql names may call a function. Names in the body of a function are
-- looked up when it runs, in the search_path of whoever calls it: an object that somebody else has put there first
-- would run with the caller's rights. So each function has a search_path of its own. A body of SQL that is no string
-- needs none: its names were looked up when it was made, and the planner can still put it in the place of the call.
-- Those that each insert calls go without, since a clause costs some microseconds a call: only functions that have one
-- call them.
do $$
declare
  f record;
begin
  for f in
    select p.oid::regprocedure as function,
        p.prosqlbody is null and not exists (select from unnest(p.proconfig) s where s like 'search_path=%')
          and p.proname not in ('pending_json_require', 'json_problem', 'json_problem_large') as looks_up
      from pg_proc p
      where p.pronamespace = (select c.relnamespace from pg_class c where c.oid = 'jobq.pending'::regclass)
  loop
    execute format('revoke execute on function %s from public', f.function);
    if f.looks_up then
      execute format('alter function %s set search_path = pg_catalog, pg_temp', f.function);
    end if;
  end loop;
end $$;
