package tests

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/db"
)

// counted counts round trips, and the statements in them.
type counted struct {
	db.Batcher
	trips, statements int
}

func (c *counted) SendBatch(ctx context.Context, batch *pgx.Batch) pgx.BatchResults {
	c.trips++
	c.statements += batch.Len()
	return c.Batcher.SendBatch(ctx, batch)
}

// A limit and a rate that are not reached cost no claim a job: each takes as many as one without takes, in one
// round trip, that asks before and charges after. What these two read depends on the leases in hand, and not on how many jobs are claimed.
func TestLimitsNotReachedTakeAsMany(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	const claims, jobs, buffersMax = 5, 200, 40
	seen := make(map[string]*counted)
	for name, limits := range map[string]string{
		"none":  "",
		"limit": `{"max_running": 1000000}`,
		"rate":  `{"rate_jobs": 1000000, "rate_period": "1 s"}`,
		"both":  `{"max_running": 1000000, "rate_jobs": 1000000, "rate_period": "1 s"}`,
	} {
		q := setUp(t)
		if limits != "" {
			q.set(limits)
		}
		q.exec("select jobq.enqueue('k') from generate_series(1, $1::integer)", 2*claims*jobs)
		seen[name] = &counted{Batcher: q.pool}
		exchange := limited("a", jobs)
		exchange.HasLimits = limits != ""
		for range claims { // each with the ends of what the one before has taken
			answer, err := q.schema.Exchange(ctx, seen[name], exchange)
			require.NoError(t, err)
			require.Len(t, answer.Claimed, jobs, name)
			require.Len(t, answer.Completed, len(exchange.Completions), name)
			exchange.Completions = nil
			for _, job := range answer.Claimed {
				exchange.Completions = append(exchange.Completions, db.Completion{Slot: at(job), Kind: "k"})
			}
		}
		if limits == "" {
			continue
		}
		var most []int
		for _, count := range []int{1, claims * jobs} {
			tx, err := q.pool.Begin(ctx)
			require.NoError(t, err)
			_, err = tx.Exec(ctx, db.HotSettings)
			require.NoError(t, err)
			asks := func() int {
				return explainBuffers(t, tx, "select * from jobq.queue_admit('default', $1, $1, true)", count)
			}
			charges := func() int { return explainBuffers(t, tx, "select jobq.queue_charge('default', 0)") }
			_, _ = asks(), charges() // catalogs
			buffers := asks()
			answer, err := q.schema.Exchange(ctx, tx, limited("b", count))
			require.NoError(t, err)
			require.Len(t, answer.Claimed, count, name)
			most = append(most, buffers+charges())
			require.NoError(t, tx.Rollback(ctx))
		}
		t.Logf("%s: %v buffers to ask and to charge", name, most)
		require.LessOrEqual(t, most[0], buffersMax, name)
		require.LessOrEqual(t, most[1], buffersMax, name)
	}
	for name, c := range seen {
		require.Equal(t, claims, c.trips, name)
		if name != "none" {
			require.Equal(t, seen["none"].statements+2*claims, c.statements, name)
		}
	}
}
