-- How runs end. Those that plainly succeed end in their lease (LeaseEnd). All others end on their own
-- row of run (RunEnd), and then in their lease (LeaseEnd). Neither statement waits for a row: so one
-- locked job cannot delay the results of others, and there are no deadlocks. Rows are taken by their
-- place (ctid). A row that was edited between the snapshot and the lock has another place; such a row
-- is not returned, and neither is a locked one. Schema.Exchange asks for these rows once more before it
-- reports them as lost.

-- LeaseEnd stores which jobs of leases have ended. It returns for each lease whether the ends were
-- recorded, and whether the lease was still the owner's (held). The caller asks again for a lease
-- that was held and not recorded. A lease of which no job runs any more moves to the history.
--
-- For lease i of ids, the slots plain[lows[i]] to plain[highs[i]] have plainly succeeded, now by the
-- server's clock. The rows elsewhere_leases, elsewhere_slots, elsewhere_jobs are jobs that have ended
-- on their own rows. Each of these counts if its row says that it has ended, or is gone: it does
-- neither if somebody has prevented the end from being stored. sum_* are for the statistics: by lease
-- and kind, how many jobs, and how many seconds they had waited.
--
-- It also says how far jobs of the leases may begin (begun), with or without ends: those beyond it have
-- not. begun never becomes smaller, so an earlier statement that comes late changes nothing. The worker
-- begins a job only after it knows that this was recorded.
--
-- A lease of which ends were stored gets its full time again, as by LeaseExtend; with a lease of 0 it
-- does not. The row is locked for as long as a round trip takes, and cannot be extended in that time:
-- if such calls follow one another and commits are slow, no extension would ever succeed.
--
-- A slot alone does not identify a job: after a failover to a standby that had not received a claim,
-- the same owner may get the same lease id for other jobs. So claimed_at identifies the lease,
-- together with its id.
--
-- No end of a lease is stored if
--
--   the lease is not the owner's any more;
--   somebody has locked it;
--   it has plain ends, and was claimed too long ago for a smallint of milliseconds;
--   it has one of the plain ends already, for example because an earlier answer was lost.
--
-- Otherwise it stores all plain ends, and those of the others that it does not have yet. So each end
-- is stored once, and each plain end is counted once. A lease that has expired but was not reaped is
-- still the owner's: nobody else has had its jobs.
--
-- Needs lease_pkey, and run_id_idx for the others, only.
-- name: LeaseEnd :many
with e as materialized (
  -- Where nothing ended elsewhere, it is not called, and no day of the history is locked.
  select o.lease_id, o.slots
    from rows from (
      jobq.runs_over(sqlc.arg(elsewhere_leases)::bigint[], sqlc.arg(elsewhere_slots)::smallint[],
          sqlc.arg(elsewhere_jobs)::bigint[])
    ) as o(lease_id, slots)
    where cardinality(sqlc.arg(elsewhere_jobs)::bigint[]) > 0
), f as materialized (
  select f.id, f.claimed_at, (sqlc.arg(plain)::smallint[])[f.low:f.high] as plain, coalesce(e.slots, '{}') as elsewhere,
      f.begun
    from rows from (unnest(sqlc.arg(ids)::bigint[]), unnest(sqlc.arg(claimed_ats)::timestamptz[]),
      unnest(sqlc.arg(lows)::integer[]), unnest(sqlc.arg(highs)::integer[]),
          unnest(sqlc.arg(begun)::smallint[])) as f(id, claimed_at, low, high, begun)
    left join e on e.lease_id = f.id
), held as materialized (
  select h.place, h.id, h.claimed_at, h.owner, h.queue, h.jobs, greatest(h.begun, f.begun) as begun,
      h.slots || f.plain || h.elsewhere as slots,
      h.ms || array_fill(h.now_ms, array[cardinality(f.plain)]) || array_fill(-1::smallint,
          array[cardinality(h.elsewhere)]) as ms
    from f
    cross join lateral (
      select x.ctid as place, x.id, x.claimed_at, x.owner, x.queue, x.begun, cardinality(x.job_ids) as jobs,
          x.ended_slots as slots, x.ended_ms as ms,
          least(greatest(extract(epoch from clock_timestamp() - x.claimed_at) * 1000, 0), 32767)::smallint as now_ms,
          array(select e.slot from unnest(f.elsewhere) as e(slot) where e.slot <> all(x.ended_slots)) as elsewhere
        from jobq.lease x
        where x.id = f.id and x.claimed_at = f.claimed_at and x.owner = sqlc.arg(owner) and x.lost_at is null
          and not x.ended_slots && f.plain
          and (f.plain = '{}' or x.claimed_at > statement_timestamp() - interval '32.7 s')
        for update skip locked
    ) h
), kept as (
  update jobq.lease l
    set ended_slots = h.slots, ended_ms = h.ms, begun = h.begun,
        expires_at = greatest(l.expires_at, clock_timestamp() + sqlc.arg(lease)::interval)
    from held h
    where l.id = h.id and l.ctid = any(array(select h.place from held h where cardinality(h.slots) < h.jobs))
    returning l.id
), closed as (
  delete from jobq.lease l
    where l.ctid = any(array(select h.place from held h where cardinality(h.slots) >= h.jobs))
    returning l.id
), past as (
  insert into jobq.past_lease (id, claimed_at, owner, ended)
    select h.id, h.claimed_at, h.owner, (select array_agg(u.ms order by u.slot) from rows
        from (unnest(h.slots), unnest(h.ms)) as u(slot, ms))
      from closed c
      join held h on h.id = c.id
), done as materialized (
  select k.id from kept k union all select c.id from closed c
), counted as (
  insert into jobq.stat_delta
      (minute, queue, kind, completed, failed, retried, lost, cancelled, run_seconds, wait_seconds)
    select date_trunc('minute', clock_timestamp()), h.queue, s.kind, s.jobs, 0, 0, 0, 0,
        s.jobs * extract(epoch from clock_timestamp() - h.claimed_at)::float8, s.waited
      from done d
      join held h on h.id = d.id
      join rows from (unnest(sqlc.arg(sum_leases)::bigint[]), unnest(sqlc.arg(sum_kinds)::text[]),
        unnest(sqlc.arg(sum_jobs)::integer[]), unnest(sqlc.arg(sum_waited)::float8[])) as s(lease_id, kind, jobs,
            waited) on s.lease_id = d.id
), hints as materialized (
  -- Two hints about plain ends. Once any job has ever waited for another, the janitor is to look at
  -- the children (parents_ended; the transaction got its id before this statement). While processes
  -- wait for jobs, they are notified. A lease whose ends were refused may give hints as well. For
  -- ends on rows of their own, triggers do the same.
  select
      case when pg_sequence_last_value('jobq.dependency_seq'::regclass) is not null
        then jobq.parents_ended((select x.job_ids from jobq.lease x where x.id = f.id limit 1), f.plain) end,
      case when pg_sequence_last_value('jobq.awaited_seq'::regclass) >= extract(epoch from statement_timestamp())
        then jobq.waiters_wake((select x.job_ids from jobq.lease x where x.id = f.id limit 1), f.plain) end
    from f
    where f.plain <> '{}'
)
select f.id::bigint as id, (f.id = any(array(select d.id from done d)))::boolean as recorded,
    -- With a limit, and not exists: PostgreSQL 18 would read all of lease into a hash table.
    ((select true from jobq.lease l where l.id = f.id and l.claimed_at = f.claimed_at and l.owner = sqlc.arg(owner)
        and l.lost_at is null limit 1) is not null)::boolean as held
  from f
  where (select count(*) from hints) >= 0;

-- LeaseLook returns which slots of the owner's leases have plainly succeeded (plain). It returns no row
-- for a lease that is not the owner's. Needs lease_pkey and past_lease_pkey only.
-- name: LeaseLook :many
select f.id::bigint as id, l.plain::smallint[] as plain
  from rows from (unnest(sqlc.arg(ids)::bigint[]), unnest(sqlc.arg(claimed_ats)::timestamptz[])) as f(id, claimed_at)
  cross join lateral (
    select array(select u.slot from rows from (unnest(x.ended_slots), unnest(x.ended_ms)) as u(slot, ms)
        where u.ms >= 0) as plain
      from jobq.lease x
      where x.id = f.id and x.claimed_at = f.claimed_at and x.owner = sqlc.arg(owner)
    union all
    select array(select u.slot::smallint from unnest(x.ended) with ordinality as u(ms, slot) where u.ms >= 0)
      from jobq.past_lease x
      where x.id = f.id and x.claimed_at = f.claimed_at and x.owner = sqlc.arg(owner)
    limit 1
  ) l;

-- RunEnd ends runs on their own rows, each under its current lease, and returns the new state of each
-- job. By outcome:
--
--   completed          to the history, with the result: of runs that do not plainly
--                      succeed, such as those with a unique key or output
--   failed, timed_out  attempts + 1; back to pending after the delay given or
--                      the row's backoff; failed for good if it was the last
--                      attempt or final is set
--   cancelled          to the history; attempts stay
--   released           back to its old place in the line; attempts stay
--   snoozed            back to pending after the delay; attempts stay
--   unreadable         as snoozed, and the error becomes the job's last one
--
-- A job that somebody has asked to cancel is cancelled instead of going back.
--
-- Each end leaves a row of attempt, with two exceptions. One is a job that never started (ran_us below
-- 0): it was released, it was cancelled before, or it is unreadable for the same reason as before. The
-- other is a job that completed without output and usage.
--
-- ran_us says how long ago the run began, by its worker's clock; with 0 it counts from the claim,
-- since nothing better is known. The time of cancelled runs is not counted: averages are of runs that
-- ended by themselves. Of a long error the job keeps the beginning, whose first line is its summary,
-- and the end, where stack traces have the cause.
--
-- It locks rows of run. It only reads whether the lease is the owner's, since a reaper that takes the
-- lease away must lock the row as well. If a run was sent before (retried), it locks the lease, too:
-- the first try may still be storing a plain end in it, and then nothing must end on its own row. A
-- ctid is unique within one partition only: hence the ids beside them. Needs lease_pkey, run_id_idx
-- and progress_pkey only.
-- name: RunEnd :many
with f as materialized (
  select f.id, f.token, f.claimed_at, f.retried, f.outcome, f.error, f.output, f.delay, f.final, f.ran_us, f.quiet,
      f.result, f.usage
    from rows from (unnest(sqlc.arg(ids)::bigint[]), unnest(sqlc.arg(tokens)::bigint[]),
      unnest(sqlc.arg(claimed_ats)::timestamptz[]), unnest(sqlc.arg(retried)::boolean[]),
      unnest(sqlc.arg(outcomes)::text[]), unnest(sqlc.arg(errors)::text[]), unnest(sqlc.arg(outputs)::text[]),
      unnest(sqlc.arg(delays)::interval[]), unnest(sqlc.arg(finals)::boolean[]), unnest(sqlc.arg(ran_us)::bigint[]),
      unnest(sqlc.arg(quiet)::boolean[]), unnest(sqlc.arg(results)::jsonb[]), unnest(sqlc.arg(usages)::jsonb[]))
      as f(id, token, claimed_at, retried, outcome, error, output, delay, final, ran_us, quiet, result, usage)
), held as materialized (
  select h.place, h.id, h.lease_id, f.claimed_at, h.queue, h.kind, h.run_at, h.ready_at, h.attempts as attempts_before,
      case when f.ran_us > 0 then greatest(f.claimed_at, clock_timestamp() - f.ran_us * interval '1 us')
          else f.claimed_at end as began_at,
      f.outcome, f.output, f.delay, f.ran_us >= 0 as started, f.quiet, f.result, f.usage, f.error,
      h.attempts + case when f.outcome in ('failed', 'timed_out') then 1 else 0 end as attempts,
      case when f.outcome in ('failed', 'timed_out', 'unreadable') then jobq.error_kept(f.error) else h.last_error end
        as last_error,
      jobq.next_state(f.outcome, h.attempts, h.max_attempts, f.final, h.cancel_requested_at is not null,
          f.delay) as state
    from f
    cross join lateral (
      select x.ctid as place, x.id, x.lease_id, x.queue, x.kind, coalesce(x.run_at, x.created_at) as run_at,
          greatest(x.run_at, x.created_at) as ready_at,
          x.attempts, x.max_attempts, x.cancel_requested_at, x.last_error
        from jobq.run x
        where x.id = f.id and x.lease_id = f.token and x.state is null
          and (select l.owner = sqlc.arg(owner) and l.claimed_at = f.claimed_at and l.lost_at is null
              and x.slot <> all(l.ended_slots)
            from jobq.lease l where l.id = f.token limit 1)
          and (not f.retried or exists (
            select from jobq.lease l where l.id = f.token and x.slot <> all(l.ended_slots) for key share skip locked))
        for update of x skip locked
    ) h
), kept as (
  update jobq.run r
    set state = h.state, began_at = h.began_at, finished_at = clock_timestamp(), attempts = h.attempts,
      last_error = h.last_error, result = h.result, checkpoint = coalesce((select p.checkpoint from jobq.progress p
          where p.job_id = h.id and p.lease_id = h.lease_id limit 1), r.checkpoint)
    from held h
    where r.id = h.id and h.state in ('completed', 'failed', 'cancelled')
      and r.ctid = any(array(select h.place from held h)) and r.id = any(sqlc.arg(ids)::bigint[])
      and r.lease_id = any(sqlc.arg(tokens)::bigint[])
    returning r.id
), gone as (
  delete from jobq.run r
    where r.ctid = any(array(select h.place from held h where h.state in ('available', 'scheduled')))
      and r.id = any(array(select h.id from held h where h.state in ('available', 'scheduled')))
      and r.lease_id = any(sqlc.arg(tokens)::bigint[])
    returning (r).*
), done as materialized (
  -- A row that has changed since the snapshot is locked in its new version, and is in neither.
  select h.id, h.lease_id, h.claimed_at, h.began_at, h.queue, h.kind, h.ready_at, h.attempts_before, h.outcome,
      h.output, h.started, h.quiet, h.usage, h.error, h.state
    from held h
    join (select k.id from kept k union all select g.id::bigint from gone g) d on d.id = h.id
), again as (
  insert into jobq.pending
    select (p).*
      from gone g
      join held h on h.id = g.id
      cross join lateral (
        select case when h.outcome = 'released' then g.position else nextval('jobq.position_seq') end as position,
            case when h.outcome = 'released' then h.run_at
              else clock_timestamp() + coalesce(h.delay, jobq.backoff_delay(h.attempts, g.backoff_base, g.backoff_max))
            end as run_at,
            (select x.checkpoint from jobq.progress x where x.job_id = g.id and x.lease_id = g.lease_id
                limit 1) as saved
      ) now
      cross join lateral jobq.pending_of(row(g.*)::jobq.run, now.position, now.run_at, h.attempts,
        case when h.outcome in ('released', 'unreadable') then g.crashes else 0 end, -- its process has lived
        h.last_error, case when h.outcome = 'released' then g.clear_reason end, coalesce(now.saved, g.checkpoint)) p
), forgotten as (
  delete from jobq.progress p where p.job_id = any(array(select d.id from done d))
), attempt as (
  insert into jobq.attempt
      (job_id, finished_at, started_at, lease_token, outcome, number, worker_id, error, output, usage)
    select d.id, clock_timestamp(), d.began_at, d.lease_id, d.outcome::jobq.attempt_outcome,
        d.attempts_before + 1, sqlc.arg(owner), nullif(d.error, ''), nullif(d.output, ''), d.usage
      from done d
      where d.started and (d.outcome <> 'completed' or d.output <> '' or d.usage is not null)
), counted as (
  insert into jobq.stat_delta
      (minute, queue, kind, completed, failed, retried, lost, cancelled, run_seconds, wait_seconds)
    select date_trunc('minute', clock_timestamp()), d.queue, d.kind,
        count(*) filter (where d.state = 'completed'),
        count(*) filter (where d.state = 'failed'),
        count(*) filter (where d.outcome in ('failed', 'timed_out') and d.state in ('available', 'scheduled')), 0,
        count(*) filter (where d.state = 'cancelled'),
        coalesce(sum(extract(epoch from clock_timestamp() - d.began_at)::float8) filter (where d.state <> 'cancelled'),
            0),
        coalesce(sum(extract(epoch from d.claimed_at - d.ready_at)::float8) filter (where d.state = 'completed'), 0)
      from done d
      where d.outcome in ('completed', 'failed', 'timed_out') or d.state = 'cancelled'
      group by d.queue, d.kind
), woken as (
  -- A job that is back at its old place may be before the places where claims begin: so workers are
  -- to look at the whole line. Not if it is quiet, which is said of a job that comes back again and
  -- again while its handler is away: each time, all workers of the queue would read all jobs of that
  -- kind. The trigger of pending has woken idle ones, and each worker looks at the whole line now and
  -- then.
  select jobq.wake('head', q.queue)
    from (select distinct d.queue from done d where d.outcome = 'released' and d.state = 'available' and not d.quiet) q
)
select d.id, d.state from done d where (select count(*) from woken) >= 0;

-- RunHeld returns the runs that are still the caller's (held), and those that have completed on their
-- own rows while they were, for example by an exchange whose answer was lost. It waits for nothing: a
-- row that somebody is about to remove still counts. Needs run_id_idx, lease_pkey and past_lease_pkey
-- only.
-- name: RunHeld :many
select r.id, r.held::boolean as held
  from rows from (unnest(sqlc.arg(ids)::bigint[]), unnest(sqlc.arg(tokens)::bigint[]),
      unnest(sqlc.arg(claimed_ats)::timestamptz[])) as f(id, token, claimed_at)
  cross join lateral (
    select x.id, x.state is null as held from jobq.run x
      where x.id = f.id and x.lease_id = f.token
        and case
          when x.state is null then
            (select l.owner = sqlc.arg(owner) and l.claimed_at = f.claimed_at and l.lost_at is null
                and x.slot <> all(l.ended_slots)
              from jobq.lease l where l.id = f.token limit 1)
          when x.state = 'completed' then
            exists (select from jobq.lease l where l.id = f.token and l.claimed_at = f.claimed_at
                and l.owner = sqlc.arg(owner))
              or exists (select from jobq.past_lease l where l.id = f.token and l.claimed_at = f.claimed_at
                  and l.owner = sqlc.arg(owner))
        end
      limit 1
  ) r;

-- RunCompleteTx completes a job in the handler's own transaction. It locks the row of run until that
-- transaction ends, but not the lease: extensions go on, and a reaper skips the row. It waits for a
-- row that somebody has locked. It returns no row if the run is not the owner's any more. Needs
-- run_id_idx, lease_pkey and progress_pkey only.
-- name: RunCompleteTx :many
with done as (
  update jobq.run r
    set state = 'completed', finished_at = clock_timestamp(), result = sqlc.narg(result)::jsonb,
      checkpoint = coalesce((select p.checkpoint from jobq.progress p where p.job_id = r.id and p.lease_id = r.lease_id
          limit 1), r.checkpoint)
    where r.id = sqlc.arg(id) and r.lease_id = sqlc.arg(token) and r.state is null
      and (select l.owner = sqlc.arg(owner) and l.claimed_at = sqlc.arg(claimed_at) and l.lost_at is null
          and r.slot <> all(l.ended_slots)
        from jobq.lease l where l.id = sqlc.arg(token) limit 1)
    returning r.id, r.queue, r.kind, greatest(r.run_at, r.created_at) as ready_at,
        sqlc.arg(claimed_at)::timestamptz as claimed_at
), forgotten as (
  delete from jobq.progress p where p.job_id = any(array(select d.id from done d))
), counted as (
  insert into jobq.stat_delta
      (minute, queue, kind, completed, failed, retried, lost, cancelled, run_seconds, wait_seconds)
    select date_trunc('minute', clock_timestamp()), d.queue, d.kind, 1, 0, 0, 0, 0,
        extract(epoch from clock_timestamp() - d.claimed_at)::float8,
            extract(epoch from d.claimed_at - d.ready_at)::float8
      from done d
)
select d.id from done d;

-- RunFate is for a run whose handler has ended the job in a transaction of its own. It says whether
-- the run is still the caller's, and whether that transaction has stored a completion or another end:
-- then outcome is not empty, and state is the job's new state: how it ended, or scheduled if it went
-- back to pending in whatever state. If neither is so, the lease was lost. A row that such a
-- transaction still locks counts as the caller's. Only calls such as jobq.complete
-- (ends_itself) leave an attempt, so it is looked for only after those. Needs run_id_idx, lease_pkey,
-- past_lease_pkey and attempt_job_id_idx only.
-- name: RunFate :one
select
  exists (
    select from jobq.run r
      where r.id = sqlc.arg(id) and r.lease_id = sqlc.arg(token) and r.state is null
        and (select l.owner = sqlc.arg(owner) and l.claimed_at = sqlc.arg(claimed_at) and l.lost_at is null
            and r.slot <> all(l.ended_slots)
          from jobq.lease l where l.id = sqlc.arg(token) limit 1)
  ) as held,
  exists (
    select from jobq.run r
      where r.id = sqlc.arg(id) and r.lease_id = sqlc.arg(token) and r.state = 'completed'
        and (exists (select from jobq.lease l where l.id = sqlc.arg(token) and l.claimed_at = sqlc.arg(claimed_at)
            and l.owner = sqlc.arg(owner))
          or exists (select from jobq.past_lease l where l.id = sqlc.arg(token) and l.claimed_at = sqlc.arg(claimed_at)
              and l.owner = sqlc.arg(owner)))
  ) as completed,
  coalesce(e.outcome, '')::text as outcome, coalesce(e.state, '')::text as state
  from (select) run
  left join lateral (
    select a.outcome::text as outcome,
        coalesce((select r.state::text from jobq.run r where r.id = a.job_id and r.lease_id = a.lease_token
            limit 1), 'scheduled') as state
      from jobq.attempt a
      where sqlc.arg(ends_itself)::boolean
        and a.job_id = sqlc.arg(id) and a.lease_token = sqlc.arg(token) and a.worker_id = sqlc.arg(owner)
        and a.finished_at >= sqlc.arg(claimed_at) and a.outcome <> 'lost'
      limit 1
  ) e on true;
