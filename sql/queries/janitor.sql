-- JanitorLock takes the janitor's lock for the session, if it is free and
-- the server is not a standby, which would grant it to anybody.
-- name: JanitorLock :one
select (not pg_is_in_recovery()
    and pg_try_advisory_lock(sqlc.arg(class)::integer, sqlc.arg(object)::integer))::boolean as locked;

-- JanitorLockTx takes the janitor's lock until the transaction ends, likewise.
-- It also returns the shortest lease of all queues that have a row, or the default
-- if none has: a job of a dead worker must not wait for much longer than that, not
-- even if the leader died with it.
-- name: JanitorLockTx :one
select (not pg_is_in_recovery()
    and pg_try_advisory_xact_lock(sqlc.arg(class)::integer, sqlc.arg(object)::integer))::boolean as locked,
    (extract(epoch from coalesce((select min(q.lease)
        from jobq.queue q), jobq.lease_default())) * 1000)::bigint as shortest_lease_ms;

-- JanitorTurn takes one of the janitor's locks until the transaction ends, likewise, for
-- a step of work. For as long, it sets what the server is to end the step for, in
-- milliseconds.
-- name: JanitorTurn :one
select (not pg_is_in_recovery()
    and pg_try_advisory_xact_lock(sqlc.arg(class)::integer, sqlc.arg(object)::integer))::boolean as locked,
    set_config('statement_timeout', sqlc.arg(statement_ms)::text, true)::text as statement_timeout,
    set_config('lock_timeout', sqlc.arg(lock_ms)::text, true)::text as lock_timeout,
    set_config('idle_in_transaction_session_timeout', sqlc.arg(idle_ms)::text, true)::text as idle_timeout;

-- JanitorBeat says that a janitor lives, for workers without one and for the doctor. All janitors share one row, so
-- that many of them write no more than one. For example, A writes at 0 s; B, at 2 s, changes nothing; A writes again at
-- 10 s. A time in the future, from before a jump of the clock, is replaced. It looks whether the server was promoted or
-- restored (generation_check), and returns the lowest version that works with the tables (docs/decisions/0026). NextDue
-- does the same for a janitor that looks often enough.
-- name: JanitorBeat :one
with told as (
  update jobq.janitor_seen j set seen_at = clock_timestamp(), janitor = sqlc.arg(id)
    where j.seen_at not between clock_timestamp() - interval '5 seconds' and clock_timestamp()
), first as (
  insert into jobq.janitor_seen (seen_at, janitor)
    select clock_timestamp(), sqlc.arg(id) where not exists (select from jobq.janitor_seen)
    on conflict (one) do nothing
)
select (select max(m.compatible_from) from jobq.jobq_migration m)::integer as compatible_from
  where jobq.generation_check() is not null; -- always true

-- JanitorSeen says whether a janitor has said that it lives within the span.
-- name: JanitorSeen :one
select exists (select from jobq.janitor_seen j
  where j.seen_at between clock_timestamp() - sqlc.arg(span)::interval and clock_timestamp()
      + sqlc.arg(span)::interval) as seen;

-- JanitorLast is when a janitor has last said that it lives; now, if none ever has.
-- name: JanitorLast :one
select coalesce((select j.seen_at from jobq.janitor_seen j), clock_timestamp())::timestamptz as seen_at;

-- ChoresFind says which of the chores of these names would find something to do, and how
-- many rows the history has, as far as that is known without counting; and whether there is a schedule. An idle
-- janitor asks nothing else besides NextDue. A chore that it does not know may find something. What it counts as
-- something may be too much and is never too little: the chore itself looks again.
--
-- The history may need new statistics if its number of rows is not known_rows, which is -1 where that
-- is not known any more: see HistoryAnalyze. The orders are for the planner: without statistics, it
-- would read all of emitted when no event is to be woken. Needs output_written_at_idx and
-- emitted_woken_idx.
-- name: ChoresFind :one
select h.row_count::float8 as history_rows, exists (select from jobq.schedule)::boolean as has_schedule, array(
    select n.name
      from unnest(sqlc.arg(names)::text[]) n(name)
      where case n.name
          when 'roll up stats' then exists (select from jobq.stat_delta)
          when 'shorten leases' then exists (select from jobq.lease x
            left join jobq.queue q on q.name = x.queue
            left join jobq.worker w on w.id = x.owner
            where x.lost_at is null
              and x.expires_at > clock_timestamp() + coalesce(q.lease, jobq.lease_default()) + interval '1 s'
              and (x.claimed_at > clock_timestamp() + interval '1 s'
                or w.heartbeat_at > clock_timestamp() + interval '1 s'
                or x.expires_at > clock_timestamp() + interval '31 days'))
          when 'remove dead workers' then exists (select from jobq.worker w
            where w.heartbeat_at < clock_timestamp() - sqlc.arg(silence)::interval
              or w.heartbeat_at > clock_timestamp() + sqlc.arg(silence)::interval)
          when 'analyze history' then h.row_count <> sqlc.arg(known_rows)::float8
          when 'tell of full notifications' then (select jobq.notifications_full())
          when 'prune output' then (select true from jobq.output o
              where o.written_at < statement_timestamp() - interval '5 minutes' order by o.written_at limit 1)
          when 'prune waiters' then exists (select from jobq.waiter w where w.expires_at < statement_timestamp())
          when 'wake jobs of events' then (select true from jobq.emitted e where e.woken_to is not null
              order by e.name limit 1)
          else true
        end
  )::text[] as found
  from (
    select coalesce(sum(greatest(pg_stat_get_live_tuples(d.oid), d.reltuples)), 0) as row_count
      from pg_catalog.pg_inherits i
      join pg_catalog.pg_class d on d.oid = i.inhrelid
      where i.inhparent = 'jobq.run'::regclass
  ) h;

-- NotificationsFull says whether jobq sends no notifications for now (notifications_full).
-- name: NotificationsFull :one
select jobq.notifications_full()::boolean as is_full;

-- LockHolder is the session that holds one of jobq's advisory locks, such as the
-- janitor's, as far as this role may see it: without pg_read_all_stats, of another role's session no more than its pid.
-- The start of a session is never null, so one that is was not shown. Then the address is empty, and not local.
-- name: LockHolder :one
select a.pid, coalesce(a.application_name, '')::text as application,
    case when a.backend_start is null then ''
        else coalesce(host(a.client_addr), 'local') end::text as address, a.backend_start
  from pg_catalog.pg_locks l
  join pg_catalog.pg_stat_activity a on a.pid = l.pid
  where l.locktype = 'advisory' and l.granted and l.classid::bigint = sqlc.arg(class)::bigint & 4294967295
    and l.objid::bigint = sqlc.arg(object)::bigint & 4294967295 and a.datname = current_database()
  limit 1;

-- TableHolder is the session whose transaction has held a lock on one of jobq's
-- tables for longest, other than the asking one: who else wants such a table for
-- itself most likely waits for this one. What this role may not see is null.
-- name: TableHolder :one
select a.pid, coalesce(a.application_name, '')::text as application, a.xact_start, a.query_start
  from pg_catalog.pg_locks l
  join pg_catalog.pg_stat_activity a on a.pid = l.pid
  join pg_catalog.pg_class c on c.oid = l.relation
  where l.locktype = 'relation' and l.granted and l.pid <> pg_backend_pid() and a.datname = current_database()
    and c.relnamespace = (select x.relnamespace from pg_catalog.pg_class x where x.oid = 'jobq.pending'::regclass)
  order by a.xact_start, a.pid
  limit 1;

-- SessionFacts are what decides what an operator can see and do. A lease that is lost expires no more. A standby is as
-- far behind as the last transaction that it has applied is old, if it has received more; -1 means that it is none, or
-- does not know.
-- name: SessionFacts :one
select current_database()::text as database, current_user::text as role,
    (pg_is_in_recovery() or current_setting('transaction_read_only') = 'on')::boolean as read_only,
    (has_table_privilege('jobq.pending', 'insert') and has_table_privilege('jobq.pending', 'delete')
      and has_table_privilege('jobq.run', 'delete')
      and has_table_privilege('jobq.audit', 'insert'))::boolean as may_act,
    clock_timestamp()::timestamptz as at,
    coalesce(case when pg_is_in_recovery() then
        case when pg_last_wal_receive_lsn() = pg_last_wal_replay_lsn() then 0
          else extract(epoch from clock_timestamp() - pg_last_xact_replay_timestamp()) * 1000 end
      end, -1)::bigint as standby_lag_ms,
    coalesce((select extract(epoch from min(l.expires_at) - clock_timestamp()) * 1000 from jobq.lease l
        where l.lost_at is null and isfinite(l.expires_at)), 0)::bigint as next_expiry_ms,
    coalesce((select extract(epoch from least(greatest(p.run_at, '0001-01-01 00:00:00+00'), '9999-12-31 00:00:00+00')
        - clock_timestamp()) * 1000 from jobq.pending p
      where p.position is null and p.waits is null
        and greatest(least(2, coalesce(p.lost + 1, p.max_attempts - p.attempts::integer)) - p.crashes, 0) <> 0
      order by p.run_at limit 1), 0)::bigint as next_due_ms;
