package db

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// Blocked is why a queue's limits have admitted fewer jobs than were asked for.
type Blocked string

// What blocks claims.
const (
	BlockedByNothing Blocked = ""
	BlockedByLimit   Blocked = "limit" // as many run as may
	BlockedByRate    Blocked = "rate"  // as many have started as may
	BlockedByOthers  Blocked = "busy"  // another claim has its turn; only said to a claim that comes with ends
)

// Admission is what the limits of a queue let a claim take.
type Admission struct {
	Jobs    int
	Blocked Blocked
	Wait    time.Duration // until it is worth while to ask again, if the rate blocks
}

// queueAdmit asks how many jobs the limits of the queue let the claim take.
func (r *round) queueAdmit(ctx context.Context, s *Schema, batch *pgx.Batch, claim *JobClaimParams) {
	params := QueueAdmitParams{
		Queue: claim.Queue, JobCount: claim.JobCount, Patient: r.ends() == 0,
		SlotsFree: int32(r.SlotsFree), // #nosec G115 -- as many as a worker has
		Sharing:   r.Sharing,
	}
	s.Queue(batch, func(q *Queries) { _, _ = q.QueueAdmit(ctx, params) }).Query(func(rows pgx.Rows) error {
		row, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[QueueAdmitRow])
		r.admission = Admission{Jobs: int(row.Admitted), Blocked: Blocked(row.Blocked), Wait: Milliseconds(row.WaitMs)}
		return err
	})
}
