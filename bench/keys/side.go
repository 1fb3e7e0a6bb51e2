package main

import (
	"context"
	_ "embed"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/jobq-dev/jobq/internal/db"
)

var (
	//go:embed sql/schema.sql
	schemaSQL string
	//go:embed sql/lock.sql
	lockSQL string
	//go:embed sql/claim.sql
	claimSQL string
	//go:embed sql/end.sql
	endSQL string
	//go:embed sql/fail.sql
	failSQL string
)

// side is a worker's connection: one exchange stores the ends of jobs and claims others, in one transaction and round trip.
type side interface {
	exchange(ctx context.Context, ended []job, count int) (claimed []job, more bool, err error)
}

// job is one that was claimed.
type job struct {
	db.JobClaimRow
	key string
}

// today is jobq as it is.
type today struct {
	conn    db.Batcher
	schema  *db.Schema
	owner   string
	unkeyed bool
	pass    db.LanePass
}

func newToday(pool *pgxpool.Pool, owner string) (*today, error) {
	schema, err := db.NewSchema("jobq")
	return &today{conn: pool, schema: schema, owner: owner}, err
}

func (t *today) exchange(ctx context.Context, ended []job, count int) (claimed []job, more bool, err error) {
	e := db.Exchange{
		Owner: t.owner, Queue: "default", SlotsFree: count, HasKeys: !t.unkeyed, OnlyKeyed: !t.unkeyed, LanePass: t.pass, Sharing: true,
		Claim: &db.JobClaimParams{Lease: db.Interval(time.Minute), Owner: t.owner, Queue: "default", Kinds: []string{"bench"}, JobCount: int32(count)}, // #nosec G115 -- small
	}
	seen := make(map[string]bool)
	for i := range ended {
		e.Completions = append(e.Completions, db.Completion{Slot: ended[i].slot(), Kind: "bench"})
		if key := ended[i].key; key != "" && !seen[key] {
			seen[key] = true
			e.EndedKeys = append(e.EndedKeys, key)
		}
	}
	answer, err := t.schema.Exchange(ctx, t.conn, e)
	if err != nil {
		return nil, false, err
	}
	t.pass = answer.LanePass
	for _, row := range answer.Claimed {
		claimed = append(claimed, job{JobClaimRow: row})
	}
	for i := range answer.Keyed {
		claimed = append(claimed, job{JobClaimRow: answer.Keyed[i].JobClaimRow, key: answer.Keyed[i].PartitionKey})
	}
	t.pass, more = answer.LanePass, answer.KeysMore
	t.missed(answer, count)
	return claimed, more || answer.Admission.Blocked == "busy", nil
}

// missed has the next claim look at all keys, where one that shares the turn has not found enough.
func (t *today) missed(answer db.Exchanged, count int) {
	if !answer.KeysMore || len(answer.Keyed) > 0 && len(answer.Keyed) < count {
		t.pass = db.LanePass{}
	}
}

func (j *job) slot() db.Slot {
	return db.Slot{ID: j.ID, Token: j.LeaseToken, Slot: j.Slot, ClaimedAt: j.StartedAt.Time}
}

// proto is the prototype.
type proto struct {
	conn     db.Batcher
	owner    string
	kinds    []string
	lanes    int  // to read; 0: see exchange
	from, to mark // of a pass that goes on
	wait     time.Duration
	took     time.Duration
}

// exchange sends the statements of an exchange in one batch.
func (p *proto) exchange(ctx context.Context, ended []job, count int) (claimed []job, more bool, err error) {
	if p.lanes == 0 {
		p.lanes = max(min(count, 100), 20)
	}
	batch := &pgx.Batch{}
	batch.Queue(db.HotSettings)
	if len(ended) > 0 {
		queueEnd(batch, p.owner, ended, count == 0)
	}
	if count > 0 {
		batch.Queue(lockSQL, "default")
		batch.Queue(claimSQL, "default", p.kinds, p.owner, db.Interval(time.Minute), count, p.from.rank, p.lanes, keysOf(ended), p.from.key).Query(func(rows pgx.Rows) error {
			claimed, more, err = p.read(rows, count)
			return err
		})
	}
	if err := p.conn.SendBatch(ctx, batch).Close(); err != nil {
		return nil, false, err
	}
	switch {
	case len(claimed) < count && more:
		p.lanes = min(p.lanes*2, 1000)
	case p.lanes > 100 && len(claimed) == count:
		p.lanes = max(p.lanes-p.lanes/8, 100)
	}
	return claimed, more, nil
}

func (p *proto) read(rows pgx.Rows, count int) (claimed []job, more bool, err error) {
	var id, token *int64
	var position pgtype.Int8
	var slot, priority, attempts, maxAttempts, crashes *int16
	var queue, kind, lastError, clearReason, key *string
	var createdAt, runAt *time.Time
	var timeoutMs, waitMs *int64
	var args, checkpoint, metadata []byte
	var tags []string
	var hasKey *bool
	var from, seen, last mark
	var startedAt time.Time
	claimed = make([]job, 0, count)
	_, err = pgx.ForEachRow(rows, []any{
		&id, &token, &slot, &position, &priority, &attempts, &maxAttempts, &crashes, &queue, &kind, &createdAt, &runAt, &timeoutMs, &args,
		&checkpoint, &metadata, &tags, &lastError, &clearReason, &hasKey, &key, &startedAt, &more, &from.rank, &from.key, &seen.rank, &seen.key, &last.rank, &last.key, &waitMs,
	}, func() error {
		p.wait = 0
		if waitMs != nil {
			p.wait = max(time.Duration(*waitMs)*time.Millisecond, time.Millisecond)
		}
		if id == nil {
			return nil
		}
		claimed = append(claimed, job{key: *key, JobClaimRow: db.JobClaimRow{
			ID: *id, LeaseToken: *token, Slot: *slot, Position: position, Priority: *priority, Attempts: *attempts, Kind: *kind, Queue: *queue,
			StartedAt: db.Timestamp(startedAt), Args: args, CreatedAt: db.Timestamp(*createdAt),
		}})
		return nil
	})
	p.pass(from, seen, last)
	return claimed, more, err
}

// mark is a place in the order of the lanes.
type mark struct {
	rank *float64
	key  *string
}

func (m mark) reaches(other mark) bool {
	if m.rank == nil || other.rank == nil {
		return true
	}
	return *m.rank > *other.rank || *m.rank == *other.rank && *m.key >= *other.key
}

// pass goes on behind the last lane that had nothing, and begins anew when the claims have come to where the last lane was when the pass began.
func (p *proto) pass(from, seen, last mark) {
	if from.rank != nil {
		if p.from.rank == nil {
			p.to = last
		}
		p.from = from
	}
	if p.from.rank != nil && seen.reaches(p.to) {
		p.from = mark{}
	}
}

// queueEnd stores that jobs have succeeded.
func queueEnd(batch *pgx.Batch, owner string, ended []job, hint bool) {
	at := make(map[int64]int)
	var ids []int64
	var claimedAts []time.Time
	var slots [][]int16
	kinds := make(map[string]int32)
	for i := range ended {
		j := &ended[i]
		n, found := at[j.LeaseToken]
		if !found {
			n = len(ids)
			at[j.LeaseToken] = n
			ids, claimedAts, slots = append(ids, j.LeaseToken), append(claimedAts, j.StartedAt.Time), append(slots, nil)
		}
		slots[n] = append(slots[n], j.Slot)
		kinds[j.Kind]++
	}
	var all []int16
	var lows, highs []int32
	for _, s := range slots {
		lows = append(lows, int32(len(all)+1)) // #nosec G115 -- small
		all = append(all, s...)
		highs = append(highs, int32(len(all))) // #nosec G115 -- small
	}
	var names []string
	var counts []int32
	for name, count := range kinds {
		names, counts = append(names, name), append(counts, count)
	}
	batch.Queue(endSQL, ids, claimedAts, owner, all, lows, highs, db.Interval(time.Minute), "default", names, counts, make([]float64, len(names)), hint)
}

func keysOf(jobs []job) (keys []string) {
	for i := range jobs {
		keys = append(keys, jobs[i].key)
	}
	return keys
}

// perKey counts jobs by their keys.
func perKey(jobs []job) map[string]int {
	counts := make(map[string]int)
	for _, j := range jobs {
		counts[j.key]++
	}
	return counts
}
