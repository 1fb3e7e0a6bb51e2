package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/jobq-dev/jobq/internal/db"
)

// worker drains over one connection as jobq does: it finishes what it has and
// claims the next in one round trip and one commit.
type worker struct {
	*bed
	conn  *pgx.Conn
	owner string
	line  db.Line
	had   work
	late  claimed // jobs of the round before, which took longer
	done  bool    // nothing is left

	leases []*lease // of the second layout, that have jobs which run
}

// work is what a round trip has to finish.
type work struct {
	claimed
	succeeded, failed, long, own []int // of ids
}

func (w *worker) drain(ctx context.Context) error {
	for !w.done {
		if err := w.step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// step makes one round trip.
func (w *worker) step(ctx context.Context) error {
	exchange := w.exchange
	if w.second {
		exchange = w.exchangeSecond
	}
	got, err := exchange(ctx, w.had, w.late)
	if err != nil {
		return err
	}
	w.late = w.had.pick(w.had.long)
	w.had = w.run(got)
	w.done = len(w.had.ids) == 0 && len(w.late.ids) == 0 && len(w.leases) == 0
	return nil
}

// run says how the jobs ended: the last digits of their ids decide.
func (w *worker) run(got claimed) work {
	had := work{claimed: got}
	for i, id := range got.ids {
		switch {
		case w.fails(id):
			had.failed = append(had.failed, i)
		case w.takesLong(id):
			had.long = append(had.long, i)
		case w.second && w.endsOnRow(id):
			had.own = append(had.own, i)
		default:
			had.succeeded = append(had.succeeded, i)
		}
	}
	return had
}

func (p plan) fails(id int64) bool { return int(id%100) < p.failPercent }

func (p plan) takesLong(id int64) bool {
	return !p.fails(id) && int(id%100) < p.failPercent+p.longPercent
}

// endsOnRow is true of a job that succeeds, but not plainly: the second layout
// ends it on its own row, and to the others it makes no difference.
func (p plan) endsOnRow(id int64) bool { return int(id%100) >= 100-p.ownPercent }

// hasResult is true of a job that returns someResult.
func (p plan) hasResult(id int64) bool { return int(id%100) < p.resultPercent }

var someResult = json.RawMessage(`{"rows": 12345}`)

func (c claimed) pick(places []int) (some claimed) {
	for _, i := range places {
		some.ids, some.tokens = append(some.ids, c.ids[i]), append(some.tokens, c.tokens[i])
		if c.slots != nil {
			some.slots = append(some.slots, c.slots[i])
		}
	}
	return some
}

func (w *worker) exchange(ctx context.Context, had work, late claimed) (got claimed, err error) {
	batch := &pgx.Batch{}
	if w.settings != "" {
		batch.Queue(w.settings)
	}
	wanted := 0
	stored := func(rows pgx.Rows) error {
		for rows.Next() {
			wanted--
		}
		return rows.Err()
	}
	complete := func(some claimed) {
		if len(some.ids) == 0 || w.complete == "" {
			return
		}
		wanted += len(some.ids)
		results := make([]json.RawMessage, len(some.ids))
		for i, id := range some.ids {
			if w.hasResult(id) {
				results[i] = someResult
			}
		}
		batch.Queue(w.schema.SQL(w.path.complete), some.ids, some.tokens, results, w.owner, true).Query(stored)
		if w.keep != "" {
			batch.Queue(w.schema.SQL(w.keep), w.owner, some.ids, some.tokens)
		}
	}
	complete(late)
	if !w.batched {
		complete(had.pick(had.succeeded))
	} else if len(had.ids) > 0 {
		wanted++
		w.finish(batch, had).Query(stored)
	}
	if failed := had.pick(had.failed); len(failed.ids) > 0 {
		wanted += len(failed.ids)
		w.schema.Queue(batch, func(q *db.Queries) { _, _ = q.JobEnd(ctx, w.endings(failed)) }).Query(stored)
	}
	if w.lock != "" {
		batch.Queue(w.schema.SQL(w.lock), queueName)
	}
	w.queueClaim(batch, &got)
	if err := w.conn.SendBatch(ctx, batch).Close(); err != nil {
		return got, err
	}
	if wanted != 0 {
		return got, fmt.Errorf("%d jobs or batches were not stored", wanted)
	}
	if len(got.ids) > 0 {
		w.line[0] = max(w.line[0], got.last)
	}
	return got, nil
}

// queueClaim adds the claim, whose answer goes to got.
func (w *worker) queueClaim(batch *pgx.Batch, got *claimed) {
	claim := db.JobClaimParams{Lease: db.Interval(time.Minute), Owner: w.owner, Queue: queueName, Kinds: []string{kind}}
	w.line.Rest(&claim)
	batch.Queue(w.schema.SQL(w.claim), claim.Lease, claim.Owner, claim.FromPriorities, claim.FromPositions, claim.ToPriorities,
		claim.Queue, claim.Kinds, w.batch).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			got.read(rows.RawValues(), w.path)
		}
		return rows.Err()
	})
}

// finish ends a batch; its exceptions become rows of running.
func (w *worker) finish(batch *pgx.Batch, had work) *pgx.QueuedQuery {
	count := []int32{int32(len(had.succeeded))} // #nosec G115 -- at most a batch
	seconds := []float64{0.001 * float64(len(had.succeeded))}
	args := []any{had.batch, w.owner, []string{kind}, count, seconds, seconds}
	exceptions := append(had.pick(had.failed).ids, had.pick(had.long).ids...)
	if len(exceptions) == 0 {
		return batch.Queue(w.schema.SQL(w.path.finish), args...)
	}
	return batch.Queue(w.schema.SQL(w.split), append(args, exceptions)...)
}

// endings are failures, each to be tried again in an hour.
func (w *worker) endings(failed claimed) db.JobEndParams {
	params := db.JobEndParams{Ids: failed.ids, Tokens: failed.tokens, Owner: w.owner}
	for range failed.ids {
		params.Outcomes, params.Errors = append(params.Outcomes, "failed"), append(params.Errors, "no such file")
		params.Outputs, params.Delays = append(params.Outputs, ""), append(params.Delays, db.Interval(time.Hour))
		params.Finals, params.RanUs = append(params.Finals, false), append(params.RanUs, 1000)
		params.Quiet = append(params.Quiet, false)
	}
	return params
}
