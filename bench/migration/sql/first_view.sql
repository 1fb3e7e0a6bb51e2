-- The view of the first layout, as in commit b792e27.
create or replace view jobq.job as
  select p.id, case when p.position is null then 'scheduled' else 'available' end::jobq.job_state as state,
      p.queue, p.kind, p.priority, p.attempts, p.max_attempts, p.crashes, p.lease_token, p.run_at, p.created_at,
      null::timestamptz as started_at, null::timestamptz as finished_at, null::text as lease_owner,
      null::timestamptz as lease_expires_at, null::timestamptz as cancel_requested_at,
      null::timestamptz as progressed_at, null::real as progress_percent, null::text as progress_stage,
      null::text as progress_message, p.timeout, p.backoff_base, p.backoff_max, p.unique_key, p.last_error, p.clear_reason, p.tags,
      p.metadata, coalesce(p.args, (select a.args from jobq.payload a where a.job_id = p.id)) as args,
      p.checkpoint, null::jsonb as result
    from jobq.pending p
  union all
  select r.id, 'running'::jobq.job_state,
      r.queue, r.kind, r.priority, r.attempts, r.max_attempts, r.crashes, r.lease_token, r.run_at, r.created_at,
      r.started_at, null, r.lease_owner,
      r.lease_expires_at, r.cancel_requested_at,
      r.progressed_at, r.progress_percent, r.progress_stage,
      r.progress_message, r.timeout, r.backoff_base, r.backoff_max, r.unique_key, r.last_error, r.clear_reason, r.tags,
      r.metadata, coalesce(r.args, (select a.args from jobq.payload a where a.job_id = r.id)),
      r.checkpoint, null
    from jobq.running r
  union all
  select f.id, f.state,
      f.queue, f.kind, f.priority, f.attempts, f.max_attempts, f.crashes, f.lease_token, f.run_at, f.created_at,
      f.started_at, f.finished_at, f.lease_owner,
      null, null,
      null, null, null,
      null, f.timeout, f.backoff_base, f.backoff_max, f.unique_key, f.last_error, null, f.tags,
      f.metadata, coalesce(f.args, (select a.args from jobq.payload a where a.job_id = f.id)),
      f.checkpoint, f.result
    from jobq.finished f;
