package db

import (
	"context"
	"maps"
	"math"
	"slices"

	"github.com/jackc/pgx/v5"
)

// agedMax is how many aged priorities of a queue count at once: each costs the claims that
// begin with it a descent of the index.
const agedMax = 10

// Aged is a priority of a queue that has waited for too long: see LineAged.
type Aged struct {
	Priority int16
	Position int64 // of its first job
}

// AgedPriorities returns the aged priorities of a queue, for a claim of these kinds, the one that
// has waited longest first. It is one transaction, with the settings that keep its plan from
// being one for an empty table.
func (s *Schema) AgedPriorities(ctx context.Context, conn Batcher, queue string, kinds []string) ([]Aged, error) {
	var aged []Aged
	batch := &pgx.Batch{}
	batch.Queue(HotSettings)
	s.Queue(batch, func(q *Queries) { _, _ = q.LineAged(ctx, kinds, []string{queue}) }).Query(func(rows pgx.Rows) error {
		var row LineAgedRow
		_, err := pgx.ForEachRow(rows, []any{&row.Queue, &row.Priority, &row.Position}, func() error {
			aged = append(aged, Aged{Priority: row.Priority, Position: row.Position})
			return nil
		})
		return err
	})
	if err := conn.SendBatch(ctx, batch).Close(); err != nil {
		return nil, err
	}
	return aged[:min(len(aged), agedMax)], nil
}

// RestAfter makes the claim look at aged priorities first, each from its first job on, and
// then at what lies beyond in the others: a claim looks at its segments in their order. No
// job has a place in two of them, since a claim would count it twice.
//
// For example, the line is {0: 100, 9: 20} and the first job of the aged priority 9 has the
// position 12. The segments are: 9 from 12 on; all below 0; 0 beyond 100, and 1 to 8; all above 9.
func (l Line) RestAfter(aged []Aged, claim *JobClaimParams) {
	others := make(Line, len(l)+len(aged))
	maps.Copy(others, l)
	for _, a := range aged {
		others[a.Priority] = math.MaxInt64 // which no position is beyond
	}
	others.Rest(claim)
	for _, a := range slices.Backward(aged) {
		claim.FromPriorities = slices.Insert(claim.FromPriorities, 0, int32(a.Priority))
		claim.FromPositions = slices.Insert(claim.FromPositions, 0, a.Position-1)
		claim.ToPriorities = slices.Insert(claim.ToPriorities, 0, int32(a.Priority))
	}
}
