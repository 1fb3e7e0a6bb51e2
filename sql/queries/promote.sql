-- JobPromote makes due scheduled jobs available, earliest first, at the tail
-- of the line, and wakes the workers of their queues. Needs pending_due_idx.
-- Rows that somebody else works on are skipped.
-- name: JobPromote :one
with due as materialized (
  select p.ctid as place
    from jobq.pending p
    where p.position is null and p.run_at <= statement_timestamp()
    order by p.run_at
    limit sqlc.arg(job_count)::integer
    for update skip locked
), promoted as (
  update jobq.pending p
    set position = nextval('jobq.position_seq')
    where p.ctid = any(array(select d.place from due d)) and p.position is null
    returning p.queue
), told as (
  select jobq.wake('work', q.queue) from (select distinct p.queue from promoted p) q
)
select (select count(*) from promoted) as promoted, (select count(*) from told) as queues;
