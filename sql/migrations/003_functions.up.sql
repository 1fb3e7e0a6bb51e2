-- The SQL interface for any language, and what the worker, the janitor and
-- the operator share. docs/sql.md documents the public part.
set local lock_timeout = '5s';

-- The job as people see it, whatever stage it is in.
create view jobq.job as
  select p.id, case when p.position is null then 'scheduled' else 'available' end::jobq.job_state as state,
      p.queue, p.kind, p.priority, p.attempts, p.max_attempts, p.crashes, p.lease_token, p.run_at, p.created_at,
      null::timestamptz as started_at, null::timestamptz as finished_at, null::text as lease_owner,
      null::timestamptz as lease_expires_at, null::timestamptz as cancel_requested_at,
      null::timestamptz as progressed_at, null::real as progress_percent, null::text as progress_stage,
      null::text as progress_message, p.timeout, p.backoff_base, p.backoff_max, p.unique_key, p.last_error, p.clear_reason, p.tags,
      p.metadata, coalesce(p.args, (select a.args from jobq.payload a where a.job_id = p.id)) as args,
      p.checkpoint, null::jsonb as result
    from jobq.pending p
  union all
  select r.id, 'running'::jobq.job_state,
      r.queue, r.kind, r.priority, r.attempts, r.max_attempts, r.crashes, r.lease_token, r.run_at, r.created_at,
      r.started_at, null, r.lease_owner,
      r.lease_expires_at, r.cancel_requested_at,
      r.progressed_at, r.progress_percent, r.progress_stage,
      r.progress_message, r.timeout, r.backoff_base, r.backoff_max, r.unique_key, r.last_error, r.clear_reason, r.tags,
      r.metadata, coalesce(r.args, (select a.args from jobq.payload a where a.job_id = r.id)),
      r.checkpoint, null
    from jobq.running r
  union all
  select f.id, f.state,
      f.queue, f.kind, f.priority, f.attempts, f.max_attempts, f.crashes, f.lease_token, f.run_at, f.created_at,
      f.started_at, f.finished_at, f.lease_owner,
      null, null,
      null, null, null,
      null, f.timeout, f.backoff_base, f.backoff_max, f.unique_key, f.last_error, null, f.tags,
      f.metadata, coalesce(f.args, (select a.args from jobq.payload a where a.job_id = f.id)),
      f.checkpoint, f.result
    from jobq.finished f;

-- Charts read this: what is rolled up, and what is not yet.
create view jobq.stats as
  select s.minute, s.queue, s.kind, sum(s.completed)::bigint as completed, sum(s.failed)::bigint as failed,
      sum(s.retried)::bigint as retried, sum(s.lost)::bigint as lost, sum(s.cancelled)::bigint as cancelled,
      sum(s.run_seconds) as run_seconds, sum(s.wait_seconds) as wait_seconds
    from (
      select minute, queue, kind, completed, failed, retried, lost, cancelled, run_seconds, wait_seconds from jobq.stat
      union all
      select minute, queue, kind, completed, failed, retried, lost, cancelled, run_seconds, wait_seconds from jobq.stat_delta
    ) s
    group by s.minute, s.queue, s.kind;

-- enqueue adds one job and returns its id. With a unique_key that an
-- unfinished job of the kind holds, it adds nothing and returns that job's id.
-- Every argument but kind may be left out or null, which means its default.
-- With its owner's rights: whoever chooses ids himself could choose one that a
-- running job has, and then neither row could move.
create function jobq.enqueue(
  kind         text,
  args         jsonb       default null,
  queue        text        default null,
  priority     integer     default null,
  run_at       timestamptz default null,
  max_attempts integer     default null,
  unique_key   text        default null,
  timeout      interval    default null,
  backoff_base interval    default null,
  backoff_max  interval    default null,
  tags         text[]      default null,
  metadata     jsonb       default null
) returns bigint
  language plpgsql security definer set search_path = pg_catalog, pg_temp
  as $$
declare
  job_id bigint := nextval('jobq.job_id_seq');
  holder bigint;
begin
  if enqueue.priority not between -32768 and 32767 then
    raise numeric_value_out_of_range using message = format('priority must be -32768 to 32767, not %s', enqueue.priority);
  end if;
  if enqueue.max_attempts not between 1 and 32767 then
    raise numeric_value_out_of_range using message = format('max_attempts must be 1 to 32767, not %s', enqueue.max_attempts);
  end if;
  if enqueue.unique_key is not null then
    holder := jobq.unique_key_take(enqueue.kind, enqueue.unique_key, job_id);
    if holder <> job_id then
      return holder;
    end if;
  end if;
  insert into jobq.pending
      (id, kind, args, queue, priority, run_at, max_attempts, unique_key, timeout, backoff_base, backoff_max, tags, metadata)
    values (job_id, enqueue.kind, coalesce(enqueue.args, '{}'), coalesce(enqueue.queue, 'default'),
      coalesce(enqueue.priority, 0), coalesce(enqueue.run_at, now()), coalesce(enqueue.max_attempts, 25),
      enqueue.unique_key, enqueue.timeout, enqueue.backoff_base, enqueue.backoff_max, nullif(enqueue.tags, '{}'), enqueue.metadata);
  return job_id;
end $$;

-- enqueue_arrays adds many jobs in one statement, given as columns: element i
-- of each array belongs to job i; null means the default, and so do '' and 0
-- where they are no value of their own. It returns one row per job in the
-- order given. The Go client uses it. Keys are taken in
-- their order, so that two batches with the same keys cannot deadlock.
create function jobq.enqueue_arrays(
  kinds text[], args jsonb[], queues text[], priorities integer[], run_ats timestamptz[], delays interval[],
  max_attempts integer[], unique_keys text[], timeouts interval[], backoff_bases interval[], backoff_maxes interval[],
  tags jsonb[], metadata jsonb[]
) returns table (id bigint, duplicate boolean)
  language plpgsql security definer set search_path = pg_catalog, pg_temp
  as $$
declare
  job_ids bigint[];
  holders bigint[];
  i integer;
begin
  select array_agg(nextval('jobq.job_id_seq')) into job_ids from generate_series(1, cardinality(kinds));
  holders := job_ids;
  if exists (select from unnest(unique_keys) as k(key) where k.key <> '') then
    for i in select k.i from unnest(kinds, unique_keys) with ordinality as k(kind, key, i)
        where k.key <> '' order by k.kind, k.key, k.i loop
      holders[i] := jobq.unique_key_take(kinds[i], unique_keys[i], job_ids[i]);
    end loop;
  end if;
  insert into jobq.pending
      (id, kind, args, queue, priority, run_at, max_attempts, unique_key, timeout, backoff_base, backoff_max, tags, metadata)
    select j.id, j.kind, coalesce(j.args, '{}'), coalesce(nullif(j.queue, ''), 'default'), coalesce(j.priority, 0),
        coalesce(j.run_at, now() + j.delay, now()), coalesce(nullif(j.attempts, 0), 25), nullif(j.key, ''), j.timeout, j.base, j.max,
        case when j.tags is not null then array(select jsonb_array_elements_text(j.tags)) end, j.metadata
      from unnest(job_ids, holders, kinds, args, queues, priorities, run_ats, delays, max_attempts, unique_keys, timeouts,
          backoff_bases, backoff_maxes, tags, metadata)
        as j(id, holder, kind, args, queue, priority, run_at, delay, attempts, key, timeout, base, max, tags, metadata)
      where j.id = j.holder;
  return query select h.holder, h.holder <> h.job_id from unnest(holders, job_ids) as h(holder, job_id);
end $$;

-- enqueue_many adds the jobs of a JSON array of objects, whose members are
-- the arguments of enqueue: [{"kind": "resize", "args": {"id": 1}}, …].
create function jobq.enqueue_many(jobs jsonb) returns table (id bigint, duplicate boolean)
  language plpgsql
  as $$
begin
  if jsonb_typeof(jobs) is distinct from 'array' then
    raise invalid_parameter_value using message = 'jobs must be a JSON array of objects such as {"kind": "resize", "args": {}}';
  end if;
  if exists (
    select from jsonb_to_recordset(jobs) as j(priority numeric, max_attempts numeric)
      where j.priority not between -32768 and 32767 or j.max_attempts not between 1 and 32767
  ) then
    raise numeric_value_out_of_range using message = 'priority must be -32768 to 32767, max_attempts must be 1 to 32767';
  end if;
  -- To enqueue_arrays, empty means the default; to our callers it is a mistake.
  if exists (select from jsonb_to_recordset(jobs) as j(queue text, unique_key text) where j.queue = '' or j.unique_key = '') then
    raise invalid_parameter_value using message = 'queue must be 1 to 128 characters, unique_key must be 1 to 255 characters';
  end if;
  return query
    select e.id, e.duplicate
      from (
        select array_agg(j.kind order by j.i) as kinds, array_agg(j.args order by j.i) as args, array_agg(j.queue order by j.i) as queues,
            array_agg(j.priority order by j.i) as priorities, array_agg(j.run_at order by j.i) as run_ats,
            array_agg(null::interval) as delays, array_agg(j.max_attempts order by j.i) as attempts,
            array_agg(j.unique_key order by j.i) as keys, array_agg(j.timeout order by j.i) as timeouts,
            array_agg(j.backoff_base order by j.i) as bases, array_agg(j.backoff_max order by j.i) as maxes,
            array_agg(j.tags order by j.i) as tags, array_agg(j.metadata order by j.i) as metadata
          from (
            select r.*, x.i
              from jsonb_array_elements(jobs) with ordinality as x(job, i),
                jsonb_to_record(x.job) as r(kind text, args jsonb, queue text, priority integer, run_at timestamptz,
                  max_attempts integer, unique_key text, timeout interval, backoff_base interval, backoff_max interval,
                  tags jsonb, metadata jsonb)
          ) j
      ) a
      cross join lateral jobq.enqueue_arrays(a.kinds, a.args, a.queues, a.priorities, a.run_ats, a.delays, a.attempts,
        a.keys, a.timeouts, a.bases, a.maxes, a.tags, a.metadata) e
      where a.kinds is not null;
end $$;

-- cancel ends a job that waits, and asks the worker of one that runs to stop.
-- It returns the job's state afterwards: cancelled, or running while the
-- worker has yet to obey, or the state in which the job had ended before;
-- null when there is no such job.
create function jobq.cancel(job_id bigint) returns jobq.job_state
  language plpgsql
  as $$
declare
  ended jobq.job_state;
begin
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

-- args_require raises unless the large args of a job that is to run again are
-- still there: retention removes them before the day of the job. It must be a
-- statement of its own, after the job is taken, to see what was removed meanwhile.
create function jobq.args_require(job_id bigint) returns void
  language plpgsql
  as $$
begin
  if exists (
    select from jobq.pending p
      where p.id = args_require.job_id and p.args_apart
        and not exists (select from jobq.payload a where a.job_id = p.id)
  ) then
    raise object_not_in_prerequisite_state using
      message = format('job %s: its args have been removed by retention (they were over 1000 bytes): enqueue it anew', args_require.job_id);
  end if;
end $$;

-- requeue makes a finished or scheduled job available now, with at least one
-- attempt left. It returns the job's state afterwards, or null when there is
-- no such job. A running job cannot be requeued, nor one whose args are gone.
create function jobq.requeue(job_id bigint) returns jobq.job_state
  language plpgsql
  as $$
begin
  for round in 1..3 loop
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
      raise object_not_in_prerequisite_state using
        message = format('job %s is running', requeue.job_id),
        hint = 'Cancel it first, or let it end.';
    end if;
  end loop;
  return null;
end $$;

-- delete_job removes a job that does not run, with its attempts, and says
-- whether there was one. (DELETE is reserved, hence the name.)
create function jobq.delete_job(job_id bigint) returns boolean
  language plpgsql
  as $$
declare
  deleted boolean := false;
  held_kind text;
  held_key text;
begin
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
      raise object_not_in_prerequisite_state using
        message = format('job %s is running', delete_job.job_id),
        hint = 'Cancel it first, or let it end.';
    end if;
  end loop;
  if deleted then
    delete from jobq.payload a where a.job_id = delete_job.job_id;
    delete from jobq.attempt t where t.job_id = delete_job.job_id;
  end if;
  return deleted;
end $$;

-- How long a job waits after its failures-th bad end: exponential with full
-- jitter (M. Brooker, "Exponential Backoff And Jitter", AWS Architecture
-- Blog, 2015). By default from 1 second, doubled each time, capped at a day.
create function jobq.backoff_delay(failures integer, base interval, cap interval) returns interval
  language sql volatile parallel safe
  return random() * least(
    coalesce(cap, interval '1 day'),
    coalesce(base, interval '1 s') * power(2, least(greatest(failures, 1) - 1, 20)));

-- partition_yield ends the statement at once, as if a lock had not been to be had
-- in time, when a transaction that is older than a second, such as that of
-- pg_dump, has a lock on one of the tables. Whoever waits to have a table for
-- itself makes all wait who come after it, so it is better not to begin. How old
-- the transactions of other roles are, the owner may not see: then one that uses
-- the table `rare`, as hardly anybody does, counts as old.
create function jobq.partition_yield(rare regclass, busy regclass[]) returns void
  language plpgsql security definer set search_path = pg_catalog, pg_temp
  as $$
declare
  holder record;
begin
  select a.pid, a.application_name as application, l.relation::regclass as name into holder
    from pg_locks l
    join pg_stat_activity a on a.pid = l.pid
    where l.locktype = 'relation' and l.granted and l.pid <> pg_backend_pid() and a.datname = current_database()
      and (l.relation = rare or l.relation = any(busy::oid[]))
      and (a.xact_start < clock_timestamp() - interval '1 s' or a.xact_start is null and l.relation = rare)
    order by a.xact_start
    limit 1;
  if found then
    raise lock_not_available using message = format('table %s is in use by session %s (%s)', holder.name, holder.pid, holder.application);
  end if;
end $$;

-- partition_add makes the partition of a day of finished or attempt, if it is
-- not there. It is made apart and then attached, which keeps finishers waiting
-- only for a moment. A day of which the default partition has rows stays there:
-- there may be millions, and finishers would wait while they move. It runs as the
-- owner, who alone may do that; so do partition_prune and default_prune.
create function jobq.partition_add(parent text, day date) returns boolean
  language plpgsql security definer set search_path = pg_catalog, pg_temp
  as $$
declare
  name text := parent || '_' || to_char(day, 'YYYYMMDD');
  low timestamptz := day::timestamp at time zone 'UTC';
  high timestamptz := (day + 1)::timestamp at time zone 'UTC';
  caught boolean;
begin
  if parent not in ('finished', 'attempt') then
    raise invalid_parameter_value using message = format('no partitioned table %L', parent);
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

-- partition_prune drops the earliest day of finished or attempt that is past
-- retention as a whole, and returns its name, or null when there is none: one a
-- transaction, because the lock that it takes on the parent keeps finishers
-- waiting. It gives up at once while somebody reads that day, as pg_dump does, or
-- has used the parent for long. A day
-- that still owns payload rows waits until those are gone.
create function jobq.partition_prune(parent text) returns text
  language plpgsql security definer set search_path = pg_catalog, pg_temp
  as $$
declare
  keep_from date := ((clock_timestamp() - (select s.finished_retention from jobq.setting s)) at time zone 'UTC')::date;
  old record;
  owns_payload boolean;
begin
  if parent not in ('finished', 'attempt') then
    raise invalid_parameter_value using message = format('no partitioned table %L', parent);
  end if;
  for old in
    select c.relname as name
      from pg_inherits i
      join pg_class c on c.oid = i.inhrelid
      where i.inhparent = format('jobq.%I', parent)::regclass
        and c.relname ~ (parent || '_[0-9]{8}$') and right(c.relname, 8) < to_char(keep_from, 'YYYYMMDD')
      order by 1
  loop
    execute format('lock table jobq.%I in share update exclusive mode', parent); -- see partition_add
    continue when to_regclass(format('jobq.%I', old.name)) is null; -- another session was faster
    if parent = 'finished' then
      execute format(
        'select exists (select from jobq.%I f where f.args_apart and exists (select from jobq.payload a where a.job_id = f.id))',
        old.name) into owns_payload;
      continue when owns_payload;
    end if;
    perform jobq.partition_yield(format('jobq.%I', old.name)::regclass,
      array[format('jobq.%I', parent), format('jobq.%I', parent || '_default')]::regclass[]);
    execute format('drop table jobq.%I', old.name);
    return old.name;
  end loop;
  return null;
end $$;

-- default_prune deletes so many rows at most that the default partition of
-- finished or attempt has of days past retention, and returns how many it
-- deleted. A job that still owns a payload row waits until that is gone.
create function jobq.default_prune(parent text, row_count integer) returns bigint
  language plpgsql security definer set search_path = pg_catalog, pg_temp
  as $$
declare
  keep_from date := ((clock_timestamp() - (select s.finished_retention from jobq.setting s)) at time zone 'UTC')::date;
  deleted bigint;
begin
  if parent not in ('finished', 'attempt') then
    raise invalid_parameter_value using message = format('no partitioned table %L', parent);
  end if;
  execute format(
    'delete from jobq.%1$I where ctid = any (array(select f.ctid from jobq.%1$I f where f.finished_at < %2$L %3$s limit %4$s))',
    parent || '_default', keep_from::timestamp at time zone 'UTC',
    case when parent = 'finished' then
      'and not (f.args_apart and exists (select from jobq.payload a where a.job_id = f.id))' else '' end,
    row_count);
  get diagnostics deleted = row_count;
  return deleted;
end $$;

-- The first days. The janitor makes the others ahead of need.
select jobq.partition_add(parent, (now() at time zone 'UTC')::date + ahead)
  from unnest(array['finished', 'attempt']) as parent, generate_series(0, 3) as ahead;

-- sql/roles.sql says who may call them.
revoke execute on function
  jobq.enqueue, jobq.enqueue_arrays, jobq.enqueue_many,
  jobq.cancel, jobq.args_require, jobq.requeue, jobq.delete_job, jobq.backoff_delay,
  jobq.partition_yield, jobq.partition_add, jobq.partition_prune, jobq.default_prune
  from public;
