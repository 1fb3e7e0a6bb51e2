-- claim moves up to $5 jobs with keys of queue $1, of the kinds $2, to run, under one lease of owner $3 for each key.
-- A worker whose kinds few lanes have looks at lanes in passes: $6 and $9 are null, or the rank and key of the last lane that had nothing for it
-- (from_rank, from_key of the claim before). The pass ends when seen reaches what last was in its first claim. $7 is how many lanes it
-- reads at most; a worker doubles it when a claim found less than it asked for and there was more. $8 are keys
-- of which jobs have ended in this transaction.
--
-- Example: n = 4, limit 2 for each key; rank 7 is the clock.
--
--   key  rank  state               looked at  takes  afterwards
--   a    7.0   awake, 1 runs       1.         1      full, rank 8
--   b    7.0   awake, none runs    2.         2      full, rank 9
--   new  -     a hint, 5 jobs      3.         1      awake, rank 8 (it began at the clock)
--   c    9.0   awake               -                 as it was
--   d    5.0   full, no hint       -                 as it was
with s as materialized ( -- settings
  select clock_timestamp() as at, $5::integer as n, ((clock_timestamp() at time zone 'UTC')::date - date '2026-01-01')::bigint << 40 as day,
      q.key_limit, (extract(epoch from q.rate_step) * 1000000)::bigint as step_us, q.rate_burst, q.key_order, q.separator, q.separator is not null as grouped,
      (select w.key from proto.key_weight w where w.queue = $1 limit 1) is not null as weighted,
      (select k.key from proto.paused_key k where k.queue = $1 limit 1) is not null as pauses,
      coalesce((select g.clock from proto.key_group g where g.queue = $1 and g.name = '' limit 1), 0) as clock,
      coalesce((select l.clock from proto.queue_lock l where l.queue = $1 limit 1), 0) as group_clock
    from (values ($1::text)) as v(queue)
    left join lateral (select * from proto.queue q where q.name = v.queue limit 1) q on true
), hint as (
  delete from proto.lane_hint h
    where h.ctid = any(array(select x.ctid from proto.lane_hint x where x.queue = $1 order by x.id limit least(greatest($5::integer, 100), 1000)))
    returning h.key
), woken as materialized ( -- lanes that are new, or were asleep until now
  select w.key, max(w.rank) as stored_rank, max(w.spent) as spent, max(w.rate_at) as rate_at, max(w.head_job) as head_job, max(w.head_lease) as head_lease
    from (
      select k.key, l.rank, l.spent, l.rate_at, l.head_job, l.head_lease
        from (select h.key from hint h union select u.key from unnest($8::text[]) as u(key)) k
        left join lateral (select * from proto.lane l where l.queue = $1 and l.key = k.key limit 1) l on true
        where l.key is null or l.reason in ('f', 'h', 'e')
          or l.reason = 'p' and (select p.key from proto.paused_key p where p.queue = $1 and p.key = k.key limit 1) is null
      union all
      select l.key, l.rank, l.spent, l.rate_at, l.head_job, l.head_lease
        from (values ('r'::"char", 1000), ('f', 10), ('h', 10)) as d(reason, most)
        cross join lateral (
          select * from proto.lane l where l.queue = $1 and l.reason = d.reason and l.asleep_until <= (select s.at from s) order by l.asleep_until limit d.most
        ) l
    ) w
    group by w.key
), flow as materialized ( -- groups that are awake; without a separator one for all
  select f.name, f.rank, f.clock, count(*) over () as flows
    from s
    cross join lateral (
      select ''::text as name, 0::float8 as rank, s.clock where not s.grouped
      union all
      (select g.name, g.rank, g.clock from proto.key_group g where s.grouped and g.queue = $1 and g.awake order by g.rank limit 100)
    ) f
), lane as (
  select f.name as group_name, f.rank as group_rank, f.clock, f.flows, l.key, l.rank, null::float8 as stored_rank, l.rate_at, l.head_job, l.head_lease, false as woken
    from flow f
    cross join lateral (
      select * from proto.lane l
        where l.queue = $1 and l.group_name = f.name and l.reason is null and (l.rank, l.key) > (coalesce($6::float8, '-infinity'), coalesce($9::text, ''))
        order by l.rank, l.key limit case when f.flows = 1 then $7::integer else greatest(ceil(1.2 * $7 / f.flows), 3) end
    ) l
  union all
  select w.group_name, case when g.awake then g.rank when s.grouped then greatest(g.rank, s.group_clock) else 0 end,
      case when s.grouped then coalesce(g.clock, 0) else s.clock end, 0, w.key,
      greatest(w.stored_rank + w.spent, case when s.grouped then coalesce(g.clock, 0) else s.clock end), w.stored_rank, w.rate_at, w.head_job, w.head_lease, true
    from s
    cross join lateral (select w.*, case when s.grouped then split_part(w.key, s.separator, 1) else '' end as group_name from woken w) w
    left join lateral (select * from proto.key_group g where s.grouped and g.queue = $1 and g.name = w.group_name limit 1) g on true
), weighed as (
  select l.*, hashtextextended(l.group_name, 0) as group_hash,
      case when s.weighted and s.grouped then coalesce((select w.weight from proto.key_weight w where w.queue = $1 and w.key = l.group_name limit 1), 1) else 1 end::float8 as group_weight,
      case when s.weighted then coalesce((select w.weight from proto.key_weight w where w.queue = $1 and w.key = l.key limit 1), 1) else 1 end::float8 as weight
    from lane l
    cross join s
), ranked as (
  select w.*, row_number() over g as ordinal, count(*) over g as lanes, sum(w.weight) over g as weights
    from weighed w
    window g as (partition by w.group_hash order by w.rank, w.key rows between unbounded preceding and unbounded following)
), candidate as materialized ( -- share is what of n is the group's; turn orders lanes as claims of one job each would take them
  select c.*, ceil(c.share * c.weight / least(50, c.weights) - 0.000001) as quantum, c.group_rank + (c.ordinal - 1) * greatest(c.share / 50, c.share / c.lanes) / c.group_weight as turn
    from (
      select r.*, row_number() over a as no, $5::integer * r.group_weight / sum(r.group_weight / r.lanes) over a as share
        from ranked r
        window a as (rows between unbounded preceding and unbounded following)
    ) c
), look as materialized ( -- the first jobs of their lines, and an id for the lease of each key
  select c.no, c.turn, r.running, r.room, r.lease_id, j.slot, j.place
    from (select * from candidate c order by c.turn, c.no) c
    cross join s
    cross join lateral (
      select x.running, least(c.quantum, s.key_limit - x.running,
          case when s.step_us is not null then (s.rate_burst * s.step_us - greatest((extract(epoch from c.rate_at - s.at) * 1000000)::bigint, 0)) / s.step_us end)::integer as room,
          s.day + nextval('proto.lease_number_seq') as lease_id
        from (
          select case when s.key_limit is not null then
            (select coalesce(sum(cardinality(l.job_ids) - cardinality(l.ended_slots)), 0) from proto.lease l where l.queue = $1 and l.key = c.key) end as running
        ) x
        where not s.pauses or (select p.key from proto.paused_key p where p.queue = $1 and p.key = c.key limit 1) is null
    ) r
    cross join lateral (
      select p.place, (row_number() over ())::smallint as slot from (
        select x.place, x.kind from (
          select p.ctid as place, p.kind from proto.pending p
            where s.key_order is null and p.queue = $1 and p.partition_key = c.key and p.position is not null
            order by p.priority, p.position limit 1000 for update skip locked) x
        union all
        select h.place, h.kind from (
          select p.ctid as place, p.kind from proto.pending p
            where s.key_order is not null and p.id = c.head_job and p.queue || '' = $1 and p.partition_key || '' = c.key and p.position is not null limit 1 for update skip locked) h
        union all
        select f.place, f.kind from (select p.ctid as place, p.kind from proto.pending p
          where s.key_order is not null and p.queue = $1 and p.partition_key = c.key and p.position is not null
            and (c.head_job is null or (
              select h.id from proto.pending h where h.id = c.head_job and h.queue || '' = $1 and h.partition_key || '' = c.key and (h.position is not null or s.key_order <> 'pass') limit 1) is null)
            and (c.head_job is null or s.key_order <> 'stop' or (
              select u.id from proto.run u where u.id = c.head_job and u.lease_id = c.head_lease and u.state = 'failed' limit 1) is null)
          order by p.priority, p.position limit 1 for update skip locked) f
      ) p
      where p.kind = any($2::text[])
      limit greatest(r.room, 0)
    ) j
    limit $5::integer
), taken as (
  delete from proto.pending p
    where p.ctid = any(array(select l.place from look l))
    returning p.ctid as place, p.id, p.position, p.run_at, p.created_at, p.timeout, p.backoff_base, p.backoff_max,
      p.priority, p.attempts, p.max_attempts, p.crashes, p.args_apart, p.queue, p.kind, p.args, p.unique_key,
      p.last_error, p.clear_reason, p.checkpoint, p.metadata, p.tags, p.partition_key
), leased as materialized (
  select t.*, l.no, l.lease_id, l.slot from taken t join look l on l.place = t.place
), given as ( -- of each lane
  select l.no, max(l.lease_id) as lease_id, max(l.partition_key) as key, count(*) as jobs, array_agg(l.id order by l.slot) as job_ids from leased l group by l.no
), found as (
  select l.no, count(*) as jobs, max(l.running) as running, max(l.room) as room from look l group by l.no
), last as materialized ( -- the lane at which look stopped; without a row, it has looked at all
  select l.turn, l.no from look l where (select count(*) from look) = $5::integer order by l.turn desc, l.no desc limit 1
), outcome as (
  select c.*, coalesce(g.jobs, 0) as taken, f.jobs as found, f.room, g.lease_id, g.job_ids,
      coalesce((c.turn, c.no) <= (select l.turn, l.no from last l), true) as seen,
      coalesce(f.running, case when s.key_limit is not null then
        (select coalesce(sum(cardinality(l.job_ids) - cardinality(l.ended_slots)), 0) from proto.lease l where l.queue = $1 and l.key = c.key) end) as running,
      s.step_us - s.rate_burst * s.step_us + coalesce(greatest((extract(epoch from c.rate_at - s.at) * 1000000)::bigint, 0), 0) + coalesce(g.jobs, 0) * s.step_us as late_us
    from candidate c
    cross join s
    left join found f on f.no = c.no
    left join given g on g.no = c.no
    where s.grouped or c.woken or coalesce((c.turn, c.no) <= (select l.turn, l.no from last l), true)
), state as materialized ( -- late_us: how long until the rate lets it start a job
  select o.*, s.grouped,
      case
        when not o.seen then null
        when o.found is null and s.pauses and (select p.key from proto.paused_key p where p.queue = $1 and p.key = o.key limit 1) is not null then 'p'
        when o.running + o.taken >= s.key_limit then 'f'
        when (o.found is null or o.found < o.room or o.late_us > 0)
          and (select count(*) from (
            select from proto.pending p where p.queue = $1 and p.partition_key = o.key and p.position is not null order by p.priority, p.position limit o.taken + 1) x) <= o.taken then 'e'
        when o.found is null and s.key_order in ('hold', 'stop') and o.head_job is not null and (
          select h.id from proto.pending h where h.id = o.head_job and h.queue || '' = $1 and h.partition_key || '' = o.key and h.position is null limit 1) is not null then 'h'
        when o.found is null and s.key_order = 'stop' and o.head_job is not null and (
          select u.id from proto.run u where u.id = o.head_job and u.lease_id = o.head_lease and u.state = 'failed' limit 1) is not null then 'h'
        when o.late_us > 0 then 'r'
      end::"char" as reason
    from outcome o
    cross join s
), lease as (
  insert into proto.lease (id, claimed_at, expires_at, owner, queue, key, job_ids)
    select o.lease_id, s.at, s.at + $4::interval, $3, $1, o.key, o.job_ids from state o cross join s where o.taken > 0
), lanes as (
  insert into proto.lane as l (queue, key, group_name, rank, spent, reason, asleep_until, rate_at, head_job, head_lease)
    select $1, o.key, o.group_name, case when o.reason is not null and o.stored_rank is not null then o.stored_rank else o.rank + o.taken / o.weight end,
        case when o.reason is not null and o.stored_rank is not null then o.rank + o.taken / o.weight - o.stored_rank else 0 end, o.reason,
        case o.reason when 'r' then s.at + o.late_us * interval '1 us' when 'p' then 'infinity' else case when o.reason is not null then date_trunc('minute', s.at) + interval '2 min' end end,
        case when s.step_us is not null and o.taken > 0 then greatest(o.rate_at, s.at) + o.taken * s.step_us * interval '1 us' else o.rate_at end,
        case when s.key_order is not null then coalesce(o.job_ids[1], o.head_job) end, case when s.key_order is not null then coalesce(o.lease_id, o.head_lease) end
      from state o
      cross join s
      where o.woken or o.taken > 0 or o.reason is not null
    on conflict on constraint lane_pkey do update set group_name = excluded.group_name, rank = excluded.rank, spent = excluded.spent, reason = excluded.reason, asleep_until = excluded.asleep_until,
      rate_at = excluded.rate_at, head_job = excluded.head_job, head_lease = excluded.head_lease
), groups as (
  insert into proto.key_group as g (queue, name, rank, clock, awake)
    select $1, o.group_name, max(o.group_rank) + sum(o.taken) / max(o.group_weight), greatest(max(o.clock), min(o.rank) filter (where o.seen)),
        (select s.grouped from s) and (bool_or(o.reason is null) or bool_or(o.flows > 0 and o.lanes >= greatest(ceil(1.2 * $7 / greatest(o.flows, 1)), 3)))
      from state o
      group by o.group_name
      having sum(o.taken) > 0 or (select s.grouped from s) and bool_or(o.woken or o.reason is not null)
    on conflict on constraint key_group_pkey do update set rank = excluded.rank, clock = excluded.clock, awake = excluded.awake
), clock as (
  update proto.queue_lock l set clock = (select min(o.group_rank) from state o where o.taken > 0)
    where l.queue = $1 and (select s.grouped from s) and (select min(o.group_rank) from state o where o.taken > 0) > l.clock
), moved as (
  insert into proto.run as r
      (id, lease_id, slot, position, run_at, created_at, timeout, backoff_base, backoff_max, priority, attempts, max_attempts,
       crashes, args_apart, queue, kind, args, unique_key, last_error, clear_reason, checkpoint, metadata, tags, partition_key)
    select t.id, t.lease_id, t.slot, t.position, nullif(t.run_at, t.created_at), t.created_at, t.timeout, t.backoff_base,
        t.backoff_max, t.priority, t.attempts, t.max_attempts, t.crashes, t.args_apart, t.queue, t.kind, t.args, t.unique_key,
        t.last_error, t.clear_reason, t.checkpoint, t.metadata, t.tags, t.partition_key
      from leased t
    returning r.id, r.lease_id as lease_token, r.slot, r.position, r.priority, r.attempts, r.max_attempts, r.crashes, r.queue, r.kind,
      r.created_at, coalesce(r.run_at, r.created_at)::timestamptz as run_at,
      coalesce(ceil(extract(epoch from r.timeout) * 1000), 0)::bigint as timeout_ms,
      coalesce(r.args, (select a.args from jobq.payload a where a.job_id = r.id))::jsonb as args,
      r.checkpoint, r.metadata, r.tags, r.last_error, r.clear_reason, (r.unique_key is not null)::boolean as has_key, r.partition_key
), passed as materialized ( -- the last lane that had nothing for this worker
  select o.rank, o.key from state o where o.seen and o.reason is null and o.taken = 0 and not o.grouped order by o.rank desc, o.key desc limit 1
), ahead as materialized ( -- the last lane that it has looked at
  select o.rank, o.key from state o where o.seen and not o.grouped order by o.rank desc, o.key desc limit 1
), tail as materialized (
  select l.rank, l.key from proto.lane l where l.queue = $1 and l.group_name = '' and l.reason is null order by l.rank desc, l.key desc limit 1
), answer as ( -- one row: whether another claim may find more, where it looks on, and when the next throttled key may start a job
  select (select s.at from s) as started_at,
      coalesce(bool_or(o.reason is null), false) or (select count(*) from candidate) >= $7 or (select count(*) from hint) >= least(greatest($5::integer, 100), 1000) as more,
      (select l.rank from passed l) as from_rank, (select l.key from passed l) as from_key,
      (select l.rank from ahead l) as seen_rank, (select l.key from ahead l) as seen_key, (select l.rank from tail l) as last_rank, (select l.key from tail l) as last_key,
      (select extract(epoch from l.asleep_until - s.at) * 1000 from s cross join lateral (
        select l.asleep_until from proto.lane l where l.queue = $1 and l.reason = 'r' order by l.asleep_until limit 1) l)::bigint as wait_ms
    from state o
)
select m.*, a.started_at, a.more, a.from_rank, a.from_key, a.seen_rank, a.seen_key, a.last_rank, a.last_key, a.wait_ms from answer a left join moved m on true
