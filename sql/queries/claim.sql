-- JobClaim moves up to job_count available jobs of one queue to running, each
-- with a new lease for the owner, and returns them. In the order of priority
-- and position; the rows come back in any order, so the caller sorts.
--
-- The candidates are locked first (MATERIALIZED, so that the limit holds) and
-- deleted by ctid, which needs no second look at an index. A row that was
-- edited after the statement's snapshot and before the lock has a new ctid,
-- is not deleted, and therefore not claimed this time: harmless. Rows that
-- others are claiming are skipped, never waited for.
--
-- The line is looked at in segments: from (from_priorities, from_positions),
-- not included, to the end of to_priorities. One segment is all of it. Several
-- leave out what was claimed before, whose dead index entries would else be
-- walked through again at each claim for as long as any transaction is open.
-- Needs pending_claim_idx, and nothing else whatever the statistics say.
-- name: JobClaim :many
with candidate as materialized (
  select c.place
    from rows from (unnest(sqlc.arg(from_priorities)::integer[]), unnest(sqlc.arg(from_positions)::bigint[]),
        unnest(sqlc.arg(to_priorities)::integer[])) as s(from_priority, from_position, to_priority)
    cross join lateral (
      select p.ctid as place
        from jobq.pending p
        where p.queue = sqlc.arg(queue) and p.position is not null and p.kind = any(sqlc.arg(kinds)::text[])
          and (p.priority, p.position) > (s.from_priority, s.from_position) and p.priority <= s.to_priority
          and not exists (select from jobq.queue q where q.name = sqlc.arg(queue) and q.paused_at is not null)
        order by p.priority, p.position
        limit sqlc.arg(job_count)::integer
        for update of p skip locked
    ) c
    limit sqlc.arg(job_count)::integer
), taken as (
  delete from jobq.pending p
    where p.ctid = any(array(select c.place from candidate c))
    returning p.id, p.position, p.lease_token, p.run_at, p.created_at, p.timeout, p.backoff_base, p.backoff_max,
      p.priority, p.attempts, p.max_attempts, p.crashes, p.args_apart, p.queue, p.kind, p.args, p.unique_key,
      p.last_error, p.clear_reason, p.checkpoint, p.metadata, p.tags
)
insert into jobq.running as r
    (id, position, lease_token, lease_expires_at, started_at, run_at, created_at, timeout, backoff_base, backoff_max,
     priority, attempts, max_attempts, crashes, args_apart, queue, kind, lease_owner, args, unique_key, last_error,
     clear_reason, checkpoint, metadata, tags)
  select t.id, t.position, t.lease_token + 1, clock_timestamp() + sqlc.arg(lease)::interval, clock_timestamp(), t.run_at,
      t.created_at, t.timeout, t.backoff_base, t.backoff_max, t.priority, t.attempts, t.max_attempts, t.crashes,
      t.args_apart, t.queue, t.kind, sqlc.arg(owner), t.args, t.unique_key, t.last_error, t.clear_reason, t.checkpoint,
      t.metadata, t.tags
    from taken t
  returning r.id, r.position, r.lease_token, r.priority, r.attempts, r.max_attempts, r.crashes, r.queue, r.kind,
    r.created_at, r.run_at, r.started_at, coalesce(ceil(extract(epoch from r.timeout) * 1000), 0)::bigint as timeout_ms,
    coalesce(r.args, (select a.args from jobq.payload a where a.job_id = r.id))::jsonb as args,
    r.checkpoint, r.metadata, r.tags, r.last_error, r.clear_reason;
