-- Functions of the first layout that make, end and remove jobs, as in commit
-- b792e27, sql/migrations/003. Those of its retention, and of the actions of
-- operators (act, undo and what they call), are left out: they are not there
-- while a database has this layout.

-- unique_keys_release gives up those of the keys that were taken for a job which
-- then did not become unfinished.
create or replace function jobq.unique_keys_release(kinds text[], keys text[], ids bigint[]) returns void
  language sql
  as $$
    delete from jobq.unique_key u
      using unnest(kinds, keys, ids) as t(kind, key, id)
      where u.kind = t.kind and u.key = t.key and u.job_id = t.id
        and not exists (select from jobq.pending p where p.id = t.id)
        and not exists (select from jobq.running r where r.id = t.id)
  $$;

-- cancel ends a job that waits, and asks the worker of one that runs to stop.
-- It returns the job's state afterwards: cancelled, or running while the
-- worker has yet to obey, or the state in which the job had ended before;
-- null when there is no such job.
create or replace function jobq.cancel(job_id bigint) returns jobq.job_state
  language plpgsql
  as $$
declare
  ended jobq.job_state;
begin
  if job_id is null then
    raise sqlstate 'JQ001' using message = 'job_id must not be null';
  end if;
  -- A job may change tables between two of these statements, each of which
  -- sees what was committed before it: the second round finds it.
  for round in 1..3 loop
    with taken as (
      delete from jobq.pending p where p.id = cancel.job_id
        returning p.id, p.lease_token, p.run_at, p.created_at, p.timeout, p.backoff_base, p.backoff_max, p.priority,
          p.attempts, p.max_attempts, p.crashes, p.args_apart, p.queue, p.kind, p.args, p.unique_key, p.last_error,
          p.checkpoint, p.metadata, p.tags
    ), counted as (
      insert into jobq.stat_delta
          (minute, queue, kind, completed, failed, retried, lost, cancelled, run_seconds, wait_seconds)
        select date_trunc('minute', clock_timestamp()), t.queue, t.kind, 0, 0, 0, 0, 1, 0, 0 from taken t
    )
    insert into jobq.finished
        (id, finished_at, lease_token, run_at, created_at, timeout, backoff_base, backoff_max, state, priority,
         attempts, max_attempts, crashes, args_apart, queue, kind, args, unique_key, last_error,
         checkpoint, metadata, tags)
      select t.id, clock_timestamp(), t.lease_token, t.run_at, t.created_at, t.timeout, t.backoff_base, t.backoff_max,
          'cancelled', t.priority, t.attempts, t.max_attempts, t.crashes, t.args_apart, t.queue, t.kind, t.args,
          t.unique_key, t.last_error, t.checkpoint, t.metadata, t.tags
        from taken t;
    if found then
      return 'cancelled';
    end if;
    update jobq.running r
      set cancel_requested_at = coalesce(r.cancel_requested_at, clock_timestamp())
      where r.id = cancel.job_id;
    if found then
      perform pg_notify(jobq.channel('cancel'), cancel.job_id::text);
      return 'running';
    end if;
    select f.state into ended from jobq.finished f where f.id = cancel.job_id;
    if found then
      return ended;
    end if;
  end loop;
  return null;
end $$;

-- requeue makes a finished or scheduled job available now, with at least one
-- attempt left. It returns the job's state afterwards, or null when there is
-- no such job. A running job cannot be requeued, nor one whose args are gone, nor
-- one whose unique key another unfinished job holds.
create or replace function jobq.requeue(job_id bigint) returns jobq.job_state
  language plpgsql
  as $$
declare
  kinds text[];
  keys text[];
  holder bigint;
begin
  if job_id is null then
    raise sqlstate 'JQ001' using message = 'job_id must not be null';
  end if;
  for round in 1..3 loop
    -- The key before the row: see unique_keys_take.
    select array[f.kind], array[f.unique_key] into kinds, keys
      from jobq.finished f where f.id = requeue.job_id and f.unique_key is not null;
    if found then
      holder := jobq.unique_key_take(kinds[1], keys[1], requeue.job_id);
      if holder <> requeue.job_id then
        raise sqlstate 'JQ004' using
          message = format('unique_key %L of kind %L is held by unfinished job %s', keys[1], kinds[1], holder);
      end if;
    end if;
    with taken as (
      delete from jobq.finished f where f.id = requeue.job_id
        returning f.id, f.lease_token, f.created_at, f.timeout, f.backoff_base, f.backoff_max, f.priority, f.attempts,
          f.max_attempts, f.crashes, f.args_apart, f.queue, f.kind, f.args, f.unique_key, f.last_error,
          f.checkpoint, f.metadata, f.tags
    )
    insert into jobq.pending
        (id, lease_token, run_at, created_at, timeout, backoff_base, backoff_max, priority, attempts, max_attempts,
         crashes, args_apart, queue, kind, args, unique_key, last_error, checkpoint, metadata, tags)
      select t.id, t.lease_token, clock_timestamp(), t.created_at, t.timeout, t.backoff_base, t.backoff_max, t.priority,
          least(t.attempts, 32766), greatest(t.max_attempts, least(t.attempts, 32766) + 1), t.crashes, t.args_apart,
          t.queue, t.kind, t.args, t.unique_key, t.last_error, t.checkpoint, t.metadata, t.tags
        from taken t;
    if found then
      perform jobq.args_require(requeue.job_id);
      return 'available';
    end if;
    if keys is not null then -- somebody else has requeued or deleted it since
      perform jobq.unique_keys_release(kinds, keys, array[requeue.job_id]);
    end if;
    update jobq.pending p set run_at = clock_timestamp(), position = nextval('jobq.position_seq')
      where p.id = requeue.job_id and p.position is null;
    if found then
      perform jobq.wake('work', (select p.queue from jobq.pending p where p.id = requeue.job_id));
      return 'available';
    end if;
    if exists (select from jobq.pending p where p.id = requeue.job_id) then
      return 'available';
    end if;
    if exists (select from jobq.running r where r.id = requeue.job_id) then
      raise sqlstate 'JQ003' using
        message = format('job %s is running', requeue.job_id),
        hint = 'Cancel it first, or let it end.';
    end if;
  end loop;
  return null;
end $$;

-- delete_job removes a job that does not run, and says whether there was one.
-- Its latest 10,000 attempts go with it; older ones, which only a job that has
-- snoozed for days can have, go with retention. (DELETE is reserved, hence the name.)
create or replace function jobq.delete_job(job_id bigint) returns boolean
  language plpgsql
  as $$
declare
  deleted boolean := false;
  held_kind text;
  held_key text;
begin
  if job_id is null then
    raise sqlstate 'JQ001' using message = 'job_id must not be null';
  end if;
  for round in 1..3 loop
    delete from jobq.pending p where p.id = delete_job.job_id returning p.kind, p.unique_key into held_kind, held_key;
    deleted := found;
    if deleted then
      delete from jobq.unique_key u where u.kind = held_kind and u.key = held_key and u.job_id = delete_job.job_id;
    else
      delete from jobq.finished f where f.id = delete_job.job_id;
      deleted := found;
    end if;
    exit when deleted;
    if exists (select from jobq.running r where r.id = delete_job.job_id) then
      raise sqlstate 'JQ003' using
        message = format('job %s is running', delete_job.job_id),
        hint = 'Cancel it first, or let it end.';
    end if;
  end loop;
  if deleted then
    delete from jobq.payload a where a.job_id = delete_job.job_id;
    delete from jobq.attempt t
      where t.job_id = delete_job.job_id and t.lease_token >= coalesce((
        select a.lease_token from jobq.attempt a where a.job_id = delete_job.job_id
          order by a.lease_token desc offset 9999 limit 1), 0);
  end if;
  return deleted;
end $$;

-- partition_add makes the partition of a day of finished or attempt, if it is
-- not there. It is made apart and then attached, which keeps finishers waiting
-- only for a moment. A day of which the default partition has rows stays there:
-- there may be millions, and finishers would wait while they move. It runs as the
-- owner, who alone may do that; so do partition_prune, payload_prune and
-- default_prune.
create or replace function jobq.partition_add(parent text, day date) returns boolean
  language plpgsql security definer set search_path = pg_catalog, pg_temp
  as $$
declare
  name text := parent || '_' || to_char(day, 'YYYYMMDD');
  low timestamptz := day::timestamp at time zone 'UTC';
  high timestamptz := (day + 1)::timestamp at time zone 'UTC';
  caught boolean;
begin
  if parent not in ('finished', 'attempt') then
    raise sqlstate 'JQ001' using message = format('no partitioned table %L', parent);
  end if;
  if to_regclass(format('jobq.%I', name)) is not null then
    return false;
  end if;
  -- Those who make and drop days take turns; nobody else waits for this lock.
  execute format('lock table jobq.%I in share update exclusive mode', parent);
  if to_regclass(format('jobq.%I', name)) is not null then
    return false;
  end if;
  execute format('select exists (select from jobq.%I where finished_at >= %L and finished_at < %L)', parent || '_default', low, high)
    into caught;
  if caught then
    return false;
  end if;
  perform jobq.partition_yield(null, array[format('jobq.%I', parent || '_default')]::regclass[]);
  begin
    execute format('create table jobq.%I (like jobq.%I including defaults including constraints)', name, parent);
    -- It locks the default partition, and reads it once more.
    execute format('alter table jobq.%I attach partition jobq.%I for values from (%L) to (%L)', parent, name, low, high);
  exception when check_violation then -- caught since
    return false;
  end;
  return true;
end $$;

revoke execute on function
  jobq.unique_keys_release, jobq.cancel, jobq.requeue, jobq.delete_job, jobq.partition_add
  from public;
