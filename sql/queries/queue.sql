-- QueueSettings are the settings that a worker obeys, defaults included, in
-- the order asked for.
-- name: QueueSettings :many
select n.name::text as name,
    (extract(epoch from coalesce(q.lease, interval '60 s')) * 1000)::bigint as lease_ms,
    (extract(epoch from coalesce(q.extend_every, coalesce(q.lease, interval '60 s') / 3)) * 1000)::bigint as extend_every_ms,
    coalesce(q.heartbeat, 'ticker')::text as heartbeat, (q.paused_at is not null)::boolean as paused
  from unnest(sqlc.arg(names)::text[]) with ordinality as n(name, place)
  left join jobq.queue q on q.name = n.name
  order by n.place;

-- QueueSet changes those settings of a queue that are not null. A lease without
-- an extend_every that fits puts extend_every back to a third of it.
-- name: QueueSet :exec
insert into jobq.queue as q (name, lease, extend_every, heartbeat, stale_grace, redelivery, redelivery_delay, reset_on_reap)
  values (sqlc.arg(name), coalesce(sqlc.narg(lease)::interval, interval '60 s'), sqlc.narg(extend_every)::interval,
    coalesce(sqlc.narg(heartbeat)::text, 'ticker'), coalesce(sqlc.narg(stale_grace)::interval, interval '0'),
    coalesce(sqlc.narg(redelivery)::text, 'tail'), coalesce(sqlc.narg(redelivery_delay)::interval, interval '0'),
    coalesce(sqlc.narg(reset_on_reap)::boolean, false))
  on conflict (name) do update
    set lease = coalesce(sqlc.narg(lease)::interval, q.lease),
      extend_every = coalesce(sqlc.narg(extend_every)::interval,
        case when q.extend_every <= coalesce(sqlc.narg(lease)::interval, q.lease) / 2 then q.extend_every end),
      heartbeat = coalesce(sqlc.narg(heartbeat)::text, q.heartbeat),
      stale_grace = coalesce(sqlc.narg(stale_grace)::interval, q.stale_grace),
      redelivery = coalesce(sqlc.narg(redelivery)::text, q.redelivery),
      redelivery_delay = coalesce(sqlc.narg(redelivery_delay)::interval, q.redelivery_delay),
      reset_on_reap = coalesce(sqlc.narg(reset_on_reap)::boolean, q.reset_on_reap);

-- QueuePause makes no worker claim from the queue. It says whether that is news.
-- name: QueuePause :execrows
insert into jobq.queue as q (name, paused_at, paused_by, pause_reason)
  values (sqlc.arg(name), clock_timestamp(), sqlc.narg(paused_by), sqlc.narg(reason))
  on conflict (name) do update
    set paused_at = excluded.paused_at, paused_by = excluded.paused_by, pause_reason = excluded.pause_reason
    where q.paused_at is null;

-- QueueResume lets workers claim again, and wakes them.
-- name: QueueResume :one
with resumed as (
  update jobq.queue q
    set paused_at = null, paused_by = null, pause_reason = null
    where q.name = sqlc.arg(name) and q.paused_at is not null
    returning q.name
), told as (
  select pg_notify(jobq.channel('work'), r.name) from resumed r
)
select count(*) as resumed from told;

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
    (extract(epoch from coalesce(q.extend_every, coalesce(q.lease, interval '60 s') / 3)) * 1000)::bigint as extend_every_ms,
    coalesce(q.heartbeat, 'ticker')::text as heartbeat,
    (extract(epoch from coalesce(q.stale_grace, interval '0')) * 1000)::bigint as stale_grace_ms,
    coalesce(q.redelivery, 'tail')::text as redelivery,
    (extract(epoch from coalesce(q.redelivery_delay, interval '0')) * 1000)::bigint as redelivery_delay_ms,
    coalesce(q.reset_on_reap, false)::boolean as reset_on_reap,
    q.paused_at, q.paused_by, q.pause_reason
  from name n
  left join jobq.queue q on q.name = n.name
  order by n.name;
