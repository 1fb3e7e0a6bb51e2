-- Back: one step of the history, the blocks from $from to before $to of the
-- partition $partition. What ended with its lease gets the end that this says.
-- The lease is looked up by its key for each job: past_lease is never read as a whole.
with r as (
  delete from jobq.$partition x
    where x.ctid >= '($from,0)' and x.ctid < '($to,0)'
    returning x.id, x.lease_id, x.slot, x.state, x.began_at, x.finished_at, x.run_at, x.created_at, x.timeout, x.backoff_base,
      x.backoff_max, x.priority, x.attempts, x.max_attempts, x.crashes, x.args_apart, x.queue, x.kind, x.args, x.unique_key,
      x.last_error, x.checkpoint, x.metadata, x.tags, x.result
)
insert into jobq.finished
    (id, lease_token, started_at, finished_at, lease_owner, state, run_at, created_at, timeout, backoff_base, backoff_max, priority,
     attempts, max_attempts, crashes, args_apart, queue, kind, args, unique_key, last_error, checkpoint, metadata, tags, result)
  select r.id, r.lease_id, coalesce(r.began_at, l.claimed_at), coalesce(r.finished_at, l.claimed_at + nullif(l.ended[r.slot], -1) * interval '1 ms'),
      l.owner, coalesce(r.state, 'completed'), r.run_at, r.created_at, r.timeout, r.backoff_base, r.backoff_max, r.priority,
      r.attempts, r.max_attempts, r.crashes, r.args_apart, r.queue, r.kind, r.args, r.unique_key, r.last_error, r.checkpoint,
      r.metadata, r.tags, r.result
    from r
    left join lateral (select x.claimed_at, x.owner, x.ended from jobq.past_lease x where x.id = r.lease_id limit 1) l on true
