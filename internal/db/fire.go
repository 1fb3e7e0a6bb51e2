package db

import (
	"context"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// Fire is what FireSchedule is to do: as ScheduleFire says.
type Fire struct {
	Name     string
	Revision int64
	CursorAt time.Time
	Ticks    []time.Time
	LookedAt time.Time
	DueAt    *time.Time // nil: never again
	// Statement and Lock are what the server is to end it for: an insert of a job
	// may run into a trigger of the application's.
	Statement, Lock time.Duration
}

// FireSchedule adds the jobs of ticks in one transaction and one round trip. It says
// whether it did: see ScheduleFire. The limits end with the transaction, so they
// cannot leak to others behind a pooler.
func (s *Schema) FireSchedule(ctx context.Context, conn Batcher, fire Fire) (jobs []int64, fired bool, err error) {
	stamp := func(at time.Time) pgtype.Timestamptz { return pgtype.Timestamptz{Time: at, Valid: true} }
	ticks := make([]pgtype.Timestamptz, len(fire.Ticks))
	for i, tick := range fire.Ticks {
		ticks[i] = stamp(tick)
	}
	milliseconds := func(limit time.Duration) string { return strconv.FormatInt(limit.Milliseconds(), 10) }
	batch := &pgx.Batch{}
	batch.Queue("select set_config('statement_timeout', $1, true), set_config('lock_timeout', $2, true)", milliseconds(fire.Statement), milliseconds(fire.Lock))
	s.Queue(batch, func(q *Queries) {
		_, _ = q.ScheduleFire(ctx, ScheduleFireParams{
			Name: fire.Name, Revision: fire.Revision, CursorAt: stamp(fire.CursorAt), Ticks: ticks,
			LookedAt: stamp(fire.LookedAt), DueAt: fire.DueAt,
		})
	}).QueryRow(func(row pgx.Row) error { return row.Scan(&jobs, &fired) })
	err = conn.SendBatch(ctx, batch).Close()
	return jobs, fired && err == nil, err
}

// FirstSchedule says in how long the first schedule is due, negative when it is
// overdue, and whether there is one. It waits no longer for a lock than so, since it
// borrows its connection from others.
func (s *Schema) FirstSchedule(ctx context.Context, conn Batcher, lock time.Duration) (in time.Duration, found bool, err error) {
	batch := &pgx.Batch{}
	batch.Queue("select set_config('lock_timeout', $1, true)", strconv.FormatInt(lock.Milliseconds(), 10))
	var due *time.Time
	var looked time.Time
	s.Queue(batch, func(q *Queries) { _, _ = q.ScheduleFirst(ctx) }).QueryRow(func(row pgx.Row) error { return row.Scan(&due, &looked) })
	if err := conn.SendBatch(ctx, batch).Close(); err != nil || due == nil {
		return 0, false, err
	}
	return due.Sub(looked), true, nil
}
