package tests

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/db"
)

// keepDays makes partitions as if the history went so many days back.
func (q *queue) keepDays(days int) {
	q.Helper()
	q.exec(`select jobq.partition_add(parent, (now() at time zone 'UTC')::date - ago)
		from unnest(array['run', 'past_lease', 'attempt']) as parent, generate_series(1, $1::integer) as ago`, days)
}

// locksOf returns how many locks a transaction holds in which the function was called.
func (q *queue) locksOf(call func(tx pgx.Tx)) (count int) {
	q.Helper()
	ctx := context.Background()
	tx, err := q.pool.Begin(ctx)
	require.NoError(q, err)
	defer func() { _ = tx.Rollback(ctx) }()
	call(tx)
	require.NoError(q, tx.QueryRow(ctx, "select count(*) from pg_locks where pid = pg_backend_pid()").Scan(&count))
	return count
}

// However many days of history are kept, plain ends with a claim, an extension and
// the look for cancelled jobs lock the same few tables and indexes. The lock table
// of the server is small, and all workers share it.
func TestLocksDoNotGrowWithTheDaysKept(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	q := setUp(t)
	var before map[string]int
	for _, days := range []int{3, 30} {
		q.keepDays(days)
		l := leaseOf(q, 3)
		q.exec("select jobq.enqueue('k')")
		locks := map[string]int{
			"plain ends and a claim": q.locksOf(func(tx pgx.Tx) {
				answer, err := q.schema.Exchange(ctx, tx, db.Exchange{Owner: "a", Completions: l.completions(1, 2), Claim: &db.JobClaimParams{
					Lease: hour, Owner: "a", Queue: "default", Kinds: []string{"k"}, JobCount: 1,
				}})
				require.NoError(t, err)
				require.Len(t, answer.Completed, 2)
				require.Len(t, answer.Claimed, 1)
			}),
			"an extension": q.locksOf(func(tx pgx.Tx) {
				answers, err := q.schema.ExtendLeases(ctx, tx, "a", []db.Extension{{ID: l.id, ClaimedAt: l.jobs[1].StartedAt.Time, Lease: hour}})
				require.NoError(t, err)
				require.Equal(t, map[int64]string{l.id: db.LeaseOK}, answers)
			}),
			"a look for cancelled jobs": q.locksOf(func(tx pgx.Tx) {
				q.exec("select jobq.cancel($1)", l.jobs[3].ID)
				cancelled, err := q.schema.CancelledJobs(ctx, tx, []int64{l.id})
				require.NoError(t, err)
				require.Equal(t, map[int64][]int64{l.id: l.ids(3)}, cancelled)
			}),
		}
		t.Logf("%d days before today: %v", days, locks)
		if before != nil {
			require.Equal(t, before, locks)
		}
		before = locks
	}
}

// Leases are extended while somebody has locked the whole history, as whoever
// changes its tables does.
func TestExtensionLocksNoRun(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := leaseOf(setUp(t), 1)
	defer l.locked(func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "lock table jobq.run, jobq.past_lease, jobq.attempt in access exclusive mode")
		return err
	})()
	require.Equal(t, db.LeaseOK, l.extend("a", at(l.jobs[1]), 2*time.Hour))
	require.Equal(t, 1, l.number("select count(*) from jobq.lease where expires_at > now() + interval '90 minutes'"))
}

// A token that comes again for the same owner and the same job, after a failover to
// a standby that had not heard of the claim, is another run: what belongs to the one
// before is refused, and leaves no trace.
func TestRepeatedTokenOfTheSameJob(t *testing.T) {
	t.Parallel()
	for name, write := range writes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := leaseOf(setUp(t), 2)
			stale := at(l.jobs[1])
			stale.ClaimedAt = stale.ClaimedAt.Add(-time.Hour)
			before := l.everything()
			require.False(t, write(l.queue, stale, "a"))
			require.Equal(t, before, l.everything())
			require.True(t, write(l.queue, at(l.jobs[1]), "a"))
		})
	}
}

// Nor is what was stored for the other run answered as the stale one's, nor what is
// held: it is lost.
func TestFateOfARepeatedToken(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := leaseOf(setUp(t), 2)
	stale := fateOf(l.jobs[1])
	stale.ClaimedAt.Time = stale.ClaimedAt.Time.Add(-time.Hour)
	for _, stored := range []bool{false, true} {
		if stored {
			require.True(t, writes["complete in a transaction"](l.queue, at(l.jobs[1]), "a"))
		}
		fate, err := l.queries.RunFate(ctx, stale)
		require.NoError(t, err)
		require.Equal(t, db.RunFateRow{}, fate)
		fate, err = l.queries.RunFate(ctx, fateOf(l.jobs[1]))
		require.NoError(t, err)
		require.Equal(t, db.RunFateRow{Held: !stored, Completed: stored}, fate)
	}
}

// Whoever reads what a run says of itself in a transaction does so under its own
// claim, too.
func TestHoldOfARepeatedToken(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	l := leaseOf(setUp(t), 1)
	params := db.RunHoldParams{ID: l.jobs[1].ID, Token: l.id, Owner: "a", ClaimedAt: l.jobs[1].StartedAt}
	held, err := l.queries.RunHold(ctx, params)
	require.NoError(t, err)
	require.EqualValues(t, 1, held)
	params.ClaimedAt.Time = params.ClaimedAt.Time.Add(-time.Hour)
	held, err = l.queries.RunHold(ctx, params)
	require.NoError(t, err)
	require.Zero(t, held)
}
