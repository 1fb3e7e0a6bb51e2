-- There: one step of the history, the blocks from $from to before $to of the
-- partition $partition. Each job gets a lease of its own, of the day on which it
-- was claimed, since no other table says who ran it; one that was cancelled
-- before it ran gets an id without a lease.
with f as (
  delete from jobq.$partition x
    where x.ctid >= '($from,0)' and x.ctid < '($to,0)'
    returning x.id, x.finished_at, x.started_at, x.run_at, x.created_at, x.timeout, x.backoff_base, x.backoff_max, x.state, x.priority,
      x.attempts, x.max_attempts, x.crashes, x.args_apart, x.queue, x.kind, x.lease_owner, x.args, x.unique_key, x.last_error,
      x.checkpoint, x.metadata, x.tags, x.result
), n as materialized (
  select f.id, jobq.lease_day((coalesce(f.started_at, f.finished_at) at time zone 'UTC')::date) + nextval('jobq.lease_number_seq') as lease_id
    from f
), l as (
  insert into jobq.past_lease (id, claimed_at, owner, ended)
    select n.lease_id, f.started_at, f.lease_owner, '{-1}' from f join n on n.id = f.id where f.started_at is not null
)
insert into jobq.run
    (id, lease_id, slot, state, finished_at, run_at, created_at, timeout, backoff_base, backoff_max, priority, attempts, max_attempts,
     crashes, args_apart, queue, kind, args, unique_key, last_error, checkpoint, metadata, tags, result)
  select f.id, n.lease_id, (f.started_at is not null)::integer, f.state, f.finished_at, f.run_at, f.created_at, f.timeout,
      f.backoff_base, f.backoff_max, f.priority, f.attempts, f.max_attempts, f.crashes, f.args_apart, f.queue, f.kind, f.args,
      f.unique_key, f.last_error, f.checkpoint, f.metadata, f.tags, f.result
    from f
    join n on n.id = f.id
