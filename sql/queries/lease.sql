-- LeaseExtend gives held leases of one length their full time again, in one
-- statement for all, and never shortens one. With a lease of 0 it only asks. It answers ok for those it has extended, cancel for those it has
-- extended of jobs that somebody asked to stop, and busy for all that are still
-- the caller's: an id that is only busy is in another transaction's hands, and
-- one without any answer is lost. (Not joined here, since that is quadratic in
-- the plan that hot statements get; Schema.ExtendLeases does it.)
-- It never waits for a row, so that one locked job cannot cost the worker its
-- other leases, and it can deadlock with nothing; what LeaseHold keeps of the
-- run itself is not in its way. Needs running_pkey only; a HOT update.
-- name: LeaseExtend :many
with held as materialized (
  select r.place
    from rows from (unnest(sqlc.arg(ids)::bigint[]), unnest(sqlc.arg(tokens)::bigint[])) as h(id, token)
    cross join lateral (
      select x.ctid as place from jobq.running x
        where x.id = h.id and x.lease_token = h.token and x.lease_owner = sqlc.arg(owner)
        for no key update skip locked
    ) r
), extended as (
  update jobq.running r
    set lease_expires_at = case
        when sqlc.arg(lease)::interval > interval '0' then greatest(r.lease_expires_at, clock_timestamp() + sqlc.arg(lease)::interval)
        else r.lease_expires_at
      end
    where r.ctid = any(array(select h.place from held h))
    returning r.id, r.cancel_requested_at
)
select e.id, (case when e.cancel_requested_at is null then 'ok' else 'cancel' end)::text as answer
  from extended e
union all
select r.id, 'busy'
  from rows from (unnest(sqlc.arg(ids)::bigint[]), unnest(sqlc.arg(tokens)::bigint[])) as h(id, token)
  cross join lateral (
    select x.id from jobq.running x
      where x.id = h.id and x.lease_token = h.token and x.lease_owner = sqlc.arg(owner)
      limit 1
  ) r;

-- JobProgress stores how far a run is, under its lease, and extends the lease
-- where progress is what does. Zero rows means that the lease was lost, or that
-- the row is in another transaction's hands: LeaseExtend tells which. Like that
-- it never waits for a row, so that one locked job cannot cost the worker the
-- leases of those that report beside it. Null keeps what was there. Needs
-- running_pkey only; a HOT update.
-- name: JobProgress :execrows
update jobq.running r
  set progress_percent = coalesce(sqlc.narg(percent)::real, r.progress_percent),
    progress_stage = coalesce(sqlc.narg(stage), r.progress_stage),
    progress_message = coalesce(sqlc.narg(message), r.progress_message),
    progressed_at = clock_timestamp(),
    lease_expires_at = greatest(r.lease_expires_at, clock_timestamp() + sqlc.narg(extend_by)::interval)
  where r.id = (
    select x.id from jobq.running x
      where x.id = sqlc.arg(id) and x.lease_token = sqlc.arg(token) and x.lease_owner = sqlc.arg(owner)
      for no key update skip locked
  );

-- JobCheckpoint stores what the next run may resume from, under the current
-- lease, and extends the lease as JobProgress does. Zero rows means the lease was lost. Needs running_pkey only.
-- name: JobCheckpoint :execrows
update jobq.running r
  set checkpoint = sqlc.arg(checkpoint),
    lease_expires_at = greatest(r.lease_expires_at, clock_timestamp() + sqlc.narg(extend_by)::interval)
  where r.id = sqlc.arg(id) and r.lease_token = sqlc.arg(token) and r.lease_owner = sqlc.arg(owner);

