-- name: EventAdd :exec
insert into jobq.event (type, source, message)
    values (sqlc.arg(type), sqlc.arg(source), left(sqlc.arg(message)::text, 1000));

-- EventList is a page of events, newest first, below the id of the page before.
-- name: EventList :many
select e.id, e.at, e.type, e.source, e.job_id, e.queue, e.message
  from jobq.event e
  where e.id < sqlc.arg(before)
  order by e.id desc
  limit sqlc.arg(page_size)::integer;

-- EventPrune deletes up to row_count events that are older than the age, the earliest first. It
-- returns how many it has deleted, and the moment of the last, where the next call may begin, as
-- StatPrune does. Needs event_at_idx.
-- name: EventPrune :one
with deleted as (
  delete from jobq.event e
    where e.ctid = any(array(
      select x.ctid from jobq.event x
        where x.at >= sqlc.arg(after)::timestamptz and x.at < statement_timestamp() - sqlc.arg(age)::interval
        order by x.at
        limit sqlc.arg(row_count)::integer
        for update skip locked))
    returning e.at
)
select count(*) as deleted, coalesce(max(d.at), sqlc.arg(after)::timestamptz)::timestamptz as last from deleted d;
