package operator_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/jobtest"
	"github.com/jobq-dev/jobq/internal/pgtest"
	"github.com/jobq-dev/jobq/operator"
)

// keyed are jobs of a kind with the keys z, m and a, in the order of their ids.
func keyed(t *testing.T, client *jobq.Client, kind string) (targets []operator.Target) {
	t.Helper()
	for _, key := range []string{"z", "m", "a"} {
		enqueued, err := client.Enqueue(context.Background(), jobq.RawArgs{Name: kind}, &jobq.EnqueueOptions{UniqueKey: key})
		require.NoError(t, err)
		targets = append(targets, operator.Target{ID: enqueued.ID})
	}
	return targets
}

func idsOf(targets []operator.Target) (ids []int64) {
	for _, target := range targets {
		ids = append(ids, target.ID)
	}
	return ids
}

// What brings jobs back takes their unique keys in the order in which an enqueue
// of many does, whatever the order of their ids. To be sure that the two meet, a
// third transaction holds the key in the middle until both wait. They are sent
// as SQL, since the client would try again.
func TestKeysInOneOrder(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	client := jobtest.Client(t)
	pool := client.Pool()
	act := func(action jobq.Action, targets []operator.Target) int64 {
		acted, err := operator.New(client, "test").Act(ctx, action, targets...)
		require.NoError(t, err)
		require.Empty(t, acted.Problems())
		return acted.AuditID
	}
	for name, prepare := range map[string]func(kind string, targets []operator.Target) (sql string, args []any){
		"requeue": func(_ string, targets []operator.Target) (string, []any) {
			act(jobq.ActionCancel, targets)
			return "select * from jobq.act('me', 'requeue', $1, null, null, null, null, null)", []any{idsOf(targets)}
		},
		"undo of a cancel": func(_ string, targets []operator.Target) (string, []any) {
			return "select * from jobq.undo('me', $1)", []any{act(jobq.ActionCancel, targets)}
		},
		"undo of a delete": func(_ string, targets []operator.Target) (string, []any) {
			return "select * from jobq.undo('me', $1)", []any{act(jobq.ActionDelete, targets)}
		},
		"enqueue many": func(kind string, targets []operator.Target) (string, []any) {
			act(jobq.ActionDelete, targets)
			return `select * from jobq.enqueue_many(jsonb_build_array(
				jsonb_build_object('kind', $1::text, 'unique_key', 'z'), jsonb_build_object('kind', $1, 'unique_key', 'm'),
				jsonb_build_object('kind', $1, 'unique_key', 'a')))`, []any{kind}
		},
	} {
		sql, args := prepare(name, keyed(t, client, name))
		holder, err := pool.Begin(ctx)
		require.NoError(t, err)
		_, err = client.EnqueueManyTx(ctx, holder, []jobq.EnqueueParams{jobtest.Raw(name, "{}", &jobq.EnqueueOptions{UniqueKey: "m"})})
		require.NoError(t, err)
		var group errgroup.Group
		group.Go(func() error { return jobtest.ErrorOf(pool.Exec(ctx, sql, args...)) })
		group.Go(func() error {
			return jobtest.ErrorOf(pool.Exec(ctx, `select * from jobq.enqueue_many(jsonb_build_array(
				jsonb_build_object('kind', $1::text, 'unique_key', 'a'), jsonb_build_object('kind', $1, 'unique_key', 'm'),
				jsonb_build_object('kind', $1, 'unique_key', 'z')))`, name))
		})
		jobtest.AwaitWaiting(t, pool, 2)
		require.NoError(t, holder.Rollback(ctx))
		require.NoError(t, group.Wait(), name)
		jobtest.RequireKeysRight(t, pool)
	}
}

// A requeue of many waits for a key before it has locked any job: a cancel that
// gives up the key, and wants a job of the requeue next, gets it.
func TestKeysBeforeJobs(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	client := jobtest.Client(t)
	pool := client.Pool()
	ended := jobtest.Enqueue(t, client, &jobq.EnqueueOptions{UniqueKey: "k"})
	_, err := client.Cancel(ctx, ended)
	require.NoError(t, err)
	plain := jobtest.Enqueue(t, client, nil)
	held := jobtest.Enqueue(t, client, &jobq.EnqueueOptions{UniqueKey: "k"})
	for name, requeue := range map[string]func() (string, []any){
		"many": func() (string, []any) {
			return "select * from jobq.act('me', 'requeue', $1, null, null, null, null, null)", []any{[]int64{plain, ended}}
		},
		"one": func() (string, []any) { return "select jobq.requeue($1)", []any{ended} },
	} {
		sql, args := requeue()
		tx, err := pool.Begin(ctx)
		require.NoError(t, err)
		_, err = tx.Exec(ctx, "select jobq.cancel($1)", held)
		require.NoError(t, err)
		var group errgroup.Group
		group.Go(func() error { return jobtest.ErrorOf(pool.Exec(ctx, sql, args...)) })
		jobtest.AwaitWaiting(t, pool, 1)
		for _, id := range []int64{plain, ended} {
			_, err = tx.Exec(ctx, "select from jobq.pending where id = $1 for update nowait", id)
			require.NoError(t, err, name)
		}
		require.NoError(t, pgtest.LockFinished(ctx, tx, ended), name)
		_, err = tx.Exec(ctx, "select jobq.cancel($1)", plain)
		require.NoError(t, err)
		require.NoError(t, tx.Commit(ctx))
		require.NoError(t, group.Wait(), name)
		require.Equal(t, jobq.StateAvailable, jobtest.State(t, client, ended))
		jobtest.RequireKeysRight(t, pool)
		ended, held = held, ended // the other one holds the key now
		plain = jobtest.Enqueue(t, client, nil)
	}
}

// A job that ends while a requeue of many has locked others already is left alone:
// its key, which the requeue has not taken before, may be in the hands of somebody who waits for these.
func TestNoKeyAfterJobs(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	client := jobtest.Client(t)
	pool := client.Pool()
	first := jobtest.Enqueue(t, client, nil)
	_, err := client.Cancel(ctx, first)
	require.NoError(t, err)
	late := jobtest.Enqueue(t, client, &jobq.EnqueueOptions{UniqueKey: "k"})
	holder, err := pool.Begin(ctx)
	require.NoError(t, err)
	require.NoError(t, pgtest.LockFinished(ctx, holder, first))
	var problem string
	var group errgroup.Group
	group.Go(func() error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, "set local lock_timeout = '20s'"); err != nil { // to fail, not to hang
				return err
			}
			return tx.QueryRow(ctx, "select problem from jobq.act('me', 'requeue', $1, null, null, null, null, null) where job_id = $2", []int64{first, late}, late).Scan(&problem)
		})
	})
	jobtest.AwaitWaiting(t, pool, 1)
	_, err = client.Cancel(ctx, late)
	require.NoError(t, err)
	other, err := pool.Begin(ctx)
	require.NoError(t, err)
	defer func() { _ = other.Rollback(ctx) }()
	_, err = other.Exec(ctx, "select jobq.enqueue(kind, unique_key => 'k') from jobq.job where id = $1", late)
	require.NoError(t, err)
	require.NoError(t, holder.Rollback(ctx))
	require.NoError(t, group.Wait(), "it does not wait for the key")
	require.Equal(t, "it has changed meanwhile, and is cancelled now", problem)
	require.Equal(t, jobq.StateAvailable, jobtest.State(t, client, first))
}

// A statement that PostgreSQL ends for a deadlock is sent again by the client;
// one in the caller's transaction is not. A deadlock that is sure: the other
// transaction has z, and waits for the client's a without ever looking whether
// there is a deadlock; when the client gets m, it waits for z, and looks.
func TestDeadlockIsTriedAgain(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	client := jobtest.Client(t)
	pool := client.Pool()
	one := func(key string) []jobq.EnqueueParams {
		return []jobq.EnqueueParams{jobtest.Raw("k", "{}", &jobq.EnqueueOptions{UniqueKey: key})}
	}
	all := append(append(one("a"), one("m")...), one("z")...)
	for name, send := range map[string]func() error{
		"own": func() error { return jobtest.ErrorOf(client.EnqueueMany(ctx, all)) },
		"caller's": func() error {
			return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { return jobtest.ErrorOf(client.EnqueueManyTx(ctx, tx, all)) })
		},
	} {
		holder, err := pool.Begin(ctx)
		require.NoError(t, err)
		require.NoError(t, jobtest.ErrorOf(client.EnqueueManyTx(ctx, holder, one("m"))))
		other, err := pool.Begin(ctx)
		require.NoError(t, err)
		require.NoError(t, jobtest.ErrorOf(other.Exec(ctx, "set local deadlock_timeout = '1h'")))
		require.NoError(t, jobtest.ErrorOf(client.EnqueueManyTx(ctx, other, one("z"))))
		var sender, waiter errgroup.Group
		sender.Go(send)
		jobtest.AwaitWaiting(t, pool, 1)
		waiter.Go(func() error { return jobtest.ErrorOf(client.EnqueueManyTx(ctx, other, one("a"))) })
		jobtest.AwaitWaiting(t, pool, 2)
		require.NoError(t, holder.Rollback(ctx))
		require.NoError(t, waiter.Wait(), "the client's statement has been ended")
		require.NoError(t, other.Rollback(ctx))
		err = sender.Wait()
		if name == "own" {
			require.NoError(t, err)
			_, err = pool.Exec(ctx, "select jobq.delete_job(id) from jobq.job")
			require.NoError(t, err)
			continue
		}
		require.ErrorIs(t, err, jobq.ErrUnavailable)
		require.ErrorContains(t, err, "enqueue: another transaction was in the way")
		jobtest.RequireNothingStored(t, client)
	}
}

// Whatever operators and producers do at once to the same jobs and keys, there is
// no deadlock, and no key is held in vain. Sent as SQL, which nobody tries again.
func TestNoDeadlockAtRandom(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	client := jobtest.Client(t)
	pool := client.Pool()
	const jobs, keys, senders, rounds = 60, 12, 8, 40
	key := func() string { return fmt.Sprintf("%02d", rand.IntN(keys)) }
	ids := func() (ids []int64) {
		for range 10 {
			ids = append(ids, rand.Int64N(jobs)+1)
		}
		return ids
	}
	sends := []func() (string, []any){
		func() (string, []any) {
			list := make([]string, 6)
			for i := range list {
				list[i] = fmt.Sprintf(`{"kind": "k", "unique_key": %q}`, key())
			}
			return "select * from jobq.enqueue_many($1)", []any{"[" + strings.Join(list, ",") + "]"}
		},
		func() (string, []any) {
			return "select * from jobq.act('me', $1, $2, null, null, null, null, null)", []any{[]string{"requeue", "requeue", "cancel", "delete"}[rand.IntN(4)], ids()}
		},
		func() (string, []any) { return "select jobq.requeue($1)", []any{rand.Int64N(jobs) + 1} },
		func() (string, []any) { return "select jobq.cancel($1)", []any{rand.Int64N(jobs) + 1} },
		func() (string, []any) { return "select jobq.enqueue('k', unique_key => $1)", []any{key()} },
		func() (string, []any) {
			return "select u.* from (select id from jobq.audit where action in ('cancel', 'delete', 'requeue') and undone_by is null order by random() limit 1) a, jobq.undo('me', a.id) u", nil
		},
	}
	var group errgroup.Group
	for range senders {
		group.Go(func() error {
			for range rounds {
				sql, args := sends[rand.IntN(len(sends))]()
				_, err := pool.Exec(ctx, sql, args...)
				var refused *pgconn.PgError
				if errors.As(err, &refused) && strings.HasPrefix(refused.Code, "JQ") {
					continue // as it should be: such as a key that is held
				}
				if err != nil {
					return fmt.Errorf("%s %v: %w", sql, args, err)
				}
			}
			return nil
		})
	}
	require.NoError(t, group.Wait())
	jobtest.RequireKeysRight(t, pool)
	var deadlocks int
	require.NoError(t, pool.QueryRow(ctx, "select deadlocks from pg_stat_database where datname = current_database()").Scan(&deadlocks))
	require.Zero(t, deadlocks)
}
