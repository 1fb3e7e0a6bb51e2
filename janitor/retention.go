package janitor

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/jobq-dev/jobq/internal/db"
)

const (
	// pruneBatch is how many small rows one step deletes.
	pruneBatch = 5_000
	// auditBatch and defaultBatch are fewer: an action keeps jobs that were
	// deleted, and the default partition jobs with large args.
	auditBatch   = 1_000
	defaultBatch = 1_000
	// payloadJobs is how many jobs one step looks at for large args, and
	// payloadBatch of how many it removes them: they are up to 1 MiB each.
	payloadJobs    = 10_000
	payloadBatch   = 500
	statRetention  = 30 * 24 * time.Hour
	eventRetention = 7 * 24 * time.Hour
)

// retention forgets what is old, in steps, each of which goes on where the one
// before has ended, or at the start after one that failed. What was deleted stays
// in the tables and their indexes for as long as any transaction may still see it,
// and a step that began at the start would walk through all of it: of 300,000 rows
// in steps of 500, the last one would walk through 299,500, and all of them
// together through 90 million.
type retention struct {
	log *slog.Logger
	// Where the last step has ended. A run of steps that comes to its end begins
	// anew with the next one.
	stat, event pgtype.Timestamptz
	payload     db.PayloadPruneRow
	audit       db.AuditPruneRow
}

// retentionChores are the chores that forget what is old.
func (j *Janitor) retentionChores() []*chore {
	r := &retention{log: j.log, stat: beginning(), event: beginning()}
	return []*chore{
		{name: "drop old days", every: retentionEvery, work: r.dropOldDays},
		{name: "prune payloads", every: retentionEvery, work: r.prunePayloads, reset: func() { r.payload = db.PayloadPruneRow{} }},
		{name: "prune stats", every: retentionEvery, work: r.pruneStats, reset: func() { r.stat = beginning() }},
		{name: "prune events", every: retentionEvery, work: r.pruneEvents, reset: func() { r.event = beginning() }},
		{name: "prune actions", every: retentionEvery, work: r.pruneActions, reset: func() { r.audit = db.AuditPruneRow{} }},
	}
}

// beginning is before all times.
func beginning() pgtype.Timestamptz {
	return pgtype.Timestamptz{InfinityModifier: pgtype.NegativeInfinity, Valid: true}
}

// dropOldDays takes one day out of the history, or deletes a batch of what the
// default partition has of such days.
func (r *retention) dropOldDays(ctx context.Context, queries *db.Queries) (more bool, err error) {
	for _, parent := range partitioned {
		pruned, err := queries.PartitionPrune(ctx, parent)
		if err != nil {
			return false, err
		}
		if pruned != "" {
			r.log.Info("dropped an old day", "partition", pruned)
			return true, nil
		}
		deleted, err := queries.DefaultPrune(ctx, parent, defaultBatch)
		if err != nil || deleted == defaultBatch {
			return true, err
		}
	}
	return false, nil
}

// prunePayloads removes large args of jobs of days that were taken out.
func (r *retention) prunePayloads(ctx context.Context, queries *db.Queries) (more bool, err error) {
	r.payload, err = queries.PayloadPrune(ctx, db.PayloadPruneParams{
		AfterDay: r.payload.Day, AfterJob: r.payload.LastJob, JobCount: payloadJobs, PayloadCount: payloadBatch,
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	}
	return err == nil, err
}

func (r *retention) pruneStats(ctx context.Context, queries *db.Queries) (more bool, err error) {
	row, err := queries.StatPrune(ctx, r.stat, db.Interval(statRetention), pruneBatch)
	if more = row.Deleted == pruneBatch; more {
		r.stat = row.Last
	} else {
		r.stat = beginning()
	}
	return more, err
}

func (r *retention) pruneEvents(ctx context.Context, queries *db.Queries) (more bool, err error) {
	row, err := queries.EventPrune(ctx, r.event, db.Interval(eventRetention), pruneBatch)
	if more = row.Deleted == pruneBatch; more {
		r.event = row.Last
	} else {
		r.event = beginning()
	}
	return more, err
}

func (r *retention) pruneActions(ctx context.Context, queries *db.Queries) (more bool, err error) {
	r.audit, err = queries.AuditPrune(ctx, r.audit.LastAudit, r.audit.LastJob, auditBatch)
	return r.audit.Deleted >= auditBatch, err
}
