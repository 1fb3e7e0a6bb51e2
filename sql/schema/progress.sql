-- What a run says of itself while it goes on.

-- What a run says of itself while it runs, so that this does not write its row of
-- run again. It goes when the run ends.
create table jobq.progress (
  job_id        bigint      not null,
  lease_id      bigint      not null, -- of an earlier run: it does not count any more
  progressed_at timestamptz,
  percent       real,
  stage         text,
  message       text,
  checkpoint    jsonb, -- null: as in run
  constraint progress_pkey primary key (job_id),
  constraint "checkpoint must be at most 1 MiB" check (pg_column_size(checkpoint) <= 1048576),
  constraint "progress_percent must be 0 to 100" check (percent between 0 and 100),
  constraint "progress_stage must be at most 128 characters" check (char_length(stage) <= 128),
  constraint "progress_message must be at most 1024 characters" check (char_length(message) <= 1024)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);
comment on table jobq.progress is 'What runs say of themselves while they run.';
comment on column jobq.progress.job_id is 'The job.';
comment on column jobq.progress.lease_id is 'Its run. Of an earlier one, it does not count.';
comment on column jobq.progress.progressed_at is 'When it last said how far it is.';
comment on column jobq.progress.percent is '0 to 100.';
comment on column jobq.progress.stage is 'As the run says.';
comment on column jobq.progress.message is 'As the run says.';
comment on column jobq.progress.checkpoint is 'What the run has saved; null: see jobq.run.';

-- progress reports how far a run is; null keeps what was reported before. It does not extend the lease: only the worker
-- does.
create function jobq.progress(job_id bigint, token text, percent double precision default null, stage text default null,
    message text default null)
  returns void
  language plpgsql security definer set search_path = pg_catalog, pg_temp
  as $$
#variable_conflict use_column
declare
  held record;
begin
  select * into held from jobq.run_held(progress.job_id, progress.token);
  insert into jobq.progress as p (job_id, lease_id, progressed_at, percent, stage, message)
    values (progress.job_id, held.lease_id, clock_timestamp(), case
        when progress.percent <> 'NaN' then least(greatest(progress.percent, 0), 100)::real end,
      left(nullif(progress.stage, ''), 128), left(nullif(progress.message, ''), 1024))
    on conflict (job_id) do update
      set lease_id = excluded.lease_id, progressed_at = excluded.progressed_at,
        percent = coalesce(excluded.percent, case when p.lease_id = excluded.lease_id then p.percent end),
        stage = coalesce(excluded.stage, case when p.lease_id = excluded.lease_id then p.stage end),
        message = coalesce(excluded.message, case when p.lease_id = excluded.lease_id then p.message end),
        checkpoint = case when p.lease_id = excluded.lease_id then p.checkpoint end;
end $$;
comment on function jobq.progress is 'Says how far a run is.';

-- checkpoint stores what the next run of the job begins with. It writes the row of
-- run, and a reaper that looked before then does not take that run. RunCheckpoint writes
-- the lease instead, which would keep it from being extended until the transaction ends.
create function jobq.checkpoint(job_id bigint, token text, content jsonb) returns void
  language plpgsql security definer set search_path = pg_catalog, pg_temp
  as $$
#variable_conflict use_column
declare
  held record;
begin
  perform jobq.json_require('checkpoint', content, 98304);
  select * into held from jobq.run_held(checkpoint.job_id, checkpoint.token);
  update jobq.run r set checkpoint = content where r.id = checkpoint.job_id and r.lease_id = held.lease_id;
  update jobq.progress p set checkpoint = null where p.job_id = checkpoint.job_id and p.checkpoint is not null;
end $$;
comment on function jobq.checkpoint is 'Saves what the next run is to go on with.';
