package main

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/jobq-dev/jobq/internal/db"
)

// lease is what a worker of the second layout knows of one claim: by slot, how
// each job stands, as it sends it to leaseEnd.
type lease struct {
	id      int64
	ended   []pgtype.Int2 // null while the job runs
	fresh   int32         // slots that are slotNow
	changed bool          // since it was last sent
	stored  []int         // slots that have ended on their own rows, which the lease is yet to say
}

// leasesOf are the leases of the jobs just claimed: mostly one.
func leasesOf(got claimed) (leases []*lease) {
	byID := make(map[int64]*lease, 1)
	for i, id := range got.tokens {
		l, ok := byID[id]
		if !ok {
			l = &lease{id: id}
			byID[id] = l
			leases = append(leases, l)
		}
		for len(l.ended) < got.slots[i] {
			l.ended = append(l.ended, pgtype.Int2{})
		}
	}
	return leases
}

func (l *lease) set(slot int, value int16) {
	l.ended[slot-1] = pgtype.Int2{Int16: value, Valid: true}
	l.changed = true
}

// succeed marks slots, from 1, as plainly succeeded now.
func (l *lease) succeed(slots ...int) {
	for _, slot := range slots {
		l.set(slot, slotNow)
	}
	l.fresh += int32(len(slots)) // #nosec G115 -- at most a batch
}

// over is true when no slot runs any more.
func (l *lease) over() bool {
	return !slices.ContainsFunc(l.ended, func(value pgtype.Int2) bool { return !value.Valid })
}

// elsewhere marks slots whose runs have ended on their own rows, and are known to be stored.
func (l *lease) elsewhere(slots ...int) {
	for _, slot := range slots {
		l.set(slot, slotElsewhere)
	}
}

// acknowledge puts the server's milliseconds where the worker has said now.
func (l *lease) acknowledge(millis int16) {
	for i, value := range l.ended {
		if value.Valid && value.Int16 == slotNow {
			l.ended[i].Int16 = millis
		}
	}
	l.fresh, l.changed = 0, false
}

// endsOf are the parameters of leaseEnd for some leases.
func endsOf(owner string, leases []*lease) []any {
	var ids, counted []int64
	var low, high, counts []int32
	var all []pgtype.Int2
	var kinds []string
	var waited []float64
	for _, l := range leases {
		ids = append(ids, l.id)
		low = append(low, int32(len(all)+1)) // #nosec G115 -- at most a few batches
		all = append(all, l.ended...)
		high = append(high, int32(len(all))) // #nosec G115 -- at most a few batches
		if l.fresh > 0 {
			counted, kinds, counts = append(counted, l.id), append(kinds, kind), append(counts, l.fresh)
			waited = append(waited, 0.001*float64(l.fresh))
		}
	}
	return []any{ids, low, high, all, owner, counted, kinds, counts, waited}
}

// readRun takes the column of runClaim that JobClaim does not have.
func (c *claimed) readRun(values [][]byte) {
	c.slots = append(c.slots, int(binary.BigEndian.Uint16(values[len(values)-1])))
}

// queueEnds adds what ends runs in the second layout: first those that end on
// their own rows, then the leases that have something new. A run that ended on
// its own row is told to the lease one round trip later, when it is stored.
func (w *worker) queueEnds(batch *pgx.Batch, had work, late claimed) (wanted *int) {
	wanted = new(int)
	w.leases = append(w.leases, leasesOf(had.claimed)...)
	byID := make(map[int64]*lease, len(w.leases))
	for _, l := range w.leases {
		l.elsewhere(l.stored...)
		l.stored = nil
		byID[l.id] = l
	}
	for _, some := range []claimed{late, had.pick(had.succeeded)} {
		for i, id := range some.tokens {
			byID[id].succeed(some.slots[i])
		}
	}
	for _, some := range []claimed{had.pick(had.failed), had.pick(had.own)} {
		for i, id := range some.tokens {
			byID[id].stored = append(byID[id].stored, some.slots[i])
		}
	}
	if ends := w.ownEnds(had); ends != nil {
		*wanted += len(had.failed) + len(had.own)
		batch.Queue(w.schema.SQL(runEnd), ends...).Query(countRows(wanted))
	}
	var changed []*lease
	for _, l := range w.leases {
		if l.changed {
			changed = append(changed, l)
		}
	}
	if len(changed) == 0 {
		return wanted
	}
	*wanted += len(changed)
	var some, all []*lease
	w.leases = slices.DeleteFunc(w.leases, func(l *lease) bool {
		switch {
		case !l.changed:
		case l.over():
			all = append(all, l)
			return true // if it is not stored, the step fails
		default:
			some = append(some, l)
		}
		return false
	})
	for sql, leases := range map[string][]*lease{leaseEnd: some, leaseClose: all} {
		if len(leases) > 0 {
			batch.Queue(w.schema.SQL(sql), endsOf(w.owner, leases)...).Query(acknowledged(leases, wanted))
		}
	}
	return wanted
}

// acknowledged reads the answer of leaseEnd.
func acknowledged(leases []*lease, wanted *int) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		var id int64
		var millis pgtype.Int2
		_, err := pgx.ForEachRow(rows, []any{&id, &millis}, func() error {
			for _, l := range leases {
				if l.id == id {
					l.acknowledge(millis.Int16)
					*wanted--
				}
			}
			return nil
		})
		return err
	}
}

// queueResults adds the results of jobs that have one, after the end of their leases.
func (w *worker) queueResults(batch *pgx.Batch, had work) {
	var leases []int64
	var slots []int16
	var results []json.RawMessage
	for _, i := range had.succeeded {
		if w.hasResult(had.ids[i]) {
			leases, slots = append(leases, had.tokens[i]), append(slots, int16(had.slots[i])) // #nosec G115 -- at most a batch
			results = append(results, someResult)
		}
	}
	if len(leases) > 0 {
		batch.Queue(w.schema.SQL(resultKeep), leases, slots, results, w.owner)
	}
}

func countRows(wanted *int) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		for rows.Next() {
			*wanted--
		}
		return rows.Err()
	}
}

// ownEnds are the parameters of runEnd for jobs that end on their own rows: nil for none.
func (w *worker) ownEnds(had work) []any {
	var ids, leases []int64
	var outcomes, errors []string
	var delays []pgtype.Interval
	var finals []bool
	var results []json.RawMessage
	add := func(places []int, outcome, message string, result json.RawMessage) {
		for _, i := range places {
			ids, leases = append(ids, had.ids[i]), append(leases, had.tokens[i])
			outcomes, errors, results = append(outcomes, outcome), append(errors, message), append(results, result)
			delays, finals = append(delays, db.Interval(time.Hour)), append(finals, false)
		}
	}
	add(had.failed, "failed", "no such file", nil)
	add(had.own, "completed", "", nil)
	if len(ids) == 0 {
		return nil
	}
	return []any{ids, leases, w.owner, outcomes, errors, delays, finals, results}
}

// exchangeSecond is exchange for the second layout.
func (w *worker) exchangeSecond(ctx context.Context, had work, late claimed) (got claimed, err error) {
	batch := &pgx.Batch{}
	batch.Queue(w.settings)
	wanted := w.queueEnds(batch, had, late)
	w.queueResults(batch, had)
	w.queueClaim(batch, &got)
	if err := w.conn.SendBatch(ctx, batch).Close(); err != nil {
		return got, err
	}
	if *wanted != 0 {
		return got, fmt.Errorf("%d runs or leases were not stored", *wanted)
	}
	if len(got.ids) > 0 {
		w.line[0] = max(w.line[0], got.last)
	}
	return got, nil
}
