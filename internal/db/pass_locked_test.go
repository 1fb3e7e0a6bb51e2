package db_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/db"
)

// claimPassing claims as worker "a" from the head of the line, with or without trying rows that seem locked.
func (q *queue) claimPassing(passLocked bool, count int32) (ids []int64) {
	q.Helper()
	answer := q.exchange(db.Exchange{Owner: "a", Claim: &db.JobClaimParams{
		Lease: hour, Owner: "a", Queue: "default", Kinds: []string{"k"}, JobCount: count, PassLocked: passLocked,
	}})
	for _, job := range answer.Claimed {
		ids = append(ids, job.ID)
	}
	return ids
}

// begin begins a transaction that has an id, as one that has written has.
func (q *queue) begin() pgx.Tx {
	q.Helper()
	ctx := context.Background()
	tx, err := q.pool.Begin(ctx)
	require.NoError(q, err)
	q.Cleanup(func() { _ = tx.Rollback(ctx) })
	_, err = tx.Exec(ctx, "select pg_current_xact_id()")
	require.NoError(q, err)
	return tx
}

// A claim that passes locked rows tries none whose locker still runs, whether that has begun before the claim's statement or
// is older. Once it has ended, its rows are free, also while a transaction that is as old is open.
func TestClaimPassesLockedRows(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	q := setUp(t)
	q.exec("select jobq.enqueue('k') from generate_series(1, 5)")
	older, locker, younger := q.begin(), q.begin(), q.begin()
	for id, tx := range map[int]pgx.Tx{1: older, 2: locker, 3: younger} {
		_, err := tx.Exec(ctx, "select from jobq.pending where id = $1 for update", id)
		require.NoError(t, err)
	}
	require.Equal(t, []int64{4}, q.claimPassing(true, 1))
	require.NoError(t, locker.Rollback(ctx))
	require.Equal(t, []int64{2}, q.claimPassing(true, 1))
	require.NoError(t, older.Commit(ctx))
	require.Equal(t, []int64{1}, q.claimPassing(true, 1))
	require.Equal(t, []int64{5}, q.claimPassing(true, 5))
	require.NoError(t, younger.Rollback(ctx))
	require.Equal(t, []int64{3}, q.claimPassing(true, 5))
}

// A row that another transaction is writing anew is passed, and the new row is free once that has committed.
func TestClaimPassesWhatIsBeingChanged(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	q := setUp(t)
	q.exec("select jobq.enqueue('k') from generate_series(1, 2)")
	change := q.begin()
	_, err := change.Exec(ctx, "update jobq.pending set priority = 3 where id = 1")
	require.NoError(t, err)
	require.Equal(t, []int64{2}, q.claimPassing(true, 2))
	require.NoError(t, change.Commit(ctx))
	require.Equal(t, []int64{1}, q.claimPassing(true, 2))
}

// Beside 300 rows that another claim has locked, a claim of 50 tries to lock 50 rows. Each one tried in vain costs two
// entries in the server's table of locks, which all workers share.
func TestClaimTriesNoLockedRow(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	q := setUp(t)
	q.exec("select jobq.enqueue('k') from generate_series(1, 500)")
	locker := q.begin()
	_, err := locker.Exec(ctx, "select from jobq.pending order by id limit 300 for update")
	require.NoError(t, err)
	conn, err := q.pool.Acquire(ctx)
	require.NoError(t, err)
	defer conn.Release()
	for name, sql := range map[string]string{"claim": db.JobClaim, "claim_each": db.JobClaimEach} {
		_, err := conn.Exec(ctx, fmt.Sprintf("prepare %s as %s", name, q.schema.SQL(sql)))
		require.NoError(t, err)
		for passLocked, tried := range map[bool]float64{true: 50, false: 350} {
			var plan []byte
			err := conn.QueryRow(ctx, fmt.Sprintf("explain (analyze, timing off, format json) execute %s('{-32769}', '{0}', '{32767}', 'default', '{k}', false, %t, 50, '1 hour', 'a')", name, passLocked)).Scan(&plan)
			require.NoError(t, err)
			var explained []struct{ Plan planNode }
			require.NoError(t, json.Unmarshal(plan, &explained))
			found := 0
			explained[0].Plan.walk(func(n planNode) {
				if n.Type == "LockRows" {
					found++
					require.InDelta(t, tried, n.Plans[0].Rows*n.Plans[0].Loops, 0, "%s, pass_locked %t: %s", name, passLocked, plan)
				}
			})
			require.Equal(t, 1, found)
			q.exec("insert into jobq.pending (kind) select 'k' from generate_series(1, 50)")
		}
	}
}
