package tests

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/db"
)

// A job that has an earlier id and place than those that run, since its insert was committed late,
// is not admitted above the limit: what counts is what runs, and not which ids there are. It is the next one then.
// (hatchet-dev/hatchet#4778)
func TestLimitWithLateCommits(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		settings, insert string
		claim            func(owner string, count int) db.Exchange
	}{
		"of the queue": {`{"max_running": 2}`, "select jobq.enqueue('k')", limited},
		"of a key":     {`{"key_limit": 2}`, "select jobq.enqueue('k', partition_key => 'a')", keyed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := context.Background()
			q := setUp(t)
			q.set(test.settings)
			late, err := q.pool.Begin(ctx)
			require.NoError(t, err)
			defer func() { _ = late.Rollback(ctx) }()
			rows, err := late.Query(ctx, test.insert)
			require.NoError(t, err)
			first, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[int64])
			require.NoError(t, err)
			for range 3 {
				q.exec(test.insert)
			}
			taken := func(exchange db.Exchange) []db.KeyedJob {
				answer := q.exchange(exchange)
				jobs := answer.Keyed
				for _, job := range answer.Claimed {
					jobs = append(jobs, db.KeyedJob{JobClaimRow: job})
				}
				return jobs
			}
			running := taken(test.claim("w", 10))
			require.Len(t, running, 2)
			require.NoError(t, late.Commit(ctx))
			require.Empty(t, taken(test.claim("w", 10)), "two run")
			next := taken(ended(test.claim("w", 10), running[0]))
			require.Len(t, next, 1)
			require.Equal(t, first, next[0].ID, "it was added first")
			require.Empty(t, taken(test.claim("w", 10)))
		})
	}
}
