-- Await says for which jobs a process waits (jobs), and for which no longer (done).
-- It returns whether the process was known; see the function. Needs waiter_pkey,
-- awaited_pkey and awaited_waiter_idx only.
-- name: Await :one
select jobq.await(sqlc.arg(waiter)::bigint, sqlc.arg(jobs)::bigint[], sqlc.arg(done)::bigint[],
    sqlc.arg(lease)::interval)::boolean as known;

-- AwaitEnd says that a process waits no more, and whether that is all done.
-- name: AwaitEnd :one
select jobq.await_end(sqlc.arg(waiter)::bigint)::boolean as is_done;

-- WaitersForget deletes what waiters have left that have died, up to 2,000 jobs, and
-- returns whether that was all. Needs waiter_pkey and awaited_waiter_idx only.
-- name: WaitersForget :one
select jobq.waiters_forget()::boolean as is_done;

-- EndRead says how jobs have ended, up to so many: of those that still wait or run
-- there is no row. A job that is not there has the state gone if its id was given out
-- once, else unknown. It reads all of a job at one moment: a job that moves is never
-- taken for one that is gone. Needs run_id_idx, pending_pkey, lease_pkey and
-- past_lease_pkey only.
-- name: EndRead :many
select f.id::bigint as id,
    coalesce(e.state, case when f.id <= coalesce(pg_sequence_last_value('jobq.job_id_seq'::regclass), 0) then 'gone'
        else 'unknown' end)::text as state,
    coalesce(e.kind, '')::text as kind, e.result::jsonb as result, coalesce(e.error, '')::text as error,
        e.ended_at::timestamptz as ended_at
  from unnest(sqlc.arg(ids)::bigint[]) as f(id)
  left join lateral (
    select coalesce(x.state::text, 'completed') as state, x.kind, x.result, case
        when x.state <> 'completed' then x.last_error end as error, o.ended_at
      from jobq.run x
      cross join lateral rows from (jobq.run_end(x.lease_id, x.slot, x.finished_at)) as o(claimed_at, owner, ended_at)
      where x.id = f.id and o.ended_at is not null
      limit 1
  ) e on true
  where e.state is not null
    or ((select true from jobq.pending p where p.id = f.id limit 1) is null and (select true from jobq.run r
        where r.id = f.id limit 1) is null)
  limit sqlc.arg(row_count)::integer;
