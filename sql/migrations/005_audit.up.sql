-- Who did what to which jobs and queues, and what is needed to undo it.
set local lock_timeout = '5s';

-- One row per action of a person, however many jobs it is about.
create table jobq.audit (
  id           bigint      not null generated always as identity primary key,
  at           timestamptz not null default clock_timestamp(),
  snapshot_at  timestamptz, -- of an action by filter: jobs that came later are left alone
  id_max       bigint,      -- likewise
  id_done      bigint,      -- how far it has come, from id_max down
  undone_by    bigint,      -- the undo of this action
  undoes       bigint,      -- the action that this undo is of
  done         integer     not null default 0, -- jobs changed
  refused      integer     not null default 0, -- jobs that could not be
  actor        text        not null,
  action       text        not null,
  target       text,        -- the filter, or the queue
  note         text,
  constraint "actor must be 1 to 255 characters" check (char_length(actor) between 1 and 255),
  constraint "action must be known" check (action in ('requeue', 'cancel', 'delete', 'pause', 'resume', 'undo')),
  constraint "target must be at most 8192 characters" check (char_length(target) <= 8192),
  constraint "note must be at most 1024 characters" check (char_length(note) <= 1024)
);
create index audit_at_idx on jobq.audit (at);

-- One row per job changed. `before` is what an undo needs that the job's row
-- does not have any more; `version` is the moment that the action wrote into
-- the job's row, and a row that still has it was not touched since.
create table jobq.audit_job (
  audit_id     bigint      not null references jobq.audit (id) on delete cascade,
  job_id       bigint      not null,
  lease_token  bigint      not null,
  version      timestamptz,
  state_before text        not null,
  state_after  text        not null,
  before       jsonb       not null,
  primary key (audit_id, job_id)
);
create index audit_job_job_id_idx on jobq.audit_job (job_id);

-- job_lock locks a job's row and returns it with the stage and the state that
-- it is in: with everything that belongs to it (whole), or else without what
-- only a delete would lose. Null when there is no such job.
create function jobq.job_lock(job_id bigint, whole boolean) returns jsonb
  language plpgsql
  as $$
declare
  found_row jsonb;
  stage text;
begin
  for round in 1..3 loop -- a job may change tables between two statements
    stage := 'pending';
    select to_jsonb(p) || jsonb_build_object('state', case when p.position is null then 'scheduled' else 'available' end)
      into found_row from jobq.pending p where p.id = job_lock.job_id for update;
    if not found then
      stage := 'running';
      select to_jsonb(r) || jsonb_build_object('state', 'running')
        into found_row from jobq.running r where r.id = job_lock.job_id for update;
    end if;
    if found_row is null then
      stage := 'finished';
      select to_jsonb(f) into found_row from jobq.finished f where f.id = job_lock.job_id for update;
    end if;
    exit when found_row is not null;
  end loop;
  if found_row is null then
    return null;
  end if;
  if not whole then
    return jsonb_build_object('stage', stage, 'row',
      found_row - array['args', 'checkpoint', 'metadata', 'tags', 'unique_key', 'timeout', 'backoff_base', 'backoff_max']);
  end if;
  return jsonb_build_object('stage', stage, 'row', found_row,
    'payload', (select a.args from jobq.payload a where a.job_id = job_lock.job_id),
    'attempts', (select jsonb_agg(to_jsonb(t)) from jobq.attempt t where t.job_id = job_lock.job_id));
end $$;

-- audit_begin records that an action begins, and forgets a few old ones.
create function jobq.audit_begin(actor text, action text, target text, note text) returns bigint
  language plpgsql
  as $$
declare
  begun bigint;
begin
  delete from jobq.audit a
    where a.id in (select o.id from jobq.audit o where o.at < clock_timestamp() - interval '90 days' order by o.at limit 100);
  insert into jobq.audit (actor, action, target, note)
    values (audit_begin.actor, audit_begin.action, audit_begin.target, audit_begin.note)
    returning id into begun;
  return begun;
end $$;

-- audit_begin_many is audit_begin for an action by filter, which takes many
-- calls of act: it fixes which jobs are meant, so that later ones are not.
create function jobq.audit_begin_many(actor text, action text, target text) returns bigint
  language plpgsql
  as $$
declare
  begun bigint := jobq.audit_begin(audit_begin_many.actor, audit_begin_many.action, audit_begin_many.target, null);
begin
  update jobq.audit a
    set snapshot_at = clock_timestamp(), id_max = (select s.last_value from jobq.job_id_seq s)
    where a.id = begun;
  return begun;
end $$;

-- act requeues, cancels or deletes jobs in the name of an actor, in id order,
-- and records it under the audit row given, or under a new one. Where
-- expected has a text, such as 'failed/7', the job must be in that state with
-- that lease token, or it is left alone. It answers for each job with the
-- states before and after, or with why nothing was done.
create function jobq.act(
  actor text, action text, ids bigint[], expected text[], target text, audit_id bigint
) returns table (audit bigint, job_id bigint, state_before text, state_after text, problem text)
  language plpgsql
  as $$
declare
  job record;
  before jsonb;
  changed integer := 0;
  refusals integer := 0;
begin
  audit := coalesce(nullif(act.audit_id, 0), jobq.audit_begin(act.actor, act.action, act.target, null));
  for job in select x.id, x.expected from unnest(act.ids, act.expected) as x(id, expected) order by x.id loop
    job_id := job.id;
    state_before := null;
    state_after := null;
    problem := null;
    before := jobq.job_lock(job.id, act.action = 'delete');
    state_before := before -> 'row' ->> 'state';
    if before is null then
      problem := 'no such job';
    elsif job.expected <> format('%s/%s', state_before, before -> 'row' ->> 'lease_token') then
      problem := format('it has changed meanwhile, and is %s now', state_before);
    else
      begin
        case act.action
          when 'requeue' then
            state_after := jobq.requeue(job.id);
          when 'cancel' then
            state_after := jobq.cancel(job.id);
          when 'delete' then
            perform jobq.delete_job(job.id);
            state_after := 'deleted';
        end case;
      exception when object_not_in_prerequisite_state or unique_violation then
        problem := sqlerrm;
      end;
    end if;
    if problem is not null then
      refusals := refusals + 1;
    elsif state_after <> state_before or state_before = 'running' then
      changed := changed + 1;
      insert into jobq.audit_job (audit_id, job_id, lease_token, version, state_before, state_after, before)
        values (audit, job.id, (before -> 'row' ->> 'lease_token')::bigint,
          coalesce((select p.run_at from jobq.pending p where p.id = job.id),
            (select f.finished_at from jobq.finished f where f.id = job.id)),
          act.state_before, act.state_after, before)
        on conflict do nothing;
    end if;
    return next;
  end loop;
  update jobq.audit a
    set done = a.done + changed, refused = a.refused + refusals,
      id_done = case when a.id_max is not null then (select min(x) from unnest(act.ids) x) end
    where a.id = act.audit;
end $$;

-- act_queue pauses or resumes a queue. It returns the audit row's id, or null
-- when the queue was paused, or not paused, already.
create function jobq.act_queue(actor text, action text, queue text, note text) returns bigint
  language plpgsql
  as $$
begin
  if act_queue.action = 'pause' then
    insert into jobq.queue as q (name, paused_at, paused_by, pause_reason)
      values (act_queue.queue, clock_timestamp(), act_queue.actor, act_queue.note)
      on conflict (name) do update
        set paused_at = excluded.paused_at, paused_by = excluded.paused_by, pause_reason = excluded.pause_reason
        where q.paused_at is null;
  else
    update jobq.queue q
      set paused_at = null, paused_by = null, pause_reason = null
      where q.name = act_queue.queue and q.paused_at is not null;
  end if;
  if not found then
    return null;
  end if;
  if act_queue.action = 'resume' then
    -- Whoever looked at the whole line meanwhile found nothing there, not even
    -- what has come back to its old place.
    perform pg_notify(jobq.channel('head'), act_queue.queue);
  end if;
  return jobq.audit_begin(act_queue.actor, act_queue.action, act_queue.queue, act_queue.note);
end $$;

-- undo_job takes back what an action did to one job, if nothing has happened
-- to the job since, and says why not otherwise.
create function jobq.undo_job(action text, entry jobq.audit_job) returns text
  language plpgsql
  as $$
declare
  row jsonb := entry.before -> 'row';
  queue text;
begin
  if entry.state_before = 'running' then
    return 'its worker has been told to stop it';
  end if;
  if undo_job.action = 'delete' then
    if entry.before ->> 'stage' = 'pending' then
      insert into jobq.pending
        select p.* from jsonb_populate_record(null::jobq.pending,
          row || jsonb_build_object('position', case when entry.state_before = 'available' then nextval('jobq.position_seq') end)) p;
    else
      insert into jobq.finished select f.* from jsonb_populate_record(null::jobq.finished, row) f;
    end if;
    if entry.before -> 'payload' <> 'null' then
      insert into jobq.payload (job_id, args) values (entry.job_id, entry.before -> 'payload');
    end if;
    if entry.before -> 'attempts' <> 'null' then
      insert into jobq.attempt select t.* from jsonb_populate_recordset(null::jobq.attempt, entry.before -> 'attempts') t;
    end if;
    return null;
  end if;
  if undo_job.action = 'cancel' then
    with taken as (
      delete from jobq.finished f
        where f.id = entry.job_id and f.state = 'cancelled' and f.lease_token = entry.lease_token and f.finished_at = entry.version
        returning f.id, f.lease_token, f.run_at, f.created_at, f.timeout, f.backoff_base, f.backoff_max, f.priority,
          f.attempts, f.max_attempts, f.crashes, f.args_apart, f.queue, f.kind, f.args, f.unique_key, f.last_error,
          f.checkpoint, f.metadata, f.tags
    ), uncounted as (
      insert into jobq.stat_delta
          (minute, queue, kind, completed, failed, retried, lost, cancelled, run_seconds, wait_seconds)
        select date_trunc('minute', entry.version), t.queue, t.kind, 0, 0, 0, 0, -1, 0, 0 from taken t
    )
    insert into jobq.pending
        (id, position, lease_token, run_at, created_at, timeout, backoff_base, backoff_max, priority, attempts, max_attempts,
         crashes, args_apart, queue, kind, args, unique_key, last_error, checkpoint, metadata, tags)
      select t.id, case when entry.state_before = 'available' then nextval('jobq.position_seq') end, t.lease_token, t.run_at,
          t.created_at, t.timeout, t.backoff_base, t.backoff_max, t.priority, t.attempts, t.max_attempts, t.crashes,
          t.args_apart, t.queue, t.kind, t.args, t.unique_key, t.last_error, t.checkpoint, t.metadata, t.tags
        from taken t;
  elsif entry.before ->> 'stage' = 'pending' then -- a requeue that made a scheduled job available
    update jobq.pending p
      set position = null, run_at = (row ->> 'run_at')::timestamptz
      where p.id = entry.job_id and p.position is not null and p.lease_token = entry.lease_token and p.run_at = entry.version
      returning p.queue into queue;
    if found then
      perform pg_notify(jobq.channel('due'), extract(epoch from (row ->> 'run_at')::timestamptz)::text);
      return null;
    end if;
  else -- a requeue of a job that had ended
    with taken as (
      delete from jobq.pending p
        where p.id = entry.job_id and p.lease_token = entry.lease_token and p.run_at = entry.version
        returning p.id, p.lease_token, p.created_at, p.timeout, p.backoff_base, p.backoff_max, p.priority, p.crashes,
          p.args_apart, p.queue, p.kind, p.args, p.unique_key, p.last_error, p.checkpoint, p.metadata, p.tags
    )
    insert into jobq.finished
        (id, finished_at, lease_token, started_at, run_at, created_at, timeout, backoff_base, backoff_max, state, priority,
         attempts, max_attempts, crashes, args_apart, queue, kind, lease_owner, args, unique_key, last_error, checkpoint,
         metadata, tags, result)
      select t.id, (row ->> 'finished_at')::timestamptz, t.lease_token, (row ->> 'started_at')::timestamptz,
          (row ->> 'run_at')::timestamptz, t.created_at, t.timeout, t.backoff_base, t.backoff_max,
          entry.state_before::jobq.job_state, t.priority, (row ->> 'attempts')::smallint, (row ->> 'max_attempts')::smallint,
          t.crashes, t.args_apart, t.queue, t.kind, row ->> 'lease_owner', t.args, t.unique_key, t.last_error, t.checkpoint,
          t.metadata, t.tags, nullif(row -> 'result', 'null')
        from taken t;
  end if;
  if found then
    return null;
  end if;
  return coalesce(
    (select format('it has changed meanwhile, and is %s now', j.state) from jobq.job j where j.id = entry.job_id),
    'it is gone');
end $$;

-- undo takes back an action, on the jobs that nothing has happened to since.
-- It answers for each job with the states before and after the undo, or with
-- why it was left alone. An action is undone once, and an undo is not undone.
create function jobq.undo(actor text, audit_id bigint)
  returns table (audit bigint, job_id bigint, state_before text, state_after text, problem text)
  language plpgsql
  as $$
declare
  undone jobq.audit;
  entry jobq.audit_job;
  changed integer := 0;
  refusals integer := 0;
begin
  select a.* into undone from jobq.audit a where a.id = undo.audit_id for update;
  if not found then
    raise no_data_found using message = format('no action %s', undo.audit_id);
  end if;
  if undone.undone_by is not null or undone.action = 'undo' then
    raise object_not_in_prerequisite_state using message = case when undone.action = 'undo'
      then 'an undo is not undone: act again instead' else format('action %s is undone already', undo.audit_id) end;
  end if;
  if undone.action in ('pause', 'resume') then
    perform jobq.act_queue(undo.actor, case undone.action when 'pause' then 'resume' else 'pause' end, undone.target, 'undo');
  end if;
  audit := jobq.audit_begin(undo.actor, 'undo', undone.target, null);
  for entry in select t.* from jobq.audit_job t where t.audit_id = undo.audit_id order by t.job_id loop
    job_id := entry.job_id;
    state_before := entry.state_after;
    state_after := entry.state_before;
    begin
      problem := jobq.undo_job(undone.action, entry);
    exception when unique_violation then
      problem := sqlerrm;
    end;
    if problem is null then
      changed := changed + 1;
      insert into jobq.audit_job (audit_id, job_id, lease_token, state_before, state_after, before)
        values (audit, entry.job_id, entry.lease_token, undo.state_before, undo.state_after, '{}');
    else
      refusals := refusals + 1;
    end if;
    return next;
  end loop;
  update jobq.audit a set done = changed, refused = refusals, undoes = undo.audit_id, note = undone.action where a.id = undo.audit;
  update jobq.audit a set undone_by = undo.audit where a.id = undo.audit_id;
end $$;

-- sql/roles.sql says who may call them.
revoke execute on function
  jobq.job_lock, jobq.audit_begin, jobq.audit_begin_many,
  jobq.act, jobq.act_queue, jobq.undo_job, jobq.undo
  from public;
