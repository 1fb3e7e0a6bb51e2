package monitor

import (
	"context"
	"fmt"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/dberror"
)

const (
	// GraphMax is how many jobs Graph returns at most each way.
	GraphMax = 1000
	// GraphAfterMax is how many jobs each of these waits for, at most, as Graph has it.
	GraphAfterMax = 100
)

// GraphJob is a job among those with which it belongs together.
type GraphJob struct {
	ID    int64      `json:"id"`
	Kind  string     `json:"kind,omitempty"`
	Queue string     `json:"queue,omitempty"`
	State jobq.State `json:"state,omitempty"` // empty when retention or an operator has removed the job
	// After are the first GraphAfterMax jobs for which it waits or has waited; of the one that
	// was asked about, the first GraphMax. That one is here in any case, if it is among them.
	After []int64 `json:"after,omitempty"`
}

// Graph returns a job with those for which it waits or has waited, those for which these
// have, and so on, up to GraphMax; and with those that wait or have waited for it, and so on,
// up to GraphMax. In the order of their ids: parents are mostly there before their children. A
// job that was never there has only itself, without a state. ErrInvalid for an id below 1,
// which no job has.
func (m *Monitor) Graph(ctx context.Context, id int64) ([]GraphJob, error) {
	if id < 1 {
		return nil, fmt.Errorf("graph: %w: the id of a job must be at least 1, not %d", jobq.ErrInvalid, id)
	}
	rows, err := m.queries.GraphList(ctx, id)
	if err != nil {
		return nil, dberror.Wrap(m.schema, fmt.Sprintf("graph of job %d", id), err)
	}
	jobs := make([]GraphJob, len(rows))
	for i, row := range rows {
		jobs[i] = GraphJob{ID: row.ID, Kind: row.Kind, Queue: row.Queue, State: jobq.State(row.State), After: row.After}
	}
	return jobs, nil
}
