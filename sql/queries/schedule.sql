-- ScheduleFirst says when the first schedule is due, null if none is. It is not part of NextDue: if
-- somebody has locked jobq.schedule, or if the role may not read it, recovery goes on all the same.
-- Needs schedule_due_idx.
-- name: ScheduleFirst :many
select min(s.due_at)::timestamptz as due_at, statement_timestamp()::timestamptz as looked_at from jobq.schedule s
    where s.due_at is not null;

-- ScheduleLook returns up to 100 schedules in the order in which they are due, after (after_due_at,
-- after_name): those that are due by looked_at, and the next ones. Needs schedule_due_idx. Its
-- entries of earlier ticks stay for as long as any transaction is open, so a look begins at a time
-- before which nothing can be due, and does not read them all.
-- name: ScheduleLook :many
select s.name, s.revision, coalesce(s.cron, '')::text as cron,
    coalesce(extract(epoch from s.every), 0)::bigint as every_seconds,
    s.time_zone, s.catch_up, s.catch_up_max, extract(epoch from s.catch_up_within)::bigint as catch_up_within_seconds,
    s.cursor_at, s.due_at::timestamptz as due_at, s.failures, coalesce(s.error, '')::text as error,
    statement_timestamp()::timestamptz as looked_at
  from jobq.schedule s
  where s.due_at is not null and (s.due_at, s.name) > (sqlc.arg(after_due_at)::timestamptz, sqlc.arg(after_name)::text)
  order by s.due_at, s.name
  limit 100;

-- ScheduleFire adds the jobs of ticks and moves the cursor. If the schedule has changed since it was
-- read, or somebody has locked it, it does nothing, and fired is false (jobq.schedule_fire). It locks
-- only the schedule. Needs schedule_pkey and schedule_tick_pkey.
-- name: ScheduleFire :many
select coalesce(f.jobs, '{}')::bigint[] as jobs, (f.jobs is not null)::boolean as fired
  from jobq.schedule_fire(sqlc.arg(name)::text, sqlc.arg(revision)::bigint, sqlc.arg(cursor_at)::timestamptz,
    sqlc.arg(ticks)::timestamptz[], sqlc.arg(looked_at)::timestamptz, sqlc.narg(due_at)::timestamptz) as f(jobs);

-- ScheduleFail stores why a schedule does not work, and when it is tried again. Its cursor stays, so
-- that its ticks are not lost. Zero rows if the schedule has changed since, or somebody has locked it.
-- Needs schedule_pkey.
-- name: ScheduleFail :execrows
update jobq.schedule s
  set failures = least(s.failures, 1000000) + 1, error = left(sqlc.arg(error)::text, 1000),
    error_at = clock_timestamp(), due_at = clock_timestamp() + sqlc.arg(again_in)::interval
  where s.ctid = any(array(
    select x.ctid from jobq.schedule x
      where x.name = sqlc.arg(name)::text and x.revision = sqlc.arg(revision)::bigint and x.paused_at is null
      for update skip locked));

-- ScheduleRewind is for schedules whose cursor is far ahead of the clock, because the clock was set
-- forward and back again. It sets their cursors to two minutes ago: the janitor looks once a
-- minute, so no tick since the clock was set back is lost. Ticks that they have fired stay in
-- schedule_tick, and are not fired again. It reads all schedules.
-- name: ScheduleRewind :execrows
update jobq.schedule s
  set cursor_at = least(clock_timestamp(), greatest(clock_timestamp() - interval '2 minutes', s.created_at)),
      due_at = clock_timestamp()
  where s.ctid = any(array(
    select x.ctid from jobq.schedule x
      where x.due_at is not null and x.cursor_at > statement_timestamp() + interval '1 minute'
      order by x.name
      for update skip locked));

-- ScheduleTickPrune deletes a number of ticks that are older than the age, the earliest first, as
-- EventPrune deletes events. Needs schedule_tick_at_idx.
-- name: ScheduleTickPrune :one
with deleted as (
  delete from jobq.schedule_tick t
    where t.ctid = any(array(
      select x.ctid from jobq.schedule_tick x
        where x.tick_at >= sqlc.arg(after)::timestamptz and x.tick_at < statement_timestamp() - sqlc.arg(age)::interval
        order by x.tick_at
        limit sqlc.arg(row_count)::integer
        for update skip locked))
    returning t.tick_at
)
select count(*) as deleted, coalesce(max(d.tick_at), sqlc.arg(after)::timestamptz)::timestamptz as last from deleted d;

-- ScheduleList is a page of schedules by name, after a name. Args of more than args_max
-- bytes as text are null there. What the schedule leaves to its kind is empty, 0 or null, and kind_ has the kind's
-- default for it. Needs schedule_pkey, schedule_tick_pkey and kind_setting_pkey.
-- name: ScheduleList :many
select s.name, coalesce(s.cron, '')::text as cron, coalesce(extract(epoch from s.every), 0)::bigint as every_seconds,
    case when s.cron is null then '' else s.time_zone end::text as time_zone, s.kind,
    (case when octet_length(s.args::text) <= sqlc.arg(args_max)::integer then s.args end)::jsonb as args,
    coalesce(s.queue, '')::text as queue, s.priority, coalesce(s.max_attempts, 0)::smallint as max_attempts,
    coalesce(extract(epoch from s.timeout) * 1000, 0)::bigint as timeout_ms,
    coalesce(extract(epoch from s.backoff_base) * 1000, 0)::bigint as backoff_base_ms,
    coalesce(extract(epoch from s.backoff_max) * 1000, 0)::bigint as backoff_max_ms, s.tags,
    s.metadata,
    coalesce(s.partition_key, '')::text as partition_key, s.catch_up, s.catch_up_max,
    extract(epoch from s.catch_up_within)::bigint as catch_up_within_seconds, s.overlap, s.source, s.created_at,
    s.paused_at, s.paused_by, s.pause_reason, s.cursor_at, s.due_at, s.last_tick_at, s.last_job_id, s.failures, s.error,
    s.error_at, ((select true from jobq.schedule_tick t where t.schedule = s.name and t.tick_at = s.last_tick_at
        and t.job_id is null limit 1) is not null)::boolean as last_left_out,
    statement_timestamp()::timestamptz as looked_at, coalesce(k.queue, 'default')::text as kind_queue,
    coalesce(k.priority, 0)::smallint as kind_priority,
    coalesce(k.max_attempts, jobq.max_attempts_default())::smallint as kind_max_attempts,
    coalesce(extract(epoch from k.timeout) * 1000, 0)::bigint as kind_timeout_ms,
    coalesce(extract(epoch from k.backoff_base) * 1000, 0)::bigint as kind_backoff_base_ms,
    coalesce(extract(epoch from k.backoff_max) * 1000, 0)::bigint as kind_backoff_max_ms
  from jobq.schedule s
  left join jobq.kind_setting k on k.name = s.kind
  where s.name > sqlc.arg(after)::text
  order by s.name
  limit sqlc.arg(page_size)::integer;

-- ScheduleGet is one schedule as ScheduleList has it, with all its args. Needs schedule_pkey,
-- schedule_tick_pkey and kind_setting_pkey.
-- name: ScheduleGet :one
select s.name, coalesce(s.cron, '')::text as cron, coalesce(extract(epoch from s.every), 0)::bigint as every_seconds,
    case when s.cron is null then '' else s.time_zone end::text as time_zone, s.kind,
    s.args,
    coalesce(s.queue, '')::text as queue, s.priority, coalesce(s.max_attempts, 0)::smallint as max_attempts,
    coalesce(extract(epoch from s.timeout) * 1000, 0)::bigint as timeout_ms,
    coalesce(extract(epoch from s.backoff_base) * 1000, 0)::bigint as backoff_base_ms,
    coalesce(extract(epoch from s.backoff_max) * 1000, 0)::bigint as backoff_max_ms, s.tags,
    s.metadata,
    coalesce(s.partition_key, '')::text as partition_key, s.catch_up, s.catch_up_max,
    extract(epoch from s.catch_up_within)::bigint as catch_up_within_seconds, s.overlap, s.source, s.created_at,
    s.paused_at, s.paused_by, s.pause_reason, s.cursor_at, s.due_at, s.last_tick_at, s.last_job_id, s.failures, s.error,
    s.error_at, ((select true from jobq.schedule_tick t where t.schedule = s.name and t.tick_at = s.last_tick_at
        and t.job_id is null limit 1) is not null)::boolean as last_left_out,
    statement_timestamp()::timestamptz as looked_at, coalesce(k.queue, 'default')::text as kind_queue,
    coalesce(k.priority, 0)::smallint as kind_priority,
    coalesce(k.max_attempts, jobq.max_attempts_default())::smallint as kind_max_attempts,
    coalesce(extract(epoch from k.timeout) * 1000, 0)::bigint as kind_timeout_ms,
    coalesce(extract(epoch from k.backoff_base) * 1000, 0)::bigint as kind_backoff_base_ms,
    coalesce(extract(epoch from k.backoff_max) * 1000, 0)::bigint as kind_backoff_max_ms
  from jobq.schedule s
  left join jobq.kind_setting k on k.name = s.kind
  where s.name = sqlc.arg(name)::text;

-- ScheduleTickList is the latest ticks of a schedule, with the states of their jobs, if these still
-- exist. Needs schedule_tick_pkey.
-- name: ScheduleTickList :many
select t.tick_at, t.job_id, coalesce(j.state::text, '')::text as state
  from (
    select x.tick_at, x.job_id from jobq.schedule_tick x
      where x.schedule = sqlc.arg(schedule)::text
      order by x.tick_at desc
      limit sqlc.arg(page_size)::integer
  ) t
  left join lateral (select x.state from jobq.job x where x.id = t.job_id limit 1) j on true
  order by t.tick_at desc;

-- ScheduleSet makes or changes a schedule, and records it: 0 when there was nothing
-- to do. Zero and empty values mean the default.
-- name: ScheduleSet :one
select coalesce(jobq.schedule_set(sqlc.arg(name)::text, sqlc.arg(kind)::text, cron => nullif(sqlc.arg(cron)::text, ''),
    every => sqlc.narg(every)::interval, time_zone => nullif(sqlc.arg(time_zone)::text, ''),
    args => sqlc.narg(args)::jsonb, queue => nullif(sqlc.arg(queue)::text, ''), 
    priority => nullif(sqlc.arg(priority)::bigint, 0),
    max_attempts => nullif(sqlc.arg(max_attempts)::bigint, 0), timeout => sqlc.narg(timeout)::interval,
    backoff_base => sqlc.narg(backoff_base)::interval, backoff_max => sqlc.narg(backoff_max)::interval,
    tags => sqlc.narg(tags)::text[], metadata => sqlc.narg(metadata)::jsonb,
    partition_key => nullif(sqlc.arg(partition_key)::text, ''), catch_up => nullif(sqlc.arg(catch_up)::text, ''),
    catch_up_max => nullif(sqlc.arg(catch_up_max)::integer, 0), catch_up_within => sqlc.narg(catch_up_within)::interval,
    overlap => nullif(sqlc.arg(overlap)::text, ''), source => sqlc.arg(source)::text, actor => sqlc.arg(actor)::text),
        0)::bigint as audit;

-- name: SchedulePause :one
select coalesce(jobq.schedule_pause(sqlc.arg(name)::text, sqlc.narg(reason)::text, sqlc.arg(actor)::text),
    0)::bigint as audit;

-- name: ScheduleResume :one
select coalesce(jobq.schedule_resume(sqlc.arg(name)::text, sqlc.arg(actor)::text), 0)::bigint as audit;

-- name: ScheduleRemove :one
select jobq.schedule_remove(sqlc.arg(name)::text, sqlc.arg(actor)::text)::bigint as audit;

-- name: ScheduleRun :one
select jobq.schedule_run(sqlc.arg(name)::text, sqlc.arg(actor)::text)::bigint as job_id;

-- ScheduleTurn takes turns among applications that declare their schedules (schedule_turn).
-- name: ScheduleTurn :exec
select jobq.schedule_turn();
