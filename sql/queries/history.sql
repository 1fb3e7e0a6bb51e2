-- PartitionAdd makes the partition of a day, and says whether it has made one.
-- name: PartitionAdd :one
select jobq.partition_add(sqlc.arg(parent)::text,
  ((clock_timestamp() at time zone 'UTC')::date + sqlc.arg(days_ahead)::integer))::boolean as added;

-- PartitionPrune takes the earliest day past retention out of the table, and
-- returns its name, empty if there is none.
-- name: PartitionPrune :one
select coalesce(jobq.partition_prune(sqlc.arg(parent)::text), '')::text as pruned;

-- PayloadPrune removes large args of jobs of days that PartitionPrune has taken
-- out: in small steps, because large args are many pages. It goes on after the
-- day and the job given, which are of its last answer. It drops a day that it has
-- come to the end of, and says so. No row when there is nothing to do.
-- name: PayloadPrune :one
select p.day::text as day, coalesce(p.last_job, 0)::bigint as last_job, (p.last_job is null)::boolean as dropped,
    p.removed::bigint as removed
  from jobq.payload_prune(sqlc.arg(after_day)::text, sqlc.arg(after_job)::bigint, sqlc.arg(job_count)::integer,
      sqlc.arg(payload_count)::integer) p;

-- DefaultPrune looks at a batch of what the default partition has of such days, and
-- deletes what is past retention, with the large args of jobs. It goes on at the place
-- where its last answer ended.
-- name: DefaultPrune :one
select p.looked::bigint as looked, p.last::bigint as last, p.last_job::bigint as last_job
  from jobq.default_prune(sqlc.arg(parent)::text, sqlc.arg(after)::bigint, sqlc.arg(after_job)::bigint,
      sqlc.arg(row_count)::integer) p;

-- HistorySweep deletes a batch of what is kept for less long than others of its day: see
-- history_sweep. No row when there is nothing to do.
-- name: HistorySweep :one
select p.day::date as day, p.removed::bigint as removed
  from jobq.history_sweep(sqlc.arg(block_count)::integer, sqlc.arg(lease_count)::integer) p;

-- HistoryAnalyze makes the statistics of run as a whole, if there are none, or if the
-- last ones are older than every or of far fewer rows. It says whether it did
-- (history_analyze).
-- name: HistoryAnalyze :one
select jobq.history_analyze(sqlc.arg(every)::interval)::boolean as analyzed;

-- UniqueKeyPrune deletes up to row_count unique keys that were kept for a time after the end of their
-- job, and whose time is over, the earliest first. It goes on after the place where its last answer
-- ended: see StatPrune. Needs unique_key_kept_idx.
-- name: UniqueKeyPrune :one
with deleted as (
  delete from jobq.unique_key u
    where u.ctid = any(array(
      select x.ctid from jobq.unique_key x
        where x.job_over and x.kept_until <= statement_timestamp()
          and (x.kept_until, x.job_id) > (sqlc.arg(after)::timestamptz, sqlc.arg(after_job)::bigint)
        order by x.kept_until, x.job_id
        limit sqlc.arg(row_count)::integer
        for update skip locked))
    returning u.kept_until, u.job_id
), last as (
  select d.kept_until, d.job_id from deleted d order by d.kept_until desc, d.job_id desc limit 1
)
select (select count(*) from deleted)::bigint as deleted, coalesce((select l.kept_until
    from last l), sqlc.arg(after)::timestamptz)::timestamptz as last,
    coalesce((select l.job_id from last l), 0)::bigint as last_job;
