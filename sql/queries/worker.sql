-- WorkerBeat registers the worker, or says that it lives. No lease depends on this row: it is for people, and the
-- janitor deletes it. WorkerBeat returns a row for each queue: its settings, defaults included, and how many workers
-- had room for the same jobs. In each row are also for how long somebody still watches, and so wants digests
-- (watched_ms); whether an operator wants the worker to drain, or holds its host, and why; and the lowest version that
-- works with the tables (compatible_from, docs/decisions/0026). suspect_ms is in how many milliseconds a suspect of the
-- queue is due, -1 if there is none. It looks whether the server was promoted or restored: see generation_check.
--
-- An idle worker asks no more than this. is_empty says, of the queues at which it is to look, that no job without a
-- partition key waits there: such a queue needs no poll. And it renews the announcements that the worker waits
-- (wait_announce): announced is what that has returned. Needs pending_claim_idx and held_host_pkey.
-- name: WorkerBeat :many
with beat as (
  insert into jobq.worker as w
      (id, pid, process_start, connections_max, draining, present, has_room, hostname, boot_id, pid_namespace, version,
          queues, kinds, kind_slots, keys, programs, outcomes)
    values (sqlc.arg(id), sqlc.arg(pid), sqlc.narg(process_start), sqlc.narg(connections_max), sqlc.arg(draining),
      sqlc.arg(present), sqlc.arg(has_room), sqlc.arg(hostname), sqlc.narg(boot_id), sqlc.narg(pid_namespace),
      sqlc.arg(version), sqlc.arg(queues), sqlc.arg(kinds)::text[], sqlc.arg(kind_slots),
      coalesce(sqlc.arg(keys)::text[], '{}'), sqlc.arg(programs),
      coalesce(sqlc.narg(outcomes)::jsonb, '{}'))
    on conflict (id) do update
      set heartbeat_at = clock_timestamp(), draining = excluded.draining, present = excluded.present,
          has_room = excluded.has_room, programs = excluded.programs, outcomes = excluded.outcomes
    returning w.id
), checked as materialized (
  select jobq.generation_check() as advanced
)
select n.name::text as queue,
    (extract(epoch from coalesce(q.lease, jobq.lease_default())) * 1000)::bigint as lease_ms,
    (extract(epoch from coalesce(q.extend_every,
        coalesce(q.lease, jobq.lease_default()) / 3)) * 1000)::bigint as extend_every_ms,
    coalesce(q.heartbeat, 'ticker')::text as heartbeat,
    coalesce(q.max_running is not null or q.rate_jobs is not null, false)::boolean as has_limits,
    (q.key_limit is not null or q.key_rate_jobs is not null or exists (select from jobq.lane x where x.queue = n.name)
      or exists (select from jobq.lane_hint x where x.queue = n.name and x.id > 0))::boolean as has_keys,
    (select count(*) from jobq.worker w
      where w.has_room and not w.draining and w.heartbeat_at > clock_timestamp() - sqlc.arg(silence)::interval
        and w.queues -> n.name is not null and w.kinds && sqlc.arg(kinds)::text[]) as idle_workers,
    greatest(coalesce((select extract(epoch from max(x.expires_at) - clock_timestamp()) * 1000 from jobq.watcher x
      where x.expires_at < clock_timestamp() + interval '5 minutes'), 0), 0)::bigint as watched_ms,
    exists (select from jobq.worker w
        where w.id = sqlc.arg(id) and w.drain_requested_at is not null) as drain_requested,
    exists (select from jobq.held_host h where h.host = sqlc.arg(hostname)) as host_held,
    coalesce((select h.hold_reason from jobq.held_host h where h.host = sqlc.arg(hostname)), '')::text as hold_reason,
    (select max(m.compatible_from) from jobq.jobq_migration m)::integer as compatible_from,
    coalesce((select greatest(s.due_ms, 0) from jobq.suspect_next(n.name, sqlc.arg(kinds)::text[]) s),
        -1)::bigint as suspect_ms,
    (case when n.name = any(sqlc.arg(looked)::text[])
      then (select true from jobq.pending p where p.queue = n.name and p.partition_key = '' and p.position is not null
        order by p.priority, p.position limit 1) is null
      else false end)::boolean as is_empty,
    coalesce(case when n.name = any(sqlc.arg(announced)::text[])
      then jobq.wait_announce(n.name, sqlc.arg(announced_seconds)::bigint) end, false)::boolean as announced
  from unnest(sqlc.arg(queue_names)::text[]) as n(name)
  left join jobq.queue q on q.name = n.name
  -- Always true: without it, checked would not run, and an announcement would come before the worker's row is written.
  -- Its turn would then be held while somebody has that row.
  where (select b.id from beat b) is not null and (select c.advanced is not null from checked c);

-- WorkerOutcomes is what the other workers that live, and are not held, say of their runs of these kinds: how many
-- have the kind and do not leave it to others; of those of which a run has ended within since_ms, how their last runs
-- ended; and how long ago one has completed, -1 if none has.
-- name: WorkerOutcomes :many
select k.kind::text as kind, count(*) filter (where w.id is not null and w.outcome -> 'rests' is null) as live,
    coalesce(sum((w.outcome ->> 'ok')::bigint) filter (where w.ended_ms < k.since_ms), 0)::bigint as ok,
    coalesce(sum((w.outcome ->> 'failed')::bigint) filter (where w.ended_ms < k.since_ms), 0)::bigint as failed,
    coalesce(min(w.silent_ms + (w.outcome ->> 'ok_ms')::bigint) filter (where (w.outcome ->> 'ok_ms')::bigint >= 0),
      -1)::bigint as last_ok_ms
  from (select unnest(sqlc.arg(kinds)::text[]) as kind, unnest(sqlc.arg(since_ms)::bigint[]) as since_ms) k
  left join lateral (
    select y.id, y.outcome, y.silent_ms, y.silent_ms + (y.outcome ->> 'end_ms')::bigint as ended_ms
      from (
        select x.id, x.outcomes -> k.kind as outcome,
            (extract(epoch from clock_timestamp() - x.heartbeat_at) * 1000)::bigint as silent_ms
          from jobq.worker x
          where x.id <> sqlc.arg(id) and x.heartbeat_at > clock_timestamp() - sqlc.arg(silence)::interval
            and not x.draining and x.drain_requested_at is null and x.kinds @> array[k.kind]
            and (select h.host from jobq.held_host h where h.host = x.hostname limit 1) is null
      ) y
  ) w on true
  group by k.kind;

-- RunKey is the key of the codes in run tokens.
-- name: RunKey :one
select jobq.run_key()::bytea as key;

-- name: WorkerGone :exec
delete from jobq.worker w where w.id = sqlc.arg(id);

-- WorkerList is every worker that has a row; WorkerPrune deletes the rows of dead
-- ones. It reads the leases once for all workers, and not once for each. Jobs claimed ahead do not run: see QueueList.
-- name: WorkerList :many
select w.id, w.hostname, w.pid, w.version, w.queues, w.kinds, w.kind_slots, w.programs,
    (w.draining or w.drain_requested_at is not null)::boolean as draining, w.started_at, w.heartbeat_at,
    d.held_at, coalesce(d.held_by, '')::text as held_by, coalesce(d.hold_reason, '')::text as hold_reason,
    coalesce(h.running, 0)::bigint as running, coalesce(h.claimed, 0)::bigint as claimed
  from jobq.worker w
  left join (
    select l.owner, sum(cardinality(l.job_ids) - cardinality(l.ended_slots) - a.jobs) as running, sum(a.jobs) as claimed
      from jobq.lease l
      cross join lateral (
        select greatest(cardinality(l.job_ids) - l.begun, 0)
            - (select count(*) from unnest(l.ended_slots) as e(slot) where e.slot > l.begun) as jobs) a
      group by l.owner
  ) h on h.owner = w.id
  left join jobq.held_host d on d.host = w.hostname
  order by w.id;

-- HeldHostList is every host that is held, also those without a worker, up to row_count.
-- name: HeldHostList :many
select h.host, h.held_at, h.held_by, coalesce(h.hold_reason, '')::text as hold_reason
  from jobq.held_host h
  order by h.host
  limit sqlc.arg(row_count)::integer;

-- WorkerPrune removes workers that have been silent for too long and hold no lease. A heartbeat that lies far
-- ahead is of a clock that was set back, and of a worker that has been silent since.
-- name: WorkerPrune :execrows
delete from jobq.worker w
  where (w.heartbeat_at < clock_timestamp() - sqlc.arg(silence)::interval
      or w.heartbeat_at > clock_timestamp() + sqlc.arg(silence)::interval)
    and not exists (select from jobq.lease l where l.owner = w.id);

-- WorkerEarlier is what is known of the other workers of a host, or of all
-- hosts if none is given, for a worker that starts. The hostnames must be
-- equal: web-1 is not web-1-2.
-- name: WorkerEarlier :many
select w.id, w.hostname, w.pid, w.process_start, w.boot_id, w.pid_namespace, w.present,
    (w.heartbeat_at > clock_timestamp() - sqlc.arg(silence)::interval)::boolean as fresh
  from jobq.worker w
  where w.id <> sqlc.arg(id) and (sqlc.narg(hostname)::text is null or w.hostname = sqlc.narg(hostname))
  order by w.id;

-- LeaseOwners are the ids that own leases, other than one's own.
-- name: LeaseOwners :many
select distinct l.owner from jobq.lease l where l.owner <> sqlc.arg(id);

-- PresenceTake says that a worker is there for as long as the session lives, unless another session keeps it from that.
-- Shared, so that a new session of the same worker need not wait for the old one to end.
-- name: PresenceTake :one
select pg_try_advisory_lock_shared(sqlc.arg(class)::integer, sqlc.arg(object)::integer)::boolean as taken;

-- PresenceFree says whether no session holds the presence lock, by holding it
-- for the statement's transaction.
-- name: PresenceFree :one
select pg_try_advisory_xact_lock(sqlc.arg(class)::integer, sqlc.arg(object)::integer)::boolean as free;
