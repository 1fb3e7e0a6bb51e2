-- LeaseHold keeps the caller's lease from being ended by others until the
-- transaction ends, for what else it writes in the job's name. Zero rows means
-- that the lease was lost. Needs running_pkey only.
-- name: LeaseHold :execrows
select r.id
  from jobq.running r
  where r.id = sqlc.arg(id) and r.lease_token = sqlc.arg(token) and r.lease_owner = sqlc.arg(owner)
  for key share;

-- OutputAppend stores what a program has written since the last time, under
-- the run's lease, and drops what earlier runs have left and what is too far
-- back. Zero rows means that the lease was lost. Needs running_pkey and
-- output_pkey only.
-- name: OutputAppend :execrows
with dropped as (
  delete from jobq.output o
    where o.job_id = sqlc.arg(id)
      and (o.lease_token < sqlc.arg(token) or (o.lease_token = sqlc.arg(token) and o.ends_at < sqlc.arg(keep_from)::bigint))
)
insert into jobq.output (job_id, lease_token, begins_at, ends_at, content)
  select r.id, r.lease_token, sqlc.arg(begins_at)::bigint, sqlc.arg(ends_at)::bigint, sqlc.arg(content)::text
    from jobq.running r
    where r.id = sqlc.arg(id) and r.lease_token = sqlc.arg(token) and r.lease_owner = sqlc.arg(owner)
  on conflict do nothing;

-- OutputSince is what a job's programs have written after a piece, in order.
-- name: OutputSince :many
select o.lease_token, o.begins_at, o.ends_at, o.content
  from jobq.output o
  where o.job_id = sqlc.arg(job_id) and (o.lease_token, o.begins_at) > (sqlc.arg(token)::bigint, sqlc.arg(begins_at)::bigint)
  order by o.lease_token, o.begins_at
  limit 100;

-- OutputPrune drops so many pieces of runs that have ended, some time after:
-- whoever follows has read them by then. What has been written lately it does not
-- look at. Several workers prune at once: each takes what the others do not.
-- Needs output_written_at_idx and running_pkey.
-- name: OutputPrune :execrows
delete from jobq.output o
  where o.ctid = any(array(
    select x.ctid from jobq.output x
      where x.written_at < statement_timestamp() - interval '5 minutes'
        and not exists (select from jobq.running r where r.id = x.job_id and r.lease_token = x.lease_token)
      order by x.written_at
      limit sqlc.arg(row_count)::integer
      for update of x skip locked));

-- AttemptKeepUsage records what programs have used whose runs did not simply
-- succeed. It follows JobEnd in its transaction.
-- name: AttemptKeepUsage :exec
update jobq.attempt a
  set usage = u.usage
  from rows from (unnest(sqlc.arg(ids)::bigint[]), unnest(sqlc.arg(tokens)::bigint[]), unnest(sqlc.arg(usages)::jsonb[])) as u(id, token, usage)
  where a.job_id = u.id and a.lease_token = u.token and a.worker_id = sqlc.arg(owner);

-- WorkWaits says whether one of the queues that are not paused has a job of
-- the kinds that could run now. Per queue it walks the line up to the first such
-- job, as a claim does, and then the scheduled jobs that are due. The orders are
-- for the planner: without, it would expect to meet such a job soon in any order,
-- and read all of pending when there is none. Needs pending_claim_idx and
-- pending_due_idx.
-- name: WorkWaits :one
with open as materialized (
  select n.name
    from unnest(sqlc.arg(queues)::text[]) as n(name)
    where not exists (select from jobq.queue q where q.name = n.name and q.paused_at is not null)
)
select (
  exists (
    select from open o
      cross join lateral (
        select p.id from jobq.pending p
          where p.queue = o.name and p.position is not null and p.kind = any(sqlc.arg(kinds)::text[])
          order by p.priority, p.position
          limit 1
      ) available
  )
  or exists (
    select from (
      select p.id from jobq.pending p
        where p.position is null and p.run_at <= statement_timestamp() and p.kind = any(sqlc.arg(kinds)::text[])
          and p.queue = any(array(select o.name from open o))
        order by p.run_at
        limit 1
    ) due
  )
)::boolean as waits;
