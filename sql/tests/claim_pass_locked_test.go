package tests

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
func (q *queue) claimPassing(on db.Batcher, passLocked bool, count int32) (ids []int64) {
	q.Helper()
	answer, err := q.schema.Exchange(context.Background(), on, db.Exchange{Owner: "a", Claim: &db.JobClaimParams{
		Lease: hour, Owner: "a", Queue: "default", Kinds: []string{"k"}, JobCount: count, PassLocked: passLocked,
	}})
	require.NoError(q, err)
	for _, job := range answer.Claimed {
		ids = append(ids, job.ID)
	}
	return ids
}

// begin begins a transaction whose snapshot is taken, or which has an id, as one that has written has.
func (q *queue) begin(isolation pgx.TxIsoLevel, first string) pgx.Tx {
	q.Helper()
	ctx := context.Background()
	tx, err := q.pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: isolation})
	require.NoError(q, err)
	q.Cleanup(func() { _ = tx.Rollback(ctx) })
	_, err = tx.Exec(ctx, first)
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
	lockers := make([]pgx.Tx, 4)
	for id := range lockers[1:] {
		lockers[id+1] = q.begin(pgx.ReadCommitted, fmt.Sprintf("select from jobq.pending where id = %d for update", id+1))
	}
	require.Equal(t, []int64{4}, q.claimPassing(q.pool, true, 1))
	require.NoError(t, lockers[2].Rollback(ctx))
	require.Equal(t, []int64{2}, q.claimPassing(q.pool, true, 1))
	require.NoError(t, lockers[1].Commit(ctx))
	require.Equal(t, []int64{1}, q.claimPassing(q.pool, true, 1))
	require.Equal(t, []int64{5}, q.claimPassing(q.pool, true, 5))
	require.NoError(t, lockers[3].Rollback(ctx))
	require.Equal(t, []int64{3}, q.claimPassing(q.pool, true, 5))
}

// A row that another transaction is writing anew is passed, and the new row is free once that has committed.
func TestClaimPassesWhatIsBeingChanged(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	q := setUp(t)
	q.exec("select jobq.enqueue('k') from generate_series(1, 2)")
	change := q.begin(pgx.ReadCommitted, "update jobq.pending set priority = 3 where id = 1")
	require.Equal(t, []int64{2}, q.claimPassing(q.pool, true, 2))
	require.NoError(t, change.Commit(ctx))
	require.Equal(t, []int64{1}, q.claimPassing(q.pool, true, 2))
}

// A row that only seems locked is passed by claims that pass such rows, and taken by the others. Method: to a snapshot that was
// taken before the lock, its transaction has not ended, although it was rolled back.
func TestClaimTriesWhatSeemsLocked(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	q.exec("select jobq.enqueue('k')")
	old := q.begin(pgx.RepeatableRead, "select from jobq.pending")
	locker := q.begin(pgx.ReadCommitted, "select from jobq.pending for update")
	require.NoError(t, locker.Rollback(context.Background()))
	require.Empty(t, q.claimPassing(old, true, 1))
	require.Equal(t, []int64{1}, q.claimPassing(old, false, 1))
}

// Beside 300 rows that another claim has locked, before the statement's snapshot or after it, a claim of 50 tries to lock 50
// rows. All workers that try a row in vain wait for the same lock of the server.
func TestClaimTriesNoLockedRow(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	q := setUp(t)
	q.exec("select jobq.enqueue('k') from generate_series(1, 500)")
	const lock = "select from jobq.pending order by id limit 300 for update"
	for name, leasePerJob := range map[string]bool{"claim": false, "claim_each": true} {
		for _, test := range []struct {
			after, passLocked bool
			tried             float64
		}{{false, true, 50}, {true, true, 50}, {false, false, 350}, {true, false, 350}} {
			var locker, claim pgx.Tx
			if !test.after {
				locker = q.begin(pgx.ReadCommitted, lock)
				q.exec("select pg_current_xact_id()") // one that is younger has ended: the snapshot lists the locker
			}
			claim = q.begin(pgx.RepeatableRead, fmt.Sprintf("prepare %s as %s", name, q.schema.SQL(db.JobClaim)))
			_, err := claim.Exec(ctx, "select from jobq.pending limit 1")
			require.NoError(t, err)
			if test.after {
				locker = q.begin(pgx.ReadCommitted, lock)
			}
			var plan []byte
			err = claim.QueryRow(ctx, fmt.Sprintf("explain (analyze, timing off, format json) execute %s('{-32769}', '{0}', '{32767}', 'default', '{k}', false, %t, 50, '1 hour', 10, 10, 'a', %t)",
				name, test.passLocked, leasePerJob)).Scan(&plan)
			require.NoError(t, err)
			var explained []struct{ Plan planNode }
			require.NoError(t, json.Unmarshal(plan, &explained))
			found := 0
			explained[0].Plan.walk(func(n planNode) {
				if n.Type == "LockRows" {
					found++
					require.InDelta(t, test.tried, n.Plans[0].Rows*n.Plans[0].Loops, 0, "%s, %+v: %s", name, test, plan)
				}
			})
			require.Equal(t, 1, found)
			_, err = claim.Exec(ctx, "deallocate "+name)
			require.NoError(t, err)
			require.NoError(t, claim.Rollback(ctx))
			require.NoError(t, locker.Rollback(ctx))
		}
	}
}
