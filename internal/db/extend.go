package db

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// Answers of ExtendLeases.
const (
	LeaseOK   = "ok"   // extended, or asked after
	LeaseBusy = "busy" // in another transaction's hands: ask again
	LeaseLost = "lost" // not the caller's any more
)

// Extension is a lease to be extended, and the time that it gets, 0 to only ask after it.
type Extension struct {
	ID    int64
	Lease pgtype.Interval
}

// Extended is the answer for one lease.
type Extended struct {
	Answer    string
	Cancelled []int64 // those of its jobs that somebody has asked to cancel
}

// ExtendLeases extends leases of the owner's, and answers for each id. Leases of
// one length, which mostly all are, take one statement.
func (s *Schema) ExtendLeases(ctx context.Context, conn Batcher, owner string, extensions []Extension) (map[int64]Extended, error) {
	answers := make(map[int64]Extended, len(extensions))
	groups := make(map[int64][]int64)
	for _, extension := range extensions {
		answers[extension.ID] = Extended{Answer: LeaseLost}
		groups[extension.Lease.Microseconds] = append(groups[extension.Lease.Microseconds], extension.ID)
	}
	batch := &pgx.Batch{}
	batch.Queue(HotSettings)
	for microseconds, ids := range groups {
		lease := pgtype.Interval{Microseconds: microseconds, Valid: true}
		s.Queue(batch, func(q *Queries) { _, _ = q.LeaseExtend(ctx, lease, ids, owner) }).Query(func(rows pgx.Rows) error {
			var row LeaseExtendRow
			_, err := pgx.ForEachRow(rows, []any{&row.ID, &row.Answer, &row.Cancelled}, func() error {
				answers[row.ID] = Extended{Answer: row.Answer, Cancelled: row.Cancelled}
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
