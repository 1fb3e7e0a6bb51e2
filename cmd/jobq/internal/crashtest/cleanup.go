package crashtest

import (
	"context"
	"fmt"
	"time"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/sleep"
	"github.com/jobq-dev/jobq/operator"
)

const (
	// cleanUpTimeout bounds the end of the jobs of a test that was aborted.
	cleanUpTimeout = 30 * time.Second
	// reapCount is how many runs of a killed worker one statement ends.
	reapCount = 100
)

// cleanUp ends the jobs of a test that was aborted, whose worker was killed: the next
// test would be refused for them, and the next worker would run them.
func (t *test) cleanUp(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUpTimeout)
	defer cancel()
	if err := t.cancelAll(ctx); err != nil {
		return fmt.Errorf("cancel the jobs of this test: %w; do it with `jobq cancel --filter tag:%s --yes`", err, t.tag)
	}
	return nil
}

func (t *test) cancelAll(ctx context.Context) error {
	left, err := t.left(ctx)
	if err != nil {
		return err
	}
	if left > 0 {
		if _, err := t.operator.Bulk(ctx, operator.BulkParams{Action: jobq.ActionCancel, Filter: jobq.Filter{Tag: t.tag}}); err != nil {
			return err
		}
	}
	if t.BesideOthers {
		return nil // a new worker may be another's
	}
	return t.removeWorkers(ctx)
}

// removeWorkers ends the runs of the killed workers, which would else end with their leases, and
// forgets these workers, which would seem to run for a while.
func (t *test) removeWorkers(ctx context.Context) error {
	own, err := t.ownWorkers(ctx)
	if err != nil {
		return err
	}
	for {
		left, err := t.left(ctx)
		if err != nil {
			return err
		}
		if left == 0 || len(own) == 0 {
			break
		}
		if _, err := t.schema.Reap(ctx, t.Client.Pool(), own, reapCount, actor); err != nil {
			return err
		}
		if err := sleep.For(ctx, poll); err != nil {
			return err
		}
	}
	for _, id := range own {
		if err := t.schema.Queries(t.Client.Pool()).WorkerGone(ctx, id); err != nil {
			return err
		}
	}
	return nil
}
