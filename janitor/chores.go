package janitor

import (
	"context"
	"time"

	"github.com/jobq-dev/jobq/internal/db"
)

const (
	rollUpName  = "roll up stats"
	analyzeName = "analyze history"
	rollUpEvery = 30 * time.Second
	// quietRest is how long chores that are not frequent rest while nothing happens: see housekeeper.quiet.
	quietRest     = 2 * time.Hour
	rollUpBatch   = 10_000
	leasesBatch   = 1_000 // of LeaseShorten
	workersEvery  = 2 * time.Minute
	workerSilence = 5 * time.Minute
	// notificationsEvery is how often a full queue of notifications is looked for, and told.
	notificationsEvery = 5 * time.Minute
	lanesEvery         = 10 * time.Minute
	// lanesBatch is how many partition keys one step looks at: claims from their queue wait meanwhile.
	lanesBatch     = 500
	retentionEvery = 10 * time.Minute
	// statisticsLook is how often the janitor checks whether the history needs new
	// statistics, and statisticsEvery how old these may get. While the number of rows
	// in the history does not change, it checks once in historyStands.
	statisticsLook  = time.Minute
	statisticsEvery = 24 * time.Hour
	historyStands   = 10 * time.Minute
	// partitionDaysAhead is how many days of partitions are there before they
	// are needed: a janitor may be away for a weekend.
	partitionDaysAhead = 3
)

// partitioned are the tables with a partition for each day. The jobs come first.
var partitioned = []string{"run", "past_lease", "attempt"}

// chore is a task that is done every now and then, beside the recovery.
type chore struct {
	name  string
	every time.Duration
	// work is a step of it, in a transaction of its own, and says whether there is
	// another.
	work func(ctx context.Context, queries *db.Queries) (more bool, err error)
	// reset makes the next step begin at the start. It is called after an error, since the
	// last step may not have been committed. It is nil if each step begins at the start. It
	// is not called when work could not get a lock: then work must not change its place.
	reset func()
	// often says that the chore is frequent, so the janitor first asks whether it would find
	// something to do. ChoresFind knows the chore by its name.
	often bool
	// found says that it would, until the chore is finished.
	found bool

	done     time.Time // when it was last finished
	again    time.Time // after a failure: when to try again
	failures int       // in a row
	refusals int       // how often in a row another session had the chores' lock
}

// allChores are the chores in the order in which they are done.
func (j *Janitor) allChores(past *history) []*chore {
	chores := []*chore{
		{name: rollUpName, every: rollUpEvery, work: j.rollUp, often: true},
		{name: "shorten leases", every: rollUpEvery, work: j.shortenLeases, often: true},
		{name: "remove dead workers", every: workersEvery, work: j.removeWorkers, often: true},
		{name: "tell of full notifications", every: notificationsEvery, work: j.tellOfNotifications, often: true},
		{name: "keep partitions", every: retentionEvery, work: j.keepPartitions},
		{name: analyzeName, every: statisticsLook, work: j.analyzeHistory(past), often: true},
		pruneLanes(),
		pruneLaneHeads(),
	}
	return append(append(chores, j.retentionChores()...), stepChores()...)
}

// analyzeHistory makes the statistics of the partitioned table run as a whole. Autovacuum makes
// only those of its partitions.
func (j *Janitor) analyzeHistory(past *history) func(context.Context, *db.Queries) (more bool, err error) {
	return func(ctx context.Context, queries *db.Queries) (more bool, err error) {
		analyzed, err := queries.HistoryAnalyze(ctx, db.Interval(statisticsEvery))
		if err != nil {
			return false, err
		}
		if past.looked(analyzed); analyzed {
			j.log.Debug("analyzed the history")
		}
		return false, nil
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

// shortenLeases cuts leases that were made while the server's clock was ahead.
func (j *Janitor) shortenLeases(ctx context.Context, queries *db.Queries) (more bool, err error) {
	shortened, err := queries.LeaseShorten(ctx)
	if err == nil && shortened > 0 {
		j.log.Warn("the server's clock was set back: leases shortened", "count", shortened)
	}
	return shortened == leasesBatch, err
}

func (j *Janitor) tellOfNotifications(ctx context.Context, queries *db.Queries) (more bool, err error) {
	full, err := queries.NotificationsFull(ctx)
	if err == nil && full {
		j.log.Warn("the server's queue of notifications is almost full: jobq sends none, and workers find jobs by polling")
	}
	return false, err
}

// pruneLanes deletes what is stored about partition keys of queues that nobody claims from.
func pruneLanes() *chore {
	var place db.LanePruneRow
	work := func(ctx context.Context, queries *db.Queries) (more bool, err error) {
		row, err := queries.LanePrune(ctx, db.LanePruneParams{
			AfterQueue: place.LastQueue, AfterKey: place.LastKey, AfterHint: place.LastHint, RowCount: lanesBatch,
		})
		if err != nil {
			return false, err
		}
		place = row
		return row.LastQueue != "", nil
	}
	return &chore{name: "prune partition keys", every: lanesEvery, work: work, reset: func() { place = db.LanePruneRow{} }}
}

// keepPartitions makes one missing partition, that of the latest day first. The partition of a day
// cannot be made while the default partition has rows of that day. For a day in the future it has
// none yet, and once that day has a partition, it gets none.
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
