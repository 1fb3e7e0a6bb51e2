package crashtest

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jobq-dev/jobq"
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
	if err != nil || left == 0 {
		return err
	}
	if _, err := t.operator.Bulk(ctx, operator.BulkParams{Action: jobq.ActionCancel, Filter: jobq.Filter{Tag: t.tag}}); err != nil {
		return err
	}
	// Running ones would be so until their leases end. Those of another worker are its own.
	for !t.BesideOthers {
		if left, err := t.left(ctx); err != nil || left == 0 {
			return err
		}
		if err := t.reap(ctx); err != nil {
			return err
		}
		if err := pause(ctx, poll); err != nil {
			return err
		}
	}
	return nil
}

// reap ends runs of the killed worker.
func (t *test) reap(ctx context.Context) error {
	page, err := t.Client.List(ctx, jobq.Filter{States: []jobq.State{jobq.StateRunning}, Tag: t.tag, Limit: reapCount})
	if err != nil {
		return err
	}
	var owners []string
	for _, job := range page.Jobs {
		owners = append(owners, job.LeaseOwner)
	}
	if len(owners) == 0 {
		return nil
	}
	slices.Sort(owners)
	_, err = t.schema.Reap(ctx, t.Client.Pool(), slices.Compact(owners), reapCount, "jobq crash-test")
	return err
}
