-- Leases: what is held now, by whom, and until when; and those of the past.

-- A lease's id is the token of the jobs that it holds. It has its day in front: (days since
-- 2026-01-01) * 2^40 + a number from a sequence. So it grows with every claim, and
-- it alone says which partition of run to look in. It stays below 2^53, which readers
-- of JSON can hold, until 2048. After a restore of an older copy that nobody has noticed (see
-- generation_check), later ones may get their ids again. So where an id may be old, claimed_at goes with it.
create sequence jobq.lease_number_seq as bigint maxvalue 1099511627775 cycle;

-- The day of the latest lease, as days since 2026-01-01. It keeps ids from going down when the clock is set back.
create sequence jobq.lease_day_seq as bigint minvalue 0 start 0;

-- The first id of the leases of a day.
create function jobq.lease_day(day date) returns bigint
  language sql immutable parallel safe
  return (day - date '2026-01-01')::bigint << 40;

-- lease_id_next is the id of a new lease. Its day is the clock's. If the clock went back by at most two days, it stays
-- the day of the latest lease: the janitor makes days three days ahead. A clock before 2026 is wrong, and the latest
-- day is used however far ahead it is. If the clock went back further, it was wrong before, and the ids follow it: they
-- go down once, but the number in them does not repeat.
--
--   clock       latest day  day of the id
--   2026-11-28  2026-11-27  2026-11-28
--   2026-11-27  2026-11-28  2026-11-28  it was set back over midnight
--   2025-01-01  2026-11-28  2026-11-28
--   2026-11-28  2031-05-06  2026-11-28  it was years ahead
create function jobq.lease_id_next() returns bigint
  language plpgsql
  as $$
declare
  today bigint := greatest((clock_timestamp() at time zone 'UTC')::date - date '2026-01-01', 0);
  latest bigint := coalesce(pg_sequence_last_value('jobq.lease_day_seq'), 0);
begin
  if jobq.timeline() <> pg_sequence_last_value('jobq.timeline_seq') then
    perform jobq.generation_check();
  end if;
  if latest > today and (today = 0 or latest <= today + 2) then
    today := latest;
  elsif latest <> today then
    perform setval('jobq.lease_day_seq', today);
  end if;
  return (today << 40) + nextval('jobq.lease_number_seq');
end $$;

-- What is held now: one row per claim, for all jobs that it took. Only its owner
-- and whoever takes it away (LeaseReap) write it. A run that plainly succeeds is
-- one number here, and nothing in run.
--
-- Example: a claim takes jobs 41, 42 and 43 at 12:00:00, which get the slots 1, 2
-- and 3. After 250 ms, 41 succeeds; after 400 ms, 42 has failed:
--
--   job_ids {41, 42, 43}, ended_slots {1, 2}, ended_ms {250, -1}: 43 still runs
--
-- When 43 has ended as well, the lease moves to past_lease. Small and not
-- partitioned: a statement that touches a partitioned table locks all partitions.
-- The fillfactor leaves extensions and ends room on their page.
--
-- A worker claims more jobs than it has free slots, and begins them in the order of
-- their slots. begun grows before it begins a job beyond it. So a job beyond begun has
-- never begun, and has used no attempt if the lease is lost. A row that does not say
-- counts all its jobs as begun.
create table jobq.lease (
  id          bigint      not null,
  claimed_at  timestamptz not null,
  expires_at  timestamptz not null,
  -- not null: taken away from its owner, whose writes are refused; when a reaper looked at it last
  lost_at     timestamptz,
  begun       smallint    not null default 32767, -- the jobs of slots 1 to begun may have begun
  owner       text        not null,
  queue       text        not null,
  ended_slots smallint[]  not null default '{}', -- of jobs that have ended, in the order in which they did
  -- beside each, how long after claimed_at it succeeded; -1: its row of run says how it ended
  ended_ms    smallint[]  not null default '{}',
  job_ids     bigint[]    not null, -- by slot
  lost_reason text, -- not null: an operator says that the worker is lost (act_lost): its jobs use no attempt
  constraint lease_pkey primary key (id)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);
comment on table jobq.lease is 'What is claimed now: a row for each claim, with all its jobs. Only jobq writes it.';
comment on column jobq.lease.id is 'The token of the jobs'' runs. Grows with each claim.';
comment on column jobq.lease.claimed_at is 'By the clock of the database.';
comment on column jobq.lease.expires_at is
  'After this a janitor takes the jobs away, unless the worker has extended it.';
comment on column jobq.lease.lost_at is
  'Not null: a janitor took it from its owner, whose writes are refused since; when one looked at it last.';
comment on column jobq.lease.begun is 'Jobs of the slots 1 to begun may have begun. Those beyond it have not.';
comment on column jobq.lease.owner is 'The worker.';
comment on column jobq.lease.queue is 'Of the jobs.';
comment on column jobq.lease.ended_slots is 'Places in job_ids of jobs that have ended.';
comment on column jobq.lease.ended_ms is
  'Beside each, the milliseconds after claimed_at at which it succeeded; -1: see its row of jobq.run.';
comment on column jobq.lease.job_ids is 'The jobs, by slot.';
comment on column jobq.lease.lost_reason is
  'Not null: an operator has said that the worker is lost, and why. The jobs go back without an attempt.';
-- The ids are never written again when apart; the ends are small enough to stay.
alter table jobq.lease alter job_ids set storage external, alter ended_slots set storage main, alter ended_ms
    set storage main;
-- What runs in a queue, for those with a limit: see queue_admit.
create index lease_queue_idx on jobq.lease (queue);

-- The leases of which no job runs any more, for the history. Written once.
create table jobq.past_lease (
  id         bigint      not null,
  claimed_at timestamptz not null,
  owner      text        not null,
  ended      smallint[]  not null, -- by slot: as ended_ms of lease
  constraint past_lease_pkey primary key (id)
) partition by range (id);
comment on table jobq.past_lease is
  'Claims of which no job runs any more: who ran them, and when they succeeded. Only jobq writes it.';
comment on column jobq.past_lease.id is 'The token of the jobs'' runs.';
comment on column jobq.past_lease.claimed_at is 'By the clock of the database.';
comment on column jobq.past_lease.owner is 'The worker.';
comment on column jobq.past_lease.ended is
  'By slot, the milliseconds after claimed_at at which the job succeeded; -1: see its row of jobq.run.';
alter table jobq.past_lease alter ended set storage main;
create table jobq.past_lease_default partition of jobq.past_lease default;

-- runs_over takes runs, each with its lease, slot and job, and returns by lease the slots of those that have ended on
-- their own row of run, or have left the table. LeaseEnd calls it, with its own snapshot. It is in plpgsql so that its
-- query, which locks every day of the history, is no part of that statement.
create function jobq.runs_over(leases bigint[], slots smallint[], jobs bigint[])
    returns table (lease_id bigint, over smallint[])
  language plpgsql stable
  as $$
begin
  -- The look is a scalar subquery, which never becomes a join. Needs run_id_idx only.
  return query
    select x.lease_id, array_agg(distinct x.slot)
      from unnest(leases, slots, jobs) as x(lease_id, slot, job_id)
      where (select r.state is null from jobq.run r where r.id = x.job_id and r.lease_id = x.lease_id
          limit 1) is not true
      group by x.lease_id;
end $$;
