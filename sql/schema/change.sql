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
