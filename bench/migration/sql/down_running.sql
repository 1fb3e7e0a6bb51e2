-- Back: each run that is open becomes a row of running, whose token is the id of
-- its lease. lease is locked, and all that writes a run looks at it. A lease that was taken away
-- from its owner has expired for the first layout as well. The runs are found by
-- the ids of their leases, never by reading the history; of the pairs that these
-- ids allow, only those that belong together are taken.
with o as materialized (
  select j.id, l.id as lease_id, l.claimed_at, least(l.expires_at, l.lost_at) as expires_at, l.owner
    from jobq.lease l
    cross join lateral unnest(l.job_ids) with ordinality as j(id, slot)
    where j.slot <> all(l.ended_slots)
), r as (
  delete from jobq.run x
    where x.id = any(array(select o.id from o)) and (x.id, x.lease_id) in (select o.id, o.lease_id from o) and x.state is null
    returning x.id, x.lease_id, x.position, x.run_at, x.created_at, x.cancel_requested_at, x.timeout, x.backoff_base, x.backoff_max,
      x.priority, x.attempts, x.max_attempts, x.crashes, x.args_apart, x.queue, x.kind, x.args, x.unique_key, x.last_error,
      x.clear_reason, x.checkpoint, x.metadata, x.tags
)
insert into jobq.running
    (id, position, lease_token, lease_expires_at, started_at, run_at, created_at, progressed_at, cancel_requested_at, timeout,
     backoff_base, backoff_max, progress_percent, priority, attempts, max_attempts, crashes, args_apart, queue, kind, lease_owner,
     args, unique_key, last_error, clear_reason, checkpoint, metadata, tags, progress_stage, progress_message)
  select r.id, r.position, r.lease_id, o.expires_at, o.claimed_at, r.run_at, r.created_at, p.progressed_at, r.cancel_requested_at, r.timeout,
      r.backoff_base, r.backoff_max, p.percent, r.priority, r.attempts, r.max_attempts, r.crashes, r.args_apart, r.queue, r.kind, o.owner,
      r.args, r.unique_key, r.last_error, r.clear_reason, coalesce(p.checkpoint, r.checkpoint), r.metadata, r.tags, p.stage, p.message
    from r
    join o on o.id = r.id and o.lease_id = r.lease_id
    left join jobq.progress p on p.job_id = r.id and p.lease_id = r.lease_id
