-- Groups of partition keys: the keys of one group share its turns. See docs/decisions/0032.

-- group_turn_first is the first turn that a group has given (key_group): those before it are numbers of lane_turn_seq.
create function jobq.group_turn_first() returns bigint
  language sql immutable parallel safe
  return 4503599627370496; -- 2^52

-- group_turn is the turn of a lane among those of all groups.
create function jobq.group_turn(turn bigint) returns bigint
  language sql immutable parallel safe
  return (turn - jobq.group_turn_first()) >> 20;

-- lane_group gives the lanes that became ready since the last claim a turn of their group (key_group): up to lanes_max
-- of them, in the order in which they became ready. It returns their keys. With weighted, some keys have weights: the
-- turn of such a key is as many jobs long.
--
-- A lane of which no job waits, as is usual after the end of a job, takes no turn from its group: it is due 0 jobs. The
-- last 20 bits of a turn are those of the number that the lane had before, so that two lanes hardly ever have the same
-- turn. The caller has the queue's turn. Needs lane_pkey, lane_turn_idx, pending_claim_idx, key_group_pkey and
-- key_weight_pkey only.
create function jobq.lane_group(of_queue text, separator text, weighted boolean, lanes_max integer) returns text[]
  language plpgsql
  as $$
declare
  clock bigint := (select x.group_clock from jobq.lane x where x.queue = of_queue and x.key = '');
  grouped text[];
begin
  if clock is null then
    clock := 0;
    update jobq.lane x set group_clock = clock where x.queue = of_queue and x.key = '';
  end if;
  with ready as materialized (
    select x.key, x.turn, x.due, split_part(x.key, separator, 1) as name
      from jobq.lane x
      where x.queue = of_queue and x.turn is not null and x.turn < jobq.group_turn_first()
      order by x.turn
      limit lanes_max
  ), own as materialized (
    select r.key, r.turn, r.name, case when f.is_waiting then least(r.due, w.weight) else 0 end as jobs
      from ready r
      cross join lateral (
        select exists (
          select from jobq.pending p where p.queue = of_queue and p.partition_key = r.key and p.position is not null
              order by p.priority, p.position limit 1) as is_waiting
      ) f
      cross join lateral (
        select coalesce(case when weighted then (select x.weight from jobq.key_weight x
            where x.queue = of_queue and x.key = r.key limit 1) end, 1)::integer as weight
      ) w
  ), placed as materialized (
    select o.key, o.turn, o.name, o.jobs, sum(o.jobs) over (partition by o.name order by o.turn) - o.jobs as before
        from own o
  ), began as materialized (
    select g.name, g.jobs,
        greatest((select x.next_turn from jobq.key_group x where x.queue = of_queue and x.name = g.name
            limit 1), clock) as turn,
        coalesce(case when weighted then (select w.weight from jobq.key_weight w
            where w.queue = of_queue and w.key = g.name limit 1) end, 1)::float8 as weight
      from (select p.name, sum(p.jobs) as jobs from placed p group by p.name) g
  ), noted as (
    insert into jobq.key_group (queue, name, next_turn)
      select of_queue, b.name, b.turn + b.jobs / b.weight from began b
      on conflict on constraint key_group_pkey do update set next_turn = excluded.next_turn
  ), turned as (
    insert into jobq.lane as l (queue, key, turn, due)
      select of_queue, p.key, jobq.group_turn_first() + (floor(b.turn + p.before / b.weight)::bigint << 20)
          + (p.turn & 1048575), case when p.jobs = 0 then 0 end
        from placed p join began b on b.name = p.name
      on conflict on constraint lane_pkey do update set turn = excluded.turn, due = coalesce(excluded.due, l.due)
      returning l.key
  )
  select coalesce(array_agg(t.key), '{}') into grouped from turned t;
  return grouped;
end $$;

-- lane_ungroup is for a queue that has no key_separator any more: lanes get turns of lane_turn_seq again, and groups
-- are deleted, up to lanes_max of each with each call. It returns the greater of the two numbers. The caller has the
-- queue's turn. Needs lane_pkey, lane_turn_idx and key_group_pkey only.
create function jobq.lane_ungroup(of_queue text, lanes_max integer) returns integer
  language plpgsql
  as $$
declare
  lanes integer;
  groups integer;
begin
  insert into jobq.lane (queue, key, turn)
    select of_queue, r.key, nextval('jobq.lane_turn_seq')
      from (
        select x.key from jobq.lane x
          where x.queue = of_queue and x.turn is not null and x.turn >= jobq.group_turn_first()
              order by x.turn limit lanes_max
      ) r
    on conflict on constraint lane_pkey do update set turn = excluded.turn;
  get diagnostics lanes = row_count;
  delete from jobq.key_group g
    where g.ctid = any(array(select x.ctid from jobq.key_group x where x.queue = of_queue
        order by x.name limit lanes_max));
  get diagnostics groups = row_count;
  if lanes < lanes_max and groups < lanes_max then
    update jobq.lane x set group_clock = null where x.queue = of_queue and x.key = '';
  end if;
  return greatest(lanes, groups);
end $$;

-- lane_group_shares returns how many jobs a claim takes of each group, where the queue has a key_separator.
--
-- It looks at up to lanes_max lanes with a turn after after_turn and up to to_turn, and at up to lanes_max lanes of the
-- keys in new whose turn is before these. keys and turns are those lanes, in their order. room is how many jobs the
-- claim may take. With with_plain, jobs without a key count as one more group, and wanted is what they leave of room.
--
--   names, group_weights  the groups
--   jobs                  how many to take of each group
--   dues, weights         of the lanes of each group: the sum of the jobs that are due, and the sum of the weights
--
-- Each group gives the jobs that come before one and the same turn (level), one job to a turn: just those that claims
-- of one job each would take. If there are more lanes than it looks at, the level is at most the turn after the last
-- lane. Needs lane_turn_idx, key_group_pkey and key_weight_pkey only.
--
-- Example: 8 jobs are wanted, and the lanes are a/1, a/2 and a/3 with the turns 1, 2 and 3, and b/1 with 1. Both groups
-- give the jobs of the turns 1 to 4: a/1 gives 2, a/2 and a/3 one each, and b/1 gives 4. Of 4 jobs it would be one of
-- a/1, one of a/2, and 2 of b/1.
create function jobq.lane_group_shares(
  of_queue text, separator text, weighted boolean, new text[], after_turn bigint, to_turn bigint, lanes_max integer,
      room integer, with_plain boolean
) returns table (
  names text[], group_weights float8[], jobs integer[], dues integer[], weights integer[], wanted integer, keys text[],
      turns bigint[]
)
  language plpgsql
  as $$
begin
  return query
    with looked as materialized (
      select x.key, x.turn, x.due, split_part(x.key, separator, 1) as name
        from jobq.lane x
        where x.queue = of_queue and x.turn is not null and x.turn > after_turn and x.turn <= lane_group_shares.to_turn
        order by x.turn
        fetch first (lanes_max) rows with ties -- of the same turn, which a pass could end between
    ), each_lane as materialized (
      select l.key, l.turn, l.due, l.name from looked l
      union all
      (select y.key, y.turn, y.due, split_part(y.key, separator, 1)
        from unnest(lane_group_shares.new) as k(key)
        cross join lateral (select x.key, x.turn, x.due from jobq.lane x where x.queue = of_queue and x.key = k.key
            limit 1) y
        where y.turn <= after_turn
        order by y.turn
        limit lanes_max)
    ), own as materialized (
      select l.key, l.name, l.turn, w.weight, least(l.due, w.weight) as due
        from each_lane l
        cross join lateral (
          select coalesce(case when weighted then (select x.weight from jobq.key_weight x
              where x.queue = of_queue and x.key = l.key limit 1) end, 1)::integer as weight
        ) w
    ), each as materialized (
      select g.name, g.first, g.last, g.dues, g.weights,
          coalesce(case when weighted then (select w.weight from jobq.key_weight w
              where w.queue = of_queue and w.key = g.name limit 1) end, 1)::float8 as weight
        from (
          select o.name, jobq.group_turn(min(o.turn)) as first, jobq.group_turn(max(o.turn)) as last,
              sum(o.due)::integer as dues, sum(o.weight)::integer as weights
            from own o group by o.name
        ) g
    ), part as materialized (
      select (lane_group_shares.room - case
          when with_plain and count(*) > 0 then floor(lane_group_shares.room / (sum(e.weight) + 1) + random())
              else 0 end)::integer as wanted
        from each e
    -- over the first groups, for each number of them; the least one is that of those that it reaches
    ), level as materialized (
      select least(min(f.level), case when (select count(*) from looked) >= lanes_max then max(f.last) + 1 end) as turn
        from (
          select e.last,
              (p.wanted + sum(e.weight * e.first) over (order by e.first, e.name)) / sum(e.weight)
                  over (order by e.first, e.name) as level
            from each e cross join part p
        ) f
    ), share as materialized (
      -- without the last digits of the float
      select e.*, ceil(e.weight * greatest(v.turn - e.first, 0) - 0.000001)::integer as jobs
        from each e cross join level v
    )
    select coalesce(array_agg(s.name), '{}'), coalesce(array_agg(s.weight), '{}'), coalesce(array_agg(s.jobs), '{}'),
        coalesce(array_agg(s.dues), '{}'), coalesce(array_agg(s.weights), '{}'), (select p.wanted from part p),
        (select coalesce(array_agg(o.key order by o.turn), '{}')
            from own o), (select coalesce(array_agg(o.turn order by o.turn), '{}') from own o)
      from share s;
end $$;

-- lane_group_charge moves the next turns of groups after a claim: later by the jobs that their lanes gave (taken)
-- beyond their turns (dues), earlier by the jobs that they did not give. A lane that keeps its turn for the rest of its
-- jobs, now or as due_turn, is left out. It also sets the queue's clock, and deletes up to 100 groups whose next turn
-- is more than 1,000 turns before the clock. The caller has the queue's turn. Needs lane_pkey, key_group_pkey,
-- key_group_next_turn_idx and key_weight_pkey only.
create function jobq.lane_group_charge(
  of_queue text, separator text, weighted boolean, clock bigint, keys text[], turns bigint[], dues integer[],
      taken integer[]
) returns void
  language plpgsql
  as $$
declare
  kept_for constant integer := 1000; -- turns of the clock
begin
  update jobq.lane x set group_clock = clock where x.queue = of_queue and x.key = '' and x.group_clock < clock;
  insert into jobq.key_group (queue, name, next_turn)
    select of_queue, g.name,
        coalesce((select x.next_turn from jobq.key_group x where x.queue = of_queue and x.name = g.name limit 1), clock)
          + g.jobs / coalesce(case when weighted then (select w.weight from jobq.key_weight w
              where w.queue = of_queue and w.key = g.name limit 1) end, 1)::float8
      from (
        select split_part(k.key, separator, 1) as name, sum(k.taken - k.due) as jobs
          from unnest(lane_group_charge.keys, lane_group_charge.turns, lane_group_charge.dues,
              lane_group_charge.taken) as k(key, turn, due, taken)
          where (select x.turn = k.turn or x.due_turn = k.turn from jobq.lane x
              where x.queue = of_queue and x.key = k.key limit 1) is not true
          group by 1
      ) g
      where g.jobs <> 0
    on conflict on constraint key_group_pkey do update set next_turn = excluded.next_turn;
  delete from jobq.key_group g
    where g.ctid = any(array(select x.ctid from jobq.key_group x
        where x.queue = of_queue and x.next_turn < clock - kept_for order by x.next_turn limit 100));
end $$;
