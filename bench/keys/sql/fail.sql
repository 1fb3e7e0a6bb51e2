-- fail sends a run back to the line, to wait for its retry ($1 job, $2 lease), or to the history for good ($3).
with lease as (
  delete from proto.lease l where l.id = $2 and l.job_ids = array[$1::bigint] returning l.queue, l.key
), failed as (
  update proto.run r set state = 'failed', finished_at = clock_timestamp() where $3 and r.id = $1 and r.lease_id = $2 and exists (select from lease)
), gone as (
  delete from proto.run r where not $3 and r.id = $1 and r.lease_id = $2 and exists (select from lease) returning r.*
), back as (
  insert into proto.pending (id, position, run_at, queue, kind, partition_key, attempts)
    select g.id, null, clock_timestamp() + interval '20 ms', g.queue, g.kind, g.partition_key, 1 from gone g
)
insert into proto.lane_hint (queue, key) select l.queue, l.key from lease l
