-- KeyList is the partition keys of a queue that have available or running jobs, that are paused, or
-- that have a weight: the first row_count after after_key. It also has keys without such jobs that
-- claims have not removed yet, with zeros: a caller that pages goes on after the last row, whatever it
-- is. It counts the available jobs of a key up to available_max, and says since when the one that has
-- waited longest could have run.
--
-- Running jobs are counted as a claim counts them: with a limit of the keys, by what their lanes
-- hold. Without a limit it is not stored which keys run, so it looks at the run_max jobs of the
-- queue that were claimed first, and more_run says that there are others. If there is no key, there
-- is one row, with an empty key, for more_run.
--
-- In a queue with an order, head is the job that the next jobs of the key have to wait for, and
-- head_waits what that job waits for itself (lane_next). In a queue with a rate of its keys,
-- throttled_until is when the key may start its next job; null means now. A limit of 1 keeps the
-- read of a single row a look-up, and the order of what is counted is for the planner. Needs
-- pending_claim_idx, lane_pkey, paused_key_pkey, key_weight_pkey, lease_queue_idx, lease_pkey,
-- run_id_idx, queue_pkey and lane_head_pkey.
-- name: KeyList :many
with recursive line as (
  (select p.partition_key as key, 1 as number
    from jobq.pending p
    where p.queue = sqlc.arg(queue)::text and p.partition_key > sqlc.arg(after_key)::text and p.position is not null
    order by p.partition_key, p.priority, p.position limit 1)
  union all
  select (
      select p.partition_key
        from jobq.pending p
        where p.queue = sqlc.arg(queue)::text and p.partition_key > l.key and p.position is not null
        order by p.partition_key, p.priority, p.position limit 1), l.number + 1
    from line l
    where l.key is not null and l.number < sqlc.arg(row_count)::integer
), laned as materialized (
  select l.key
    from jobq.lane l
    where l.queue = sqlc.arg(queue)::text and l.key > sqlc.arg(after_key)::text
    order by l.key
    limit sqlc.arg(row_count)::integer
), paused as materialized (
  select k.key, k.paused_at, k.paused_by, k.pause_reason
    from jobq.paused_key k
    where k.queue = sqlc.arg(queue)::text and k.key > sqlc.arg(after_key)::text
    order by k.key
    limit sqlc.arg(row_count)::integer
), weighted as materialized (
  select w.key, w.weight
    from jobq.key_weight w
    where w.queue = sqlc.arg(queue)::text and w.key > sqlc.arg(after_key)::text
    order by w.key
    limit sqlc.arg(row_count)::integer
), setting as materialized (
  select max(q.key_limit) as key_limit, max(q.key_order) as key_order, max(q.key_rate_jobs) as key_rate_jobs,
      max(q.key_rate_period) as key_rate_period,
      max(q.key_rate_burst) as key_rate_burst
    from jobq.queue q where q.name = sqlc.arg(queue)::text
), held as materialized (
  select l.id, l.job_ids, l.ended_slots, sum(cardinality(l.job_ids)) over (order by l.id) as jobs
    from jobq.lease l
    where l.queue = sqlc.arg(queue)::text and (select s.key_limit from setting s) is null
), runs as materialized (
  select r.key, count(*) as running
    from held h
    cross join lateral unnest(h.job_ids) with ordinality as j(id, slot)
    cross join lateral (select x.partition_key as key from jobq.run x where x.id = j.id and x.lease_id = h.id limit 1) r
    where h.jobs - cardinality(h.job_ids) < sqlc.arg(run_max)::bigint and j.slot <> all(h.ended_slots)
      and r.key > sqlc.arg(after_key)::text
    group by r.key
), page as materialized (
  select n.key
    from (
      select l.key from line l where l.key is not null
      union select l.key from laned l
      union select p.key from paused p
      union select w.key from weighted w
      union select r.key from runs r
    ) n
    order by n.key
    limit sqlc.arg(row_count)::integer
)
select coalesce(k.key, '')::text as key, a.available::bigint as available,
    a.oldest_run_at::timestamptz as oldest_run_at,
    (coalesce(r.running, 0) + o.running)::bigint as running,
    coalesce(s.key_limit, 0)::integer as key_limit,
    coalesce(case when s.key_order is not null and o.running > 0 then o.first else h.job_id end, 0)::bigint as head,
    coalesce(case when s.key_order is not null and o.running > 0 then 'running'
        else h.waits end, '')::text as head_waits,
    h.waits_until::timestamptz as head_until,
    t.throttled_until::timestamptz as throttled_until,
    p.paused_at::timestamptz as paused_at, coalesce(p.paused_by, '')::text as paused_by,
    coalesce(p.pause_reason, '')::text as pause_reason,
    coalesce(w.weight, 1)::integer as weight,
    (coalesce((select max(x.jobs) from held x), 0) > sqlc.arg(run_max)::bigint)::boolean as more_run
  from setting s
  left join page k on true
  cross join lateral (
    select count(*) as available, min(x.run_at) as oldest_run_at
      from (
        select greatest(p.run_at, p.created_at) as run_at
          from jobq.pending p
          where p.queue = sqlc.arg(queue)::text and p.partition_key = k.key and p.position is not null
          order by p.priority, p.position
          limit sqlc.arg(available_max)::bigint
      ) x
  ) a
  left join runs r on r.key = k.key
  left join paused p on p.key = k.key
  left join weighted w on w.key = k.key
  cross join lateral (
    select count(*) as running, min(x.id) as first
      from (select l.held_leases, l.held_slots from jobq.lane l
        where s.key_limit is not null and l.queue = sqlc.arg(queue)::text and l.key = k.key limit 1) l
      cross join lateral unnest(l.held_leases) with ordinality as u(lease, n)
      cross join lateral (select e.job_ids[l.held_slots[u.n]] as id from jobq.lease e
          where e.id = u.lease and l.held_slots[u.n] <> all(e.ended_slots) limit 1) x
  ) o
  left join lateral (
    select n.job_id::bigint as job_id, n.waits::text as waits, n.waits_until::timestamptz as waits_until
      from jobq.lane_next(sqlc.arg(queue)::text, k.key, s.key_order) n
      where s.key_order is not null and o.running = 0 and a.available > 0 and n.waits is not null
      limit 1
  ) h on true
  cross join lateral (
    select jobq.key_throttled_until(sqlc.arg(queue)::text, k.key, s.key_rate_jobs, s.key_rate_period,
        s.key_rate_burst) as throttled_until
  ) t
  order by k.key;

-- KeyWeightList returns the weights of some partition keys of a queue; a key without a weight has no
-- row. Needs key_weight_pkey.
-- name: KeyWeightList :many
select k.key::text as key, w.weight::integer as weight
  from unnest(sqlc.arg(keys)::text[]) as k(key)
  cross join lateral (select x.weight from jobq.key_weight x where x.queue = sqlc.arg(queue)::text and x.key = k.key
      limit 1) w;
