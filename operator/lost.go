package operator

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/dberror"
)

// LostWorker is what came of taking a worker's jobs away.
type LostWorker struct {
	// Worker is its id.
	Worker string `json:"worker"`
	// AuditID is the action's entry in the audit; 0 when there was nothing to do.
	AuditID int64 `json:"audit_id,omitempty"`
	// Jobs is how many jobs the worker held, begun or not.
	Jobs int64 `json:"jobs"`
	// Locked is how many of its leases another session has locked. They stay: call again.
	Locked int64 `json:"locked,omitempty"`
}

// LoseWorker takes all leases of a worker away now, because it, or its host, does not come back.
// The janitor puts its jobs back within about a second, or within its scan interval where it
// cannot listen: without an attempt, at their places, and with the reason as the error of the run.
// The reason is for people, and may be empty.
//
// If the worker lives all the same, what it stores for these jobs is refused, it ends their programs as soon
// as it hears of that, at the latest when their leases would have expired, and it drains. Until then, the
// effects of its programs may overlap with those of the next run.
// ErrNotFound if there is no such worker. This cannot be undone.
func (o *Operator) LoseWorker(ctx context.Context, id, reason string) (LostWorker, error) {
	operation := fmt.Sprintf("take the jobs of worker %q", id)
	if err := o.checkTexts(operation, argument{"worker", id}, argument{"reason", reason}); err != nil {
		return LostWorker{}, err
	}
	row, err := dberror.Retry(ctx, func() (db.WorkerLostRow, error) {
		return o.queries.WorkerLost(ctx, o.actor, id, db.TextOrNull(reason))
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return LostWorker{}, fmt.Errorf("%s: %w", operation, dberror.NotFound("no such worker"))
	}
	if err != nil {
		return LostWorker{}, dberror.Wrap(o.schema, operation, err)
	}
	return LostWorker{Worker: id, AuditID: row.Audit, Jobs: row.Jobs, Locked: row.Locked}, nil
}
