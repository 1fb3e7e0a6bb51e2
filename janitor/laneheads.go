package janitor

import (
	"context"

	"github.com/jobq-dev/jobq/internal/db"
)

// laneHeadsBatch is how many partition keys one step looks at.
const laneHeadsBatch = 500

// pruneLaneHeads deletes the notes of which jobs of partition keys were claimed last, for keys
// that have no jobs any more.
func pruneLaneHeads() *chore {
	var place db.LaneHeadPruneRow
	work := func(ctx context.Context, queries *db.Queries) (more bool, err error) {
		row, err := queries.LaneHeadPrune(ctx, place.LastQueue, place.LastKey, laneHeadsBatch)
		if err != nil {
			return false, err
		}
		place = row
		return row.LastQueue != "", nil
	}
	return &chore{name: "prune heads of partition keys", every: lanesEvery, work: work, reset: func() { place = db.LaneHeadPruneRow{} }}
}
