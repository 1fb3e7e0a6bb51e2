-- JobPromote makes up to job_count due scheduled jobs available, earliest first,
-- at the tail of the line, and wakes the workers of their queues. It takes those
-- after (from_run_at, from_id), exclusive, in the order of (run_at, id), and returns
-- the place of the last one, where the next call goes on. Otherwise each call would
-- read the index entries of what was promoted before, for as long as any transaction
-- can still see them.
--
-- Rows that somebody has locked are skipped. One that was edited between the snapshot
-- and the lock has another ctid, and waits for the next look, as in JobClaim. The
-- positions are drawn in the order of the due times, before the update, which may go
-- in any order. Needs pending_due_idx, and nothing else whatever the statistics say.
--
-- It leaves suspects out: claim_alone takes them. Their condition is written with <> 0, because without
-- statistics the planner expects < to leave out most rows, and then reads and sorts all scheduled jobs.
-- name: JobPromote :one
with due as materialized (
  select p.id, p.run_at, p.ctid as place
    from jobq.pending p
    where p.position is null and p.waits is null and p.run_at <= statement_timestamp()
      and greatest(least(2, coalesce(p.lost + 1, p.max_attempts - p.attempts::integer)) - p.crashes, 0) <> 0
      and (p.run_at, p.id) > (sqlc.arg(from_run_at)::timestamptz, sqlc.arg(from_id)::bigint)
    order by p.run_at, p.id
    limit sqlc.arg(job_count)::integer
    for update skip locked
), placed as materialized (
  select d.id, nextval('jobq.position_seq') as position from due d
), promoted as (
  update jobq.pending p
    set position = x.position
    from placed x
    where p.ctid = any(array(select d.place from due d)) and x.id = p.id and p.position is null
    returning p.queue
), told as (
  select jobq.wake('work', q.queue) from (select distinct p.queue from promoted p) q
)
select (select count(*) from promoted) as promoted, (select count(*) from told) as queues, (select count(*)
    from due) as due,
    coalesce((select max(d.run_at) from due d), sqlc.arg(from_run_at)::timestamptz)::timestamptz as last_run_at,
    coalesce((select max(d.id) from due d where d.run_at = (select max(x.run_at) from due x)),
        sqlc.arg(from_id)::bigint)::bigint as last_id;

-- DueNext is the place of the first due job after a place, as JobPromote has them: the one that makes a promotion of
-- one job fail. Needs pending_due_idx.
-- name: DueNext :one
select p.run_at, p.id
  from jobq.pending p
  where p.position is null and p.waits is null and p.run_at <= statement_timestamp()
    and greatest(least(2, coalesce(p.lost + 1, p.max_attempts - p.attempts::integer)) - p.crashes, 0) <> 0
    and (p.run_at, p.id) > (sqlc.arg(from_run_at)::timestamptz, sqlc.arg(from_id)::bigint)
  order by p.run_at, p.id
  limit 1;

-- DueFirst is when the earliest scheduled job is to start, null if there is
-- none. It reads the index from its start, with the entries of what was promoted:
-- the longer a transaction is open, the more it costs (NextDue). Needs pending_due_idx.
-- name: DueFirst :one
select (select p.run_at from jobq.pending p where p.position is null and p.waits is null
    and greatest(least(2, coalesce(p.lost + 1, p.max_attempts - p.attempts::integer)) - p.crashes, 0) <> 0
  order by p.run_at limit 1)::timestamptz as run_at;
