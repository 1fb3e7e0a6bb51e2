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
	// auditBatch and defaultBatch are smaller: an action may keep jobs that were deleted,
	// and the default partition has jobs with large args.
	auditBatch   = 1_000
	defaultBatch = 1_000
	// payloadJobs is at how many jobs one step looks for large args, and payloadBatch
	// from how many jobs it removes them: they are up to 1 MiB each.
	payloadJobs  = 10_000
	payloadBatch = 500
	// sweepBlocks is how many blocks of a day one step looks through, of 20 to 50 jobs each: some of
	// them may have large args or results. sweepLeases is how many of its leases.
	sweepBlocks = 16
	sweepLeases = 5_000
	// outputBatch is how many pieces of output one step looks at, of 64 KiB at most.
	// outputEvery is shorter than the other periods, since there can be many pieces.
	outputBatch    = 1_000
	outputEvery    = time.Minute
	waitersEvery   = time.Minute
	statRetention  = 30 * 24 * time.Hour
	eventRetention = 7 * 24 * time.Hour
	tickRetention  = 7 * 24 * time.Hour
)

// retention deletes what is old, in steps. Each step begins where the one before has ended;
// or at the start, if it is not known whether the one before was committed. Deleted rows stay in
// the tables and their indexes while any transaction may still see them. If each step began at
// the start, it would read through all of these. For example, of 300,000 rows in steps of 500,
// the last step would read through 299,500, and all steps together through 90 million.
type retention struct {
	log *slog.Logger
	// Where the last step of each chore has ended; the zero value: the next one begins at
	// the start.
	payload      db.PayloadPruneRow
	audit        db.AuditPruneRow
	dependencies db.DependencyPruneRow
}

// retentionChores are the chores that delete what is old.
func (j *Janitor) retentionChores() []*chore {
	r := &retention{log: j.log}
	output := byTime("prune output", outputEvery, pruneOutput)
	output.often = true
	chores := []*chore{
		// Before "drop old days", since dependencies keep days.
		{
			name: "prune dependencies", every: retentionEvery, work: r.pruneDependencies,
			reset: func() { r.dependencies = db.DependencyPruneRow{} },
		},
		// It keeps its place in a table, since days may take long and must not begin anew with each leader.
		{name: "sweep days", every: retentionEvery, work: sweepDays},
		{name: "drop old days", every: retentionEvery, work: r.dropOldDays},
		{name: "prune payloads", every: retentionEvery, work: r.prunePayloads, reset: func() { r.payload = db.PayloadPruneRow{} }},
		{name: "prune actions", every: retentionEvery, work: r.pruneActions, reset: func() { r.audit = db.AuditPruneRow{} }},
		byTime("prune stats", retentionEvery, pruneStats),
		byTime("prune events", retentionEvery, pruneEvents),
		byTime("prune ticks", retentionEvery, pruneTicks),
		pruneUniqueKeys(),
		output,
		{name: "prune progress", every: retentionEvery, work: pruneProgress},
		{name: "prune waiters", every: waitersEvery, work: pruneWaiters, often: true},
	}
	for _, parent := range partitioned {
		chores = append(chores, pruneDefault(parent))
	}
	return chores
}

// byTime is a chore that deletes rows in the order of their times. step gets the time at which the
// step before has ended; it returns the time at which it has ended, and whether there is more.
func byTime(name string, every time.Duration, step timeStep) *chore {
	beginning := pgtype.Timestamptz{InfinityModifier: pgtype.NegativeInfinity, Valid: true}
	after := beginning
	work := func(ctx context.Context, queries *db.Queries) (more bool, err error) {
		last, more, err := step(ctx, queries, after)
		if err != nil {
			return false, err
		}
		if after = last; !more {
			after = beginning
		}
		return more, nil
	}
	return &chore{name: name, every: every, work: work, reset: func() { after = beginning }}
}

type timeStep func(ctx context.Context, queries *db.Queries, after pgtype.Timestamptz) (last pgtype.Timestamptz, more bool, err error)

func pruneStats(ctx context.Context, queries *db.Queries, after pgtype.Timestamptz) (last pgtype.Timestamptz, more bool, err error) {
	row, err := queries.StatPrune(ctx, after, db.Interval(statRetention), pruneBatch)
	return row.Last, row.Deleted == pruneBatch, err
}

func pruneEvents(ctx context.Context, queries *db.Queries, after pgtype.Timestamptz) (last pgtype.Timestamptz, more bool, err error) {
	row, err := queries.EventPrune(ctx, after, db.Interval(eventRetention), pruneBatch)
	return row.Last, row.Deleted == pruneBatch, err
}

func pruneTicks(ctx context.Context, queries *db.Queries, after pgtype.Timestamptz) (last pgtype.Timestamptz, more bool, err error) {
	row, err := queries.ScheduleTickPrune(ctx, after, db.Interval(tickRetention), pruneBatch)
	return row.Last, row.Deleted == pruneBatch, err
}

// pruneOutput deletes the output of programs whose runs have ended, once it is older than 5
// minutes.
func pruneOutput(ctx context.Context, queries *db.Queries, after pgtype.Timestamptz) (last pgtype.Timestamptz, more bool, err error) {
	row, err := queries.OutputPrune(ctx, after, outputBatch)
	return row.Last, row.Looked == outputBatch, err
}

// pruneWaiters deletes the rows of processes that died while they waited for jobs. Without
// that, each end of a job would read them.
func pruneWaiters(ctx context.Context, queries *db.Queries) (more bool, err error) {
	isDone, err := queries.WaitersForget(ctx)
	return err == nil && !isDone, err
}

// pruneUniqueKeys deletes the unique keys of jobs that are over, when their time has passed.
func pruneUniqueKeys() *chore {
	beginning := db.UniqueKeyPruneRow{Last: pgtype.Timestamptz{InfinityModifier: pgtype.NegativeInfinity, Valid: true}}
	place := beginning
	work := func(ctx context.Context, queries *db.Queries) (more bool, err error) {
		row, err := queries.UniqueKeyPrune(ctx, place.Last, place.LastJob, pruneBatch)
		if err != nil {
			return false, err
		}
		if place = row; row.Deleted < pruneBatch {
			place = beginning
			return false, nil
		}
		return true, nil
	}
	return &chore{name: "prune unique keys", every: retentionEvery, work: work, reset: func() { place = beginning }}
}

// pruneProgress deletes the reports that runs made at the moment in which they ended. Other
// reports are deleted with the end of the run.
func pruneProgress(ctx context.Context, queries *db.Queries) (more bool, err error) {
	pruned, err := queries.ProgressPrune(ctx, pruneBatch)
	return pruned == pruneBatch, err
}

// pruneDefault deletes those rows of the default partition that are past retention.
func pruneDefault(parent string) *chore {
	var place db.DefaultPruneRow
	work := func(ctx context.Context, queries *db.Queries) (more bool, err error) {
		row, err := queries.DefaultPrune(ctx, db.DefaultPruneParams{
			Parent: parent, After: place.Last, AfterJob: place.LastJob, RowCount: defaultBatch,
		})
		if err != nil {
			return false, err
		}
		if place = row; row.Looked < defaultBatch {
			place = db.DefaultPruneRow{}
		}
		return row.Looked == defaultBatch, nil
	}
	return &chore{
		name: "prune default partition of " + parent, every: retentionEvery, work: work,
		reset: func() { place = db.DefaultPruneRow{} },
	}
}

// sweepDays deletes a batch of jobs of one day. The day itself stays, since other jobs of it are
// kept for longer.
func sweepDays(ctx context.Context, queries *db.Queries) (more bool, err error) {
	_, err = queries.HistorySweep(ctx, sweepBlocks, sweepLeases)
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	}
	return err == nil, err
}

// dropOldDays takes one day out of the history.
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
	}
	return false, nil
}

// prunePayloads removes the large args of jobs of days that dropOldDays has taken out of the history.
func (r *retention) prunePayloads(ctx context.Context, queries *db.Queries) (more bool, err error) {
	row, err := queries.PayloadPrune(ctx, db.PayloadPruneParams{
		AfterDay: r.payload.Day, AfterJob: r.payload.LastJob, JobCount: payloadJobs, PayloadCount: payloadBatch,
	})
	if errors.Is(err, pgx.ErrNoRows) {
		r.payload = db.PayloadPruneRow{}
		return false, nil
	}
	if err != nil {
		return false, err
	}
	r.payload = row
	return true, nil
}

// pruneDependencies deletes dependencies that nobody needs. Otherwise they would keep a day from
// being dropped.
func (r *retention) pruneDependencies(ctx context.Context, queries *db.Queries) (more bool, err error) {
	place := r.dependencies
	row, err := queries.DependencyPrune(ctx, db.DependencyPruneParams{
		AfterLease: place.LastLease, AfterChild: place.LastChild, AfterParent: place.LastParent, RowCount: defaultBatch,
	})
	if err != nil {
		return false, err
	}
	if r.dependencies = row; row.Looked < defaultBatch {
		r.dependencies = db.DependencyPruneRow{}
	}
	return row.Looked == defaultBatch, nil
}

func (r *retention) pruneActions(ctx context.Context, queries *db.Queries) (more bool, err error) {
	row, err := queries.AuditPrune(ctx, r.audit.LastAudit, r.audit.LastJob, auditBatch)
	if err != nil {
		return false, err
	}
	r.audit = row
	return row.Deleted >= auditBatch, nil
}
