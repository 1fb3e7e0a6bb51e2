-- WatcherRenew says that somebody watches, for as long as the lease.
-- name: WatcherRenew :exec
select jobq.watch(sqlc.arg(id)::text, sqlc.arg(lease)::interval);

-- name: WatcherGone :exec
delete from jobq.watcher w where w.id = sqlc.arg(id);

-- DigestSend tells watchers what a worker has done.
-- name: DigestSend :exec
select pg_notify(jobq.channel('event'), sqlc.arg(digest)::text);
