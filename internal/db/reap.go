package db

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// Reap takes leases away from their owners: see LeaseReap. It is one transaction,
// unless the connection is in one already, with the settings that keep a plan made
// while there was little from reading all of run, which has the history as well.
func (s *Schema) Reap(ctx context.Context, conn Batcher, owners []string, count int32, source string) (reaped []LeaseReapRow, err error) {
	return s.ReapAround(ctx, conn, owners, count, source, Around{})
}

// Around says which leases and jobs a reap takes.
type Around struct {
	Only   []int64 // these leases alone; nil for all
	Leases []int64 // not these leases
	Jobs   []int64 // not these jobs
}

// ReapAround is Reap of a part: what cannot be reaped is passed by.
func (s *Schema) ReapAround(ctx context.Context, conn Batcher, owners []string, count int32, source string, around Around) (reaped []LeaseReapRow, err error) {
	params := LeaseReapParams{OnlyLeases: around.Only, AsideLeases: around.Leases, AsideJobs: around.Jobs, Owners: owners, JobCount: count, Source: source}
	batch := &pgx.Batch{}
	batch.Queue(HotSettings)
	s.Queue(batch, func(q *Queries) { _, _ = q.LeaseReap(ctx, params) }).Query(func(rows pgx.Rows) (err error) {
		reaped, err = pgx.CollectRows(rows, pgx.RowToStructByPos[LeaseReapRow])
		return err
	})
	if err := conn.SendBatch(ctx, batch).Close(); err != nil {
		return nil, fmt.Errorf("reap: %w", err)
	}
	return reaped, nil
}

// Quarantine takes into account that the workers of reaped runs have crashed, and
// pauses a kind that they crash from in a row: see KindsCrashed. It comes after the
// reap has committed, which does not depend on it. Left out are jobs that had not begun, those of workers
// that an operator has called lost, and those that were alone in their worker: there it is known which job did it, and
// others of its kind do no harm.
func (q *Queries) Quarantine(ctx context.Context, reaped []LeaseReapRow, source string) ([]KindsCrashedRow, error) {
	var kinds []string
	var owners []string
	var claimed []pgtype.Timestamptz
	for _, run := range reaped {
		if run.Begun && !run.Spared && run.Alone == 0 {
			kinds, claimed, owners = append(kinds, run.Kind), append(claimed, run.ClaimedAt), append(owners, run.LeaseOwner)
		}
	}
	if len(kinds) == 0 {
		return nil, nil
	}
	return q.KindsCrashed(ctx, KindsCrashedParams{Kinds: kinds, Claimed: claimed, Owners: owners, Source: source})
}

// LogAttrs name a run that was lost, for a log.
func (r *LeaseReapRow) LogAttrs() []any {
	return []any{"job_id", r.ID, "queue", r.Queue, "kind", r.Kind, "lost_worker", r.LeaseOwner, "times_in_a_row", r.Alone, "state", r.State}
}
