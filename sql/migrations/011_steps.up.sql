-- Durable steps: what a job has done so far, so that its next run goes on from there;
-- sleeps that hold no slot; and events, for which jobs wait. See docs/steps.md, and
-- docs/decisions/0023 for the reasons. Calls name their run by the token of
-- jobq.complete, and are fenced as that is. A job without steps has no row here, and no
-- statement of a worker reads these tables for it.
set local lock_timeout = '5s';

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
    check (pg_column_size(result) <= case when type = 'await' then jobq.awaited_bytes_max() else jobq.step_bytes_max() end)
) with (fillfactor = 80);
-- Which jobs wait for an event.
create index step_event_idx on jobq.step (name, job_id) where type = 'event' and finished_at is null;

-- Events that were emitted: the first one of a name. They are kept as long as finished
-- jobs, and longer while a job waits that has not taken its event yet.
create table jobq.emitted (
  name       text        not null,
  emitted_at timestamptz not null,
  woken_to   bigint, -- not null: jobs after this one wait for it, and were not woken yet
  payload    jsonb       not null,
  -- If emit could not keep out those that began to wait at the same time: when event_wake_rest looks for them again, and
  -- the transaction before which all must have ended, so that it has found the last of them.
  again_at   timestamptz,
  again_before xid8,
  constraint emitted_pkey primary key (name),
  constraint "name must be 1 to 255 characters" check (char_length(name) between 1 and 255),
  constraint "payload must be at most 1 MiB" check (pg_column_size(payload) <= jobq.step_bytes_max())
);
-- For the janitor, which forgets old ones, and wakes those that emit could not wake.
create index emitted_at_idx on jobq.emitted (emitted_at, name);
create index emitted_woken_idx on jobq.emitted (name) where woken_to is not null;

-- step_value_require raises for a name or a value that is beyond its limit.
create function jobq.step_value_require(what text, name text, value_name text, value jsonb) returns void
  language plpgsql
  as $$
begin
  if name is null or char_length(name) not between 1 and 255 then
    raise sqlstate 'JQ001' using message = format('the name of %s must be 1 to 255 characters, not %s', what, coalesce(char_length(name)::text, 'null'));
  end if;
  if value is not null then
    perform jobq.json_require(format('%s of %s %L', value_name, what, left(name, 40)), value, jobq.step_bytes_max());
  end if;
end $$;

-- step_use notes that a run has come to a step, and returns it. It locks the row of the
-- run, so the steps of a job are written by one transaction at a time.
-- Needs run_id_idx, lease_pkey, step_pkey and step_number_key only.
create function jobq.step_use(of_job bigint, run_token text, step_name text, step_type text, wake_after interval default null) returns jobq.step
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
    next_number := coalesce((select s.number from jobq.step s where s.job_id = of_job order by s.number desc limit 1), 0) + 1;
    if next_number > jobq.steps_max() then
      raise sqlstate 'JQ001' using message = format('job %s has %s steps, which is the limit', of_job, jobq.steps_max()),
        hint = 'Add another job for the rest.';
    end if;
    insert into jobq.step (job_id, started_at, wake_at, lease_token, claimed_at, number, type, name)
      values (of_job, clock_timestamp(), clock_timestamp() + wake_after, held.lease_id, held.claimed_at, next_number, step_type, step_name)
      returning * into found_step;
    return found_step;
  end if;
  if found_step.type <> step_type then
    raise sqlstate 'JQ003' using message = format('job %s has used the name %L for %s, and now uses it for %s', of_job, step_name,
        jobq.step_noun(found_step.type), jobq.step_noun(step_type)),
      hint = 'Give each step of a job a name of its own.';
  end if;
  if found_step.finished_at is not null and (found_step.lease_token, found_step.claimed_at) = (held.lease_id, held.claimed_at) then
    raise sqlstate 'JQ003' using message = format('job %s has two steps with the name %L in one run', of_job, step_name),
      hint = 'Give each step of a job a name of its own; in a loop, put the number or the id of the item in it.';
  end if;
  -- An event that is waited for comes after what was done since: step_forget keeps its row.
  update jobq.step s
    set lease_token = held.lease_id, claimed_at = held.claimed_at,
      number = case when s.type = 'event' and s.finished_at is null
        then (select x.number + (x.name <> step_name)::integer from jobq.step x where x.job_id = of_job order by x.number desc limit 1)
        else s.number end,
      attempts = s.attempts + case when s.type = 'step' and s.finished_at is null then 1 else 0 end
    where s.job_id = of_job and s.name = step_name
    returning s.* into found_step;
  return found_step;
end $$;

-- step_noun is what people call a step of that type.
create function jobq.step_noun(type text) returns text
  language sql immutable parallel safe
  return case type when 'step' then 'a step' when 'sleep' then 'a sleep' when 'event' then 'an event' else 'jobs that it awaits' end;

-- step_finish stores that a step is done. Needs step_pkey only.
create function jobq.step_finish(of_job bigint, step_name text, step_result jsonb, late boolean default false) returns void
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

-- step_put stores that a step is done, and what it has returned, once.
create function jobq.step_put(job_id bigint, token text, name text, result jsonb default null) returns void
  language plpgsql security definer set search_path = pg_catalog, pg_temp set plan_cache_mode = force_custom_plan set enable_seqscan = off set jit = off
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
  if found_step.job_id is null or found_step.type <> 'step' or (found_step.lease_token, found_step.claimed_at) <> (held.lease_id, held.claimed_at) then
    perform jobq.step_use(job_id, token, name, 'step'); -- it was not asked for in this run
  end if;
  perform jobq.step_finish(job_id, name, result);
end $$;

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
  language plpgsql security definer set search_path = pg_catalog, pg_temp set plan_cache_mode = force_custom_plan set enable_seqscan = off set jit = off
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
    raise sqlstate 'JQ001' using message = format('to wait for an event or to emit one, the transaction must be READ COMMITTED, not %s',
        upper(current_setting('transaction_isolation'))),
      hint = 'Do it in a transaction of its own.';
  end if;
  return hashtextextended('jobq.event ' || name, 0);
end $$;

-- event_lock takes the lock, shared or alone, and says whether it was to be had. Any login can take such a lock, and
-- keep it. So nobody waits for it for long, and both sides are right without it: who waits for the event looks again
-- soon (step_wait), and the janitor looks for those who began to wait at the same time (event_wake_rest). It waits for
-- half a second, or for the caller's lock_timeout if that is shorter.
create function jobq.event_lock(name text, alone boolean, own_limit text default current_setting('lock_timeout')) returns boolean
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

-- step_wait says whether an event has come, and what it has brought, or that it has not
-- come in time (timed_out). If neither, it ends the run, and the job runs again when
-- the event comes, or when the timeout has passed since the first call; null means no
-- timeout. What was answered once is answered again in later runs.
create function jobq.step_wait(job_id bigint, token text, name text, timeout interval default null,
    out done boolean, out timed_out boolean, out result jsonb)
  language plpgsql security definer set search_path = pg_catalog, pg_temp set plan_cache_mode = force_custom_plan set enable_seqscan = off set jit = off
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
      remaining := least(remaining, greatest((clock_timestamp() - used.started_at) / 2, interval '1 s'), interval '30 s');
    end if;
    perform jobq.run_suspend(job_id, token, remaining);
  end if;
  done := used.finished_at is not null;
  timed_out := used.timed_out;
  result := case when not timed_out then used.result end;
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
          select x.id from jobq.pending x where x.id = w.job_id and x.lease_token = w.lease_token and x.position is null and x.waits is null for update
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
        where s.job_id = of_job and s.type = 'event' and s.finished_at is null and s.lease_token = p.lease_token limit 1)
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

-- event_store stores an event, and says whether it is the first of its name. It waits for another transaction that emits
-- the same event, but for wait_ms at most.
create function jobq.event_store(event_name text, payload jsonb, locked boolean, wait_ms bigint) returns boolean
  language plpgsql set lock_timeout = '10s'
  as $$
begin
  perform set_config('lock_timeout', wait_ms::text, true);
  insert into jobq.emitted (name, emitted_at, payload, woken_to, again_at, again_before)
    values (event_name, clock_timestamp(), coalesce(event_store.payload, 'null'),
      case when not locked then 0 end, case when not locked then clock_timestamp() end, case when not locked then '9223372036854775807'::xid8 end)
    on conflict on constraint emitted_pkey do nothing;
  return found;
exception when lock_not_available then
  raise lock_not_available using message = format('event %L: another transaction emits it, and has not ended for %s ms', event_name, wait_ms),
    detail = coalesce(jobq.advisory_holder(jobq.event_place(event_name)), 'Its process is not known.'), hint = 'Try again when that transaction has ended.';
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
    raise warning 'event %: another session has its lock, so a job that begins to wait now is woken late', quote_literal(name)
      using detail = coalesce(jobq.advisory_holder(place), 'Its process is not known.');
  end if;
  last_woken := jobq.event_wake(name, 0, 1000);
  if last_woken is not null then
    update jobq.emitted e set woken_to = last_woken where e.name = emit.name;
  end if;
  return true;
end $$;

-- event_wake_rest wakes further jobs of an event for which more waited than emit could wake, and says whether there was
-- such an event.
--
-- If emit had no lock (again_at), a job may have begun to wait for the event at the same time, and be committed later. So
-- this looks from the first job on, every ten seconds, until all transactions have ended that may not have seen the event:
--
--   emit stores the event without the lock, and commits; transaction 50 waits for it, and has not committed
--   a first look finds no job, and notes that transaction 52 is the next: again_before
--   50 commits
--   a look that begins when none before 52 is open finds the job of 50, and is the last one
--
-- Needs emitted_woken_idx.
create function jobq.event_wake_rest(jobs_max integer) returns boolean
  language plpgsql security definer set search_path = pg_catalog, pg_temp set plan_cache_mode = force_custom_plan set enable_seqscan = off set jit = off
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
    set woken_to = event.woken_to, again_at = event.again_at, again_before = case when event.again_at is not null then event.again_before end
    where e.name = event.name;
  return true;
end $$;

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
    raise sqlstate 'JQ003' using message = format('job %s is running', job_id), hint = 'Cancel it first, or let it end.';
  end if;
  select s.number into first_number from jobq.step s where s.job_id = step_forget.job_id and s.name = step_forget.name;
  if not found then
    raise sqlstate 'JQ002' using message = format('job %s has no step %L', job_id, name), hint = 'jobq show lists its steps.';
  end if;
  select count(*) into forgotten from jobq.step s where s.job_id = step_forget.job_id and s.number >= first_number;
  delete from jobq.step s
    where s.job_id = step_forget.job_id and s.number >= first_number and not (s.type = 'event' and s.finished_at is null);
  return forgotten;
end $$;

-- why_suspended is the reason that jobq.why has for a job whose last run, which had that
-- token, has ended in a sleep or in the wait for an event; no row for another job. Its
-- next run is at runs_at. A wait of ten years is one without a timeout.
-- Needs step_number_key only.
create function jobq.why_suspended(job_id bigint, token bigint, runs_at timestamptz) returns table (reason text, facts jsonb)
  language sql stable
  set enable_sort = off set enable_seqscan = off set enable_bitmapscan = off set jit = off
  as $$
    select case s.type when 'sleep' then 'sleeping' else 'waits_for_event' end,
        jsonb_build_object('step', s.name, 'since', s.started_at, 'until', runs_at, 'janitor', jobq.why_janitor(),
          'step_until', case when s.type = 'sleep' or s.wake_at - s.started_at < interval '3650 days' then s.wake_at end)
      from jobq.step s
      where s.job_id = why_suspended.job_id and s.lease_token = token and s.finished_at is null and s.type in ('sleep', 'event')
      order by s.number desc
      limit 1
  $$;

-- step_prune deletes the steps of jobs that are gone. It looks at row_count steps at
-- most, after the given one in the order of job and name, and returns at how many it has
-- looked, and at which one last. The steps of a deleted job stay while an undo could
-- bring the job back. It does not look up jobs with a step that began within the shortest
-- retention. Needs step_pkey, pending_pkey, run_id_idx and audit_job_job_id_idx only; as the
-- owner, since the janitor of a worker has no rights on the audit.
create function jobq.step_prune(after_job bigint, after_name text, row_count integer, out looked bigint, out last_job bigint, out last_name text)
  language plpgsql security definer set search_path = pg_catalog, pg_temp set plan_cache_mode = force_custom_plan set enable_seqscan = off set jit = off
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
      from (select p.job_id from page p group by p.job_id having max(p.started_at) < (select statement_timestamp() - t.shortest from jobq.retention_span() t)) j
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

-- emitted_prune deletes events that are older than finished_retention, unless a job still
-- waits that has not taken its event. It looks at row_count events at most,
-- after the given one in the order of time and name, and returns at how many it has
-- looked, and at which one last. Needs emitted_at_idx and step_event_idx only.
create function jobq.emitted_prune(after_at timestamptz, after_name text, row_count integer, out looked bigint, out last_at timestamptz, out last_name text)
  language plpgsql security definer set search_path = pg_catalog, pg_temp set plan_cache_mode = force_custom_plan set enable_seqscan = off set jit = off
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
            and (select true from jobq.step s where s.name = p.name and s.type = 'event' and s.finished_at is null limit 1) is null))
  )
  select count(*), max(p.emitted_at), (select x.name from page x order by x.emitted_at desc, x.name desc limit 1)
    into looked, last_at, last_name from page p;
  last_at := coalesce(last_at, after_at);
  last_name := coalesce(last_name, after_name);
end $$;

-- sql/roles.sql says who may call them.
revoke execute on function
  jobq.step_bytes_max, jobq.awaited_bytes_max, jobq.steps_max, jobq.step_value_require, jobq.step_use, jobq.step_noun, jobq.step_finish, jobq.step_get, jobq.step_put, jobq.run_suspend,
  jobq.step_sleep, jobq.event_place, jobq.event_lock, jobq.step_wait, jobq.event_wake, jobq.event_look_again, jobq.advisory_holder, jobq.event_store, jobq.emit, jobq.event_wake_rest, jobq.step_forget, jobq.why_suspended, jobq.step_prune, jobq.emitted_prune
  from public;
