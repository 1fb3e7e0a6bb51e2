-- StatRollUp folds what finishers appended into one row per minute, queue and
-- kind, and returns how many it has taken. One statement: a delta is in one
-- place or the other, never in both.
-- name: StatRollUp :one
with taken as (
  delete from jobq.stat_delta d
    where d.ctid = any(array(select x.ctid from jobq.stat_delta x limit sqlc.arg(row_count)::integer for update skip locked))
    returning d.minute, d.queue, d.kind, d.completed, d.failed, d.retried, d.lost, d.cancelled, d.run_seconds, d.wait_seconds
), folded as (
  insert into jobq.stat as s (minute, queue, kind, completed, failed, retried, lost, cancelled, run_seconds, wait_seconds)
    select t.minute, t.queue, t.kind, sum(t.completed), sum(t.failed), sum(t.retried), sum(t.lost), sum(t.cancelled),
        sum(t.run_seconds), sum(t.wait_seconds)
      from taken t
      group by t.minute, t.queue, t.kind
      order by t.minute, t.queue, t.kind
    on conflict (minute, queue, kind) do update
      set completed = s.completed + excluded.completed, failed = s.failed + excluded.failed,
        retried = s.retried + excluded.retried, lost = s.lost + excluded.lost, cancelled = s.cancelled + excluded.cancelled,
        run_seconds = s.run_seconds + excluded.run_seconds, wait_seconds = s.wait_seconds + excluded.wait_seconds
)
select count(*) from taken;

-- name: StatPrune :execrows
delete from jobq.stat s where s.minute < clock_timestamp() - sqlc.arg(age)::interval;

-- StatsByQueue sums the ended jobs of the last span, by queue.
-- name: StatsByQueue :many
select s.queue, sum(s.completed)::bigint as completed, sum(s.failed)::bigint as failed, sum(s.retried)::bigint as retried,
    sum(s.lost)::bigint as lost, sum(s.cancelled)::bigint as cancelled,
    sum(s.run_seconds)::float8 as run_seconds, sum(s.wait_seconds)::float8 as wait_seconds
  from jobq.stats s
  where s.minute >= date_trunc('minute', clock_timestamp() - sqlc.arg(span)::interval)
  group by s.queue
  order by s.queue;

-- StatsByMinute sums the ended jobs of the last span, by minute and queue.
-- name: StatsByMinute :many
select s.minute, s.queue, sum(s.completed)::bigint as completed, sum(s.failed)::bigint as failed, sum(s.retried)::bigint as retried,
    sum(s.lost)::bigint as lost, sum(s.cancelled)::bigint as cancelled,
    sum(s.run_seconds)::float8 as run_seconds, sum(s.wait_seconds)::float8 as wait_seconds
  from jobq.stats s
  where s.minute > date_trunc('minute', clock_timestamp() - sqlc.arg(span)::interval)
  group by s.minute, s.queue
  order by s.minute, s.queue;

-- FailuresByError groups the last failures within the span by queue and the
-- first words of the error. Reads at most 1000 jobs. Needs finished_unsuccessful_idx.
-- name: FailuresByError :many
select e.queue, e.error::text as error, count(*) as jobs, min(e.finished_at)::timestamptz as since
  from (
    select f.queue, f.finished_at, coalesce(left(split_part(f.last_error, E'\n', 1), 60), '') as error
      from jobq.finished f
      where f.state = 'failed' and f.finished_at > now() - sqlc.arg(span)::interval
      order by f.finished_at desc
      limit 1000
  ) e
  group by e.queue, e.error
  order by count(*) desc, e.queue
  limit 10;
