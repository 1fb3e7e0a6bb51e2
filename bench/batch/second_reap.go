package main

// leaseReap takes leases away whose time is over, or whose owners are given,
// and ends their open runs as lost: back to pending, or failed at the last
// attempt. It takes how many leases at most, and the owners, or null.
//
// The lease is locked first: from then on the owner's bulk ends and extensions
// are refused, whatever comes of the rest. A run that somebody has locked
// (CompleteTx in a transaction that is open) is passed by; its lease is then
// lost but stays, and comes again in the next pass. What the snapshot
// shows as open counts as open, so a lease is never moved away too early.
//
// Example: lease 900 of 41, 42, 43, ended {250, null, null}, expired; 43 is
// locked. This pass: lost_at is set, 42 goes back to pending. When 43's
// transaction has committed, the next pass finds nothing open, and moves the lease to the history.
//
// A lease or a run that has changed since the snapshot is locked in its new
// version, which the snapshot does not show: it is not in sure, or not in done,
// and waits for the next pass. Only what is in these is taken, told and counted.
const leaseReap = `with stale as materialized (
  select l.ctid as place
    from jobq.lease l
    left join jobq.queue q on q.name = l.queue
    where l.lost_at is not null
      or case when $2::text[] is null then l.expires_at < clock_timestamp() - coalesce(q.stale_grace, interval '0')
        else l.owner = any($2::text[]) end
    order by l.expires_at, l.id
    limit $1::integer
    for update of l skip locked
), sure as materialized (
  select l.id, l.claimed_at, l.owner, l.ctid as place, l.job_ids, l.ended
    from jobq.lease l
    where l.ctid = any(array(select s.place from stale s))
), slots as materialized (
  select j.id, s.id as lease_id, s.claimed_at, s.owner
    from sure s
    cross join lateral rows from (unnest(s.job_ids), unnest(s.ended)) as j(id, ended)
    where j.ended is null
), open as materialized (
  select r.id, s.lease_id
    from slots s
    cross join lateral (
      select x.id from jobq.run x where x.id = s.id and x.lease_id = s.lease_id and x.state is null limit 1
    ) r
), held as materialized (
  select r.place, r.id, r.attempts, s.lease_id, s.claimed_at, s.owner, coalesce(q.redelivery, 'tail') as redelivery,
      coalesce(q.redelivery_delay, interval '0') as delay, coalesce(q.reset_on_reap, false) as reset,
      case when $2::text[] is not null then 'orphaned by worker restart'
        else left(format('lease expired: worker %s stopped responding', s.owner), 1000) end as error,
      case
        when r.cancel_requested_at is not null then 'cancelled'
        when r.attempts + 1 >= r.max_attempts then 'failed'
        when q.redelivery_delay > interval '0' then 'scheduled'
        else 'available'
      end::jobq.job_state as state
    from slots s
    cross join lateral (
      select x.ctid as place, x.id, x.queue, x.attempts, x.max_attempts, x.cancel_requested_at from jobq.run x
        where x.id = s.id and x.lease_id = s.lease_id and x.state is null
        for update of x skip locked
    ) r
    left join jobq.queue q on q.name = r.queue
), kept as (
  update jobq.run r
    set state = h.state, finished_at = clock_timestamp(), attempts = h.attempts + 1, crashes = least(r.crashes + 1, 32767), last_error = h.error,
      clear_reason = null,
      checkpoint = coalesce((select p.checkpoint from jobq.progress p where p.job_id = h.id and p.lease_id = h.lease_id), r.checkpoint)
    from held h
    where r.id = h.id and h.state in ('failed', 'cancelled')
      and r.ctid = any(array(select h.place from held h)) and r.lease_id = any(array(select h.lease_id from held h))
    returning r.id
), gone as (
  delete from jobq.run r
    where r.ctid = any(array(select h.place from held h where h.state in ('available', 'scheduled')))
      and r.id = any(array(select h.id from held h where h.state in ('available', 'scheduled')))
      and r.lease_id = any(array(select h.lease_id from held h))
    returning ` + goneColumns + `
), done as materialized (
  select h.* from held h join (select k.id from kept k union all select g.id from gone g) d on d.id = h.id
), again as (
  insert into jobq.pending (lease_token, ` + jobColumns + `)
    select h.lease_id, g.id, case when h.redelivery = 'head' then g.position else nextval('jobq.position_seq') end, clock_timestamp() + h.delay,
        g.created_at, g.timeout, g.backoff_base, g.backoff_max, g.priority, h.attempts + 1, g.max_attempts, least(g.crashes + 1, 32767),
        g.args_apart, g.queue, g.kind, g.args, g.unique_key, h.error, h.error,
        case when not h.reset then coalesce((select p.checkpoint from jobq.progress p where p.job_id = h.id and p.lease_id = h.lease_id), g.checkpoint) end,
        g.metadata, g.tags
      from gone g
      join held h on h.id = g.id
), forgotten as (
  delete from jobq.progress p where p.job_id = any(array(select d.id from done d))
), told as (
  insert into jobq.attempt (job_id, finished_at, started_at, lease_token, outcome, number, worker_id, error)
    select h.id, clock_timestamp(), h.claimed_at, h.lease_id, 'lost', h.attempts + 1, h.owner, h.error from done h
), left_open as materialized (
  select o.lease_id from open o where o.id <> all(array(select d.id from done d))
), taken as (
  update jobq.lease l
    set lost_at = coalesce(l.lost_at, clock_timestamp())
    where l.ctid = any(array(select s.place from sure s)) and l.id = any(array(select o.lease_id from left_open o))
), closed as (
  delete from jobq.lease l
    where l.ctid = any(array(select s.place from sure s)) and l.id <> all(array(select o.lease_id from left_open o))
    returning l.id, l.claimed_at, l.owner, l.queue, l.ended
), past as (
  insert into jobq.past_lease (id, claimed_at, owner, queue, ended)
    select c.id, c.claimed_at, c.owner, c.queue, c.ended from closed c
)
select d.id, d.state from done d`

const goneColumns = `r.id, r.position, r.run_at, r.created_at, r.timeout, r.backoff_base, r.backoff_max, r.priority, r.attempts, r.max_attempts,
     r.crashes, r.args_apart, r.queue, r.kind, r.args, r.unique_key, r.last_error, r.clear_reason, r.checkpoint, r.metadata, r.tags`

// prunable are the days before $1 that retention may drop, with run and lease
// alike: no lease of the day is held, and nothing of it has ended since. So a job
// that ran for weeks keeps the partition of the day on which it began until its
// own end is old enough. (What ended by its lease did so within 33 seconds.)
const prunable = `select $1::date - back.days as day
  from generate_series(1, $2::integer) back(days)
  cross join lateral (select jobq.lease_day($1::date - back.days) as low, jobq.lease_day($1::date - back.days + 1) as high) d
  where not exists (select from jobq.lease l where l.id >= d.low and l.id < d.high)
    and not exists (select from jobq.run r where r.lease_id >= d.low and r.lease_id < d.high
      and r.finished_at >= $1::timestamp at time zone 'UTC' and r.state = 'completed')
    and not exists (select from jobq.run r where r.lease_id >= d.low and r.lease_id < d.high
      and r.finished_at >= $1::timestamp at time zone 'UTC' and r.state <> 'completed')`
