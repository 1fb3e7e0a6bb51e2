package tests

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/db"
)

// A child that somebody has locked keeps neither its parent's other children waiting nor is
// it forgotten; one that was cancelled or requeued meanwhile is left alone.
func TestChildIsLocked(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	q := setUp(t)
	parent := q.parent()
	locked, free, cancelled, requeued := q.child("cancel", parent.ID), q.child("cancel", parent.ID), q.child("cancel", parent.ID), q.child("cancel", parent.ID)
	q.exec("select jobq.cancel($1)", cancelled)
	q.exec("select jobq.requeue($1)", requeued)
	require.Equal(t, "available", q.state(requeued))
	release := q.locked(func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "select from jobq.pending where id = $1 for update", locked)
		return err
	})
	q.completes(plainly(parent))
	for range 5 {
		q.settleStep(2)
	}
	require.Equal(t, "waiting", q.state(locked))
	require.Equal(t, "available", q.state(free))
	release()
	q.settle()
	require.Equal(t, "available", q.state(locked))
	require.Equal(t, "cancelled", q.state(cancelled))
	require.Equal(t, "available", q.state(requeued))
}

// A job that an undo has put back to wait, when those for which it waits are over, is freed
// also if somebody has it locked when the janitor looks for the first time.
func TestUndoneChildIsLocked(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	parent := q.parent()
	id := q.child("cancel", parent.ID)
	audit, _ := q.act("cancel", nil, id)
	q.completes(plainly(parent))
	q.settle()
	q.exec("select jobq.undo('ann', $1)", audit)
	release := q.locked(func(tx pgx.Tx) error {
		_, err := tx.Exec(context.Background(), "select from jobq.pending where id = $1 for update", id)
		return err
	})
	for range 3 {
		q.settleStep(500)
	}
	require.Equal(t, "waiting", q.state(id))
	release()
	q.settle()
	require.Equal(t, "available", q.state(id))
}

// A parent with many children does not hold up those of others: its turn comes again when
// the others have had theirs.
func TestManyChildrenHoldUpNobody(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	many, few := q.parent(), q.parent()
	q.exec("select jobq.enqueue('k', queue => 'children', after => array[$1::bigint]) from generate_series(1, 40)", many.ID)
	one := q.child("cancel", few.ID)
	q.settle()
	q.completes(plainly(many))
	q.completes(plainly(few))
	q.exec("update jobq.dependency_look set look_at = now() - interval '1 min' + case when job_id = $1 then interval '0' else interval '1 s' end where not is_new", many.ID)
	row, err := q.queries.DependencyStep(context.Background(), db.DueFrom(time.Time{}), 10)
	require.NoError(t, err)
	require.True(t, row.More)
	require.Equal(t, "waiting", q.state(one))
	_, err = q.queries.DependencyStep(context.Background(), db.DueFrom(time.Time{}), 10)
	require.NoError(t, err)
	require.Equal(t, "available", q.state(one))
	q.settle()
	require.Zero(t, q.number("select count(*) from jobq.pending where waits"))
}

// Two sessions that deal at once with the two parents of one child free it: the later one
// sees what the earlier one has done, since it looks again after it has locked the child. One
// that keeps its snapshot would not, and is refused.
func TestParentsAreDealtWithAtOnce(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	q := setUp(t)
	a, b := q.parent(), q.parent()
	id := q.child("cancel", a.ID, b.ID)
	q.settle()
	q.exec("delete from jobq.dependency_look") // those of new parents
	begin := func(level pgx.TxIsoLevel) pgx.Tx {
		tx, err := q.pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: level})
		require.NoError(t, err)
		t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
		return tx
	}
	step := func(tx pgx.Tx) error {
		_, err := q.schema.Queries(tx).DependencyStep(ctx, db.DueFrom(time.Time{}), 500)
		return err
	}
	q.completes(plainly(b))
	second := begin(pgx.ReadCommitted) // has what it is to deal with before the other parent ends
	_, err := second.Exec(ctx, "select from jobq.dependency_look where job_id = $1 for update", b.ID)
	require.NoError(t, err)
	q.completes(plainly(a))
	first := begin(pgx.ReadCommitted)
	require.NoError(t, step(first))
	require.NoError(t, first.Commit(ctx))
	require.Equal(t, "waiting", q.state(id))
	require.NoError(t, step(second))
	require.NoError(t, second.Commit(ctx))
	require.Equal(t, "available", q.state(id))

	require.ErrorContains(t, step(begin(pgx.RepeatableRead)), "dependency_step needs read committed, not repeatable read")
}

// A dependency that another session has locked, such as one that forgets old ones, comes
// again: wherever it is among those of its parent, and whoever looks in between.
func TestDependencyIsLocked(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for name, count := range map[string]int32{"the last page": 500, "a full page": 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := setUp(t)
			parent := q.parent()
			locked, free := q.child("cancel", parent.ID), q.child("cancel", parent.ID)
			q.settle()
			q.exec("delete from jobq.dependency_look") // that of a new parent
			q.completes(plainly(parent))
			other, err := q.pool.Begin(ctx)
			require.NoError(t, err)
			defer func() { _ = other.Rollback(ctx) }()
			_, err = other.Exec(ctx, "select from jobq.dependency where child = $1 for update", locked)
			require.NoError(t, err)
			for range 3 {
				q.settleStep(count)
			}
			require.Equal(t, "available", q.state(free))
			require.Equal(t, "waiting", q.state(locked))
			require.NoError(t, other.Rollback(ctx))
			q.settle()
			require.Equal(t, "available", q.state(locked))
		})
	}
}

// A parent that was deleted when it had completed stays one that had completed, also when
// another session deals with the end while this one deals with the delete.
func TestDeletedParentIsLookedAtByTwo(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	q := setUp(t)
	parent := q.parent()
	id := q.child("cancel", parent.ID)
	q.settle()
	q.exec("delete from jobq.dependency_look") // that of a new parent
	q.completes(plainly(parent))
	q.exec("select jobq.delete_job($1)", parent.ID)
	require.Equal(t, 2, q.number("select count(*) from jobq.dependency_look"))
	first, err := q.pool.Begin(ctx)
	require.NoError(t, err)
	defer func() { _ = first.Rollback(ctx) }()
	_, err = first.Exec(ctx, "select from jobq.dependency_look where ended is null for update")
	require.NoError(t, err)
	_, err = first.Exec(ctx, "select from jobq.dependency for update")
	require.NoError(t, err)
	q.settleStep(500)
	require.NoError(t, first.Rollback(ctx)) // as if it had found the child locked
	q.settle()
	require.Equal(t, "available", q.state(id))
}
