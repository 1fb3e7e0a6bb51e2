-- How a job changes its table, and how an end is decided. Each is said once, here, for all statements.
--
-- run_of and pending_of alone name all columns of a job. So a column that is added to pending and run is added here,
-- and where it is used. They are SQL functions of one row, in FROM: the planner puts their columns into the statement,
-- and no row is made for the call (docs/decisions/0050). It can do so only if no argument is volatile or has a
-- subquery. So statements for many jobs take such values from a subquery beside the call. A row of a CTE is passed as
-- row(t.*)::jobq.pending. The queries write returning (p).* for p.*, of which sqlc would make a list: then an older
-- worker would not carry a column that a later migration adds.

-- run_of is the row of run of a job that was in pending. It ends at once if state is given: then with finished_at, and
-- with the reason as its last error, if there is one.
create function jobq.run_of(job jobq.pending, lease_id bigint, slot smallint, state jobq.job_state default null,
    finished_at timestamptz default null, reason text default null) returns setof jobq.run
  language sql stable parallel safe rows 1
  begin atomic
    select job.id, lease_id, job.position, nullif(job.run_at, job.created_at), job.created_at,
      null::timestamptz, -- began_at
      finished_at,
      null::timestamptz, -- cancel_requested_at
      job.timeout, job.backoff_base, job.backoff_max, state, slot, job.priority, job.attempts, job.max_attempts,
      job.crashes, job.args_apart, job.queue, job.kind, nullif(job.partition_key, ''), job.args, job.unique_key,
      coalesce(reason, job.last_error), job.clear_reason, job.checkpoint, job.metadata, job.tags,
      null::jsonb, -- result
      job.lost, job.max_lost::smallint;
  end;

-- pending_of is the row of pending of a job that was in run, and that waits again. What a run may change is given; all
-- else stays.
create function jobq.pending_of(run jobq.run, "position" bigint, run_at timestamptz, attempts integer,
    crashes integer, last_error text, clear_reason text, checkpoint jsonb, waits boolean default null,
    lost integer default null) -- null: as it was
    returns setof jobq.pending
  language sql stable parallel safe rows 1
  begin atomic
    select run.id, "position", run.lease_id, run_at, run.created_at, run.timeout, run.backoff_base, run.backoff_max,
      run.priority, attempts::smallint, run.max_attempts, crashes::smallint, run.args_apart, run.queue, run.kind,
      coalesce(run.partition_key, ''), run.args, run.unique_key, last_error, clear_reason, checkpoint, run.metadata,
      run.tags, waits, coalesce(lost::smallint, run.lost), run.max_lost;
  end;

-- next_state says what becomes of a job whose run has ended, or was lost:
--
--   outcome                         state
--   completed, cancelled            the same
--   failed, timed_out, lost         failed, if it was the last attempt, or is final
--   what is left                    cancelled, if somebody has asked for that; waiting, if it waits for other jobs;
--                                   available, if it was released or the delay is over; else scheduled
--
-- A lost run that somebody has asked to cancel is cancelled even if it was the last: nobody saw it fail. attempts is
-- their number before the run. A null delay is a backoff. It is inlined, as the two above.
create function jobq.next_state(outcome text, attempts integer, max_attempts integer, final boolean,
    cancel_asked boolean, delay interval, waits boolean default null) returns jobq.job_state
  language sql stable parallel safe
  return case
    when outcome in ('completed', 'cancelled') then outcome::jobq.job_state
    when outcome = 'lost' and cancel_asked then 'cancelled'::jobq.job_state
    when outcome in ('failed', 'timed_out', 'lost') and (final or attempts + 1 >= max_attempts)
      then 'failed'::jobq.job_state
    when cancel_asked then 'cancelled'::jobq.job_state
    when waits then 'waiting'::jobq.job_state
    when outcome = 'released' or delay <= interval '0' then 'available'::jobq.job_state
    else 'scheduled'::jobq.job_state
  end;

-- error_kept is what a job keeps of the error of a run: of a long one the beginning, whose first line is its summary,
-- and the end, where stack traces have the cause.
create function jobq.error_kept(error text) returns text
  language sql stable parallel safe -- as format
  return case
    when char_length(error) <= 1000 then error
    else left(error, 480) || format(E'\n… %s characters cut …\n', char_length(error) - 960) || right(error, 480)
  end;

-- backoff_delay is how long a job waits after so many failures: exponential with full jitter (M. Brooker,
-- "Exponential Backoff And Jitter", AWS Architecture Blog, 2015). The default base is 1 second. It is doubled
-- with each further failure, 20 times at most; the default cap is a day. The function must not fail for any
-- row, since the statement that ends many jobs would fail with it. An interval of years would overflow when
-- doubled, so it counts in seconds. An interval that passes the CHECK can have another length here: 100
-- months less 2,999 days is one day for the CHECK, which takes a month for 30 days, and 43 days here.
create function jobq.backoff_delay(failures integer, base interval, cap interval) returns interval
  language sql volatile parallel safe
  return random() * greatest(least(
    extract(epoch from coalesce(cap, interval '1 day')),
    extract(epoch from coalesce(base, interval '1 s')) * power(2, least(greatest(failures, 1) - 1, 20)),
    extract(epoch from interval '10 years')), 0) * interval '1 s';
