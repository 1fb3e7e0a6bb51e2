-- QueueSettings are the settings that a worker obeys, defaults included, in
-- the order asked for.
-- name: QueueSettings :many
select n.name::text as name,
    (extract(epoch from coalesce(q.lease, interval '60 s')) * 1000)::bigint as lease_ms,
    (extract(epoch from coalesce(q.extend_every, coalesce(q.lease, interval '60 s') / 3)) * 1000)::bigint as extend_every_ms,
    (q.paused_at is not null)::boolean as paused
  from unnest(sqlc.arg(names)::text[]) with ordinality as n(name, place)
  left join jobq.queue q on q.name = n.name
  order by n.place;

-- name: QueueSetLease :exec
insert into jobq.queue as q (name, lease)
  values (sqlc.arg(name), sqlc.arg(lease)::interval)
  on conflict (name) do update
    set lease = excluded.lease,
      extend_every = case when q.extend_every <= excluded.lease / 2 then q.extend_every end;

-- QueueList counts what waits and runs in each queue that has a row, a job or
-- a worker. Counts stop at count_max, which then means "at least".
-- name: QueueList :many
with recursive with_jobs as (
  (select p.queue as name from jobq.pending p order by p.queue limit 1)
  union all
  select (select p.queue from jobq.pending p where p.queue > w.name order by p.queue limit 1)
    from with_jobs w where w.name is not null
), name as (
  select w.name from with_jobs w where w.name is not null
  union select q.name from jobq.queue q
  union select r.queue from jobq.running r
  union select jsonb_object_keys(w.queues) from jobq.worker w
)
select n.name::text as name,
    (select count(*) from (select from jobq.pending p
      where p.queue = n.name and p.position is not null limit sqlc.arg(count_max)::integer) x) as available,
    (select count(*) from (select from jobq.pending p
      where p.queue = n.name and p.position is null limit sqlc.arg(count_max)::integer) x) as scheduled,
    (select count(*) from jobq.running r where r.queue = n.name) as running,
    (extract(epoch from coalesce(q.lease, interval '60 s')) * 1000)::bigint as lease_ms,
    q.paused_at, q.paused_by, q.pause_reason
  from name n
  left join jobq.queue q on q.name = n.name
  order by n.name;
