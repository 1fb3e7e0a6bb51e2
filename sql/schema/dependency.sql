-- Jobs that wait for other jobs, their parents: see docs/dependencies.md, and docs/decisions/0024 for the order of
-- commits in each case.

-- Has a value since the first dependency was added. A sequence, because its value is
-- read as it is and not as of a snapshot: until then, whoever ends a job looks at no
-- more than this.
create sequence jobq.dependency_seq as bigint;

-- The child waits for the parent. A row stays when the parent is over, for people and
-- for the results of parents, until the parent's day of the history goes.
create table jobq.dependency (
  child        bigint not null,
  parent       bigint not null,
  parent_lease bigint, -- of the parent's last run, known when that was over: retention keeps its day
  parent_state jobq.job_state, -- null: the child waits for it; else as the parent has ended
  on_failure   text   not null, -- what becomes of the child when the parent fails or is cancelled
  constraint dependency_pkey primary key (child, parent),
  constraint "after_failure must be cancel, run or wait" check (on_failure in ('cancel', 'run', 'wait'))
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000);
comment on table jobq.dependency is 'Which job waits, or has waited, for which: read jobq.parents.';
-- What each end of a job, and the janitor, ask.
create index dependency_open_idx on jobq.dependency (parent, child) where parent_state is null;
-- Whether a child still waits.
create index dependency_waits_idx on jobq.dependency (child, parent) where parent_state is null;
-- For people. Without those that are open: who asks for these alone must not come here, where
-- there may be a history of others.
create index dependency_parent_idx on jobq.dependency (parent, child) where parent_state is not null;
-- For retention.
create index dependency_kept_idx on jobq.dependency (parent_lease, child, parent) where parent_lease is not null;

-- Jobs that the janitor is to look at: parents that are over, new ones that may have
-- ended at the same moment, and jobs that wait and perhaps need not. A row is a hint;
-- what counts is what the rows of the job say.
create table jobq.dependency_look (
  id          bigint      not null generated always as identity,
  look_at     timestamptz not null default clock_timestamp(),
  job_id      bigint      not null,
  after_child bigint      not null default 0, -- its children up to this one have been dealt with
  is_new      boolean     not null default false, -- a dependency on it was added: see dependency_step
  first_at    timestamptz, -- of a new one: when it was looked at first
  sure_from   xid8, -- and in which transaction
  locked      boolean     not null default false, -- some of its children were
  ended       jobq.job_state, -- of one that was deleted: how it had ended
  constraint dependency_look_pkey primary key (id)
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);
comment on table jobq.dependency_look is 'Jobs at whose ends, and children, a janitor is to look.';
create index dependency_look_due_idx on jobq.dependency_look (look_at, id);
create index dependency_look_ended_idx on jobq.dependency_look (job_id) where ended is not null;

-- look_soon makes the janitor look at these jobs when the transaction is committed. ended is how deleted jobs had
-- ended. PostgreSQL merges equal notifications of a transaction: all of one second are one notification, and the
-- janitor begins its looks 2 s earlier.
create function jobq.look_soon(jobs bigint[], is_new boolean default false, ended jobq.job_state default null)
    returns void
  language plpgsql security definer set search_path = pg_catalog, pg_temp
  as $$
begin
  if cardinality(jobs) > 0 then
    insert into jobq.dependency_look (job_id, is_new, ended) select j.id, look_soon.is_new, look_soon.ended
        from unnest(jobs) as j(id);
    perform jobq.notify('due', extract(epoch from date_trunc('second', clock_timestamp()))::text);
  end if;
end $$;

-- parents_ended makes the janitor look at those of these jobs for which others wait. With slots, only the jobs at these
-- places of the array count. as_ended is how deleted jobs had ended.
--
-- Once any dependency was ever added, it is called for plain ends and for jobs that end before they have begun;
-- run_parents_ended does the same for all other ends. It writes no row of another job, so it waits for nobody.
--
-- It sees each dependency that was committed before. Who commits a dependency later finds this transaction open, or
-- ended, since it has its id already (dependency_step). In a transaction with an older snapshot, the janitor looks at
-- all the jobs.
create function jobq.parents_ended(jobs bigint[], slots smallint[] default null, as_ended jobq.job_state default null)
    returns void
  language plpgsql security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off set jit = off
  as $$
declare
  ended bigint[] := case when slots is null then jobs else array(select jobs[s] from unnest(slots) s) end;
  low bigint;
  high bigint;
begin
  if current_setting('transaction_isolation') = 'read committed' then
    -- Most jobs that end together are near one another, and far from those for which others
    -- wait: one look at the index tells. Over a wide range it could meet many entries of
    -- dependencies that are over.
    select min(e.id), max(e.id) into low, high from unnest(ended) as e(id);
    if cardinality(ended) > 20 and high - low < 4 * cardinality(ended)
        and not exists (select from jobq.dependency d where d.parent >= low and d.parent <= high
            and d.parent_state is null) then
      return;
    end if;
    ended := array(
      select e.id from unnest(ended) as e(id)
        where (select true from jobq.dependency d where d.parent = e.id and d.parent_state is null limit 1));
  end if;
  perform jobq.look_soon(ended, false, as_ended);
end $$;

-- run_parents_ended is parents_ended for one job, without the call: no other job waits for most jobs.
create function jobq.run_parents_ended() returns trigger
  language plpgsql security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off set jit = off
  as $$
begin
  if current_setting('transaction_isolation') <> 'read committed'
      or (select true from jobq.dependency d where d.parent = new.id and d.parent_state is null limit 1) then
    perform jobq.look_soon(array[new.id]);
  end if;
  return null;
end $$;
-- Of all ends on rows of their own, whoever writes them. Plain ends are not seen here:
-- LeaseEnd tells of these; nor are jobs that end without having begun, or are put back into the
-- history: cancel, delete_job, waiting_cancel and run_restore tell of them.
create trigger run_parents_ended after update on jobq.run
  for each row when (new.state is not null and old.state is null
      and pg_sequence_last_value('jobq.dependency_seq') is not null)
  execute function jobq.run_parents_ended();

-- job_over is how a job has ended, with the lease of its last run; no row if it has not. A deleted job counts as ended
-- today, in the way that whoever deleted it has noted, or as cancelled if it had not ended.
create function jobq.job_over(job_id bigint) returns table (state jobq.job_state, lease_id bigint, gone boolean)
  language plpgsql
  as $$
begin
  return query
    select coalesce(r.state, 'completed'), r.lease_id, false
      from jobq.run r
      cross join lateral jobq.run_end(r.lease_id, r.slot, r.finished_at) e
      where r.id = job_over.job_id and e.ended_at is not null
      limit 1;
  if not found and not jobq.job_exists(job_over.job_id) then
    return query
      select coalesce((select l.ended from jobq.dependency_look l
          where l.job_id = job_over.job_id and l.ended is not null limit 1), 'cancelled'),
        jobq.lease_day((clock_timestamp() at time zone 'UTC')::date), true;
  end if;
end $$;

-- waiting_free takes those of these jobs that wait for no other job any more, and makes them available or scheduled.
-- The time for which they waited for other jobs does not count as time in the line. The index is read in the order of
-- the ids, so jobs that one parent frees are in the line in the order in which they were added; in the order of the
-- table they would not be.
create function jobq.waiting_free(jobs bigint[]) returns void
  language plpgsql set enable_seqscan = off set enable_bitmapscan = off set jit = off
  as $$
declare
  due timestamptz;
begin
  with freed as (
    update jobq.pending p
      set waits = null, run_at = greatest(p.run_at, clock_timestamp()), position = case
          when p.run_at <= clock_timestamp() then nextval('jobq.position_seq') end
      where p.id = any(jobs) and p.waits
        -- The last ones first: parents mostly end in the order in which they were added, and
        -- the entries of those that are over stay in the index for a while.
        and (select true from jobq.dependency d where d.child = p.id and d.parent_state is null
            order by d.parent desc limit 1) is null
      returning p.queue, p.position, p.run_at
  ), woken as materialized (
    select jobq.wake('work', q.queue) from (select distinct f.queue from freed f where f.position is not null) q
  )
  select min(f.run_at) filter (where f.position is null) into due from freed f where (select count(*) from woken) >= 0;
  if due is not null then
    perform jobq.notify('due', extract(epoch from due)::text);
  end if;
end $$;

-- parent_error is the last error of a job that is cancelled with its parent, and parent_named the parent in such an
-- error: null for any other error.
create function jobq.parent_error(parent bigint, ended jobq.job_state, gone boolean) returns text
  language sql stable
  return format('job %s, for which it waited, %s', parent, case when ended = 'failed' then 'has failed'
      when gone then 'is gone' else 'was cancelled' end);

create function jobq.parent_named(last_error text) returns bigint
  language sql immutable
  return substring(last_error
      from '^job ([1-9][0-9]{0,17}), for which it waited, (?:has failed|is gone|was cancelled)$')::bigint;

-- waiting_cancel cancels those of these jobs that still wait, with the reason as their last_error.
create function jobq.waiting_cancel(jobs bigint[], reason text) returns void
  language plpgsql set enable_seqscan = off set jit = off
  as $$
declare
  was_queues text[]; -- of those with a partition key, which one that had run before may have held
  was_keys text[];
begin
  with taken as (
    delete from jobq.pending p where p.id = any(jobs) and p.waits
      returning p.*
  ), counted as (
    insert into jobq.stat_delta (minute, queue, kind, cancelled)
      select date_trunc('minute', clock_timestamp()), t.queue, t.kind, count(*) from taken t group by t.queue, t.kind
  ), added as (
    insert into jobq.run as r
      select n.*
        from taken t
        cross join lateral jobq.run_of(row(t.*)::jobq.pending, jobq.lease_id_next(), 0::smallint, 'cancelled',
          clock_timestamp(), waiting_cancel.reason) n
      returning r.queue, r.partition_key
  )
  select array_agg(a.queue), array_agg(a.partition_key) into was_queues, was_keys from added a
      where a.partition_key is not null;
  perform jobq.lane_hints_add(k.queue, array_agg(distinct k.key), true)
      from unnest(was_queues, was_keys) as k(queue, key) group by k.queue;
  if pg_sequence_last_value('jobq.awaited_seq') >= extract(epoch from clock_timestamp()) then
    perform jobq.waiters_wake(jobs); -- a hint, which those that were not cancelled may have as well
  end if;
  perform jobq.parents_ended(jobs); -- likewise
end $$;

-- dependents_settle handles these children of a parent that has ended, in the order of their ids: it notes how the
-- parent has ended, and cancels the children, or frees those that wait for no other job. It
-- returns whether it has skipped some that somebody has locked.
create function jobq.dependents_settle(of_parent bigint, lease bigint, ended jobq.job_state, gone boolean,
    children bigint[]) returns boolean
  language plpgsql set enable_seqscan = off set jit = off
  as $$
declare
  mine bigint[]; -- which wait, locked
  busy bigint[];
  lost bigint[]; -- of mine, those that are cancelled
begin
  if children = '{}' then
    return false;
  end if;
  mine := array(select p.id from jobq.pending p where p.id = any(children) and p.waits for update skip locked);
  busy := array(select p.id from jobq.pending p where p.id = any(children) and p.waits and p.id <> all(mine));
  update jobq.dependency d
    set parent_lease = lease, parent_state = case when ended = 'completed' or d.on_failure <> 'wait' then ended end
    where d.parent = of_parent and d.child = any(children) and d.child <> all(busy) and d.parent_state is null
      -- For the planner: without, it may read all children of the parent, of which there can be millions.
      and d.child >= children[1] and d.child <= children[cardinality(children)];
  if ended <> 'completed' then
    lost := array(select d.child from jobq.dependency d where d.parent = of_parent and d.child = any(mine)
        and d.on_failure = 'cancel');
    if lost <> '{}' then
      perform jobq.waiting_cancel(lost, jobq.parent_error(of_parent, ended, gone));
    end if;
  end if;
  perform jobq.waiting_free(mine);
  return cardinality(busy) > 0;
end $$;

-- waiting_settle handles a job that waits, put back by an undo, when its parents may be over by now: it cancels the
-- job, or frees it if it waits for no other job. It returns false if somebody has locked the job.
create function jobq.waiting_settle(of_job bigint) returns boolean
  language plpgsql set enable_seqscan = off set jit = off
  as $$
declare
  lost record;
begin
  perform from jobq.pending p where p.id = of_job and p.waits for update skip locked;
  if not found then
    return not exists (select from jobq.pending p where p.id = of_job and p.waits);
  end if;
  select d.parent, d.parent_state as ended into lost
    from jobq.dependency d
    where d.child = of_job and d.parent_state <> 'completed' and d.on_failure = 'cancel'
    limit 1;
  if found then
    perform jobq.waiting_cancel(array[of_job], jobq.parent_error(lost.parent, lost.ended, false));
  else
    perform jobq.waiting_free(array[of_job]);
  end if;
  return true;
end $$;

-- look_ended looks at a job that has ended, and handles up to row_count of its children. It returns how many these are.
-- If there may be more, the row of the look stays, to go on behind them. After the last child the look begins anew
-- 200 ms later if some children were locked.
create function jobq.look_ended(look jobq.dependency_look, ended jobq.job_state, lease bigint, gone boolean,
    row_count integer) returns integer
  language plpgsql set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set jit = off
  as $$
declare
  children bigint[];
  is_full boolean; -- there may be more children
  last_child bigint; -- the last one that is handled now: as one value, so that none behind it is read
  has_locked boolean;
begin
  children := array(
    select d.child from jobq.dependency d
      where d.parent = look.job_id and d.parent_state is null and d.child > look.after_child
      order by d.child
      limit row_count
      for update skip locked);
  is_full := cardinality(children) >= row_count;
  last_child := case when is_full then children[cardinality(children)] else 9223372036854775807 end;
  has_locked := look.locked or exists (
    select from jobq.dependency d
      where d.parent = look.job_id and d.parent_state is null and d.child > look.after_child and d.child <= last_child
        and d.child <> all(children));
  has_locked := jobq.dependents_settle(look.job_id, lease, ended, gone, children) or has_locked;
  if is_full then -- other looks come in between
    update jobq.dependency_look l set after_child = last_child, locked = has_locked, look_at = clock_timestamp()
        where l.id = look.id;
  elsif has_locked then
    update jobq.dependency_look l
      set after_child = 0, locked = false, look_at = clock_timestamp() + interval '200 ms'
      where l.id = look.id;
  else
    delete from jobq.dependency_look l where l.id = look.id;
  end if;
  return cardinality(children);
end $$;

-- dependency_step looks at jobs of dependency_look that are due from look_from on, and handles up to row_count children
-- of those that have ended. It returns how many it has looked at, whether there may be more, and when the last of them
-- was due.
--
-- Several sessions may do this at once. The row of a child is locked before its dependencies are written; its other
-- dependencies are read after that, with a younger snapshot. So of two parents that are handled at once, the later one
-- sees the earlier. A transaction that keeps its snapshot has no younger one, and is refused.
--
-- A new parent had not ended when the dependency on it was added. It may have ended at the same moment, in a
-- transaction that had looked for dependencies before:
--
--    0 ms  the end of job 7 begins; nobody waits for it
--    1 ms  job 8, which waits for 7, is committed: 7 runs, as far as anybody can see
--    2 ms  the end of job 7 is committed
--
-- So a new parent is looked at again, each time that the time since the first look has doubled, until all transactions
-- have ended whose ids are older than that of the first look. A younger transaction that ends the parent sees the
-- dependency. (The xmax of a snapshot cannot be used for that: ids that were given already may be beyond it.)
--
-- (After a minute, it is looked at each minute.)
--
-- A step never waits for a row. Children that somebody has locked come again a little later. So do dependencies that
-- another janitor is handling or deleting.
create function jobq.dependency_step(look_from timestamptz, row_count integer)
  returns table (looked integer, more boolean, last_at timestamptz)
  language plpgsql set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set jit = off
  as $$
declare
  looks_max constant integer := 100;
  look jobq.dependency_look;
  ended record;
  is_sure boolean;
  room integer := row_count; -- for children
begin
  if current_setting('transaction_isolation') <> 'read committed' then
    raise invalid_transaction_state
        using message = format('dependency_step needs read committed, not %s',
        current_setting('transaction_isolation'));
  end if;
  looked := 0;
  last_at := look_from;
  -- No look is planned for more than a minute from now: one that is later is of a clock that was set back.
  update jobq.dependency_look l set look_at = clock_timestamp()
    where l.ctid = any(array(
      select x.ctid from jobq.dependency_look x where x.look_at > statement_timestamp() + interval '2 minutes'
        order by x.look_at desc limit looks_max for update skip locked));
  for look in
    select l.* from jobq.dependency_look l
      where l.look_at >= look_from and l.look_at <= statement_timestamp()
      order by l.look_at, l.id
      limit looks_max
      for update skip locked
  loop
    exit when room <= 0;
    looked := looked + 1;
    last_at := look.look_at;
    -- before the look at the job
    is_sure := not look.is_new or coalesce(look.sure_from <= pg_snapshot_xmin(pg_current_snapshot()), false);
    select o.state, o.lease_id, o.gone into ended from jobq.job_over(look.job_id) o;
    if found then
      room := room - jobq.look_ended(look, ended.state, ended.lease_id, ended.gone, room);
    elsif not jobq.waiting_settle(look.job_id) then
      update jobq.dependency_look l set look_at = clock_timestamp() + interval '200 ms' where l.id = look.id;
    elsif is_sure then
      delete from jobq.dependency_look l where l.id = look.id;
    else
      update jobq.dependency_look l
        set first_at = coalesce(l.first_at, clock_timestamp()), sure_from = coalesce(l.sure_from, pg_current_xact_id()),
          look_at = clock_timestamp() + greatest(least(clock_timestamp() - coalesce(l.first_at, clock_timestamp()),
              interval '1 minute'), interval '20 ms')
        where l.id = look.id;
    end if;
  end loop;
  more := room <= 0 or looked >= looks_max;
  return next;
end $$;

-- dependency_prune deletes dependencies if the day of the parent is past finished_retention
-- (keep_from_day) and the child has ended. It looks at up to row_count dependencies, after the
-- given place, and returns how many, and the place of the last. The other dependencies keep
-- the parent's day.
create function jobq.dependency_prune(after_lease bigint, after_child bigint, after_parent bigint, row_count integer)
  returns table (looked bigint, last_lease bigint, last_child bigint, last_parent bigint)
  language plpgsql security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off
      set enable_bitmapscan = off set enable_sort = off set jit = off
  as $$
begin
  with page as materialized (
    select d.ctid as place, d.parent_lease, d.child, d.parent
      from jobq.dependency d
      where (d.parent_lease, d.child, d.parent) > (dependency_prune.after_lease, dependency_prune.after_child,
          dependency_prune.after_parent)
        and d.parent_lease < (select jobq.lease_day(jobq.keep_from_day()))
      order by d.parent_lease, d.child, d.parent
      limit row_count
      for update skip locked
  ), gone as (
    delete from jobq.dependency d
      where d.ctid = any(array(
        select p.place from page p
          -- Scalar subqueries, which never become joins.
          where (select true from jobq.pending x where x.id = p.child) is null
            and (select true from jobq.run x cross join lateral jobq.run_end(x.lease_id, x.slot, x.finished_at) e
              where x.id = p.child and e.ended_at is null limit 1) is null))
  )
  select count(*), (select p.parent_lease from page p order by p.parent_lease desc, p.child desc, p.parent desc
      limit 1),
      (select p.child from page p order by p.parent_lease desc, p.child desc, p.parent desc limit 1),
      (select p.parent from page p order by p.parent_lease desc, p.child desc, p.parent desc limit 1)
    into looked, last_lease, last_child, last_parent
    from page;
  last_lease := coalesce(last_lease, after_lease);
  last_child := coalesce(last_child, after_child);
  last_parent := coalesce(last_parent, after_parent);
  return next;
end $$;
