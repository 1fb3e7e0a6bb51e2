-- name: EventAdd :exec
insert into jobq.event (type, source, message) values (sqlc.arg(type), sqlc.arg(source), left(sqlc.arg(message)::text, 1000));

-- EventList is a page of events, newest first, below the id of the page before.
-- name: EventList :many
select e.id, e.at, e.type, e.source, e.job_id, e.queue, e.message
  from jobq.event e
  where e.id < sqlc.arg(before)
  order by e.id desc
  limit sqlc.arg(page_size)::integer;

-- name: EventPrune :execrows
delete from jobq.event e where e.at < clock_timestamp() - sqlc.arg(age)::interval;
