package tests

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/pgtest"
)

const (
	eventually = 30 * time.Second
	tick       = 5 * time.Millisecond
)

// Everything that may happen to the same few jobs happens at once, a few
// thousand times: claim, complete, end, extend, progress, reap, promote,
// cancel, requeue, edit, enqueue with the same keys, roll-up. Nothing deadlocks, no
// job is lost or doubled, and no key is left behind. The database detects a
// deadlock after 50 ms here (pgtest), so that none hides in a wait.
func TestEverythingAtOnce(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	q := setUp(t)
	const jobs, rounds = 40, 400
	for id := range jobs {
		q.exec("select jobq.enqueue('k', max_attempts => 32767, unique_key => $1, backoff_base => '1 ms', backoff_max => '1 ms')", fmt.Sprint(id%20))
		q.exec("select jobq.enqueue('k', max_attempts => 2, args => $1)", fmt.Sprintf(`{"n": %d}`, id))
	}
	total := q.number("select count(*) from jobq.job")

	var group errgroup.Group
	loop := func(name string, step func(random *rand.Rand) error) {
		seed := rand.Uint64()
		group.Go(func() error {
			random := rand.New(rand.NewPCG(seed, 0)) // #nosec G404 -- a test
			for range rounds {
				if err := step(random); err != nil {
					return fmt.Errorf("%s (seed %d): %w", name, seed, err)
				}
			}
			return nil
		})
	}
	for i := range 3 {
		owner := fmt.Sprint("worker ", i)
		var held []db.JobClaimRow
		loop(owner, func(random *rand.Rand) (err error) {
			held, err = q.work(ctx, owner, held, random)
			return err
		})
	}
	loop("reap", func(random *rand.Rand) error {
		_, err := q.schema.Reap(ctx, q.pool, nil, random.Int32N(10)+1, "test")
		return err
	})
	loop("clear", func(*rand.Rand) error { // suspects leave the line, and nothing here claims alone
		_, err := q.pool.Exec(ctx, "update jobq.pending set crashes = 0 where id = (select p.id from jobq.pending p where p.crashes > 0 limit 1)")
		return err
	})
	loop("expire", func(*rand.Rand) error {
		_, err := q.pool.Exec(ctx, `update jobq.lease set expires_at = now() - interval '1 s'
			where id = (select l.id from jobq.lease l order by random() limit 1)`)
		return err
	})
	loop("promote", func(*rand.Rand) error {
		_, err := q.schema.Promote(ctx, q.pool, db.DuePlace{}, 100)
		return err
	})
	loop("roll up", func(*rand.Rand) error {
		_, err := q.queries.StatRollUp(ctx, 1000)
		return err
	})
	loop("cancel", func(random *rand.Rand) error {
		_, err := q.queries.JobCancel(ctx, random.Int64N(2*jobs)+1)
		return err
	})
	for i := range 2 {
		loop("edit", func(random *rand.Rand) error { // large args and small ones, several jobs in an action
			first := random.Int64N(2*jobs-3) + 1
			_, err := q.queries.JobAct(ctx, db.JobActParams{
				Actor: "test", Action: "edit", Ids: []int64{first + 2, first, first + 1}, Expected: make([]string, 3), Seen: make([]json.RawMessage, 3),
				Change: fmt.Appendf(nil, `{"priority": %d, "args": %q}`, i, strings.Repeat("x", random.IntN(2000))),
			})
			return err
		})
	}
	for range 4 {
		loop("requeue", func(random *rand.Rand) error {
			_, err := q.pool.Exec(ctx, "select jobq.requeue($1)", random.Int64N(2*jobs)+1)
			if code, _, _ := db.Refused(err); code == db.CodeConflict || code == db.CodeDuplicate { // it runs, or its key is taken
				return nil
			}
			return err
		})
	}
	require.NoError(t, group.Wait())

	require.Equal(t, total, q.number("select count(*) from jobq.job"))
	require.Equal(t, total, q.number("select count(distinct id) from jobq.job"))
	require.Equal(t, q.number("select count(*) from jobq.job j where args is null"), 0)
	apart, err := pgtest.ArgsApart(ctx, q.pool)
	require.NoError(t, err)
	require.Equal(t, apart, q.number("select count(*) from jobq.payload"))
	q.checkKeys()
	require.Greater(t, q.number("select sum(completed) from jobq.stats"), rounds/4, "the test did little")
}

// Finishing, extending, cancelling and reaping the same rows at once ends in
// no deadlock, and with each job in one place.
func TestNoDeadlocks(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	q := setUp(t)
	for round := range 30 {
		q.exec("select jobq.enqueue('k') from generate_series(1, 40)")
		jobs := q.claim("a", 40)
		require.Len(t, slotsOf(jobs), 40)
		completions := make([]db.Completion, 0, len(jobs))
		for _, job := range sorted(jobs) {
			completions = append(completions, plainly(job))
			completions[len(completions)-1].OnRow = job.ID%4 == 0
		}
		if round%2 == 0 {
			require.NoError(t, pgtest.ExpireLeases(ctx, q.pool))
		}
		failures := make(chan error, 4)
		go func() {
			failures <- q.complete(ctx, completions)
		}()
		go func() {
			_, err := q.schema.ExtendLeases(ctx, q.pool, "a", []db.Extension{{ID: jobs[0].LeaseToken, ClaimedAt: jobs[0].StartedAt.Time, Lease: hour}})
			failures <- err
		}()
		go func() {
			_, err := q.schema.Reap(ctx, q.pool, nil, 100, "test")
			failures <- err
		}()
		go func() {
			_, err := q.pool.Exec(ctx, "select jobq.cancel(id) from unnest($1::bigint[]) id order by id", ids(jobs))
			failures <- err
		}()
		for range 4 {
			require.NoError(t, <-failures)
		}
		q.reap()
		q.exec("select jobq.cancel(id) from jobq.pending")
	}
	require.Equal(t, 30*40, q.number("select count(distinct id) from jobq.job where finished_at is not null"))
	require.Equal(t, 30*40, q.number("select count(*) from jobq.job where finished_at is not null"))
	require.Zero(t, q.number("select count(*) from jobq.job where finished_at is null"))
}

// work ends some of the jobs that a worker believes to hold, touches others,
// and claims more, as a worker does; it may have lost them long ago.
func (q *queue) work(ctx context.Context, owner string, held []db.JobClaimRow, random *rand.Rand) ([]db.JobClaimRow, error) {
	exchange := db.Exchange{Owner: owner, Claim: &db.JobClaimParams{
		Lease: hour, Owner: owner, Queue: "default", Kinds: []string{"k"}, JobCount: 5,
	}}
	leases := make(map[int64]time.Time)
	var kept []db.JobClaimRow
	for _, job := range sorted(held) {
		switch random.IntN(6) {
		case 0:
			exchange.Completions = append(exchange.Completions, plainly(job))
			exchange.Completions[len(exchange.Completions)-1].OnRow = job.HasKey
		case 1:
			exchange.Completions = append(exchange.Completions, db.Completion{Slot: at(job), Kind: job.Kind, Output: "o"})
		case 2:
			exchange.Endings = append(exchange.Endings, db.Ending{Slot: at(job), Outcome: "failed", Error: "e", Started: true})
		case 3:
			exchange.Endings = append(exchange.Endings, db.Ending{Slot: at(job), Outcome: "released"})
		default:
			kept = append(kept, job)
			leases[job.LeaseToken] = job.StartedAt.Time
		}
	}
	// A heartbeat comes in its own time and order, which is that of a map here.
	var extensions []db.Extension
	for id, claimedAt := range leases {
		extensions = append(extensions, db.Extension{ID: id, ClaimedAt: claimedAt, Lease: hour})
	}
	group, groupCtx := errgroup.WithContext(ctx)
	group.Go(func() error {
		_, err := q.schema.ExtendLeases(groupCtx, q.pool, owner, extensions)
		return err
	})
	group.Go(func() error {
		if len(kept) == 0 {
			return nil
		}
		percent := float32(1)
		_, err := q.queries.RunProgress(groupCtx, db.RunProgressParams{Percent: &percent, ID: kept[0].ID, Token: kept[0].LeaseToken, Owner: owner, ClaimedAt: kept[0].StartedAt})
		return err
	})
	var answer db.Exchanged
	group.Go(func() (err error) {
		answer, err = q.schema.Exchange(groupCtx, q.pool, exchange)
		if errors.Is(err, db.ErrBusy) {
			return nil
		}
		return err
	})
	err := group.Wait()
	for _, job := range held {
		if slices.Contains(answer.Busy, job.ID) {
			kept = append(kept, job)
		}
	}
	return append(kept, answer.Claimed...), err
}

// complete completes what is still the worker's, as soon as nobody else has it locked.
func (q *queue) complete(ctx context.Context, completions []db.Completion) error {
	for {
		answer, err := q.schema.Exchange(ctx, q.pool, db.Exchange{Owner: "a", Completions: completions})
		if !errors.Is(err, db.ErrBusy) {
			return err
		}
		completions = slices.DeleteFunc(completions, func(c db.Completion) bool { return !slices.Contains(answer.Busy, c.ID) })
	}
}

// checkKeys fails unless exactly the unfinished jobs with a key hold it.
func (q *queue) checkKeys() {
	q.Helper()
	require.Zero(q, q.number(`select count(*) from (
		select kind, unique_key, id from jobq.job where unique_key is not null and finished_at is null
		except select kind, key, job_id from jobq.unique_key) x`), "jobs without their key")
	require.Zero(q, q.number(`select count(*) from (
		select kind, key, job_id from jobq.unique_key
		except select kind, unique_key, id from jobq.job where finished_at is null) x`), "keys without their job")
}
