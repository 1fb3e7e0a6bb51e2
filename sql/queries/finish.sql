-- JobComplete moves succeeded jobs to the history, each under its current
-- lease, and returns the ids it moved. An id that does not come back was no
-- longer the caller's, and its result is nowhere. A lease that has expired
-- but was not reaped still counts: nobody else has owned the job since.
--
-- With skip_locked it never waits for a row, so that one locked job cannot cost
-- the worker the results of others, and it can deadlock with nothing. Without,
-- in a handler's own transaction, it waits. The rows are taken by place and not
-- joined: a join with running would read all of it for each id when the planner
-- believes the table to be empty, as it does after a vacuum at a quiet moment.
-- A row that was edited between the snapshot and the lock is elsewhere and does
-- not come back, nor does one that was skipped: ask LeaseHeld before calling it
-- lost (Schema.Exchange does).
-- Needs running_pkey only. Output kept goes to attempt, and only then.
-- name: JobComplete :many
with f as materialized (
  select f.id, f.token, f.result
    from rows from (unnest(sqlc.arg(ids)::bigint[]), unnest(sqlc.arg(tokens)::bigint[]), unnest(sqlc.arg(results)::jsonb[]))
      as f(id, token, result)
), held as materialized (
  select h.place
    from f
    cross join lateral (
      select x.ctid as place from jobq.running x
        where x.id = f.id and x.lease_token = f.token and x.lease_owner = sqlc.arg(owner)
        for update skip locked
    ) h
    where sqlc.arg(skip_locked)::boolean
  union all
  select h.place
    from f
    cross join lateral (
      select x.ctid as place from jobq.running x
        where x.id = f.id and x.lease_token = f.token and x.lease_owner = sqlc.arg(owner)
        for update
    ) h
    where not sqlc.arg(skip_locked)::boolean
), taken as (
  delete from jobq.running r
    where r.ctid = any(array(select h.place from held h))
    returning r.id, r.lease_token, r.started_at, r.run_at, r.created_at, r.timeout, r.backoff_base, r.backoff_max,
      r.priority, r.attempts, r.max_attempts, r.crashes, r.args_apart, r.queue, r.kind, r.lease_owner, r.args,
      r.unique_key, r.last_error, r.checkpoint, r.metadata, r.tags
), done as (
  select t.id, t.lease_token, t.started_at, t.run_at, t.created_at, t.timeout, t.backoff_base, t.backoff_max,
      t.priority, t.attempts, t.max_attempts, t.crashes, t.args_apart, t.queue, t.kind, t.lease_owner, t.args,
      t.unique_key, t.last_error, t.checkpoint, t.metadata, t.tags, f.result
    from taken t
    join f on f.id = t.id and f.token = t.lease_token
), history as (
  insert into jobq.finished
      (id, finished_at, lease_token, started_at, run_at, created_at, timeout, backoff_base, backoff_max, state,
       priority, attempts, max_attempts, crashes, args_apart, queue, kind, lease_owner, args, unique_key,
       last_error, checkpoint, metadata, tags, result)
    select d.id, clock_timestamp(), d.lease_token, d.started_at, d.run_at, d.created_at, d.timeout, d.backoff_base,
        d.backoff_max, 'completed', d.priority, d.attempts, d.max_attempts, d.crashes, d.args_apart, d.queue, d.kind,
        d.lease_owner, d.args, d.unique_key, d.last_error, d.checkpoint, d.metadata, d.tags, d.result
      from done d
), counted as (
  insert into jobq.stat_delta
      (minute, queue, kind, completed, failed, retried, lost, cancelled, run_seconds, wait_seconds)
    select date_trunc('minute', clock_timestamp()), d.queue, d.kind, count(*), 0, 0, 0, 0,
        sum(extract(epoch from clock_timestamp() - d.started_at)::float8),
        sum(extract(epoch from d.started_at - d.run_at)::float8)
      from done d
      group by d.queue, d.kind
)
select d.id from done d;

-- JobEnd takes jobs out of running whose runs did not simply succeed, each
-- under its current lease, and returns where each went. By outcome:
--   failed, timed_out  attempts + 1; back to pending after the delay given or
--                      the row's backoff; failed for good when it was the last
--                      attempt or final is set
--   cancelled          to the history; attempts stay
--   released           back to its old place in the line; attempts stay
--   snoozed            back to pending after the delay; attempts stay
-- A job that somebody has asked to cancel does not go back: it is cancelled.
-- Each leaves an attempt row, but for a job that never started (ran_us below 0):
-- it was released, or cancelled before. A run has begun as long ago as it took, by
-- its worker's clock; with a ran_us of 0 when it was claimed, since that is all
-- that is known then. The time of cancelled runs is not
-- counted: an average is of those that ended by themselves. Of a long error the
-- job keeps the beginning, whose first line is its summary, and the end, where
-- traces have what went wrong. It never waits for a
-- row, and takes the rows by place, as JobComplete does: ask LeaseHeld after
-- what does not come back.
-- Needs running_pkey only.
-- name: JobEnd :many
with f as materialized (
  select f.id, f.token, f.outcome, f.error, f.output, f.delay, f.final, f.ran_us, f.quiet
    from rows from (unnest(sqlc.arg(ids)::bigint[]), unnest(sqlc.arg(tokens)::bigint[]), unnest(sqlc.arg(outcomes)::text[]),
      unnest(sqlc.arg(errors)::text[]), unnest(sqlc.arg(outputs)::text[]), unnest(sqlc.arg(delays)::interval[]),
      unnest(sqlc.arg(finals)::boolean[]), unnest(sqlc.arg(ran_us)::bigint[]),
      unnest(sqlc.arg(quiet)::boolean[]))
      as f(id, token, outcome, error, output, delay, final, ran_us, quiet)
), held as materialized (
  select h.place
    from f
    cross join lateral (
      select x.ctid as place from jobq.running x
        where x.id = f.id and x.lease_token = f.token and x.lease_owner = sqlc.arg(owner)
        for update skip locked
    ) h
), taken as (
  delete from jobq.running r
    where r.ctid = any(array(select h.place from held h))
    returning r.id, r.position, r.lease_token, r.started_at, r.run_at, r.created_at, r.timeout, r.backoff_base, r.backoff_max,
      r.priority, r.attempts, r.max_attempts, r.crashes, r.args_apart, r.queue, r.kind, r.lease_owner, r.args,
      r.unique_key, r.last_error, r.clear_reason, r.checkpoint, r.metadata, r.tags, r.cancel_requested_at
), ended as (
  select t.id, t.position, t.lease_token,
      case when f.ran_us > 0 then greatest(t.started_at, clock_timestamp() - f.ran_us * interval '1 us') else t.started_at end as started_at,
      t.run_at, t.created_at, t.timeout, t.backoff_base, t.backoff_max,
      t.priority, t.max_attempts, t.crashes, t.args_apart, t.queue, t.kind, t.lease_owner, t.args,
      t.unique_key, t.clear_reason, t.checkpoint, t.metadata, t.tags, f.outcome, f.error, f.output, f.delay, f.ran_us >= 0 as started, f.quiet,
      t.attempts as attempts_before, t.attempts + case when f.outcome in ('failed', 'timed_out') then 1 else 0 end as attempts,
      case
        when f.outcome not in ('failed', 'timed_out') then t.last_error
        when char_length(f.error) <= 1000 then f.error
        else left(f.error, 480) || format(E'\n… %s characters cut …\n', char_length(f.error) - 960) || right(f.error, 480)
      end as last_error,
      case
        when f.outcome = 'cancelled' then 'cancelled'
        when f.outcome in ('failed', 'timed_out') and (f.final or t.attempts + 1 >= t.max_attempts) then 'failed'
        when t.cancel_requested_at is not null then 'cancelled'
        when f.outcome = 'released' or f.delay <= interval '0' then 'available'
        else 'scheduled'
      end::jobq.job_state as state
    from taken t
    join f on f.id = t.id and f.token = t.lease_token
), again as (
  insert into jobq.pending
      (id, position, lease_token, run_at, created_at, timeout, backoff_base, backoff_max, priority, attempts,
       max_attempts, crashes, args_apart, queue, kind, args, unique_key, last_error, clear_reason, checkpoint, metadata, tags)
    select e.id, case when e.outcome = 'released' then e.position else nextval('jobq.position_seq') end, e.lease_token,
        case
          when e.outcome = 'released' then e.run_at
          else clock_timestamp() + coalesce(e.delay, jobq.backoff_delay(e.attempts, e.backoff_base, e.backoff_max))
        end,
        e.created_at, e.timeout, e.backoff_base, e.backoff_max, e.priority, e.attempts, e.max_attempts, e.crashes,
        e.args_apart, e.queue, e.kind, e.args, e.unique_key, e.last_error,
        case when e.outcome = 'released' then e.clear_reason end, e.checkpoint, e.metadata, e.tags
      from ended e
      where e.state in ('available', 'scheduled')
), history as (
  insert into jobq.finished
      (id, finished_at, lease_token, started_at, run_at, created_at, timeout, backoff_base, backoff_max, state,
       priority, attempts, max_attempts, crashes, args_apart, queue, kind, lease_owner, args, unique_key,
       last_error, checkpoint, metadata, tags)
    select e.id, clock_timestamp(), e.lease_token, e.started_at, e.run_at, e.created_at, e.timeout, e.backoff_base,
        e.backoff_max, e.state, e.priority, e.attempts, e.max_attempts, e.crashes, e.args_apart, e.queue, e.kind,
        e.lease_owner, e.args, e.unique_key, e.last_error, e.checkpoint, e.metadata, e.tags
      from ended e
      where e.state in ('failed', 'cancelled')
), told as (
  insert into jobq.attempt
      (job_id, finished_at, started_at, lease_token, outcome, number, worker_id, error, output)
    select e.id, clock_timestamp(), e.started_at, e.lease_token, e.outcome::jobq.attempt_outcome,
        e.attempts_before + 1, e.lease_owner, nullif(e.error, ''), nullif(e.output, '')
      from ended e
      where e.started
), counted as (
  insert into jobq.stat_delta
      (minute, queue, kind, completed, failed, retried, lost, cancelled, run_seconds, wait_seconds)
    select date_trunc('minute', clock_timestamp()), e.queue, e.kind, 0,
        count(*) filter (where e.state = 'failed'),
        count(*) filter (where e.outcome in ('failed', 'timed_out') and e.state in ('available', 'scheduled')), 0,
        count(*) filter (where e.state = 'cancelled'),
        coalesce(sum(extract(epoch from clock_timestamp() - e.started_at)::float8) filter (where e.state <> 'cancelled'), 0), 0
      from ended e
      where e.outcome in ('failed', 'timed_out') or e.state = 'cancelled'
      group by e.queue, e.kind
), woken as (
  -- Back at its old place, a job is behind what workers look at first. Not for
  -- one that its worker could not hand to its handler, again and again while that
  -- is away (quiet): each time, all workers of the queue would walk past all jobs
  -- of that kind. They have the trigger's word, and look there when it is time.
  select jobq.wake('head', q.queue)
    from (select distinct e.queue from ended e where e.outcome = 'released' and e.state = 'available' and not e.quiet) q
)
select e.id, e.state from ended e where (select count(*) from woken) >= 0;

-- LeaseHeld returns those of the leases that are still the caller's. It waits for
-- nothing, and takes a row that somebody is about to take away for one that is
-- there. Needs running_pkey only.
-- name: LeaseHeld :many
select r.id
  from rows from (unnest(sqlc.arg(ids)::bigint[]), unnest(sqlc.arg(tokens)::bigint[])) as f(id, token)
  cross join lateral (
    select x.id from jobq.running x
      where x.id = f.id and x.lease_token = f.token and x.lease_owner = sqlc.arg(owner)
      limit 1
  ) r;

-- AttemptKeepOutput records the output of runs that succeeded and what their
-- programs have used, for those that have any. It goes into the transaction of
-- JobComplete, and adds nothing for a completion that is sent again because its
-- answer was lost. A run has begun as long before its end as it took, as in JobEnd.
-- name: AttemptKeepOutput :exec
insert into jobq.attempt (job_id, finished_at, started_at, lease_token, outcome, number, worker_id, output, usage)
  select f.id, clock_timestamp(),
      case when o.ran_us > 0 then greatest(f.started_at, f.finished_at - o.ran_us * interval '1 us') else coalesce(f.started_at, clock_timestamp()) end,
      o.token, 'completed', f.attempts + 1, sqlc.arg(owner),
      nullif(o.output, ''), o.usage
    from rows from (unnest(sqlc.arg(ids)::bigint[]), unnest(sqlc.arg(tokens)::bigint[]), unnest(sqlc.arg(outputs)::text[]),
      unnest(sqlc.arg(usages)::jsonb[]), unnest(sqlc.arg(ran_us)::bigint[])) as o(id, token, output, usage, ran_us)
    cross join lateral (
      select x.id, x.finished_at, x.started_at, x.attempts from jobq.finished x
        where x.id = o.id and x.lease_token = o.token and x.lease_owner = sqlc.arg(owner)
        limit 1
    ) f
    where not exists (select from jobq.attempt a where a.job_id = o.id and a.lease_token = o.token);

-- JobFate says of a run whose handler has completed the job in a transaction of
-- its own whether it is still the caller's, and whether that transaction has
-- stored the completion. Neither means that the lease was lost. A row that such a
-- transaction still holds is the caller's. since is when the run was claimed, and
-- spares the partitions before.
-- Needs running_pkey and finished_id_idx only.
-- name: JobFate :one
select
  exists (
    select from jobq.running r
      where r.id = sqlc.arg(id) and r.lease_token = sqlc.arg(token) and r.lease_owner = sqlc.arg(owner)
  ) as held,
  exists (
    select from jobq.finished f
      where f.id = sqlc.arg(id) and f.lease_token = sqlc.arg(token) and f.lease_owner = sqlc.arg(owner)
        and f.state = 'completed' and f.finished_at >= sqlc.arg(since)
  ) as completed;
