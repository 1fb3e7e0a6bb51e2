-- LeaseExtend gives held leases their full time again, in one statement for all of them. It shortens none, unless it
-- ends later than the longest lease that the owner has had in its queue: then the clock was ahead. With a lease of 0 it
-- only asks. It returns a row for each lease that is still the caller's: ok, or busy if another transaction has locked
-- it, so that it was not extended. A lease without a row is lost. One that has expired, and that nobody has taken, is
-- extended as any other.
--
-- It never waits for a row, so one locked lease cannot cost the worker its other leases, and there is
-- no deadlock. It does not read the history, so a lock on the history cannot delay it: LeaseCancelled
-- asks which jobs are to be cancelled. Needs lease_pkey only; a HOT update.
-- name: LeaseExtend :many
with h as materialized (
  select h.id, h.claimed_at
    from rows from (unnest(sqlc.arg(ids)::bigint[]), unnest(sqlc.arg(claimed_ats)::timestamptz[])) as h(id, claimed_at)
), held as materialized (
  select l.place
    from h
    cross join lateral (
      select x.ctid as place from jobq.lease x
        where x.id = h.id and x.claimed_at = h.claimed_at and x.owner = sqlc.arg(owner) and x.lost_at is null
        for no key update skip locked
    ) l
    where sqlc.arg(lease)::interval > interval '0'
), extended as (
  update jobq.lease l
    set expires_at = least(greatest(l.expires_at, clock_timestamp() + sqlc.arg(lease)::interval),
        clock_timestamp() + sqlc.arg(longest)::interval)
    where l.ctid = any(array(select h.place from held h))
    returning l.id
)
select h.id::bigint as id,
    (case when sqlc.arg(lease)::interval > interval '0' and h.id <> all(array(select e.id from extended e)) then 'busy'
        else 'ok' end)::text as answer
  from h
  cross join lateral (
    select x.id from jobq.lease x
      where x.id = h.id and x.claimed_at = h.claimed_at and x.owner = sqlc.arg(owner) and x.lost_at is null
      limit 1
  ) l;

-- LeaseUnanswered returns the owner's leases with an id above a given one that are not among those
-- that the owner knows, the earliest first. Needs lease_pkey only, from that id on: it reads the
-- leases that were claimed since and are still held.
-- name: LeaseUnanswered :many
select l.id, l.claimed_at, l.queue, l.job_ids
  from jobq.lease l
  where l.id > sqlc.arg(after) and l.owner = sqlc.arg(owner) and l.lost_at is null
    and l.id <> all(sqlc.arg(known)::bigint[])
  order by l.id
  limit sqlc.arg(lease_count)::integer;

-- LeaseCancelled returns those jobs of the given leases that somebody has asked to cancel, if their
-- own rows do not say that they have ended. Their leases may say so already. It is planned with the
-- ids of the leases (PrunedSettings), so it locks only their days. Needs run_cancel_idx only.
-- name: LeaseCancelled :many
select r.lease_id, r.id
  from jobq.run r
  where r.lease_id = any(sqlc.arg(ids)::bigint[]) and r.cancel_requested_at is not null and r.state is null;

-- RunProgress stores how far a run is, under its lease, and extends the lease in queues where
-- progress does so. Zero rows means that the lease was lost, or that another transaction has locked
-- a row: LeaseExtend tells which. It never waits for a row of run or lease, so one locked job
-- cannot cost the worker the leases of other jobs that report in the same batch. Null keeps what
-- the same run has stored. The lock on the run keeps it from ending in the meantime, which would
-- delete its progress. Needs run_id_idx, lease_pkey and progress_pkey only; a HOT update.
-- name: RunProgress :execrows
with held as materialized (
  select x.id, x.lease_id from jobq.run x
    where x.id = sqlc.arg(id) and x.lease_id = sqlc.arg(token) and x.state is null
      and (select l.owner = sqlc.arg(owner) and l.claimed_at = sqlc.arg(claimed_at) and l.lost_at is null
          and x.slot <> all(l.ended_slots)
        from jobq.lease l where l.id = sqlc.arg(token) limit 1)
    for key share skip locked
), extended as (
  update jobq.lease l
    set expires_at = greatest(l.expires_at, clock_timestamp() + sqlc.narg(extend_by)::interval)
    where sqlc.narg(extend_by)::interval is not null and exists (select from held)
      and l.id = (select y.id from jobq.lease y
        where y.id = sqlc.arg(token) and y.owner = sqlc.arg(owner) and y.claimed_at = sqlc.arg(claimed_at)
          and y.lost_at is null
        for no key update skip locked)
    returning l.id
)
insert into jobq.progress as p (job_id, lease_id, progressed_at, percent, stage, message)
  select h.id, h.lease_id, clock_timestamp(), sqlc.narg(percent)::real, sqlc.narg(stage), sqlc.narg(message)
    from held h
    where sqlc.narg(extend_by)::interval is null or exists (select from extended)
  on conflict (job_id) do update
    set lease_id = excluded.lease_id, progressed_at = excluded.progressed_at,
      percent = coalesce(excluded.percent, case when p.lease_id = excluded.lease_id then p.percent end),
      stage = coalesce(excluded.stage, case when p.lease_id = excluded.lease_id then p.stage end),
      message = coalesce(excluded.message, case when p.lease_id = excluded.lease_id then p.message end),
      checkpoint = case when p.lease_id = excluded.lease_id then p.checkpoint end;

-- RunCheckpoint stores where the next run may resume, under the current lease, and extends the lease
-- if extend_by is given. Zero rows means that the lease was lost. It waits for rows that somebody has
-- locked, always the run first.
--
-- The next run begins with what was stored. The lock on the run stops a reaper that comes now. Another
-- reaper may already have its snapshot, and not have locked the lease yet. For that one the lease is
-- written again, even if its time stays: a reaper leaves a lease that has changed for its next pass.
-- If a reaper has already locked the lease, this statement waits for it, and then stores nothing.
-- Needs run_id_idx, lease_pkey and progress_pkey only; a HOT update.
-- name: RunCheckpoint :execrows
with held as materialized (
  select x.id, x.lease_id from jobq.run x
    where x.id = sqlc.arg(id) and x.lease_id = sqlc.arg(token) and x.state is null
      and (select l.owner = sqlc.arg(owner) and l.claimed_at = sqlc.arg(claimed_at) and l.lost_at is null
          and x.slot <> all(l.ended_slots)
        from jobq.lease l where l.id = sqlc.arg(token) limit 1)
    for key share
), extended as (
  update jobq.lease l
    set expires_at = greatest(l.expires_at, clock_timestamp() + sqlc.narg(extend_by)::interval)
    where l.id = (select h.lease_id from held h) and l.owner = sqlc.arg(owner) and l.claimed_at = sqlc.arg(claimed_at)
      and l.lost_at is null
    returning l.id
)
insert into jobq.progress as p (job_id, lease_id, checkpoint)
  select h.id, h.lease_id, sqlc.arg(checkpoint)::jsonb
    from held h
    where exists (select from extended) and jobq.json_require('checkpoint', sqlc.arg(checkpoint)::jsonb, 1048576)
  on conflict (job_id) do update
    set lease_id = excluded.lease_id, checkpoint = excluded.checkpoint,
      progressed_at = case when p.lease_id = excluded.lease_id then p.progressed_at end,
      percent = case when p.lease_id = excluded.lease_id then p.percent end,
      stage = case when p.lease_id = excluded.lease_id then p.stage end,
      message = case when p.lease_id = excluded.lease_id then p.message end;
