-- Jobs. A job waits in pending. A claim moves it to run, where it stays for the history, and writes one lease for all
-- jobs that it takes. What comes back moves from run to pending. Every transition is one statement. docs/decisions/0013
-- has the reasons and the figures.

-- Ids of jobs, and places in the line of the available ones. A job that
-- becomes available again takes a new position at the tail, so that a claim
-- may start where the last one ended; a fresh job has one from the start.
create sequence jobq.job_id_seq as bigint;
create sequence jobq.position_seq as bigint;

-- What producers write, and all that they may write: no lease can be forged
-- here. A job is `available` when it has a position; else `waiting` for other jobs
-- when waits says so (see the table dependency), and `scheduled` when it does not.
create table jobq.pending (
  id            bigint                 not null default nextval('jobq.job_id_seq'),
  position      bigint                          default nextval('jobq.position_seq'),
  lease_token   jobq.job_lease_token   not null default 0,
  run_at        jobq.job_run_at        not null default now(),
  created_at    timestamptz            not null default now(),
  timeout       jobq.job_timeout,
  backoff_base  jobq.job_backoff_base,
  backoff_max   jobq.job_backoff_max,
  priority      smallint               not null default 0,
  attempts      smallint               not null default 0,
  max_attempts  jobq.job_max_attempts  not null default jobq.max_attempts_default(),
  crashes       smallint               not null default 0,
  args_apart    boolean                not null default false,
  queue         jobq.job_queue         not null default 'default',
  kind          jobq.job_kind          not null,
  partition_key jobq.job_partition_key not null default '', -- '' for none
  args          jsonb                           default '{}',
  unique_key    jobq.job_unique_key,
  last_error    jobq.job_last_error,
  clear_reason  jobq.job_clear_reason,
  checkpoint    jsonb,
  metadata      jsonb,
  tags          text[],
  waits         boolean, -- true, or null: it then takes no room in the row
  lost          smallint, -- null for none, for the same reason
  max_lost      jobq.job_max_lost,
  constraint pending_pkey primary key (id),
  constraint "a job that waits has no position" check (waits is null or waits and position is null),
  constraint "args must not be null" check (args is not null or args_apart),
  -- The triggers pending_before_insert and pending_before_update refuse args, metadata and checkpoints.
  constraint "tags must be at most 32, without nulls, 8 KiB in all" check
    (tags is null or (cardinality(tags) <= 32 and coalesce(array_ndims(tags), 1) = 1
        and array_position(tags, null) is null and octet_length(array_to_string(tags, '')) <= 8192)),
  constraint "lost must be at least 1" check (lost >= 1),
  constraint "attempts must be 0 to max_attempts - 1" check (attempts >= 0 and attempts < greatest(max_attempts, 1))
);
comment on table jobq.pending is
  'Jobs that wait: for a worker, for their time, or for other jobs. Producers may insert here.';
comment on column jobq.pending.id is 'Draws its value itself, and never comes twice.';
comment on column jobq.pending.position is 'Place in the line of those that may run now; null: scheduled, or waits.';
comment on column jobq.pending.lease_token is 'Token of the last run; 0: it has not run.';
comment on column jobq.pending.run_at is 'Before this time the job does not run.';
comment on column jobq.pending.created_at is 'When the transaction began that added the job.';
comment on column jobq.pending.timeout is 'How long a run may take; null: as long as it likes.';
comment on column jobq.pending.backoff_base is
  'How long the job waits after its first failure, doubled with each further one; null: 1 second.';
comment on column jobq.pending.backoff_max is 'The longest such wait; null: 1 day.';
comment on column jobq.pending.priority is 'Lower runs first, within a queue and a partition key.';
comment on column jobq.pending.attempts is
  'How many runs have failed or were lost. A requeue keeps it, and allows one more where none is left.';
comment on column jobq.pending.max_attempts is
  'A run that fails when attempts has come this far fails the job for good.';
comment on column jobq.pending.crashes is
  'How many of the last runs, one after the other, were lost with their worker.';
comment on column jobq.pending.args_apart is 'Whether the args are in jobq.payload.';
comment on column jobq.pending.queue is 'Where the job waits. Settings and pauses of a queue: jobq.queue.';
comment on column jobq.pending.kind is 'What is to be done: the name of a handler.';
comment on column jobq.pending.partition_key is
  'What the job belongs to, such as a customer: keys take turns. Empty: nothing.';
comment on column jobq.pending.args is 'What the handler gets; null: they are in jobq.payload.';
comment on column jobq.pending.unique_key is 'At most one unfinished job of the kind has this key; null: none.';
comment on column jobq.pending.last_error is 'Why the last run failed, or the job was cancelled; null: neither.';
comment on column jobq.pending.clear_reason is 'Why the last run was taken from its worker; null: it was not.';
comment on column jobq.pending.checkpoint is 'What a run has saved for the next one to go on with; null: nothing.';
comment on column jobq.pending.metadata is 'What the producer noted beside the args, such as a trace; null: nothing.';
comment on column jobq.pending.tags is 'For filters of people; null: none.';
comment on column jobq.pending.waits is 'True: it waits for other jobs (jobq.dependency); null: it does not.';
comment on column jobq.pending.lost is
  'How many runs were lost without using an attempt, since max_lost was set; null: none. A requeue forgets them.';
comment on column jobq.pending.max_lost is
  'How many runs may be lost without using an attempt; null: as its queue has it, or else a lost run uses an attempt.';
-- The claim walks this one and nothing else. The jobs of a key have a line of their
-- own, which a claim of jobs without one (partition_key '') never meets.
create index pending_claim_idx on jobq.pending (queue, partition_key, priority, position) where position is not null;
-- The janitor promotes from this one, and reads it to know how long to sleep.
-- With the id, so that it can go on where it stopped among jobs that are due at once.
create index pending_due_idx on jobq.pending (run_at, id) where position is null and waits is null;
-- For lists of the jobs that wait for others (waits), and of those that have failed before
-- (waits is null). It is one index for both, since every insert opens each index.
create index pending_held_idx on jobq.pending (waits, id) where waits or attempts > 0 and last_error is not null;
-- The suspects: jobs that were lost with their workers twice in a row, or once if only their last attempt is left. A
-- loss that used no attempt (lost) brings no job nearer to its last one. They have no position, and are claimed by
-- claim_alone. The condition stands in each statement that is about suspects; the first part of it costs other jobs
-- less. Statements about jobs that are due leave suspects out with greatest(least(2, coalesce(lost + 1, max_attempts
-- - attempts::integer)) - crashes, 0) <> 0: JobPromote says why it is written so.
create index pending_suspect_idx on jobq.pending (queue, run_at, id)
    where crashes > 0 and crashes >= least(2, coalesce(lost + 1, max_attempts - attempts));
alter table jobq.pending set (autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.02);

-- A job that was claimed, and its run: the current one, or the last one when that
-- was its end. The claim writes the row. A run that plainly succeeds never touches
-- it again: its lease says so. Other ends set state and finished_at here, or take
-- the row back to pending. So a job is over when state is set, or when its slot of
-- the lease has milliseconds; else it runs. The history is partitioned by the day of
-- the claim. So retention drops whole days, and deletes row by row only what is kept
-- for less long than others of its day. jobq.partition_add makes the days.
create table jobq.run (
  id                  bigint      not null,
  lease_id            bigint      not null, -- an id of its own, without a lease, if it was cancelled before it ran
  position            bigint,
  run_at              timestamptz, -- null: as created_at, which a job has that was to run at once
  created_at          timestamptz not null,
  began_at            timestamptz, -- with state, where it is known: the claim may have been long before
  finished_at         timestamptz, -- with state
  cancel_requested_at timestamptz,
  timeout             interval,
  backoff_base        interval,
  backoff_max         interval,
  state               jobq.job_state,
  slot                smallint    not null, -- its place in the lease, from 1; 0 if it was cancelled before it ran
  priority            smallint    not null,
  attempts            smallint    not null,
  max_attempts        smallint    not null,
  crashes             smallint    not null,
  args_apart          boolean     not null,
  queue               text        not null,
  kind                text        not null,
  partition_key       text, -- null for none
  args                jsonb,
  unique_key          text,
  last_error          text,
  clear_reason        text,
  checkpoint          jsonb,
  metadata            jsonb,
  tags                text[],
  result              jsonb,
  lost                smallint, -- null for none
  max_lost            smallint,
  constraint "state must be terminal" check (state in ('completed', 'failed', 'cancelled')),
  constraint "state and finished_at come together" check ((state is null) = (finished_at is null)),
  -- A checkpoint comes from pending or progress, which have accepted it.
  constraint "result must be at most 1 MiB" check (jobq.json_require('result', result, 1048576))
) partition by range (lease_id);
comment on table jobq.run is
  'Jobs that a worker has claimed, with their last run, and those that are over. One partition for each day of '
  'claims. Only jobq writes it; read jobq.job.';
comment on column jobq.run.id is 'The job.';
comment on column jobq.run.lease_id is 'The lease of the run, which is its token.';
comment on column jobq.run.position is 'Place in the line that it had.';
comment on column jobq.run.run_at is 'As in jobq.pending; null: as created_at.';
comment on column jobq.run.created_at is 'When the transaction began that added the job.';
comment on column jobq.run.began_at is
  'When the handler began, where that is known and the run is over; else the claim.';
comment on column jobq.run.finished_at is
  'When it was over; null: it runs, or it plainly succeeded and its lease says when.';
comment on column jobq.run.cancel_requested_at is 'When somebody asked the worker to stop it; null: nobody did.';
comment on column jobq.run.timeout is 'How long a run may take; null: as long as it likes.';
comment on column jobq.run.backoff_base is
  'How long the job waits after its first failure, doubled with each further one; null: 1 second.';
comment on column jobq.run.backoff_max is 'The longest such wait; null: 1 day.';
comment on column jobq.run.state is 'How it ended; null: it runs, or plainly succeeded.';
comment on column jobq.run.slot is 'Its place in the lease, from 1; 0: cancelled before it ran.';
comment on column jobq.run.priority is 'Lower runs first, within a queue and a partition key.';
comment on column jobq.run.attempts is
  'How many runs have failed or were lost. A requeue keeps it, and allows one more where none is left.';
comment on column jobq.run.max_attempts is 'A run that fails when attempts has come this far fails the job for good.';
comment on column jobq.run.crashes is 'How many of the last runs, one after the other, were lost with their worker.';
comment on column jobq.run.args_apart is 'Whether the args are in jobq.payload.';
comment on column jobq.run.queue is 'Where the job waits. Settings and pauses of a queue: jobq.queue.';
comment on column jobq.run.kind is 'What is to be done: the name of a handler.';
comment on column jobq.run.partition_key is 'What the job belongs to; null: nothing.';
comment on column jobq.run.args is
  'What the handler gets; null: they are in jobq.payload, or retention has deleted them.';
comment on column jobq.run.unique_key is 'At most one unfinished job of the kind has this key; null: none.';
comment on column jobq.run.last_error is 'Why the last run failed, or the job was cancelled; null: neither.';
comment on column jobq.run.clear_reason is 'Why the last run was taken from its worker; null: it was not.';
comment on column jobq.run.checkpoint is 'What a run has saved for the next one to go on with; null: nothing.';
comment on column jobq.run.metadata is 'What the producer noted beside the args, such as a trace; null: nothing.';
comment on column jobq.run.tags is 'For filters of people; null: none.';
comment on column jobq.run.result is 'What the handler of a completed job gave; null: nothing.';
comment on column jobq.run.lost is
  'How many runs were lost without using an attempt, since max_lost was set; null: none. A requeue forgets them.';
comment on column jobq.run.max_lost is
  'How many runs may be lost without using an attempt; null: as its queue has it, or else a lost run uses an attempt.';
-- A publication for all tables refuses each update and delete of a table that has no replica identity. A table
-- without a key has the whole row as its identity, which costs nothing unless wal_level is logical. Partitions do
-- not inherit it: see partition_add.
alter table jobq.run replica identity full;
-- Looking a job up by its id.
create index run_id_idx on jobq.run (id);
-- What did not succeed, newest first, and to be counted by queue without looking
-- at the rows. The many that plainly succeed cost it, and the others below, nothing.
create index run_unsuccessful_idx on jobq.run (finished_at, id) include (queue, state) where state <> 'completed';
-- What succeeded, but not plainly: retention asks when the last of a day ended.
create index run_completed_idx on jobq.run (finished_at, id) where state = 'completed';
-- What is to be cancelled: each extension of a lease asks.
create index run_cancel_idx on jobq.run (lease_id) where cancel_requested_at is not null and state is null;
create table jobq.run_default partition of jobq.run default;
alter table jobq.run_default replica identity full;

-- One row per run that has ended in another way than completed, that has output or
-- usage, or that its program has ended (run_close).
create table jobq.attempt (
  job_id      bigint               not null,
  finished_at timestamptz          not null,
  started_at  timestamptz          not null,
  lease_token bigint               not null,
  outcome     jobq.attempt_outcome not null,
  number      smallint             not null,
  worker_id   text                 not null,
  error       text,
  output      text,
  usage       jsonb, -- of programs: {"exit_code": 3, "signal": "SIGKILL", "cpu_seconds": 0.5, "max_rss_bytes": 1000000}
  constraint "error must be at most 64 KiB" check (octet_length(error) <= 65536),
  constraint "output must be at most 64 KiB" check (octet_length(output) <= 65536)
) partition by range (finished_at);
comment on table jobq.attempt is 'Runs that did not simply succeed, runs of programs, and runs with output.';
comment on column jobq.attempt.job_id is 'Of the run.';
comment on column jobq.attempt.finished_at is 'When it ended.';
comment on column jobq.attempt.started_at is 'When it began.';
comment on column jobq.attempt.lease_token is 'Of the run.';
comment on column jobq.attempt.outcome is 'How it ended. Only lost is written by a janitor.';
comment on column jobq.attempt.number is 'Which attempt of the job it was, from 1.';
comment on column jobq.attempt.worker_id is 'The worker.';
comment on column jobq.attempt.error is 'Why it failed; null: it did not.';
comment on column jobq.attempt.output is 'The end of what the program wrote; null: nothing was kept.';
comment on column jobq.attempt.usage is 'What the program used: CPU time, memory; null: not known.';
alter table jobq.attempt replica identity full; -- as run
create index attempt_job_id_idx on jobq.attempt (job_id, lease_token);
create table jobq.attempt_default partition of jobq.attempt default;
alter table jobq.attempt_default replica identity full;
create index attempt_default_finished_at_idx on jobq.attempt_default (finished_at); -- as those of other defaults

-- Args too large to be copied at each move: written once, read by the claim.
create table jobq.payload (
  job_id bigint not null primary key,
  args   jsonb  not null,
  constraint "args must be at most args_bytes_max() bytes, 1 MiB by default"
  check (jobq.json_require('args', args, jobq.args_bytes_max()))
);
comment on table jobq.payload is 'Args over 1000 bytes. Retention deletes them with their jobs.';
comment on column jobq.payload.job_id is 'The job.';
comment on column jobq.payload.args is 'What its handler gets.';

-- The job as people see it, whatever stage it is in.
create view jobq.job as
  select p.id, case when p.waits then 'waiting' when p.position is null then 'scheduled'
      else 'available' end::jobq.job_state as state,
      p.queue, p.kind, p.priority, p.attempts, p.max_attempts, p.crashes, p.lease_token, p.run_at, p.created_at,
      null::timestamptz as started_at, null::timestamptz as finished_at, null::text as lease_owner,
      null::timestamptz as lease_expires_at, null::timestamptz as cancel_requested_at,
      null::timestamptz as progressed_at, null::real as progress_percent, null::text as progress_stage,
      null::text as progress_message, p.timeout, p.backoff_base, p.backoff_max, p.unique_key, p.last_error,
      p.clear_reason, p.tags, p.metadata, coalesce(p.args, (select a.args from jobq.payload a
          where a.job_id = p.id)) as args,
      p.checkpoint, null::jsonb as result, nullif(p.partition_key, '') as partition_key,
      coalesce(p.lost, 0)::smallint as lost, coalesce(p.max_lost, case when p.lost > 0 then
          (select q.max_lost from jobq.queue q where q.name = p.queue) end)::smallint as max_lost
    from jobq.pending p
  union all
  select r.id, coalesce(r.state, case when e.ended_ms >= 0 then 'completed' else 'running' end::jobq.job_state),
      r.queue, r.kind, r.priority, r.attempts, r.max_attempts, r.crashes, r.lease_id, coalesce(r.run_at, r.created_at),
      r.created_at, coalesce(r.began_at, case when e.runs and r.slot > l.begun then null
          else l.claimed_at end), coalesce(r.finished_at, l.claimed_at + e.ended_ms * interval '1 ms'), l.owner,
      case when e.runs then l.expires_at end, case when e.runs then r.cancel_requested_at end,
      p.progressed_at, p.percent, p.stage,
      p.message, r.timeout, r.backoff_base, r.backoff_max, r.unique_key, r.last_error, case
      when e.runs then r.clear_reason end, r.tags,
      r.metadata, coalesce(r.args, (select a.args from jobq.payload a where a.job_id = r.id)),
      coalesce(p.checkpoint, r.checkpoint), r.result, r.partition_key, coalesce(r.lost, 0)::smallint,
      coalesce(r.max_lost, case when r.lost > 0 then
          (select q.max_lost from jobq.queue q where q.name = r.queue) end)::smallint
    from jobq.run r
    -- The limit keeps the planner from hashing all leases for one job; neighbours
    -- mostly have the same lease, which it remembers.
    left join lateral (
      select x.claimed_at, x.owner, x.expires_at, x.begun, null::smallint[] as ended, x.ended_slots, x.ended_ms
        from jobq.lease x where x.id = r.lease_id
      union all
      select x.claimed_at, x.owner, null, null, x.ended, null, null
        from jobq.past_lease x where x.id = r.lease_id
      limit 1
    ) l on true
    cross join lateral (
      select o.ended_ms, r.state is null and o.ended_ms is null as runs
        from (select coalesce(l.ended[r.slot], l.ended_ms[array_position(l.ended_slots, r.slot)]) as ended_ms) o
    ) e
    left join lateral (
      select x.progressed_at, x.percent, x.stage, x.message, x.checkpoint
        from jobq.progress x where x.job_id = r.id and x.lease_id = r.lease_id and e.runs limit 1
    ) p on true;
comment on view jobq.job is
  'Every job, whatever its stage. Look jobs up by id; for charts, read jobq.stats and never count jobs.';
comment on column jobq.job.id is 'The job.';
comment on column jobq.job.state is
  'waiting (for other jobs), scheduled, available, running, completed, failed or cancelled.';
comment on column jobq.job.queue is 'Where the job waits. Settings and pauses of a queue: jobq.queue.';
comment on column jobq.job.kind is 'What is to be done: the name of a handler.';
comment on column jobq.job.priority is 'Lower runs first, within a queue and a partition key.';
comment on column jobq.job.attempts is
  'How many runs have failed or were lost. A requeue keeps it, and allows one more where none is left.';
comment on column jobq.job.max_attempts is 'A run that fails when attempts has come this far fails the job for good.';
comment on column jobq.job.crashes is 'How many of the last runs, one after the other, were lost with their worker.';
comment on column jobq.job.lease_token is 'Token of the current or last run; 0: it has not run.';
comment on column jobq.job.run_at is 'Before this time the job does not run.';
comment on column jobq.job.created_at is 'When the transaction began that added the job.';
comment on column jobq.job.started_at is
  'When the current or last run began; null while it waits. Of one that plainly succeeded, when its batch was '
  'claimed: finished_at - started_at is the most that it can have taken.';
comment on column jobq.job.finished_at is 'When the job was over; null: it is not.';
comment on column jobq.job.lease_owner is 'The worker that runs it, or ran it last; null while it waits.';
comment on column jobq.job.lease_expires_at is
  'Until when its worker has it, unless it extends the lease; null: it does not run.';
comment on column jobq.job.cancel_requested_at is
  'When somebody asked its worker to stop it; null: nobody did, or it does not run.';
comment on column jobq.job.progressed_at is 'When the run last said how far it is.';
comment on column jobq.job.progress_percent is '0 to 100, as the run says.';
comment on column jobq.job.progress_stage is 'As the run says.';
comment on column jobq.job.progress_message is 'As the run says.';
comment on column jobq.job.timeout is 'How long a run may take; null: as long as it likes.';
comment on column jobq.job.backoff_base is
  'How long the job waits after its first failure, doubled with each further one; null: 1 second.';
comment on column jobq.job.backoff_max is 'The longest such wait; null: 1 day.';
comment on column jobq.job.unique_key is 'At most one unfinished job of the kind has this key; null: none.';
comment on column jobq.job.last_error is 'Why the last run failed, or the job was cancelled; null: neither.';
comment on column jobq.job.clear_reason is 'Why the last run was taken from its worker; null: it was not.';
comment on column jobq.job.tags is 'For filters of people; null: none.';
comment on column jobq.job.metadata is 'What the producer noted beside the args, such as a trace; null: nothing.';
comment on column jobq.job.args is 'What the handler gets; null: retention has deleted them.';
comment on column jobq.job.checkpoint is 'What a run has saved for the next one to go on with; null: nothing.';
comment on column jobq.job.result is 'What the handler of a completed job gave; null: nothing.';
comment on column jobq.job.partition_key is 'What the job belongs to, such as a customer; null: nothing.';
comment on column jobq.job.lost is
  'How many runs were lost without using an attempt, since max_lost was set. A requeue forgets them.';
comment on column jobq.job.max_lost is
  'How many may be; null: a lost run uses an attempt, unless its queue has a max_lost, which is shown after a loss.';

-- run_end is what is known about the end of a row of run: since when the job was held and by whom, and when it ended
-- (null while it runs). It takes the row's lease_id, slot and finished_at, and always returns one row. An end is never
-- taken back, so callers need no lock. The planner inlines the function, and finds the lease by its key.
create function jobq.run_end(lease_id bigint, slot smallint, finished_at timestamptz)
  returns table (claimed_at timestamptz, owner text, ended_at timestamptz)
  language sql stable parallel safe rows 1
  begin atomic
    select l.claimed_at, l.owner, coalesce(run_end.finished_at, l.claimed_at + nullif(l.ended_ms, -1) * interval '1 ms')
      from (select) run
      left join lateral (
        select x.claimed_at, x.owner, x.ended_ms[array_position(x.ended_slots, run_end.slot)] as ended_ms
          from jobq.lease x where x.id = run_end.lease_id
        union all
        select x.claimed_at, x.owner, x.ended[run_end.slot] from jobq.past_lease x where x.id = run_end.lease_id
        limit 1
      ) l on true;
  end;

-- job_exists says whether a job exists, in whatever table. It looks in all of them with one statement: with several, a
-- job that moves fast between pending and run could be missed by each.
create function jobq.job_exists(job_id bigint) returns boolean
  language sql stable
  return exists (select from jobq.pending p where p.id = job_id) or exists (select from jobq.run r where r.id = job_id);

-- moving_refuse raises an error for a job that has moved to another table each time that it was looked for. Clients try
-- again after this error.
create function jobq.moving_refuse(job_id bigint) returns void
  language plpgsql
  as $$
begin
  raise serialization_failure using message = format('job %s moves too fast: try again', job_id);
end $$;

-- running_refuse raises an error if a job runs, for actions that are not possible on a running job.
create function jobq.running_refuse(job_id bigint) returns void
  language plpgsql
  as $$
begin
  if exists (
    select from jobq.run r
      cross join lateral jobq.run_end(r.lease_id, r.slot, r.finished_at) e
      where r.id = running_refuse.job_id and e.ended_at is null
  ) then
    raise sqlstate 'JQ003' using
      message = format('job %s is running', running_refuse.job_id),
      hint = 'Cancel it first, or let it end.';
  end if;
end $$;
