package tests

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/pgtest"
)

// expire makes all leases expire.
func (q *queue) expire() {
	q.Helper()
	require.NoError(q, pgtest.ExpireLeases(context.Background(), q.pool))
}

// Eight reapers at once over the same expired leases count each lost run once.
func TestReapersCountOnce(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	q := setUp(t)
	const count = 500
	q.exec("select jobq.enqueue('k') from generate_series(1, $1::integer)", count)
	for range 5 { // leases that no reap takes in one step, and that are divided
		require.Len(t, q.claim("a", count/5), count/5)
	}
	q.expire()
	var group errgroup.Group
	var mu sync.Mutex
	reaped := make(map[int64]int)
	for range 8 {
		group.Go(func() error {
			for empty := 0; empty < 3; {
				rows, err := q.schema.Reap(ctx, q.pool, nil, 37, "test")
				if err != nil {
					return err
				}
				if len(rows) == 0 {
					empty++
				}
				mu.Lock()
				for _, row := range rows {
					reaped[row.ID]++
				}
				mu.Unlock()
			}
			return nil
		})
	}
	require.NoError(t, group.Wait())
	for more := true; more; { // what each left to another
		rows, err := q.schema.Reap(ctx, q.pool, nil, 37, "test")
		require.NoError(t, err)
		for _, row := range rows {
			reaped[row.ID]++
		}
		more = len(rows) > 0
	}
	require.Len(t, reaped, count)
	for id, times := range reaped {
		require.Equal(t, 1, times, "job %d", id)
	}
	require.Zero(t, q.number("select count(*) from jobq.job where state = 'running'"))
	require.Equal(t, count, q.number("select count(*) from jobq.pending where attempts = 1 and crashes = 1 and position is not null"))
	require.Equal(t, count, q.number("select count(*) from jobq.attempt where outcome = 'lost' and number = 1"))
	require.Equal(t, count, q.number("select sum(lost) from jobq.stats"))
}

// A reap takes the longest expired leases, no more than asked for, and none
// that is not expired.
func TestReapTakesOldestFirst(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	q := setUp(t)
	q.exec("select jobq.enqueue('k') from generate_series(1, 10)")
	jobs := q.claimEach("a", 10)
	q.change(pgtest.Columns{"lease_expires_at": "now() - id * interval '1 s'"}, "id > 4")
	rows, err := q.schema.Reap(ctx, q.pool, nil, 3, "test")
	require.NoError(t, err)
	var ids []int64
	for _, row := range rows {
		require.Equal(t, "a", row.LeaseOwner)
		require.Equal(t, jobs[row.ID].LeaseToken, row.LeaseToken)
		require.Equal(t, "available", row.State)
		ids = append(ids, row.ID)
	}
	require.ElementsMatch(t, []int64{10, 9, 8}, ids)
	rows, err = q.schema.Reap(ctx, q.pool, nil, 100, "test")
	require.NoError(t, err)
	require.Len(t, rows, 3)
	require.Equal(t, 4, q.number("select count(*) from jobq.job where state = 'running' and attempts = 0"))
}

// A row that somebody has locked is not waited for, and is reaped later.
func TestReapSkipsLockedRows(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	q := setUp(t)
	q.exec("select jobq.enqueue('k') from generate_series(1, 3)")
	q.claim("a", 3)
	q.expire()
	release := q.lockRuns(2)
	rows, err := q.schema.Reap(ctx, q.pool, nil, 100, "test")
	require.NoError(t, err)
	require.Len(t, rows, 2)
	release()
	rows, err = q.schema.Reap(ctx, q.pool, nil, 100, "test")
	require.NoError(t, err)
	require.Len(t, rows, 1)
}

// A heartbeat that comes while the reaper is at work wins or loses as a whole:
// extended leases are not reaped, reaped ones are not extended.
func TestReapAgainstHeartbeat(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	q := setUp(t)
	const count, rounds = 50, 40
	q.exec("select jobq.enqueue('k', max_attempts => 32767) from generate_series(1, $1::integer)", count)
	for range rounds {
		job := q.claim("a", count)[0]
		token := job.LeaseToken
		require.Equal(t, count, q.number("select cardinality(job_ids) from jobq.lease where id = $1", token))
		q.expire()
		var group errgroup.Group
		var answers map[int64]string
		var reaped []db.LeaseReapRow
		group.Go(func() (err error) {
			answers, err = q.schema.ExtendLeases(ctx, q.pool, "a", []db.Extension{{ID: token, ClaimedAt: job.StartedAt.Time, Lease: hour}})
			return err
		})
		group.Go(func() (err error) {
			reaped, err = q.schema.Reap(ctx, q.pool, nil, count, "test")
			return err
		})
		require.NoError(t, group.Wait())
		for _, row := range reaped {
			require.NotEqual(t, db.LeaseOK, answers[token], "job %d was extended and reaped", row.ID)
		}
		q.reap()
		q.exec(inLine)
	}
}

// inLine puts jobs into the line that were lost with their workers, as if they were no suspects.
const inLine = "update jobq.pending set run_at = now(), position = nextval('jobq.position_seq') where position is null"

// A job that loses every worker ends as failed when its attempts are used up,
// with an attempt for each, and is not claimed again.
func TestReapEndsPoison(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	q.exec("select jobq.enqueue('k', max_attempts => 3, unique_key => 'u')")
	var last int64
	for run := range 3 {
		jobs := q.claim("a", 1)
		require.Len(t, jobs, 1)
		require.Greater(t, jobs[0].LeaseToken, last)
		last = jobs[0].LeaseToken
		require.EqualValues(t, run, jobs[0].Attempts)
		require.EqualValues(t, run, jobs[0].Crashes)
		q.reap()
		q.exec(inLine)
	}
	require.Empty(t, q.claim("a", 1))
	require.Equal(t, 1, q.number("select count(*) from jobq.job where state = 'failed' and attempts = 3 and crashes = 3 and last_error like 'lease expired: worker a%'"))
	require.Equal(t, 3, q.number("select count(*) from jobq.attempt where outcome = 'lost' and worker_id = 'a' and number between 1 and 3"))
	require.Equal(t, 1, q.number("select sum(failed) from jobq.stats"))
	require.Equal(t, 2, q.number("select sum(retried) from jobq.stats"))
	require.Zero(t, q.number("select count(*) from jobq.unique_key"), "the key is free again")
}

// A job that was asked to stop before its worker died is cancelled, not run again.
func TestReapObeysCancel(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	q.exec("select jobq.enqueue('k', unique_key => 'u')")
	q.claim("a", 1)
	q.exec("select jobq.cancel(1)")
	q.reap()
	require.Equal(t, 1, q.number("select count(*) from jobq.job where state = 'cancelled'"))
	require.Equal(t, 1, q.number("select sum(cancelled) from jobq.stats"))
	require.Zero(t, q.number("select count(*) from jobq.unique_key"))
}
