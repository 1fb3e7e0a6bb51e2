-- name: JobGet :one
select j.id, j.state, j.queue, j.kind, j.priority, j.attempts, j.max_attempts, j.crashes, j.lease_token, j.run_at,
    j.created_at, j.started_at, j.finished_at, j.lease_owner, j.lease_expires_at, j.cancel_requested_at,
    j.progressed_at, j.progress_percent, j.progress_stage, j.progress_message,
    coalesce(ceil(extract(epoch from j.timeout) * 1000), 0)::bigint as timeout_ms, j.unique_key, j.last_error,
    j.clear_reason, j.tags, jobq.json_shown(j.metadata)::jsonb as metadata, jobq.json_shown(j.args)::jsonb as args,
    jobq.json_shown(j.checkpoint)::jsonb as checkpoint,
    jobq.json_shown(j.result)::jsonb as result, coalesce(j.partition_key, '')::text as partition_key,
    j.lost, coalesce(j.max_lost, 0)::smallint as max_lost
  from jobq.job j
  where j.id = sqlc.arg(id);

-- AttemptList is the latest recorded runs of a job, oldest first.
-- name: AttemptList :many
select a.lease_token, a.number, a.outcome, a.worker_id, a.started_at, a.finished_at, a.error, a.output, a.usage
  from (
    select x.lease_token, x.number, x.outcome, x.worker_id, x.started_at, x.finished_at, x.error, x.output, x.usage
      from jobq.attempt x
      where x.job_id = sqlc.arg(job_id)
      order by x.lease_token desc, x.finished_at desc
      limit sqlc.arg(count)
  ) a
  order by a.lease_token, a.finished_at;

-- JobCancel answers with the state afterwards, empty when there is no such job.
-- name: JobCancel :one
select coalesce(jobq.cancel(sqlc.arg(id)::bigint)::text, '')::text as state;

-- JobRequeue makes a job that has ended, or that waits for its time, available now, and answers with the state
-- afterwards, empty when there is no such job. It locks the job's unique key, and then the job.
-- name: JobRequeue :one
select coalesce(jobq.requeue(sqlc.arg(id)::bigint)::text, '')::text as state;

-- JobOfUniqueKey is the job that holds a unique key: one that is unfinished, or one that has ended and keeps the
-- key for a time. No row when no job holds it. Needs unique_key_pkey only.
-- name: JobOfUniqueKey :one
select u.job_id
  from jobq.unique_key u
  where u.kind = sqlc.arg(kind)::text and u.key = sqlc.arg(key)::text
    and (not u.job_over or u.kept_until > (select clock_timestamp()));
