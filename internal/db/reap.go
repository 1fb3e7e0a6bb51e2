package db

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// Reap takes leases away from their owners: see LeaseReap. It is one transaction,
// unless the connection is in one already, with the settings that keep a plan made
// while there was little from reading all of run, which has the history as well.
func (s *Schema) Reap(ctx context.Context, conn Batcher, owners []string, count int32, source string) (reaped []LeaseReapRow, err error) {
	batch := &pgx.Batch{}
	batch.Queue(HotSettings)
	s.Queue(batch, func(q *Queries) { _, _ = q.LeaseReap(ctx, owners, count, source) }).Query(func(rows pgx.Rows) (err error) {
		reaped, err = pgx.CollectRows(rows, pgx.RowToStructByPos[LeaseReapRow])
		return err
	})
	if err := conn.SendBatch(ctx, batch).Close(); err != nil {
		return nil, fmt.Errorf("reap: %w", err)
	}
	return reaped, nil
}
