-- StatRollUp sums up the deltas that finishers have appended (stat_delta) in one row for each
-- minute, queue and kind (stat), and returns how many deltas it has taken. It is one statement, so
-- each delta is in one of the two tables, and never in both. While some transaction can still see
-- deltas that earlier calls have taken, each call reads them. It has no position as StatPrune has:
-- one call takes the deltas of several minutes, so there are rarely several calls in a row, and an
-- index would cost each end of a job more than it saves.
-- name: StatRollUp :one
with taken as (
  delete from jobq.stat_delta d
    where d.ctid = any(array(select x.ctid from jobq.stat_delta x limit sqlc.arg(row_count)::integer
        for update skip locked))
    returning d.minute, d.queue, d.kind, d.completed, d.failed, d.retried, d.lost, d.cancelled, d.run_seconds,
        d.wait_seconds
), folded as (
  insert into jobq.stat as s (minute, queue, kind, completed, failed, retried, lost, cancelled, run_seconds,
      wait_seconds)
    select t.minute, t.queue, t.kind, sum(t.completed), sum(t.failed), sum(t.retried), sum(t.lost), sum(t.cancelled),
        sum(t.run_seconds), sum(t.wait_seconds)
      from taken t
      group by t.minute, t.queue, t.kind
      order by t.minute, t.queue, t.kind
    on conflict (minute, queue, kind) do update
      set completed = s.completed + excluded.completed, failed = s.failed + excluded.failed,
        retried = s.retried + excluded.retried, lost = s.lost + excluded.lost,
        cancelled = s.cancelled + excluded.cancelled, run_seconds = s.run_seconds + excluded.run_seconds,
        wait_seconds = s.wait_seconds + excluded.wait_seconds
)
select count(*) from taken;

-- StatPrune deletes a number of sums that are older than the age, the earliest first. A sum is that
-- of a minute, a queue and a kind. It returns how many it has deleted, and their last minute, where
-- the next call may begin. Otherwise the next call would read what this one has deleted, for as
-- long as any transaction can still see that. Needs stat_pkey.
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

-- StatsByQueue sums the ended jobs of the last span, by queue. It does not read the view
-- stats, which would sum by minute and kind first. Needs stat_pkey.
-- name: StatsByQueue :many
select s.queue, sum(s.completed)::bigint as completed, sum(s.failed)::bigint as failed,
    sum(s.retried)::bigint as retried,
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
select s.minute, s.queue, sum(s.completed)::bigint as completed, sum(s.failed)::bigint as failed,
    sum(s.retried)::bigint as retried,
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

-- StatsByKindMinute sums the ended jobs of the last span, by minute and kind. Needs stat_pkey.
-- name: StatsByKindMinute :many
select s.minute, s.kind, sum(s.completed)::bigint as completed, sum(s.failed)::bigint as failed,
    sum(s.retried)::bigint as retried, sum(s.lost)::bigint as lost, sum(s.cancelled)::bigint as cancelled
  from (
    select t.minute, t.kind, t.completed, t.failed, t.retried, t.lost, t.cancelled
      from jobq.stat t
      where t.minute > date_trunc('minute', statement_timestamp() - sqlc.arg(span)::interval)
    union all
    select d.minute, d.kind, d.completed, d.failed, d.retried, d.lost, d.cancelled
      from jobq.stat_delta d
      where d.minute > date_trunc('minute', statement_timestamp() - sqlc.arg(span)::interval)
  ) s
  group by s.minute, s.kind
  order by s.minute, s.kind;

-- JobsAdded is the highest id that was drawn for a job, 0 for none yet.
-- name: JobsAdded :one
select coalesce(pg_sequence_last_value('jobq.job_id_seq'::regclass), 0)::bigint as added;

-- FailuresByError groups jobs that have failed within the span, and jobs that have failed before and
-- will be tried again, at whatever time. The groups are by queue, kind and the pattern of the error,
-- the most frequent first. A queue, a kind and an id that are not empty select groups.
--
-- It reads at most the last row_count jobs that did not succeed, and the row_count newest available or
-- scheduled jobs that have failed before; looked and looked_again are how many it has read. groups is
-- how many groups there are; it returns group_count at most. Of each group, first and last are when
-- jobs have failed for good, example is the newest job, and id is made of queue, kind and pattern,
-- so it stays the same. If there is no group, there is one row, with an empty id, for looked.
--
-- Equal errors become a pattern once. The span is in a subquery for the planner: otherwise it would
-- expect too few rows, since most of run have neither a state nor a finished_at, and sort them all.
-- The condition on jobs in pending is that of the index: with a further condition, the planner
-- would read the whole table. Needs run_unsuccessful_idx and pending_held_idx.
-- name: FailuresByError :many
with looked as materialized (
  select r.id, r.queue, r.kind, r.finished_at, r.state, r.last_error
    from jobq.run r
    where r.state <> 'completed' and r.finished_at > (select statement_timestamp() - sqlc.arg(span)::interval)
    order by r.finished_at desc, r.id desc
    limit sqlc.arg(row_count)::integer
), again as materialized (
  select a.id, a.queue, a.kind, a.last_error
    from (
      select p.id, p.queue, p.kind, p.last_error, p.waits
        from jobq.pending p
        where p.waits or p.attempts > 0 and p.last_error is not null
        order by p.waits desc, p.id desc -- those that do not wait for others have a null, and are first
        limit sqlc.arg(row_count)::integer
    ) a
    where a.waits is null
), same as materialized (
  select l.queue, l.kind, l.last_error, sum(l.failed) as failed, sum(l.retrying) as retrying,
      min(l.finished_at) as first, max(l.finished_at) as last, max(l.id) as example
    from (
      select x.id, x.queue, x.kind, x.last_error, x.finished_at, 1 as failed, 0 as retrying from looked x
          where x.state = 'failed'
      union all
      select x.id, x.queue, x.kind, x.last_error, null::timestamptz, 0, 1 from again x
    ) l
    where (sqlc.arg(queue)::text = '' or l.queue = sqlc.arg(queue)::text)
      and (sqlc.arg(kind)::text = '' or l.kind = sqlc.arg(kind)::text)
    group by l.queue, l.kind, l.last_error
), grouped as (
  select s.queue, s.kind, p.error,
      left(encode(sha256(convert_to(concat_ws(chr(10), s.queue, s.kind, p.error), 'UTF8')), 'hex'), 8) as id,
      sum(s.failed) as failed, sum(s.retrying) as retrying, min(s.first) as first, max(s.last) as last,
      max(s.example) as example
    from same s
    cross join lateral (select jobq.error_pattern(s.last_error) as error) p
    group by s.queue, s.kind, p.error
)
select coalesce(g.id, '')::text as id, coalesce(g.queue, '')::text as queue, coalesce(g.kind, '')::text as kind,
    coalesce(g.error, '')::text as error, coalesce(g.failed, 0)::bigint as failed,
        coalesce(g.retrying, 0)::bigint as retrying,
    g.first::timestamptz as first, g.last::timestamptz as last,
    coalesce(g.example, 0)::bigint as example, n.looked::bigint as looked, n.looked_again::bigint as looked_again,
    count(g.id) over ()::bigint as groups
  from (select (select count(*) from looked) as looked, (select count(*) from again) as looked_again) n
  left join grouped g on sqlc.arg(group_id)::text = '' or g.id = sqlc.arg(group_id)::text
  order by g.failed + g.retrying desc, g.queue, g.kind, g.error
  limit sqlc.arg(group_count)::integer;

-- RunsSilent finds the runs that have neither reported progress nor written output for longer than
-- usual, by queue and kind, those that have been silent for longest first. Usual is usual_factor times
-- the average run of the kind within the span, and at least least_silence; it is unknown_silence if no
-- run of the kind has ended within the span. An extended lease does not count: it only shows that the
-- worker is alive.
--
-- Example: runs of kind Report take 20 minutes on average, and one that has begun an hour ago has last
-- reported progress 45 minutes ago. With a factor of 3 it is not silent yet. A run of kind Resize,
-- which takes 80 ms on average, is silent after least_silence.
--
-- Of the runs that have not reported progress for so long, it looks at the output of the row_count
-- that have been silent for longest. It returns group_count groups at most. It reads all leases, and of
-- those that are older than least_silence all jobs that run. Needs stat_pkey, run_id_idx, progress_pkey
-- and output_pkey.
-- name: RunsSilent :many
with usual as materialized (
  select s.kind, sum(s.run_seconds) / nullif(sum(s.completed + s.failed + s.retried - s.lost), 0) as seconds
    from (
      select t.kind, t.run_seconds, t.completed, t.failed, t.retried, t.lost
        from jobq.stat t
        where t.minute >= date_trunc('minute', statement_timestamp() - sqlc.arg(span)::interval)
      union all
      select d.kind, d.run_seconds, d.completed, d.failed, d.retried, d.lost
        from jobq.stat_delta d
        where d.minute >= date_trunc('minute', statement_timestamp() - sqlc.arg(span)::interval)
    ) s
    group by s.kind
), quiet as materialized (
  select j.id, j.queue, j.kind, j.lease_token, greatest(j.claimed_at, j.progressed_at) as said_at, u.seconds,
      case when u.seconds is null then sqlc.arg(unknown_silence)::interval
        else greatest(sqlc.arg(least_silence)::interval,
            u.seconds * sqlc.arg(usual_factor)::float8 * interval '1 s') end as allowed
    from (
      select r.id, r.queue, r.kind, l.id as lease_token, l.claimed_at, p.progressed_at
        from jobq.lease l
        cross join lateral unnest(l.job_ids) with ordinality as o(job_id, slot)
        cross join lateral (
          select x.id, x.queue, x.kind from jobq.run x where x.id = o.job_id and x.lease_id = l.id and x.state is null
              limit 1
        ) r
        left join lateral (
          select x.progressed_at from jobq.progress x where x.job_id = o.job_id and x.lease_id = l.id limit 1
        ) p on true
        where l.claimed_at < statement_timestamp() - sqlc.arg(least_silence)::interval and o.slot <> all(l.ended_slots)
    ) j
    left join usual u on u.kind = j.kind
), longest as materialized (
  select q.id, q.queue, q.kind, q.lease_token, q.said_at, q.seconds, q.allowed
    from quiet q
    where q.said_at < statement_timestamp() - q.allowed
    order by q.said_at
    limit sqlc.arg(row_count)::integer
), silent as (
  select l.id, l.queue, l.kind, l.seconds, l.allowed, greatest(l.said_at, o.written_at) as said_at
    from longest l
    left join lateral (
      select x.written_at
        from jobq.output x
        where x.job_id = l.id and x.lease_token = l.lease_token
        order by x.begins_at desc
        limit 1
    ) o on true
)
select s.queue::text as queue, s.kind::text as kind, count(*)::bigint as runs, min(s.said_at)::timestamptz as since,
    ((array_agg(s.id order by s.said_at, s.id))[1])::bigint as example,
        coalesce(max(s.seconds), 0)::float8 as usual_seconds
  from silent s
  where s.said_at < statement_timestamp() - s.allowed
  group by s.queue, s.kind
  order by min(s.said_at), s.queue, s.kind
  limit sqlc.arg(group_count)::integer;
