-- Claims of jobs that have partition keys.

-- lane_claim claims jobs with partition keys, as JobClaim claims jobs without. Both are part of one transaction:
-- queue_admit says how many jobs may start, lane_claim takes its part, and JobClaim gets what is left. lane_claim takes
-- nothing if another claim has the queue's turn.
--
-- It first makes lanes ready (lane_hints_take, lane_unfill, lane_due, lane_look_again). Then it takes jobs: of many
-- lanes with one statement (lane_claim_sets), or of one lane after the other (lane_claim_each), which costs some ten
-- times as much for each job.
--
-- Keys take turns. Each ready lane gives the same share of the claim, in the order of turn, and then goes to the back.
-- Within a key, jobs go by priority and position.
--
-- Example: it may take 4 jobs. Many jobs wait with the key a, one with the key b, and others without a key. These are 3
-- lanes, so jobs without a key get 1 or 2 of the 4: by lot, since 4 / 3 is not whole. If lane_claim takes 3, they are 2
-- of a and 1 of b.
--
-- A lane that gives nothing, because its jobs are of other kinds or locked, keeps its turn: otherwise claims for some
-- kinds would put the keys of others back again and again. So that such lanes do not hide the lanes after them, a
-- worker looks at lanes in passes. Each claim of a pass begins after the last lane that gave nothing (from_turn). A
-- pass ends with the turn that was the last one when it began (to_turn); lanes that were served go behind it. Both are
-- 0 for a new pass.
--
-- A weight (key_weight) makes the turn of a key so many jobs long. A lane that has given fewer keeps its turn, and the
-- rest is due. If the key becomes full before that, it gets the turn back when it is ready again. turns_at_once says
-- how many turns of each lane a claim takes:
--
--   all   it looks at all ready lanes: one round of turns after the other, the last one as far as it goes. So the size
--         of claims makes no difference
--   one   it looks at the last lanes of a pass: the next pass takes more
--   many  there are more lanes than it looks at: as many turns as it needs for its jobs, and the last lane may give
--         less
--
-- With a key_separator, lanes are in the order of what their groups have had (key_group). Lanes that became ready since
-- the last claim, or since the setting came, first get their turns of the group, 1,000 with each claim.
--
-- A claim costs as much as the lanes that it takes from, however many are full or empty: those are not looked at again
-- until there is a hint (lane_hint). A lane is deleted when nothing of its key waits or runs. The lane of a paused key
-- is neither ready nor full, so no claim looks at it until the key is resumed. Lanes hold leases and slots only while
-- the queue has a limit of its keys. When it gets one, lane_note comes first, and nothing is taken until it has ended.
--
-- lane_claim moves the jobs to run itself if it has looked at lanes one after the other, or if each job gets a lease of
-- its own. Otherwise it has only locked them, and LaneTake moves them: their places are in the setting
-- jobq_claim.places. To return a thousand rows from a function costs twice as much.
--
-- The setting jobq_claim.lanes says whether another claim of this worker would find more, and where its pass goes on
-- (LaneMore). If a lane that hints made ready still is, other workers may have slots for it, or run its kinds:
-- lane_claim wakes those that are idle. It also does so if the end of a job has made room in a key that is throttled
-- now: workers that did not see it then must learn when the key may go on.
--
-- Only the claim that has the queue's turn writes lanes and takes hints, so no statement here waits for another claim.
-- Claims that share the turn (queue_admit) lock the lanes that they take from, skip lanes that others have locked, and
-- leave the hints of those lanes. Only one of these claims at a time takes hints, since a key without a lane cannot be
-- locked. Each of them says that another claim would find more. If one has not found all that it was to take, the
-- worker's next claim has the turn alone, and misses nothing. Needs lane_pkey, lane_turn_idx, lane_throttled_idx,
-- lane_hint_pkey, key_weight_pkey and lease_pkey, and what the functions need that it calls.
create function jobq.lane_claim(
  of_queue text, of_kinds text[], of_owner text, lease_time interval, lease_per_job boolean, with_plain boolean,
  from_turn bigint, to_turn bigint, again boolean, -- of this pass, that another one would find more
  begin_count smallint default 32767 -- as in JobClaim
) returns table (
  id bigint, lease_token bigint, slot smallint, "position" bigint, priority smallint, attempts smallint,
      max_attempts smallint, crashes smallint,
  queue text, kind text, created_at timestamptz, run_at timestamptz, started_at timestamptz, timeout_ms bigint,
      args jsonb, checkpoint jsonb,
  metadata jsonb, tags text[], last_error text, clear_reason text, has_key boolean, partition_key text, lost smallint
)
  language plpgsql
  as $$
#variable_conflict use_column
declare
  lanes_max integer := 100; -- to look at; in sets, at a time
  hints_max constant integer := 1000;
  room integer := nullif(current_setting('jobq_claim.admitted', true), '')::integer;
  -- the turn
  shared constant boolean := coalesce(nullif(current_setting('jobq_claim.shared', true), '')::boolean, false);
  q jobq.queue;
  counted boolean; -- keys have a limit or a rate
  grouped boolean; -- or a share of their group's
  each_key boolean; -- so they are looked at one by one
  group_clock bigint; -- not null: some lanes may have turns of groups
  new text[] := '{}'; -- keys of lanes that got such turns now
  regrouped integer := 0; -- so many did, or lost them
  key_step bigint; -- of the rate of each key, in microseconds
  key_burst integer;
  throttled boolean; -- some lanes are, perhaps by a rate of before
  due integer := 0; -- lanes that are so no more
  wait_ms bigint; -- until the next one is; null: none is throttled
  unheld bigint;
  unfill_more boolean;
  pauses boolean; -- of keys, since the last claim
  kinds text[]; -- that are not paused
  hints_taken record;
  hints_asked integer := lanes_max; -- hints that were asked for last
  hints integer := 0;
  last_hint bigint := 0; -- the others are behind it, but for those that commit late
  readied text[] := '{}'; -- by hints
  fresh text[] := '{}'; -- keys that hints have told of and that have no lane
  one_by_one boolean;
  many boolean; -- LaneTake takes them
  changed integer := 0; -- lanes that are ready now
  unserved bigint := from_turn; -- turn of the last lane that gave nothing
  looked bigint := from_turn; -- turn of the last lane
  lanes integer; -- that share what is wanted
  weighted boolean; -- some keys of the queue have a weight
  turns_at_once text; -- of each lane, where some keys have a weight: one, many or all
  all_weights integer; -- of the lanes that share what is wanted
  all_dues integer; -- what is left of the turns that these have begun, or are to begin; null: more than wanted
  wanted integer; -- how many to take
  one record; -- of lane_claim_each
  ids bigint[];
  places tid[];
  leases bigint[] := '{}';
  slots smallint[] := '{}';
  lease bigint;
  claimed timestamptz;
  more boolean;
begin
  perform set_config('jobq_claim.lanes', '', true);
  perform set_config('jobq_claim.places', '', true);
  if room is null then
    return;
  end if;
  select x.unheld, x.group_clock, (select h.id from jobq.lane_hint h where h.queue = of_queue and h.id < 0
      order by h.id limit 1) is not null,
      (select w.key from jobq.key_weight w where w.queue = of_queue order by w.key limit 1) is not null,
      (select t.rate_step_us from jobq.lane t where t.queue = of_queue and t.throttled_until is not null
          order by t.rate_step_us limit 1) is not null
    into unheld, group_clock, pauses, weighted, throttled
    from jobq.lane x where x.queue = of_queue and x.key = '';
  if shared and (pauses or unheld is null or group_clock is not null or weighted or throttled
      or exists (select from jobq.queue x
        where x.name = of_queue and (x.key_limit is not null or x.key_rate_jobs is not null
            or x.key_separator is not null))) then
    perform set_config('jobq_claim.lanes', '{1,0,0,0,1}', true); -- it is for a claim with a turn of its own
    return;
  end if;
  if not found then
    if not exists (select from jobq.lane x where x.queue = of_queue)
        -- it has no key yet, or none any more
        and not exists (select from jobq.lane_hint x where x.queue = of_queue and x.id > 0) then
      return;
    end if;
    unheld := 0;
    pauses := true;
    weighted := exists (select from jobq.key_weight w where w.queue = of_queue);
    throttled := true;
    insert into jobq.lane (queue, key, unheld) values (of_queue, '', unheld);
  end if;
  select x.* into q from jobq.queue x where x.name = of_queue;
  if q.paused_at is not null then
    return;
  end if;
  counted := coalesce(q.key_limit, q.key_rate_jobs) is not null;
  grouped := q.key_separator is not null;
  each_key := counted or grouped;
  if q.key_rate_jobs is not null then
    key_step := jobq.rate_step_us(q.key_rate_jobs, q.key_rate_period);
    key_burst := coalesce(q.key_rate_burst, jobq.rate_burst_default(q.key_rate_jobs, q.key_rate_period));
  end if;
  if not each_key and not weighted then
    lanes_max := 50;
  end if;
  if pauses and not jobq.lane_pause(of_queue) then -- the next call goes on
    perform set_config('jobq_claim.lanes', array[1, 0, 0, 0, counted::integer]::text, true);
    return;
  end if;
  if q.key_limit is null and unheld is null then
    update jobq.lane l set unheld = 0 where l.queue = of_queue and l.key = '';
  elsif q.key_limit is not null and unheld is not null and not jobq.lane_note(of_queue) then
    perform set_config('jobq_claim.lanes', '{1,0,0,0,1}', true);
    return;
  end if;
  if each_key then
    hints_asked := hints_max;
  end if;
  select 0 as hints, null::bigint as last_hint, '{}'::text[] as readied, '{}'::text[] as fresh into hints_taken;
  -- without a limit, until there are so many new keys that a claim can begin with them
  while not shared or jobq.turn_take('hints ' || of_queue, 0) loop
    select e.hints, e.last_hint, e.readied, e.fresh into hints_taken
        from jobq.lane_hints_take(of_queue, last_hint, hints_asked, not each_key and from_turn = 0, shared) e;
    last_hint := coalesce(hints_taken.last_hint, last_hint);
    hints := hints + hints_taken.hints;
    readied := readied || hints_taken.readied;
    fresh := fresh || array(select k from unnest(hints_taken.fresh) k except select f from unnest(fresh) f);
    exit when hints_taken.hints < hints_asked or cardinality(fresh) >= lanes_max or hints >= hints_max;
  end loop;
  if not shared then
    select u.lanes, u.more into changed, unfill_more from jobq.lane_unfill(of_queue, q.key_limit, lanes_max) u;
  end if;
  if throttled or key_step is not null then
    due := jobq.lane_due(of_queue, coalesce(key_step, 0), coalesce(key_burst, 0), lanes_max);
    changed := changed + due;
  end if;

  lanes := least(lanes_max, cardinality(fresh) + (select count(*) from (
    select from jobq.lane x where x.queue = of_queue and x.turn is not null and x.turn > from_turn
        order by x.turn limit lanes_max) x));
  if weighted then
    turns_at_once := case when lanes = lanes_max then 'many' when from_turn = 0 then 'all' else 'one' end;
    if with_plain or room > lanes then
      select w.weights, w.dues into all_weights, all_dues
          from jobq.lane_weights(of_queue, from_turn, 9223372036854775807, fresh, lanes_max) w;
    end if;
  end if;
  if q.key_limit is not null then
    perform jobq.lane_look_again(of_queue, q.key_limit);
  end if;

  if grouped then
    new := jobq.lane_group(of_queue, q.key_separator, weighted, hints_max);
    regrouped := cardinality(new);
    -- lanes that have no turn of their group yet are for a later claim
    looked := greatest(from_turn, jobq.group_turn_first() - 1);
  elsif group_clock is not null then
    regrouped := jobq.lane_ungroup(of_queue, hints_max);
  end if;

  if from_turn = 0 then
    to_turn := coalesce((select x.turn from jobq.lane x where x.queue = of_queue and x.turn is not null
        order by x.turn desc limit 1), 0);
    again := false;
  else
    again := again or changed > 0 or readied <> '{}' or regrouped > 0; -- which are behind to_turn, or were passed by
  end if;
  again := again or due >= lanes_max or coalesce(unfill_more, false);
  wanted := room;
  if not grouped and with_plain and lanes > 0 then
    wanted := room - floor(room::float8 / (coalesce(all_weights, lanes) + 1) + random())::integer;
  end if;
  kinds := array(select k.kind from unnest(of_kinds) as k(kind)
    where k.kind <> all(array(select x.name from jobq.kind x where x.paused_at is not null)) order by k.kind);
  claimed := clock_timestamp();
  lease := jobq.lease_id_next();

  if each_key then
    ids := '{}';
    places := '{}';
    one_by_one := true;
    again := again or hints_taken.hints = hints_asked;
  else
    select s.wanted, s.to_turn, s.again, s.readied, s.looked, s.unserved, s.ids, s.places, s.others_follow
      into wanted, to_turn, again, readied, looked, unserved, ids, places, one_by_one
      from jobq.lane_claim_sets(of_queue, kinds, from_turn, lanes_max, weighted, shared, fresh, hints, last_hint,
        hints_taken.hints = hints_asked, wanted, to_turn, again, readied) s;
    if one_by_one and wanted > 0 and to_turn > looked then
      lanes := (select count(*) from (
        select from jobq.lane x where x.queue = of_queue and x.turn is not null and x.turn > looked
            and x.turn <= to_turn order by x.turn limit lanes_max) x);
      if weighted then
        turns_at_once := case when lanes = lanes_max or looked > from_turn then 'many' when from_turn = 0 then 'all'
            else 'one' end;
        select w.weights, w.dues into all_weights, all_dues
            from jobq.lane_weights(of_queue, looked, to_turn, '{}', lanes_max) w where wanted > lanes;
      end if;
    end if;
  end if;
  many := not one_by_one and not lease_per_job;
  if lease_per_job then
    leases := array(select jobq.lease_id_next() from generate_series(1, cardinality(ids)));
    slots := array_fill(1::smallint, array[cardinality(ids)]);
  elsif not many then
    leases := array_fill(lease, array[cardinality(ids)]);
    slots := array(select i::smallint from generate_series(1, cardinality(ids)) i);
  end if;
  if one_by_one and wanted > 0 and to_turn > looked then
    select e.* into one from jobq.lane_claim_each(of_queue, q, kinds, from_turn, to_turn, lanes_max, lanes, shared,
      weighted, turns_at_once, all_weights, all_dues, new, with_plain, lease, cardinality(ids), lease_per_job, claimed,
          wanted, looked, unserved) e;
    wanted := one.wanted;
    looked := one.looked;
    unserved := one.unserved;
    ids := ids || one.ids;
    places := places || one.places;
    leases := leases || one.leases;
    slots := slots || one.slots;
    again := again or one.again;
  end if;
  again := again or shared;
  more := again;
  if shared and wanted > 0 then
    unserved := 0; -- so that the pass begins anew: it may have passed by lanes
  elsif exists (
      select from jobq.lane x where x.queue = of_queue and x.turn is not null and x.turn > looked and x.turn <= to_turn
          order by x.turn limit 1) then
    more := true;
  else
    unserved := 0; -- the pass is over
  end if;
  if key_step is not null then
    select greatest(ceil(extract(epoch from x.throttled_until - clock_timestamp()) * 1000), 1) into wait_ms
      from jobq.lane x
      where x.queue = of_queue and x.rate_step_us = key_step and x.rate_burst = key_burst
        and x.throttled_until is not null
      order by x.throttled_until limit 1;
  end if;
  perform set_config('jobq_claim.admitted',
      (nullif(current_setting('jobq_claim.admitted', true), '')::integer - cardinality(ids))::text, true);
  perform set_config('jobq_claim.lanes', array[more::integer, unserved, to_turn, again::integer, counted::integer,
      wait_ms]::text, true);
  if jobq.worker_is_waiting(of_queue)
      and exists (
        select from unnest(readied) as r(key)
          cross join lateral (select from jobq.lane x where x.queue = of_queue and x.key = r.key
            and (x.turn is not null or q.key_limit is not null and x.throttled_until is not null) limit 1) x) then
    perform jobq.wake('work', of_queue);
  end if;
  if many then
    perform set_config('jobq_claim.places', places::text, true);
    return;
  end if;
  if ids = '{}' then
    return;
  end if;
  insert into jobq.lease (id, claimed_at, expires_at, begun, owner, queue, job_ids)
    select s.lease, claimed, claimed + lease_time, begin_count, of_owner, of_queue, s.ids
      from (
        select lease, ids where not lease_per_job
        union all
        select s.lease, array[s.id] from unnest(ids, leases) as s(id, lease) where lease_per_job
      ) s(lease, ids);
  return query
    with taken as (
      delete from jobq.pending p
        where p.ctid = any(places)
        returning p.*
    )
    insert into jobq.run as r
      select n.*
        from taken t
        join unnest(ids, leases, slots) as s(id, lease, slot) on s.id = t.id
        cross join lateral jobq.run_of(row(t.*)::jobq.pending, s.lease, s.slot) n
      returning r.id, r.lease_id, r.slot, r.position, r.priority, r.attempts, r.max_attempts, r.crashes, r.queue,
        r.kind, r.created_at, coalesce(r.run_at, r.created_at), claimed,
            coalesce(ceil(extract(epoch from r.timeout) * 1000), 0)::bigint,
        coalesce(r.args, (select a.args from jobq.payload a where a.job_id = r.id)), r.checkpoint,
        r.metadata, r.tags, r.last_error, r.clear_reason, r.unique_key is not null, r.partition_key, r.lost;
end $$;
