-- SessionBlockers are the sessions that keep another one waiting for a lock, up to 100 of
-- them: those that hold it, and those that wait for it and came before. The one whose
-- transaction has been open for longest is the first. A transaction that was prepared
-- (two-phase commit) has no session: its pid is 0. What this role may not see is null.
-- The table is empty if the lock is of no table. No row while the session does not wait.
-- name: SessionBlockers :many
select coalesce(l.relation::regclass::text, '')::text as table_name, b.pid::integer as pid,
    coalesce(nullif(a.application_name, ''), a.backend_type, '')::text as application,
        coalesce(a.usename, '')::text as username,
    coalesce(a.state, '')::text as state, a.xact_start, a.query_start, clock_timestamp()::timestamptz as at
  from pg_catalog.pg_locks l
  cross join lateral unnest(pg_catalog.pg_blocking_pids(l.pid)) as b(pid)
  left join pg_catalog.pg_stat_activity a on a.pid = b.pid
  where l.pid = sqlc.arg(session)::integer and not l.granted
  order by a.xact_start, b.pid
  limit 100;
