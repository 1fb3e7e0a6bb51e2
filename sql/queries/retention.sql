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
select p.day::text as day, coalesce(p.last_job, 0)::bigint as last_job, (p.last_job is null)::boolean as dropped, p.removed::bigint as removed
  from jobq.payload_prune(sqlc.arg(after_day)::text, sqlc.arg(after_job)::bigint, sqlc.arg(job_count)::integer, sqlc.arg(payload_count)::integer) p;

-- DefaultPrune looks at a batch of what the default partition has of such days, and
-- deletes what is past retention, with the large args of jobs. It goes on at the place where its last answer ended.
-- name: DefaultPrune :one
select p.looked::bigint as looked, p.last::bigint as last, p.last_job::bigint as last_job
  from jobq.default_prune(sqlc.arg(parent)::text, sqlc.arg(after)::bigint, sqlc.arg(after_job)::bigint, sqlc.arg(row_count)::integer) p;

-- HistoryAnalyze makes the statistics of run as a whole, if there are none or the
-- last ones are so old, or of far fewer rows, and says whether it did.
-- name: HistoryAnalyze :one
select jobq.history_analyze(sqlc.arg(every)::interval)::boolean as analyzed;
