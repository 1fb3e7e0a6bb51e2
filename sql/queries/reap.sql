-- LeaseReap takes jobs away from their owners and counts the lost runs: one
-- attempt more, and failed when it was the last, so that a job that kills every
-- worker comes to an end. Without owners it takes those whose lease, and the
-- queue's stale_grace after it, has ended, longest ended first; with owners,
-- which the caller knows to be dead, all of theirs.
--
-- It is right without any lock around it: the expiry is checked on the row as
-- locked (FOR UPDATE checks a row that has changed since the snapshot again), rows that somebody else works on are skipped, and a second reaper
-- finds nothing left. It asks for no handler: the policy is on the row and its
-- queue. Scans running, which holds no more than the work in hand.
-- name: LeaseReap :many
with stale as materialized (
  select r.ctid as place
    from jobq.running r
    left join jobq.queue q on q.name = r.queue
    where case -- before the queue is looked up
        when sqlc.narg(owners)::text[] is null then r.lease_expires_at < clock_timestamp()
        else r.lease_owner = any(sqlc.narg(owners)::text[])
      end
      and (sqlc.narg(owners)::text[] is not null or r.lease_expires_at < clock_timestamp() - coalesce(q.stale_grace, interval '0'))
    order by r.lease_expires_at, r.id
    limit sqlc.arg(job_count)::integer
    for update of r skip locked
), taken as (
  -- By place: a row that was edited between snapshot and lock is elsewhere, and
  -- waits for the next reap.
  delete from jobq.running r
    where r.ctid = any(array(select s.place from stale s))
    returning r.id, r.position, r.lease_token, r.lease_expires_at, r.started_at, r.run_at, r.created_at, r.timeout, r.backoff_base,
      r.backoff_max, r.priority, r.attempts, r.max_attempts, r.crashes, r.args_apart, r.queue, r.kind, r.lease_owner, r.args,
      r.unique_key, r.checkpoint, r.metadata, r.tags, r.cancel_requested_at
), ended as (
  select t.id, t.position, t.lease_token, t.lease_expires_at, t.started_at, t.run_at, t.created_at, t.timeout, t.backoff_base,
      t.backoff_max, t.priority, t.max_attempts, t.args_apart, t.queue, t.kind, t.lease_owner, t.args, t.unique_key,
      t.checkpoint, t.metadata, t.tags, coalesce(q.redelivery, 'tail') as redelivery,
      coalesce(q.redelivery_delay, interval '0') as delay, coalesce(q.reset_on_reap, false) as reset,
      t.attempts + 1 as attempts, least(t.crashes + 1, 32767) as crashes,
      case
        when t.cancel_requested_at is not null then 'cancelled'
        when t.attempts + 1 >= t.max_attempts then 'failed'
        when q.redelivery_delay > interval '0' then 'scheduled'
        else 'available'
      end::jobq.job_state as state,
      case
        when sqlc.narg(owners)::text[] is not null then 'orphaned by worker restart'
        else left(format('lease expired: worker %s stopped responding', t.lease_owner), 1000)
      end as error
    from taken t
    left join jobq.queue q on q.name = t.queue
), again as (
  insert into jobq.pending
      (id, position, lease_token, run_at, created_at, timeout, backoff_base, backoff_max, priority, attempts, max_attempts,
       crashes, args_apart, queue, kind, args, unique_key, last_error, clear_reason, checkpoint, metadata, tags)
    select e.id, case when e.redelivery = 'head' then e.position else nextval('jobq.position_seq') end, e.lease_token,
        clock_timestamp() + e.delay, e.created_at, e.timeout, e.backoff_base, e.backoff_max, e.priority,
        e.attempts, e.max_attempts, e.crashes, e.args_apart, e.queue, e.kind, e.args, e.unique_key, e.error, e.error,
        case when not e.reset then e.checkpoint end, e.metadata, e.tags
      from ended e
      where e.state in ('available', 'scheduled')
), history as (
  insert into jobq.finished
      (id, finished_at, lease_token, started_at, run_at, created_at, timeout, backoff_base, backoff_max, state,
       priority, attempts, max_attempts, crashes, args_apart, queue, kind, lease_owner, args, unique_key,
       last_error, checkpoint, metadata, tags)
    select e.id, clock_timestamp(), e.lease_token, e.started_at, e.run_at, e.created_at, e.timeout, e.backoff_base,
        e.backoff_max, e.state, e.priority, e.attempts, e.max_attempts, e.crashes, e.args_apart, e.queue, e.kind,
        e.lease_owner, e.args, e.unique_key, e.error, e.checkpoint, e.metadata, e.tags
      from ended e
      where e.state in ('failed', 'cancelled')
), told as (
  insert into jobq.attempt
      (job_id, finished_at, started_at, lease_token, outcome, number, worker_id, error)
    select e.id, clock_timestamp(), e.started_at, e.lease_token, 'lost', e.attempts, e.lease_owner, e.error
      from ended e
), recorded as (
  insert into jobq.event (type, source, job_id, queue, message)
    select case when sqlc.narg(owners)::text[] is null then 'stalled' else 'orphaned' end, sqlc.arg(source), e.id, e.queue, e.error
      from ended e
), counted as (
  insert into jobq.stat_delta
      (minute, queue, kind, completed, failed, retried, lost, cancelled, run_seconds, wait_seconds)
    select date_trunc('minute', clock_timestamp()), e.queue, e.kind, 0,
        count(*) filter (where e.state = 'failed'), count(*) filter (where e.state in ('available', 'scheduled')),
        count(*) filter (where e.state <> 'cancelled'),
        count(*) filter (where e.state = 'cancelled'), 0, 0
      from ended e
      group by e.queue, e.kind
), woken as (
  -- Back at its old place, a job is behind what workers look at first.
  select jobq.wake('head', q.queue)
    from (select distinct e.queue from ended e where e.redelivery = 'head' and e.state = 'available') q
)
select e.id, e.queue, e.kind, e.lease_owner, e.lease_token, e.lease_expires_at, e.attempts, e.state
  from ended e
  where (select count(*) from woken) >= 0;

-- NextDue says when the janitor has something to do, or to look again: in
-- milliseconds from when it answers, not positive when it is time already, and as
-- the epoch in seconds by the server's clock. No later than jobs_max_ms after it
-- was asked.
--
-- With scan, it looks when the next lease, with its queue's grace, ends, but no
-- later than leases_max_ms after it was asked, nor than the shortest lease:
-- whatever is claimed meanwhile ends after that, and so no end is missed. It answers with
-- that in leases_ms, and lease_ends when it is the moment of a lease. Without, it
-- takes leases_max_ms for what it would have found: a scan reads all of running,
-- which has gigabytes of dead rows when a transaction was open for long.
--
-- It looks at the jobs that are to start at jobs_from or later, for the same
-- reason: the index entries of promoted jobs may still be there. The first of
-- them is job_at, null if there is none; DueFirst looks at the earlier ones now
-- and then. All that was committed before looked_at has been seen. Needs
-- pending_due_idx.
-- name: NextDue :one
select ceil(extract(epoch from n.at - clock_timestamp()) * 1000)::bigint as ms, extract(epoch from n.at)::float8 as epoch,
    ceil(extract(epoch from n.leases - clock_timestamp()) * 1000)::bigint as leases_ms,
    coalesce(n.leases = n.lease, false)::boolean as lease_ends, coalesce(n.at = n.job, false)::boolean as job_due, n.job::timestamptz as job_at,
    statement_timestamp()::timestamptz as looked_at
  from (
    select least(l.leases, j.job, l.asked + sqlc.arg(jobs_max_ms)::bigint * interval '1 ms') as at, l.leases, l.lease, j.job
      from (
        select least(e.lease, e.asked + e.shortest, e.asked + sqlc.arg(leases_max_ms)::bigint * interval '1 ms') as leases, e.lease, e.asked
          from (
            select clock_timestamp() as asked,
                (select min(r.lease_expires_at + coalesce(q.stale_grace, interval '0'))
                  from jobq.running r left join jobq.queue q on q.name = r.queue where sqlc.arg(scan)::boolean) as lease,
                -- 60 seconds is the lease of queues without a row.
                case when sqlc.arg(scan)::boolean then (select least(min(q.lease), interval '60 s') from jobq.queue q) end as shortest
          ) e
      ) l
      cross join (select min(p.run_at) as job from jobq.pending p where p.position is null and p.run_at >= sqlc.arg(jobs_from)::timestamptz) j
  ) n;
