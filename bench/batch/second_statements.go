package main

import "strings"

// runClaim is JobClaim's choice of candidates, one lease, and a row of run per
// job. lease and run read the rows of taken in the same order, in which they
// were deleted: the place of an id in job_ids is the slot of its run.
var runClaim = claimHead + `
), l as (
  insert into jobq.lease (id, claimed_at, expires_at, owner, queue, ended, job_ids)
    select jobq.lease_id_next(), clock_timestamp(), clock_timestamp() + $1::interval, $2, $6, array_fill(null::smallint, array[cardinality(t.ids)]), t.ids
      from (select array_agg(t.id) as ids from taken t having count(*) > 0) t
    returning id, claimed_at
)
insert into jobq.run as r (lease_id, slot, ` + jobColumns + `)
  select (select l.id from l), row_number() over (), ` + of("t", jobColumns) + `
    from taken t
  returning r.id, r.position, r.lease_id, r.priority, r.attempts, r.max_attempts, r.crashes, r.queue, r.kind,
    r.created_at, r.run_at, (select l.claimed_at from l limit 1) as started_at, coalesce(ceil(extract(epoch from r.timeout) * 1000), 0)::bigint,
    coalesce(r.args, (select a.args from jobq.payload a where a.job_id = r.id))::jsonb,
    r.checkpoint, r.metadata, r.tags, r.last_error, r.clear_reason,
    r.unique_key is not null as ends_on_row, r.slot`

// runClaimEach is runClaim with a lease for each job, for queues whose jobs
// extend their own leases by what they report.
var runClaimEach = mustReplace(mustReplace(mustReplace(runClaim,
	"$2, $6, array_fill(null::smallint, array[cardinality(t.ids)]), t.ids\n      from (select array_agg(t.id) as ids from taken t having count(*) > 0) t\n    returning id, claimed_at",
	"$2, $6, '{null}'::smallint[], array[t.id]\n      from taken t\n    returning id, claimed_at, job_ids[1] as job_id"),
	"select (select l.id from l), row_number() over (), ", "select l.id, 1, "),
	"    from taken t\n  returning r.id", "    from taken t\n    join l on l.job_id = t.id\n  returning r.id")

// leaseEnd stores which slots of leases have plainly succeeded: for each lease
// its whole array, in which -2 stands for now. It takes ids of leases, where the
// arrays of each begin and end in the array of all, that array, the owner, and
// for the statistics by lease and kind: which lease, the kind, how many, and how
// many seconds they had waited. leaseClose is the same for leases of which no
// slot is left: it moves them to the history.
//
// It is refused as a whole for a lease that is not the owner's any more, that
// somebody has locked, that was claimed too long ago for a smallint, or that
// has as many ends already (the same once more, after a lost answer): the
// worker then asks leaseLook. So each end is stored and counted once.
const (
	leaseEnd = endsSent + `
  update jobq.lease l
    set ended = ` + endsNow + `
    from f
    where l.id = f.id and l.ctid = any(array(select h.place from held h))
    returning l.id, l.queue, l.claimed_at, l.ended, f.ended as sent
)` + endsCounted
	leaseClose = endsSent + `
  delete from jobq.lease l
    using f
    where l.id = f.id and l.ctid = any(array(select h.place from held h)) and array_position(f.ended, null) is null
    returning l.id, l.queue, l.claimed_at, l.owner, f.ended as sent, ` + endsNow + ` as ended
), past as (
  insert into jobq.past_lease (id, claimed_at, owner, queue, ended)
    select e.id, e.claimed_at, e.owner, e.queue, e.ended from e
)` + endsCounted
	endsSent = `with f as materialized (
  select f.id, ($4::smallint[])[f.low:f.high] as ended
    from rows from (unnest($1::bigint[]), unnest($2::integer[]), unnest($3::integer[])) as f(id, low, high)
), held as materialized (
  select h.place
    from f
    cross join lateral (
      select x.ctid as place from jobq.lease x
        where x.id = f.id and x.owner = $5 and x.lost_at is null
          and cardinality(x.ended) = cardinality(f.ended)
          and cardinality(array_remove(x.ended, null)) < cardinality(array_remove(f.ended, null))
          and (array_position(f.ended, -2::smallint) is null or x.claimed_at > statement_timestamp() - interval '32.7 s')
        for update skip locked
    ) h
), e as (`
	endsNow     = `array_replace(f.ended, -2::smallint, least(extract(epoch from clock_timestamp() - l.claimed_at) * 1000, 32767)::smallint)`
	endsCounted = `, counted as (
  insert into jobq.stat_delta (minute, queue, kind, completed, failed, retried, lost, cancelled, run_seconds, wait_seconds)
    select date_trunc('minute', clock_timestamp()), e.queue, s.kind, s.completed, 0, 0, 0, 0,
        s.completed * extract(epoch from clock_timestamp() - e.claimed_at)::float8, s.waited
      from e
      join rows from (unnest($6::bigint[]), unnest($7::text[]), unnest($8::integer[]), unnest($9::float8[]))
        as s(lease_id, kind, completed, waited) on s.lease_id = e.id
)
select e.id, e.ended[coalesce(array_position(e.sent, -2::smallint), 1)] as millis from e`
)

// resultKeep stores the results of slots that leaseEnd has stored before, in the
// same transaction, and adds nothing when it is sent again. It takes leases,
// slots, results and the owner.
const resultKeep = `with f as materialized (
  select f.lease_id, f.slot, f.result
    from rows from (unnest($1::bigint[]), unnest($2::smallint[]), unnest($3::jsonb[])) as f(lease_id, slot, result)
), l as materialized (
  select x.id, x.ended
    from (select distinct f.lease_id from f) d
    cross join lateral (
      select x.id, x.ended from jobq.lease x where x.id = d.lease_id and x.owner = $4
      union all
      select x.id, x.ended from jobq.past_lease x where x.id = d.lease_id and x.owner = $4
      limit 1
    ) x
)
insert into jobq.result (lease_id, slot, result)
  select f.lease_id, f.slot, f.result
    from f
    join l on l.id = f.lease_id
    where l.ended[f.slot] >= 0
  on conflict do nothing`

// liveSince is when the lease was claimed, if it is the owner's and the slot
// runs, by the look of it, and else null: what decides is the lock on the row of run.
func liveSince(slot, id, owner string) string {
	return `(select y.claimed_at from jobq.lease y
      where y.id = ` + id + ` and y.owner = ` + owner + ` and y.ended[` + slot + `] is null and y.lost_at is null limit 1)`
}

// runEnd ends runs on their own rows: all that did not plainly succeed, and
// those that have a unique key, a checkpoint or a long run behind them. It takes ids, leases, owner, outcomes, errors, delays,
// finals and results; the outcomes are JobEnd's, and completed. It locks rows
// of run alone, and waits for none. A row that has changed since the snapshot is
// locked in its new version, which is then neither in kept nor in gone: it does
// not come back, and is asked for again. An end is said in the lease by a later
// leaseEnd, when it is known to be stored.
var runEnd = `with f as materialized (
  select f.id, f.lease_id, f.outcome, f.error, f.delay, f.final, f.result
    from rows from (unnest($1::bigint[]), unnest($2::bigint[]), unnest($4::text[]), unnest($5::text[]),
      unnest($6::interval[]), unnest($7::boolean[]), unnest($8::jsonb[]))
      as f(id, lease_id, outcome, error, delay, final, result)
), held as materialized (
  select h.place, h.id, h.lease_id, h.claimed_at, h.queue, h.kind, h.position, h.run_at, h.attempts as attempts_before, f.outcome, f.error, f.delay, f.result,
      h.attempts + case when f.outcome in ('failed', 'timed_out') then 1 else 0 end as attempts,
      case
        when f.outcome in ('completed', 'cancelled') then f.outcome
        when f.outcome in ('failed', 'timed_out') and (f.final or h.attempts + 1 >= h.max_attempts) then 'failed'
        when h.cancel_requested_at is not null then 'cancelled'
        when f.outcome = 'released' or f.delay <= interval '0' then 'available'
        else 'scheduled'
      end::jobq.job_state as state
    from f
    cross join lateral (
      select x.ctid as place, x.id, x.lease_id, x.queue, x.kind, x.position, x.run_at, x.attempts, x.max_attempts, x.cancel_requested_at,
          ` + liveSince("x.slot", "f.lease_id", "$3") + ` as claimed_at
        from jobq.run x
        where x.id = f.id and x.lease_id = f.lease_id and x.state is null and ` + liveSince("x.slot", "f.lease_id", "$3") + ` is not null
        for update of x skip locked
    ) h
), kept as (
  update jobq.run r
    set state = h.state, finished_at = clock_timestamp(), attempts = h.attempts, result = h.result, clear_reason = null,
      last_error = case when h.outcome in ('failed', 'timed_out') then left(h.error, 1000) else r.last_error end,
      checkpoint = coalesce((select p.checkpoint from jobq.progress p where p.job_id = h.id and p.lease_id = h.lease_id), r.checkpoint)
    from held h
    where r.id = h.id and h.state in ('completed', 'failed', 'cancelled')
      and r.ctid = any(array(select h.place from held h)) and r.lease_id = any($2::bigint[])
    returning r.id
), gone as (
  delete from jobq.run r
    where r.ctid = any(array(select h.place from held h where h.state in ('available', 'scheduled')))
      and r.id = any(array(select h.id from held h where h.state in ('available', 'scheduled'))) and r.lease_id = any($2::bigint[])
    returning ` + of("r", jobColumns) + `
), done as materialized (
  select h.* from held h join (select k.id from kept k union all select g.id from gone g) d on d.id = h.id
), again as (
  insert into jobq.pending (lease_token, ` + jobColumns + `)
    select h.lease_id, g.id, case when h.outcome = 'released' then g.position else nextval('jobq.position_seq') end,
        case when h.outcome = 'released' then g.run_at
          else clock_timestamp() + coalesce(h.delay, jobq.backoff_delay(h.attempts, g.backoff_base, g.backoff_max)) end,
        g.created_at, g.timeout, g.backoff_base, g.backoff_max, g.priority, h.attempts, g.max_attempts, g.crashes, g.args_apart,
        g.queue, g.kind, g.args, g.unique_key, case when h.outcome in ('failed', 'timed_out') then left(h.error, 1000) else g.last_error end,
        case when h.outcome = 'released' then g.clear_reason end,
        coalesce((select p.checkpoint from jobq.progress p where p.job_id = h.id and p.lease_id = h.lease_id), g.checkpoint), g.metadata, g.tags
      from gone g
      join held h on h.id = g.id
), told as (
  insert into jobq.attempt (job_id, finished_at, started_at, lease_token, outcome, number, worker_id, error)
    select h.id, clock_timestamp(), h.claimed_at, h.lease_id, h.outcome::jobq.attempt_outcome, h.attempts_before + 1, $3, nullif(h.error, '')
      from done h
      where h.outcome <> 'completed'
), forgotten as (
  delete from jobq.progress p where p.job_id = any(array(select d.id from done d))
), counted as (
  insert into jobq.stat_delta (minute, queue, kind, completed, failed, retried, lost, cancelled, run_seconds, wait_seconds)
    select date_trunc('minute', clock_timestamp()), h.queue, h.kind,
        count(*) filter (where h.state = 'completed'), count(*) filter (where h.state = 'failed'),
        count(*) filter (where h.outcome in ('failed', 'timed_out') and h.state in ('available', 'scheduled')), 0,
        count(*) filter (where h.state = 'cancelled'),
        coalesce(sum(extract(epoch from clock_timestamp() - h.claimed_at)::float8) filter (where h.state <> 'cancelled'), 0),
        coalesce(sum(extract(epoch from h.claimed_at - h.run_at)::float8) filter (where h.state = 'completed'), 0)
      from done h
      where h.outcome in ('completed', 'failed', 'timed_out') or h.state = 'cancelled'
      group by h.queue, h.kind
)
select d.id, d.state from done d`

// runCompleteTx stores a success in the handler's own transaction. It locks the
// row of run until that ends, and not the lease: extensions go on, and a reaper
// passes the row by. It takes id, lease, owner and result.
var runCompleteTx = `update jobq.run r
  set state = 'completed', finished_at = clock_timestamp(), result = $4, clear_reason = null
  where r.id = $1 and r.lease_id = $2 and r.state is null and ` + liveSince("r.slot", "$2", "$3::text") + ` is not null`

// leaseExtend gives leases their full time again; one of 0 only asks. The
// answer is ok; look when somebody asked for one of its jobs to be cancelled;
// busy when it is in other hands; and none for a lease that is lost. It takes
// ids, owner and the time.
const leaseExtend = `with held as materialized (
  select l.place
    from unnest($1::bigint[]) h(id)
    cross join lateral (
      select x.ctid as place from jobq.lease x
        where x.id = h.id and x.owner = $2 and x.lost_at is null
        for no key update skip locked
    ) l
    where $3::interval > interval '0'
), extended as (
  update jobq.lease l
    set expires_at = greatest(l.expires_at, clock_timestamp() + $3::interval)
    where l.ctid = any(array(select held.place from held))
    returning l.id
)
select l.id, case
    when $3::interval > interval '0' and l.id <> all(array(select e.id from extended e)) then 'busy'
    when exists (select from jobq.run r where r.lease_id = l.id and r.cancel_requested_at is not null and r.state is null) then 'look'
    else 'ok'
  end as answer
  from unnest($1::bigint[]) h(id)
  cross join lateral (
    select x.id from jobq.lease x
      where x.id = h.id and x.owner = $2 and x.lost_at is null
      limit 1
  ) l`

// leaseLook says how a lease stands: whether it is still the owner's, its ends,
// which of its jobs are open on their own rows, and which of these somebody
// asked to cancel. A run is over when its slot has a number or it is not among
// the open ones; it is lost when it is open and the lease is not the owner's.
const leaseLook = `select l.owner = $2 and l.lost_at is null as held, l.ended,
    array(select r.id from rows from (unnest(l.job_ids), unnest(l.ended)) j(id, ended) cross join lateral (
      select x.id from jobq.run x where x.id = j.id and x.lease_id = l.id and x.state is null limit 1) r
      where j.ended is null) as open,
    array(select r.id from jobq.run r where r.lease_id = l.id and r.cancel_requested_at is not null and r.state is null) as cancel
  from jobq.lease l
  where l.id = $1
union all
select false, l.ended, '{}', '{}' from jobq.past_lease l where l.id = $1`

// runCancel asks for a run to stop, and runCancelPending ends one that waits.
// Neither touches a lease, so the owner's extensions and ends go on beside it.
const runCancel = `update jobq.run r
  set cancel_requested_at = coalesce(r.cancel_requested_at, clock_timestamp())
  where r.id = $1 and r.state is null
    and exists (select from jobq.lease l where l.id = r.lease_id and l.ended[r.slot] is null)`

const runCancelPending = `with t as (
  delete from jobq.pending p where p.id = $1 returning p.*
)
insert into jobq.run (lease_id, slot, state, finished_at, ` + jobColumns + `)
  select jobq.lease_id_next(), 0, 'cancelled', clock_timestamp(), ` + jobColumns + ` from t`

// over is true of a row of run that has ended, one way or the other. An end is
// never taken back, so it needs no lock.
func over(alias string) string {
	return strings.ReplaceAll(`(r.state is not null
    or exists (select from jobq.lease l where l.id = r.lease_id and l.ended[r.slot] >= 0)
    or exists (select from jobq.past_lease l where l.id = r.lease_id and l.ended[r.slot] >= 0))`, "r.", alias+".")
}

// runRequeue makes a job that has ended wait again.
var runRequeue = `with t as (
  delete from jobq.run r where r.id = $1 and ` + over("r") + ` returning r.*
)
insert into jobq.pending (lease_token, id, run_at, created_at, timeout, backoff_base, backoff_max, priority, attempts, max_attempts,
    crashes, args_apart, queue, kind, args, unique_key, last_error, checkpoint, metadata, tags)
  select t.lease_id, t.id, clock_timestamp(), t.created_at, t.timeout, t.backoff_base, t.backoff_max, t.priority, least(t.attempts, 32766),
      greatest(t.max_attempts, least(t.attempts, 32766) + 1), t.crashes, t.args_apart, t.queue, t.kind, t.args, t.unique_key,
      t.last_error, t.checkpoint, t.metadata, t.tags
    from t`

var runDelete = `delete from jobq.run r where r.id = $1 and ` + over("r")

// runProgress stores a report under the run's lease: of an older one it changes
// nothing. Ids, leases and owner come first, then what is reported.
var runProgress = `insert into jobq.progress as p (job_id, lease_id, progressed_at, percent, stage, message)
  select f.id, f.lease_id, clock_timestamp(), f.percent, f.stage, f.message
    from rows from (unnest($1::bigint[]), unnest($2::bigint[]), unnest($4::real[]), unnest($5::text[]), unnest($6::text[]))
      as f(id, lease_id, percent, stage, message)
    cross join lateral (
      select x.id from jobq.run x
        where x.id = f.id and x.lease_id = f.lease_id and x.state is null and ` + liveSince("x.slot", "f.lease_id", "$3") + ` is not null
        limit 1
    ) r
  on conflict (job_id) do update
    set lease_id = excluded.lease_id, progressed_at = excluded.progressed_at,
      percent = case when p.lease_id = excluded.lease_id then coalesce(excluded.percent, p.percent) else excluded.percent end,
      stage = case when p.lease_id = excluded.lease_id then coalesce(excluded.stage, p.stage) else excluded.stage end,
      message = case when p.lease_id = excluded.lease_id then coalesce(excluded.message, p.message) else excluded.message end,
      checkpoint = case when p.lease_id = excluded.lease_id then p.checkpoint end
    where p.lease_id <= excluded.lease_id`

// runCheckpoint locks the run against a reaper, so that what it has stored is
// what the next run begins with. It takes id, lease, owner and the checkpoint.
var runCheckpoint = `with r as materialized (
  select x.id from jobq.run x
    where x.id = $1 and x.lease_id = $2 and x.state is null and ` + liveSince("x.slot", "$2", "$3::text") + ` is not null
    for key share
)
insert into jobq.progress as p (job_id, lease_id, progressed_at, checkpoint)
  select r.id, $2, clock_timestamp(), $4 from r
  on conflict (job_id) do update
    set lease_id = excluded.lease_id, progressed_at = excluded.progressed_at, checkpoint = excluded.checkpoint
    where p.lease_id <= excluded.lease_id`
