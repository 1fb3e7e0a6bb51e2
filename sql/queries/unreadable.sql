-- UnreadableSetApart fails jobs of a queue that no claim can read, among the next job_count after a place (unreadable_set_apart). The
-- first call gets an empty key, and the lowest priority and position. at_end says that it has come to the last job. Needs
-- pending_claim_idx and run_id_idx only.
-- name: UnreadableSetApart :one
select (a.key is null)::boolean as at_end, coalesce(a.key, '')::text as key, coalesce(a.priority, 0)::integer as priority,
    coalesce(a.place, 0)::bigint as place, a.ids::bigint[] as ids, a.problems::text[] as problems
  from jobq.unreadable_set_apart(sqlc.arg(queue)::text, sqlc.arg(after_key)::text, sqlc.arg(after_priority)::integer,
    sqlc.arg(after_place)::bigint, sqlc.arg(job_count)::integer) a;
