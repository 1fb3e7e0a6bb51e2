-- Who waits for jobs to end, and how they hear of it: see docs/results.md.

-- Until when somebody waits for a job to end, as the epoch in seconds: while nobody does, whoever ends
-- a job looks at no more than this.
create sequence jobq.awaited_seq as bigint minvalue 0 start 0;

-- The processes that wait. Each renews its row; one that has died no longer does, and
-- the next that waits deletes what it has left. Neither table is worth anything after
-- a crash: whoever waits then has lost its connection, and says again for what.
create unlogged table jobq.waiter (
  id         bigint      not null,
  expires_at timestamptz not null,
  constraint waiter_pkey primary key (id)
);
comment on table jobq.waiter is 'Processes that wait for ends of jobs.';

-- The jobs for which they wait. Who ends a job only reads this, since it must not wait
-- for a row; who waits deletes its own.
create unlogged table jobq.awaited (
  job_id    bigint not null,
  waiter_id bigint not null,
  constraint awaited_pkey primary key (job_id, waiter_id)
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);
comment on table jobq.awaited is 'The jobs for which they wait.';
create index awaited_waiter_idx on jobq.awaited (waiter_id);

-- waiters_forget deletes what expired waiters have left: up to 2,000 jobs of up to 100
-- waiters, and up to 100 waiters that have no job any more. It waits for no row. It
-- returns true if it has deleted fewer than 2,000 jobs: then nothing is left, unless
-- more than 100 waiters had expired, or somebody had locked rows. It must be the last
-- call of a transaction: it locks rows of others, so the transaction must not wait for
-- anybody afterwards.
create function jobq.waiters_forget() returns boolean
  language plpgsql security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off set jit = off
  as $$
declare
  forgotten bigint;
begin
  with gone as (
    delete from jobq.awaited a
      where a.ctid = any(array(
        select x.place
          from (select w.id from jobq.waiter w where w.expires_at < statement_timestamp() limit 100) w
          cross join lateral (select x.ctid as place from jobq.awaited x
              where x.waiter_id = w.id limit 2000 for update skip locked) x
          limit 2000))
      returning a.job_id
  )
  select count(*) into forgotten from gone;
  delete from jobq.waiter w
    where w.ctid = any(array(
      select x.ctid
        from jobq.waiter x
        where x.expires_at < statement_timestamp() and (select true from jobq.awaited a
            where a.waiter_id = x.id limit 1) is null
        limit 100
        for update skip locked));
  return forgotten < 2000;
end $$;

-- await says that a process waits for jobs to end (jobs), and no longer for others
-- (done), and renews its lease when a third of that has gone. It returns whether the
-- process was known: if not, it has to say anew for which other jobs it waits. A lease
-- of more than a minute is one of a minute, since every end looks for waiters until the
-- last lease is over. Up to 1,000 jobs of each can be named; null stands for none.
--
-- Whoever waits must look at the jobs once more when this has been committed: what
-- has ended before that was told to nobody. And again a little later, because what
-- ends in the same moment may have read the table before, and be committed after:
--
--   0 ms  the end of job 7 begins; nobody waits for it
--   1 ms  await(…, '{7}') is committed; the waiter looks: job 7 is running
--   2 ms  the end of job 7 is committed, and nobody is told
create function jobq.await(waiter bigint, jobs bigint[], done bigint[], lease interval) returns boolean
  language plpgsql security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off set jit = off
  as $$
declare
  span constant interval := least(await.lease, interval '1 minute');
  until timestamptz;
  known boolean;
  renewed boolean;
  problem text;
begin
  problem := case
    when await.waiter is null then 'waiter must not be null'
    when await.lease is null
        or await.lease <= interval '0'
        then format('lease must be more than 0 s, not %s', coalesce(await.lease::text, 'null'))
    when greatest(cardinality(await.jobs), cardinality(await.done)) > 1000 then
      format('jobs and done must be at most 1000 each in one call, not %s',
          greatest(cardinality(await.jobs), cardinality(await.done)))
    when array_position(await.jobs, null) is not null then 'jobs must not be null'
  end;
  if problem is not null then
    raise sqlstate 'JQ001' using message = problem;
  end if;
  select w.expires_at into until from jobq.waiter w where w.id = await.waiter;
  known := found;
  renewed := not known or until < clock_timestamp() + span * 2 / 3;
  if renewed then
    insert into jobq.waiter as w (id, expires_at) values (await.waiter, clock_timestamp() + span)
      on conflict (id) do update set expires_at = excluded.expires_at; -- others may have deleted it meanwhile
    perform setval('jobq.awaited_seq', greatest(coalesce(pg_sequence_last_value('jobq.awaited_seq'), 0),
      ceil(extract(epoch from clock_timestamp() + span))::bigint));
  end if;
  delete from jobq.awaited a where a.waiter_id = await.waiter and a.job_id = any(await.done);
  insert into jobq.awaited (job_id, waiter_id)
    select j.id, await.waiter from unnest(await.jobs) as j(id)
    on conflict do nothing;
  if renewed then
    perform jobq.waiters_forget();
  end if;
  return known;
end $$;
comment on function jobq.await is 'Asks for notifications of the ends of jobs: docs/results.md.';

-- await_end says that a process waits no more. It returns whether all that it had
-- announced is deleted (waiters_forget): if not, call it again, or leave the rest to
-- those who wait next.
create function jobq.await_end(waiter bigint) returns boolean
  language plpgsql security definer set search_path = pg_catalog, pg_temp
  as $$
begin
  update jobq.waiter w set expires_at = '-infinity' where w.id = await_end.waiter;
  return jobq.waiters_forget();
end $$;
comment on function jobq.await_end is 'Takes that back.';

-- waiters_wake tells whoever waits for one of these jobs that it may have ended. With
-- slots, it is only about the jobs in these places of the array. A payload has ids
-- with spaces between them, 300 at most, so that it stays below the limit of 8,000 bytes.
--
-- Commits with a NOTIFY go one at a time, each with its own wait for the disk. So nothing is
-- said of jobs for which nobody waits.
create function jobq.waiters_wake(jobs bigint[], slots smallint[] default null) returns void
  language plpgsql security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off set jit = off
  as $$
declare
  ended bigint[] := case when waiters_wake.slots is null then jobs
      else array(select jobs[s] from unnest(waiters_wake.slots) s) end;
  payload text;
begin
  -- Most jobs that end are far from those for which somebody waits: one look at the
  -- index tells, in place of one for each.
  if not exists (
      select from jobq.awaited a
        where a.job_id >= (select min(e) from unnest(ended) e) and a.job_id <= (select max(e)
            from unnest(ended) e)) then
    return;
  end if;
  for payload in
    select string_agg(w.job_id::text, ' ')
      from (
        select d.job_id, row_number() over () / 300 as part
          from (select distinct a.job_id from jobq.awaited a where a.job_id = any(ended)) d
      ) w
      group by w.part
  loop
    perform jobq.notify('ended', payload);
  end loop;
end $$;

create function jobq.run_waiters_wake() returns trigger
  language plpgsql security definer set search_path = pg_catalog, pg_temp
  as $$
begin
  perform jobq.waiters_wake(array[new.id]);
  return null;
end $$;
-- Of all ends on rows of their own, whoever writes them. Plain ends are not seen here:
-- LeaseEnd tells of these; and cancel and delete_job of jobs that had not begun.
create trigger run_waiters_wake after update on jobq.run
  for each row when (new.state is not null and old.state is null
    and pg_sequence_last_value('jobq.awaited_seq') >= extract(epoch from clock_timestamp()))
  execute function jobq.run_waiters_wake();

-- result is how a job has ended: the state, the result that its handler gave, why it
-- did not complete, and when. While it waits or runs, there is only the state. No row
-- when there is no such job.
create function jobq.result(job_id bigint)
    returns table (state jobq.job_state, result jsonb, error text, finished_at timestamptz)
  language sql stable
  begin atomic
    select j.state, j.result, case when j.state in ('failed', 'cancelled') then j.last_error end, j.finished_at
      from jobq.job j
      where j.id = result.job_id;
  end;
comment on function jobq.result is 'State, result, error and end of a job: no row for no such job. Does not wait.';
