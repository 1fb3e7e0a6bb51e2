-- The line of a queue as people see it: what is next, and what keeps a key back.

-- key_held says whether a limit, a rate or an order of the keys keeps the jobs of a partition key from being claimed.
-- That is so if it is throttled, if the last claim that looked at the key found it full and no place has become free
-- since, or if its head still keeps the others waiting. It looks up the ten oldest places that the key holds. It is for
-- people: a claim looks for itself. Needs lane_pkey, lease_pkey, and what lane_next needs.
create function jobq.key_held(of_queue text, of_key text, key_limit integer, key_order text) returns boolean
  language plpgsql stable
  set enable_sort = off set enable_seqscan = off set enable_bitmapscan = off set jit = off
  as $$
declare
  lane record;
begin
  select x.full_limit, x.held_leases, x.held_slots, x.throttled_until into lane from jobq.lane x
      where x.queue = of_queue and x.key = of_key;
  if lane.throttled_until > statement_timestamp() then
    return true;
  elsif lane.full_limit is null then
    return false;
  elsif cardinality(lane.held_leases) >= key_limit then
    return not exists (
      select from unnest(lane.held_leases[:10], lane.held_slots[:10]) as h(lease, slot)
        where (select h.slot <> all(l.ended_slots) from jobq.lease l where l.id = h.lease limit 1) is not true);
  end if;
  return exists (select from jobq.lane_next(of_queue, of_key, key_order) n where n.waits is not null);
end $$;

-- line_last is the least urgent priority, more urgent than a given one, of the jobs of a partition key, or of those
-- without a key (''); null if there is none. Needs pending_claim_idx, and the settings of line_heads.
create function jobq.line_last(of_queue text, of_key text, before_priority integer) returns smallint
  language plpgsql stable
  as $$
begin
  return (select p.priority from jobq.pending p
    where p.queue = of_queue and p.partition_key = of_key and p.position is not null and p.priority < before_priority
    order by p.priority desc, p.position desc limit 1);
end $$;

-- line_head is the first job of a partition key, or of those without a key (''), that has this priority or a less
-- urgent one. Needs pending_claim_idx, and the settings of line_heads.
create function jobq.line_head(of_queue text, of_key text, from_priority integer)
  returns table (key text, priority smallint, "position" bigint, since timestamptz)
  language plpgsql stable rows 1
  as $$
begin
  return query select p.partition_key::text, p.priority::smallint, p.position, greatest(p.run_at, p.created_at)
    from jobq.pending p
    where p.queue = of_queue and p.partition_key = of_key and p.position is not null and p.priority >= from_priority
    order by p.priority, p.position limit 1;
end $$;

-- line_heads_in_turn is the first job of each key that comes after another one in the order of keys, at its most and at
-- its least urgent priority, for line_heads. Of the keys that may have a job to be claimed it looks at the lines_max
-- whose last turn is longest ago.
create function jobq.line_heads_in_turn(of_queue text, after_key text, lines_max integer)
  returns table (key text, priority smallint, "position" bigint, since timestamptz)
  language plpgsql stable rows 10
  as $$
declare
  paused_max constant integer := 5 * lines_max;
  paused integer := 0;
  looked integer := 0;
  lane_key text;
  head record;
  least_urgent smallint;
begin
  for lane_key in select l.key from jobq.lane l where l.queue = of_queue and l.turn is not null
      order by l.turn limit lines_max + paused_max loop
    -- and no claim has been made since
    if exists (select from jobq.paused_key k where k.queue = of_queue and k.key = lane_key) then
      paused := paused + 1;
      exit when paused = paused_max;
      continue;
    end if;
    exit when looked = lines_max;
    looked := looked + 1;
    continue when lane_key <= after_key;
    select h.key, h.priority, h.position, h.since into head from jobq.line_head(of_queue, lane_key, -32768) h;
    continue when not found;
    return query select head.key, head.priority, head.position, head.since;
    least_urgent := jobq.line_last(of_queue, lane_key, 32768);
    if least_urgent > head.priority then
      return query select h.key, h.priority, h.position, h.since
        from jobq.line_head(of_queue, lane_key, least_urgent) h;
    end if;
  end loop;
end $$;

-- line_heads is the first job of each line of a queue, and since when it could have run. The jobs of a queue form one
-- line for each partition key and priority. The first job of a line has waited longest, except for some that came back.
-- Keys that are paused, or that their limit, rate or order holds, are left out.
--
-- Example: a queue has jobs of two priorities without a key, and of the keys a, which is full, and b.
--
--   key  priority  position  since
--                9        17  11:58   the least urgent priority
--                0       501  12:00
--   b            0       430  11:30
--
-- Of jobs without a key it looks at the lines_max least urgent priorities. Of keys it looks at as many lines, in the
-- order of the index. If there may be more keys, it also looks at lines_max of those that may have a job to be claimed,
-- the ones whose last turn is longest ago, each at its most and least urgent priority. Keys that have jobs but no turn
-- yet, because no claim has been made since, are not among these. Paused keys do not count, up to five times lines_max:
-- otherwise a few paused keys would hide all others. So it costs the same however many jobs and keys there are. Needs
-- pending_claim_idx, lane_turn_idx, paused_key_pkey, and what key_held needs.
create function jobq.line_heads(of_queue text, lines_max integer)
  returns table (key text, priority smallint, "position" bigint, since timestamptz)
  language plpgsql stable rows 10
  set enable_sort = off set enable_seqscan = off set enable_bitmapscan = off set jit = off
  as $$
declare
  q record;
  head record;
  looked integer := 0;
  paused integer := 0;
  at_key text := '';
  at_priority integer := 32768;
  held boolean;
begin
  for line in 1 .. lines_max loop
    at_priority := jobq.line_last(of_queue, '', at_priority);
    exit when at_priority is null;
    return query select h.key, h.priority, h.position, h.since from jobq.line_head(of_queue, '', at_priority) h;
  end loop;
  select x.key_limit, x.key_order, x.key_rate_jobs into q from jobq.queue x where x.name = of_queue;
  at_priority := 32768; -- behind the line of jobs without a key
  loop
    select p.partition_key, p.priority, p.position, greatest(p.run_at, p.created_at) as since into head
      from jobq.pending p
      where p.queue = of_queue and p.position is not null and (p.partition_key, p.priority) > (at_key, at_priority)
      order by p.partition_key, p.priority, p.position limit 1;
    if not found then
      return;
    end if;
    exit when looked = lines_max;
    if head.partition_key <> at_key then
      at_key := head.partition_key;
      if exists (select from jobq.paused_key k where k.queue = of_queue and k.key = at_key) then
        at_priority := 32768;
        paused := paused + 1;
        exit when paused = 5 * lines_max;
        continue;
      end if;
      held := (q.key_limit is not null or q.key_rate_jobs is not null)
          and jobq.key_held(of_queue, at_key, q.key_limit, q.key_order);
    end if;
    at_priority := head.priority;
    looked := looked + 1;
    if held then
      at_priority := 32768;
    else
      return query select head.partition_key::text, head.priority, head.position, head.since;
    end if;
  end loop;
  return query select h.key, h.priority, h.position, h.since
    from jobq.line_heads_in_turn(of_queue, at_key, lines_max) h;
end $$;

-- why_key_runs are the running jobs of a partition key, as a claim counts them: the lane holds
-- what was claimed, and the leases say what has ended. Needs lane_pkey and lease_pkey.
create function jobq.why_key_runs(of_queue text, of_key text) returns bigint[]
  language sql stable
  as $$
    select coalesce(array_agg(l.job_ids[h.slot] order by l.claimed_at, l.job_ids[h.slot]), '{}')
      from jobq.lane x
      cross join lateral unnest(x.held_leases, x.held_slots) as h(lease, slot)
      join jobq.lease l on l.id = h.lease and h.slot <> all(l.ended_slots)
      where x.queue = of_queue and x.key = of_key
  $$;

-- why_before counts the jobs in a line before a place; the line is that of a partition key, or of jobs without one
-- (''). It counts from the place towards the head, because at the head there may be dead index entries of many claims,
-- and stops at count_max. Needs pending_claim_idx, and nothing else whatever the statistics say: without statistics,
-- the planner would sort the whole line (docs/decisions/0002).
create function jobq.why_before(line_queue text, line_key text, line_priority smallint, line_position bigint,
    count_max bigint) returns bigint
  language sql stable
  set enable_sort = off set enable_seqscan = off set enable_bitmapscan = off set jit = off
  as $$
    select count(*)
      from (select from jobq.pending p
        where p.queue = line_queue and p.partition_key = line_key and p.position is not null
          and (p.priority, p.position) < (line_priority, line_position)
        order by p.priority desc, p.position desc
        limit count_max) line
  $$;
