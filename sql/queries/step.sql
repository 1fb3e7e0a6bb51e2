-- Durable steps and events. What a run does with them are functions, the same for
-- workers and for programs (sql/schema/step.sql).

-- StepGet says whether a step is done, and its result; if not, that the run has begun it.
-- name: StepGet :one
select s.done::boolean as done, s.result
  from jobq.step_get(sqlc.arg(job_id)::bigint, sqlc.arg(token)::text, sqlc.arg(name)::text) s;

-- StepPut stores that a step is done, once, with its result.
-- name: StepPut :exec
select jobq.step_put(sqlc.arg(job_id)::bigint, sqlc.arg(token)::text, sqlc.arg(name)::text, sqlc.arg(result)::jsonb);

-- StepSleep says whether a sleep is over; if not, it has ended the run.
-- name: StepSleep :one
select jobq.step_sleep(sqlc.arg(job_id)::bigint, sqlc.arg(token)::text, sqlc.arg(name)::text,
    sqlc.arg(delay)::interval)::boolean as passed;

-- StepWait says whether an event has come, or has not come in time; if neither (done is
-- false), it has ended the run.
-- name: StepWait :one
select s.done::boolean as done, s.timed_out::boolean as timed_out, s.result
  from jobq.step_wait(sqlc.arg(job_id)::bigint, sqlc.arg(token)::text, sqlc.arg(name)::text,
      sqlc.narg(timeout)::interval) s;

-- StepAwait says how jobs have ended, in the order of their ids; while one of them has not
-- (done is false), it has ended the run.
-- name: StepAwait :one
select s.done::boolean as done, s.result
  from jobq.step_await(sqlc.arg(job_id)::bigint, sqlc.arg(token)::text, sqlc.arg(name)::text,
      sqlc.arg(jobs)::bigint[]) s;

-- EventEmit says that an event has happened: false if it has before.
-- name: EventEmit :one
select jobq.emit(sqlc.arg(name)::text, sqlc.arg(payload)::jsonb)::boolean as first;

-- StepList is the last steps that a job came to, the last one first. A result that is longer
-- than result_max, as stored or as text, is null; result_bytes is the length of any result as
-- stored. Needs step_number_key.
-- name: StepList :many
select s.name, s.type, s.number, s.attempts, s.lease_token, s.started_at, s.finished_at, s.wake_at, s.timed_out,
    coalesce(pg_column_size(s.result), 0)::integer as result_bytes,
    case when pg_column_size(s.result) <= sqlc.arg(result_max)::integer
    and octet_length(s.result::text) <= sqlc.arg(result_max)::integer then s.result end::jsonb as result
  from jobq.step s
  where s.job_id = sqlc.arg(job_id)
  order by s.number desc
  limit sqlc.arg(step_count)::integer;

-- JobActFromStep requeues a job as JobAct does, unless it has changed since it was as
-- expected, and makes it do a step again, and those after it: all of it, or nothing.
-- name: JobActFromStep :one
select a.audit::bigint as audit, a.job_id::bigint as job_id, coalesce(a.state_before, '')::text as state_before,
    coalesce(a.state_after, '')::text as state_after, a.changed::boolean as changed, coalesce(a.code, '')::text as code,
    coalesce(a.problem, '')::text as problem,
    case when a.problem is null then jobq.step_forget(a.job_id, sqlc.arg(step)::text) else 0 end::integer as forgotten
  from jobq.act(sqlc.arg(actor)::text, 'requeue', array[sqlc.arg(job_id)::bigint],
      array[nullif(sqlc.arg(expected)::text, '')], '{}', null, 0, null) a;

-- EventWakeRest wakes up to job_count jobs of an event for which more jobs waited than emit
-- could wake. It says whether there was such an event. Needs emitted_woken_idx and
-- step_event_idx.
-- name: EventWakeRest :one
select jobq.event_wake_rest(sqlc.arg(job_count)::integer)::boolean as some;

-- StepPrune deletes the steps of jobs that are gone, among the next row_count steps.
-- name: StepPrune :one
select p.looked::bigint as looked, p.last_job::bigint as last_job, p.last_name::text as last_name
  from jobq.step_prune(sqlc.arg(after_job)::bigint, sqlc.arg(after_name)::text, sqlc.arg(row_count)::integer) p;

-- EmittedPrune deletes old events for which no job waits, among the next row_count events.
-- name: EmittedPrune :one
select p.looked::bigint as looked, p.last_at::timestamptz as last_at, p.last_name::text as last_name
  from jobq.emitted_prune(sqlc.arg(after_at)::timestamptz, sqlc.arg(after_name)::text, sqlc.arg(row_count)::integer) p;
