-- RunHold keeps others from ending the caller's run until the transaction ends, while the transaction
-- writes something else for the job. Zero rows means that the lease was lost. Needs run_id_idx and
-- lease_pkey only.
-- name: RunHold :execrows
select r.id
  from jobq.run r
  where r.id = sqlc.arg(id) and r.lease_id = sqlc.arg(token) and r.state is null
    and (select l.owner = sqlc.arg(owner) and l.claimed_at = sqlc.arg(claimed_at) and l.lost_at is null
        and r.slot <> all(l.ended_slots)
      from jobq.lease l where l.id = sqlc.arg(token) limit 1)
  for key share;

-- OutputAppend stores what a program has written since the last call, under the run's lease. It
-- deletes the output of earlier runs, and what is too far back. Zero rows means that the lease was
-- lost. Needs run_id_idx, lease_pkey and output_pkey only.
-- name: OutputAppend :execrows
with dropped as (
  delete from jobq.output o
    where o.job_id = sqlc.arg(id)
      and (o.lease_token < sqlc.arg(token)
          or (o.lease_token = sqlc.arg(token) and o.ends_at < sqlc.arg(keep_from)::bigint))
)
insert into jobq.output (job_id, lease_token, begins_at, ends_at, content)
  select r.id, r.lease_id, sqlc.arg(begins_at)::bigint, sqlc.arg(ends_at)::bigint, sqlc.arg(content)::text
    from jobq.run r
    where r.id = sqlc.arg(id) and r.lease_id = sqlc.arg(token) and r.state is null
      and (select l.owner = sqlc.arg(owner) and l.claimed_at = sqlc.arg(claimed_at) and l.lost_at is null
          and r.slot <> all(l.ended_slots)
        from jobq.lease l where l.id = sqlc.arg(token) limit 1)
  on conflict do nothing;

-- OutputSince returns what a job's programs have written after a given piece, in order.
-- name: OutputSince :many
select o.lease_token, o.begins_at, o.ends_at, o.content
  from jobq.output o
  where o.job_id = sqlc.arg(job_id)
    and (o.lease_token, o.begins_at) > (sqlc.arg(token)::bigint, sqlc.arg(begins_at)::bigint)
  order by o.lease_token, o.begins_at
  limit 100;

-- OutputPrune looks at a number of pieces, the earliest first, and deletes those of runs that have
-- ended. It does not look at pieces of the last 5 minutes: whoever follows the output has read
-- older ones. It returns how many it has looked at and deleted, and when the last one was written,
-- where the next call goes on. Otherwise the next call would read what this one has deleted, for as
-- long as any transaction can still see that, and what is kept. Other pieces of exactly that time
-- are looked at when the janitor next begins at the start. Needs output_written_at_idx, lease_pkey
-- and run_id_idx.
-- name: OutputPrune :one
with looked as materialized (
  select x.ctid as place, x.written_at,
      -- Each is looked up on its own: beside the days of run, the planner would not mind reading all leases.
      (select r.slot <> all(l.ended_slots)
        from (select y.ended_slots from jobq.lease y where y.id = x.lease_token limit 1) l
        cross join lateral (select z.slot from jobq.run z where z.id = x.job_id and z.lease_id = x.lease_token
            and z.state is null limit 1) r
      ) is not true as ended
    from jobq.output x
    where x.written_at > sqlc.arg(after)::timestamptz and x.written_at < statement_timestamp() - interval '5 minutes'
    order by x.written_at
    limit sqlc.arg(row_count)::integer
), dropped as (
  delete from jobq.output o
    where o.ctid = any(array(
      select x.ctid from jobq.output x -- a run's next one may be dropping them too
        where x.ctid = any(array(select l.place from looked l where l.ended))
        for update skip locked))
    returning o.job_id
)
select (select count(*) from looked)::bigint as looked, (select count(*) from dropped)::bigint as dropped,
    coalesce((select max(l.written_at) from looked l), sqlc.arg(after)::timestamptz)::timestamptz as last;

-- ProgressPrune deletes a number of reports of runs whose leases no longer exist, and returns how
-- many. A run that ends deletes its own report; a run that reports at the same moment leaves one.
-- It reads all of progress, which, apart from these, holds only reports of running jobs. Needs
-- lease_pkey.
-- name: ProgressPrune :execrows
delete from jobq.progress p
  where p.ctid = any(array(
    select x.ctid from jobq.progress x
      where not exists (select from jobq.lease l where l.id = x.lease_id)
      limit sqlc.arg(row_count)::integer
      for update skip locked));

-- WorkWaits says whether one of the queues has a job of one of the kinds that could run now, in a
-- queue, of a kind and with a partition key that are not paused. In each queue it reads the line up
-- to the first such job, as a claim does. If with_due is set, it also reads the scheduled jobs that
-- are due. If keys are paused, or their jobs run in order, it asks lane_work about the jobs with
-- keys: these may have to wait for a job that is scheduled or has failed.
--
-- A job that has ended, and at which the janitor has not looked yet, may make a job available that
-- waits for it. So while such a look is due, the answer is also true if one of the first 1,000 jobs
-- that wait for others is of these queues and kinds, or if 1,000 or more wait.
--
-- The orders are for the planner: without them, it would expect such a job soon in any order, and read
-- all of pending when there is none. Needs pending_claim_idx, pending_due_idx, dependency_look_due_idx
-- and pending_held_idx.
-- name: WorkWaits :one
with handled as materialized (
  select n.kind
    from unnest(sqlc.arg(kinds)::text[]) as n(kind)
    where not exists (select from jobq.kind k where k.name = n.kind and k.paused_at is not null)
), open as materialized (
  select n.name, q.key_order,
      q.key_order is not null or (select k.key from jobq.paused_key k where k.queue = n.name
          order by k.key limit 1) is not null as key_by_key
    from unnest(sqlc.arg(queues)::text[]) as n(name)
    left join jobq.queue q on q.name = n.name
    where q.paused_at is null
)
select (
  exists (
    select from open o
      cross join lateral (
        select p.id from jobq.pending p
          where p.queue = o.name and p.position is not null and p.kind = any(array(select o.kind from handled o))
          order by p.partition_key, p.priority, p.position
          limit 1
      ) available
      where not o.key_by_key
  )
  or exists (
    select from open o
      cross join lateral (
        select p.id from jobq.pending p
          where p.queue = o.name and p.partition_key = '' and p.position is not null
            and p.kind = any(array(select o.kind from handled o))
          order by p.priority, p.position
          limit 1
      ) available
      where o.key_by_key
  )
  or exists (select from open o
      where o.key_by_key and jobq.lane_work(o.name, o.key_order, array(select h.kind from handled h)))
  or exists (
    select from (
      select p.id from jobq.pending p
        where sqlc.arg(with_due)::boolean and p.position is null and p.waits is null
          and p.run_at <= statement_timestamp() and p.kind = any(array(select o.kind from handled o))
          and p.queue = any(array(select o.name from open o))
        order by p.run_at
        limit 1
    ) due
  )
  or exists (select from jobq.dependency_look l where l.look_at <= statement_timestamp())
    and (
      select coalesce(count(*) = 1000 or bool_or(w.kind = any(array(select o.kind from handled o))
          and w.queue = any(array(select o.name from open o))), false)
        from (select p.queue, p.kind from jobq.pending p where p.waits order by p.id limit 1000) w
    )
)::boolean as waits;

-- AttemptKeep is for a run that the handler's own transaction has ended. It adds to the run's attempt
-- what the worker knows: when the run began, and what the program has written and used. An attempt
-- that already has this stays as it is. Needs attempt_job_id_idx only.
-- name: AttemptKeep :exec
update jobq.attempt a
  set started_at = greatest(sqlc.arg(claimed_at)::timestamptz,
      least(a.finished_at, clock_timestamp() - sqlc.arg(ran_us)::bigint * interval '1 us')),
    output = nullif(sqlc.arg(output)::text, ''), usage = sqlc.narg(usage)::jsonb
  where a.job_id = sqlc.arg(id) and a.lease_token = sqlc.arg(token) and a.worker_id = sqlc.arg(owner)
    and a.finished_at >= sqlc.arg(claimed_at)::timestamptz and a.outcome <> 'lost' and a.output is null
    and a.usage is null;
