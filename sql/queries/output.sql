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

-- OutputPrune drops pieces of runs that have ended, some time after: whoever
-- follows has read them by then. It scans the table, which is as small as the
-- work in hand.
-- name: OutputPrune :execrows
delete from jobq.output o
  where o.written_at < clock_timestamp() - interval '5 minutes'
    and not exists (select from jobq.running r where r.id = o.job_id and r.lease_token = o.lease_token);

-- AttemptKeepUsage records what programs have used whose runs did not simply
-- succeed. It follows JobEnd in its transaction.
-- name: AttemptKeepUsage :exec
update jobq.attempt a
  set usage = u.usage
  from rows from (unnest(sqlc.arg(ids)::bigint[]), unnest(sqlc.arg(tokens)::bigint[]), unnest(sqlc.arg(usages)::jsonb[])) as u(id, token, usage)
  where a.job_id = u.id and a.lease_token = u.token and a.worker_id = sqlc.arg(owner);

-- WorkWaits says whether one of the queues that are not paused has a job of
-- the kinds that could run now. Walks pending_claim_idx and pending_due_idx.
-- name: WorkWaits :one
select exists (
  select from jobq.pending p
    where p.queue = any(sqlc.arg(queues)::text[]) and p.kind = any(sqlc.arg(kinds)::text[])
      and (p.position is not null or p.run_at <= clock_timestamp())
      and not exists (select from jobq.queue q where q.name = p.queue and q.paused_at is not null)
)::boolean as waits;
