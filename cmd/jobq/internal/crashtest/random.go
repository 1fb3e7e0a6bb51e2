package crashtest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/sleep"
)

// withinDefault is Config.Within where no forced job tells how long a run takes.
const withinDefault = 200 * time.Millisecond

// killAtRandom runs the other jobs, and kills the worker while they run. They are added
// in portions, so that there is something to kill each time. Between two kills at
// least one job ends, so that the test gets on and the kind is not paused.
func (t *test) killAtRandom(ctx context.Context) error {
	within := t.Within
	switch {
	case within > 0:
	case t.Forced > 0:
		within = max(t.took/time.Duration(t.Forced)*3/2, time.Millisecond)
	default:
		within = withinDefault
	}
	for kill := range t.Random {
		if err := t.enqueueNext(ctx, (t.Jobs-len(t.numbers))/(t.Random-kill+1)); err != nil {
			return err
		}
		if err := t.killOnce(ctx, time.Duration(t.random.Int64N(int64(within)))); err != nil {
			return err
		}
	}
	if err := t.enqueueNext(ctx, t.Jobs); err != nil {
		return err
	}
	return t.awaitFinished(ctx, func(left int64) bool { return left == 0 })
}

// killOnce kills the worker so long after a job has begun, unless all have ended then.
func (t *test) killOnce(ctx context.Context, after time.Duration) error {
	left, err := t.awaitRunning(ctx)
	if err != nil || left == 0 {
		return err
	}
	if err := sleep.For(ctx, after); err != nil {
		return err
	}
	if left, err = t.left(ctx); err != nil || left == 0 {
		return err
	}
	if err := t.worker.kill(); err != nil {
		return err
	}
	t.killed++
	t.Progress("killed the worker at a random moment, %s after a job had begun (%d of %d)", after.Round(time.Microsecond), t.killed, t.Random)
	if err := t.worker.start(ctx); err != nil {
		return err
	}
	if left, err = t.left(ctx); err != nil { // without what the killed worker had stored last
		return err
	}
	return t.awaitFinished(ctx, func(now int64) bool { return now < left || now == 0 })
}

// enqueueNext adds the next jobs, as many as told, at least one, and no more than are to be.
func (t *test) enqueueNext(ctx context.Context, count int) error {
	first := len(t.numbers) + 1
	count = min(max(count, 1), t.Jobs-len(t.numbers), jobq.EnqueueManyMax)
	var jobs []jobq.EnqueueParams
	for number := first; number < first+count; number++ {
		jobs = append(jobs, jobq.EnqueueParams{Args: jobq.RawArgs{Name: t.Kind, JSON: t.args(number)}, EnqueueOptions: t.options()})
	}
	enqueued, err := t.Client.EnqueueMany(ctx, jobs)
	if err != nil {
		return err
	}
	for i, job := range enqueued {
		t.numbers[job.ID] = first + i
	}
	return nil
}

// left is how many jobs have not ended.
func (t *test) left(ctx context.Context) (int64, error) {
	return t.Client.Count(ctx, jobq.Filter{States: unfinished, Tag: t.tag}, t.Jobs+1)
}

// awaitRunning waits until a job runs, or another one has ended meanwhile, or none is
// left; it returns how many are left.
func (t *test) awaitRunning(ctx context.Context) (left int64, err error) {
	before, err := t.left(ctx)
	if err != nil {
		return 0, err
	}
	err = t.await(ctx, func() (bool, error) {
		running, err := t.Client.Count(ctx, jobq.Filter{States: []jobq.State{jobq.StateRunning}, Tag: t.tag}, 1)
		if err != nil || running > 0 {
			left = before
			return true, err
		}
		left, err = t.left(ctx)
		return left < before || left == 0, err
	})
	return left, err
}

// awaitFinished waits until the number of jobs that are left is as wanted. The
// patience begins anew with each job that ends.
func (t *test) awaitFinished(ctx context.Context, wanted func(left int64) bool) error {
	for least := int64(-1); ; {
		var left int64
		err := t.await(ctx, func() (done bool, err error) {
			left, err = t.left(ctx)
			return wanted(left) || least < 0 || left < least, err
		})
		if err != nil || wanted(left) {
			return err
		}
		least = left
	}
}

// await waits until it is done, while the worker runs, and not longer than the timeout.
func (t *test) await(ctx context.Context, isDone func() (bool, error)) error {
	for end := time.Now().Add(t.Timeout); ; {
		if done, err := isDone(); err != nil || done {
			return err
		}
		if err := t.worker.check(); err != nil {
			return err
		}
		if time.Now().After(end) {
			page, err := t.Client.List(ctx, jobq.Filter{States: unfinished, Tag: t.tag, Limit: 1})
			if err != nil || len(page.Jobs) == 0 {
				return errors.Join(fmt.Errorf("no job has got on for %s", t.Timeout), err)
			}
			return t.stuck(ctx, page.Jobs[0].ID)
		}
		if err := sleep.For(ctx, poll); err != nil {
			return err
		}
	}
}

func (t *test) ids() []int64 { return slices.Sorted(maps.Keys(t.numbers)) }

// effects asks how often each job has had its effect. The user's query can change nothing.
func (t *test) effects(ctx context.Context) (map[int64]int64, error) {
	effects := make(map[int64]int64)
	err := pgx.BeginTxFunc(ctx, t.Client.Pool(), pgx.TxOptions{AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		described, err := tx.Conn().PgConn().Prepare(ctx, "", t.EffectQuery, nil)
		if err != nil {
			return err
		}
		if len(described.Fields) != 2 || len(described.ParamOIDs) > 1 {
			return fmt.Errorf("%w: it must return two columns, a job's id and how often, and take the ids as $1 or nothing", jobq.ErrInvalid)
		}
		var args []any
		if len(described.ParamOIDs) == 1 {
			args = append(args, t.ids())
		}
		rows, err := tx.Query(ctx, t.EffectQuery, args...)
		if err != nil {
			return err
		}
		var id, count int64
		_, err = pgx.ForEachRow(rows, []any{&id, &count}, func() error {
			effects[id] += count
			return nil
		})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("effect query: %w", err)
	}
	return effects, nil
}
