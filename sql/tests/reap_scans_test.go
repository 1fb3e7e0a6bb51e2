package tests

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/db"
)

// reapScansMax is how often a reap looks into the indexes of run for each job: 7 times, of which
// most are the delete's. A lookup more would be 8.
const reapScansMax = 7.5

// A reap finds the partition key of a run in its first look at it.
func TestReapLooksUpKeysOnce(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	const count = 100
	for _, key := range []string{"", "a"} {
		t.Run("key "+key, func(t *testing.T) {
			t.Parallel()
			q := setUp(t)
			q.exec("insert into jobq.pending (kind, partition_key) select 'k', $1 from generate_series(1, $2)", key, count)
			claim := keyed("w", count)
			claim.OnlyKeyed = key != ""
			answer := q.exchange(claim)
			require.Equal(t, count, len(answer.Keyed)+len(answer.Claimed))
			q.expire()
			tx, err := q.pool.Begin(ctx)
			require.NoError(t, err)
			defer func() { _ = tx.Rollback(ctx) }()
			_, err = tx.Exec(ctx, db.HotSettings)
			require.NoError(t, err)
			rows, err := tx.Query(ctx, q.schema.SQL(db.LeaseReap), []string(nil), []int64(nil), []int64(nil), 2*count, []int64(nil), "test")
			require.NoError(t, err)
			reaped := 0
			for rows.Next() {
				reaped++
			}
			require.NoError(t, rows.Err())
			require.Equal(t, count, reaped)
			var scans int
			require.NoError(t, tx.QueryRow(ctx, q.schema.SQL(`select coalesce(sum(pg_stat_get_xact_numscans(i.indexrelid)), 0)
				from pg_index i join pg_inherits h on h.inhrelid = i.indrelid where h.inhparent = 'jobq.run'::regclass`)).Scan(&scans))
			t.Logf("%d scans", scans)
			require.LessOrEqual(t, float64(scans), reapScansMax*count)
		})
	}
}
