package main

import (
	"fmt"
	"strings"

	"github.com/jobq-dev/jobq/internal/db"
)

const (
	queueName = "default"
	kind      = "k"
)

// today is jobq's own path: a row of pending, a row of running, a row of finished.
func today() path {
	return path{
		name: "today", settings: db.HotSettings, claim: db.JobClaim, complete: db.JobComplete,
		history: "select count(*) from jobq.finished f where f.state = 'completed'",
		fill:    "insert into jobq.pending (kind, args) select '" + kind + "', a.args from unnest($1::jsonb[]) a(args)",
		look:    "select f.id from jobq.finished f where f.id = $1",
		page:    "select f.* from jobq.finished f order by f.id desc limit 50",
		scan:    "select f.id from jobq.finished f where f.kind = 'none'",
	}
}

// The columns that a batch's job brings to running and finished, and where from.
const (
	movedColumns = `id, lease_token, run_at, created_at, timeout, backoff_base, backoff_max, priority, attempts, max_attempts, crashes,
     args_apart, queue, kind, args, unique_key, last_error, checkpoint, metadata, tags`
	movedValues = `j.id, j.lease_token + 1, j.run_at, j.created_at, j.timeout, j.backoff_base, j.backoff_max, j.priority, j.attempts,
     j.max_attempts, j.crashes, j.args_apart, j.queue, j.kind, j.args, j.unique_key, j.last_error, j.checkpoint, j.metadata, j.tags`
	// answer is what a claim returns, of t.
	answer = `t.id, t.position, t.lease_token + 1, t.priority, t.attempts, t.max_attempts, t.crashes, t.queue, t.kind,
     t.created_at, t.run_at, clock_timestamp(), coalesce(ceil(extract(epoch from t.timeout) * 1000), 0)::bigint,
     coalesce(t.args, (select a.args from jobq.payload a where a.job_id = t.id))::jsonb,
     t.checkpoint, t.metadata, t.tags, t.last_error, t.clear_reason, (select b.id from b) as batch`
	// counted is the batch's row of statistics, of d.
	counted = `counted as (
  insert into jobq.stat_delta (minute, queue, kind, completed, failed, retried, lost, cancelled, run_seconds, wait_seconds)
    select date_trunc('minute', clock_timestamp()), d.queue, s.kind, s.completed, 0, 0, 0, 0, s.run, s.waited
      from d cross join rows from (unnest($3::text[]), unnest($4::integer[]), unnest($5::float8[]), unnest($6::float8[]))
        as s(kind, completed, run, waited)
)`
)

// batchTable has one row per claim. It is the lease while the jobs run, and
// the history afterwards: the jobs are written once, and the end is an update
// that leaves them where they are.
func batchTable(compression string) string {
	return fmt.Sprintf(`
create sequence jobq.batch_id_seq;
create table jobq.batch (
  id               bigint         not null,
  claimed_at       timestamptz    not null,
  lease_expires_at timestamptz    not null,
  finished_at      timestamptz,
  id_min           bigint         not null,
  id_max           bigint         not null,
  lease_owner      text           not null,
  queue            text           not null,
  gone             bigint[]       not null default '{}',
  jobs             jobq.pending[] not null
) partition by range (claimed_at);
create table jobq.batch_today partition of jobq.batch for values from ('2020-01-01') to ('2100-01-01')
  with (fillfactor = 80);
alter table jobq.batch_today %s;
create index batch_id_idx on jobq.batch (id);
create index batch_jobs_idx on jobq.batch using gist (int8range(id_min, id_max, '[]'));
create index batch_live_idx on jobq.batch (lease_expires_at) where finished_at is null;`, compression)
}

// claimHead is what all claims that take rows out of pending begin with: jobq's own choice of candidates.
var claimHead = strings.TrimSuffix(strings.TrimSpace(db.JobClaim[:strings.Index(db.JobClaim, "insert into jobq.running")]), "\n)")

// claimBatch takes the jobs into one row of batch.
var claimBatch = claimHead + `, p as job
), b as (
  insert into jobq.batch (id, claimed_at, lease_expires_at, id_min, id_max, lease_owner, queue, jobs)
    select nextval('jobq.batch_id_seq'), clock_timestamp(), clock_timestamp() + $1::interval, min(t.id), max(t.id), $2, $6,
        array_agg(t.job)
      from taken t
      having count(*) > 0
    returning id
)
select ` + answer + ` from taken t`

const (
	// split makes rows of running of some jobs of a batch, d, but not of those that somebody has split off before.
	split = `, split as (
  insert into jobq.running (lease_owner, lease_expires_at, started_at, position, clear_reason, ` + movedColumns + `)
    select d.lease_owner, d.lease_expires_at, d.claimed_at, j.position, j.clear_reason, ` + movedValues + `
      from d cross join unnest(d.jobs) j
      where j.id = any($7::bigint[]) and j.id <> all(d.gone)
)`
	// ended locks the batch, which may have changed while it waited, before it is updated.
	ended = `with d as materialized (
  select ` + dColumns + ` from jobq.batch b where b.id = $1 and b.lease_owner = $2 and b.finished_at is null for update
), done as (
  update jobq.batch b set finished_at = clock_timestamp(), gone = d.gone || array(select g.id from unnest($7::bigint[]) g(id) where g.id <> all(d.gone)) from d where b.id = d.id
), `
	ofTheBatch = ` b where b.id = $1 and b.lease_owner = $2 and b.finished_at is null`
	dColumns   = `b.id, b.claimed_at, b.lease_expires_at, b.id_min, b.id_max, b.lease_owner, b.queue, b.jobs, b.gone`
)

// rowPerBatch is a lease and a row of history for each batch: the design that 0008 describes.
func rowPerBatch(name, compression string) path {
	p := today()
	p.name, p.setUp, p.claim, p.batched = name, batchTable(compression), claimBatch, true
	p.finish = `with d as (update jobq.batch b set finished_at = clock_timestamp() where b.id = $1 and b.lease_owner = $2 and b.finished_at is null
  returning b.id, b.queue, b.gone), ` + counted + ` select d.id, d.gone from d`
	p.split = ended + counted + split + ` select d.id from d`
	p.history = `select coalesce((select sum(cardinality(b.jobs) - cardinality(b.gone)) from jobq.batch b where b.finished_at is not null), 0)
  + (select count(*) from jobq.finished f where f.state = 'completed')`
	p.look = `select j.id from jobq.batch b cross join unnest(b.jobs) j
  where int8range(b.id_min, b.id_max, '[]') @> $1::bigint and b.finished_at is not null and j.id = $1 and j.id <> all(b.gone)
  union all select f.id from jobq.finished f where f.id = $1`
	p.page = `select j.* from (select b.jobs, b.gone from jobq.batch b where b.finished_at is not null order by b.id desc limit 1) b
  cross join unnest(b.jobs) j where j.id <> all(b.gone) order by j.id desc limit 50`
	p.scan = `select j.id from jobq.batch b cross join unnest(b.jobs) j where b.finished_at is not null and j.kind = 'none'`
	return p
}

// movedHistory has the lease in one table and the history in another, so that the jobs are written twice.
func movedHistory() path {
	p := rowPerBatch("lease and history per batch, two tables", "alter jobs set compression lz4")
	p.setUp += `create table jobq.batch_done (like jobq.batch); alter table jobq.batch_done alter jobs set compression lz4;
create index on jobq.batch_done (id);
create index on jobq.batch_done using gist (int8range(id_min, id_max, '[]'));`
	p.finish = `with d as (delete from jobq.batch` + ofTheBatch + ` returning ` + dColumns + `), ` + counted + `
insert into jobq.batch_done (id, claimed_at, lease_expires_at, finished_at, id_min, id_max, lease_owner, queue, gone, jobs)
  select d.id, d.claimed_at, d.lease_expires_at, clock_timestamp(), d.id_min, d.id_max, d.lease_owner, d.queue, d.gone, d.jobs from d returning id`
	p.history, p.look = strings.ReplaceAll(p.history, "jobq.batch ", "jobq.batch_done "), ""
	return p
}

// leasePerBatch keeps a row of history per job.
func leasePerBatch() path {
	p := rowPerBatch("lease per batch, history per job", "alter jobs set compression lz4")
	intoHistory := `, history as (
  insert into jobq.finished (finished_at, started_at, state, lease_owner, ` + movedColumns + `)
    select clock_timestamp(), d.claimed_at, 'completed', d.lease_owner, ` + movedValues + ` from d cross join unnest(d.jobs) j`
	p.finish = `with d as (delete from jobq.batch` + ofTheBatch + ` returning ` + dColumns + `), ` + counted + intoHistory + `) select d.id from d`
	p.split = `with d as (delete from jobq.batch` + ofTheBatch + ` returning ` + dColumns + `), ` + counted + split + intoHistory +
		` where j.id <> all($7::bigint[])) select d.id from d`
	p.history, p.look, p.page, p.scan = today().history, today().look, today().page, today().scan
	return p
}

// historyPerBatch keeps a lease per job as today, and writes those that succeed together as one row.
func historyPerBatch() path {
	p := today()
	p.name = "lease per job, history per batch"
	p.setUp = strings.ReplaceAll(batchTable("alter jobs set compression lz4"), "jobq.pending[]", "jobq.running[]")
	p.complete = db.JobComplete[:strings.Index(db.JobComplete, "    returning r.id, r.lease_token")] + `    returning r.id, r.queue, r.kind, r.started_at, r.run_at, r as job
), history as (
  insert into jobq.batch (id, claimed_at, lease_expires_at, finished_at, id_min, id_max, lease_owner, queue, jobs)
    select nextval('jobq.batch_id_seq'), min(t.started_at), clock_timestamp(), clock_timestamp(), min(t.id), max(t.id), $4, min(t.queue), array_agg(t.job)
      from taken t
      having count(*) > 0
), counted as (
  insert into jobq.stat_delta (minute, queue, kind, completed, failed, retried, lost, cancelled, run_seconds, wait_seconds)
    select date_trunc('minute', clock_timestamp()), d.queue, d.kind, count(*), 0, 0, 0, 0,
        sum(extract(epoch from clock_timestamp() - d.started_at)::float8), sum(extract(epoch from d.started_at - d.run_at)::float8)
      from taken d
      group by d.queue, d.kind
)
select t.id from taken t`
	done := rowPerBatch("", "set (fillfactor = 100)")
	p.history, p.look, p.page, p.scan = done.history, done.look, done.page, done.scan
	return p
}

// A bound in the database, moved under a lock by each claim of the queue, lets the jobs stay where they are while they run.
const (
	lineTable = `create table jobq.line (queue text primary key, position bigint not null);
insert into jobq.line values ('` + queueName + `', 0);`
	lineLock = `select l.position from jobq.line l where l.queue = $1 for update`
	lineJobs = `with taken as materialized (
  select p.id, p.position, p.lease_token, p.run_at, p.created_at, p.timeout, p.priority, p.attempts, p.max_attempts, p.crashes,
      p.queue, p.kind, p.args, p.last_error, p.clear_reason, p.checkpoint, p.metadata, p.tags
    from jobq.pending p
    where p.queue = $6 and p.position is not null and p.kind = any($7::text[]) and p.priority = 0
      and p.position > (select l.position from jobq.line l where l.queue = $6)
      and cardinality($3::integer[]) + cardinality($4::bigint[]) + cardinality($5::integer[]) > 0
    order by p.priority, p.position
    limit $8::integer
), moved as (
  update jobq.line l set position = (select max(t.position) from taken t) where l.queue = $6 and exists (select from taken t)
), b as (
  insert into jobq.batch (id, claimed_at, lease_expires_at, id_min, id_max, lease_owner, queue, jobs)
    select nextval('jobq.batch_id_seq'), clock_timestamp(), clock_timestamp() + $1::interval, min(t.id), max(t.id), $2, $6, `
	lineEnd = ` from taken t having count(*) > 0 returning id)
select ` + answer + ` from taken t`
)

// boundAndMove leaves the jobs in pending until they end, and moves them to the history one by one.
func boundAndMove() path {
	p := today()
	p.name, p.batched, p.lock = "bound: jobs stay in pending, history per job", true, lineLock
	p.setUp = lineTable + strings.ReplaceAll(batchTable("set (fillfactor = 80)"), "jobq.pending[]", "bigint[]")
	p.claim = lineJobs + `array_agg(t.id)` + lineEnd
	p.finish = `with d as (delete from jobq.batch` + ofTheBatch + ` returning ` + dColumns + `), ` + counted + `, place as materialized (
  select h.place from d cross join unnest(d.jobs) i(id)
    cross join lateral (select p.ctid as place from jobq.pending p where p.id = i.id offset 0) h
), j as (
  delete from jobq.pending p where p.ctid = any(array(select place.place from place)) returning p.*
), history as (
  insert into jobq.finished (finished_at, started_at, state, lease_owner, ` + movedColumns + `)
    select clock_timestamp(), d.claimed_at, 'completed', d.lease_owner, ` + movedValues + ` from j cross join d
) select d.id from d`
	return p
}

// journal never moves a job: a batch says which range of the line has been done.
func journal() path {
	p := today()
	p.name, p.batched, p.lock = "journal: jobs are never moved", true, lineLock
	p.setUp = lineTable + strings.ReplaceAll(batchTable("set (fillfactor = 80)"), "jobq.pending[]", "bigint[]")
	p.claim = lineJobs + `array[count(*)]` + lineEnd
	p.finish = rowPerBatch("", "").finish
	p.history = `select sum(b.jobs[1]) from jobq.batch b where b.finished_at is not null`
	p.look, p.page = "", ""
	return p
}

// pop has neither lease nor history: what no design can beat that takes rows out of pending.
func pop() path {
	p := today()
	p.name, p.complete, p.history, p.look = "pop: no lease, no history", "", "", ""
	p.claim = claimHead + `
), b as (select 0::bigint as id where $1::interval > '0' and $2::text <> '')
select ` + answer + ` from taken t`
	return p
}

func designs() []path {
	return []path{
		today(), historyPerBatch(), leasePerBatch(), movedHistory(),
		rowPerBatch("row per batch, lz4", "alter jobs set compression lz4"),
		rowPerBatch("row per batch, pglz", "alter jobs set compression pglz"),
		rowPerBatch("row per batch, not compressed", "alter jobs set storage external"),
		boundAndMove(), journal(), pop(),
	}
}

// mustReplace is strings.ReplaceAll for text that must be there, so that a
// variant of a statement that has changed since is noticed.
func mustReplace(text, old, replacement string) string {
	if !strings.Contains(text, old) {
		panic(fmt.Sprintf("the statement has no %q any more", old))
	}
	return strings.ReplaceAll(text, old, replacement)
}
