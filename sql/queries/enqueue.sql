-- JobEnqueue adds one job that has no unique key, and answers with its id. For
-- one job it costs the server half of what JobEnqueueMany does. Null, an empty
-- queue, a priority of 0, 0 attempts and 0 lost runs mean the default of the kind.
-- name: JobEnqueue :one
select jobq.enqueue(
    sqlc.arg(kind)::text, sqlc.arg(args)::jsonb, nullif(sqlc.arg(queue)::text, ''),
    nullif(sqlc.arg(priority)::integer, 0),
    coalesce(sqlc.narg(run_at)::timestamptz, now() + sqlc.narg(delay)::interval),
    nullif(sqlc.arg(max_attempts)::integer, 0), null, sqlc.narg(timeout)::interval, sqlc.narg(backoff_base)::interval,
    sqlc.narg(backoff_max)::interval, sqlc.narg(tags)::text[], sqlc.narg(metadata)::jsonb,
    partition_key => nullif(sqlc.arg(partition_key)::text, ''),
    max_lost => nullif(sqlc.arg(max_lost)::integer, 0))::bigint as id;

-- JobEnqueueMany adds jobs given as columns, in one statement and one round
-- trip, and answers in their order. Null elements mean the default of the kind,
-- and so do an empty queue, a priority of 0, an empty unique key and 0 attempts. Of the jobs that wait for others,
-- after_jobs has the places, and after_parents for whom: see enqueue_arrays. It locks unique keys,
-- where there are any, in (kind, key) order, and then the jobs that are replaced, in id order.
-- name: JobEnqueueMany :many
select e.id::bigint as id, e.duplicate::boolean as duplicate, e.replaced::boolean as replaced
  from jobq.enqueue_arrays(
    sqlc.arg(kinds)::text[], sqlc.arg(args)::jsonb[], array_replace(sqlc.arg(queues)::text[], '', null),
    array_replace(sqlc.arg(priorities)::integer[], 0, null), sqlc.arg(run_ats)::timestamptz[],
    sqlc.arg(delays)::interval[],
    array_replace(sqlc.arg(max_attempts)::integer[], 0, null), array_replace(sqlc.arg(unique_keys)::text[], '', null),
    sqlc.arg(timeouts)::interval[], sqlc.arg(backoff_bases)::interval[],
    sqlc.arg(backoff_maxes)::interval[], sqlc.arg(tags)::jsonb[], sqlc.arg(metadata)::jsonb[],
    sqlc.arg(after_jobs)::integer[], sqlc.arg(after_parents)::bigint[], array_replace(sqlc.arg(after_failures)::text[],
        '', null),
    array_replace(sqlc.arg(partition_keys)::text[], '', null), sqlc.arg(uniques)::jsonb[],
    array_replace(sqlc.arg(max_losts)::integer[], 0, null)) e;
