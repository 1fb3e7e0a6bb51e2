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
