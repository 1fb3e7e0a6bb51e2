-- ExportNext is the day that is to be exported next (export_first), the first day that cannot be
-- exported yet since it is not over for ten minutes, and the export that has begun last. If that does
-- not count any more, its began_at is null.
-- name: ExportNext :one
select coalesce(jobq.export_first(), s.exported_before)::date as day,
    ((clock_timestamp() - interval '10 minutes') at time zone 'UTC')::date as open_day,
    s.export_day as begun_day, s.export_began_at as began_at
  from jobq.setting s;

-- ExportBegin notes that an export of a day begins: see export_begin.
-- name: ExportBegin :one
select jobq.export_begin(sqlc.arg(day)::date)::timestamptz as began_at;

-- ExportEnd records that all of it was exported: see export_end.
-- name: ExportEnd :one
select jobq.export_end(sqlc.arg(actor)::text, sqlc.arg(day)::date, sqlc.arg(began_at)::timestamptz,
    sqlc.arg(jobs)::bigint, sqlc.arg(attempts)::bigint)::bigint as audit;

-- ExportJobs is a page of the jobs that were last claimed on a day (UTC), or cancelled on that day
-- before they were claimed, by id. It is planned with the day (PrunedSettings), and so reads that day
-- alone. Needs run_id_idx.
-- name: ExportJobs :many
select j.id, j.state, j.queue, j.kind, j.priority, j.attempts, j.max_attempts, j.crashes, j.lease_token, j.run_at,
    j.created_at, j.started_at, j.finished_at, j.lease_owner, j.lease_expires_at, j.cancel_requested_at,
    j.progressed_at, j.progress_percent, j.progress_stage, j.progress_message,
    coalesce(ceil(extract(epoch from j.timeout) * 1000), 0)::bigint as timeout_ms, j.unique_key, j.last_error,
    j.clear_reason, j.tags, jobq.json_shown(j.metadata)::jsonb as metadata, jobq.json_shown(j.args)::jsonb as args,
    jobq.json_shown(j.checkpoint)::jsonb as checkpoint,
    jobq.json_shown(j.result)::jsonb as result, coalesce(j.partition_key, '')::text as partition_key,
    j.lost, coalesce(j.max_lost, 0)::smallint as max_lost
  from jobq.job j
  where j.id = any(array(
      select r.id
        from jobq.run r
        where r.lease_id >= jobq.lease_day(sqlc.arg(day)::date) and r.lease_id < jobq.lease_day(sqlc.arg(day)::date + 1)
          and r.id > sqlc.arg(after)::bigint
        order by r.id
        limit sqlc.arg(row_count)::integer))
    and j.lease_token >= jobq.lease_day(sqlc.arg(day)::date) and j.lease_token < jobq.lease_day(sqlc.arg(day)::date + 1)
  order by j.id;

-- ExportAttempts is a page of the runs that ended on a day (UTC) and are recorded, by job,
-- lease and end. It is planned with the day (PrunedSettings). Needs attempt_job_id_idx.
-- name: ExportAttempts :many
select a.job_id, a.lease_token, a.number, a.outcome, a.worker_id, a.started_at, a.finished_at, a.error, a.output,
    a.usage
  from jobq.attempt a
  where a.finished_at >= sqlc.arg(day)::date::timestamp at time zone 'UTC'
    and a.finished_at < (sqlc.arg(day)::date + 1)::timestamp at time zone 'UTC'
    and (a.job_id, a.lease_token, a.finished_at) > (sqlc.arg(after_job)::bigint, sqlc.arg(after_lease)::bigint,
        sqlc.arg(after_end)::timestamptz)
  order by a.job_id, a.lease_token, a.finished_at
  limit sqlc.arg(row_count)::integer;
