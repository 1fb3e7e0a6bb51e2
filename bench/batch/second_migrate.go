package main

// How jobs get from today's tables into the second layout, and back, while new
// ones come in. What waits stays where it is. Workers of the old version have
// stopped: what running still has then becomes a run with a lease of its own,
// which the reaper ends when the old one would have ended. The history moves in
// steps of $1 rows; until it has, the view has both.

var runningToRun = `with t as (
  delete from jobq.running r returning r.*
), n as materialized (
  select jobq.lease_id_next() as lease_id, t.* from t
), l as (
  insert into jobq.lease (id, claimed_at, expires_at, owner, queue, ended, job_ids)
    select n.lease_id, n.started_at, n.lease_expires_at, n.lease_owner, n.queue, '{null}', array[n.id] from n
), p as (
  insert into jobq.progress (job_id, lease_id, progressed_at, percent, stage, message, checkpoint)
    select n.id, n.lease_id, n.progressed_at, n.progress_percent, n.progress_stage, n.progress_message, n.checkpoint
      from n
      where n.progressed_at is not null
)
insert into jobq.run (lease_id, slot, cancel_requested_at, ` + jobColumns + `)
  select n.lease_id, 1, n.cancel_requested_at, ` + of("n", jobColumns) + ` from n`

// oldColumns are jobColumns that the history has.
const oldColumns = `id, run_at, created_at, timeout, backoff_base, backoff_max, priority, attempts, max_attempts,
     crashes, args_apart, queue, kind, args, unique_key, last_error, checkpoint, metadata, tags, result, state, finished_at`

// finishedToRun gives each run of the old history a lease of its own, which
// says who ran it: no other place would. A place (ctid) is one of each partition,
// so a step may move a few times as many rows as it was asked for.
var finishedToRun = `with t as (
  delete from jobq.finished f where f.ctid = any(array(select x.ctid from jobq.finished x limit $1)) returning f.*
), n as materialized (
  select jobq.lease_day((coalesce(t.started_at, t.finished_at) at time zone 'UTC')::date) + nextval('jobq.lease_number_seq') as lease_id, t.* from t
), l as (
  insert into jobq.past_lease (id, claimed_at, owner, queue, ended)
    select n.lease_id, n.started_at, n.lease_owner, n.queue, '{-1}' from n where n.started_at is not null
)
insert into jobq.run (lease_id, slot, ` + oldColumns + `)
  select n.lease_id, (n.started_at is not null)::integer, ` + of("n", oldColumns) + ` from n`

// runToFinished is the way back.
var runToFinished = `with t as (
  delete from jobq.run r where r.id = any(array(select x.id from jobq.run x where ` + over("x") + ` limit $1)) and ` + over("r") + ` returning r.*
)
insert into jobq.finished (lease_token, started_at, lease_owner, ` + oldColumns + `)
  select t.lease_id, l.claimed_at, l.owner, t.id, t.run_at, t.created_at, t.timeout, t.backoff_base, t.backoff_max,
      t.priority, t.attempts, t.max_attempts, t.crashes, t.args_apart, t.queue, t.kind, t.args, t.unique_key, t.last_error, t.checkpoint,
      t.metadata, t.tags, t.result, coalesce(t.state, 'completed'),
      coalesce(t.finished_at, l.claimed_at + l.ended[t.slot] * interval '1 ms')
    from t
    left join jobq.past_lease l on l.id = t.lease_id`
