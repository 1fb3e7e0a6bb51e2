-- LineAged says which priorities of the queues have waited for too long: the first job of
-- such a priority has waited for the queue's age_after, and there are more urgent ones.
-- With the position of that job, and the one that has waited longest first.
--
-- An example, 12:00, age_after 5 minutes:
--
--   priority  position  waits since
--          0       501        11:50    not aged: it is the most urgent one, and next in any case
--          3       502        11:54    aged
--          3       530        11:59    of the same priority, and behind it
--          9        17        11:58    not aged yet
--
-- The answer is (3, 502). It looks at jobs without a partition key, of the kinds that the
-- caller claims and that are not paused, and at the hundred least urgent priorities: it goes
-- from one to the next by the index, from the end on, and then to the first job of each.
-- Needs pending_claim_idx, queue_pkey and kind_paused_idx.
-- name: LineAged :many
with recursive line as materialized (
  select n.name, coalesce(q.age_after, jobq.age_after_default()) as age_after
    from unnest(sqlc.arg(queue_names)::text[]) as n(name)
    left join jobq.queue q on q.name = n.name
    where q.paused_at is null
), step as (
  select l.name, l.age_after, 1 as number,
      jobq.line_priority(l.name, sqlc.arg(kinds)::text[], 32768) as priority
    from line l
    where l.age_after > interval '0'
  union all
  select s.name, s.age_after, s.number + 1,
      jobq.line_priority(s.name, sqlc.arg(kinds)::text[], s.priority)
    from step s
    where s.priority is not null and s.number < 100
), most_urgent as materialized (
  select s.name, min(s.priority) as priority from step s group by s.name
)
select s.name::text as queue, s.priority::smallint as priority, h.position::bigint as position
  from step s
  join most_urgent m on m.name = s.name
  cross join lateral (
    select p.position, greatest(p.run_at, p.created_at) as since
      from jobq.pending p
      where p.queue = s.name and p.partition_key = '' and p.priority = s.priority and p.position is not null
        and p.kind = any(sqlc.arg(kinds)::text[])
        and p.kind <> all(array(select k.name from jobq.kind k where k.paused_at is not null))
      order by p.priority, p.position
      limit 1
  ) h
  where s.priority > m.priority and h.since <= statement_timestamp() - s.age_after
  order by h.since;
