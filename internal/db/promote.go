package db

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// DuePlace is a place in the order in which scheduled jobs are promoted: by the
// time at which they are to start, and then by id. The zero value is the start.
type DuePlace struct {
	RunAt time.Time
	ID    int64
}

// Promoted is what Promote did.
type Promoted struct {
	Due  int64    // jobs that were due and free; as many as asked for when there may be more
	Last DuePlace // of them; what Promote was given when there was none
}

// Promote makes up to count due jobs available, those after the place: see
// JobPromote. It is one transaction, unless the connection is in one already, with
// the settings that keep its plan from being one for an empty table.
func (s *Schema) Promote(ctx context.Context, conn Batcher, after DuePlace, count int32) (Promoted, error) {
	answer := Promoted{Last: after}
	batch := &pgx.Batch{}
	batch.Queue(HotSettings)
	batch.Queue(s.SQL(JobPromote), DueFrom(after.RunAt), after.ID, count).QueryRow(func(row pgx.Row) error {
		var r JobPromoteRow
		if err := row.Scan(&r.Promoted, &r.Queues, &r.Due, &r.LastRunAt, &r.LastID); err != nil {
			return err
		}
		if answer.Due = r.Due; r.Due > 0 {
			answer.Last = DuePlace{RunAt: r.LastRunAt.Time, ID: r.LastID}
		}
		return nil
	})
	return answer, conn.SendBatch(ctx, batch).Close()
}

// DueFrom is a time as an argument; the zero time is before all others.
func DueFrom(at time.Time) pgtype.Timestamptz {
	if at.IsZero() {
		return pgtype.Timestamptz{InfinityModifier: pgtype.NegativeInfinity, Valid: true}
	}
	return Timestamp(at)
}
