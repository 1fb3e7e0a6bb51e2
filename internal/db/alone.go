package db

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// ClaimAlone claims a suspect for a worker that runs nothing else: see claim_alone. It returns one job
// at most.
func (s *Schema) ClaimAlone(ctx context.Context, conn Batcher, params JobClaimAloneParams) (claimed []KeyedJob, err error) {
	batch := &pgx.Batch{}
	s.Queue(batch, func(q *Queries) { _, _ = q.JobClaimAlone(ctx, params) }).Query(func(rows pgx.Rows) error {
		var job KeyedJob
		_, err := pgx.ForEachRow(rows, append(job.columns(), &job.PartitionKey), func() error {
			claimed = append(claimed, job)
			return nil
		})
		return err
	})
	if err := conn.SendBatch(ctx, batch).Close(); err != nil {
		return nil, fmt.Errorf("claim a job alone: %w", err)
	}
	return claimed, nil
}
