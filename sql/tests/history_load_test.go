package tests

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/pgtest"
)

// Partitions come and go while jobs finish and are looked up, without a
// deadlock and without a lost job.
func TestPartitionsUnderLoad(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	q := setUp(t)
	done := make(chan error, 1)
	const days = 8
	// As the janitor does, it comes again where a transaction has a table for longer: on a busy machine, also one of this test's.
	again := func(step func() error) error {
		for {
			if err := step(); !isLockNotAvailable(err) {
				return err
			}
		}
	}
	go func() {
		for day := range int32(days) {
			for _, parent := range []string{pgtest.History, "past_lease", "attempt"} {
				for _, step := range []func() error{
					func() error { _, err := q.queries.PartitionAdd(ctx, parent, day+5); return err },
					func() error { _, err := q.queries.PartitionAdd(ctx, parent, -day-20); return err },
					func() error { _, err := q.queries.PartitionPrune(ctx, parent); return err },
				} {
					if err := again(step); err != nil {
						done <- err
						return
					}
				}
			}
		}
		done <- nil
	}()
	jobs := 0
	for end := false; !end; {
		select {
		case err := <-done:
			require.NoError(t, err)
			end = true
		default:
		}
		jobs += 5
		q.exec("select jobq.enqueue('k') from generate_series(1, 5)")
		for i, job := range q.claim("a", 5) {
			require.True(t, writes[[]string{"complete", "cancel"}[i%2]](q, at(job), "a"))
		}
		require.Equal(t, jobs, q.number("select count(*) from jobq.job"))
		q.exec("select jobq.delete_job(max(id)) from jobq.job where finished_at is not null")
		jobs--
	}
}

func isLockNotAvailable(err error) bool {
	var refused *pgconn.PgError
	return errors.As(err, &refused) && refused.Code == "55P03"
}

// While somebody reads the history for long, as pg_dump does, no day is dropped
// or made. The attempt does not wait for the reader, since all who finish jobs would
// wait behind it: it ends at once, though there is no lock_timeout, and says who
// reads.
func TestPartitionsYieldToAReader(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	q := setUp(t)
	_, err := q.queries.PartitionAdd(ctx, pgtest.History, -30)
	require.NoError(t, err)
	config := q.pool.Config().ConnConfig.Copy()
	config.RuntimeParams["application_name"] = "long reader"
	reader, err := pgx.ConnectConfig(ctx, config)
	require.NoError(t, err)
	defer func() { _ = reader.Close(ctx) }()
	_, err = reader.Exec(ctx, "begin; select count(*) from jobq."+pgtest.History)
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		return q.number("select count(*) from pg_stat_activity where pid = $1 and xact_start < clock_timestamp() - interval '1 s'", reader.PgConn().PID()) == 1
	}, patience, time.Millisecond)

	days := q.days(pgtest.History)
	_, err = q.queries.PartitionPrune(ctx, pgtest.History)
	require.True(t, db.IsLockTimeout(err), "%v", err)
	require.ErrorContains(t, err, "is in use by session")
	require.ErrorContains(t, err, "long reader")
	_, err = q.queries.PartitionAdd(ctx, pgtest.History, 30)
	require.True(t, db.IsLockTimeout(err), "%v", err)
	require.ErrorContains(t, err, "table jobq."+pgtest.History+"_default is in use by session")
	require.Equal(t, days, q.days(pgtest.History))
	holder, err := q.queries.TableHolder(ctx)
	require.NoError(t, err)
	require.Equal(t, "long reader", holder.Application)
	require.NotNil(t, holder.QueryStart)

	_, err = reader.Exec(ctx, "rollback")
	require.NoError(t, err)
	dropped, err := q.queries.PartitionPrune(ctx, pgtest.History)
	require.NoError(t, err)
	require.NotEmpty(t, dropped)
	added, err := q.queries.PartitionAdd(ctx, pgtest.History, 30)
	require.NoError(t, err)
	require.True(t, added)
}

// Several sessions that make the same days and drop the same old ones at once
// make and drop each once, and none of them fails.
func TestPartitionsByMany(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	q := setUp(t)
	const days = 6
	before := q.days("attempt")
	for day := range int32(days) {
		_, err := q.queries.PartitionAdd(ctx, "attempt", -day-20)
		require.NoError(t, err)
	}
	var added, dropped atomic.Int32
	var group errgroup.Group
	for range 4 {
		group.Go(func() error {
			for day := range int32(days) {
				made, err := q.queries.PartitionAdd(ctx, "attempt", day+20)
				if err != nil {
					return err
				}
				if made {
					added.Add(1)
				}
				if _, err := q.queries.PartitionPrune(ctx, "attempt"); err != nil {
					return err
				}
				dropped.Add(1)
			}
			return nil
		})
	}
	require.NoError(t, group.Wait())
	require.EqualValues(t, days, added.Load())
	require.Equal(t, before+days, q.days("attempt"))
	require.GreaterOrEqual(t, dropped.Load(), int32(days))
}
