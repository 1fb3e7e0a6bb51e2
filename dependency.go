package jobq

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/jobq-dev/jobq/internal/coding"
	"github.com/jobq-dev/jobq/internal/dberror"
)

// ParentsMax is how many parents of a job Parents returns at most.
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

// Parents are the jobs for which a job waits or has waited, with their results, in the
// order of their ids: the first ParentsMax. A handler calls it with its own job's id.
// None for a job that is not there. Results are decoded as Get does: those that cannot be are as
// they are stored, and ErrUnreadable comes beside the parents.
func (c *Client) Parents(ctx context.Context, id int64) ([]Parent, error) {
	rows, err := c.queries.ParentList(ctx, id, ParentsMax)
	if err != nil {
		return nil, dberror.Wrap(c.schema, fmt.Sprintf("parents of job %d", id), err)
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
