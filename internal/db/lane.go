package db

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// LanePass is how far a worker has looked at the keys of a queue: of those with a turn up to
// ToTurn it has looked at those up to FromTurn, and Again says that another pass would find
// more. Zero for a new pass. See lane_claim.
type LanePass struct {
	FromTurn, ToTurn int64
	Again            bool
}

// queueLaneClaim claims jobs with partition keys: see lane_claim.
func (r *round) queueLaneClaim(ctx context.Context, s *Schema, batch *pgx.Batch, claim *JobClaimParams) {
	params := LaneClaimParams{
		Queue: claim.Queue, Kinds: claim.Kinds, Owner: claim.Owner, Lease: claim.Lease, LeasePerJob: claim.LeasePerJob, WithPlain: !r.OnlyKeyed,
		FromTurn: r.LanePass.FromTurn, ToTurn: r.LanePass.ToTurn, Again: r.LanePass.Again,
		BeginCount: claim.BeginCount,
	}
	taken := LaneTakeParams{Lease: claim.Lease, BeginCount: claim.BeginCount, Owner: claim.Owner, Queue: claim.Queue}
	take := func(rows pgx.Rows) error {
		var job KeyedJob
		_, err := pgx.ForEachRow(rows, append(job.columns(), &job.PartitionKey), func() error {
			if r.keyed == nil {
				r.keyed = make([]KeyedJob, 0, claim.JobCount)
			}
			r.keyed = append(r.keyed, job)
			return nil
		})
		return err
	}
	s.Queue(batch, func(q *Queries) { _, _ = q.LaneClaim(ctx, params) }).Query(take)
	s.Queue(batch, func(q *Queries) { _, _ = q.LaneTake(ctx, taken) }).Query(take)
	s.Queue(batch, func(q *Queries) { _, _ = q.LaneMore(ctx) }).Query(func(rows pgx.Rows) error {
		said, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[LaneMoreRow])
		r.more, r.hasKeyLimit, r.keysWait = said.More, said.HasKeyLimit, Milliseconds(said.WaitMs)
		if said.FromTurn > 0 {
			r.pass = LanePass{FromTurn: said.FromTurn, ToTurn: said.ToTurn, Again: said.Again}
		}
		return err
	})
}
