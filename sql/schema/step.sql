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
