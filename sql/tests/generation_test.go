package tests

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/db"
)

// gap is how far ids go on after a promotion or a restore.
const gap = 1 << 30

const (
	promoted = "select setval('jobq.timeline_seq', 9)" // as if that had been the timeline before
	restored = "select setval('jobq.system_seq', 9)"   // as if they had been another server's tables
)

func (q *queue) nextNumber() int { // of a lease, without its day
	return q.number("select jobq.lease_id_next() & ((1::bigint << 40) - 1)")
}

// beat is a worker's heartbeat.
func (q *queue) beat() {
	empty := []byte("{}")
	_, err := q.queries.WorkerBeat(context.Background(), db.WorkerBeatParams{
		ID: "w", Hostname: "h", Version: "v", Queues: empty, Kinds: []string{}, KindSlots: empty, Programs: empty, QueueNames: []string{"q"},
	})
	require.NoError(q, err)
}

// The first claim on a server that was promoted, and a heartbeat after a restore, take ids of jobs and leases out of the reach
// of what may have been lost. They do so once.
func TestIDsGoOnAfterAPromotionOrARestore(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for name, test := range map[string]struct {
		before string
		notice func(q *queue)
	}{
		"promotion, a claim":  {promoted, func(*queue) {}},
		"promotion, a worker": {promoted, (*queue).beat},
		"restore, a worker":   {restored, (*queue).beat},
		"restore, a janitor": {restored, func(q *queue) {
			for range 2 {
				_, err := q.queries.JanitorBeat(ctx, "j")
				require.NoError(q, err)
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := setUp(t)
			_, err := q.queries.JanitorBeat(ctx, "before") // nothing has happened
			require.NoError(t, err)
			job, number := q.number("select jobq.enqueue('k')"), q.nextNumber()
			require.Equal(t, 1, job)
			require.Equal(t, 1, number)
			q.exec(test.before)
			test.notice(q)
			require.Equal(t, number+1+gap, q.nextNumber())
			require.Equal(t, job+1+gap, q.number("select jobq.enqueue('k')"))
			require.Equal(t, number+2+gap, q.nextNumber(), "not again")
		})
	}
}

// Sessions that notice at once advance once, and none of them waits for the end of another's transaction, which may be an
// application's. What was advanced stays so when that transaction is rolled back.
func TestIDsAdvanceOnceForAll(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	q := setUp(t)
	require.Equal(t, 1, q.nextNumber())
	q.exec(promoted)
	first, err := q.pool.Begin(ctx)
	require.NoError(t, err)
	_, err = first.Exec(ctx, "select from jobq.generation_turn for update")
	require.NoError(t, err)
	const sessions = 2
	var numbers [sessions]int
	var running sync.WaitGroup
	var opened [sessions]pgx.Tx
	for i := range sessions {
		opened[i], err = q.pool.Begin(ctx)
		require.NoError(t, err)
		running.Go(func() {
			assert.NoError(t, opened[i].QueryRow(ctx, "select jobq.lease_id_next() & ((1::bigint << 40) - 1)").Scan(&numbers[i]))
		})
	}
	require.Eventually(t, func() bool {
		return q.number("select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'") == sessions
	}, 20*time.Second, 10*time.Millisecond)
	require.NoError(t, first.Rollback(ctx))
	running.Wait()
	for _, tx := range opened {
		require.NoError(t, tx.Rollback(ctx))
	}
	require.ElementsMatch(t, []int{2 + gap, 3 + gap}, numbers[:])
	require.Equal(t, 4+gap, q.nextNumber())
}

// At its end the number of a lease begins anew, as its sequence does. A job's id stops at the last one that there is.
func TestIDsAtTheirEnd(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	q.exec("select setval('jobq.lease_number_seq', (1::bigint << 40) - 7), setval('jobq.job_id_seq', 9223372036854775807 - 7)")
	q.exec(promoted)
	require.Equal(t, gap+1, q.nextNumber())
	require.Equal(t, 9223372036854775807, q.number("select last_value from jobq.job_id_seq"))
}
