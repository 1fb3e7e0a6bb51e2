-- What columns may hold, and the defaults that more than one place needs.

do $$
begin
  if getdatabaseencoding() <> 'UTF8' then
    raise 'the database has the encoding %, and jobq needs UTF8', getdatabaseencoding()
      using hint = 'Make a database with: create database NAME encoding ''UTF8'' template template0';
  end if;
end $$;

create type jobq.job_state as enum
  ('waiting', 'scheduled', 'available', 'running', 'completed', 'failed', 'cancelled');
comment on type jobq.job_state is 'Where a job is in its life.';

-- How a run ended. `lost` is the only one that the worker did not write itself.
create type jobq.attempt_outcome as enum
  ('completed', 'failed', 'timed_out', 'lost', 'cancelled', 'released', 'snoozed', 'unreadable');
comment on type jobq.attempt_outcome is 'How a run ended.';

-- Defaults that more than one table or statement needs, so that each stands in one
-- place. The planner folds them into constants. Package jobq has the same values.
create function jobq.max_attempts_default() returns smallint
  language sql immutable parallel safe
  return 25::smallint;
comment on function jobq.max_attempts_default is '25. Do not replace it.';

create function jobq.lease_default() returns interval
  language sql immutable parallel safe
  return interval '60 s';
comment on function jobq.lease_default is '60 seconds. Do not replace it.';

-- has_months says whether one of the spans has months or years. As seconds, a month is 30 days and a year 365.25 days:
-- nobody who writes '1 month' means that. A schedule says it with cron.
create function jobq.has_months(spans interval[]) returns boolean
  language sql immutable parallel safe
  return (select coalesce(bool_or(extract(year from s.span) <> 0 or extract(month from s.span) <> 0), false)
      from unnest(spans) as s(span));

create function jobq.age_after_default() returns interval
  language sql immutable parallel safe
  return interval '5 minutes';
comment on function jobq.age_after_default is '5 minutes. Do not replace it.';

-- What the columns of pending may hold: a domain for each column, job_ and its name. PostgreSQL plans the CHECKs of a
-- table for each statement, which cost a single insert more than all else did, and those of a domain once in a session
-- (decision 0046). Columns of jsonb and arrays have no domain, because drivers cannot handle such types.
--
-- One statement claims, ends or reaps many jobs. Arithmetic that fails for one of them would stop them all, so the
-- limits are narrow enough for all arithmetic.
create domain jobq.job_queue as text
  constraint "queue must be 1 to 128 characters" check (char_length(value) between 1 and 128);
create domain jobq.job_kind as text
  constraint "kind must be 1 to 128 characters" check (char_length(value) between 1 and 128);
create domain jobq.job_partition_key as text
  constraint "partition_key must be 1 to 255 characters" check (char_length(value) <= 255);
create domain jobq.job_unique_key as text
  constraint "unique_key must be 1 to 255 characters" check (char_length(value) between 1 and 255);
create domain jobq.job_max_attempts as smallint
  constraint "max_attempts must be 1 to 32767" check (value >= 1);
create domain jobq.job_max_lost as smallint
  constraint "max_lost must be 1 to 32767" check (value >= 1);
create domain jobq.job_last_error as text
  constraint "last_error must be at most 1000 characters" check (char_length(value) <= 1000);
create domain jobq.job_clear_reason as text
  constraint "clear_reason must be at most 1000 characters" check (char_length(value) <= 1000);
create domain jobq.job_timeout as interval
  constraint "timeout must be positive, at most 10 years" check (value > interval '0' and value <= interval '10 years')
  constraint "timeout and backoff must be without months and years"
      check (extract(month from value) = 0 and extract(year from value) = 0);
create domain jobq.job_backoff_base as interval
  constraint "backoff_base must be positive, at most 10 years"
      check (value > interval '0' and value <= interval '10 years')
  constraint "timeout and backoff must be without months and years"
      check (extract(month from value) = 0 and extract(year from value) = 0);
create domain jobq.job_backoff_max as interval
  constraint "backoff_max must be positive, at most 10 years"
      check (value > interval '0' and value <= interval '10 years')
  constraint "timeout and backoff must be without months and years"
      check (extract(month from value) = 0 and extract(year from value) = 0);
create domain jobq.job_run_at as timestamptz -- Go and JSON have no other years
  constraint "run_at must be in the years 1 to 9999"
      check (value >= '0001-01-01 00:00:00+00' and value < '10000-01-01 00:00:00+00');
create domain jobq.job_lease_token as bigint
  constraint "lease_token must be 0 to 2^62" check (value between 0 and 4611686018427387904);
