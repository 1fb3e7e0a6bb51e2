-- JanitorLock takes the janitor's lock for the session, if it is free and
-- the server is not a standby, which would grant it to anybody.
-- name: JanitorLock :one
select (not pg_is_in_recovery() and pg_try_advisory_lock(sqlc.arg(class)::integer, sqlc.arg(object)::integer))::boolean as locked;

-- JanitorLockTx takes the janitor's lock until the transaction ends, likewise.
-- It also tells the shortest lease of all queues: a job of a dead worker must
-- not wait for much longer than that, not even when the leader died with it.
-- name: JanitorLockTx :one
select (not pg_is_in_recovery() and pg_try_advisory_xact_lock(sqlc.arg(class)::integer, sqlc.arg(object)::integer))::boolean as locked,
    coalesce((select extract(epoch from min(q.lease)) * 1000 from jobq.queue q), 60000)::bigint as shortest_lease_ms;
