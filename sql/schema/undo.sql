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
