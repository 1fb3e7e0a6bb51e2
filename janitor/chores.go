package janitor

import (
	"context"
	"time"

	"github.com/jobq-dev/jobq/internal/db"
)

const (
	rollUpEvery    = 30 * time.Second
	rollUpBatch    = 10_000
	workersEvery   = 2 * time.Minute
	workerSilence  = 5 * time.Minute
	retentionEvery = 10 * time.Minute
	// partitionDaysAhead is how many days of partitions are there before they
	// are needed: a janitor may be away for a weekend.
	partitionDaysAhead = 3
	payloadBatch       = 500
	defaultBatch       = 10_000
	statRetention      = 30 * 24 * time.Hour
	eventRetention     = 7 * 24 * time.Hour
)

// partitioned are the tables with a partition a day.
var partitioned = []string{"finished", "attempt"}

// chore is a task that is done every now and then, beside the recovery.
type chore struct {
	name  string
	every time.Duration
	// work is a step of it, in a transaction of its own, and says whether there is
	// another.
	work func(ctx context.Context, queries *db.Queries) (more bool, err error)

	done     time.Time // when it was last finished
	again    time.Time // not before, after a failure
	failures int       // since
}

// allChores are the chores in the order in which they are done.
func (j *Janitor) allChores() []*chore {
	return []*chore{
		{name: "roll up stats", every: rollUpEvery, work: j.rollUp},
		{name: "remove dead workers", every: workersEvery, work: j.removeWorkers},
		{name: "keep partitions", every: retentionEvery, work: j.keepPartitions},
		{name: "prune payloads", every: retentionEvery, work: j.prunePayloads},
		{name: "drop old days", every: retentionEvery, work: j.dropOldDays},
	}
}

func (j *Janitor) rollUp(ctx context.Context, queries *db.Queries) (more bool, err error) {
	taken, err := queries.StatRollUp(ctx, rollUpBatch)
	return taken == rollUpBatch, err
}

func (j *Janitor) removeWorkers(ctx context.Context, queries *db.Queries) (more bool, err error) {
	removed, err := queries.WorkerPrune(ctx, db.Interval(workerSilence))
	if err == nil && removed > 0 {
		j.log.Info("removed dead workers", "count", removed)
	}
	return false, err
}

// keepPartitions makes a partition that is missing, the furthest ahead first:
// a day that nothing has been caught of is made in a moment, and is the one that
// keeps the next from being caught.
func (j *Janitor) keepPartitions(ctx context.Context, queries *db.Queries) (more bool, err error) {
	for day := int32(partitionDaysAhead); day >= 0; day-- {
		for _, parent := range partitioned {
			if added, err := queries.PartitionAdd(ctx, parent, day); err != nil || added {
				return added, err
			}
		}
	}
	return false, nil
}

func (j *Janitor) prunePayloads(ctx context.Context, queries *db.Queries) (more bool, err error) {
	removed, err := queries.PayloadPrune(ctx, payloadBatch)
	return removed == payloadBatch, err
}

// dropOldDays drops one day, or deletes a batch of what the default partition
// has of them, or else prunes what is small.
func (j *Janitor) dropOldDays(ctx context.Context, queries *db.Queries) (more bool, err error) {
	for _, parent := range partitioned {
		dropped, err := queries.PartitionPrune(ctx, parent)
		if err != nil {
			return false, err
		}
		if dropped != "" {
			j.log.Info("dropped an old day", "partition", dropped)
			return true, nil
		}
		deleted, err := queries.DefaultPrune(ctx, parent, defaultBatch)
		if err != nil || deleted == defaultBatch {
			return true, err
		}
	}
	if _, err := queries.StatPrune(ctx, db.Interval(statRetention)); err != nil {
		return false, err
	}
	_, err = queries.EventPrune(ctx, db.Interval(eventRetention))
	return false, err
}
