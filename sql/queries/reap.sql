-- LeaseReap takes leases away from their owners, and ends the lost runs of their jobs: each has one
-- attempt more, and fails if that was its last. With a max_lost, of the job or else of its queue, each is one more lost
-- instead, and the job fails if these are more than max_lost. So a job that kills every worker ends. Jobs that have
-- not begun, since their slots are beyond begun, go back to their places as if they had been released:
-- nothing is counted or recorded for them. The answer says which have begun. A job that was lost twice
-- in a row is a suspect (pending_suspect_idx): it waits its backoff, and is claimed alone. alone is how
-- many times in a row a suspect was lost while it ran alone; it is 0 for other jobs.
-- A lease with a lost_reason (act_lost) was taken for its worker's sake: its jobs go back as if released, without an
-- attempt and without a crash, with that reason as the error of the run. They are spared in the answer.
--
-- Without owners it takes expired leases, after the queue's stale_grace, those that expired first
-- first. Then it takes what is left of leases that were taken before, whose runs may have been locked
-- for long: first those at which no pass has looked for longest, so that each gets its turn however
-- many are locked. With owners, which the caller knows to be dead, it takes all leases of theirs. It
-- ends job_count runs at most, and returns them.
--
-- The lease is locked first and marked as lost: from then on the owner's writes are refused, whatever
-- happens to the rest. It skips a run that somebody has locked, as CompleteTx does, and leaves runs
-- beyond job_count. Their lease stays, lost, and the next pass takes it up again. A lease of which no
-- job is left moves to the history.
--
-- Example: lease 900 of the jobs 41, 42 and 43 has expired; 41 has succeeded, and 43 is locked. In
-- this pass, 42 goes back to pending, lost_at is set, and ended_slots become {1, 2}. When 43's
-- transaction has committed, the next pass finds that 43 has ended, and moves the lease.
--
-- It passes by the leases and jobs that are set aside, and takes only_leases alone if they are given: a
-- row that makes the statement fail must not keep the others (passes.reapAround).
--
-- It needs no lock around it. If a lease or a run has changed since the statement's snapshot, the new
-- version is locked, which the snapshot does not show: it is then not in sure, or not in done, and
-- waits for the next pass. Only what is in sure and done is taken and counted. It needs no handler:
-- the policy is in the row and its queue. It reads all of lease, which holds only the leases of
-- running jobs; needs run_id_idx and progress_pkey.
-- name: LeaseReap :many
with stale as materialized (
  select l.ctid as place
    from jobq.lease l
    left join jobq.queue q on q.name = l.queue
    where case -- before the queue is looked up
        when sqlc.narg(owners)::text[] is null then l.lost_at is not null or l.expires_at < clock_timestamp()
        else l.owner = any(sqlc.narg(owners)::text[])
      end
      and (sqlc.narg(owners)::text[] is not null or l.lost_at is not null
        or l.expires_at < clock_timestamp() - coalesce(q.stale_grace, interval '0'))
      and (l.id = any(sqlc.arg(aside_leases)::bigint[])) is not true
      and (sqlc.narg(only_leases)::bigint[] is null or l.id = any(sqlc.narg(only_leases)::bigint[]))
    order by l.lost_at nulls first, l.expires_at, l.id
    limit sqlc.arg(job_count)::integer
    for update of l skip locked
), sure as materialized (
  select s.place, s.id, s.claimed_at, s.expires_at, s.begun, s.owner, s.job_ids, s.ended_slots, s.ended_ms,
      s.lost_reason
    from (
      select l.ctid as place, l.id, l.claimed_at, l.expires_at, l.begun, l.owner, l.job_ids, l.ended_slots, l.ended_ms,
          l.lost_reason,
          sum(case when l.lost_at is null then cardinality(l.job_ids) - cardinality(l.ended_slots) end)
            over (order by l.lost_at nulls first, l.expires_at,
                l.id rows between unbounded preceding and 1 preceding) as jobs_before
        from jobq.lease l
        where l.ctid = any(array(select s.place from stale s))
    ) s
    where coalesce(s.jobs_before, 0) < sqlc.arg(job_count)::integer
), looked as materialized (
  select j.id, j.slot::smallint as slot, s.id as lease_id, s.claimed_at, s.expires_at, s.owner,
      coalesce(r.runs, false) as runs, j.slot <= s.begun as begun,
      j.slot <= s.begun and s.lost_reason is null as counted, s.lost_reason, r.queue, r.partition_key
    from sure s
    cross join lateral unnest(s.job_ids) with ordinality as j(id, slot)
    left join lateral (
      select x.state is null as runs, x.queue, x.partition_key from jobq.run x
          where x.id = j.id and x.lease_id = s.id limit 1
    ) r on true
    where j.slot <> all(s.ended_slots)
), held as materialized (
  select r.place, r.id, r.queue, r.kind, r.slot, r.lease_id, r.claimed_at, r.expires_at, r.owner, r.begun,
      r.counted, r.attempts as attempts_before, n.attempts,
      case when n.lost > 32767 then 32767 else n.lost end as lost,
      case when r.counted then coalesce(q.redelivery, 'tail') else 'head' end as redelivery,
      coalesce(q.redelivery_delay, interval '0') as delay, r.begun and coalesce(q.reset_on_reap, false) as reset,
      -- Another loss than one that uses an attempt is never the last attempt: n.attempts is less than max_attempts.
      jobq.next_state(case when r.counted then 'lost' else 'released' end, n.attempts - 1,
        r.max_attempts, r.counted and coalesce(n.lost > b.max_lost, false), r.cancel_requested_at is not null,
        case when r.crashes + 1 < least(2, coalesce(n.lost + 1, r.max_attempts - n.attempts))
          then coalesce(q.redelivery_delay, interval '0') end) as state,
      r.counted and r.crashes + 1 >= least(2, coalesce(n.lost + 1, r.max_attempts - n.attempts)) as suspect,
      case when r.counted and r.crashes >= least(2, coalesce(r.lost + 1, r.max_attempts - r.attempts))
        then greatest(r.crashes - 1, 1)
      else 0 end as alone,
      case
        when not r.begun then null
        when not r.counted then r.lost_reason
        when sqlc.narg(owners)::text[] is not null then 'orphaned by worker restart'
        else left(format('lease expired: worker %s stopped responding', r.owner), 800)
      end || case when r.counted and r.crashes >= least(2, coalesce(r.lost + 1, r.max_attempts - r.attempts))
        then format('; the job was alone in its worker when that was lost%s: it seems to be the cause',
          case when r.crashes > 2 then format(', %s times in a row', r.crashes - 1) end) else '' end
        || case when r.counted and n.lost > b.max_lost
          then format('; it was lost %s times, and max_lost is %s', n.lost, b.max_lost) else '' end as error
    from (
      select x.place, x.id, x.attempts, x.max_attempts, x.crashes, x.lost, x.max_lost, x.cancel_requested_at, x.queue,
          x.kind, l.slot, l.lease_id, l.claimed_at, l.expires_at, l.owner, l.begun, l.counted, l.lost_reason
        from (select l.id, l.slot, l.lease_id, l.claimed_at, l.expires_at, l.owner, l.begun, l.counted, l.lost_reason
          from looked l
          where l.runs and (l.id = any(sqlc.arg(aside_jobs)::bigint[])) is not true
              order by l.expires_at, l.lease_id, l.slot) l
        cross join lateral (
          select r.ctid as place, r.id, r.attempts, r.max_attempts, r.crashes, r.lost, r.max_lost,
              r.cancel_requested_at, r.queue, r.kind
            from jobq.run r
            where r.id = l.id and r.lease_id = l.lease_id and r.state is null
            for update of r skip locked
        ) x
        limit sqlc.arg(job_count)::integer
    ) r
    left join jobq.queue q on q.name = r.queue
    cross join lateral (
      -- with case: sqlc looks for the columns of a coalesce in the subquery alone
      select case when r.max_lost is not null then r.max_lost else q.max_lost end as max_lost
    ) b
    cross join lateral (
      select r.attempts + (r.counted and b.max_lost is null)::integer as attempts,
          case when r.counted and b.max_lost is not null then coalesce(r.lost, 0) + 1 else r.lost end as lost
    ) n
), kept as (
  update jobq.run r
    set state = h.state, finished_at = clock_timestamp(), attempts = h.attempts,
      crashes = least(r.crashes + h.counted::integer, 32767), lost = h.lost,
      last_error = coalesce(h.error, r.last_error),
      checkpoint = coalesce((select p.checkpoint from jobq.progress p where p.job_id = h.id and p.lease_id = h.lease_id
          limit 1), r.checkpoint)
    from held h
    where r.id = h.id and h.state in ('failed', 'cancelled')
      and r.ctid = any(array(select h.place from held h)) and r.id = any(array(select h.id from held h))
      and r.lease_id = any(array(select h.lease_id from held h))
    returning r.id
), gone as (
  delete from jobq.run r
    where r.ctid = any(array(select h.place from held h where h.state in ('available', 'scheduled')))
      and r.id = any(array(select h.id from held h where h.state in ('available', 'scheduled')))
      and r.lease_id = any(array(select h.lease_id from held h))
    returning (r).*
), done as materialized (
  select h.id, h.slot, h.lease_id, h.claimed_at, h.expires_at, h.owner, h.begun, h.counted, h.queue, h.kind,
      h.attempts_before, h.attempts, h.redelivery, h.state, h.alone, h.error
    from held h
    join (select k.id from kept k union all select g.id::bigint from gone g) d on d.id = h.id
), again as (
  insert into jobq.pending
    select (p).*
      from gone g
      join held h on h.id = g.id
      cross join lateral (
        select case when h.redelivery = 'head' then g.position else nextval('jobq.position_seq') end as position,
            case
              when h.suspect then clock_timestamp() + greatest(h.delay,
                  jobq.backoff_delay(g.crashes, g.backoff_base, g.backoff_max))
              when h.counted then clock_timestamp() + h.delay
              else coalesce(g.run_at, g.created_at)
            end as run_at,
            (select x.checkpoint from jobq.progress x where x.job_id = g.id and x.lease_id = g.lease_id
                limit 1) as saved
      ) now
      cross join lateral jobq.pending_of(row(g.*)::jobq.run, now.position, now.run_at, h.attempts,
        least(g.crashes + h.counted::integer, 32767), coalesce(h.error, g.last_error),
        coalesce(h.error, g.clear_reason), case when not h.reset then coalesce(now.saved, g.checkpoint) end,
        lost => h.lost) p
), forgotten as (
  delete from jobq.progress p where p.job_id = any(array(select d.id from done d))
), told as (
  insert into jobq.attempt
      (job_id, finished_at, started_at, lease_token, outcome, number, worker_id, error, output)
    select d.id, clock_timestamp(), greatest(least(d.claimed_at, clock_timestamp()), 'epoch'), d.lease_id, 'lost',
        d.attempts_before + 1, d.owner, d.error, jobq.lost_output(d.id, d.lease_id)
      from done d
      where d.begun
), recorded as (
  insert into jobq.event (type, source, job_id, queue, message)
    select case when sqlc.narg(owners)::text[] is null then 'stalled'
        else 'orphaned' end, sqlc.arg(source), d.id, d.queue, d.error
      from done d
      where d.begun
), counted as (
  insert into jobq.stat_delta
      (minute, queue, kind, completed, failed, retried, lost, cancelled, run_seconds, wait_seconds)
    select date_trunc('minute', clock_timestamp()), d.queue, d.kind, 0,
        count(*) filter (where d.state = 'failed'), count(*) filter (where d.state in ('available', 'scheduled')),
        count(*) filter (where d.state <> 'cancelled'),
        count(*) filter (where d.state = 'cancelled'), 0, 0
      from done d
      where d.begun or d.state = 'cancelled'
      group by d.queue, d.kind
), after as materialized (
  -- How the leases stand now: of what has ended, no job is left to be taken.
  select s.place, s.id, s.claimed_at, s.owner, cardinality(s.job_ids) as jobs, s.ended_slots || e.slots as slots,
      s.ended_ms || array_fill(-1::smallint, array[cardinality(e.slots)]) as ms
    from sure s
    cross join lateral (
      select array(select l.slot from looked l where l.lease_id = s.id
        and (not l.runs or l.id = any(array(select d.id from done d)))) as slots
    ) e
), taken as (
  update jobq.lease l
    set lost_at = clock_timestamp(), ended_slots = a.slots, ended_ms = a.ms
    from after a
    where l.id = a.id and l.ctid = any(array(select a.place from after a where cardinality(a.slots) < a.jobs))
), closed as (
  delete from jobq.lease l
    where l.ctid = any(array(select a.place from after a where cardinality(a.slots) >= a.jobs))
    returning l.id
), past as (
  insert into jobq.past_lease (id, claimed_at, owner, ended)
    select a.id, a.claimed_at, a.owner,
        coalesce((select array_agg(u.ms order by u.slot) from rows from (unnest(a.slots), unnest(a.ms)) as u(slot, ms)),
            '{}')
      from closed c
      join after a on a.id = c.id
), keys as materialized (
  -- The keys of the jobs that were taken or had ended: another job of each may run now. A job whose
  -- run had gone back to pending before has no row here: a claim looks at its key after a minute
  -- (lane_look_again).
  select l.queue, array_agg(distinct l.partition_key) as keys
    from looked l
    where l.partition_key is not null
    group by l.queue
), keyed as (
  select jobq.lane_hints_add(k.queue, k.keys, true) from keys k
), suspected as (
  -- Workers are to learn of suspects: those that are alone may run them.
  select jobq.notify('settings', s.queue)
    from (select distinct h.queue from held h where h.suspect and h.state = 'scheduled') s
), woken as (
  -- A job that is back at its old place may be before the places where claims begin.
  select jobq.wake('head', q.queue)
    from (select distinct d.queue from done d where d.redelivery = 'head' and d.state = 'available') q
)
select d.id, d.queue, d.kind, d.owner as lease_owner, d.lease_id as lease_token, d.claimed_at,
    d.expires_at as lease_expires_at, d.attempts, d.state, d.begun,
    d.alone::integer as alone, (d.begun and not d.counted)::boolean as spared
  from done d
  where (select count(*) from woken) + (select count(*) from keyed) + (select count(*) from suspected) >= 0;

-- LeaseStale lists the expired leases that LeaseReap would take first, without those that are set aside.
-- It reads all of lease.
-- name: LeaseStale :many
select l.id
  from jobq.lease l
  left join jobq.queue q on q.name = l.queue
  where (l.id = any(sqlc.arg(aside_leases)::bigint[])) is not true
    and (l.lost_at is not null or l.expires_at < clock_timestamp() - coalesce(q.stale_grace, interval '0'))
  order by l.lost_at nulls first, l.expires_at, l.id
  limit sqlc.arg(lease_count)::integer;

-- LeasePatience lists the leases that are not to be taken yet although they have expired or soon will, since their
-- owners could not extend them: in the outages, which began at since and ended at until. A lease is over when the
-- database was there for extend_every since extend_every before its end (a third of the lease by default, an hour at
-- most; 0 where nothing extends leases). ms is how long until that is so. For example, with extend_every of 20 s:
--
--   12:00:00  the database goes away
--   12:00:40  a lease ends, which the owner has tried to extend since 12:00:20
--   12:10:00  the database is back: the owner has until 12:10:20
--
-- It reads all of lease, once after each outage.
-- name: LeasePatience :many
select l.id, ceil(extract(epoch from o.over_at - clock_timestamp()) * 1000)::bigint as ms
  from jobq.lease l
  left join jobq.queue q on q.name = l.queue
  cross join lateral (
    select l.expires_at + coalesce(q.stale_grace, interval '0') as ends,
        case when q.heartbeat = 'off' then interval '0'
          else least(coalesce(q.extend_every, coalesce(q.lease, jobq.lease_default()) / 3), interval '1 hour')
        end as patience
  ) e
  cross join lateral (
    select e.ends + coalesce(sum(greatest(d.until - greatest(d.since, e.ends - e.patience), interval '0')),
        interval '0') as over_at
      from rows from (
        unnest(sqlc.arg(since)::timestamptz[]), unnest(sqlc.arg(until)::timestamptz[])
      ) as d(since, until)
  ) o
  where l.lost_at is null and isfinite(l.expires_at) and o.over_at > greatest(e.ends, clock_timestamp())
  order by l.id
  limit sqlc.arg(lease_count)::integer;

-- LeaseJobs returns the jobs of a lease that may still run. Needs lease_pkey only.
-- name: LeaseJobs :one
select l.owner, array(
    select j.id from unnest(l.job_ids) with ordinality as j(id, slot)
        where j.id is not null and j.slot <> all(l.ended_slots)
  )::bigint[] as jobs
  from jobq.lease l
  where l.id = sqlc.arg(id);

-- LeaseShorten gives leases of a clock that was set back the time that they would have now, and returns how
-- many: those that were claimed in the future, or that end too late while their owner's heartbeat lies in the
-- future, and those that are longer than any may be. Otherwise the jobs of a worker that dies would wait for as
-- long as the clock was ahead. It reads all of lease.
-- name: LeaseShorten :execrows
update jobq.lease l
  set expires_at = clock_timestamp() + coalesce((select q.lease from jobq.queue q
      where q.name = l.queue), jobq.lease_default())
  where l.ctid = any(array(
    select x.ctid
      from jobq.lease x
      left join jobq.queue q on q.name = x.queue
      left join jobq.worker w on w.id = x.owner
      where x.lost_at is null
        and x.expires_at > clock_timestamp() + coalesce(q.lease, jobq.lease_default()) + interval '1 s'
        and (x.claimed_at > clock_timestamp() + interval '1 s' or w.heartbeat_at > clock_timestamp() + interval '1 s'
          or x.expires_at > clock_timestamp() + interval '31 days')
      limit 1000
      for update of x skip locked));

-- KindsCrashed counts lost runs of these kinds, which were claimed at these times by these workers, and pauses a kind
-- whose workers have crashed several times in a row: it returns that kind, mostly none. It reads stat
-- from the last crash of the kinds on, a day at most. Needs stat_pkey.
-- name: KindsCrashed :many
select c.kind::text as kind, c.crashes::integer as crashes
  from jobq.kinds_crashed(sqlc.arg(kinds)::text[], sqlc.arg(claimed)::timestamptz[],
    sqlc.arg(owners)::text[], sqlc.arg(source)::text) c;

-- NextDue says when the janitor has something to do, or must look again: as milliseconds from the
-- answer (ms, not positive if it is time already) and as seconds since 1970 by the server's clock
-- (epoch). It is at most jobs_max_ms after the call.
--
-- With scan, it finds when the next lease ends, with its queue's grace. leases_ms is that time, at
-- most leases_max_ms after the call, and at most the shortest lease after it: whatever is claimed in
-- the meantime ends later than that, so no end is missed. lease_ends says that it is the end of a
-- lease. Without scan, it uses leases_max_ms instead: a scan reads all of lease, which has many dead
-- rows after a long transaction. server_started_at tells of a restart that broke no statement.
--
-- For the same reason it looks only at jobs that are due at jobs_from or later: the index entries of
-- promoted jobs may still be there. job_at is the first of these jobs, null if there is none; DueFirst
-- looks at earlier ones now and then. Everything that was committed before looked_at was seen.
--
-- look_due says whether it is time to look at a job that others wait for, among those from looks_from
-- on, again for the same reason. It reads no table but those of recovery (ScheduleFirst has the
-- others).
--
-- An idle janitor asks no more than this. If it is given the janitor's name, it also does what JanitorBeat does, and
-- never waits for another one that does so. With asleep_ms, it renews the announcement of the janitor's sleep, and
-- returns what SleepAnnounce does. Needs pending_due_idx and dependency_look_due_idx.
-- name: NextDue :one
with told as (
  update jobq.janitor_seen j set seen_at = clock_timestamp(), janitor = sqlc.arg(janitor)::text
    where j.one = any(array(select x.one from jobq.janitor_seen x
      where sqlc.arg(janitor)::text <> ''
        and x.seen_at not between clock_timestamp() - interval '5 seconds' and clock_timestamp()
      for no key update skip locked))
), first as (
  insert into jobq.janitor_seen (seen_at, janitor)
    select clock_timestamp(), sqlc.arg(janitor)::text
      where sqlc.arg(janitor)::text <> '' and not exists (select from jobq.janitor_seen)
    on conflict (one) do nothing
)
select ceil(extract(epoch from n.at - clock_timestamp()) * 1000)::bigint as ms,
    extract(epoch from n.at)::float8 as epoch,
    ceil(extract(epoch from n.leases - clock_timestamp()) * 1000)::bigint as leases_ms,
    coalesce(n.leases = n.lease, false)::boolean as lease_ends, coalesce(n.at = n.job, false)::boolean as job_due,
    n.job::timestamptz as job_at,
    coalesce(n.look <= clock_timestamp(), false)::boolean as look_due,
    statement_timestamp()::timestamptz as looked_at, pg_postmaster_start_time()::timestamptz as server_started_at,
    (case when sqlc.arg(janitor)::text <> '' and jobq.generation_check() is not null
      then (select max(m.compatible_from) from jobq.jobq_migration m) else 0 end)::integer as compatible_from,
    (case when sqlc.arg(asleep_ms)::bigint > 0
      then array(select x::text from jobq.sleep_announce(sqlc.arg(asleep_ms)::bigint) x) else '{}' end)::text[] as open
  from (
    select least(l.leases, j.job, k.look, l.asked + sqlc.arg(jobs_max_ms)::bigint * interval '1 ms') as at, l.leases,
        l.lease, j.job, k.look
      from (
        select least(e.lease, e.asked + e.shortest,
            e.asked + sqlc.arg(leases_max_ms)::bigint * interval '1 ms') as leases, e.lease, e.asked
          from (
            select clock_timestamp() as asked,
                -- One that is lost has runs left, since somebody had them locked or there were too
                -- many, and is due since a reap has last looked at it.
                -- It is no infinite time, with which nobody can compute.
                (select min(greatest('epoch',
                    coalesce(l.lost_at, l.expires_at + coalesce(q.stale_grace, interval '0'))))
                  from jobq.lease l left join jobq.queue q on q.name = l.queue
                  where sqlc.arg(scan)::boolean
                    and (l.id = any(sqlc.arg(aside_leases)::bigint[])) is not true) as lease,
                -- Queues without a row have the default.
                case when sqlc.arg(scan)::boolean
                    then (select greatest(least(min(q.lease), jobq.lease_default()), interval '1 s')
                    from jobq.queue q) end as shortest
          ) e
      ) l
      -- Not min(): without statistics, the planner would rather read all of them. And offset 0, or it
      -- would look once for each use of the answer.
      cross join (select (select greatest('0001-01-01 00:00:00+00', p.run_at) from jobq.pending p
          where p.position is null and p.waits is null and p.run_at >= sqlc.arg(jobs_from)::timestamptz
          and greatest(least(2, coalesce(p.lost + 1, p.max_attempts - p.attempts::integer)) - p.crashes, 0) <> 0
        order by p.run_at limit 1) as job offset 0) j
      cross join (select least(
          (select greatest('0001-01-01 00:00:00+00', x.look_at) from jobq.dependency_look x
              where x.look_at >= sqlc.arg(looks_from)::timestamptz order by x.look_at limit 1),
          -- One that lies further ahead than any may is of a clock that was set back: it is due.
          (select statement_timestamp() from jobq.dependency_look x
            where x.look_at > statement_timestamp() + interval '2 minutes'
                order by x.look_at desc limit 1)) as look offset 0) k
  ) n;
