-- StatRollUp folds what finishers appended into one row per minute, queue and
-- kind, and returns how many it has taken. One statement: a delta is in one
-- place or the other, never in both. While some transaction can still see them,
-- each call walks through the deltas that earlier ones have taken. It has no
-- position as StatPrune has: one call takes the deltas of minutes, so there are
-- rarely several in a row, and an index would cost each finisher more than they save.
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

-- StatPrune deletes the sums of so many minutes, queues and kinds that are older
-- than the age, earliest first. It returns how many it has deleted, and the last
-- minute of them, where the next call may begin: else it would walk through what
-- this one has deleted, for as long as any transaction can still see that. Needs
-- stat_pkey.
-- name: StatPrune :one
with deleted as (
  delete from jobq.stat s
    where s.ctid = any(array(
      select x.ctid from jobq.stat x
        where x.minute >= sqlc.arg(after)::timestamptz and x.minute < statement_timestamp() - sqlc.arg(age)::interval
        order by x.minute
        limit sqlc.arg(row_count)::integer
        for update skip locked))
    returning s.minute
)
select count(*) as deleted, coalesce(max(d.minute), sqlc.arg(after)::timestamptz)::timestamptz as last from deleted d;

-- StatsByQueue sums the ended jobs of the last span, by queue. Not from the view
-- stats, which would add up by minute and kind first. Needs stat_pkey.
-- name: StatsByQueue :many
select s.queue, sum(s.completed)::bigint as completed, sum(s.failed)::bigint as failed, sum(s.retried)::bigint as retried,
    sum(s.lost)::bigint as lost, sum(s.cancelled)::bigint as cancelled,
    sum(s.run_seconds)::float8 as run_seconds, sum(s.wait_seconds)::float8 as wait_seconds
  from (
    select t.minute, t.queue, t.completed, t.failed, t.retried, t.lost, t.cancelled, t.run_seconds, t.wait_seconds
      from jobq.stat t
      where t.minute >= date_trunc('minute', statement_timestamp() - sqlc.arg(span)::interval)
    union all
    select d.minute, d.queue, d.completed, d.failed, d.retried, d.lost, d.cancelled, d.run_seconds, d.wait_seconds
      from jobq.stat_delta d
      where d.minute >= date_trunc('minute', statement_timestamp() - sqlc.arg(span)::interval)
  ) s
  group by s.queue
  order by s.queue;

-- StatsByMinute sums the ended jobs of the last span, by minute and queue. Needs stat_pkey.
-- name: StatsByMinute :many
select s.minute, s.queue, sum(s.completed)::bigint as completed, sum(s.failed)::bigint as failed, sum(s.retried)::bigint as retried,
    sum(s.lost)::bigint as lost, sum(s.cancelled)::bigint as cancelled,
    sum(s.run_seconds)::float8 as run_seconds, sum(s.wait_seconds)::float8 as wait_seconds
  from (
    select t.minute, t.queue, t.completed, t.failed, t.retried, t.lost, t.cancelled, t.run_seconds, t.wait_seconds
      from jobq.stat t
      where t.minute > date_trunc('minute', statement_timestamp() - sqlc.arg(span)::interval)
    union all
    select d.minute, d.queue, d.completed, d.failed, d.retried, d.lost, d.cancelled, d.run_seconds, d.wait_seconds
      from jobq.stat_delta d
      where d.minute > date_trunc('minute', statement_timestamp() - sqlc.arg(span)::interval)
  ) s
  group by s.minute, s.queue
  order by s.minute, s.queue;

-- FailuresByError groups the last failures within the span by queue and the
-- first words of the error. It reads at most the last row_count jobs that did not
-- succeed, so that a million of cancelled ones cannot make it slow. The span is in
-- a subquery for the planner: it would expect too few rows, as most of run have
-- neither a state nor a finished_at, and sort them all. Needs run_unsuccessful_idx.
-- name: FailuresByError :many
select e.queue, e.error::text as error, count(*) as jobs, min(e.finished_at)::timestamptz as since
  from (
    select u.queue, u.finished_at, coalesce(left(split_part(u.last_error, E'\n', 1), 60), '') as error
      from (
        select r.queue, r.finished_at, r.state, r.last_error
          from jobq.run r
          where r.state <> 'completed' and r.finished_at > (select statement_timestamp() - sqlc.arg(span)::interval)
          order by r.finished_at desc, r.id desc
          limit sqlc.arg(row_count)::integer
      ) u
      where u.state = 'failed'
  ) e
  group by e.queue, e.error
  order by count(*) desc, e.queue
  limit 10;
