-- The days of the history: made ahead, kept as long as each queue wants, and dropped.

-- partition_yield raises the error of a lock timeout if a transaction older than a second, such as pg_dump's, has a
-- lock on one of the tables. Whoever waits for a table to be theirs alone makes everybody wait who comes later, so it
-- is better not to begin. The owner of jobq may not be allowed to see how old the transactions of other roles are: then
-- a transaction counts as old if it uses the table `rare`, as hardly any other does.
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
    raise lock_not_available
        using message = format('table %s is in use by session %s (%s)', holder.name, holder.pid, holder.application);
  end if;
end $$;

-- partition_add makes the partition of a day of run, past_lease or attempt, if it does not exist. It makes a table and
-- then attaches it, so that ends of jobs wait only for a moment. If the default partition has rows of the day, they
-- stay there and the day gets no partition: there may be millions of them, and ends would wait while they move.
--
-- It runs with its owner's rights, because only the owner may do this. So do partition_prune, payload_prune,
-- default_prune, history_sweep and history_analyze.
create function jobq.partition_add(parent text, day date) returns boolean
  language plpgsql security definer set search_path = pg_catalog, pg_temp
  as $$
declare
  name text := parent || '_' || to_char(day, 'YYYYMMDD');
  key text := case parent when 'run' then 'lease_id' when 'past_lease' then 'id' when 'attempt' then 'finished_at' end;
  low text := jobq.lease_day(day);
  high text := jobq.lease_day(day + 1);
  caught boolean;
begin
  if key is null then
    raise sqlstate 'JQ001' using message = format('no partitioned table %L', parent);
  end if;
  if parent = 'attempt' then
    low := day::timestamp at time zone 'UTC';
    high := (day + 1)::timestamp at time zone 'UTC';
  end if;
  if to_regclass(format('jobq.%I', name)) is not null then
    return false;
  end if;
  -- Those who make and drop days take turns; nobody else waits for this lock. Not
  -- on the days: it would be refused while one of them is vacuumed.
  execute format('lock table only jobq.%I in share update exclusive mode', parent);
  if to_regclass(format('jobq.%I', name)) is not null then
    return false;
  end if;
  execute format('select exists (select from jobq.%I where %I >= %L and %2$I < %L)', parent || '_default', key, low,
      high) into caught;
  if caught then
    return false;
  end if;
  perform jobq.partition_yield(null, array[format('jobq.%I', parent || '_default')]::regclass[]);
  begin
    execute format('create table jobq.%I (like jobq.%I including defaults including constraints including storage)',
        name, parent);
    if (select c.relreplident from pg_class c where c.oid = format('jobq.%I', parent)::regclass) = 'f' then
      execute format('alter table jobq.%I replica identity full', name); -- see the table run
    end if;
    -- It locks the default partition, and reads it once more.
    execute format('alter table jobq.%I attach partition jobq.%I for values from (%L) to (%L)', parent, name, low,
        high);
  exception when check_violation then -- caught since
    return false;
  end;
  return true;
end $$;
-- For partition_add, default_prune, day_needed and export_first.
create index run_default_place_idx on jobq.run_default (lease_id, id);

-- kept_for is a retention within its limits, 1 day and 10 years, whatever a row says. Arithmetic with a longer one
-- would fail, and each sweep with it.
create function jobq.kept_for(retention interval) returns interval
  language sql immutable parallel safe
  return least(greatest(retention, interval '1 day'), interval '10 years');

-- retention_of is for how long a job of a queue is kept that has ended in this state; null, as in run, is a plain
-- success. What failed or was cancelled is kept for as long as its queue says of such jobs, or of all its jobs, or as
-- the setting says. The planner inlines the function. Needs queue_pkey.
create function jobq.retention_of(of_queue text, of_state jobq.job_state) returns table (retention interval)
  language sql stable rows 1
  begin atomic
    select jobq.kept_for(case when of_state <> 'completed'
        then coalesce(q.failed_retention, q.retention, s.failed_retention, s.finished_retention)
        else coalesce(q.retention, s.finished_retention) end)
      from jobq.setting s
      left join lateral (
        select x.retention, x.failed_retention from jobq.queue x where x.name = of_queue limit 1) q on true;
  end;

-- keep_from is the time before which a job must have ended to be removed, for queues and states without a retention of
-- their own.
create function jobq.keep_from() returns timestamptz
  language sql stable
  return statement_timestamp() - (select jobq.kept_for(s.finished_retention) from jobq.setting s);

-- retention_span is the shortest and the longest time for which finished jobs of any queue and state are
-- kept. Both are finished_retention if there is no failed_retention, and no queue has a retention of its
-- own. Needs queue_retention_idx.
create function jobq.retention_span(out shortest interval, out longest interval)
  language sql stable set enable_seqscan = off set jit = off
  as $$
    select jobq.kept_for(least(s.finished_retention, s.failed_retention, q.shortest)),
        jobq.kept_for(greatest(s.finished_retention, s.failed_retention, q.longest))
      from jobq.setting s
      cross join (
        select least(min(x.retention), min(x.failed_retention)) as shortest,
            greatest(max(x.retention), max(x.failed_retention)) as longest
          from jobq.queue x where x.retention is not null or x.failed_retention is not null
      ) q
  $$;

-- keep_from_day is the first day whose leases may hold a job that ended less than a retention ago; the default is
-- finished_retention. If days are kept until they are exported, it is the first day that was not, if that is earlier.
--
-- A job whose end is stored with its lease ends within 33 seconds of the claim, so at most on the next day: hence the
-- minute that is subtracted. A later end is stored in the job's own row (day_needed).
create function jobq.keep_from_day(retention interval default null) returns date
  language sql stable
  return (select least(((statement_timestamp() - jobq.kept_for(coalesce(retention, s.finished_retention))
      - interval '1 minute') at time zone 'UTC')::date,
    case when s.keep_until_exported then s.exported_before end) from jobq.setting s);

-- day_needed says whether a day that is to be dropped must stay. A day of run stays if one of its leases
-- is held, if one of its jobs ended within the longest retention, or if there are dependencies on its
-- jobs, which stay while the child is unfinished (dependency_prune). So a job that runs for weeks keeps its
-- day. A day of past_lease stays while its jobs are visible.
--
-- It asks for the last end, which is an index look-up whatever the statistics say. If it asked for any end
-- since some time, the planner might read the whole day.
create function jobq.day_needed(parent text, day date) returns boolean
  language plpgsql stable
  as $$
declare
  low bigint := jobq.lease_day(day);
  high bigint := jobq.lease_day(day + 1);
  name text := 'run_' || to_char(day, 'YYYYMMDD');
  needed boolean := false;
begin
  if parent = 'run' then
    execute format($sql$
      select exists (select from jobq.lease l where l.id >= $1 and l.id < $2)
        or coalesce((select r.finished_at from jobq.%1$I r where r.state = 'completed'
            order by r.finished_at desc limit 1) >= $3, false)
        or coalesce((select r.finished_at from jobq.%1$I r where r.state <> 'completed'
            order by r.finished_at desc limit 1) >= $3, false)
        or exists (select from jobq.dependency d where d.parent_lease >= $1 and d.parent_lease < $2)
    $sql$, name) using low, high, statement_timestamp() - (select t.longest from jobq.retention_span() t) into needed;
  elsif parent = 'past_lease' then
    needed := to_regclass(format('jobq.%I', name)) is not null
      or exists (select from jobq.run_default r where r.lease_id >= low and r.lease_id < high);
  end if;
  return needed;
end $$;

-- partition_prune takes one day out of run, past_lease or attempt: the earliest that is past the longest retention, or
-- of which history_sweep has left nothing. It returns the name of its table, or null if there is no such day. It takes
-- one day a transaction, because its lock makes ends of jobs wait. It gives up at once if a transaction older than a
-- second, such as pg_dump's, uses that day or its parent table (partition_yield).
--
-- A day of past_lease or attempt is dropped. A day of run becomes a table of its own, in which nobody finds its jobs
-- any more. payload_prune removes the large args of its jobs in steps, and then drops it. The table is renamed, from
-- run_20261101 to run_20261101_past, so that payload_prune can tell it from a day that an operator has detached in
-- order to keep it.
--
-- A day counts as empty if its file is empty: autovacuum truncates the file when all is deleted, and a search for rows
-- would read the whole file. The leases of a day go with its last jobs.
create function jobq.partition_prune(parent text) returns text
  language plpgsql security definer set search_path = pg_catalog, pg_temp
  as $$
declare
  old record;
  -- days before this one go as a whole
  all_before date := jobq.keep_from_day((select t.longest from jobq.retention_span() t));
begin
  if parent not in ('run', 'past_lease', 'attempt') then
    raise sqlstate 'JQ001' using message = format('no partitioned table %L', parent);
  end if;
  for old in
    select c.oid, c.relname as name, to_date(right(c.relname, 8), 'YYYYMMDD') as day
      from pg_inherits i
      join pg_class c on c.oid = i.inhrelid
      where i.inhparent = format('jobq.%I', parent)::regclass
        and c.relname ~ ('^' || parent || '_[0-9]{8}$')
        and right(c.relname, 8) < to_char(jobq.keep_from_day(), 'YYYYMMDD')
        and to_regclass(format('jobq.%I', c.relname || '_past')) is null -- else it waits until that one is dropped
      order by 2
  loop
    continue when old.day >= all_before and parent <> 'past_lease' and pg_relation_size(old.oid) > 0;
    continue when jobq.day_needed(parent, old.day);
    execute format('lock table only jobq.%I in share update exclusive mode', parent); -- see partition_add
    -- another session was faster
    continue when not exists (select from pg_class c where c.oid = old.oid and c.relispartition);
    perform jobq.partition_yield(old.oid::regclass,
      array[format('jobq.%I', parent), format('jobq.%I', parent || '_default')]::regclass[]);
    -- An undo may have put a job back into the day since, which is to be exported again:
    -- nobody does from here on. Or days are to be kept until they are exported.
    execute format('lock table only jobq.%I in access exclusive mode', parent);
    all_before := jobq.keep_from_day((select t.longest from jobq.retention_span() t));
    if old.day >= jobq.keep_from_day() or jobq.day_needed(parent, old.day)
        or old.day >= all_before and parent <> 'past_lease' and pg_relation_size(old.oid) > 0 then
      return null;
    end if;
    if parent = 'run' then
      delete from jobq.sweep w where w.day = old.day;
      execute format('alter table jobq.run detach partition jobq.%I', old.name);
      execute format('alter table jobq.%I rename to %I', old.name, old.name || '_past');
    else
      execute format('drop table jobq.%I', old.name);
    end if;
    return old.name;
  end loop;
  return null;
end $$;

-- payload_prune removes the large args of jobs of the earliest day that partition_prune has taken out. A call removes
-- those of at most payload_count jobs, and looks at job_count jobs at most, in the order of their ids, after the given
-- job of the given day. If another day is the earliest now, it begins with that day's first job. It returns the place
-- where the next call goes on, and how many payloads it has removed. If the day has no more jobs it drops the day, and
-- returns no job. It returns no day if there is none.
--
-- Example: with a day of 25,000 jobs and a job_count of 10,000, the first three calls look at 10,000, 10,000 and 5,000
-- jobs, and the fourth drops the day.
--
-- Only a table with the name that partition_prune gives is such a day. A table run_20261101 that is not a partition
-- belongs to an operator, and stays.
create function jobq.payload_prune(after_day text, after_job bigint, job_count integer, payload_count integer)
  returns table (day text, last_job bigint, removed bigint)
  language plpgsql security definer set search_path = pg_catalog, pg_temp
  as $$
begin
  select c.relname into day
    from pg_class c
    where c.relnamespace = (select p.relnamespace from pg_class p where p.oid = 'jobq.run'::regclass)
      and c.relkind = 'r' and not c.relispartition and c.relname ~ '^run_[0-9]{8}_past$'
    order by 1
    limit 1;
  if day is null then
    return;
  end if;
  begin
    execute format($sql$
      with looked as materialized (
        select r.id, r.args_apart,
            count(*) filter (where r.args_apart) over (order by r.id rows unbounded preceding) as payloads
          from jobq.%I r
          where r.id > $1
          order by r.id
          limit $2
      ), taken as (
        select l.id, l.args_apart from looked l where l.payloads <= $3
      ), gone as (
        delete from jobq.payload a
          where a.job_id = any(array(select t.id from taken t where t.args_apart))
          returning a.job_id
      )
      select (select max(t.id) from taken t), (select count(*) from gone)
    $sql$, day)
      using case when day = after_day then after_job else 0 end, job_count, payload_count
      into last_job, removed;
    if last_job is null then
      execute format('drop table jobq.%I', day);
    end if;
  exception when undefined_table then -- another session was faster
    last_job := null;
    removed := 0;
  end;
  return next;
end $$;

-- attempts_forget deletes the attempts of jobs that were deleted: created has when each job was added, and ended_before
-- when all of them had ended. An attempt is in the partition of the day on which it ended, so the query is planned for
-- the days between. For 1,000 jobs of one day, most of which were added shortly before, these are two or three days;
-- jobs that were added long ago cost more.
create function jobq.attempts_forget(jobs bigint[], created timestamptz[], ended_before timestamptz) returns void
  language plpgsql security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off
      set enable_bitmapscan = off set jit = off
  as $$
declare
  part record;
begin
  for part in
    select array_agg(j.id) as ids, min(j.created_at) as since
      from unnest(jobs, created) j(id, created_at)
      group by j.created_at >= ended_before - interval '3 days'
  loop
    execute format($sql$
      delete from jobq.attempt a where a.job_id = any($1) and a.finished_at >= %L and a.finished_at < %L
    $sql$, part.since - interval '1 minute', ended_before) using part.ids;
  end loop;
end $$;

-- retention_changed makes history_sweep look again through days that are past a retention that has changed.
-- No day is looked through until it commits: otherwise the sweep of a day would go on with the retention of
-- before.
create function jobq.retention_changed() returns trigger
  language plpgsql security definer set search_path = pg_catalog, pg_temp
  as $$
declare
  own_retention interval; -- of a queue; null: as of all
  own_failed_retention interval;
begin
  lock table jobq.sweep in exclusive mode;
  if tg_relid = 'jobq.queue'::regclass and tg_op <> 'DELETE' then
    own_retention := new.retention;
    own_failed_retention := new.failed_retention;
  end if;
  update jobq.sweep w set again_at = clock_timestamp()
    from jobq.setting s
    where w.day < ((statement_timestamp() - least(coalesce(own_retention, s.finished_retention),
        coalesce(own_failed_retention, own_retention, s.failed_retention,
            s.finished_retention))) at time zone 'UTC')::date;
  return null;
end $$;
create trigger retention_changed after update of finished_retention, failed_retention on jobq.setting
  for each row when (old.finished_retention is distinct from new.finished_retention
      or old.failed_retention is distinct from new.failed_retention)
  execute function jobq.retention_changed();
create trigger retention_changed after update of retention, failed_retention on jobq.queue
  for each row when (old.retention is distinct from new.retention
      or old.failed_retention is distinct from new.failed_retention)
  execute function jobq.retention_changed();
create trigger retention_added after insert on jobq.queue
  for each row when (new.retention is not null or new.failed_retention is not null)
      execute function jobq.retention_changed();
create trigger retention_removed after delete on jobq.queue
  for each row when (old.retention is not null or old.failed_retention is not null)
      execute function jobq.retention_changed();

-- run_default_prune is default_prune for run. Attempts go with their jobs if some queues or states are kept for longer
-- than others; otherwise their own days end at the same time.
create function jobq.run_default_prune(after bigint, after_job bigint, row_count integer)
  returns table (looked bigint, last bigint, last_job bigint)
  language plpgsql
  as $$
declare
  span record;
  gone_ids bigint[];
  gone_created timestamptz[];
begin
  select t.shortest, t.longest into span from jobq.retention_span() t;
  with page as materialized (
    select x.ctid as place, x.id, x.lease_id, x.slot, x.finished_at, x.queue, x.state
      from jobq.run_default x
      where (x.lease_id, x.id) > (run_default_prune.after, run_default_prune.after_job)
        and x.lease_id < (select jobq.lease_day(jobq.keep_from_day(span.shortest)))
      order by x.lease_id, x.id
      limit run_default_prune.row_count
  ), old as materialized (
    select l.place
      from page p
      cross join lateral jobq.retention_of(p.queue, p.state) k
      cross join lateral jobq.run_end(p.lease_id, p.slot, p.finished_at) e
      cross join lateral (select x.ctid as place from jobq.run_default x
          where x.ctid = p.place for update skip locked) l
      where e.ended_at < statement_timestamp() - k.retention
        and not exists (select from jobq.dependency d where d.parent = p.id and d.parent_lease = p.lease_id)
  ), gone as (
    delete from jobq.run_default r where r.ctid = any(array(select o.place from old o))
        returning r.id, r.args_apart, r.created_at
  ), args_gone as (
    delete from jobq.payload a where a.job_id = any(array(select g.id from gone g where g.args_apart))
  )
  select count(*), max(p.lease_id), (select p.id from page p order by p.lease_id desc, p.id desc limit 1),
      (select array_agg(g.id) from gone g), (select array_agg(g.created_at) from gone g)
    into looked, last, last_job, gone_ids, gone_created from page p;
  if span.shortest < span.longest then
    perform jobq.attempts_forget(gone_ids, gone_created, statement_timestamp());
  end if;
  return next;
end $$;

-- default_prune deletes rows of the default partition of run, past_lease or attempt that are past the retention of
-- their queue and state. Attempts go with their jobs, and at the latest after the longest retention. The large args of
-- jobs go with them.
--
-- A call looks at up to row_count rows of days before keep_from_day, after the given place (of attempts, from it on):
-- in the order of lease and job, or of finished_at as microseconds since 1970. It returns how many rows it has looked
-- at, and the place of the last one, where the next call begins. Without the place, the next call would read what this
-- one has deleted, for as long as any transaction can still see that, and all rows that stay because their jobs run or
-- ended later.
--
-- The statement that deletes also reads what must be kept. So if a transaction brings a row back, such as an undo, and
-- says that the row's day is to be exported again, both are seen or neither.
create function jobq.default_prune(parent text, after bigint, after_job bigint, row_count integer)
  returns table (looked bigint, last bigint, last_job bigint)
  language plpgsql security definer set search_path = pg_catalog, pg_temp
  as $$
begin
  if parent = 'attempt' then
    with gone as (
      delete from jobq.attempt_default t
        where t.ctid = any(array(
          select x.ctid from jobq.attempt_default x
            where x.finished_at >= timestamptz 'epoch' + default_prune.after * interval '1 microsecond'
              and x.finished_at < (select jobq.keep_from_day(t.longest) from jobq.retention_span() t)::timestamp
                at time zone 'UTC'
            order by x.finished_at limit default_prune.row_count for update skip locked))
        returning t.finished_at
    )
    select count(*), (extract(epoch from max(g.finished_at)) * 1000000)::bigint, 0 into looked, last, last_job
        from gone g;
  elsif parent = 'run' then
    select p.looked, p.last, p.last_job into looked, last, last_job
      from jobq.run_default_prune(after, after_job, row_count) p;
  elsif parent = 'past_lease' then
    with page as materialized (
      select x.id from jobq.past_lease_default x
        where x.id > default_prune.after and x.id < (select jobq.lease_day(jobq.keep_from_day()))
        order by x.id
        limit default_prune.row_count
    ), gone as (
      delete from jobq.past_lease_default l
        where l.id = any(array(
          select p.id from page p
            where not exists (select from jobq.run_default r where r.lease_id = p.id)
              and to_regclass(format('jobq.run_%s', to_char(date '2026-01-01' + (p.id >> 40)::integer, 'YYYYMMDD')))
                  is null))
    )
    select count(*), max(p.id), 0 into looked, last, last_job from page p;
  else
    raise sqlstate 'JQ001' using message = format('no partitioned table %L', parent);
  end if;
  last := coalesce(last, after);
  last_job := coalesce(last_job, after_job);
  return next;
end $$;

-- history_analyze makes the statistics of run as a whole, if it is time, and says whether it did. Autovacuum makes
-- statistics of each day, but never of the whole: then the planner does not know that many jobs have the same lease,
-- and lists look up the lease of each job one by one. The queries of jobq need no other statistics of the whole, so the
-- lease is the only column.
--
-- It is time if there are 1,000 rows or more, and either no statistics, or statistics as old as `every`, or ten times
-- as many rows as then. It looks for the statistics themselves, too, because PostgreSQL keeps the time of an analyze
-- that was rolled back.
--
-- An analyze of the whole makes statistics of each day as well. It reads at most 300 pages of each day, and of the
-- whole, for each 1 of the statistics target. So the target is smaller the more days there are. A day that is being
-- vacuumed is left out.
create function jobq.history_analyze(every interval) returns boolean
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp set default_statistics_target = 10 set client_min_messages = error
  as $$
declare
  now_rows float8; -- as far as it is known without counting
  day_count bigint;
  known_rows float8;
  analyzed_at timestamptz;
begin
  select sum(greatest(pg_stat_get_live_tuples(d.oid), d.reltuples)), count(*) into now_rows, day_count
    from pg_inherits i
    join pg_class d on d.oid = i.inhrelid
    where i.inhparent = 'jobq.run'::regclass;
  select w.reltuples, pg_stat_get_last_analyze_time(w.oid) into known_rows, analyzed_at
    from pg_class w
    join pg_namespace n on n.oid = w.relnamespace
    join pg_stats s on s.schemaname = n.nspname and s.tablename = w.relname and s.inherited and s.attname = 'lease_id'
    where w.oid = 'jobq.run'::regclass;
  if now_rows < 1000 or analyzed_at > clock_timestamp() - every and now_rows < 10 * known_rows then
    return false;
  end if;
  perform set_config('default_statistics_target', greatest(1, least(10, 100 / day_count))::text, true);
  lock table only jobq.run in share update exclusive mode; -- see partition_add
  analyze (skip_locked) jobq.run (lease_id);
  return true;
end $$;

-- The first days. The janitor makes the others ahead of need.
select jobq.partition_add(parent, (now() at time zone 'UTC')::date + ahead)
  from unnest(array['run', 'past_lease', 'attempt']) as parent, generate_series(0, 3) as ahead;
