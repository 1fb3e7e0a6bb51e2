package operator

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/jobq-dev/jobq/internal/dberror"
)

// DrainWorker asks a worker to take no new work, and to leave when what it runs
// has ended, however long that takes. It hears of it at once, or where it cannot
// listen within ten seconds. It says whether the worker did not drain before.
// ErrNotFound if there is no such worker. This cannot be undone.
func (o *Operator) DrainWorker(ctx context.Context, id string) (bool, error) {
	operation := fmt.Sprintf("drain worker %q", id)
	if err := o.checkTexts(operation, argument{"worker", id}); err != nil {
		return false, err
	}
	auditID, err := dberror.Retry(ctx, func() (int64, error) { return o.queries.WorkerDrain(ctx, o.actor, id) })
	if errors.Is(err, pgx.ErrNoRows) {
		return false, fmt.Errorf("%s: %w", operation, dberror.NotFound("no such worker"))
	}
	if err != nil {
		return false, dberror.Wrap(o.schema, operation, err)
	}
	return auditID > 0, nil
}
