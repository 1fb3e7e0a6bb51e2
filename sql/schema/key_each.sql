-- Claims that look at one key after the other, since keys have limits, rates or an order.

-- lane_walk locks up to jobs_max jobs of a key, of these kinds, for lane_claim_each. It reads at most 1,000 jobs of the
-- key's line. If it has read so many and locked fewer than jobs_max, stopped is true, and the new looks has the place:
-- later claims of the same kinds, which kinds_id identifies, go on from there. At the end of the line they begin anew
-- if a hint has come since they began. again says that another claim may find more. Needs pending_claim_idx only.
create function jobq.lane_walk(
  of_queue text, of_key text, kinds text[], kinds_id text, hinted bigint, jobs_max integer,
  inout looks jsonb, out ids bigint[], out places tid[], out stopped boolean, out again boolean
)
  language plpgsql
  as $$
declare
  walk_max constant integer := 1000; -- jobs to look at
  looks_max constant integer := 8; -- sets of kinds that a lane notes a place for
  -- priority, position, and the last hint when it began at the head
  begins constant jsonb := coalesce(looks -> kinds_id, jsonb_build_array(-32769, 0, hinted));
  stop record;
begin
  stopped := false;
  again := false;
  with found as materialized (
    select c.id, c.place
      from (
        select p.ctid as place, p.kind
          from jobq.pending p
          where p.queue = of_queue and p.partition_key = of_key and p.position is not null
            and (p.priority, p.position) > ((begins ->> 0)::integer, (begins ->> 1)::bigint)
          order by p.priority, p.position
          limit walk_max
      ) w
      cross join lateral (
        select x.id, x.ctid as place from jobq.pending x
          where x.ctid = w.place and x.queue = of_queue and x.partition_key = of_key and x.position is not null
            and x.kind = any(kinds)
          for update skip locked
      ) c
      where w.kind = any(kinds)
      limit jobs_max
  )
  select array(select f.id from found f), array(select f.place from found f) into ids, places;
  if cardinality(ids) = jobs_max then
    return;
  end if;
  select p.priority, p.position into stop
    from jobq.pending p
    where p.queue = of_queue and p.partition_key = of_key and p.position is not null
      and (p.priority, p.position) > ((begins ->> 0)::integer, (begins ->> 1)::bigint)
    order by p.priority, p.position
    offset walk_max - 1 limit 1;
  if stop.position is not null then
    looks := looks || jsonb_build_object(kinds_id, jsonb_build_array(stop.priority, stop.position, begins -> 2));
    stopped := true;
    again := true;
  elsif looks ? kinds_id and hinted > (begins ->> 2)::bigint then
    looks := looks || jsonb_build_object(kinds_id, jsonb_build_array(-32769, 0, hinted));
    again := true;
  else
    looks := looks - kinds_id;
  end if;
  if (select count(*) from jsonb_object_keys(looks)) > looks_max then
    looks := jsonb_build_object(kinds_id, looks -> kinds_id);
  end if;
end $$;

-- lane_claim_each locks jobs for lane_claim from one lane after the other: from up to lanes_max lanes, after the turn
-- looked. It is for queues whose keys have a limit, a rate, an order or groups, and for lanes that have jobs of other
-- kinds (lane_claim_sets).
--
-- How much it takes of a key:
-- - An equal part of what is wanted, with weights so many times as much. all_weights and all_dues are the sums over the
--   lanes that share it; lane_claim explains turns_at_once.
-- - With groups, what lane_group_shares says. new are the keys that have just got a turn of their group; wanted is then
--   the room that the claim has, and with with_plain it shares that with jobs without a key.
-- - With a limit, at most what the limit leaves beside the jobs that run. The leases say which ones of held_leases and
--   held_slots still run.
-- - With a rate, at most what the rate leaves at the time claimed. The lane's rate_ready_at moves on. A throttled lane
--   has no turn, so it costs claims nothing until lane_due finds that its time has come. LaneMore says in how many
--   milliseconds the next lane is due, for the worker's timer.
-- - With an order, the next job of the key or none (lane_next_lock). That job is noted as the key's head. A key whose
--   head waits for its retry is handled as a full one.
--
-- All jobs get the same lease, with the slots after slots_used; with lease_per_job, each has one of its own. again
-- says that another claim would find more. looked is the turn of the last lane that it has looked at, and unserved the
-- turn of the last lane that gave nothing. With groups it looks at lanes_max lanes after looked, and at as many of the
-- keys in new before it. Then the new looked is the turn before the first lane that it has not looked at, and unserved
-- counts only lanes before that. Needs lane_pkey, lane_turn_idx, lane_head_pkey, key_weight_pkey, key_group_pkey,
-- key_group_next_turn_idx, pending_pkey, pending_claim_idx, run_id_idx and lease_pkey only.
create function jobq.lane_claim_each(
  of_queue text, q jobq.queue, kinds text[], from_turn bigint, to_turn bigint, lanes_max integer, lanes integer,
      shared boolean,
  weighted boolean, turns_at_once text, all_weights integer, all_dues integer, new text[], with_plain boolean,
  lease bigint, slots_used integer, lease_per_job boolean, claimed timestamptz,
  inout wanted integer, inout looked bigint, inout unserved bigint,
  out ids bigint[], out places tid[], out leases bigint[], out slots smallint[], out again boolean
)
  language plpgsql
  as $$
#variable_conflict use_column
declare
  grouped constant boolean := q.key_separator is not null;
  key_limit constant integer := q.key_limit;
  -- of the rate of each key, in microseconds; null without one
  key_step constant bigint := jobq.rate_step_us(q.key_rate_jobs, q.key_rate_period);
  key_burst constant integer := coalesce(q.key_rate_burst, jobq.rate_burst_default(q.key_rate_jobs, q.key_rate_period));
  kinds_id constant text := hashtextextended(kinds::text, 0)::text;
  walks_left integer := 10; -- lanes of which to look at a thousand jobs
  unlocked text[]; -- keys of lanes that no other claim of a shared turn has locked
  lane record;
  walk record;
  share integer;
  own_weight integer;
  own_due integer;
  beyond boolean := false; -- it takes all turns that lanes have, and more
  begun integer; -- so many jobs of the turn after it are in the share
  left_due integer := 0; -- of the lane's turn: 0 when it goes to the back, null when its next one has not begun
  free integer; -- what the limit leaves of the lane
  rate_free integer; -- what the rate leaves of it
  found_ids bigint[];
  found_places tid[];
  taken integer;
  new_leases bigint[];
  new_slots smallint[];
  group_from constant bigint := looked;
  group_clock bigint;
  group_names text[]; -- of lane_group_shares
  group_own_weights float8[];
  group_jobs integer[];
  group_dues integer[];
  group_weights integer[];
  group_keys text[]; -- the lanes to look at: for what their groups are to give, and then for what that leaves
  group_turns bigint[];
  n_group integer; -- of these groups, that of the lane
  unserved_turns bigint[] := '{}';
  unseen bigint; -- the first turn of those that it has not looked at
  given_keys text[] := '{}'; -- lanes that were looked at, with groups
  given_turns bigint[] := '{}';
  given_dues integer[] := '{}';
  given integer[] := '{}';
begin
  ids := '{}';
  places := '{}';
  leases := '{}';
  slots := '{}';
  again := false;
  if grouped then
    select x.group_clock into group_clock from jobq.lane x where x.queue = of_queue and x.key = '';
    select s.names, s.group_weights, s.jobs, s.dues, s.weights, s.wanted, s.keys, s.turns
      into group_names, group_own_weights, group_jobs, group_dues, group_weights, wanted, group_keys, group_turns
      from jobq.lane_group_shares(of_queue, q.key_separator, weighted, new, looked, to_turn, lanes_max, wanted,
          with_plain) s;
    if wanted = 0 then
      return;
    end if;
  end if;
  unlocked := array(select x.key from jobq.lane x where shared and x.queue = of_queue and x.turn is not null
      and x.turn > looked and x.turn <= to_turn
    order by x.turn limit lanes_max for update skip locked);
  for lane in
    select x.key, x.turn, x.held_leases, x.held_slots, cardinality(x.held_leases) as held_before, x.looks,
        x.looks as looks_before, x.hinted,
        x.rate_ready_at, x.rate_step_us, x.due, x.n,
        case when weighted then (select w.weight from jobq.key_weight w where w.queue = of_queue and w.key = x.key
            limit 1) end as weight
      from (
        (select y.*, null::bigint as n from jobq.lane y
          where not grouped and y.queue = of_queue and y.turn is not null and y.turn > looked and y.turn <= to_turn
            and (not shared or y.key = any(unlocked))
          order by y.turn
          limit lanes_max)
        union all
        (select y.*, k.n from unnest(group_keys || group_keys) with ordinality as k(key, n)
          cross join lateral (select l.* from jobq.lane l where l.queue = of_queue and l.key = k.key limit 1) y
          where grouped
          order by k.n)
      ) x
  loop
    exit when wanted = 0 or walks_left = 0;
    looked := lane.turn;
    if grouped then
      n_group := array_position(group_names, split_part(lane.key, q.key_separator, 1));
      continue when lane.key = any(given_keys) or group_jobs[n_group] <= 0 and lane.n <= cardinality(group_keys);
      own_weight := coalesce(lane.weight, 1);
      own_due := least(lane.due, own_weight);
      -- turns beyond its own
      share := greatest(ceil((group_jobs[n_group] - group_dues[n_group])::float8 / group_weights[n_group]), 0)::integer;
      share := case when group_jobs[n_group] > 0 then least(own_due + own_weight * share, group_jobs[n_group], wanted)
          else least(own_due, wanted) end;
      share := greatest(share, 1); -- where nothing was due
      left_due := case when share < own_due then own_due - share
          else (own_weight - (share - own_due) % own_weight) % own_weight end;
    elsif weighted then
      own_weight := coalesce(lane.weight, 1);
      own_due := least(lane.due, own_weight);
      if all_dues is not null then -- and some have come since they were counted
        all_weights := greatest(all_weights, own_weight);
        all_dues := greatest(all_dues, own_due);
      end if;
      beyond := beyond or turns_at_once = 'all' and coalesce(wanted > all_dues, false);
      begun := case when beyond then least(greatest(wanted - all_dues, 0) % all_weights, own_weight) else 0 end;
      share := own_due + begun + own_weight * case
        when coalesce(wanted <= all_dues, true) or turns_at_once = 'one' then 0
        when turns_at_once = 'all' then (wanted - all_dues) / all_weights
        else ceil(wanted::float8 / all_weights)::integer - 1 end;
      share := least(share, wanted);
      left_due := case when beyond then nullif(own_weight - begun, own_weight) else greatest(own_due - share, 0) end;
      all_weights := all_weights - own_weight;
      all_dues := all_dues - own_due;
    else
      share := ceil(wanted::float8 / greatest(lanes, 1));
    end if;
    if key_limit is not null then
      select coalesce(array_agg(u.lease), '{}'), coalesce(array_agg(u.slot), '{}')
          into lane.held_leases, lane.held_slots
        from (select h.lease, array_agg(distinct h.slot) as slots
            from unnest(lane.held_leases, lane.held_slots) as h(lease, slot) group by h.lease) g
        -- the limit keeps it a lookup
        cross join lateral (select x.ended_slots from jobq.lease x where x.id = g.lease limit 1) x
        cross join lateral (select g.lease, s.slot from unnest(g.slots) as s(slot)
            where s.slot <> all(x.ended_slots)) u;
    else
      lane.held_leases := '{}';
      lane.held_slots := '{}';
    end if;
    free := key_limit - cardinality(lane.held_leases); -- null without a limit
    if free < 0 then -- it was lowered
      free := 0;
    end if;
    if key_step is null then
      lane.rate_ready_at := null; -- an earlier rate's
    else
      lane.rate_ready_at := jobq.rate_ready_at(coalesce(lane.rate_ready_at, claimed),
          coalesce(lane.rate_step_us, key_step), key_step, key_burst, claimed);
      rate_free := floor(key_burst - extract(epoch from lane.rate_ready_at - claimed) * 1000000 / key_step);
    end if;
    if q.key_order is not null and free > 0 and rate_free is distinct from 0 then
      select t.free, t.ids, t.places into free, found_ids, found_places
          from jobq.lane_next_lock(of_queue, lane.key, q.key_order, kinds) t;
    else
      select w.ids, w.places, w.looks, w.stopped, w.again into walk
        from jobq.lane_walk(of_queue, lane.key, kinds, kinds_id, lane.hinted, least(share, free, rate_free),
            lane.looks) w;
      found_ids := walk.ids;
      found_places := walk.places;
      lane.looks := walk.looks;
      again := again or walk.again;
      walks_left := walks_left - walk.stopped::integer;
    end if;
    taken := cardinality(found_ids);
    if grouped and taken > 0 then
      group_clock := greatest(group_clock,
          jobq.group_turn(lane.turn) + floor((taken - 1) / group_own_weights[n_group])::bigint);
    end if;
    if lease_per_job then
      new_leases := array(select jobq.lease_id_next() from generate_series(1, taken));
      new_slots := array_fill(1::smallint, array[taken]);
    else
      new_leases := array_fill(lease, array[taken]);
      new_slots := array(select (slots_used + cardinality(ids) + i)::smallint from generate_series(1, taken) i);
    end if;
    ids := ids || found_ids;
    places := places || found_places;
    leases := leases || new_leases;
    slots := slots || new_slots;
    if key_limit is not null then
      lane.held_leases := lane.held_leases || new_leases;
      lane.held_slots := lane.held_slots || new_slots;
    end if;
    if q.key_order is not null and taken > 0 then
      insert into jobq.lane_head (queue, key, job_id, lease_id) values (of_queue, lane.key, found_ids[1], new_leases[1])
        on conflict on constraint lane_head_pkey do update set job_id = excluded.job_id, lease_id = excluded.lease_id;
    end if;
    if key_step is not null and taken > 0 then
      lane.rate_ready_at := lane.rate_ready_at + taken * key_step * interval '1 us';
      update jobq.lane x set rate_ready_at = lane.rate_ready_at, rate_step_us = key_step, rate_burst = key_burst
        where x.queue = of_queue and x.key = lane.key;
    end if;
    if key_step is not null and taken = rate_free and exists ( -- null would not keep it from being asked
        select from jobq.pending p where p.queue = of_queue and p.partition_key = lane.key and p.position is not null
            and p.id <> all(found_ids)) then
      update jobq.lane x
        set turn = null, throttled_until = jobq.rate_again_at(lane.rate_ready_at, key_step, key_burst),
          rate_ready_at = lane.rate_ready_at, rate_step_us = key_step, rate_burst = key_burst,
          -- its turn is kept for it, as that of a full one
          held_leases = lane.held_leases, held_slots = lane.held_slots, looks = lane.looks,
          due = case when taken = 0 then lane.due when own_due > taken then own_due - taken end,
          due_turn = case when taken = 0 and lane.due is not null or own_due > taken and taken > 0 then lane.turn end
        where x.queue = of_queue and x.key = lane.key;
    elsif taken = free then
      update jobq.lane x
        set turn = null, full_limit = key_limit, looked_at = clock_timestamp(), held_leases = lane.held_leases,
          held_slots = lane.held_slots, looks = lane.looks, due = case when taken = 0 then lane.due
              when own_due > taken then own_due - taken end,
          due_turn = case when taken = 0 and lane.due is not null or own_due > taken and taken > 0 then lane.turn end
        where x.queue = of_queue and x.key = lane.key;
    elsif taken = share or exists ( -- jobs of other kinds, or that somebody has locked
        select from jobq.pending p where p.queue = of_queue and p.partition_key = lane.key and p.position is not null
            and p.id <> all(found_ids)) then
      again := again or taken = share;
      if taken > 0 then
        update jobq.lane x
          set turn = case
              when taken = share and left_due is distinct from 0 and (not grouped or taken < own_due) then lane.turn
              -- it gets one of its group before lanes that became ready by a hint
              when grouped then nextval('jobq.lane_turn_seq') - (1::bigint << 51)
              else nextval('jobq.lane_turn_seq')
            end,
            due = case when left_due > 0 and taken = share then left_due end, due_turn = null,
            held_leases = lane.held_leases, held_slots = lane.held_slots, looks = lane.looks
          where x.queue = of_queue and x.key = lane.key;
      else
        unserved := lane.turn;
        unserved_turns := unserved_turns || lane.turn;
        if cardinality(lane.held_leases) < lane.held_before or lane.looks <> lane.looks_before then
          update jobq.lane x set held_leases = lane.held_leases, held_slots = lane.held_slots, looks = lane.looks
            where x.queue = of_queue and x.key = lane.key;
        end if;
      end if;
    elsif lane.held_leases = '{}' and (lane.rate_ready_at > claimed) is not true then
      delete from jobq.lane x where x.queue = of_queue and x.key = lane.key;
      if q.key_order is not null then
        -- One that somebody has just edited to run later waits, and keeps its key.
        delete from jobq.lane_head h where h.queue = of_queue and h.key = lane.key
          and not exists (select from jobq.pending p where p.id = h.job_id);
      end if;
    else
      update jobq.lane x set turn = null, due = null, due_turn = null, held_leases = lane.held_leases,
          held_slots = lane.held_slots, looks = '{}'
        where x.queue = of_queue and x.key = lane.key;
    end if;
    wanted := wanted - taken;
    lanes := lanes - 1;
    if grouped then
      given_keys := given_keys || lane.key;
      given_turns := given_turns || lane.turn;
      given_dues := given_dues || own_due;
      given := given || taken;
      group_jobs[n_group] := group_jobs[n_group] - taken;
      group_dues[n_group] := group_dues[n_group] - own_due;
      group_weights[n_group] := greatest(group_weights[n_group] - own_weight, 1);
    end if;
  end loop;
  if grouped then
    unseen := (select min(u.turn) from unnest(group_keys, group_turns) as u(key, turn)
        where u.turn > group_from and u.key <> all(given_keys));
    unserved := greatest((select max(b.turn) from unnest(unserved_turns) as b(turn)
        where b.turn < unseen or unseen is null), from_turn);
    looked := greatest(coalesce(unseen - 1, (select max(u.turn) from unnest(group_turns) as u(turn))), group_from);
    perform jobq.lane_group_charge(of_queue, q.key_separator, weighted, group_clock, given_keys, given_turns,
        given_dues, given);
  end if;
end $$;
