-- WorkerBeat registers the worker, or says that it lives. No lease depends
-- on this row: it is for people, and for the janitor to clear away.
-- name: WorkerBeat :exec
insert into jobq.worker as w (id, pid, draining, hostname, boot_id, version, queues, kinds)
  values (sqlc.arg(id), sqlc.arg(pid), sqlc.arg(draining), sqlc.arg(hostname), sqlc.narg(boot_id), sqlc.arg(version),
    sqlc.arg(queues), sqlc.arg(kinds)::text[])
  on conflict (id) do update
    set heartbeat_at = clock_timestamp(), draining = excluded.draining;

-- name: WorkerGone :exec
delete from jobq.worker w where w.id = sqlc.arg(id);

-- WorkerList is every worker that has beaten lately or still holds leases.
-- name: WorkerList :many
select w.id, w.hostname, w.pid, w.version, w.queues, w.kinds, w.draining, w.started_at, w.heartbeat_at,
    (select count(*) from jobq.running r where r.lease_owner = w.id) as running
  from jobq.worker w
  order by w.id;

-- WorkerPrune removes workers that have been silent for too long and hold no lease.
-- name: WorkerPrune :execrows
delete from jobq.worker w
  where w.heartbeat_at < clock_timestamp() - sqlc.arg(silence)::interval
    and not exists (select from jobq.running r where r.lease_owner = w.id);
