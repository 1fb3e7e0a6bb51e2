-- There: each row of running becomes a run with a lease of its own, which ends
-- when the old one would have ended. Its id is a new token, so whatever the
-- worker that had the job sends is refused. running is locked, and dropped
-- afterwards, so its rows are only read.
with r as materialized (
  select jobq.lease_id_next() as lease_id, x.id, x.position, x.lease_expires_at, x.started_at, x.run_at, x.created_at, x.progressed_at,
      x.cancel_requested_at, x.timeout, x.backoff_base, x.backoff_max, x.progress_percent, x.priority, x.attempts, x.max_attempts,
      x.crashes, x.args_apart, x.queue, x.kind, x.lease_owner, x.args, x.unique_key, x.last_error, x.clear_reason, x.checkpoint,
      x.metadata, x.tags, x.progress_stage, x.progress_message
    from jobq.running x
), l as (
  insert into jobq.lease (id, claimed_at, expires_at, owner, queue, job_ids)
    select r.lease_id, r.started_at, r.lease_expires_at, r.lease_owner, r.queue, array[r.id] from r
), p as (
  insert into jobq.progress (job_id, lease_id, progressed_at, percent, stage, message)
    select r.id, r.lease_id, r.progressed_at, r.progress_percent, r.progress_stage, r.progress_message
      from r
      where r.progressed_at is not null
)
insert into jobq.run
    (id, lease_id, slot, position, run_at, created_at, cancel_requested_at, timeout, backoff_base, backoff_max, priority, attempts,
     max_attempts, crashes, args_apart, queue, kind, args, unique_key, last_error, clear_reason, checkpoint, metadata, tags)
  select r.id, r.lease_id, 1, r.position, r.run_at, r.created_at, r.cancel_requested_at, r.timeout, r.backoff_base, r.backoff_max,
      r.priority, r.attempts, r.max_attempts, r.crashes, r.args_apart, r.queue, r.kind, r.args, r.unique_key, r.last_error,
      r.clear_reason, r.checkpoint, r.metadata, r.tags
    from r
