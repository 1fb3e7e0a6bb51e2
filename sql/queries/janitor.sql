-- JanitorLock takes the janitor's lock for the session, if it is free and
-- the server is not a standby, which would grant it to anybody.
-- name: JanitorLock :one
select (not pg_is_in_recovery() and pg_try_advisory_lock(sqlc.arg(class)::integer, sqlc.arg(object)::integer))::boolean as locked;

-- JanitorLockTx takes the janitor's lock until the transaction ends, likewise.
-- It also tells the shortest lease of all queues: a job of a dead worker must
-- not wait for much longer than that, not even when the leader died with it.
-- name: JanitorLockTx :one
select (not pg_is_in_recovery() and pg_try_advisory_xact_lock(sqlc.arg(class)::integer, sqlc.arg(object)::integer))::boolean as locked,
    (extract(epoch from coalesce((select min(q.lease) from jobq.queue q), jobq.lease_default())) * 1000)::bigint as shortest_lease_ms;

-- LockHolder is the session that holds one of jobq's advisory locks, such as the
-- janitor's, as far as this role may see it.
-- name: LockHolder :one
select a.pid, coalesce(a.application_name, '')::text as application, coalesce(host(a.client_addr), 'local')::text as address, a.backend_start
  from pg_catalog.pg_locks l
  join pg_catalog.pg_stat_activity a on a.pid = l.pid
  where l.locktype = 'advisory' and l.granted and l.classid::bigint = sqlc.arg(class)::bigint & 4294967295
    and l.objid::bigint = sqlc.arg(object)::bigint and a.datname = current_database()
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

-- SessionFacts are what decides what an operator can see and do. A lease that is
-- lost expires no more.
-- name: SessionFacts :one
select current_database()::text as database, current_user::text as role,
    (pg_is_in_recovery() or current_setting('transaction_read_only') = 'on')::boolean as read_only,
    (has_table_privilege('jobq.pending', 'insert') and has_table_privilege('jobq.pending', 'delete')
      and has_table_privilege('jobq.run', 'delete') and has_table_privilege('jobq.audit', 'insert'))::boolean as may_act,
    clock_timestamp()::timestamptz as at,
    coalesce((select extract(epoch from min(l.expires_at) - clock_timestamp()) * 1000 from jobq.lease l where l.lost_at is null), 0)::bigint as next_expiry_ms,
    coalesce((select extract(epoch from p.run_at - clock_timestamp()) * 1000 from jobq.pending p
      where p.position is null order by p.run_at limit 1), 0)::bigint as next_due_ms;
