package tests

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/db"
)

// Nothing is claimed from a queue from the commit of its pause until it is resumed, in
// whatever way leases are given, with limits and without, and also by a claim that begins
// with an aged priority. Before the commit claims go on.
func TestPausedQueueIsNotClaimed(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for _, each := range []bool{false, true} {
		for _, limits := range []bool{false, true} {
			t.Run(fmt.Sprintf("each %t, limits %t", each, limits), func(t *testing.T) {
				t.Parallel()
				q := setUp(t)
				if limits {
					q.set(`{"max_running": 100}`)
				}
				for range 10 {
					q.waiting("k", 0, "1 second")
					q.waiting("k", 9, "1 hour")
				}
				aged := q.aged("k")
				require.Len(t, aged, 1)
				claim := func() (count int) {
					exchange := limited("w", 2)
					exchange.HasLimits, exchange.Claim.LeasePerJob = limits, each
					count = len(q.exchange(exchange).Claimed)
					exchange = limited("w", 2)
					exchange.HasLimits, exchange.Claim.LeasePerJob = limits, each
					db.Line{}.RestAfter(aged, exchange.Claim)
					return count + len(q.exchange(exchange).Claimed)
				}
				tx, err := q.pool.Begin(ctx)
				require.NoError(t, err)
				defer func() { _ = tx.Rollback(ctx) }()
				_, err = tx.Exec(ctx, "select jobq.act_queue('me', 'pause', 'default', 'broken')")
				require.NoError(t, err)
				require.Equal(t, 4, claim(), "before the commit")
				require.NoError(t, tx.Commit(ctx))
				require.Zero(t, claim())
				q.exec("select jobq.act_queue('me', 'resume', 'default', null)")
				require.Equal(t, 4, claim())
			})
		}
	}
}
