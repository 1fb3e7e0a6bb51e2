-- QueueList counts the jobs of each queue that has a row, a job or a worker, of 1,000 queues at most:
-- those that wait, run, or ended unsuccessfully. Running jobs are counted in the leases, to which each
-- end is written with the end itself or soon after. Jobs claimed ahead, whose slots are beyond begun, do not
-- run: of 351 jobs that workers with 200 slots hold, 200 run and 151 are claimed.
--
-- The counts of scheduled jobs, of jobs that wait for others and of ended jobs stop at count_max
-- jobs of all queues together, which then means "at least": of scheduled jobs it counts the next
-- ones that are due, of jobs that wait for others the oldest, and of ended jobs the last ones.
-- Available jobs are counted up to available_max in each queue. This is count_max, and less with
-- more than ten queues, so that all queues together have ten times count_max: with 200 queues and a
-- count_max of 10,000, each has 500. With very many queues, each still has 100.
--
-- head_run_at is since when the job that has waited longest could have run, among the first jobs of
-- the lines that line_heads looks at: 100 lines in each queue. With more than ten queues it looks at
-- fewer lines, 5 at least. So it costs the same however many jobs, keys and queues there are.
--
-- The order of what is counted is for the planner: without it, it may read the whole queue. Needs
-- pending_claim_idx, pending_due_idx, pending_held_idx, run_unsuccessful_idx, and what line_heads
-- needs.
-- name: QueueList :many
with recursive ready as (
  (select p.queue as name from jobq.pending p where p.position is not null order by p.queue limit 1)
  union all
  select (select p.queue from jobq.pending p where p.position is not null and p.queue > w.name order by p.queue limit 1)
    from ready w where w.name is not null
), due as (
  select d.queue as name, count(*) as scheduled, count(*) filter (where d.attempts > 0) as retrying
    from (select p.queue, p.attempts from jobq.pending p where p.position is null and p.waits is null
      order by p.run_at limit sqlc.arg(count_max)::bigint) d
    group by d.queue
), waits as (
  select d.queue as name, count(*) as waiting
    from (select p.queue from jobq.pending p where p.waits order by p.id limit sqlc.arg(count_max)::bigint) d
    group by d.queue
), busy as (
  select l.queue as name, sum(cardinality(l.job_ids) - cardinality(l.ended_slots) - a.jobs) as running,
      sum(a.jobs) as claimed
    from jobq.lease l
    cross join lateral (
      select greatest(cardinality(l.job_ids) - l.begun, 0)
          - (select count(*) from unnest(l.ended_slots) as e(slot) where e.slot > l.begun) as jobs) a
    group by l.queue
), ended as (
  select e.queue as name, count(*) filter (where e.state = 'failed') as failed,
      count(*) filter (where e.state = 'cancelled') as cancelled
    from (select r.queue, r.state from jobq.run r where r.state in ('failed', 'cancelled')
      order by r.finished_at desc limit sqlc.arg(count_max)::bigint) e
    group by e.queue
), slot as (
  select s.name, sum(case
      when jsonb_typeof(s.queues -> s.name) = 'number'
      then least((s.queues ->> s.name)::numeric, 1000000) end)::bigint as slots
    from (select jsonb_object_keys(case when jsonb_typeof(w.queues) = 'object' then w.queues end) as name,
        case when not w.draining and w.heartbeat_at > clock_timestamp() - interval '1 minute'
              and (select h.host from jobq.held_host h where h.host = w.hostname limit 1) is null
            then w.queues end as queues
      from jobq.worker w
      limit 1000) s
    group by s.name
), name as (
  -- The limit is also for the planner: expecting more names than there are, it
  -- would compile the whole query (JIT), which takes seconds.
  select u.name from (
    select w.name from ready w where w.name is not null
    union select d.name from due d
    union select d.name from waits d
    union select b.name from busy b
    union select e.name from ended e
    union select s.name from slot s
    union select q.name from jobq.queue q
  ) u
  limit 1000
), bound as materialized (
  select least(sqlc.arg(count_max)::bigint,
      greatest(100, 10 * sqlc.arg(count_max)::bigint / greatest(count(*), 1))) as available_max,
      greatest(5, least(100, 1000 / greatest(count(*), 1)))::integer as lines_max
    from name n
)
select n.name::text as name,
    (select count(*) from (select from jobq.pending p
      where p.queue = n.name and p.position is not null
      order by p.partition_key, p.priority, p.position
      limit (select b.available_max from bound b)) x) as available,
    (select b.available_max from bound b)::bigint as available_max,
    coalesce(d.scheduled, 0)::bigint as scheduled, coalesce(d.retrying, 0)::bigint as retrying,
    coalesce(w.waiting, 0)::bigint as waiting, coalesce(b.running, 0)::bigint as running,
    coalesce(b.claimed, 0)::bigint as claimed,
    coalesce(e.failed, 0)::bigint as failed,
    coalesce(e.cancelled, 0)::bigint as cancelled, coalesce(s.slots, 0)::bigint as slots,
    (select min(h.since) from jobq.line_heads(n.name, (select b.lines_max from bound b)) h)::timestamptz as head_run_at,
    (extract(epoch from coalesce(q.lease, jobq.lease_default())) * 1000)::bigint as lease_ms,
    (extract(epoch from coalesce(q.extend_every,
        coalesce(q.lease, jobq.lease_default()) / 3)) * 1000)::bigint as extend_every_ms,
    coalesce(q.heartbeat, 'ticker')::text as heartbeat,
    (extract(epoch from coalesce(q.stale_grace, interval '0')) * 1000)::bigint as stale_grace_ms,
    coalesce(q.redelivery, 'tail')::text as redelivery,
    (extract(epoch from coalesce(q.redelivery_delay, interval '0')) * 1000)::bigint as redelivery_delay_ms,
    coalesce(q.reset_on_reap, false)::boolean as reset_on_reap,
    coalesce(q.max_lost, 0)::integer as max_lost,
    coalesce(q.max_running, 0)::integer as max_running, coalesce(q.key_limit, 0)::integer as key_limit,
    coalesce(q.key_order, '')::text as key_order,
    coalesce(q.key_separator, '')::text as key_separator, coalesce(q.rate_jobs, 0)::integer as rate_jobs,
    coalesce(extract(epoch from q.rate_period) * 1000, 0)::bigint as rate_period_ms,
    coalesce(q.rate_burst, jobq.rate_burst_default(q.rate_jobs, q.rate_period), 0)::integer as rate_burst,
    (extract(epoch from coalesce(q.age_after, jobq.age_after_default())) * 1000)::bigint as age_after_ms,
    coalesce(q.key_rate_jobs, 0)::integer as key_rate_jobs, coalesce(extract(epoch from q.key_rate_period) * 1000,
        0)::bigint as key_rate_period_ms,
    coalesce(q.key_rate_burst, jobq.rate_burst_default(q.key_rate_jobs, q.key_rate_period),
        0)::integer as key_rate_burst,
    coalesce(extract(epoch from q.retention) * 1000, 0)::bigint as retention_ms,
        coalesce(extract(epoch from q.failed_retention) * 1000, 0)::bigint as failed_retention_ms,
    jobq.throttled_until(q.name, q.rate_jobs, q.rate_period, q.rate_burst)::timestamptz as throttled_until,
    q.paused_at, q.paused_by, q.pause_reason
  from name n
  left join due d on d.name = n.name
  left join waits w on w.name = n.name
  left join busy b on b.name = n.name
  left join ended e on e.name = n.name
  left join slot s on s.name = n.name
  left join jobq.queue q on q.name = n.name
  order by n.name;

-- QueueServed says whether a worker has had the queue, and which of the kinds in it: a worker that has a row, or that
-- ended a run within the 30 days for which stat is kept. It reads the latest 10,000 sums of the queue, and 10,000 sums
-- that are not rolled up yet. The order is for the planner. Needs stat_queue_idx.
-- name: QueueServed :one
with had as materialized (
  select w.kinds from jobq.worker w where w.queues -> sqlc.arg(queue)::text is not null
), ended as materialized (
  select s.kind
    from (select t.kind, t.completed + t.failed + t.retried + t.lost as runs from jobq.stat t
      where t.queue = sqlc.arg(queue)::text order by t.queue, t.minute desc limit 10000) s
    where s.runs > 0
  union
  select d.kind
    from (select t.queue, t.kind, t.completed + t.failed + t.retried + t.lost as runs from jobq.stat_delta t
      limit 10000) d
    where d.queue = sqlc.arg(queue)::text and d.runs > 0
)
select (exists (select from had) or exists (select from ended))::boolean as served,
    array(select k.name from unnest(sqlc.arg(kinds)::text[]) as k(name)
      where exists (select from had h where k.name = any(h.kinds))
        or exists (select from ended e where e.kind = k.name))::text[] as kinds;

-- KindList is the kinds that a live worker handles, of which jobs have ended within the span, that are
-- paused, that have settings, or that have crashed workers within a day (kinds_crashed ignores older
-- crashes). It returns how many workers handle each kind, and what has ended within the span. The limits are for the
-- planner, as in QueueList. Needs stat_pkey.
-- name: KindList :many
with ended as materialized (
  select s.kind as name, sum(s.completed) as completed, sum(s.failed) as failed, sum(s.retried) as retried,
      sum(s.lost) as lost
    from (
      select t.kind, t.completed, t.failed, t.retried, t.lost
        from jobq.stat t
        where t.minute >= date_trunc('minute', statement_timestamp() - sqlc.arg(span)::interval)
      union all
      select d.kind, d.completed, d.failed, d.retried, d.lost
        from jobq.stat_delta d
        where d.minute >= date_trunc('minute', statement_timestamp() - sqlc.arg(span)::interval)
    ) s
    group by s.kind
), kind as materialized (
  select k.name, k.crashes, k.crashed_at, k.paused_at, k.paused_by, k.pause_reason
    from jobq.kind k
    where k.paused_at is not null or k.crashed_at > statement_timestamp() - interval '1 day'
), setting as materialized (
  select s.name, s.queue, s.priority, s.max_attempts, s.timeout, s.backoff_base, s.backoff_max, s.owner, s.runbook
    from jobq.kind_setting s
    where num_nonnulls(s.queue, s.priority, s.max_attempts, s.timeout, s.backoff_base, s.backoff_max, s.owner,
        s.runbook) > 0
    order by s.name
    limit sqlc.arg(row_count)::integer
), handled as materialized (
  select h.name, count(*) as workers
    from (
      select unnest(w.kinds) as name
        from jobq.worker w
        where not w.draining and w.heartbeat_at > clock_timestamp() - interval '1 minute'
        limit 100000) h
    group by h.name
)
select n.name::text as name, coalesce(h.workers, 0)::bigint as workers, coalesce(e.completed, 0)::bigint as completed,
    coalesce(e.failed, 0)::bigint as failed, coalesce(e.retried, 0)::bigint as retried,
        coalesce(e.lost, 0)::bigint as lost,
    coalesce(k.crashes, 0)::integer as crashes, k.crashed_at, k.paused_at, k.paused_by, k.pause_reason,
    coalesce(s.queue, 'default')::text as queue, coalesce(s.priority, 0)::smallint as priority,
    coalesce(s.max_attempts, jobq.max_attempts_default())::integer as max_attempts,
    coalesce(extract(epoch from s.timeout) * 1000, 0)::bigint as timeout_ms,
    coalesce(extract(epoch from s.backoff_base) * 1000, 0)::bigint as backoff_base_ms,
    coalesce(extract(epoch from s.backoff_max) * 1000, 0)::bigint as backoff_max_ms,
    coalesce(s.owner, '')::text as owner, coalesce(s.runbook, '')::text as runbook
  from (
    select k.name from kind k
    union select s.name from setting s
    union select h.name from handled h
    union select e.name from ended e
    limit sqlc.arg(row_count)::integer
  ) n
  left join handled h on h.name = n.name
  left join ended e on e.name = n.name
  left join kind k on k.name = n.name
  left join setting s on s.name = n.name
  where n.name is not null -- of a row that no kind can be read from
  order by n.name;
