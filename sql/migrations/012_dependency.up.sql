-- jobq:compatible-from 12
-- Jobs that wait for other jobs, their parents: see docs/dependencies.md, and
-- docs/decisions/0024 for the order of commits in each case.
set local lock_timeout = '5s';

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
create index dependency_look_due_idx on jobq.dependency_look (look_at, id);
create index dependency_look_ended_idx on jobq.dependency_look (job_id) where ended is not null;

-- look_soon makes the janitor look at these jobs when the transaction is committed. ended is how deleted jobs had ended.
-- PostgreSQL merges equal notifications of a transaction: all of one second are one notification, and the janitor begins its looks
-- 2 s earlier.
create function jobq.look_soon(jobs bigint[], is_new boolean default false, ended jobq.job_state default null) returns void
  language plpgsql security definer set search_path = pg_catalog, pg_temp
  as $$
begin
  if cardinality(jobs) > 0 then
    insert into jobq.dependency_look (job_id, is_new, ended) select j.id, look_soon.is_new, look_soon.ended from unnest(jobs) as j(id);
    perform jobq.notify('due', extract(epoch from date_trunc('second', clock_timestamp()))::text);
  end if;
end $$;

-- parents_ended makes the janitor look at those of these jobs for which others wait. With slots, only the jobs at these places of
-- the array count. as_ended is how deleted jobs had ended.
--
-- Once any dependency was ever added, it is called for plain ends and for jobs that end before they have begun; run_parents_ended
-- does the same for all other ends. It writes no row of another job, so it waits for nobody.
--
-- It sees each dependency that was committed before. Who commits a dependency later finds this transaction open, or ended, since
-- it has its id already (dependency_step). In a transaction with an older snapshot, the janitor looks at all the jobs.
create function jobq.parents_ended(jobs bigint[], slots smallint[] default null, as_ended jobq.job_state default null) returns void
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
        and not exists (select from jobq.dependency d where d.parent >= low and d.parent <= high and d.parent_state is null) then
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
  for each row when (new.state is not null and old.state is null and pg_sequence_last_value('jobq.dependency_seq') is not null)
  execute function jobq.run_parents_ended();

-- dependencies_add stores for which jobs the jobs of an enqueue_arrays wait, before the jobs
-- themselves are added. It returns for each job, by its place in the call, whether it
-- waits: true, or null. Edge i says that the job at place children[i] waits for
-- parents[i]: the id of a job, or, if below 0, an earlier place of the call.
-- holders are the ids of the jobs, or of the jobs that hold their unique keys: a job that is
-- not added waits for nothing.
--
-- Parents that have completed count at once. The janitor looks at parents that have not, unless they are
-- jobs of this call: they may be ending just now. Nobody else can see the jobs of
-- the call before it is committed. dependency_seq gets a value only after all that can be refused: a call that
-- fails, or that adds no dependency, costs the ends of jobs nothing.
create function jobq.dependencies_add(job_ids bigint[], holders bigint[], children integer[], parents bigint[], policies text[])
  returns boolean[]
  language plpgsql set enable_seqscan = off set jit = off
  as $$
declare
  problem record;
  older bigint[]; -- parents that were there before
  begun bigint[]; -- of these, those that are not in pending: to look for them is to look at each day
  begun_waits boolean[]; -- put back into pending in between
  begun_states jobq.job_state[]; -- null where there is no such job
  begun_leases bigint[];
  waits boolean[];
begin
  if cardinality(children) > 1000000 then
    raise sqlstate 'JQ001' using message = format('jobs must wait for at most 1000000 others in one call, not %s', cardinality(children));
  end if;
  select e.child - 1 as place, e.parent into problem
    from unnest(children, parents) as e(child, parent)
    where e.parent is null or e.parent = 0 or e.parent < 0 and -e.parent >= e.child
    order by e.child
    limit 1;
  if found then
    raise sqlstate 'JQ001' using message = format(case
        when problem.parent < 0 then 'jobs[%s]: after: a job waits only for jobs before it in the list, not for jobs[%s]'
        else 'jobs[%s]: after must be ids of jobs, not %s' end,
      problem.place, case when problem.parent < 0 then (-problem.parent - 1)::text else coalesce(problem.parent::text, 'null') end);
  end if;
  -- Jobs of the call are parents by their places alone: an id that the call itself has just drawn is
  -- nobody's yet, and would make a circle.
  older := array(
    select distinct p.id
      from (select e.parent > 0 as is_id, case when e.parent < 0 then holders[-e.parent] else e.parent end as id from unnest(parents) as e(parent)) p
      where p.is_id or p.id not in (select unnest(job_ids))); -- hashed
  begun := array(select o.id from unnest(older) as o(id) where (select true from jobq.pending p where p.id = o.id) is null);
  if begun <> '{}' then
    select array_agg(o.id), array_agg((select true from jobq.pending p where p.id = o.id)), array_agg(r.state), array_agg(r.lease_id)
      into begun, begun_waits, begun_states, begun_leases
      from unnest(begun) as o(id)
      left join lateral (
        select case when e.ended_at is not null then coalesce(x.state, 'completed') else 'running' end as state, x.lease_id
          from jobq.run x
          cross join lateral jobq.run_end(x.lease_id, x.slot, x.finished_at) e
          where x.id = o.id
          limit 1
      ) r on true;
  end if;
  with known as materialized (
    select k.id, k.waits, k.state, k.lease_id from unnest(begun, begun_waits, begun_states, begun_leases) as k(id, waits, state, lease_id)
  ), edge as materialized (
    select e.child - 1 as place, job_ids[e.child] as child, p.id as parent, policies[e.child] as policy, e.parent < 0 as of_call,
        k.id is not null and k.waits is null and k.state is null as missing,
        case when k.state = 'completed' then k.state end as parent_state, case when k.state = 'completed' then k.lease_id end as parent_lease
      from unnest(children, parents) as e(child, parent)
      cross join lateral (select case when e.parent < 0 then holders[-e.parent] else e.parent end as id) p
      left join known k on k.id = p.id
      where job_ids[e.child] = holders[e.child]
  ), added as (
    insert into jobq.dependency (child, parent, parent_lease, parent_state, on_failure)
      select e.child, e.parent, e.parent_lease, e.parent_state, coalesce(e.policy, 'cancel') from edge e where not e.missing
      on conflict do nothing
  )
  select e.place, e.parent, e.of_call into problem from edge e where e.missing order by e.place limit 1;
  if found then
    raise sqlstate 'JQ002' using message = format('jobs[%s]: after: no such job: %s', problem.place, problem.parent)
      || case when problem.of_call then ', which still has the unique key of one of these jobs' else '' end;
  end if;
  waits := array(
    select (select true from jobq.dependency d where d.child = j.id and d.parent_state is null limit 1)
      from unnest(job_ids) with ordinality as j(id, place)
      order by j.place);
  if true = any(waits) then
    perform nextval('jobq.dependency_seq');
    perform jobq.look_soon(array(
      select o.id from unnest(older) as o(id)
        where (select true from jobq.dependency d where d.parent = o.id and d.parent_state is null limit 1)), true);
  end if;
  return waits;
end $$;

-- job_over is how a job has ended, with the lease of its last run; no row if it has not. A deleted job counts as ended today, in
-- the way that whoever deleted it has noted, or as cancelled if it had not ended.
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
      select coalesce((select l.ended from jobq.dependency_look l where l.job_id = job_over.job_id and l.ended is not null limit 1), 'cancelled'),
        jobq.lease_day((clock_timestamp() at time zone 'UTC')::date), true;
  end if;
end $$;

-- waiting_free takes those of these jobs that wait for no other job any more, and makes them available or scheduled. The time for
-- which they waited for other jobs does not count as time in the line. The index is read in the order of the ids, so jobs that one
-- parent frees are in the line in the order in which they were added; in the order of the table they would not be.
create function jobq.waiting_free(jobs bigint[]) returns void
  language plpgsql set enable_seqscan = off set enable_bitmapscan = off set jit = off
  as $$
declare
  due timestamptz;
begin
  with freed as (
    update jobq.pending p
      set waits = null, run_at = greatest(p.run_at, clock_timestamp()), position = case when p.run_at <= clock_timestamp() then nextval('jobq.position_seq') end
      where p.id = any(jobs) and p.waits
        -- The last ones first: parents mostly end in the order in which they were added, and
        -- the entries of those that are over stay in the index for a while.
        and (select true from jobq.dependency d where d.child = p.id and d.parent_state is null order by d.parent desc limit 1) is null
      returning p.queue, p.position, p.run_at
  ), woken as materialized (
    select jobq.wake('work', q.queue) from (select distinct f.queue from freed f where f.position is not null) q
  )
  select min(f.run_at) filter (where f.position is null) into due from freed f where (select count(*) from woken) >= 0;
  if due is not null then
    perform jobq.notify('due', extract(epoch from due)::text);
  end if;
end $$;

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
      returning p.id, p.run_at, p.created_at, p.timeout, p.backoff_base, p.backoff_max, p.priority, p.attempts, p.max_attempts,
        p.crashes, p.args_apart, p.queue, p.kind, p.args, p.unique_key, p.clear_reason, p.checkpoint, p.metadata, p.tags, p.partition_key
  ), counted as (
    insert into jobq.stat_delta (minute, queue, kind, completed, failed, retried, lost, cancelled, run_seconds, wait_seconds)
      select date_trunc('minute', clock_timestamp()), t.queue, t.kind, 0, 0, 0, 0, count(*), 0, 0 from taken t group by t.queue, t.kind
  ), added as (
    insert into jobq.run as r
        (id, lease_id, slot, state, finished_at, run_at, created_at, timeout, backoff_base, backoff_max, priority, attempts, max_attempts,
         crashes, args_apart, queue, kind, args, unique_key, last_error, clear_reason, checkpoint, metadata, tags, partition_key)
      select t.id, jobq.lease_id_next(), 0, 'cancelled', clock_timestamp(), nullif(t.run_at, t.created_at), t.created_at, t.timeout, t.backoff_base,
          t.backoff_max, t.priority, t.attempts, t.max_attempts, t.crashes, t.args_apart, t.queue, t.kind, t.args, t.unique_key,
          waiting_cancel.reason, t.clear_reason, t.checkpoint, t.metadata, t.tags, nullif(t.partition_key, '')
        from taken t
      returning r.queue, r.partition_key
  )
  select array_agg(a.queue), array_agg(a.partition_key) into was_queues, was_keys from added a where a.partition_key is not null;
  perform jobq.lane_hints_add(k.queue, array_agg(distinct k.key), true) from unnest(was_queues, was_keys) as k(queue, key) group by k.queue;
  if pg_sequence_last_value('jobq.awaited_seq') >= extract(epoch from clock_timestamp()) then
    perform jobq.waiters_wake(jobs); -- a hint, which those that were not cancelled may have as well
  end if;
  perform jobq.parents_ended(jobs); -- likewise
end $$;

-- dependents_settle handles these children of a parent that has ended, in the order of their ids: it notes how the
-- parent has ended, and cancels the children, or frees those that wait for no other job. It
-- returns whether it has skipped some that somebody has locked.
create function jobq.dependents_settle(of_parent bigint, lease bigint, ended jobq.job_state, gone boolean, children bigint[]) returns boolean
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
    lost := array(select d.child from jobq.dependency d where d.parent = of_parent and d.child = any(mine) and d.on_failure = 'cancel');
    if lost <> '{}' then
      perform jobq.waiting_cancel(lost,
        format('job %s, for which it waited, %s', of_parent, case when ended = 'failed' then 'has failed' when gone then 'is gone' else 'was cancelled' end));
    end if;
  end if;
  perform jobq.waiting_free(mine);
  return cardinality(busy) > 0;
end $$;

-- dependency_step looks at jobs of dependency_look that are due from look_from on, and handles up to row_count children of those
-- that have ended. It returns how many it has looked at, whether there may be more, and when the last of them was due.
--
-- Several sessions may do this at once. The row of a child is locked before its dependencies are written; its other dependencies
-- are read after that, with a younger snapshot. So of two parents that are handled at once, the later one sees the earlier. A
-- transaction that keeps its snapshot has no younger one, and is refused.
--
-- A new parent had not ended when the dependency on it was added. It may have ended at the same moment, in a transaction that had
-- looked for dependencies before:
--
--    0 ms  the end of job 7 begins; nobody waits for it
--    1 ms  job 8, which waits for 7, is committed: 7 runs, as far as anybody can see
--    2 ms  the end of job 7 is committed
--
-- So a new parent is looked at again, each time that the time since the first look has doubled, until all transactions have ended
-- whose ids are older than that of the first look. A younger transaction that ends the parent sees the dependency. (The xmax of a
-- snapshot cannot be used for that: ids that were given already may be beyond it.)
--
-- (After a minute, it is looked at each minute.)
--
-- A step never waits for a row. Children that somebody has locked come again a little later. So do dependencies that another
-- janitor is handling or deleting.
create function jobq.dependency_step(look_from timestamptz, row_count integer)
  returns table (looked integer, more boolean, last_at timestamptz)
  language plpgsql set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set jit = off
  as $$
declare
  looks_max constant integer := 100;
  retry constant interval := interval '200 ms'; -- of what somebody has locked
  look jobq.dependency_look;
  ended record;
  is_sure boolean;
  children bigint[];
  room integer := row_count;
  is_full boolean; -- there may be more children
  last_child bigint; -- the last one that is dealt with now: as one value, so that none behind it is read
  has_locked boolean;
begin
  if current_setting('transaction_isolation') <> 'read committed' then
    raise invalid_transaction_state using message = format('dependency_step needs read committed, not %s', current_setting('transaction_isolation'));
  end if;
  looked := 0;
  more := false;
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
    if room <= 0 then
      more := true;
      exit;
    end if;
    looked := looked + 1;
    last_at := look.look_at;
    is_sure := not look.is_new or coalesce(look.sure_from <= pg_snapshot_xmin(pg_current_snapshot()), false); -- before the look at the job
    select o.state, o.lease_id, o.gone into ended from jobq.job_over(look.job_id) o;
    if found then
      children := array(
        select d.child from jobq.dependency d
          where d.parent = look.job_id and d.parent_state is null and d.child > look.after_child
          order by d.child
          limit room
          for update skip locked);
      is_full := cardinality(children) >= room;
      last_child := case when is_full then children[cardinality(children)] else 9223372036854775807 end;
      has_locked := look.locked or exists (
        select from jobq.dependency d
          where d.parent = look.job_id and d.parent_state is null and d.child > look.after_child and d.child <= last_child
            and d.child <> all(children));
      has_locked := jobq.dependents_settle(look.job_id, ended.lease_id, ended.state, ended.gone, children) or has_locked;
      if is_full then
        -- Others come in between.
        update jobq.dependency_look l set after_child = last_child, locked = has_locked, look_at = clock_timestamp() where l.id = look.id;
        more := true;
      elsif has_locked then
        update jobq.dependency_look l set after_child = 0, locked = false, look_at = clock_timestamp() + retry where l.id = look.id;
      else
        delete from jobq.dependency_look l where l.id = look.id;
      end if;
      room := room - cardinality(children);
      continue;
    end if;
    -- A job that waits, put back by an undo, when its parents may be over by now.
    perform from jobq.pending p where p.id = look.job_id and p.waits for update skip locked;
    if found then
      if exists (select from jobq.dependency d where d.child = look.job_id and d.parent_state <> 'completed' and d.on_failure = 'cancel') then
        perform jobq.waiting_cancel(array[look.job_id], 'a job for which it waited has failed or was cancelled');
      else
        perform jobq.waiting_free(array[look.job_id]);
      end if;
    elsif exists (select from jobq.pending p where p.id = look.job_id and p.waits) then -- somebody has locked it
      update jobq.dependency_look l set look_at = clock_timestamp() + retry where l.id = look.id;
      continue;
    end if;
    if is_sure then
      delete from jobq.dependency_look l where l.id = look.id;
    else
      update jobq.dependency_look l
        set first_at = coalesce(l.first_at, clock_timestamp()), sure_from = coalesce(l.sure_from, pg_current_xact_id()),
          look_at = clock_timestamp() + greatest(least(clock_timestamp() - coalesce(l.first_at, clock_timestamp()), interval '1 minute'), interval '20 ms')
        where l.id = look.id;
    end if;
  end loop;
  more := more or looked >= looks_max;
  return next;
end $$;

-- dependency_prune deletes dependencies if the day of the parent is past finished_retention
-- (keep_from_day) and the child has ended. It looks at up to row_count dependencies, after the
-- given place, and returns how many, and the place of the last. The other dependencies keep
-- the parent's day.
create function jobq.dependency_prune(after_lease bigint, after_child bigint, after_parent bigint, row_count integer)
  returns table (looked bigint, last_lease bigint, last_child bigint, last_parent bigint)
  language plpgsql security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set jit = off
  as $$
begin
  with page as materialized (
    select d.ctid as place, d.parent_lease, d.child, d.parent
      from jobq.dependency d
      where (d.parent_lease, d.child, d.parent) > (dependency_prune.after_lease, dependency_prune.after_child, dependency_prune.after_parent)
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
  select count(*), (select p.parent_lease from page p order by p.parent_lease desc, p.child desc, p.parent desc limit 1),
      (select p.child from page p order by p.parent_lease desc, p.child desc, p.parent desc limit 1),
      (select p.parent from page p order by p.parent_lease desc, p.child desc, p.parent desc limit 1)
    into looked, last_lease, last_child, last_parent
    from page;
  last_lease := coalesce(last_lease, after_lease);
  last_child := coalesce(last_child, after_child);
  last_parent := coalesce(last_parent, after_parent);
  return next;
end $$;

-- ends_awaited is how each of these jobs has ended, for the job that awaits them. A job without
-- a state has not ended, unless it is gone. A job that is gone has no result. It has a state only
-- if it is known that it failed or was cancelled: because of_job has waited for it, or because whoever deleted it
-- has noted the state. All is read with one statement, so a job that moves between tables does not count as gone. Needs run_id_idx,
-- pending_pkey, lease_pkey, past_lease_pkey, dependency_pkey and dependency_look_ended_idx only.
create function jobq.ends_awaited(of_job bigint, jobs bigint[])
  returns table (id bigint, gone boolean, lease_id bigint, state jobq.job_state, kind text, result jsonb, error text, finished_at timestamptz)
  language sql stable
  begin atomic
    select a.id, g.known is not null, e.lease_id, coalesce(e.state, nullif(nullif(g.known, ''), 'completed')::jobq.job_state), e.kind, e.result,
        case when g.known is null then e.error
          else 'it is gone: it was deleted, or its retention has ended' || case when g.known = 'completed' then '; it had completed' else '' end end,
        e.ended_at
      from unnest(jobs) as a(id)
      left join lateral (
        select r.lease_id, coalesce(r.state, 'completed') as state, r.kind, r.result, case when r.state <> 'completed' then r.last_error end as error, o.ended_at
          from jobq.run r
          cross join lateral jobq.run_end(r.lease_id, r.slot, r.finished_at) o
          where r.id = a.id and o.ended_at is not null
          limit 1
      ) e on true
      left join lateral (
        select coalesce(
            (select d.parent_state::text from jobq.dependency d where d.child = of_job and d.parent = a.id),
            (select l.ended::text from jobq.dependency_look l where l.job_id = a.id and l.ended is not null limit 1), '') as known
          where e.state is null and (select true from jobq.pending p where p.id = a.id) is null
            and (select true from jobq.run r where r.id = a.id limit 1) is null
      ) g on true;
  end;

-- step_await returns how jobs have ended, as an array in the order of their ids: each with its
-- id, kind, state, result, error and finished_at. While one of them has not ended, it ends the
-- run, and the job waits for them as for its parents, until all have ended in whatever way.
-- Later runs get the answer that was given once.
--
-- A job that ends at the same moment is found as with any new dependency
-- (dependency_step). The login must be allowed to read jobs, since it gets their results.
create function jobq.step_await(job_id bigint, token text, name text, jobs bigint[], out done boolean, out result jsonb)
  language plpgsql security definer set search_path = pg_catalog, pg_temp set plan_cache_mode = force_custom_plan set enable_seqscan = off set jit = off
  as $$
declare
  jobs_max constant integer := 10000;
  ids bigint[] := array(select distinct j.id from unnest(jobs) as j(id) order by j.id);
  used jobq.step;
  seen record;
begin
  if not has_table_privilege(coalesce(nullif(current_setting('role'), 'none'), session_user), 'jobq.run', 'select') then
    raise insufficient_privilege using message = 'to await jobs, a login must be able to read them',
      hint = 'Grant it the role jobq_viewer.';
  end if;
  if jobs is null or array_position(ids, null) is not null then
    raise sqlstate 'JQ001' using message = 'jobs must be ids of jobs, not null';
  end if;
  if cardinality(ids) > jobs_max then
    raise sqlstate 'JQ001' using message = format('jobs must be at most %s in one call, not %s', jobs_max, cardinality(ids));
  end if;
  if step_await.job_id = any(ids) then
    raise sqlstate 'JQ001' using message = format('job %s cannot wait for itself', step_await.job_id);
  end if;
  used := jobq.step_use(job_id, token, name, 'await');
  if used.finished_at is not null then
    if array(select (e.value ->> 'id')::bigint from jsonb_array_elements(used.result) with ordinality as e(value, place) order by e.place) <> ids then
      raise sqlstate 'JQ003' using message = format('step %L of job %s has awaited other jobs', name, step_await.job_id),
        hint = 'Give each step of a job a name of its own.';
    end if;
    done := true;
    result := used.result;
    return;
  end if;
  with ended as materialized (
    select e.* from jobq.ends_awaited(step_await.job_id, ids) e
  ), known as materialized (
    select array_agg(e.id) filter (where e.state is null and not e.gone) as open_ids,
        array_agg(e.id) filter (where e.lease_id is not null) as over_ids, array_agg(e.lease_id) filter (where e.lease_id is not null) as over_leases,
        array_agg(e.state) filter (where e.lease_id is not null) as over_states,
        min(e.id) filter (where e.gone and (e.id < 1 or e.id > coalesce(pg_sequence_last_value('jobq.job_id_seq'), 0))) as unknown,
        sum(octet_length(e.result::text)) as bytes
      from ended e
  )
  select k.*, case when k.open_ids is null and k.unknown is null and coalesce(k.bytes, 0) <= jobq.awaited_bytes_max() then coalesce((
        select jsonb_agg(jsonb_build_object('id', e.id, 'kind', e.kind, 'state', e.state, 'result', e.result, 'error', e.error, 'finished_at', e.finished_at) order by e.id)
          from ended e), '[]') end as ends
    into seen from known k;
  if seen.unknown is not null then
    raise sqlstate 'JQ002' using message = format('no such job: %s', seen.unknown);
  end if;
  if seen.open_ids is null then
    if seen.ends is null or pg_column_size(seen.ends) > jobq.awaited_bytes_max() then
      raise sqlstate 'JQ001' using message = format('the results of the jobs that step %L awaits must be at most 16 MiB together', name),
        hint = 'Await fewer jobs in one step, or let them keep the bulk elsewhere, and say in the result where.';
    end if;
    perform jobq.step_finish(job_id, name, seen.ends);
    done := true;
    result := seen.ends;
    return;
  end if;
  -- It waits for these alone: not for parents without which an operator has made it run, nor for one
  -- of these that is gone, at which nobody would look again. And what became of its parents before
  -- has no say any more.
  delete from jobq.dependency d where d.child = step_await.job_id and d.parent_state is null and d.parent <> all(seen.open_ids);
  update jobq.dependency d set on_failure = 'run' where d.child = step_await.job_id and d.on_failure = 'cancel' and d.parent_state <> 'completed';
  insert into jobq.dependency as d (child, parent, parent_lease, parent_state, on_failure)
    select step_await.job_id, o.id, null::bigint, null::jobq.job_state, 'run' from unnest(seen.open_ids) as o(id)
    union all
    select step_await.job_id, o.id, o.lease, o.state, 'run' from unnest(seen.over_ids, seen.over_leases, seen.over_states) as o(id, lease, state)
    on conflict on constraint dependency_pkey do update
      set parent_lease = excluded.parent_lease, parent_state = excluded.parent_state, on_failure = excluded.on_failure;
  perform nextval('jobq.dependency_seq');
  perform jobq.look_soon(seen.open_ids, true);
  perform jobq.run_suspend(job_id, token, interval '0', true);
  done := false;
end $$;

-- parents are the jobs for which a job waits or has waited, with how each has ended and
-- its result; the state is null while the child waits for it. They are in the order of ids, after
-- after_parent: all, or the first row_count.
create function jobq.parents(job_id bigint, after_parent bigint default 0, row_count bigint default null)
  returns table (id bigint, kind text, state jobq.job_state, result jsonb)
  language sql stable
  begin atomic
    select d.parent, j.kind, d.parent_state, j.result
      from (
        select x.parent, x.parent_state from jobq.dependency x
          where x.child = parents.job_id and x.parent > parents.after_parent
          order by x.parent
          limit parents.row_count
      ) d
      left join lateral (select x.kind, x.result from jobq.job x where x.id = d.parent limit 1) j on true
      order by d.parent;
  end;

-- graph is a job, the jobs for which it waits or has waited, the jobs for which these wait or have waited, and so on, up to 1,000;
-- and the jobs that wait or have waited for it, and so on, up to 1,000. They are in the order of ids. Each has up to 100 jobs for
-- which it waits or has waited, and the job itself if it is one of them; the job itself has up to 1,000. A job that is gone has no
-- state.
create function jobq.graph(job_id bigint) returns table (id bigint, kind text, queue text, state jobq.job_state, after bigint[])
  language sql stable set enable_seqscan = off set jit = off
  as $$
    with recursive above(id) as (
      select graph.job_id
      union
      select d.parent
        from above a
        cross join lateral (select x.parent from jobq.dependency x where x.child = a.id order by x.parent limit 1000) d
    ), below(id) as (
      select graph.job_id
      union
      select d.child
        from below b
        cross join lateral (
          select x.child
            from (
              (select o.child from jobq.dependency o where o.parent = b.id and o.parent_state is null order by o.child limit 1000)
              union all
              (select o.child from jobq.dependency o where o.parent = b.id and o.parent_state is not null order by o.child limit 1000)
            ) x
            order by x.child
            limit 1000
        ) d
    ), near as (
      (select a.id from above a limit 1000)
      union
      (select b.id from below b limit 1000)
    )
    select n.id, j.kind, j.queue, j.state, array(
        (select x.parent from jobq.dependency x where x.child = n.id order by x.parent limit case when n.id = graph.job_id then 1000 else 100 end)
        union
        select x.parent from jobq.dependency x where x.child = n.id and x.parent = graph.job_id
        order by parent)
      from near n
      left join lateral (select x.kind, x.queue, x.state from jobq.job x where x.id = n.id limit 1) j on true
      order by n.id
  $$;

-- sql/roles.sql says who may call them.
revoke execute on function
  jobq.look_soon, jobq.parents_ended, jobq.run_parents_ended, jobq.dependencies_add, jobq.job_over, jobq.waiting_free, jobq.waiting_cancel,
  jobq.dependents_settle, jobq.dependency_step, jobq.dependency_prune, jobq.ends_awaited, jobq.step_await, jobq.parents, jobq.graph
  from public;
