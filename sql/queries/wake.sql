-- WaitAnnounce announces, for so many seconds from now, that a worker waits for jobs of a queue: inserts
-- then notify. It returns whether none waited before (wait_announce).
-- name: WaitAnnounce :one
select jobq.wait_announce(sqlc.arg(queue)::text, sqlc.arg(seconds)::bigint)::boolean as news;

-- TakenSend tells the other workers that one has claimed after a notification of new jobs and left
-- none (worker/internal/waking).
-- name: TakenSend :exec
select jobq.notify('taken', sqlc.arg(outcome)::text);

-- SleepAnnounce announces that the janitor looks at scheduled jobs again after so many milliseconds at the latest. It
-- returns the transactions that may have added jobs without a notification (sleep_announce).
-- name: SleepAnnounce :many
select x::text as id from jobq.sleep_announce(sqlc.arg(ms)::bigint) x;

-- LineChangers returns the transactions that have written jobs that wait, and have not ended (line_changers).
-- name: LineChangers :many
select x::text as id from jobq.line_changers() x;

-- StillOpen returns those of the given transactions that have not ended.
-- name: StillOpen :many
select x::text as id from unnest(sqlc.arg(ids)::text[]) x where pg_xact_status(x::xid8) = 'in progress';
