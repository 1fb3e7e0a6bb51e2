package db

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// queueLaneClaim claims jobs with partition keys: see lane_claim.
func (r *round) queueLaneClaim(ctx context.Context, s *Schema, batch *pgx.Batch, claim *JobClaimParams, each bool) {
	params := LaneClaimParams{
		Queue: claim.Queue, Kinds: claim.Kinds, Owner: claim.Owner, Lease: claim.Lease, Each: each, WithPlain: !r.OnlyKeyed,
	}
	s.Queue(batch, func(q *Queries) { _, _ = q.LaneClaim(ctx, params) }).Query(func(rows pgx.Rows) error {
		var job KeyedJob
		_, err := pgx.ForEachRow(rows, append(job.columns(), &job.PartitionKey), func() error {
			r.keyed = append(r.keyed, job)
			return nil
		})
		return err
	})
	s.Queue(batch, func(q *Queries) { _, _ = q.LaneMore(ctx) }).Query(func(rows pgx.Rows) (err error) {
		r.more, err = pgx.CollectExactlyOneRow(rows, pgx.RowTo[bool])
		return err
	})
}
