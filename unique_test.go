package jobq_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/jobtest"
)

// Of many that enqueue at once with one key, one adds a job, and the others
// are told its id.
func TestUniqueKeyRace(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	client := jobtest.Client(t)
	results := make([]jobq.Enqueued, 64)
	var group errgroup.Group
	for i := range results {
		group.Go(func() (err error) {
			results[i], err = client.Enqueue(ctx, jobtest.Greeting{Name: fmt.Sprint(i)}, &jobq.EnqueueOptions{UniqueKey: "one"})
			return err
		})
	}
	require.NoError(t, group.Wait())
	added := 0
	for _, result := range results {
		require.Equal(t, results[0].ID, result.ID)
		if !result.Duplicate {
			added++
		}
	}
	require.Equal(t, 1, added)
	page, err := client.List(ctx, jobq.Filter{})
	require.NoError(t, err)
	require.Len(t, page.Jobs, 1)
}

// Two batches with the same keys in opposite orders do not deadlock, and add
// each key once.
func TestUniqueKeysInBatches(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	client := jobtest.Client(t)
	const count = 100
	var group errgroup.Group
	for worker := range 4 {
		group.Go(func() error {
			for range 5 {
				jobs := make([]jobq.EnqueueParams, count)
				for i := range jobs {
					key := i
					if worker%2 == 1 {
						key = count - 1 - i
					}
					jobs[i] = jobtest.Raw("k", "{}", &jobq.EnqueueOptions{UniqueKey: fmt.Sprint(key)})
				}
				if _, err := client.EnqueueMany(ctx, jobs); err != nil {
					return err
				}
			}
			return nil
		})
	}
	require.NoError(t, group.Wait())
	page, err := client.List(ctx, jobq.Filter{Limit: 1000})
	require.NoError(t, err)
	require.Len(t, page.Jobs, count)
}

// Two batches that both have one key and want the other's would wait for each
// other for ever. To be sure that they meet, a third transaction holds a key
// in the middle until both are on their way.
func TestKeysInOppositeOrders(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	client := jobtest.Client(t)
	batch := func(keys ...string) (jobs []jobq.EnqueueParams) {
		for _, key := range keys {
			jobs = append(jobs, jobtest.Raw("k", "{}", &jobq.EnqueueOptions{UniqueKey: key}))
		}
		return jobs
	}
	holder, err := client.Pool().Begin(ctx)
	require.NoError(t, err)
	_, err = client.EnqueueManyTx(ctx, holder, batch("m"))
	require.NoError(t, err)
	var group errgroup.Group
	var first, second []jobq.Enqueued
	group.Go(func() (err error) {
		first, err = client.EnqueueMany(ctx, batch("a", "m", "z"))
		return err
	})
	group.Go(func() (err error) {
		second, err = client.EnqueueMany(ctx, batch("z", "m", "a"))
		return err
	})
	require.Eventually(t, func() bool {
		var waiting int
		require.NoError(t, client.Pool().QueryRow(ctx, `select count(*) from pg_stat_activity
			where datname = current_database() and wait_event_type = 'Lock'`).Scan(&waiting))
		return waiting == 2
	}, jobtest.Eventually, jobtest.Tick)
	require.NoError(t, holder.Rollback(ctx))
	require.NoError(t, group.Wait())
	for i := range first {
		require.Equal(t, first[i].ID, second[2-i].ID)
		require.NotEqual(t, first[i].Duplicate, second[2-i].Duplicate)
	}
}

// A key is free again when its job has ended, and is looked after by a
// requeue. It belongs to one kind.
func TestUniqueKeyLife(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	client := jobtest.Client(t)
	options := &jobq.EnqueueOptions{UniqueKey: "k"}
	first := jobtest.Enqueue(t, client, options)
	other, err := client.EnqueueMany(ctx, []jobq.EnqueueParams{jobtest.Raw("another kind", "{}", options), jobtest.Raw("another kind", "{}", options)})
	require.NoError(t, err)
	require.False(t, other[0].Duplicate)
	require.Equal(t, jobq.Enqueued{ID: other[0].ID, Duplicate: true}, other[1], "within one batch as well")

	_, err = client.Cancel(ctx, first)
	require.NoError(t, err)
	next := jobtest.Enqueue(t, client, options)
	require.NotEqual(t, first, next)
	require.ErrorIs(t, jobtest.Requeue(client, first), jobq.ErrDuplicate)
	require.NoError(t, jobtest.Delete(client, next))
	require.NoError(t, jobtest.Requeue(client, first))

	// A plain INSERT has nobody to return the holder's id to: it fails.
	_, err = client.Pool().Exec(ctx, "insert into jobq.pending (kind, unique_key) values ('greeting', 'k')")
	require.ErrorContains(t, err, fmt.Sprintf("is held by unfinished job %d", first))
	var keys int
	require.NoError(t, client.Pool().QueryRow(ctx, "select count(*) from jobq.unique_key").Scan(&keys))
	require.Equal(t, 2, keys)
}
