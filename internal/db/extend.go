package db

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// Answers of ExtendLeases.
const (
	LeaseOK   = "ok"   // held; extended if the extension has a time
	LeaseBusy = "busy" // another transaction has locked it: ask again
	LeaseLost = "lost" // the caller no longer has it
)

// Extension is a lease to extend, and by how long from now; 0 only asks whether it is still held.
type Extension struct {
	ID        int64
	ClaimedAt time.Time // tells it from another lease with this id: see Slot
	Lease     pgtype.Interval
	// Longest is the longest lease that the owner has had in the queue: a lease that ends later was made
	// while the server's clock was ahead, and is cut. Not valid: none is.
	Longest pgtype.Interval
}

// longest is Longest, or more than a lease can be.
func (e Extension) longest() pgtype.Interval {
	if !e.Longest.Valid {
		return pgtype.Interval{Months: 1200, Valid: true}
	}
	return e.Longest
}

// ExtendLeases extends leases of the owner, and returns LeaseOK, LeaseBusy or LeaseLost for each
// id. It sends one statement for each length of leases; mostly all have the same length.
func (s *Schema) ExtendLeases(ctx context.Context, conn Batcher, owner string, extensions []Extension) (map[int64]string, error) {
	answers := make(map[int64]string, len(extensions))
	groups := make(map[[2]int64]*LeaseExtendParams)
	for _, extension := range extensions {
		answers[extension.ID] = LeaseLost
		key := [2]int64{extension.Lease.Microseconds, extension.Longest.Microseconds}
		group := groups[key]
		if group == nil {
			group = &LeaseExtendParams{Lease: extension.Lease, Longest: extension.longest(), Owner: owner}
			groups[key] = group
		}
		group.Ids, group.ClaimedAts = append(group.Ids, extension.ID), append(group.ClaimedAts, Timestamp(extension.ClaimedAt))
	}
	batch := &pgx.Batch{}
	batch.Queue(HotSettings)
	for _, group := range groups {
		s.Queue(batch, func(q *Queries) { _, _ = q.LeaseExtend(ctx, *group) }).Query(func(rows pgx.Rows) error {
			var row LeaseExtendRow
			_, err := pgx.ForEachRow(rows, []any{&row.ID, &row.Answer}, func() error {
				answers[row.ID] = row.Answer
				return nil
			})
			return err
		})
	}
	if err := conn.SendBatch(ctx, batch).Close(); err != nil {
		return nil, fmt.Errorf("extend leases: %w", err)
	}
	return answers, nil
}

// UnansweredLeases returns up to count leases of the owner whose ids are above after and not
// among known.
func (s *Schema) UnansweredLeases(ctx context.Context, conn Batcher, owner string, after int64, known []int64, count int) ([]LeaseUnansweredRow, error) {
	if known == nil {
		known = []int64{} // nil would be null, and no id is known to be none of null
	}
	var found []LeaseUnansweredRow
	batch := &pgx.Batch{}
	batch.Queue(HotSettings)
	params := LeaseUnansweredParams{After: after, Owner: owner, Known: known, LeaseCount: int32(count)} // #nosec G115 -- the caller's constant
	s.Queue(batch, func(q *Queries) { _, _ = q.LeaseUnanswered(ctx, params) }).Query(func(rows pgx.Rows) (err error) {
		found, err = pgx.CollectRows(rows, pgx.RowToStructByPos[LeaseUnansweredRow])
		return err
	})
	if err := conn.SendBatch(ctx, batch).Close(); err != nil {
		return nil, fmt.Errorf("look for leases of lost answers: %w", err)
	}
	return found, nil
}

// CancelledJobs returns, by lease, the jobs that somebody has asked to cancel. It is a batch of its
// own and not part of ExtendLeases: it can wait for a lock on the history, and leases must be
// extended meanwhile.
func (s *Schema) CancelledJobs(ctx context.Context, conn Batcher, leases []int64) (map[int64][]int64, error) {
	cancelled := make(map[int64][]int64)
	batch := &pgx.Batch{}
	batch.Queue(PrunedSettings)
	s.Queue(batch, func(q *Queries) { _, _ = q.LeaseCancelled(ctx, leases) }).Query(func(rows pgx.Rows) error {
		var row LeaseCancelledRow
		_, err := pgx.ForEachRow(rows, []any{&row.LeaseID, &row.ID}, func() error {
			cancelled[row.LeaseID] = append(cancelled[row.LeaseID], row.ID)
			return nil
		})
		return err
	})
	if err := conn.SendBatch(ctx, batch).Close(); err != nil {
		return nil, fmt.Errorf("look for cancelled jobs: %w", err)
	}
	return cancelled, nil
}
