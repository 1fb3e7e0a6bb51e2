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
