package main

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/jobq-dev/jobq/internal/db"
)

// kind is that of all jobs here, and queueLoad the queue of those that the load adds and runs.
const (
	kind      = "k"
	queueLoad = "load"
	lease     = time.Minute // of all claims
)

// layout is what workers send, whose version knows one layout of the tables.
type layout interface {
	claim(ctx context.Context, conn *pgx.Conn, owner, queue string, count int) ([]db.Slot, error)
	// complete answers with the ids whose completion is stored.
	complete(ctx context.Context, conn *pgx.Conn, owner string, jobs []db.Slot) ([]int64, error)
	// extend answers with how many jobs are still the owner's.
	extend(ctx context.Context, conn *pgx.Conn, owner string, jobs []db.Slot) (int, error)
	// reap takes the jobs of owners that are known to be dead, and answers with how many.
	reap(ctx context.Context, conn *pgx.Conn, owners []string) (int, error)
}

// first sends the statements of commit b792e27 (sql/queries), without what these
// jobs have not: a line in segments, results, statistics, cancelled jobs.
type first struct{}

const firstClaim = `
with candidate as materialized (
  select p.ctid as place
    from jobq.pending p
    where p.queue = $2 and p.position is not null and p.kind = '` + kind + `'
      and not exists (select from jobq.queue q where q.name = $2 and q.paused_at is not null)
    order by p.priority, p.position
    limit $3
    for update of p skip locked
), taken as (
  delete from jobq.pending p
    where p.ctid = any(array(select c.place from candidate c))
    returning p.id, p.position, p.lease_token, p.run_at, p.created_at, p.timeout, p.backoff_base, p.backoff_max,
      p.priority, p.attempts, p.max_attempts, p.crashes, p.args_apart, p.queue, p.kind, p.args, p.unique_key,
      p.last_error, p.clear_reason, p.checkpoint, p.metadata, p.tags
)
insert into jobq.running as r
    (id, position, lease_token, lease_expires_at, started_at, run_at, created_at, timeout, backoff_base, backoff_max,
     priority, attempts, max_attempts, crashes, args_apart, queue, kind, lease_owner, args, unique_key, last_error,
     clear_reason, checkpoint, metadata, tags)
  select t.id, t.position, t.lease_token + 1, clock_timestamp() + $4::interval, clock_timestamp(), t.run_at,
      t.created_at, t.timeout, t.backoff_base, t.backoff_max, t.priority, t.attempts, t.max_attempts, t.crashes,
      t.args_apart, t.queue, t.kind, $1, t.args, t.unique_key, t.last_error, t.clear_reason, t.checkpoint,
      t.metadata, t.tags
    from taken t
  returning r.id, r.lease_token`

const firstComplete = `
with f as materialized (
  select f.id, f.token from rows from (unnest($2::bigint[]), unnest($3::bigint[])) as f(id, token)
), held as materialized (
  select h.place
    from f
    cross join lateral (
      select x.ctid as place from jobq.running x
        where x.id = f.id and x.lease_token = f.token and x.lease_owner = $1
        for update skip locked
    ) h
), taken as (
  delete from jobq.running r
    where r.ctid = any(array(select h.place from held h))
    returning r.id, r.lease_token, r.started_at, r.run_at, r.created_at, r.timeout, r.backoff_base, r.backoff_max,
      r.priority, r.attempts, r.max_attempts, r.crashes, r.args_apart, r.queue, r.kind, r.lease_owner, r.args,
      r.unique_key, r.last_error, r.checkpoint, r.metadata, r.tags
)
insert into jobq.finished as f
    (id, finished_at, lease_token, started_at, run_at, created_at, timeout, backoff_base, backoff_max, state,
     priority, attempts, max_attempts, crashes, args_apart, queue, kind, lease_owner, args, unique_key,
     last_error, checkpoint, metadata, tags)
  select t.id, clock_timestamp(), t.lease_token, t.started_at, t.run_at, t.created_at, t.timeout, t.backoff_base,
      t.backoff_max, 'completed', t.priority, t.attempts, t.max_attempts, t.crashes, t.args_apart, t.queue, t.kind,
      t.lease_owner, t.args, t.unique_key, t.last_error, t.checkpoint, t.metadata, t.tags
    from taken t
  returning f.id`

const firstExtend = `
with held as materialized (
  select r.place
    from rows from (unnest($2::bigint[]), unnest($3::bigint[])) as h(id, token)
    cross join lateral (
      select x.ctid as place from jobq.running x
        where x.id = h.id and x.lease_token = h.token and x.lease_owner = $1
        for no key update skip locked
    ) r
)
update jobq.running r
  set lease_expires_at = greatest(r.lease_expires_at, clock_timestamp() + $4::interval)
  where r.ctid = any(array(select h.place from held h))
  returning r.id`

const firstReap = `
with stale as materialized (
  select r.ctid as place from jobq.running r where r.lease_owner = any($1::text[]) order by r.id for update skip locked
), taken as (
  delete from jobq.running r
    where r.ctid = any(array(select s.place from stale s))
    returning r.id, r.lease_token, r.started_at, r.created_at, r.timeout, r.backoff_base, r.backoff_max, r.priority, r.attempts,
      r.max_attempts, r.crashes, r.args_apart, r.queue, r.kind, r.lease_owner, r.args, r.unique_key, r.checkpoint, r.metadata, r.tags
), again as (
  insert into jobq.pending
      (id, position, lease_token, run_at, created_at, timeout, backoff_base, backoff_max, priority, attempts, max_attempts,
       crashes, args_apart, queue, kind, args, unique_key, last_error, clear_reason, checkpoint, metadata, tags)
    select t.id, nextval('jobq.position_seq'), t.lease_token, clock_timestamp(), t.created_at, t.timeout, t.backoff_base, t.backoff_max,
        t.priority, t.attempts + 1, t.max_attempts, t.crashes + 1, t.args_apart, t.queue, t.kind, t.args, t.unique_key,
        'orphaned by worker restart', 'orphaned by worker restart', t.checkpoint, t.metadata, t.tags
      from taken t
)
insert into jobq.attempt as a (job_id, finished_at, started_at, lease_token, outcome, number, worker_id, error)
  select t.id, clock_timestamp(), t.started_at, t.lease_token, 'lost', t.attempts + 1, t.lease_owner, 'orphaned by worker restart'
    from taken t
  returning a.job_id`

// send sends one of these statements with the plan that it is meant to have, and
// collects what scan reads of each row.
func send[T any](ctx context.Context, conn *pgx.Conn, scan pgx.RowToFunc[T], sql string, args ...any) (all []T, err error) {
	batch := &pgx.Batch{}
	batch.Queue(db.HotSettings)
	batch.Queue(sql, args...).Query(func(rows pgx.Rows) (err error) {
		all, err = pgx.CollectRows(rows, scan)
		return err
	})
	err = conn.SendBatch(ctx, batch).Close()
	return all, err
}

// columns are the ids and the tokens of jobs.
func columns(jobs []db.Slot) (ids, tokens []int64) {
	for _, job := range jobs {
		ids, tokens = append(ids, job.ID), append(tokens, job.Token)
	}
	return ids, tokens
}

func (first) claim(ctx context.Context, conn *pgx.Conn, owner, queue string, count int) ([]db.Slot, error) {
	return send(ctx, conn, func(row pgx.CollectableRow) (job db.Slot, err error) {
		return job, row.Scan(&job.ID, &job.Token)
	}, firstClaim, owner, queue, count, lease)
}

func (first) complete(ctx context.Context, conn *pgx.Conn, owner string, jobs []db.Slot) ([]int64, error) {
	ids, tokens := columns(jobs)
	return send(ctx, conn, pgx.RowTo[int64], firstComplete, owner, ids, tokens)
}

func (first) extend(ctx context.Context, conn *pgx.Conn, owner string, jobs []db.Slot) (int, error) {
	ids, tokens := columns(jobs)
	kept, err := send(ctx, conn, pgx.RowTo[int64], firstExtend, owner, ids, tokens, lease)
	return len(kept), err
}

func (first) reap(ctx context.Context, conn *pgx.Conn, owners []string) (int, error) {
	reaped, err := send(ctx, conn, pgx.RowTo[int64], firstReap, owners)
	return len(reaped), err
}

// second sends jobq's own statements.
type second struct{ schema *db.Schema }

func (s second) claim(ctx context.Context, conn *pgx.Conn, owner, queue string, count int) (jobs []db.Slot, err error) {
	claimed, err := s.schema.Exchange(ctx, conn, db.Exchange{Owner: owner, Claim: &db.JobClaimParams{
		Queue: queue, Kinds: []string{kind}, JobCount: int32(count), Lease: db.Interval(lease), Owner: owner, // #nosec G115 -- a small number
	}})
	for _, row := range claimed.Claimed {
		jobs = append(jobs, db.Slot{ID: row.ID, Token: row.LeaseToken, Slot: row.Slot, ClaimedAt: row.StartedAt.Time})
	}
	return jobs, err
}

func (s second) complete(ctx context.Context, conn *pgx.Conn, owner string, jobs []db.Slot) ([]int64, error) {
	exchange := db.Exchange{Owner: owner}
	for _, job := range jobs {
		exchange.Completions = append(exchange.Completions, db.Completion{Slot: job, Kind: kind})
	}
	answer, err := s.schema.Exchange(ctx, conn, exchange)
	return answer.Completed, err
}

func (s second) extend(ctx context.Context, conn *pgx.Conn, owner string, jobs []db.Slot) (kept int, err error) {
	held := make(map[int64]int)
	for _, job := range jobs {
		held[job.Token]++
	}
	var extensions []db.Extension
	for token := range held {
		extensions = append(extensions, db.Extension{ID: token, Lease: db.Interval(lease)})
	}
	answers, err := s.schema.ExtendLeases(ctx, conn, owner, extensions)
	for token, answer := range answers {
		if answer.Answer != db.LeaseLost {
			kept += held[token]
		}
	}
	return kept, err
}

func (s second) reap(ctx context.Context, conn *pgx.Conn, owners []string) (int, error) {
	const jobsMax = 10_000
	reaped, err := s.schema.Reap(ctx, conn, owners, jobsMax, "the program migration")
	if err != nil {
		return 0, fmt.Errorf("reap: %w", err)
	}
	return len(reaped), nil
}
