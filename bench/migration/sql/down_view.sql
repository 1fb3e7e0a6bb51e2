-- Back: what the view of the first layout has besides, until the history has moved.
  union all
  select r.id, coalesce(r.state, 'completed'),
      r.queue, r.kind, r.priority, r.attempts, r.max_attempts, r.crashes, r.lease_id, r.run_at, r.created_at,
      coalesce(r.began_at, l.claimed_at), coalesce(r.finished_at, l.claimed_at + nullif(l.ended[r.slot], -1) * interval '1 ms'), l.owner,
      null, null,
      null, null, null,
      null, r.timeout, r.backoff_base, r.backoff_max, r.unique_key, r.last_error, null, r.tags,
      r.metadata, coalesce(r.args, (select a.args from jobq.payload a where a.job_id = r.id)),
      r.checkpoint, r.result
    from jobq.run r
    left join lateral (select x.claimed_at, x.owner, x.ended from jobq.past_lease x where x.id = r.lease_id limit 1) l on true
