-- Who did what to which jobs and queues, and what is needed to undo it.
set local lock_timeout = '5s';

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
  target       text,        -- the filter, the queue, the kind, the worker or the schedule
  note         text,
  change       jsonb,       -- what an edit, a clone, or a change of settings or of a schedule sets, by the names of columns; of a key: which, and its weight
  replaced     jsonb,       -- of a change of settings or of a schedule: what was set before, likewise; of a key: its weight; of what goes on: why it was paused
  constraint "actor must be 1 to 255 characters" check (char_length(actor) between 1 and 255),
  constraint "action must be known" check (action in ('requeue', 'cancel', 'delete', 'edit', 'clone', 'pause', 'resume', 'drain', 'settings', 'export', 'undo',
    'kind_pause', 'kind_resume', 'key_pause', 'key_resume', 'key_weight', 'schedule_set', 'schedule_pause', 'schedule_resume', 'schedule_remove', 'schedule_run')),
  constraint "target must be at most 8192 characters" check (char_length(target) <= 8192),
  constraint "note must be at most 1024 characters" check (char_length(note) <= 1024),
  constraint "done_max must be positive" check (done_max > 0),
  constraint "held_by must be at most 64 characters" check (char_length(held_by) <= 64)
);
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
create index audit_job_job_id_idx on jobq.audit_job (job_id, audit_id);

-- job_lock locks a job's row and returns it, with its table and state; null if there is no such job. With whole, it returns
-- everything that belongs to the job: of its attempts the latest 100, and key_until if its unique key is kept for a time. Without,
-- it leaves out what only a delete would lose. A running job may still end with its lease, which is not locked.
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
    select to_jsonb(p) || jsonb_build_object('state', case when p.waits then 'waiting' when p.position is null then 'scheduled' else 'available' end)
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
      where u.kind = found_row ->> 'kind' and u.key = found_row ->> 'unique_key' and u.job_id = job_lock.job_id and u.kept_until is not null), '{}');
end $$;

-- audit_begin records that an action begins.
create function jobq.audit_begin(actor text, action text, target text, note text, change jsonb default null) returns bigint
  language plpgsql
  as $$
declare
  begun bigint;
  problem text := case
    when actor is null or char_length(actor) not between 1 and 255 then
      format('actor must be 1 to 255 characters, not %s', coalesce(char_length(actor)::text, 'null'))
    when char_length(target) > 8192 then format('target must be at most 8192 characters, not %s', char_length(target))
    when char_length(note) > 1024 then format('note must be at most 1024 characters, not %s', char_length(note))
  end;
begin
  if problem is not null then
    raise sqlstate 'JQ001' using message = problem;
  end if;
  insert into jobq.audit (actor, action, target, note, change)
    values (audit_begin.actor, audit_begin.action, audit_begin.target, audit_begin.note, audit_begin.change)
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
    select a.id from jobq.audit a where a.at < statement_timestamp() - interval '90 days' order by a.at limit audit_prune.row_count
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
  begun bigint := jobq.audit_begin(audit_begin_many.actor, audit_begin_many.action, audit_begin_many.target, null, audit_begin_many.change);
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
  update jobq.audit a set note = format('resumed by %s', audit_resume.actor) where a.id = audit_resume.audit_id;
end $$;

-- job_edit changes a waiting job: the columns that are named in change. The columns named in
-- seen must still have the values given there. It returns the values of the columns
-- before and after, or null if they have the new values already.
--
-- An available job keeps its place in the line, unless its queue or
-- priority changes: workers may have looked beyond its old place in the new line, so it goes to
-- the end, like every job that becomes available. It keeps its unique key, which
-- belongs to its kind, and an edit does not change the kind. Args move between the row
-- and the payload table as they grow and shrink.
create function jobq.job_edit(job_id bigint, change jsonb, seen jsonb) returns jsonb
  language plpgsql
  as $$
declare
  old jobq.pending;
  was jsonb;
  wanted jsonb;
  due timestamptz;
  place bigint;
  labels text[];
  other text;
  apart boolean;
begin
  select p.* into old from jobq.pending p where p.id = job_edit.job_id for update;
  if not found then
    raise sqlstate 'JQ003' using
      message = coalesce((select format('job %s is %s', job_edit.job_id, j.state) from jobq.job j where j.id = job_edit.job_id),
        format('job %s is gone', job_edit.job_id)),
      hint = 'Only a job that waits can be edited.';
  end if;
  was := jsonb_build_object('queue', old.queue, 'priority', old.priority, 'run_at', old.run_at, 'max_attempts', old.max_attempts,
    'tags', nullif(old.tags, '{}'), 'metadata', old.metadata,
    'args', coalesce(old.args, (select a.args from jobq.payload a where a.job_id = old.id)));
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
  if (wanted -> 'max_attempts')::integer <= old.attempts then
    raise sqlstate 'JQ003' using
      message = format('it has used %s attempts: max_attempts must be more', old.attempts);
  end if;
  due := (wanted ->> 'run_at')::timestamptz;
  place := case
    when due > clock_timestamp() or old.waits or old.crashes >= least(2, (wanted -> 'max_attempts')::integer - old.attempts) then null
    when old.position is null or (wanted ->> 'queue', (wanted -> 'priority')::integer) <> (old.queue, old.priority)
      then nextval('jobq.position_seq')
    else old.position end;
  if jsonb_typeof(wanted -> 'tags') = 'array' then
    labels := nullif(array(select jsonb_array_elements_text(wanted -> 'tags')), '{}');
  end if;
  apart := old.args_apart;
  if wanted -> 'args' <> was -> 'args' then
    apart := pg_column_size(wanted -> 'args') > 1000; -- as pending_before_insert has it
    if apart then
      insert into jobq.payload as a (job_id, args) values (old.id, wanted -> 'args')
        on conflict on constraint payload_pkey do update set args = excluded.args;
    else
      delete from jobq.payload a where a.job_id = old.id;
    end if;
  end if;
  update jobq.pending p
    set queue = wanted ->> 'queue', priority = (wanted -> 'priority')::smallint, run_at = due, position = place,
      max_attempts = (wanted -> 'max_attempts')::smallint, tags = labels, metadata = nullif(wanted -> 'metadata', 'null'),
      args = case when not apart then wanted -> 'args' end, args_apart = apart
    where p.id = old.id;
  if old.waits then
    null; -- nobody looks for it yet
  elsif place is null then
    perform jobq.notify('due', extract(epoch from due)::text);
  elsif place is distinct from old.position then
    perform jobq.wake('work', wanted ->> 'queue');
  else -- while the row was locked, whoever looked passed it by
    perform jobq.wake('head', old.queue);
  end if;
  return jsonb_build_object(
    'before', (select jsonb_object_agg(w.key, w.value) from jsonb_each(was) w where change ? w.key),
    'after', (select jsonb_object_agg(w.key, w.value) from jsonb_each(wanted) w where change ? w.key));
end $$;

-- plain_args_refuse raises an error for an edit that replaces encrypted args by plain ones: somebody without the keys would do that
-- without noticing. An undo may do it.
create function jobq.plain_args_refuse(before jsonb, after jsonb) returns void
  language plpgsql
  as $$
begin
  if before ->> '$jobq' = 'enc' and after ->> '$jobq' is distinct from 'enc' then
    raise sqlstate 'JQ003' using message = format('its args are encrypted with key "%s", and the new ones are plain text', before ->> 'key'),
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
      jobq.json_problem('change: args', change -> 'args', jobq.args_bytes_max()),
      jobq.json_problem('change: metadata', change -> 'metadata', 65536))
    when problem like 'must be %' then format('change must be a JSON object such as {"priority": 1}, not %s', coalesce(jsonb_typeof(change), 'null'))
    else 'change: ' || problem
  end;
end $$;

-- act_problem says which argument of act is beyond its limit; null if none is.
create function jobq.act_problem(action text, ids bigint[], audit_id bigint, change jsonb) returns text
  language sql stable
  return case
    when action is null or action not in ('requeue', 'cancel', 'delete', 'edit') then
      format('action must be requeue, cancel, delete or edit, not %s', coalesce(left(action, 100), 'null'))
    when ids is null or cardinality(ids) not between 1 and 1000 then
      format('ids must be 1 to 1000 jobs, not %s', coalesce(cardinality(ids)::text, 'null'))
    when array_ndims(ids) > 1 or array_position(ids, null) is not null then 'ids must be 1 to 1000 jobs, without nulls'
    when change is not null or (action = 'edit' and coalesce(audit_id, 0) = 0) then -- else the audit has it
      jobq.change_problem(change, '{args, queue, priority, run_at, max_attempts, tags, metadata}')
  end;

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
declare
  job record;
  begun jobq.audit;
  before jsonb;
  edited jsonb;
  changes integer := 0;
  refusals integer := 0;
  held text[] := '{}'; -- queues with available jobs that stay and were locked
  taken record; -- unique keys
  holders bigint[]; -- and who has each
  place integer;
begin
  problem := jobq.act_problem(act.action, act.ids, act.audit_id, act.change);
  if problem is not null then
    raise sqlstate 'JQ001' using message = problem;
  end if;
  audit := coalesce(nullif(act.audit_id, 0), jobq.audit_begin(act.actor, act.action, act.target, null, act.change));
  -- The lock makes an undo wait for the batch, and the next batch see the undo.
  select a.* into begun from jobq.audit a where a.id = act.audit for update;
  if not found then
    raise sqlstate 'JQ002' using message = format('no action %s', act.audit);
  end if;
  if begun.undone_by is not null then
    raise sqlstate 'JQ003' using message = format('action %s is undone', begun.id);
  end if;
  if act.action = 'requeue' then
    select array_agg(r.kind) as kinds, array_agg(r.unique_key) as keys, array_agg(r.id) as ids into taken
      from jobq.run r where r.id = any(act.ids) and r.unique_key is not null and r.state is not null;
    holders := jobq.unique_keys_take(taken.kinds, taken.keys, taken.ids);
  end if;
  for job in select x.id, x.expected, x.seen from unnest(act.ids, act.expected, act.seen) as x(id, expected, seen) order by x.id loop
    job_id := job.id;
    state_before := null;
    state_after := null;
    changed := false;
    code := null;
    problem := null;
    before := jobq.job_lock(job.id, act.action = 'delete');
    state_before := before -> 'row' ->> 'state';
    if before is null then
      code := 'JQ002';
      problem := 'no such job';
    elsif job.expected <> format('%s/%s', state_before, before -> 'row' ->> 'lease_token') then
      code := 'JQ003';
      problem := format('it has changed meanwhile, and is %s now', state_before);
    else
      begin
        if state_before = 'running' and act.action in ('requeue', 'delete') then
          -- Even if it has ended with its lease just now: what would be put back is another row than the one seen.
          raise sqlstate 'JQ003' using message = format('job %s is running', job.id);
        end if;
        case act.action
          when 'requeue' then
            if before ->> 'stage' = 'finished' and before -> 'row' ->> 'unique_key' is not null then
              -- A key that was not to be had before the first job was locked is not waited for now.
              place := array_position(taken.ids, job.id);
              if place is null then
                raise sqlstate 'JQ003' using message = format('it has changed meanwhile, and is %s now', state_before);
              elsif holders[place] <> job.id then
                perform jobq.unique_key_refuse(taken.kinds[place], taken.keys[place], holders[place]);
              end if;
            end if;
            state_after := jobq.requeue(job.id);
          when 'cancel' then
            state_after := jobq.cancel(job.id);
            if state_after = 'completed' then -- meanwhile, if not before
              state_before := state_after;
            end if;
          when 'delete' then
            perform jobq.delete_job(job.id);
            state_after := 'deleted';
          when 'edit' then
            edited := jobq.job_edit(job.id, begun.change, job.seen);
            perform jobq.plain_args_refuse(edited -> 'before' -> 'args', edited -> 'after' -> 'args');
            before := before || jsonb_build_object('edit', edited);
            select j.state into state_after from jobq.job j where j.id = job.id;
        end case;
        changed := state_after <> state_before or state_before = 'running' or (act.action = 'edit' and edited is not null);
      exception
        when sqlstate 'JQ003' then
          code := 'JQ003';
          problem := sqlerrm;
        when sqlstate 'JQ004' then
          code := 'JQ004';
          problem := sqlerrm;
      end;
    end if;
    if state_before = 'available' and not changed and not before -> 'row' ->> 'queue' = any(held) then
      held := held || (before -> 'row' ->> 'queue');
    end if;
    if problem is not null then
      refusals := refusals + 1;
    elsif changed then
      changes := changes + 1;
      insert into jobq.audit_job (audit_id, job_id, lease_token, version, state_before, state_after, before)
        values (audit, job.id, (before -> 'row' ->> 'lease_token')::bigint,
          coalesce((select p.run_at from jobq.pending p where p.id = job.id),
            (select r.finished_at from jobq.run r where r.id = job.id)),
          act.state_before, act.state_after, before)
        on conflict do nothing;
    end if;
    return next;
  end loop;
  update jobq.audit a
    set done = a.done + changes, refused = a.refused + refusals,
      id_done = case when a.id_max is not null then (select min(x) from unnest(act.ids) x) end
    where a.id = act.audit;
  if act.action = 'requeue' then
    perform jobq.unique_keys_release(taken.kinds, taken.keys, taken.ids);
  end if;
  perform jobq.wake('head', h.queue) from unnest(held) as h(queue); -- whoever looked meanwhile passed those by
end $$;

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
  problem text := case when job_id is null then 'job_id must not be null' else jobq.change_problem(change, '{kind, args, queue, priority,
    run_at, max_attempts, timeout, backoff_base, backoff_max, tags, metadata, partition_key}') end;
begin
  if problem is not null then
    raise sqlstate 'JQ001' using message = problem;
  end if;
  select to_jsonb(j) || jsonb_build_object('run_at', now()) || act_clone.change, j.args is null into wanted, args_gone
    from jobq.job j where j.id = act_clone.job_id;
  if not found then
    return;
  end if;
  if args_gone and not act_clone.change ? 'args' then
    raise sqlstate 'JQ003' using
      message = format('job %s: its args have been removed by retention (they were over 1000 bytes): clone it with args', act_clone.job_id);
  end if;
  if act_clone.change ? 'args' then
    perform jobq.plain_args_refuse((select j.args from jobq.job j where j.id = act_clone.job_id), wanted -> 'args');
  end if;
  insert into jobq.pending as p
      (kind, queue, priority, run_at, max_attempts, timeout, backoff_base, backoff_max, tags, metadata, args, partition_key)
    select wanted ->> 'kind', wanted ->> 'queue', (wanted -> 'priority')::smallint, (wanted ->> 'run_at')::timestamptz,
        (wanted -> 'max_attempts')::smallint, (wanted ->> 'timeout')::interval, (wanted ->> 'backoff_base')::interval,
        (wanted ->> 'backoff_max')::interval,
        case when jsonb_typeof(wanted -> 'tags') = 'array' then nullif(array(select jsonb_array_elements_text(wanted -> 'tags')), '{}') end,
        nullif(wanted -> 'metadata', 'null'), wanted -> 'args', coalesce(wanted ->> 'partition_key', '')
    returning p.id, case when p.position is null then 'scheduled' else 'available' end into clone_id, clone_state;
  audit := jobq.audit_begin(act_clone.actor, 'clone', null, format('of job %s', act_clone.job_id), nullif(act_clone.change, '{}'));
  insert into jobq.audit_job (audit_id, job_id, lease_token, state_before, state_after, before)
    values (audit, clone_id, 0, 'none', clone_state, '{}');
  update jobq.audit a set done = 1 where a.id = audit;
  return next;
end $$;

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

-- Finding the sums of one queue, for queue_known.
create index stat_queue_idx on jobq.stat (queue, minute);

-- queue_known says whether a queue of that name is known: by settings, a waiting or running
-- job, a worker that serves it, or a job that ended within the
-- 30 days for which stat is kept. It looks first where it is quickest, and
-- stops at the first sign. Each look is a statement of its own, so
-- a locked table does not matter to a queue that was found before.
--
-- Where no index has the queue, it reads 10,000 rows at most: of the
-- scheduled jobs those that are due next, of the jobs that wait for others the oldest, and sums that are not rolled up yet. Of
-- jobs that failed or were cancelled, it reads the latest 1,000. The orders are for
-- the planner. Without them it would read the whole table where it expects to
-- find the queue soon, and sort all settings where it expects few.
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
      select from (select p.queue from jobq.pending p where p.position is null and p.waits is null order by p.run_at limit 10000) due
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
  return exists (select from (select d.queue from jobq.stat_delta d limit 10000) fresh where fresh.queue = queue_known.queue)
    or exists (
      select from (select r.queue from jobq.run r where r.state <> 'completed' order by r.finished_at desc limit 1000) ended
        where ended.queue = queue_known.queue);
end $$;

-- act_queue pauses or resumes a queue. It returns the id of the audit row, null if
-- the queue was paused, or not paused, already; and whether the queue was known
-- before. A queue that nobody knows yet can be paused: its first job then waits.
create function jobq.act_queue(actor text, action text, queue text, note text)
  returns table (audit bigint, known boolean)
  language plpgsql
  as $$
declare
  was text; -- the reason for a pause that ends
  problem text := case
    when action is null or action not in ('pause', 'resume') then
      format('action must be pause or resume, not %s', coalesce(left(action, 100), 'null'))
    when queue is null or char_length(queue) not between 1 and 128 then
      format('queue must be 1 to 128 characters, not %s', coalesce(char_length(queue)::text, 'null'))
    when char_length(note) > 1024 then format('note must be at most 1024 characters, not %s', char_length(note))
  end;
begin
  if problem is not null then
    raise sqlstate 'JQ001' using message = problem;
  end if;
  known := jobq.queue_known(act_queue.queue);
  if act_queue.action = 'pause' then
    insert into jobq.queue as q (name, paused_at, paused_by, pause_reason)
      values (act_queue.queue, clock_timestamp(), act_queue.actor, act_queue.note)
      on conflict (name) do update
        set paused_at = excluded.paused_at, paused_by = excluded.paused_by, pause_reason = excluded.pause_reason
        where q.paused_at is null;
  else
    select q.pause_reason into was from jobq.queue q where q.name = act_queue.queue and q.paused_at is not null for update;
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
    audit := jobq.audit_begin(act_queue.actor, act_queue.action, act_queue.queue, act_queue.note);
    update jobq.audit a set replaced = jsonb_build_object('pause_reason', was) where a.id = audit and was is not null;
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
  audit bigint;
  problem text := case
    when action is null or action not in ('kind_pause', 'kind_resume') then
      format('action must be kind_pause or kind_resume, not %s', coalesce(left(action, 100), 'null'))
    when kind is null or char_length(kind) not between 1 and 128 then
      format('kind must be 1 to 128 characters, not %s', coalesce(char_length(kind)::text, 'null'))
    when char_length(note) > 1024 then format('note must be at most 1024 characters, not %s', char_length(note))
  end;
begin
  if problem is not null then
    raise sqlstate 'JQ001' using message = problem;
  end if;
  if act_kind.action = 'kind_pause' then
    insert into jobq.kind as k (name, paused_at, paused_by, pause_reason)
      values (act_kind.kind, clock_timestamp(), act_kind.actor, act_kind.note)
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
      from (select distinct jsonb_object_keys(case when jsonb_typeof(w.queues) = 'object' then w.queues end) as name from jobq.worker w where act_kind.kind = any(w.kinds) limit 1000) q;
  end if;
  audit := jobq.audit_begin(act_kind.actor, act_kind.action, act_kind.kind, act_kind.note);
  update jobq.audit a set replaced = jsonb_build_object('pause_reason', was) where a.id = audit and was is not null;
  return audit;
end $$;

-- act_key pauses or resumes a partition key of a queue. It returns the id of the audit row, or null if the key was paused, or not
-- paused, already; and whether a job of the key is available now. Running jobs are not affected. A key that nobody knows yet can
-- be paused: its first job then waits. It adds a hint for claims (lane_pause and lane_hints_take), so it does not wait for claims,
-- and they do not wait for it.
create function jobq.act_key(actor text, action text, queue text, key text, note text)
  returns table (audit bigint, has_jobs boolean)
  language plpgsql
  as $$
declare
  was text; -- the reason for a pause that ends
  problem text := case
    when actor is null or char_length(actor) not between 1 and 255 then
      format('actor must be 1 to 255 characters, not %s', coalesce(char_length(actor)::text, 'null'))
    when action is null or action not in ('key_pause', 'key_resume') then
      format('action must be key_pause or key_resume, not %s', coalesce(left(action, 100), 'null'))
    when queue is null or char_length(queue) not between 1 and 128 then
      format('queue must be 1 to 128 characters, not %s', coalesce(char_length(queue)::text, 'null'))
    when key is null or char_length(key) not between 1 and 255 then
      format('partition_key must be 1 to 255 characters, not %s', coalesce(char_length(key)::text, 'null'))
    when char_length(note) > 1024 then format('note must be at most 1024 characters, not %s', char_length(note))
  end;
begin
  if problem is not null then
    raise sqlstate 'JQ001' using message = problem;
  end if;
  if act_key.action = 'key_pause' then
    insert into jobq.paused_key (queue, key, paused_at, paused_by, pause_reason)
      values (act_key.queue, act_key.key, clock_timestamp(), act_key.actor, act_key.note)
      on conflict on constraint paused_key_pkey do nothing;
  else
    delete from jobq.paused_key k where k.queue = act_key.queue and k.key = act_key.key returning k.pause_reason into was;
  end if;
  if found then
    if act_key.action = 'key_pause' then
      insert into jobq.lane_hint (id, queue, key) overriding system value
        values (-nextval('jobq.lane_hint_id_seq'), act_key.queue, act_key.key);
    else
      perform jobq.lane_come(act_key.queue, array[act_key.key]);
      perform jobq.wake('work', act_key.queue);
    end if;
    audit := jobq.audit_begin(act_key.actor, act_key.action, act_key.queue, act_key.note, jsonb_build_object('partition_key', act_key.key));
    update jobq.audit a set replaced = jsonb_build_object('pause_reason', was) where a.id = audit and was is not null;
  end if;
  perform from jobq.pending p where p.queue = act_key.queue and p.partition_key = act_key.key and p.position is not null
    order by p.priority, p.position limit 1;
  has_jobs := found;
  return next;
end $$;

-- act_key_weight sets the weight of a partition key of a queue, from the next claim on; 1 is the weight of a key for which none
-- was set. It returns the id of the audit row, or null if the key has this weight already; and whether a job of the key is
-- available now. A key that nobody knows yet can have a weight.
create function jobq.act_key_weight(actor text, queue text, key text, weight integer, note text)
  returns table (audit bigint, has_jobs boolean)
  language plpgsql
  as $$
declare
  was integer;
  problem text := case
    when actor is null or char_length(actor) not between 1 and 255 then
      format('actor must be 1 to 255 characters, not %s', coalesce(char_length(actor)::text, 'null'))
    when queue is null or char_length(queue) not between 1 and 128 then
      format('queue must be 1 to 128 characters, not %s', coalesce(char_length(queue)::text, 'null'))
    when key is null or char_length(key) not between 1 and 255 then
      format('partition_key must be 1 to 255 characters, not %s', coalesce(char_length(key)::text, 'null'))
    when weight is null or weight not between 1 and 100 then
      format('weight must be 1 to 100, not %s', coalesce(weight::text, 'null'))
    when char_length(note) > 1024 then format('note must be at most 1024 characters, not %s', char_length(note))
  end;
begin
  if problem is not null then
    raise sqlstate 'JQ001' using message = problem;
  end if;
  loop -- until it is known what the weight was: somebody may take it away meanwhile
    select w.weight into was from jobq.key_weight w where w.queue = act_key_weight.queue and w.key = act_key_weight.key for update;
    exit when found or act_key_weight.weight = 1;
    insert into jobq.key_weight (queue, key, weight) values (act_key_weight.queue, act_key_weight.key, act_key_weight.weight)
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
      jsonb_build_object('partition_key', act_key_weight.key, 'weight', act_key_weight.weight));
    update jobq.audit a set replaced = jsonb_build_object('weight', coalesce(was, 1)) where a.id = audit;
  end if;
  perform from jobq.pending p where p.queue = act_key_weight.queue and p.partition_key = act_key_weight.key and p.position is not null
    order by p.priority, p.position limit 1;
  has_jobs := found;
  return next;
end $$;

-- kinds_crashed counts crashes: runs of these kinds were lost because their workers stopped responding. The run of kinds[i] was
-- claimed at claimed[i]. If a kind has crashed workers quarantine_crashes times in a row, it is paused, and returned.
--
-- A crash is the next one of the row if its run was claimed after the crash before was found. A row ends when any run of the kind
-- ends in another way. With quarantine_crashes = 3, and a lease of one minute:
--
--   12:00  workers A and B are killed while both run Encode and Send
--   12:01  both are found: one crash of each kind
--   12:02  C claims Encode and Send; Send completes, Encode kills C
--   12:03  found: the second crash of Encode
--   12:04  D claims Encode and Send, and dies at once: the second of Send is the first again
--   12:05  found: the third of Encode, which is paused
--
-- So machines that fail together, or a deployment that kills its workers, count as one crash of each kind.
--
-- Ends are known by the minute: an end in the minute of a crash counts as later, so a kind that runs often is paused up to a
-- minute later. A run may have been claimed but not begun when its worker died, so a kind can get crashes that another kind
-- caused. Therefore a call pauses one kind at most, the one with the most crashes. The others start again at 0 as soon as one of
-- their runs ends. A crash more than a day ago does not count.
--
-- It runs with its owner's rights, because a worker has no other right to pause. It waits for a lock for a second at most, since
-- recovery goes on after it. Needs stat_pkey: the planner would read all of stat, from its oldest row on, and that of PostgreSQL
-- 18 by another index. So there is an order, and no sort.
create function jobq.kinds_crashed(kinds text[], claimed timestamptz[], source text) returns table (kind text, crashes integer)
  language plpgsql security definer set search_path = pg_catalog, pg_temp set lock_timeout = '1s' set enable_seqscan = off set enable_sort = off set jit = off
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
    select l.kind, max(l.claimed_at) as claimed_at from unnest(kinds, claimed) as l(kind, claimed_at) group by l.kind order by l.kind
  loop
    insert into jobq.kind (name) values (lost.kind) on conflict (name) do nothing;
    select k.* into known from jobq.kind k where k.name = lost.kind for update;
    if not found or known.paused_at is not null then -- a run that sleeps now may have deleted it: see run_suspend
      continue;
    end if;
    if known.crashed_at is null
        or (select true from jobq.stat s
          where s.minute >= date_trunc('minute', known.crashed_at) and s.kind = lost.kind and s.completed + s.failed + s.retried > s.lost
          order by s.minute limit 1)
        or exists (select from jobq.stat_delta s
          where s.minute >= date_trunc('minute', known.crashed_at) and s.kind = lost.kind and s.completed + s.failed + s.retried > s.lost) then
      known.crashes := 1;
    elsif lost.claimed_at > known.crashed_at then
      known.crashes := least(known.crashes + 1, 1000);
    else
      continue;
    end if;
    update jobq.kind k set crashes = known.crashes, crashed_at = moment where k.name = lost.kind;
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
    values ('quarantined', kinds_crashed.source, format('kind %s is paused: workers that ran it crashed %s times in a row', worst.name, worst.crashes));
  kind := worst.name;
  crashes := worst.crashes;
  return next;
end $$;

-- act_settings changes the settings of the schema that are not null. A failed_retention of 0 means the default, which is
-- that of finished_retention. It returns the id of the audit row, or null if nothing changes.
create function jobq.act_settings(
    actor text, finished_retention interval default null, quarantine_crashes integer default null, note text default null,
    keep_until_exported boolean default null, exported_before date default null, failed_retention interval default null)
  returns bigint
  language plpgsql
  as $$
declare
  old jobq.setting;
  was jsonb := '{}'; -- what differs, before
  new jsonb := '{}'; -- and after
  begun bigint;
begin
  select s.* into strict old from jobq.setting s for update;
  -- As text they would differ: 1 day and 24:00:00.
  if act_settings.finished_retention <> old.finished_retention then
    if act_settings.finished_retention not between interval '1 day' and interval '10 years' then
      raise sqlstate 'JQ001' using
        message = format('finished_retention must be 1 day to 10 years, not %s', act_settings.finished_retention);
    end if;
    was := was || jsonb_build_object('finished_retention', old.finished_retention);
    new := new || jsonb_build_object('finished_retention', act_settings.finished_retention);
  end if;
  if act_settings.failed_retention <> coalesce(old.failed_retention, interval '0') then
    if act_settings.failed_retention <> interval '0' and act_settings.failed_retention not between interval '1 day' and interval '10 years' then
      raise sqlstate 'JQ001' using
        message = format('failed_retention must be 1 day to 10 years, or 0 for as long as finished_retention, not %s', act_settings.failed_retention);
    end if;
    was := was || jsonb_build_object('failed_retention', old.failed_retention);
    new := new || jsonb_build_object('failed_retention', nullif(act_settings.failed_retention, interval '0'));
  end if;
  if act_settings.quarantine_crashes <> old.quarantine_crashes then
    if act_settings.quarantine_crashes not between 0 and 1000 then
      raise sqlstate 'JQ001' using message = format('quarantine_crashes must be 0 to 1000, not %s', act_settings.quarantine_crashes);
    end if;
    was := was || jsonb_build_object('quarantine_crashes', old.quarantine_crashes);
    new := new || jsonb_build_object('quarantine_crashes', act_settings.quarantine_crashes);
  end if;
  if act_settings.keep_until_exported <> old.keep_until_exported then
    was := was || jsonb_build_object('keep_until_exported', old.keep_until_exported);
    new := new || jsonb_build_object('keep_until_exported', act_settings.keep_until_exported);
  end if;
  if act_settings.exported_before <> old.exported_before then
    if act_settings.exported_before not between date '2026-01-01' and date '9999-12-31' then
      raise sqlstate 'JQ001' using
        message = format('exported_before must be a day in the years 2026 to 9999, not %s', act_settings.exported_before);
    end if;
    was := was || jsonb_build_object('exported_before', old.exported_before);
    new := new || jsonb_build_object('exported_before', act_settings.exported_before);
  end if;
  if new = '{}' then
    return null;
  end if;
  update jobq.setting s
    set finished_retention = coalesce(act_settings.finished_retention, s.finished_retention),
      failed_retention = nullif(coalesce(act_settings.failed_retention, s.failed_retention), interval '0'),
      quarantine_crashes = coalesce(act_settings.quarantine_crashes, s.quarantine_crashes),
      keep_until_exported = coalesce(act_settings.keep_until_exported, s.keep_until_exported),
      exported_before = coalesce(act_settings.exported_before, s.exported_before);
  begun := jobq.audit_begin(act_settings.actor, 'settings', null, act_settings.note, new);
  update jobq.audit a set replaced = was where a.id = begun;
  return begun;
end $$;

-- act_queue_set changes settings of a queue: the members of change, which have the names of columns of jobq.queue. If a new lease
-- does not fit extend_every, extend_every becomes null, which means a third of the lease. A key_order without a key_limit sets a
-- key_limit of 1. It returns the id of the audit row, or null if nothing changes. The queue need not be known; it gets its row
-- when a setting differs from its default.
create function jobq.act_queue_set(actor text, queue text, change jsonb, note text default null) returns bigint
  language plpgsql
  as $$
declare
  names constant text[] := array['lease', 'extend_every', 'heartbeat', 'stale_grace', 'redelivery', 'redelivery_delay', 'reset_on_reap',
    'max_running', 'key_limit', 'key_order', 'key_separator', 'rate_jobs', 'rate_period', 'rate_burst',
    'key_rate_jobs', 'key_rate_period', 'key_rate_burst', 'age_after', 'retention', 'failed_retention'];
  optional constant text[] := array['extend_every', 'max_running', 'key_limit', 'key_order', 'key_separator', 'rate_jobs', 'rate_period',
    'rate_burst', 'key_rate_jobs', 'key_rate_period', 'key_rate_burst', 'retention', 'failed_retention']; -- null puts them back
  problem text := case
    when queue is null or char_length(queue) not between 1 and 128 then
      format('queue must be 1 to 128 characters, not %s', coalesce(char_length(queue)::text, 'null'))
    when jsonb_typeof(change) is distinct from 'object' then 'change must be a JSON object'
    else (select case when c.key <> all (names) then format('change: unknown member "%s"', left(c.key, 100))
          else format('change: %s must not be null', c.key) end
        from jsonb_each(change) c
        where c.key <> all (names) or (c.value = 'null' and c.key <> all (optional))
        order by c.key
        limit 1)
  end;
  was jobq.queue;
  wanted jobq.queue;
  added boolean; -- the queue had no row
  limit_broken text;
  old jsonb; -- what differs, before
  new jsonb; -- and after
  begun bigint;
begin
  if problem is not null then
    raise sqlstate 'JQ001' using message = problem;
  end if;
  insert into jobq.queue (name) values (act_queue_set.queue) on conflict (name) do nothing;
  added := found;
  select q.* into strict was from jobq.queue q where q.name = act_queue_set.queue for update;
  begin
    select r.* into wanted from jsonb_populate_record(was, change) r;
  exception when data_exception then
    raise sqlstate 'JQ001' using message = format('change: %s', left(sqlerrm, 200));
  end;
  if not change ? 'extend_every' and wanted.extend_every > wanted.lease / 2 then
    wanted.extend_every := null;
  end if;
  if not change ? 'key_limit' and wanted.key_order is not null and wanted.key_limit is null then
    wanted.key_limit := 1;
  end if;
  -- As text they would differ: 1 day and 24:00:00.
  if wanted is not distinct from was then
    if added then -- else a misspelt name would be known, without an entry in the audit
      delete from jobq.queue q where q.name = act_queue_set.queue;
    end if;
    return null;
  end if;
  select jsonb_object_agg(b.key, b.value), jsonb_object_agg(a.key, a.value) into old, new
    from jsonb_each(to_jsonb(was)) b
    join jsonb_each(to_jsonb(wanted)) a on a.key = b.key
    where a.key = any (names) and a.value <> b.value;
  begin
    update jobq.queue q
      set lease = wanted.lease, extend_every = wanted.extend_every, heartbeat = wanted.heartbeat, stale_grace = wanted.stale_grace,
        redelivery = wanted.redelivery, redelivery_delay = wanted.redelivery_delay, reset_on_reap = wanted.reset_on_reap,
        max_running = wanted.max_running, key_limit = wanted.key_limit, key_order = wanted.key_order, key_separator = wanted.key_separator,
        rate_jobs = wanted.rate_jobs, rate_period = wanted.rate_period, rate_burst = wanted.rate_burst,
        key_rate_jobs = wanted.key_rate_jobs, key_rate_period = wanted.key_rate_period, key_rate_burst = wanted.key_rate_burst,
        age_after = wanted.age_after, retention = wanted.retention, failed_retention = wanted.failed_retention
      where q.name = act_queue_set.queue;
  exception when check_violation then
    get stacked diagnostics limit_broken = constraint_name; -- which is the limit in words
    raise sqlstate 'JQ001' using message = limit_broken;
  end;
  if (was.max_running, was.key_limit, was.key_order, was.key_separator, was.rate_jobs, was.rate_period, was.rate_burst,
        was.key_rate_jobs, was.key_rate_period, was.key_rate_burst)
      is distinct from (wanted.max_running, wanted.key_limit, wanted.key_order, wanted.key_separator, wanted.rate_jobs, wanted.rate_period,
        wanted.rate_burst, wanted.key_rate_jobs, wanted.key_rate_period, wanted.key_rate_burst) then
    -- Workers claim otherwise from a queue with limits, and find nothing until they know.
    perform jobq.notify('settings', act_queue_set.queue);
  end if;
  begun := jobq.audit_begin(act_queue_set.actor, 'settings', act_queue_set.queue, act_queue_set.note, new);
  update jobq.audit a set replaced = old where a.id = begun;
  return begun;
end $$;

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
          where i.inhparent in ('jobq.run'::regclass, 'jobq.attempt'::regclass) and c.relname ~ '^(run|attempt)_[0-9]{8}$'),
        (select date '2026-01-01' + (r.lease_id >> 40)::integer from jobq.run_default r order by r.lease_id, r.id limit 1),
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
    raise sqlstate 'JQ001' using message = format('the day must be in the years 2026 to 9999, not %s', coalesce(day::text, 'null'));
  end if;
  if clock_timestamp() < (day + 1)::timestamp at time zone 'UTC' + interval '10 minutes' then
    raise sqlstate 'JQ003' using message = format('%s is not over: it can be exported from 00:10 (UTC) of the next day on', day);
  end if;
  select array_agg(case when to_regclass(format('jobq.%I', d.name)) is null then p.parent || '_default' else d.name end) into days
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
    raise sqlstate 'JQ003' using message = format('jobs that were claimed on %s still run: it can be exported when they have ended', day);
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
    raise sqlstate 'JQ003' using message = format('the export of %s does not count: another has begun since, or an undo has brought a job back; export it again', day);
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

-- run_restore puts a job that had ended back into the history, from a row of job_lock. The row itself says how the job ended, even
-- if its lease does, too: retention may drop the lease soon. If it has dropped it, a new lease without ends says which worker had
-- the job. If the day was swept (history_sweep), it is swept again.
create function jobq.run_restore(was jsonb) returns void
  language plpgsql
  as $$
declare
  ended jobq.run;
  lease record;
begin
  if was -> 'args' = 'null' and not (was -> 'args_apart')::boolean then -- JSON's null, not ours
    ended.args := 'null';
    was := was - 'args';
  end if;
  select r.* into ended from jsonb_populate_record(ended, was) r;
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

-- undo_job takes back what an action did to one job, if nothing has happened
-- to the job since; otherwise it returns why not.
create function jobq.undo_job(action text, entry jobq.audit_job) returns text
  language plpgsql
  as $$
declare
  row jsonb := entry.before -> 'row';
  waiting jobq.pending;
  queue text;
  editor bigint;
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
  if undo_job.action = 'delete' then
    if entry.before ->> 'stage' <> 'pending' then
      perform jobq.run_restore(row);
    else
      if row -> 'args' = 'null' and not (row -> 'args_apart')::boolean then -- as in run_restore
        waiting.args := 'null';
        row := row - 'args';
      end if;
      insert into jobq.pending
        select p.* from jsonb_populate_record(waiting,
          row || jsonb_build_object('position', case when entry.state_before = 'available' then nextval('jobq.position_seq') end)) p;
      if entry.state_before = 'scheduled' then
        perform jobq.event_look_again(entry.job_id);
      end if;
    end if;
    if entry.state_before = 'waiting' then
      perform jobq.look_soon(array[entry.job_id]);
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
    return null;
  end if;
  if undo_job.action in ('edit', 'clone') then
    perform from jobq.pending p where p.id = entry.job_id and p.lease_token = entry.lease_token for update;
    if found and undo_job.action = 'edit' then
      perform jobq.job_edit(entry.job_id, entry.before -> 'edit' -> 'before', entry.before -> 'edit' -> 'after');
      if entry.before -> 'edit' -> 'before' ? 'run_at' then
        perform jobq.event_look_again(entry.job_id);
      end if;
      return null;
    elsif found then
      perform jobq.delete_job(entry.job_id);
      return null;
    end if;
  elsif undo_job.action = 'cancel' then
    with taken as (
      delete from jobq.run r
        where r.id = entry.job_id and r.state = 'cancelled' and r.slot = 0 and r.finished_at = entry.version
        returning r.id, coalesce(r.run_at, r.created_at) as run_at, r.created_at, r.timeout, r.backoff_base, r.backoff_max, r.priority,
          r.attempts, r.max_attempts, r.crashes, r.args_apart, r.queue, r.kind, r.args, r.unique_key, r.last_error,
          r.clear_reason, r.checkpoint, r.metadata, r.tags, r.partition_key
    ), uncounted as (
      insert into jobq.stat_delta
          (minute, queue, kind, completed, failed, retried, lost, cancelled, run_seconds, wait_seconds)
        select date_trunc('minute', entry.version), t.queue, t.kind, 0, 0, 0, 0, -1, 0, 0 from taken t
    )
    insert into jobq.pending
        (id, position, lease_token, run_at, created_at, timeout, backoff_base, backoff_max, priority, attempts, max_attempts,
         crashes, args_apart, queue, kind, args, unique_key, last_error, clear_reason, checkpoint, metadata, tags, waits, partition_key)
      select t.id, case when entry.state_before = 'available' then nextval('jobq.position_seq') end, entry.lease_token, t.run_at,
          t.created_at, t.timeout, t.backoff_base, t.backoff_max, t.priority, t.attempts, t.max_attempts, t.crashes,
          t.args_apart, t.queue, t.kind, t.args, t.unique_key, t.last_error, t.clear_reason, t.checkpoint, t.metadata, t.tags,
          nullif(entry.state_before = 'waiting', false), coalesce(t.partition_key, '')
        from taken t;
    if found then
      perform jobq.args_require(entry.job_id);
      if entry.state_before = 'waiting' then
        perform jobq.look_soon(array[entry.job_id]);
      elsif entry.state_before = 'scheduled' then
        perform jobq.event_look_again(entry.job_id);
      end if;
      return null;
    end if;
  elsif entry.before ->> 'stage' = 'pending' then -- a requeue that made a scheduled or waiting job available
    update jobq.pending p
      set position = null, run_at = (row ->> 'run_at')::timestamptz, waits = nullif(entry.state_before = 'waiting', false)
      where p.id = entry.job_id and p.position is not null and p.lease_token = entry.lease_token and p.run_at = entry.version
      returning p.queue into queue;
    if found then
      if entry.state_before = 'waiting' then
        perform jobq.look_soon(array[entry.job_id]);
      else
        perform jobq.notify('due', extract(epoch from (row ->> 'run_at')::timestamptz)::text);
        perform jobq.event_look_again(entry.job_id);
      end if;
      return null;
    end if;
  else -- a requeue of a job that had ended
    delete from jobq.pending p
      where p.id = entry.job_id and p.lease_token = entry.lease_token and p.run_at = entry.version
      returning p.* into waiting;
    if found then
      perform jobq.run_restore(to_jsonb(waiting) || row); -- which has what the requeue has changed
      return null;
    end if;
  end if;
  return coalesce(
    (select format('it has changed meanwhile, and is %s now', j.state) from jobq.job j where j.id = entry.job_id),
    'it is gone');
end $$;

-- undo_whole takes back an action that was not on jobs: on a queue, a kind, a partition key, or the
-- settings. It must have been the last action on them.
create function jobq.undo_whole(actor text, undone jobq.audit) returns void
  language plpgsql
  as $$
declare
  later jobq.audit;
begin
  if undone.action in ('kind_pause', 'kind_resume') then
    perform from jobq.kind k where k.name = undone.target for update;
  elsif undone.action in ('key_pause', 'key_resume') then
    perform from jobq.paused_key k where k.queue = undone.target and k.key = undone.change ->> 'partition_key' for update;
  elsif undone.action = 'key_weight' then
    perform from jobq.key_weight w where w.queue = undone.target and w.key = undone.change ->> 'partition_key' for update;
  elsif undone.target is null then
    perform from jobq.setting for update; -- nobody changes them from here on
  else
    perform from jobq.queue q where q.name = undone.target for update; -- nor those of the queue, nor pauses it
  end if;
  select a.* into later
    from jobq.audit a
    where a.id > undone.id and a.target is not distinct from undone.target
      and case
        when undone.action = 'settings' then a.action = 'settings'
        when undone.action in ('kind_pause', 'kind_resume') then a.action in ('kind_pause', 'kind_resume')
        when undone.action in ('key_pause', 'key_resume') then a.action in ('key_pause', 'key_resume') and a.change = undone.change
        when undone.action = 'key_weight' then a.action = 'key_weight' and a.change -> 'partition_key' = undone.change -> 'partition_key'
        else a.action in ('pause', 'resume') end
    order by a.id
    limit 1;
  if found then
    raise sqlstate 'JQ003' using message = case
      when undone.action in ('kind_pause', 'kind_resume') then
        format('kind %s has been %s meanwhile, by action %s', undone.target, case later.action when 'kind_pause' then 'paused' else 'resumed' end, later.id)
      when undone.action in ('key_pause', 'key_resume') then
        format('key %s of queue %s has been %s meanwhile, by action %s', undone.change ->> 'partition_key', undone.target,
          case later.action when 'key_pause' then 'paused' else 'resumed' end, later.id)
      when undone.action = 'key_weight' then
        format('key %s of queue %s has been given another weight meanwhile, by action %s', undone.change ->> 'partition_key', undone.target, later.id)
      when undone.target is null then format('the settings have been changed meanwhile, by action %s', later.id)
      when undone.action = 'settings' then format('the settings of queue %s have been changed meanwhile, by action %s', undone.target, later.id)
      else format('queue %s has had a %s meanwhile, by action %s', undone.target, later.action, later.id) end;
  end if;
  case undone.action
    when 'pause' then perform jobq.act_queue(actor, 'resume', undone.target, 'undo');
    when 'resume' then perform jobq.act_queue(actor, 'pause', undone.target, coalesce(undone.replaced ->> 'pause_reason', 'undo'));
    when 'kind_pause' then perform jobq.act_kind(actor, 'kind_resume', undone.target, 'undo');
    when 'kind_resume' then perform jobq.act_kind(actor, 'kind_pause', undone.target, coalesce(undone.replaced ->> 'pause_reason', 'undo'));
    when 'key_pause' then perform jobq.act_key(actor, 'key_resume', undone.target, undone.change ->> 'partition_key', 'undo');
    when 'key_resume' then
      perform jobq.act_key(actor, 'key_pause', undone.target, undone.change ->> 'partition_key', coalesce(undone.replaced ->> 'pause_reason', 'undo'));
    when 'key_weight' then
      perform jobq.act_key_weight(actor, undone.target, undone.change ->> 'partition_key', (undone.replaced ->> 'weight')::integer, 'undo');
    when 'settings' then
      if undone.target is null then
        perform jobq.act_settings(actor, (undone.replaced ->> 'finished_retention')::interval,
          (undone.replaced ->> 'quarantine_crashes')::integer, 'undo',
          (undone.replaced ->> 'keep_until_exported')::boolean,
          -- Never later: a job may have come back into a day that had been exported.
          least((select s.exported_before from jobq.setting s), (undone.replaced ->> 'exported_before')::date),
          case when undone.replaced ? 'failed_retention' then coalesce((undone.replaced ->> 'failed_retention')::interval, interval '0') end);
      else
        perform jobq.act_queue_set(actor, undone.target, undone.replaced, 'undo');
      end if;
  end case;
end $$;

-- undo takes back an action, for the jobs to which nothing has happened since.
-- It returns for each job the states before and after the undo, or
-- why the job stays as it is, with one of the codes of docs/sql.md. For an action that was
-- not on jobs, such as a pause, it returns one row without states. Such an action must
-- have been the last one of its sort on its queue, kind, partition key or schedule, or
-- on the settings (undo_whole, schedule_undo).
--
-- A call takes the next 1,000 jobs of the action, by their ids; ended says
-- that there are no more. Of 2,500 jobs, the third
-- call ends. An action can be undone once, and an undo cannot be undone; but after an undo
-- that could take nothing back, the action can be undone again.
--
-- Unique keys are taken before any job is locked, as in act. A deleted job takes its key until the same time as
-- before. A job that had ended comes back without its key if the time of the key is over, or if another job holds the key: only an
-- unfinished job needs its key.
create function jobq.undo(actor text, audit_id bigint)
  returns table (audit bigint, job_id bigint, state_before text, state_after text, code text, problem text, ended boolean)
  language plpgsql
  as $$
declare
  undone jobq.audit;
  undoing jobq.audit;
  entry jobq.audit_job;
  first bigint; -- above this id
  last bigint;  -- up to this one
  taken record; -- unique keys
  holders bigint[]; -- and who has each
  place integer;
  changed integer := 0;
  refusals integer := 0;
begin
  select a.* into undone from jobq.audit a where a.id = undo.audit_id for update;
  if not found then
    raise sqlstate 'JQ002' using message = format('no action %s', coalesce(undo.audit_id::text, 'null'));
  end if;
  select a.* into undoing from jobq.audit a where a.id = undone.undone_by and a.ended_at is null;
  if undone.action in ('undo', 'drain', 'schedule_run', 'export') or (undone.undone_by is not null and undoing.id is null) then
    raise sqlstate 'JQ003' using message = case undone.action
      when 'undo' then 'an undo is not undone: act again instead'
      when 'drain' then 'a worker that drains is not called back: start another'
      when 'export' then 'an export is not undone: to have days exported again, set exported_before'
      when 'schedule_run' then format('a schedule that was run has added its job: cancel %s', undone.note)
      else format('action %s is undone already', undo.audit_id) end;
  end if;
  if undoing.id is null then
    if undone.action in ('pause', 'resume', 'kind_pause', 'kind_resume', 'key_pause', 'key_resume', 'key_weight', 'settings') then
      perform jobq.undo_whole(undo.actor, undone);
    elsif undone.action like 'schedule\_%' then
      perform jobq.schedule_undo(undo.actor, undone);
    end if;
    undoing.id := jobq.audit_begin(undo.actor, 'undo', undone.target, undone.action);
    update jobq.audit a set undoes = undo.audit_id where a.id = undoing.id;
    update jobq.audit a set undone_by = undoing.id where a.id = undo.audit_id;
  end if;
  audit := undoing.id;
  first := coalesce(undoing.id_done, 0);
  select t.job_id into last
    from jobq.audit_job t where t.audit_id = undo.audit_id and t.job_id > first order by t.job_id offset 999 limit 1;
  ended := last is null or not exists (select from jobq.audit_job t where t.audit_id = undo.audit_id and t.job_id > last);
  last := coalesce(last, 9223372036854775807);
  if undone.action in ('cancel', 'delete') then
    select array_agg(k.kind) as kinds, array_agg(k.key) as keys, array_agg(k.id) as ids, array_agg(k.until) as untils into taken
      from (
        select t.before -> 'row' ->> 'kind' as kind,
            case undone.action when 'cancel' then r.unique_key else t.before -> 'row' ->> 'unique_key' end as key, t.job_id as id,
            (t.before ->> 'key_until')::timestamptz as until
          from jobq.audit_job t
          left join lateral ( -- one look-up for each, never a join with the history
            select x.unique_key from jobq.run x
              where undone.action = 'cancel' and x.id = t.job_id and x.state is not null limit 1) r on true
          where t.audit_id = undo.audit_id and t.job_id > first and t.job_id <= last
            and (t.before ->> 'stage' = 'pending' or undone.action = 'delete' and (t.before ->> 'key_until')::timestamptz > statement_timestamp())
      ) k
      where k.key is not null;
    holders := jobq.unique_keys_take(taken.kinds, taken.keys, taken.ids, taken.untils);
  end if;
  for entry in
    select t.* from jobq.audit_job t
      where t.audit_id = undo.audit_id and t.job_id > first and t.job_id <= last order by t.job_id
  loop
    job_id := entry.job_id;
    state_before := entry.state_after;
    state_after := entry.state_before;
    begin
      if holders is not null then -- as in act
        place := array_position(taken.ids, entry.job_id);
        if holders[place] <> entry.job_id and entry.before ->> 'stage' = 'pending' then
          perform jobq.unique_key_refuse(taken.kinds[place], taken.keys[place], holders[place]);
        end if;
      end if;
      problem := jobq.undo_job(undone.action, entry);
      code := case when problem is not null then 'JQ003' end;
    exception
      when check_violation or sqlstate 'JQ003' then
        code := 'JQ003';
        problem := sqlerrm;
      when unique_violation or sqlstate 'JQ004' then
        code := 'JQ004';
        problem := sqlerrm;
    end;
    if problem is null then
      changed := changed + 1;
      insert into jobq.audit_job (audit_id, job_id, lease_token, state_before, state_after, before)
        values (audit, entry.job_id, entry.lease_token, undo.state_before, undo.state_after, '{}');
    else
      refusals := refusals + 1;
      if undone.action = 'delete' and not jobq.job_exists(entry.job_id) then -- nobody is to keep the key that was taken for it
        delete from jobq.unique_key u where u.kind = taken.kinds[place] and u.key = taken.keys[place] and u.job_id = entry.job_id;
      end if;
    end if;
    return next;
  end loop;
  if undone.action in ('cancel', 'delete') then
    perform jobq.unique_keys_release(taken.kinds, taken.keys, taken.ids);
  end if;
  update jobq.audit a
    set done = a.done + changed, refused = a.refused + refusals, id_done = case when last < 9223372036854775807 then last else a.id_done end,
      ended_at = case when undo.ended then clock_timestamp() end
    where a.id = undo.audit
    returning a.* into undoing;
  if ended and undoing.done = 0 and undoing.refused > 0 then
    update jobq.audit a set undone_by = null where a.id = undo.audit_id;
    update jobq.audit a set undoes = null, note = format('undo of action %s: nothing could be taken back', undo.audit_id)
      where a.id = undo.audit;
  end if;
  if changed + refusals = 0 then
    return next;
  end if;
end $$;

-- sql/roles.sql says who may call them.
revoke execute on function
  jobq.job_lock, jobq.audit_begin, jobq.audit_prune, jobq.audit_begin_many, jobq.audit_resume, jobq.job_edit,
  jobq.plain_args_refuse, jobq.change_problem, jobq.act_problem, jobq.act, jobq.act_clone, jobq.act_drain, jobq.queue_known, jobq.act_queue, jobq.act_kind, jobq.act_key, jobq.act_key_weight, jobq.kinds_crashed, jobq.act_settings, jobq.act_queue_set,
  jobq.export_first, jobq.export_begin, jobq.export_end, jobq.export_again, jobq.run_restore, jobq.undo_job, jobq.undo_whole, jobq.undo
  from public;
