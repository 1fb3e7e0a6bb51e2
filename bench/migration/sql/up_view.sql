-- There: what the view of the second layout has besides, until the history has moved.
  union all
  select f.id, f.state,
      f.queue, f.kind, f.priority, f.attempts, f.max_attempts, f.crashes, f.lease_token, f.run_at, f.created_at,
      f.started_at, f.finished_at, f.lease_owner,
      null, null,
      null, null, null,
      null, f.timeout, f.backoff_base, f.backoff_max, f.unique_key, f.last_error, null, f.tags,
      f.metadata, coalesce(f.args, (select a.args from jobq.payload a where a.job_id = f.id)),
      f.checkpoint, f.result
    from jobq.finished f
