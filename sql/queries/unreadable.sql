-- UnreadableSetApart fails jobs of a queue that no claim can read, among the next job_count after a place
-- (unreadable_set_apart). The first call gets an empty key, and the lowest priority and position. at_end says that it
-- has come to the last job. Needs pending_claim_idx and run_id_idx only.
-- name: UnreadableSetApart :one
select (a.key is null)::boolean as at_end, coalesce(a.key, '')::text as key,
    coalesce(a.priority, 0)::integer as priority,
    coalesce(a.place, 0)::bigint as place, a.ids::bigint[] as ids, a.problems::text[] as problems
  from jobq.unreadable_set_apart(sqlc.arg(queue)::text, sqlc.arg(after_key)::text, sqlc.arg(after_priority)::integer,
    sqlc.arg(after_place)::bigint, sqlc.arg(job_count)::integer) a;

-- UnreadableSince is for how many milliseconds no worker has been able to decode a job, by its history; -1 if that does
-- not say. others says whether another worker that lives has the key, and handles such jobs. Needs attempt_job_id_idx
-- only.
-- name: UnreadableSince :one
select coalesce((
    select extract(epoch from statement_timestamp() - min(a.finished_at)) * 1000
      from jobq.attempt a
      where a.job_id = sqlc.arg(id) and a.outcome = 'unreadable'
        and a.finished_at between statement_timestamp() - interval '10 years' and statement_timestamp()
        and a.finished_at > coalesce((
          select max(b.finished_at) from jobq.attempt b where b.job_id = sqlc.arg(id) and b.outcome <> 'unreadable'),
              '-infinity')
  ), -1)::bigint as for_ms,
  exists (
    select from jobq.worker w
      where sqlc.arg(key)::text = any(w.keys) and w.id <> sqlc.arg(worker) and not w.draining
        and w.drain_requested_at is null
        and w.heartbeat_at > statement_timestamp() - sqlc.arg(silence)::interval
        and w.queues -> sqlc.arg(queue)::text is not null and sqlc.arg(kind)::text = any(w.kinds)) as others;
