-- Claims of jobs whose keys have no limit, no rate and no groups: from many keys at once.

-- lane_claim_sets locks jobs for lane_claim where keys have no limit, no rate and no groups (lane_pick): from up to
-- lanes_max lanes at a time until it has found a job, and from at most 1,000 lanes in all. It ends before the first
-- lane that has jobs of other kinds within its share, or in whose line a claim has stopped (looks), and others_follow
-- says so.
--
--   fresh       keys that hints have told of and that have no lane. Such a key gets a lane only if the claim leaves
--               jobs of it
--   hints       how many hints the claim has taken until now, up to the id last_hint. In a new pass (from_turn 0) it
--               takes more if lanes and fresh keys are too few, up to 1,000 in all
--   hints_left  there may be more hints
--   again       another claim would find more
--   readied     keys whose lanes became ready, or are new
--
-- looked is the turn of the last lane that it has looked at, and unserved the turn of the last lane that gave nothing.
-- Needs lane_pkey, lane_turn_idx, lane_hint_pkey, paused_key_pkey, key_weight_pkey and pending_claim_idx only.
create function jobq.lane_claim_sets(
  of_queue text, kinds text[], from_turn bigint, lanes_max integer, weighted boolean, shared boolean, fresh text[],
  hints integer, last_hint bigint, hints_left boolean, inout wanted integer, inout to_turn bigint, inout again boolean,
  inout readied text[], out looked bigint, out unserved bigint, out ids bigint[], out places tid[],
  out others_follow boolean
)
  language plpgsql
  as $$
#variable_conflict use_column
declare
  hints_max constant integer := 1000;
  lanes_left integer := 1000;
  hints_taken record;
  hints_asked integer;
  fresh_turns bigint[] := '{}'; -- which these keys would have
  fresh_seen integer := 0; -- of these
  visited integer := 0; -- lanes, and keys without one
  lanes integer; -- to look at now
  lane_places tid[];
  keys text[]; -- to take from, in the order of their turns
  turns bigint[];
  laned integer; -- so many of these have a lane
  batch record;
  picked record;
  share integer;
  split_shares integer[]; -- of lane_shares
  split_dues integer[];
  split_lefts integer[];
  n_begun integer; -- the place among keys of one that has begun a turn, and keeps it
  due_key text; -- which has begun a turn, and keeps it
  due_left integer;
  emptied text[] := '{}'; -- keys that have nothing left
  served text[] := '{}'; -- keys without a lane that get one at the back
  served_lanes tid[] := '{}'; -- that go to the back
  kept text[] := '{}'; -- keys without a lane that get one with these turns
  kept_turns bigint[] := '{}';
  kept_places tid[] := '{}'; -- of lanes that keep their turns, which they have not begun
  in_order boolean;
begin
  looked := from_turn;
  unserved := from_turn;
  ids := '{}';
  places := '{}';
  others_follow := false;
  while not others_follow and wanted > 0 and lanes_left > 0 loop
    -- Each gives a job, but for those that are empty; and the others as many as those before.
    lanes := least(case when ids = '{}' then lanes_max else lanes_left end,
      greatest(case when ids = '{}' then wanted
          else ceil(wanted::float8 * visited / cardinality(ids)) end, 10))::integer;
    lane_places := case
      when shared then array(select x.ctid from jobq.lane x where x.queue = of_queue and x.turn is not null
          and x.turn > looked and x.turn <= to_turn
        order by x.turn limit lanes for update skip locked)
      else array(select x.ctid from jobq.lane x where x.queue = of_queue and x.turn is not null and x.turn > looked
          and x.turn <= to_turn
        order by x.turn limit lanes)
      end;
    select coalesce(array_agg(x.key order by x.turn), '{}') as keys, coalesce(array_agg(x.turn
        order by x.turn), '{}') as turns,
        coalesce(array_agg(x.ctid order by x.turn), '{}') as lane_places,
        min(x.turn) filter (where x.looks <> '{}') as walked
      into batch
      -- so that no index is read for what is asked of them
      from (select y.key, y.turn, y.looks, y.ctid from jobq.lane y where y.ctid = any(lane_places) offset 0) x
      where x.turn is not null;
    keys := batch.keys;
    turns := batch.turns;
    laned := cardinality(keys);
    while laned + cardinality(fresh) - fresh_seen < lanes and from_turn = 0 and hints_left and hints < hints_max loop
      hints_asked := least(greatest(lanes - laned - cardinality(fresh) + fresh_seen, lanes_max), hints_max - hints);
      select e.hints, e.last_hint, e.readied, e.fresh into hints_taken
          from jobq.lane_hints_take(of_queue, last_hint, hints_asked, true, shared) e;
      last_hint := coalesce(hints_taken.last_hint, last_hint);
      hints_left := hints_taken.hints = hints_asked;
      hints := hints + hints_taken.hints;
      readied := readied || hints_taken.readied;
      -- What this claim has found empty before is for the next one: it would find the jobs again that it has locked.
      served := served || array(select k from unnest(hints_taken.fresh) k intersect select e
          from unnest(emptied) e except select s from unnest(served) s);
      fresh := fresh || array(select k from unnest(hints_taken.fresh) k except select f
          from unnest(fresh || served || kept || emptied) f);
    end loop;
    if cardinality(fresh_turns) < cardinality(fresh) then
      fresh_turns := fresh_turns || array(select nextval('jobq.lane_turn_seq')
          from generate_series(cardinality(fresh_turns) + 1, cardinality(fresh)));
      to_turn := fresh_turns[cardinality(fresh)];
    end if;
    keys := keys || fresh[fresh_seen + 1 : fresh_seen + lanes - laned];
    turns := turns || fresh_turns[fresh_seen + 1 : fresh_seen + lanes - laned];
    exit when keys = '{}';
    share := ceil(wanted::float8 / cardinality(keys));
    if weighted then
      select s.shares, s.dues, s.lefts into split_shares, split_dues, split_lefts
        from jobq.lane_shares(of_queue, keys, wanted,
          case when cardinality(keys) = lanes or looked > from_turn then 'many' when from_turn = 0 then 'all'
              else 'one' end) s;
    end if;
    if batch.walked is not null then -- where claims have stopped in the line of a key, it takes a look of its own
      keys := keys[1 : array_position(turns, batch.walked) - 1];
    end if;
    select p.ids, p.places, p.visited, p.mixed, p.served, p.emptied, p.unserved, p.last_taken into picked
      from jobq.lane_pick(of_queue, keys, kinds,
        case when weighted then split_shares[1 : cardinality(keys)]
            else array_fill(share, array[cardinality(keys)]) end, wanted) p;
    if weighted then
      -- it may have given less than its share
      if cardinality(picked.ids) = wanted and split_lefts[picked.visited] = 0 then
        split_lefts[picked.visited] := greatest(split_dues[picked.visited] - picked.last_taken, 0);
      end if;
      kept := kept || array(select keys[n] from unnest(picked.served) n
          where n > laned and split_lefts[n] is distinct from 0);
      kept_turns := kept_turns || array(select turns[n] from unnest(picked.served) n
          where n > laned and split_lefts[n] is distinct from 0);
      kept_places := kept_places || array(select batch.lane_places[n] from unnest(picked.served) n
          where n <= laned and split_lefts[n] is null);
      n_begun := (select n from unnest(picked.served) n where split_lefts[n] > 0 limit 1);
      if n_begun is not null then
        due_key := keys[n_begun];
        due_left := split_lefts[n_begun];
      end if;
      again := again or picked.served <> '{}';
      picked.served := array(select n from unnest(picked.served) n where split_lefts[n] = 0);
    end if;
    ids := ids || picked.ids;
    places := places || picked.places;
    served := served || array(select keys[n] from unnest(picked.served) n where n > laned);
    served_lanes := served_lanes || array(select batch.lane_places[n] from unnest(picked.served) n where n <= laned);
    emptied := emptied || array(select keys[n] from unnest(picked.emptied) n);
    -- Before more hints are taken: one that has come since would find the lane ready, and that would be all.
    delete from jobq.lane x
        where x.ctid = any(array(select batch.lane_places[n] from unnest(picked.emptied) n where n <= laned));
    kept := kept || array(select keys[n] from unnest(picked.unserved) n where n > laned);
    kept_turns := kept_turns || array(select turns[n] from unnest(picked.unserved) n where n > laned);
    unserved := greatest(unserved, (select turns[max(n)] from unnest(picked.unserved) n));
    fresh_seen := fresh_seen + greatest(picked.visited - laned, 0);
    looked := coalesce(turns[picked.visited], looked);
    wanted := wanted - cardinality(picked.ids);
    lanes_left := lanes_left - cardinality(keys);
    visited := visited + picked.visited;
    others_follow := picked.visited = cardinality(keys) and cardinality(keys) < cardinality(turns) or picked.mixed;
  end loop;
  if from_turn = 0 and cardinality(fresh_turns) < cardinality(fresh) then
    fresh_turns := fresh_turns || array(select nextval('jobq.lane_turn_seq')
        from generate_series(cardinality(fresh_turns) + 1, cardinality(fresh)));
    to_turn := fresh_turns[cardinality(fresh)];
  end if;
  kept := kept || fresh[fresh_seen + 1 : cardinality(fresh)];
  kept_turns := kept_turns || fresh_turns[fresh_seen + 1 : cardinality(fresh)];
  again := again or served <> '{}' or served_lanes <> '{}' or hints_left;
  readied := served || kept || readied;
  if served_lanes <> '{}' then
    -- some may have had more turns than those behind them
    in_order := weighted and cardinality(served_lanes) <= lanes_max;
    if in_order then
      turns := array(select nextval('jobq.lane_turn_seq') from generate_series(1, cardinality(served_lanes)));
    end if;
    update jobq.lane x
      set turn = case when in_order then turns[array_position(served_lanes, x.ctid)]
          else nextval('jobq.lane_turn_seq') end,
        due = null, due_turn = null
      where x.ctid = any(served_lanes);
  end if;
  if kept_places <> '{}' then
    update jobq.lane x set due = null, due_turn = null where x.ctid = any(kept_places) and x.due is not null;
  end if;
  if served <> '{}' or kept <> '{}' then
    insert into jobq.lane (queue, key, turn)
      select of_queue, k.key, k.turn from unnest(kept, kept_turns) as k(key, turn)
      union all
      select of_queue, s.key, nextval('jobq.lane_turn_seq') from unnest(served) as s(key);
  end if;
  if due_key is not null then
    update jobq.lane x set due = due_left, due_turn = null where x.queue = of_queue and x.key = due_key;
  end if;
end $$;
