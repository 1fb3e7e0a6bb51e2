-- DoctorWaiting is about the jobs that wait to run, by queue and kind: for how long the one that has waited longest
-- could have run, its id, and how many live workers serve the queue, and the kind in it; and how many of these are on
-- hosts that are held, and one of the hosts. It reads the first jobs of the lines of each queue (line_heads), so
-- neither a key nor a priority with many jobs hides the others.
--
-- In each queue it looks at job_count jobs and half as many lines. With more than ten queues it
-- looks at fewer jobs of each, 6 at least, so that all queues together have ten times job_count:
-- with a job_count of 200 and 100 queues, it looks at 20 jobs of each. It looks at two jobs of each
-- line at least, and at 1,000 queues at most. The order is for the planner: without it, it may read
-- the whole queue. Needs pending_claim_idx, and what line_heads needs.
-- name: DoctorWaiting :many
with recursive ready as (
  (select p.queue as name from jobq.pending p where p.position is not null order by p.queue limit 1)
  union all
  select (select p.queue from jobq.pending p where p.position is not null and p.queue > w.name order by p.queue limit 1)
    from ready w where w.name is not null
), name as materialized (
  select w.name from ready w where w.name is not null limit 1000
), bound as materialized (
  select least(sqlc.arg(job_count)::bigint,
      greatest(6, 10 * sqlc.arg(job_count)::bigint / greatest(count(*), 1))) as jobs_max from name n
), line as materialized (
  select n.name as queue, h.key::text as key, h.priority::smallint as priority, h.position::bigint as position,
      greatest(2, b.jobs_max / count(*) over (partition by n.name)) as jobs_max,
      count(*) over (partition by n.name) >= b.jobs_max / 2 as more
    from name n
    cross join bound b
    cross join lateral jobq.line_heads(n.name, (b.jobs_max / 2)::integer) h
), waiting as materialized (
  select j.queue, j.kind, count(*) as jobs, min(j.since) as since, (array_agg(j.id order by j.since, j.id))[1] as id,
      bool_or(j.more) as more
    from (
      select l.queue, x.id, x.kind, x.since, l.more
          or count(*) over (partition by l.queue, l.key, l.priority) = l.jobs_max as more
        from line l
        cross join lateral (
          select p.id, p.kind, greatest(p.run_at, p.created_at) as since
            from jobq.pending p
            where p.queue = l.queue and p.partition_key = l.key and p.priority = l.priority and p.position >= l.position
              and p.position is not null
            order by p.partition_key, p.priority, p.position
            limit l.jobs_max
        ) x
    ) j
    group by j.queue, j.kind
), live as materialized (
  select w.queues, w.kinds, h.host as held_host from jobq.worker w
    left join jobq.held_host h on h.host = w.hostname
    where not w.draining and w.drain_requested_at is null
      and w.heartbeat_at > clock_timestamp() - sqlc.arg(silence)::interval
)
select x.queue::text as queue, x.kind::text as kind, x.jobs::bigint as jobs, x.id::bigint as first_id,
    x.more::boolean as more,
    greatest(extract(epoch from clock_timestamp() - x.since), 0)::float8 as waited_seconds,
    (select count(*) from live l where l.queues -> x.queue is not null)::bigint as queue_workers,
    (select count(*) from live l
        where l.queues -> x.queue is not null and x.kind = any(l.kinds))::bigint as kind_workers,
    (select count(l.held_host) from live l
        where l.queues -> x.queue is not null and x.kind = any(l.kinds))::bigint as held_workers,
    (select coalesce(min(l.held_host), '') from live l
        where l.queues -> x.queue is not null and x.kind = any(l.kinds))::text as held_host,
    (q.paused_at is not null or exists (select from jobq.kind k
        where k.name = x.kind and k.paused_at is not null))::boolean as paused
  from waiting x
  left join jobq.queue q on q.name = x.queue
  order by x.queue, x.kind;

-- DoctorOverdue is how late the janitor is with each part of its work, in seconds: 0 where there is no
-- such work, and negative where the earliest is not due yet. The parts are the lease that has ended
-- and was not taken away, after its queue's stale_grace; the scheduled job that is due; the job that
-- has ended and for which others wait; and the oldest of up to row_count counts of ended jobs that
-- were not summed up yet. Needs pending_due_idx and dependency_look_due_idx; it reads all leases, as
-- the reaper does.
-- name: DoctorOverdue :one
select coalesce((
      select extract(epoch from max(clock_timestamp() - l.expires_at - coalesce(q.stale_grace, interval '0')))
        from jobq.lease l
        left join jobq.queue q on q.name = l.queue
        where l.lost_at is null and isfinite(l.expires_at)), 0)::float8 as lease_seconds,
    coalesce((select extract(epoch from clock_timestamp() - p.run_at) from jobq.pending p
      where p.position is null and p.waits is null
        and greatest(least(2, coalesce(p.lost + 1, p.max_attempts - p.attempts::integer)) - p.crashes, 0) <> 0
      order by p.run_at, p.id limit 1), 0)::float8 as due_seconds,
    coalesce((select extract(epoch from clock_timestamp() - k.look_at) from jobq.dependency_look k
        order by k.look_at, k.id limit 1), 0)::float8 as look_seconds,
    coalesce((select extract(epoch from clock_timestamp() - min(d.minute))
      from (select x.minute from jobq.stat_delta x limit sqlc.arg(row_count)::integer) d), 0)::float8 as stat_seconds;

-- DoctorErrors counts the errors of janitors among the last row_count events of the span, and
-- returns the last one. Those that say which leases cannot be reaped are apart, if the leases are still there.
-- Needs event_at_idx and lease_pkey.
-- name: DoctorErrors :one
with failed as materialized (
  select e.id, e.message, e.message like '%lease % cannot be reaped: %' as of_lease
    from (select x.id, x.type, x.message from jobq.event x
      where x.at > statement_timestamp() - sqlc.arg(span)::interval
      order by x.at desc limit sqlc.arg(row_count)::integer) e
    where e.type = 'error'
)
select (count(*) filter (where not f.of_lease))::bigint as errors,
    coalesce((select f.message from failed f where not f.of_lease order by f.id desc limit 1), '')::text as last,
    array(
      select f.message from failed f
        where f.of_lease
          and exists (select from jobq.lease l
              where l.id = substring(f.message from 'lease (-?[0-9]{1,18}) cannot be reaped: ')::bigint)
        group by f.message order by max(f.id) desc limit 10)::text[] as unreapable
  from failed f;

-- DoctorDefaults says which of the default partitions have rows. Each look stops
-- at the first.
-- name: DoctorDefaults :many
select d.name::text as name
  from (values ('run_default', exists (select from jobq.run_default)),
    ('past_lease_default', exists (select from jobq.past_lease_default)),
    ('attempt_default', exists (select from jobq.attempt_default))) as d(name, used)
  where d.used
  order by d.name;

-- DoctorPaused is every queue, kind and partition key that has been paused for longer than the age,
-- and every kind in quarantine, which no person has paused. Of the keys it returns those that have
-- been paused for longest. Needs paused_key_paused_at_idx.
-- name: DoctorPaused :many
select p.what::text as what, p.name::text as name, coalesce(p.queue, '')::text as queue,
    extract(epoch from clock_timestamp() - p.paused_at)::float8 as paused_seconds,
    coalesce(p.paused_by, '')::text as paused_by
  from (
    select 'queue' as what, q.name, null as queue, q.paused_at, q.paused_by from jobq.queue q
      where q.paused_at < statement_timestamp() - sqlc.arg(age)::interval
    union all
    select 'kind', k.name, null, k.paused_at, k.paused_by from jobq.kind k
      where k.paused_at < statement_timestamp() - sqlc.arg(age)::interval or k.paused_by = 'jobq'
    union all
    (select 'key', k.key, k.queue, k.paused_at, k.paused_by from jobq.paused_key k
      where k.paused_at < statement_timestamp() - sqlc.arg(age)::interval
      order by k.paused_at limit 100)
  ) p
  order by p.what desc, p.queue, p.name
  limit 100;

-- DoctorHeld is every host that has been held for longer than the age, the longest first, with how many live workers it
-- has.
-- name: DoctorHeld :many
select h.host, extract(epoch from clock_timestamp() - h.held_at)::float8 as held_seconds, h.held_by,
    coalesce(h.hold_reason, '')::text as hold_reason,
    (select count(*) from jobq.worker w where w.hostname = h.host
        and w.heartbeat_at > clock_timestamp() - sqlc.arg(silence)::interval)::bigint as workers
  from jobq.held_host h
  where h.held_at < statement_timestamp() - sqlc.arg(age)::interval
  order by h.held_at
  limit 100;

-- DoctorTroubles is what live workers say why they do not start jobs of a kind now, by kind and worker; and how many
-- live workers have the kind. They are the 100 first.
-- name: DoctorTroubles :many
with live as materialized (
  select w.id, w.kinds, w.programs from jobq.worker w
    where not w.draining and w.drain_requested_at is null
      and w.heartbeat_at > clock_timestamp() - sqlc.arg(silence)::interval
)
select p.kind::text as kind, l.id::text as worker, (p.program ->> 'trouble')::text as trouble,
    (select count(*) from live x where p.kind = any(x.kinds))::bigint as workers
  from live l
  cross join lateral jsonb_each(case when jsonb_typeof(l.programs) = 'object' then l.programs end) as p(kind, program)
  where p.program ->> 'trouble' <> ''
  order by p.kind, l.id
  limit 100;

-- DoctorWorkers counts the live workers of each version.
-- name: DoctorWorkers :many
select w.version, count(*)::bigint as workers
  from jobq.worker w
  where w.heartbeat_at > clock_timestamp() - sqlc.arg(silence)::interval
  group by w.version
  order by w.version;

-- DoctorUnattended counts the live workers that are older than the span, if no janitor has said within it that
-- it lives; and says for how many seconds none has, -1 for never.
-- name: DoctorUnattended :one
select count(*)::bigint as workers,
    coalesce((select extract(epoch from clock_timestamp() - j.seen_at) from jobq.janitor_seen j), -1)::float8 as seconds
  from jobq.worker w
  where w.heartbeat_at > clock_timestamp() - sqlc.arg(span)::interval
    and w.started_at < clock_timestamp() - sqlc.arg(span)::interval
    and not exists (select from jobq.janitor_seen j
      where j.seen_at between clock_timestamp() - sqlc.arg(span)::interval and clock_timestamp()
          + sqlc.arg(span)::interval);

-- DoctorConnections counts the live workers that have told how many connections they may open, and
-- sums up these connections.
-- name: DoctorConnections :one
select count(*)::bigint as workers, coalesce(sum(w.connections_max), 0)::bigint as connections
  from jobq.worker w
  where w.heartbeat_at > clock_timestamp() - sqlc.arg(silence)::interval and w.connections_max is not null;
