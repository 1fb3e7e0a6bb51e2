-- WatcherRenew says that somebody watches, for as long as the lease.
-- name: WatcherRenew :exec
select jobq.watch(sqlc.arg(id)::text, sqlc.arg(lease)::interval);

-- name: WatcherGone :exec
select jobq.watch_end(sqlc.arg(id)::text);

-- DigestSend tells watchers what a worker has done, forgets what it told before
-- with these ids, and returns the id of what it tells.
-- name: DigestSend :one
select jobq.tell(sqlc.arg(digest)::text, sqlc.arg(forget)::bigint[])::bigint;

-- DigestRead is what workers have told with these ids, in order. Needs digest_pkey.
-- name: DigestRead :many
select d.digest from jobq.digest d where d.id = any(sqlc.arg(ids)::bigint[]) order by d.id;
