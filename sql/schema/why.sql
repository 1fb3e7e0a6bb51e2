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
