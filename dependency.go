package jobq

import (
	"context"
	"encoding/json"
	"fmt"

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
// None for a job that is not there.
func (c *Client) Parents(ctx context.Context, id int64) ([]Parent, error) {
	rows, err := c.queries.ParentList(ctx, id, ParentsMax)
	if err != nil {
		return nil, dberror.Wrap(c.schema, fmt.Sprintf("parents of job %d", id), err)
	}
	parents := make([]Parent, len(rows))
	for i, row := range rows {
		parents[i] = Parent{ID: row.ID, Kind: row.Kind, State: State(row.State), Result: row.Result}
	}
	return parents, nil
}
