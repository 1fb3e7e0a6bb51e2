-- Which keys a claim takes jobs from, and how many of each; and the head of a key whose jobs run in order.

-- lane_pick locks jobs for lane_claim_sets: of each of the keys, in their order, at most its share, and at most wanted
-- jobs of all keys together. It reads one job more than the share of each key, and never reads past jobs of other
-- kinds: it ends before the first key that has such jobs within its share, and mixed says so.
--
-- visited is how many of the keys it has looked at. served, emptied and unserved hold the numbers of these keys,
-- counted from 1:
--
--   emptied   all waiting jobs of the key were locked
--   served    some were locked, and others wait
--   unserved  none was locked, though jobs wait, for example because somebody else has locked them
--
-- last_taken is how many jobs it has locked of the last visited key. Needs pending_claim_idx only.
create function jobq.lane_pick(of_queue text, keys text[], kinds text[], shares integer[], wanted integer)
  returns table (ids bigint[], places tid[], visited integer, mixed boolean, served integer[], emptied integer[],
      unserved integer[], last_taken integer)
  language plpgsql
  as $$
begin
  return query
    with walk as materialized (
      select l.n::integer as n, l.share, w.places, cardinality(w.places) as found,
          coalesce(w.first_other <= l.share, false) as mixed
        from unnest(lane_pick.keys, lane_pick.shares) with ordinality as l(key, share, n)
        cross join lateral (
          select coalesce(array_agg(x.place), '{}') as places, array_position(array_agg(x.fits), false) as first_other
            from (
              select p.ctid as place, p.kind = any(lane_pick.kinds) as fits
                from jobq.pending p
                where p.queue = of_queue and p.partition_key = l.key and p.position is not null
                order by p.priority, p.position
                limit l.share + 1
            ) x
        ) w
    ), chosen as materialized (
      select w.n, w.found, w.places[1 : least(w.found, w.share, lane_pick.wanted - w.before)] as places
        from (
          select x.*, coalesce(sum(least(x.found, x.share))
              over (order by x.n rows between unbounded preceding and 1 preceding), 0) as before,
              bool_or(x.mixed) over (order by x.n rows unbounded preceding) as is_over
            from walk x
        ) w
        where w.before < lane_pick.wanted and not w.is_over
    ), locked as materialized (
      select coalesce(array_agg(y.id), '{}') as ids, coalesce(array_agg(y.place), '{}') as places
        from (
          -- Of a job that was changed since the statement began, the place is another one.
          select x.id, x.ctid as place
            from jobq.pending x
            where x.ctid = any(array(select unnest(c.places) from chosen c)) and x.queue = of_queue
              and x.position is not null and x.kind = any(lane_pick.kinds)
            for update skip locked
        ) y
    ), lane as materialized (
      select c.n, c.found, cardinality(c.places) - case -- seldom is any missed
          when (select cardinality(k.places) from locked k) = (select sum(cardinality(o.places)) from chosen o) then 0
          else (select count(*) from unnest(c.places) as p(place)
              where p.place not in (select unnest(k.places) from locked k))
        end as taken
        from chosen c
    )
    select k.ids, k.places, r.n, exists (select from walk w where w.n = r.n + 1 and w.mixed),
        array(select l.n from lane l where l.taken > 0 and l.taken < l.found order by l.n),
        array(select l.n from lane l where l.taken = l.found order by l.n),
        array(select l.n from lane l where l.taken = 0 and l.found > 0 order by l.n),
        (select l.taken from lane l where l.n = r.n)::integer
      from locked k
      cross join (select coalesce(max(l.n), 0) as n from lane l) r;
end $$;

-- lane_weights sums up the weights of lanes, and the jobs that are due of their turns. The lanes are the first ones
-- with a turn after after_turn and up to to_turn, and then the given keys, which have no lane: lanes_max of both
-- together at most. Needs lane_turn_idx and key_weight_pkey only.
create function jobq.lane_weights(of_queue text, after_turn bigint, to_turn bigint, keys text[], lanes_max integer)
  returns table (weights integer, dues integer)
  language plpgsql
  as $$
begin
  return query
    select coalesce(sum(w.weight), 0)::integer, coalesce(sum(least(w.due, w.weight)), 0)::integer
      from (
        select k.due, coalesce((select x.weight from jobq.key_weight x where x.queue = of_queue and x.key = k.key
            limit 1), 1)::integer as weight
          from (
            (select x.key, x.due from jobq.lane x
              where x.queue = of_queue and x.turn is not null and x.turn > after_turn and x.turn <= lane_weights.to_turn
                  order by x.turn limit lanes_max)
            union all
            select f.key, null from unnest(lane_weights.keys) as f(key)
            limit lane_weights.lanes_max
          ) k
      ) w;
end $$;

-- lane_shares returns, for each of the keys, the number of jobs that a claim of wanted jobs takes, where some keys have
-- weights (lane_claim has the rule, and explains turns_at_once). dues is what is left of each key's current turn. lefts
-- is what is left of its next turn after the share was taken: 0 if the lane goes to the back, null if that turn has not
-- begun. Needs key_weight_pkey and lane_pkey only.
create function jobq.lane_shares(of_queue text, keys text[], wanted integer, turns_at_once text)
  returns table (shares integer[], dues integer[], lefts integer[])
  language plpgsql
  as $$
begin
  return query
    with own as materialized (
      select w.n, w.weight, least(w.due, w.weight) as due
        from (
          select k.n,
              coalesce((select x.weight from jobq.key_weight x where x.queue = of_queue and x.key = k.key
                  limit 1), 1)::integer as weight,
              (select x.due from jobq.lane x where x.queue = of_queue and x.key = k.key limit 1) as due
            from unnest(lane_shares.keys) with ordinality as k(key, n)
        ) w
    ), over as materialized ( -- what the claim takes beyond the turns that the keys have
      select greatest(lane_shares.wanted - sum(o.due), 0)::integer as jobs, sum(o.weight)::integer as weights from own o
    ), part as materialized (
      select o.n, o.due, o.weight, v.jobs > 0 and turns_at_once = 'all' as laps,
          case
            when v.jobs = 0 or turns_at_once = 'one' then 0
            when turns_at_once = 'all' then v.jobs / v.weights
            else ceil(lane_shares.wanted::float8 / v.weights)::integer - 1
          end * o.weight as more,
          least(greatest(v.jobs % v.weights - (sum(o.weight) over (order by o.n) - o.weight), 0),
              o.weight)::integer as begun
        from own o
        cross join over v
    )
    select array_agg(p.due + p.more + case when p.laps then p.begun else 0 end order by p.n), array_agg(p.due
        order by p.n),
        array_agg(case when not p.laps then 0 when p.begun > 0 then p.weight - p.begun end order by p.n)
      from part p;
end $$;

-- lane_note is for a queue that has got a key_limit: it makes the lanes hold what was claimed before. Each call looks
-- at leases of 1,000 jobs, and returns whether all of them are noted. Needs lane_pkey, lease_queue_idx or lease_pkey,
-- and run_id_idx only.
create function jobq.lane_note(of_queue text) returns boolean
  language plpgsql
  as $$
declare
  jobs_max constant integer := 1000;
  begins bigint := (select l.unheld from jobq.lane l where l.queue = of_queue and l.key = '');
  ends bigint;
begin
  if begins is null then
    return true;
  end if;
  with batch as materialized (
    select s.id, s.job_ids, s.ended_slots
      from (
        select l.id, l.job_ids, l.ended_slots,
            sum(cardinality(l.job_ids)) over (order by l.id) - cardinality(l.job_ids) as before
          from (select x.id, x.job_ids, x.ended_slots from jobq.lease x where x.queue = of_queue and x.id > begins
              order by x.id limit jobs_max) l
      ) s
      where s.before < jobs_max
  ), runs as materialized (
    select r.partition_key as key, s.id as lease, j.slot::smallint as slot
      from batch s
      cross join lateral unnest(s.job_ids) with ordinality as j(id, slot)
      cross join lateral (select x.partition_key from jobq.run x where x.id = j.id and x.lease_id = s.id limit 1) r
      where j.slot <> all(s.ended_slots) and r.partition_key is not null
  ), noted as (
    insert into jobq.lane as l (queue, key, held_leases, held_slots)
      select of_queue, r.key, array_agg(r.lease), array_agg(r.slot) from runs r group by r.key
      on conflict on constraint lane_pkey do update
        set held_leases = l.held_leases || excluded.held_leases, held_slots = l.held_slots || excluded.held_slots
  )
  select max(s.id) into ends from batch s;
  if not exists (select from jobq.lease x where x.queue = of_queue and x.id > ends) then
    ends := null;
  end if;
  update jobq.lane l set unheld = ends where l.queue = of_queue and l.key = '';
  return ends is null;
end $$;

-- rate_again_at is when a claim looks again at a key whose rate is used up until ready_at: when its next job may start.
-- At a fast rate it is later, so that there are fewer claims: when half of the burst may start, or as many jobs as
-- start in 10 ms, whichever are fewer.
create function jobq.rate_again_at(ready_at timestamptz, step_us bigint, burst integer) returns timestamptz
  language sql stable parallel safe
  return ready_at - (burst - greatest(least(burst / 2, 10000 / step_us), 1)) * step_us * interval '1 us';

-- lane_due makes lanes ready whose throttling is over, and returns how many: up to lanes_max whose time has come, and
-- as many whose time is further ahead than it may be, since the clock was set back (rate_ready_at). step_us and burst
-- are of the queue's rate of its keys now, 0 for no rate. Lanes that were throttled by another rate become ready too,
-- lanes_max of slower ones and lanes_max of faster ones; their next claim counts what they have used by the new rate.
-- It also deletes up to lanes_max lanes of which nothing waits, nothing runs, and nothing of the rate is used. The
-- caller has the queue's turn. Needs lane_throttled_idx and lane_spent_idx only.
create function jobq.lane_due(of_queue text, step_us bigint, burst integer, lanes_max integer) returns integer
  language plpgsql
  as $$
declare
  at constant timestamptz := clock_timestamp();
  due integer;
begin
  update jobq.lane l
    set turn = coalesce(l.due_turn, nextval('jobq.lane_turn_seq')), throttled_until = null
    where l.ctid = any(
      array(select x.ctid from jobq.lane x
        where x.queue = of_queue and x.rate_step_us = lane_due.step_us and x.rate_burst = lane_due.burst
          and x.throttled_until <= at
        order by x.throttled_until limit lanes_max)
      || array(select x.ctid from jobq.lane x
        where x.queue = of_queue and x.rate_step_us = lane_due.step_us and x.rate_burst = lane_due.burst
          and x.throttled_until > at + interval '10 s' + 2 * lane_due.burst * lane_due.step_us * interval '1 us'
        order by x.throttled_until desc limit lanes_max)
      || array(select x.ctid from jobq.lane x
        where x.queue = of_queue and (x.rate_step_us, x.rate_burst) < (lane_due.step_us, lane_due.burst)
          and x.throttled_until is not null
        order by x.rate_step_us, x.rate_burst, x.throttled_until limit lanes_max)
      || array(select x.ctid from jobq.lane x
        where x.queue = of_queue and (x.rate_step_us, x.rate_burst) > (lane_due.step_us, lane_due.burst)
          and x.throttled_until is not null
        order by x.rate_step_us, x.rate_burst, x.throttled_until limit lanes_max));
  get diagnostics due = row_count;
  delete from jobq.lane l
    where l.ctid = any(array(
      select x.ctid from jobq.lane x
        where x.queue = of_queue and x.turn is null and x.full_limit is null and x.throttled_until is null
          and x.held_leases = '{}'
          and x.rate_ready_at <= case when lane_due.step_us > 0 then at else 'infinity' end
        order by x.rate_ready_at limit lanes_max));
  return due;
end $$;

-- lane_unfill makes lanes ready that were full with another limit than key_limit, which is null for no limit: up to
-- lanes_max with a lower limit, and as many with a higher one. lanes is how many became ready, and more says whether
-- others are left. The caller has the queue's turn. Needs lane_full_idx only.
create function jobq.lane_unfill(of_queue text, key_limit integer, lanes_max integer, out lanes integer,
    out more boolean)
  language plpgsql
  as $$
declare
  new_limit constant integer := coalesce(key_limit, 1000000);
begin
  update jobq.lane l
    set turn = coalesce(l.due_turn, nextval('jobq.lane_turn_seq')), full_limit = null
    where l.ctid = any(
      array(select x.ctid from jobq.lane x where x.queue = of_queue and x.full_limit < new_limit
          order by x.full_limit limit lanes_max)
      || array(select x.ctid from jobq.lane x where x.queue = of_queue and x.full_limit > new_limit
          order by x.full_limit limit lanes_max));
  get diagnostics lanes = row_count;
  more := exists (select from jobq.lane x where x.queue = of_queue and x.full_limit < new_limit
      order by x.full_limit limit 1)
    or exists (select from jobq.lane x where x.queue = of_queue and x.full_limit > new_limit
        order by x.full_limit limit 1);
end $$;

-- lane_look_again makes up to 10 full lanes ready at which no claim has looked for a minute, at most once a
-- second, in case a hint is missing. A look that lies ahead is of a clock that was set back, and counts as long ago.
-- The caller has the queue's turn. Needs lane_pkey and lane_full_idx only.
create function jobq.lane_look_again(of_queue text, key_limit integer) returns void
  language plpgsql
  as $$
begin
  update jobq.lane l
    set looked_at = statement_timestamp()
    where l.queue = of_queue and l.key = ''
      and (coalesce(l.looked_at, '-infinity') < statement_timestamp() - interval '1 s'
          or l.looked_at > statement_timestamp() + interval '1 s')
      and (exists (select from jobq.lane x where x.queue = of_queue and x.full_limit = key_limit
          and x.looked_at < statement_timestamp() - interval '1 minute' order by x.looked_at limit 1)
        or exists (select from jobq.lane x where x.queue = of_queue and x.full_limit = key_limit
          and x.looked_at > statement_timestamp() + interval '1 minute' order by x.looked_at desc limit 1));
  if found then
    update jobq.lane l
      set turn = coalesce(l.due_turn, nextval('jobq.lane_turn_seq')), full_limit = null
      where l.ctid = any(
        array(select x.ctid from jobq.lane x where x.queue = of_queue and x.full_limit = key_limit
          and x.looked_at < statement_timestamp() - interval '1 minute' order by x.looked_at limit 10)
        || array(select x.ctid from jobq.lane x where x.queue = of_queue and x.full_limit = key_limit
          and x.looked_at > statement_timestamp() + interval '1 minute' order by x.looked_at desc limit 10));
  end if;
end $$;

-- lane_next is the next job of a key that may run, in a queue with a key_order, when none of the key's jobs runs; no
-- row if none waits.
--
-- The jobs of a key run in the order of their line. A job that has run and comes back gets another place there, mostly
-- at the end. So the job that ran last, the key's head, is found by its id (lane_head): while it waits it is the next
-- one, whatever its place. waits says that the key has to wait for its head, because the head waits for its retry or
-- for other jobs (step_await); with the order pass, the key does not wait. With the order stop, a head that has failed
-- for good stops its key until it is requeued or deleted.
--
-- Example: 7, 8 and 9 wait. 7 runs, fails, and waits for its retry. Until then hold takes nothing, and pass takes 8.
-- When 7 has failed for the last time, hold takes 8, and stop takes nothing.
--
-- Needs lane_head_pkey, pending_pkey, pending_claim_idx and run_id_idx only.
create function jobq.lane_next(of_queue text, of_key text, of_order text)
  returns table (job_id bigint, waits text, waits_until timestamptz)
  language plpgsql stable
  as $$
declare
  head record;
  waiting record;
begin
  select h.job_id, h.lease_id into head from jobq.lane_head h where h.queue = of_queue and h.key = of_key;
  if head.job_id is not null then
    select p.id, p.position, p.run_at, p.waits into waiting from jobq.pending p
      where p.id = head.job_id and p.queue = of_queue and p.partition_key = of_key;
    if waiting.position is not null then
      return query select head.job_id, null::text, null::timestamptz;
      return;
    elsif waiting.id is not null and of_order <> 'pass' then
      return query select head.job_id, case when waiting.waits then 'waiting' else 'retry' end, case
          when waiting.waits is null then waiting.run_at::timestamptz end;
      return;
    elsif waiting.id is null and of_order = 'stop' and jobq.lane_failed(head.job_id, head.lease_id) then
      return query select head.job_id, 'failed', null::timestamptz;
      return;
    end if;
  end if;
  return query select p.id, null::text, null::timestamptz
    from jobq.pending p
    where p.queue = of_queue and p.partition_key = of_key and p.position is not null
    order by p.priority, p.position
    limit 1;
end $$;

-- lane_work says whether a queue has a job of these kinds, with a key, that could run now or after the end of a running
-- one. A job does not count if its key is paused or, with a key_order, if the key waits for the retry of its head or is
-- stopped by a failed one. It looks at 1,000 keys. If there are more, the answer is true with a key_order; without one,
-- it is true if a further key has a job of these kinds. Needs pending_claim_idx, pending_pkey, paused_key_pkey, and
-- what lane_next needs.
create function jobq.lane_work(of_queue text, of_order text, kinds text[]) returns boolean
  language plpgsql stable
  set enable_sort = off set enable_seqscan = off set enable_bitmapscan = off set jit = off
  as $$
declare
  last_key text := '';
begin
  for looked in 1 .. 1000 loop
    select p.partition_key into last_key from jobq.pending p
      where p.queue = of_queue and p.position is not null and p.partition_key > last_key
      order by p.partition_key, p.priority, p.position limit 1;
    if not found then
      return false;
    end if;
    continue when exists (select from jobq.paused_key k where k.queue = of_queue and k.key = last_key);
    if of_order is null then
      perform from jobq.pending p
        where p.queue = of_queue and p.partition_key = last_key and p.position is not null
          and p.kind = any(lane_work.kinds)
        order by p.priority, p.position limit 1;
    else
      perform from jobq.lane_next(of_queue, last_key, of_order) n
        where n.waits is null and (select p.kind from jobq.pending p
            where p.id = n.job_id limit 1) = any(lane_work.kinds);
    end if;
    if found then
      return true;
    end if;
  end loop;
  if of_order is null then
    perform from jobq.pending p
      where p.queue = of_queue and p.position is not null and p.partition_key > last_key
        and p.kind = any(lane_work.kinds)
      order by p.partition_key, p.priority, p.position limit 1;
    return found;
  end if;
  return true;
end $$;

-- lane_next_lock locks the next job of a key for lane_claim_each, if it is of these kinds and nobody else has
-- locked it. free is 0 if the key has to wait for its head, which waits for its retry or for other jobs, or
-- has failed; else 1. The caller has the queue's turn.
create function jobq.lane_next_lock(of_queue text, of_key text, of_order text, kinds text[])
  returns table (free integer, ids bigint[], places tid[])
  language plpgsql
  as $$
declare
  head record;
begin
  select n.job_id, n.waits into head from jobq.lane_next(of_queue, of_key, of_order) n;
  free := case when head.waits is null then 1 else 0 end;
  select array[x.id], array[x.ctid] into ids, places
    from jobq.pending x
    -- not by pending_claim_idx, which would walk the key's line
    where free = 1 and x.id = head.job_id and x.queue || '' = of_queue and x.partition_key || '' = of_key
      and x.position is not null and x.kind = any(kinds)
    for update skip locked;
  ids := coalesce(ids, '{}');
  places := coalesce(places, '{}');
  return next;
end $$;

-- lane_take lets one job of a partition key start, beside the claims that go by lanes, if the limit, the rate and the
-- order of the queue's keys allow it, and notes that: it returns whether it may. The job is one that came back
-- (claim_alone), so with an order it is mostly the key's head. A lane that is full afterwards is found to be so by the
-- next claim that looks at it. The caller has the queue's turn. Needs lane_pkey, lane_head_pkey and lease_pkey, and
-- what lane_next needs.
create function jobq.lane_take(q jobq.queue, of_key text, of_job bigint, lease bigint, claimed timestamptz)
    returns boolean
  language plpgsql
  as $$
#variable_conflict use_variable
declare
  key_step constant bigint := jobq.rate_step_us(q.key_rate_jobs, q.key_rate_period);
  key_burst constant integer := coalesce(q.key_rate_burst, jobq.rate_burst_default(q.key_rate_jobs, q.key_rate_period));
  lane jobq.lane;
  ready_at timestamptz;
begin
  if q.key_limit is null and key_step is null then
    return true;
  elsif q.key_limit is not null and exists (select from jobq.lane l
      where l.queue = q.name and l.key = '' and l.unheld is not null) then
    return false; -- what runs is not known yet: see lane_note
  end if;
  select l.* into lane from jobq.lane l where l.queue = q.name and l.key = of_key;
  if q.key_limit <= (
      select count(*) from (select distinct h.lease, h.slot
          from unnest(lane.held_leases, lane.held_slots) as h(lease, slot)) h
        where h.slot <> all(array(select unnest(x.ended_slots) from jobq.lease x where x.id = h.lease))
          and exists (select from jobq.lease x where x.id = h.lease)) then
    return false;
  elsif q.key_order <> 'pass' and exists (
      select from jobq.lane_next(q.name, of_key, q.key_order) n where n.waits is not null and n.job_id <> of_job) then
    return false;
  end if;
  if key_step is not null then
    ready_at := jobq.rate_ready_at(coalesce(lane.rate_ready_at, claimed), coalesce(lane.rate_step_us, key_step),
        key_step, key_burst, claimed);
    if key_burst - extract(epoch from ready_at - claimed) * 1000000 / key_step < 1 then
      return false;
    end if;
    ready_at := ready_at + key_step * interval '1 us';
  end if;
  insert into jobq.lane as l (queue, key, held_leases, held_slots, rate_ready_at, rate_step_us, rate_burst)
    values (q.name, of_key, case when q.key_limit is null then '{}' else coalesce(lane.held_leases, '{}') || lease end,
      case when q.key_limit is null then '{}' else coalesce(lane.held_slots, '{}') || 1::smallint end,
      ready_at, key_step, case when key_step is not null then key_burst end)
    on conflict on constraint lane_pkey do update set held_leases = excluded.held_leases,
      held_slots = excluded.held_slots, rate_ready_at = excluded.rate_ready_at, rate_step_us = excluded.rate_step_us,
          rate_burst = excluded.rate_burst;
  if q.key_order is not null then
    insert into jobq.lane_head as h (queue, key, job_id, lease_id) values (q.name, of_key, of_job, lease)
      on conflict on constraint lane_head_pkey do update set job_id = excluded.job_id, lease_id = excluded.lease_id;
  end if;
  return true;
end $$;
