package monitor

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/dberror"
)

// Attempt is the record of a run that has ended in another way than completed, that has
// output or usage, or that its program has ended by a call such as jobq.complete.
type Attempt struct {
	Number     int          `json:"number"` // from 1; runs that do not count keep the number
	Outcome    jobq.Outcome `json:"outcome"`
	LeaseToken int64        `json:"lease_token"`
	WorkerID   string       `json:"worker_id"`
	StartedAt  time.Time    `json:"started_at"` // when its handler was called; of a lost run, when it was claimed
	FinishedAt time.Time    `json:"finished_at"`
	Error      string       `json:"error,omitempty"`
	Output     string       `json:"output,omitempty"`
	Usage      *Usage       `json:"usage,omitempty"` // nil when no program ran
}

// Usage is how a program ended and what it used, with those of its children
// that it waited for.
type Usage struct {
	ExitCode    int     `json:"exit_code"`        // -1 when a signal ended it
	Signal      string  `json:"signal,omitempty"` // such as SIGKILL
	CPUSeconds  float64 `json:"cpu_seconds"`
	MaxRSSBytes int64   `json:"max_rss_bytes"`
}

// attemptsMax is how many runs of a job are listed: one that is snoozed again and
// again has no end of them.
const attemptsMax = 1000

// Attempts returns the recorded runs of a job, oldest first: the latest 1000, if there
// are more. A job without any, or that does not exist, has none. ErrInvalid for an id
// below 1, which no job has.
func (m *Monitor) Attempts(ctx context.Context, id int64) ([]Attempt, error) {
	if id < 1 {
		return nil, fmt.Errorf("attempts: %w: the id of a job must be at least 1, not %d", jobq.ErrInvalid, id)
	}
	rows, err := m.queries.AttemptList(ctx, id, attemptsMax)
	if err != nil {
		return nil, dberror.Wrap(m.schema, fmt.Sprintf("attempts of job %d", id), err)
	}
	attempts := make([]Attempt, len(rows))
	for i, row := range rows {
		if attempts[i], err = attemptOf(row); err != nil {
			return nil, fmt.Errorf("attempts of job %d: %w", id, err)
		}
	}
	return attempts, nil
}

func attemptOf(row db.AttemptListRow) (Attempt, error) {
	attempt := Attempt{
		Number: int(row.Number), Outcome: jobq.Outcome(row.Outcome), LeaseToken: row.LeaseToken, WorkerID: row.WorkerID,
		StartedAt: db.Moment(row.StartedAt), FinishedAt: db.Moment(row.FinishedAt),
		Error: db.Text(row.Error), Output: db.Text(row.Output),
	}
	if row.Usage == nil {
		return attempt, nil
	}
	attempt.Usage = new(Usage)
	if err := json.Unmarshal(row.Usage, attempt.Usage); err != nil {
		return attempt, fmt.Errorf("usage: %w", err)
	}
	return attempt, nil
}
