-- JobEnqueueMany adds jobs given as columns, in one statement and one round
-- trip, and answers in their order. Null elements mean the column's default.
-- Locks unique keys, where there are any, in (kind, key) order.
-- name: JobEnqueueMany :many
select e.id::bigint as id, e.duplicate::boolean as duplicate
  from jobq.enqueue_arrays(
    sqlc.arg(kinds)::text[], sqlc.arg(args)::jsonb[], sqlc.arg(queues)::text[], sqlc.arg(priorities)::integer[],
    sqlc.arg(run_ats)::timestamptz[], sqlc.arg(delays)::interval[], sqlc.arg(max_attempts)::integer[],
    sqlc.arg(unique_keys)::text[], sqlc.arg(timeouts)::interval[], sqlc.arg(backoff_bases)::interval[],
    sqlc.arg(backoff_maxes)::interval[], sqlc.arg(tags)::jsonb[], sqlc.arg(metadata)::jsonb[]) e;
