-- WaitAnnounce says that somebody waits for jobs, for so many seconds from now,
-- which makes inserts notify. It says whether nobody did before: then an insert
-- that has looked already, and has not committed yet, will not notify.
-- name: WaitAnnounce :one
with before as materialized (
  select coalesce(pg_sequence_last_value('jobq.waiting_seq'::regclass), 0)::bigint as until
)
select (b.until < extract(epoch from clock_timestamp()))::boolean as news,
    setval('jobq.waiting_seq', greatest(b.until, ceil(extract(epoch from clock_timestamp()))::bigint + sqlc.arg(seconds)::bigint))::bigint as until
  from before b;

-- TakenSend tells the other workers that one has claimed after a notification of
-- new jobs and left none; see worker/internal/waking.
-- name: TakenSend :exec
select pg_notify(jobq.channel('taken'), sqlc.arg(outcome)::text);

-- TransactionMark ends a transaction with an id of its own. A snapshot lists only
-- transactions older than the youngest that has ended: after this, all that had
-- an id before.
-- name: TransactionMark :exec
select pg_current_xact_id();

-- TransactionsOpen are those that have changed something and not ended, of those
-- older than some that has.
-- name: TransactionsOpen :many
select x::text as id from pg_snapshot_xip(pg_current_snapshot()) x;

-- TransactionsStillOpen are those of the given ones that have not ended.
-- name: TransactionsStillOpen :many
select x::text as id from unnest(sqlc.arg(ids)::text[]) x where pg_xact_status(x::xid8) = 'in progress';
