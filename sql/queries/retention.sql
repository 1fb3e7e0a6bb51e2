-- PartitionAdd makes the partition of a day, and says whether it has made one.
-- name: PartitionAdd :one
select jobq.partition_add(sqlc.arg(parent)::text,
  ((clock_timestamp() at time zone 'UTC')::date + sqlc.arg(days_ahead)::integer))::boolean as added;

-- PartitionPrune drops the earliest day past retention, and returns its name,
-- empty if there is none.
-- name: PartitionPrune :one
select coalesce(jobq.partition_prune(sqlc.arg(parent)::text), '')::text as dropped;

-- DefaultPrune deletes a batch of what the default partition has of such days.
-- name: DefaultPrune :one
select jobq.default_prune(sqlc.arg(parent)::text, sqlc.arg(row_count)::integer)::bigint as deleted;

-- PayloadPrune removes the args of a batch of jobs of days past retention:
-- small steps, because large args are many pages. It locks the jobs, so that
-- none of them is made to run again meanwhile, and leaves those that others have.
-- name: PayloadPrune :execrows
with old as (
  select f.id from jobq.finished f
    where f.args_apart and f.finished_at < clock_timestamp() - (select s.finished_retention from jobq.setting s) - interval '1 day'
      and exists (select from jobq.payload a where a.job_id = f.id)
    limit sqlc.arg(job_count)::integer
    for update of f skip locked
)
delete from jobq.payload a using old o where a.job_id = o.id;
