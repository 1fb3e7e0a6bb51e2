-- end stores that the slots $4[lows[i]:highs[i]] of lease $1[i], claimed at $2[i], have plainly succeeded. A lease of which no job
-- runs any more moves to the history. It returns the leases in which this was recorded. If keys have a limit, those of which jobs
-- ended get a hint each, unless a claim follows.
-- $1 ids, $2 claimed_ats, $3 owner, $4 slots, $5 lows, $6 highs, $7 lease, $8 queue, $9 kinds, $10 jobs, $11 seconds waited,
-- $12 whether to give hints: no claim with the queue's lock follows in the transaction, which is told the keys
with f as materialized (
  select f.id, f.claimed_at, ($4::smallint[])[f.low:f.high] as slots
    from rows from (unnest($1::bigint[]), unnest($2::timestamptz[]), unnest($5::integer[]), unnest($6::integer[])) as f(id, claimed_at, low, high)
), held as materialized (
  select h.place, h.id, h.claimed_at, h.owner, h.queue, h.key, h.jobs, h.slots || f.slots as slots, h.ms || array_fill(h.now_ms, array[cardinality(f.slots)]) as ms
    from f
    cross join lateral (
      select x.ctid as place, x.id, x.claimed_at, x.owner, x.queue, x.key, cardinality(x.job_ids) as jobs, x.ended_slots as slots, x.ended_ms as ms,
          least(greatest(extract(epoch from clock_timestamp() - x.claimed_at) * 1000, 0), 32767)::smallint as now_ms
        from proto.lease x
        where x.id = f.id and x.claimed_at = f.claimed_at and x.owner = $3 and x.lost_at is null
          and not x.ended_slots && f.slots and x.claimed_at > statement_timestamp() - interval '32.7 s'
        for update skip locked
    ) h
), kept as (
  update proto.lease l
    set ended_slots = h.slots, ended_ms = h.ms, expires_at = greatest(l.expires_at, clock_timestamp() + $7::interval)
    from held h
    where l.id = h.id and l.ctid = any(array(select h.place from held h where cardinality(h.slots) < h.jobs))
), closed as (
  delete from proto.lease l where l.ctid = any(array(select h.place from held h where cardinality(h.slots) >= h.jobs))
), past as (
  insert into proto.past_lease (id, claimed_at, owner, ended)
    select h.id, h.claimed_at, h.owner, (select array_agg(u.ms order by u.slot) from rows from (unnest(h.slots), unnest(h.ms)) as u(slot, ms))
      from held h
      where cardinality(h.slots) >= h.jobs
), hints as (
  insert into proto.lane_hint (queue, key)
    select distinct h.queue, h.key from held h
      where $12 and h.key <> '' and (select q.key_limit from proto.queue q where q.name = $8) is not null
), counted as (
  insert into proto.stat_delta (minute, queue, kind, completed, failed, retried, lost, cancelled, run_seconds, wait_seconds)
    select date_trunc('minute', clock_timestamp()), $8, u.kind, u.jobs, 0, 0, 0, 0, (select sum(extract(epoch from clock_timestamp() - h.claimed_at)) from held h), u.waited
      from unnest($9::text[], $10::integer[], $11::float8[]) as u(kind, jobs, waited)
)
select h.id from held h
