package jobq

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/jobq-dev/jobq/internal/coding"
	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/dberror"
)

// ParentsMax is how many parents of a job Parents returns at most in one call.
const ParentsMax = 10_000

// Parent is a job for which another one waits or has waited.
type Parent struct {
	ID int64 `json:"id"`
	// Kind is empty when retention or an operator has removed the parent.
	Kind string `json:"kind,omitempty"`
	// State is how the parent has ended; empty while the child waits for it.
	State  State           `json:"state,omitempty"`
	Result json.RawMessage `json:"result,omitempty"` // what its handler gave
}

// Parents are up to limit jobs, 1 to ParentsMax, for which a job waits or has waited, with their
// results, in the order of their ids, from the one after the given id on: after 0 come the
// first ones, and after the last one of a page those of the next. A handler calls it with its
// own job's id. Each result can have 1 MiB: that bounds how large a limit is wise. None for a
// job that is not there. Results are decoded as Get does: those that cannot be are as they are
// stored, and ErrUnreadable comes beside the parents.
func (c *Client) Parents(ctx context.Context, id, after int64, limit int) ([]Parent, error) {
	if limit < 1 || limit > ParentsMax {
		return nil, fmt.Errorf("parents of job %d: %w: limit must be 1 to %d, not %d", id, ErrInvalid, ParentsMax, limit)
	}
	rows, err := c.queries.ParentList(ctx, id, after, int32(limit)) // #nosec G115 -- checked above
	if err != nil {
		return nil, dberror.Wrap(c.schema, fmt.Sprintf("parents of job %d", id), dberror.NeedRole(db.RoleViewer, err))
	}
	parents := make([]Parent, len(rows))
	var problems error
	for i, row := range rows {
		parents[i] = Parent{ID: row.ID, Kind: row.Kind, State: State(row.State), Result: row.Result}
		if c.codec == nil {
			continue
		}
		result, err := coding.Decode(ctx, c.codec, coding.ValueOf(FieldResult, row.Kind, row.ID), row.Result)
		if err != nil {
			problems = errors.Join(problems, fmt.Errorf("job %d: %w", row.ID, err))
			continue
		}
		parents[i].Result = result
	}
	if problems != nil {
		return parents, fmt.Errorf("parents of job %d: %w", id, problems)
	}
	return parents, nil
}
