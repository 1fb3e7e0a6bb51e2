-- Functions with which a program reports about its own run, in a transaction of its own: so an effect
-- and the end of its job are stored together or not at all (docs/transactional-completion.md). Each
-- call is fenced as the worker's own statements are (sql/queries/end.sql). The token
-- names three things. The lease. When it was claimed, since a lease's id may come again after a
-- failover. And the job's slot in it: with the token of another job of the same
-- claim, a program could otherwise end that job, and its worker would then store the job's plain end as well.
-- A message authentication code follows: a program cannot make the token of another run.
--
-- None of these functions writes the lease. The worker goes on extending it, and stores the
-- end there when the program has ended. The row of run is locked until the transaction ends.

-- The key of the codes in run tokens: 64 bytes for the inner hash and 64 for the outer one. Only the owner reads the
-- table. A dump carries it. An update of it makes the tokens of all current runs invalid, until their workers start
-- anew.
create table jobq.secret (
  singleton boolean not null primary key default true check (singleton),
  run_key   bytea   not null check (octet_length(run_key) = 128)
);
comment on table jobq.secret is 'The key of the codes in run tokens. Only the owner reads it.';
insert into jobq.secret (run_key)
  select string_agg(sha256(convert_to(gen_random_uuid()::text || gen_random_uuid()::text || gen_random_uuid()::text,
      'UTF8')), '')
    from generate_series(1, 4);

-- run_key gives workers the key, with which they make tokens for their programs.
create function jobq.run_key() returns bytea
  language sql stable security definer set search_path = pg_catalog, pg_temp
  as $$
    select s.run_key from jobq.secret s
  $$;

-- run_token_code is the code of a run token: the first 128 bits of the nested SHA-256 of what is in front of it.
-- worker/external.go computes the same.
create function jobq.run_token_code(run text) returns text
  language sql stable
  as $$
    select left(encode(sha256(substr(s.run_key, 65) || sha256(substr(s.run_key, 1, 64) || convert_to(run, 'UTF8'))),
        'hex'), 32)
      from jobq.secret s
  $$;

-- run_token_check raises for what is no run token, and for a token that no worker has made. The server's log then says
-- who has tried, since that is guessing or a mistake of a program. The hashes make the time of the comparison say
-- nothing.
create function jobq.run_token_check(of_job bigint, run_token text) returns void
  language plpgsql
  as $$
begin
  if run_token is null or run_token !~ '^[0-9]{1,18}[.][0-9]{1,18}[.][0-9]{1,5}[.][0-9a-f]{32}$' then
    raise sqlstate 'JQ001' using
      message = format('token must be a run token such as 362838488514562.1795737600000000.1.%s, not %L',
          repeat('0f', 16), left(run_token, 80)),
      hint = 'A program has it in JOBQ_RUN_TOKEN, or as run_token of its job, if its kind has ends_itself or steps.';
  end if;
  if sha256(convert_to(right(run_token, 32), 'UTF8')) is distinct from
    sha256(convert_to(jobq.run_token_code(left(run_token, -33)), 'UTF8'))
  then
    raise log 'jobq: % has called a function for job % with a run token that no worker has made', session_user, of_job;
    raise sqlstate 'JQ001'
      using message = format('the run token for job %s was not made by a worker of this database', of_job),
          hint = 'Pass JOBQ_RUN_TOKEN, or run_token of the job, as it is. A token is for its own run only.';
  end if;
end $$;

-- run_held locks the row of the run with the token, and returns its lease. It waits for
-- a row that somebody has locked, for 30 seconds at most. It raises an error if the run has ended or its lease is lost.
-- RunProgress skips a row with this lock: otherwise it would wait for the row of
-- progress, and the reports of all other runs with it. The plan is made for this
-- token, so it locks only the run's own day of the history.
-- Needs run_id_idx and lease_pkey only.
create function jobq.run_held(of_job bigint, run_token text)
    returns table (lease_id bigint, claimed_at timestamptz, owner text)
  language plpgsql set plan_cache_mode = force_custom_plan set enable_seqscan = off set jit = off
      set lock_timeout = '30s'
  as $$
begin
  if of_job is null then
    raise sqlstate 'JQ001' using message = 'job_id must not be null';
  end if;
  perform jobq.run_token_check(of_job, run_token);
  lease_id := split_part(run_token, '.', 1)::bigint;
  claimed_at := timestamptz 'epoch' + split_part(run_token, '.', 2)::bigint * interval '1 microsecond';
  select l.owner into owner
    from jobq.run r
    join jobq.lease l on l.id = r.lease_id
    where r.id = of_job and r.lease_id = run_held.lease_id and r.state is null
      and r.slot = split_part(run_token, '.', 3)::integer and l.claimed_at = run_held.claimed_at and l.lost_at is null
      and r.slot <> all(l.ended_slots)
    for update of r;
  if not found then
    raise sqlstate 'JQ005' using message = format('job %s: this run has ended, or its lease is lost', of_job),
      hint = 'Roll back. If the job is not over, another run does its work.';
  end if;
  return next;
end $$;

-- run_close ends a run as RunEnd does, which explains each outcome, and
-- returns the job's new state. Each end leaves an attempt: from it the worker learns
-- how the run has ended, and adds what the program has written (AttemptKeep). With waits,
-- the job then waits for others, for which the caller has added dependencies.
-- Needs run_id_idx and progress_pkey only.
create function jobq.run_close(of_job bigint, run_token text, outcome jobq.attempt_outcome, error text, delay interval,
    final boolean, result jsonb,
    waits boolean default null)
  returns jobq.job_state
  language plpgsql set plan_cache_mode = force_custom_plan set enable_seqscan = off set jit = off
  as $$
declare
  held record;
  job jobq.run;
  ended_at timestamptz;
  attempts_after integer;
  error_after text;
  checkpoint_after jsonb;
  went_to jobq.job_state;
begin
  select * into held from jobq.run_held(of_job, run_token);
  select r.* into strict job from jobq.run r where r.id = of_job and r.lease_id = held.lease_id;
  ended_at := clock_timestamp();
  delete from jobq.progress p where p.job_id = of_job
    returning case when p.lease_id = held.lease_id then p.checkpoint end into checkpoint_after;
  checkpoint_after := coalesce(checkpoint_after, job.checkpoint);
  attempts_after := job.attempts + case when outcome = 'failed' then 1 else 0 end;
  error_after := case when outcome = 'failed' then jobq.error_kept(error) else job.last_error end;
  went_to := jobq.next_state(outcome::text, job.attempts, job.max_attempts, final, job.cancel_requested_at is not null,
    delay, waits);
  if went_to in ('completed', 'failed', 'cancelled') then
    update jobq.run r
      set state = went_to, finished_at = ended_at, attempts = attempts_after, last_error = error_after,
          result = run_close.result, checkpoint = checkpoint_after
      where r.id = of_job and r.lease_id = held.lease_id;
  else
    delete from jobq.run r where r.id = of_job and r.lease_id = held.lease_id;
    insert into jobq.pending
      select p.*
        from jobq.pending_of(job, case when waits is null then nextval('jobq.position_seq') end,
          ended_at + coalesce(delay, jobq.backoff_delay(attempts_after, job.backoff_base, job.backoff_max)),
          attempts_after, 0, -- its process has lived
          error_after, null, checkpoint_after, run_close.waits) p;
  end if;
  insert into jobq.attempt (job_id, finished_at, started_at, lease_token, outcome, number, worker_id, error)
    values (of_job, ended_at, held.claimed_at, held.lease_id, run_close.outcome, job.attempts + 1, held.owner,
        left(run_close.error, 16384));
  if outcome <> 'snoozed' or went_to = 'cancelled' then
    insert into jobq.stat_delta (minute, queue, kind, completed, failed, retried, lost, cancelled, run_seconds,
        wait_seconds)
      values (date_trunc('minute', ended_at), job.queue, job.kind,
        case when went_to = 'completed' then 1 else 0 end,
        case when went_to = 'failed' then 1 else 0 end,
        case when outcome = 'failed' and went_to in ('available', 'scheduled') then 1 else 0 end, 0,
        case when went_to = 'cancelled' then 1 else 0 end,
        case when went_to <> 'cancelled' then extract(epoch from ended_at - held.claimed_at)::float8 else 0 end,
        case when went_to = 'completed'
        then extract(epoch from held.claimed_at - greatest(job.run_at, job.created_at))::float8 else 0 end);
  end if;
  return went_to;
end $$;

-- delay_require raises for a delay that is beyond its limits.
create function jobq.delay_require(name text, delay interval) returns void
  language plpgsql
  as $$
begin
  if delay < interval '0' or delay > interval '10 years' then
    raise sqlstate 'JQ001' using message = format('%s must be 0 to 10 years, not %s', name, delay);
  end if;
end $$;

-- complete ends the job of a run as completed, with the result.
create function jobq.complete(job_id bigint, token text, result jsonb default null) returns void
  language plpgsql security definer set search_path = pg_catalog, pg_temp
  as $$
begin
  perform jobq.run_close(job_id, token, 'completed', null, null, false, result);
end $$;
comment on function jobq.complete is
  'Ends a run well, in the program''s own transaction. The token is that of the run.';

-- fail ends a run as a failed attempt, and returns the job's new state. The job runs again after its backoff, or after
-- the given delay, unless this was its last attempt, or final is true.
create function jobq.fail(job_id bigint, token text, error text, delay interval default null,
    final boolean default false) returns jobq.job_state
  language plpgsql security definer set search_path = pg_catalog, pg_temp
  as $$
begin
  perform jobq.delay_require('delay', delay);
  return jobq.run_close(job_id, token, 'failed', coalesce(nullif(error, ''), 'the handler gave no reason'), delay,
      coalesce(final, false), null);
end $$;
comment on function jobq.fail is 'Ends a run as failed; returns what became of the job.';

-- snooze makes the job run again after a delay, or at a time, without using an
-- attempt. It returns the job's new state.
create function jobq.snooze(job_id bigint, token text, delay interval default null, until timestamptz default null)
    returns jobq.job_state
  language plpgsql security definer set search_path = pg_catalog, pg_temp
  as $$
begin
  if (delay is null) = (until is null) then
    raise sqlstate 'JQ001' using message = 'snooze needs either a delay or until';
  end if;
  delay := coalesce(delay, greatest(until - clock_timestamp(), interval '0'));
  perform jobq.delay_require(case when until is null then 'delay' else 'the time to until' end, delay);
  return jobq.run_close(job_id, token, 'snoozed', null, delay, false, null);
end $$;
comment on function jobq.snooze is 'Ends a run; the job runs again later, and uses no attempt.';

-- sql/roles.sql says who may call them.
revoke all on jobq.secret from public;
