-- Partition keys: their lanes, hints that tell claims of them, pauses, weights and groups. See docs/decisions/0022.

-- A lane is a partition key of a queue, while jobs of the key wait or run. The row with the key '' is the queue's own,
-- and exists once the queue has had a key. Only a claim that has the queue's turn (queue_admit) writes lanes, as
-- lane_claim says, or lane_prune in its place.
--
-- Example: keys of a queue with a key_limit of 2. Key c has no row: nothing of it waits or runs.
--
--   key  turn  full_limit  held_leases  held_slots
--   a      17              {}           {}          next to be looked at
--   b      18              {900}        {4}         after it; one of its jobs runs
--   d               2      {900, 901}   {5, 1}      full: no claim looks at it until one of the two has ended
--
-- A lane holds the leases and slots of jobs that were claimed. Some of these may have ended since: the leases say which
-- still run. Without a key_limit lanes hold nothing, and a key of which nothing waits has no lane.
--
-- With a rate of the keys, rate_ready_at is for the key what ready_at of throttle is for a queue. If a key has used up
-- its burst while jobs of it wait, its lane is throttled, neither ready nor full: no claim looks at it before
-- throttled_until. If nothing of it waits, it keeps its lane until rate_ready_at: without the lane, the key would have
-- its whole burst again. With a rate of 1/s and a burst of 2, at 12:00:00:
--
--   key  turn  rate_ready_at  throttled_until
--   a      19  12:00:01                        one more may start at once
--   b          12:00:02       12:00:01         throttled: two have started, and more wait
--   c          12:00:02                        two have started, and no more wait
create table jobq.lane (
  queue       text       not null,
  key         text       not null,
  turn        bigint, -- ready: it may have a job to be claimed. Lower goes first
  full_limit  integer, -- as many ran as this limit, at looked_at
  -- and of the row '' when some of the full ones were looked at without a hint, or no other one was found
  looked_at   timestamptz,
  held_leases bigint[]   not null default '{}',
  held_slots  smallint[] not null default '{}',
  looks       jsonb      not null default '{}', -- where claims stopped in its line, by their kinds: see lane_walk
  -- of the row '': what runs of leases after this one may not be held by its lane, since there was no key_limit; null:
  -- all is
  unheld      bigint,
  rate_ready_at   timestamptz, -- null: nothing of the rate is used
  rate_step_us    bigint, -- of the rate when it was written, with its burst
  rate_burst      integer,
  throttled_until timestamptz,
  -- turn that the last hint gave, or would have; not of a ready lane without looks
  hinted      bigint     not null default 0,
  due         integer, -- so many jobs are left of a turn that it has begun, where its key has a weight: see key_weight
  due_turn    bigint, -- which it gets back, since it was full before the turn was over
  -- of the row '': the latest turn of its group in which a job was given; null: no lane has had such a turn. See
  -- key_group
  group_clock bigint,
  constraint lane_pkey primary key (queue, key),
  constraint "a lane is ready, full, throttled or neither" check (num_nonnulls(turn, full_limit, throttled_until) <= 1)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);
comment on table jobq.lane is 'Partition keys that have jobs: whose turn it is, and what they hold.';
create index lane_turn_idx on jobq.lane (queue, turn) where turn is not null;
create index lane_full_idx on jobq.lane (queue, full_limit, looked_at) where full_limit is not null;
-- The throttled ones: those that are due, and those whose rate was another one.
create index lane_throttled_idx on jobq.lane (queue, rate_step_us, rate_burst, throttled_until)
    where throttled_until is not null;
-- Those of which nothing waits or runs, to be deleted when nothing of their rate is used any more.
create index lane_spent_idx on jobq.lane (queue, rate_ready_at)
  where turn is null and full_limit is null and throttled_until is null and rate_ready_at is not null
    and held_leases = '{}';
create sequence jobq.lane_turn_seq as bigint;

-- The job of each key that was claimed last, in queues with a key_order: the key's head. It stays the head until it has
-- ended, even if it comes back with another place in the line (lane_next). Only claims that have the queue's turn write
-- it. lane_head_prune deletes it.
create table jobq.lane_head (
  queue    text   not null,
  key      text   not null,
  job_id   bigint not null,
  lease_id bigint not null, -- with which it was claimed
  constraint lane_head_pkey primary key (queue, key)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);
comment on table jobq.lane_head is
  'The job of each partition key that was claimed last, in queues with a strict order.';

-- Hints of keys that may be ready: a job of the key was added or became due, a job of it has ended, or the key was
-- resumed. Whoever does that adds a row in the same transaction, and so never waits for a lane. The next claim deletes
-- it. The hint of a pause has an id below 0: claims take those first, however many others there are (lane_pause).
create table jobq.lane_hint (
  id    bigint not null generated always as identity,
  queue text   not null,
  key   text   not null,
  constraint lane_hint_pkey primary key (queue, id)
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);
comment on table jobq.lane_hint is 'Partition keys that a claim is to look at; ids below 0: that were paused.';

-- The partition keys that are paused. A table of its own, since a pause outlives the key's jobs, and its lane.
create table jobq.paused_key (
  queue        text        not null,
  key          text        not null,
  paused_at    timestamptz not null,
  paused_by    text        not null,
  pause_reason text,
  constraint paused_key_pkey primary key (queue, key),
  constraint "queue must be 1 to 128 characters" check (char_length(queue) between 1 and 128),
  constraint "partition_key must be 1 to 255 characters" check (char_length(key) between 1 and 255),
  constraint "pause_reason must be at most 1024 characters" check (char_length(pause_reason) <= 1024)
);
comment on table jobq.paused_key is 'Partition keys of queues that are paused. Change them with jobq.act_key.';
comment on column jobq.paused_key.queue is 'The queue.';
comment on column jobq.paused_key.key is 'The partition key.';
comment on column jobq.paused_key.paused_at is 'Since when no job of it is claimed.';
comment on column jobq.paused_key.paused_by is 'Who paused it.';
comment on column jobq.paused_key.pause_reason is 'And why.';
-- For jobq doctor, which names those that are paused for long.
create index paused_key_paused_at_idx on jobq.paused_key (paused_at);

-- The weights of partition keys: how many jobs a turn of the key is long. A key without a row has the weight 1. This is
-- a table of its own, since a weight stays when no job of the key is left.
--
-- Example: of the keys a (weight 3) and b, many jobs wait. Claims of one job each get a a a b a a a b; after the first
-- of these, the lane of a keeps its turn, with due 2. A claim of 10 jobs gets 8 of a and 2 of b: two turns of each, and
-- two jobs of the third turn of a.
create table jobq.key_weight (
  queue  text     not null,
  key    text     not null,
  weight smallint not null,
  constraint key_weight_pkey primary key (queue, key),
  constraint "queue must be 1 to 128 characters" check (char_length(queue) between 1 and 128),
  constraint "partition_key must be 1 to 255 characters" check (char_length(key) between 1 and 255),
  constraint "weight must be 2 to 100" check (weight between 2 and 100)
);
comment on table jobq.key_weight is
  'Partition keys of queues that have a weight other than 1. Change them with jobq.act_key_weight.';
comment on column jobq.key_weight.queue is 'The queue.';
comment on column jobq.key_weight.key is 'The partition key.';
comment on column jobq.key_weight.weight is 'How many of its jobs start where one of a key without a weight does.';

-- The groups of partition keys, in queues with a key_separator. All groups have the same share, however many keys they
-- have, or a share by weight: the weight of the key that has the group's name.
--
-- A lane that becomes ready gets the next turn of its group. So lanes of one group have turns one after the other, and
-- lanes of different groups have equal turns. Each further job that a lane gives moves its group's next turn on by one.
-- A group that had no jobs begins at the queue's clock (lane.group_clock), where the other groups are: it has lost
-- nothing, and owes nothing.
--
-- Example: of the group a, the keys a/1, a/2 and a/3 have one job each, and of b the key b/1 has many. They get the
-- turns 1, 2, 3, and 1. Claims of one job take from a/1, b/1 (then it has 2), a/2, b/1 (then it has 3), a/3, b/1.
--
-- lane.turn holds two things: the turn of the group, which orders lanes first (group_turn), and in its last bits the
-- number of the sequence (lane_group). Only claims that have the queue's turn write this table.
create table jobq.key_group (
  queue     text   not null,
  name      text   not null,
  -- of the lane of the group that becomes ready next; a job of a group with a weight is a part of a turn
  next_turn float8 not null,
  constraint key_group_pkey primary key (queue, name)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);
comment on table jobq.key_group is
  'Groups of partition keys, in queues with a key_separator: which turn each gets next.';
-- Claims delete groups whose next turn is long before the clock.
create index key_group_next_turn_idx on jobq.key_group (queue, next_turn);

-- lane_come adds hints (lane_hint) for keys of which a job became available, or which were resumed. If
-- the queue has had no keys until now, it tells idle workers to read the queue's settings.
create function jobq.lane_come(of_queue text, keys text[]) returns void
  language plpgsql
  as $$
begin
  insert into jobq.lane_hint (queue, key) select of_queue, k.key from unnest(keys) as k(key);
  if jobq.worker_is_waiting(of_queue) and not exists (select from jobq.lane l
      where l.queue = of_queue and l.key = '') then
    perform jobq.notify('settings', of_queue);
  end if;
end $$;

-- lane_pause handles the hints of pauses: the lane of a key that was paused since the last claim becomes not ready, not
-- full and not throttled. It takes up to 1,000 of these hints, and returns whether those were all. Afterwards
-- lane_hints_take and lane_prune leave the lanes of paused keys as they are. The caller has the queue's turn. Needs
-- lane_hint_pkey, paused_key_pkey and lane_pkey only.
create function jobq.lane_pause(of_queue text) returns boolean
  language plpgsql
  as $$
declare
  hints_max constant integer := 1000;
  hints integer;
begin
  with hints_taken as (
    delete from jobq.lane_hint h
      where h.ctid = any(array(select x.ctid from jobq.lane_hint x where x.queue = of_queue and x.id < 0
          order by x.id limit hints_max))
      returning h.key
  ), stopped as (
    update jobq.lane l
      set turn = null, full_limit = null, throttled_until = null, due = null, due_turn = null
      where l.ctid = any(array(
        select (select x.ctid from jobq.lane x
            where x.queue = of_queue and x.key = k.key and (x.turn is not null or x.full_limit is not null
                or x.throttled_until is not null) limit 1)
          from (select e.key from hints_taken e group by e.key) k
          -- It may go on already.
          where (select p.key from jobq.paused_key p where p.queue = of_queue and p.key = k.key limit 1) is not null))
  )
  select count(*) into hints from hints_taken;
  return hints < hints_max;
end $$;

-- lane_hints_take deletes up to hints_max hints of a queue, and makes the lanes of their keys ready, in the order of
-- the hints. Lanes of paused keys and throttled lanes stay as they are.
--
--   after_hint  the id of the last hint that the claim has taken; later hints have a higher id
--   apart       a key without a lane gets none and is returned among fresh, since most such keys are empty before the
--               claim ends
--   shared      other claims run beside this one: the hint of a key stays if another claim has locked its lane, since
--               that claim may have looked at the key before the hint came
--
-- hints is how many it has looked at, and last_hint the id of the last one. readied are the keys whose lanes it has
-- made ready. The caller has the queue's turn. Needs lane_hint_pkey, paused_key_pkey and lane_pkey only.
create function jobq.lane_hints_take(of_queue text, after_hint bigint, hints_max integer, apart boolean, shared boolean)
  returns table (hints integer, last_hint bigint, readied text[], fresh text[])
  language plpgsql
  as $$
begin
  return query
    with found as materialized (
      select x.id, x.key, x.ctid as place from jobq.lane_hint x where x.queue = of_queue and x.id > after_hint
          order by x.id limit hints_max
    ), looked as materialized (
      -- A lane that is ready stays as it is. Nobody has locked it if it has no xmax: whoever does from now on finds
      -- what the hint tells of.
      select e.key, e.first, l.known is not null as known, coalesce(l.stays, false) as stays
        from (select f.key, min(f.id) as first from found f group by f.key) e
        left join lateral (
          select true as known, x.turn is not null and x.looks = '{}'
              and (not lane_hints_take.shared or x.xmax = 0) as stays
            from jobq.lane x where x.queue = of_queue and x.key = e.key limit 1
        ) l on true
    ), others as materialized (
      select o.key
        from looked o
        where lane_hints_take.shared and o.known and not o.stays
          and not exists (select from jobq.lane x where x.queue = of_queue and x.key = o.key limit 1
              for update skip locked)
    ), hints_taken as (
      delete from jobq.lane_hint h
        where h.ctid = any(array(select f.place from found f where f.key not in (select o.key from others o)))
    ), k as materialized (
      select o.key, o.first, o.known
        from looked o
        where not o.stays and o.key not in (select t.key from others t)
          -- asked once
          and ((select p.key from jobq.paused_key p where p.queue = of_queue order by p.key limit 1) is null
            or (select p.key from jobq.paused_key p where p.queue = of_queue and p.key = o.key limit 1) is null)
    ), hinted as (
      insert into jobq.lane as l (queue, key, turn, hinted)
        select of_queue, n.key, n.turn, n.turn
          from (
            select k.key, nextval('jobq.lane_turn_seq') as turn
              from (select x.key from k x where x.known or not lane_hints_take.apart order by x.first) k
          ) n
        on conflict on constraint lane_pkey do update
          set turn = case when l.throttled_until is null then coalesce(l.turn, l.due_turn, excluded.turn) end,
              full_limit = null, hinted = excluded.hinted
          where l.turn is null and l.throttled_until is null or l.looks <> '{}'
        returning l.key, l.turn in (l.hinted, l.due_turn) as readied
    )
    select (select count(*) from found)::integer, (select max(f.id) from found f), array(select h.key from hinted h
        where h.readied),
      array(select k.key from k where not k.known and lane_hints_take.apart order by k.first);
end $$;

-- lane_hints_add adds hints (lane_hint) for keys of which jobs have ended, if the queue has a limit of its
-- keys. With to_wake it wakes idle workers: the transaction will not claim itself.
create function jobq.lane_hints_add(of_queue text, keys text[], to_wake boolean) returns void
  language plpgsql
  as $$
begin
  if not exists (select from jobq.queue q where q.name = of_queue and q.key_limit is not null) then
    return; -- an end makes no key ready
  end if;
  insert into jobq.lane_hint (queue, key) select of_queue, k.key from unnest(keys) as k(key);
  if to_wake and jobq.worker_is_waiting(of_queue) then
    perform jobq.wake('work', of_queue);
  end if;
end $$;

-- lane_failed says whether a run has failed for good. It is planned anew for each lease, so that it locks
-- only one day of the history.
create function jobq.lane_failed(of_job bigint, of_lease bigint) returns boolean
  language plpgsql stable
  set plan_cache_mode = force_custom_plan set jit = off
  as $$
begin
  return exists (select from jobq.run r where r.id = of_job and r.lease_id = of_lease and r.state = 'failed');
end $$;

-- lane_freed says that a job of a key, null or '' for none, was cancelled or deleted: others of its key may have waited
-- for it.
create function jobq.lane_freed(of_queue text, of_key text) returns void
  language plpgsql security definer set search_path = pg_catalog, pg_temp
  as $$
begin
  if of_key <> '' then
    perform jobq.lane_hints_add(of_queue, array[of_key], true);
  end if;
end $$;
