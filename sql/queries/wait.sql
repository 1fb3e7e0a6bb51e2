-- WaitAnnounce announces, for so many seconds from now, that a worker waits for jobs of a queue: inserts
-- then notify. It returns whether none waited before (wait_announce).
-- name: WaitAnnounce :one
select jobq.wait_announce(sqlc.arg(queue)::text, sqlc.arg(seconds)::bigint)::boolean as news;

-- TakenSend tells the other workers that one has claimed after a notification of new jobs and left
-- none (worker/internal/waking).
-- name: TakenSend :exec
select jobq.notify('taken', sqlc.arg(outcome)::text);

-- TransactionMark is a transaction of its own, which takes an id and ends. A snapshot lists only
-- transactions that are older than the youngest one that has ended: after this, it lists all open
-- ones that had an id before.
-- name: TransactionMark :exec
select pg_current_xact_id();

-- TransactionsOpen returns the transactions that have changed something and have not ended. It does
-- not see those that are younger than all that have ended.
-- name: TransactionsOpen :many
select x::text as id from pg_snapshot_xip(pg_current_snapshot()) x;

-- TransactionsStillOpen returns those of the given transactions that have not ended.
-- name: TransactionsStillOpen :many
select x::text as id from unnest(sqlc.arg(ids)::text[]) x where pg_xact_status(x::xid8) = 'in progress';
