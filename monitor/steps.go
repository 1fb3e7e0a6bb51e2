package monitor

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/coding"
	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/dberror"
)

// StepType says what a durable step is.
type StepType string

// The types of steps.
const (
	StepPlain StepType = "step"  // of jobq.Step and jobq.StepTx
	StepSleep StepType = "sleep" // of jobq.Sleep
	StepEvent StepType = "event" // of jobq.WaitEvent
)

// Step is a durable step that a job has come to: see jobq.Step.
type Step struct {
	Name     string   `json:"name"`
	Type     StepType `json:"type"`
	Number   int      `json:"number"`   // the order in which the job first came to its steps, from 1
	Attempts int      `json:"attempts"` // how often it was begun
	// LeaseToken is that of the run that came to it last.
	LeaseToken int64      `json:"lease_token"`
	StartedAt  time.Time  `json:"started_at"`
	FinishedAt *time.Time `json:"finished_at,omitempty"` // nil until it is done
	// WakeAt is when a sleep is over, or until when an event is waited for; nil for
	// other steps.
	WakeAt   *time.Time      `json:"wake_at,omitempty"`
	TimedOut bool            `json:"timed_out,omitempty"` // the event has not come in time
	Result   json.RawMessage `json:"result,omitempty"`    // nil if it is longer than 4 KiB
	// ResultBytes is how much room the result takes in the table.
	ResultBytes int `json:"result_bytes,omitempty"`
}

// Decode replaces the result of a plain step of the job by the value for which it is stored.
// One that cannot be decoded stays as it is, and the error is jobq.ErrUnreadable. Events are
// stored as they are.
func (s *Step) Decode(ctx context.Context, codec jobq.Codec, job *jobq.Job) error {
	if s.Type != StepPlain {
		return nil
	}
	value, err := coding.Decode(ctx, codec, coding.ValueOfStep(job.Kind, job.ID, s.Name), s.Result)
	if err != nil {
		return err
	}
	s.Result = value
	return nil
}

const (
	// stepsMax is how many steps of a job are listed, as many as it can have.
	stepsMax = 10_000
	// stepResultMax is how long the results are that are listed: all of them together may
	// be 10 GiB. The table has the others.
	stepResultMax = 4096
)

// Steps returns the durable steps that a job has come to, in the order in which it did. A
// job without any, or that does not exist, has none. ErrInvalid for an id below 1.
func (m *Monitor) Steps(ctx context.Context, id int64) ([]Step, error) {
	if id < 1 {
		return nil, fmt.Errorf("steps: %w: the id of a job must be at least 1, not %d", jobq.ErrInvalid, id)
	}
	rows, err := m.queries.StepList(ctx, stepResultMax, id, stepsMax)
	if err != nil {
		return nil, dberror.Wrap(m.schema, fmt.Sprintf("steps of job %d", id), err)
	}
	steps := make([]Step, len(rows))
	for i, row := range rows {
		steps[i] = Step{
			Name: row.Name, Type: StepType(row.Type), Number: int(row.Number), Attempts: int(row.Attempts), LeaseToken: row.LeaseToken,
			StartedAt: row.StartedAt.Time.UTC(), FinishedAt: db.UTC(row.FinishedAt), WakeAt: db.UTC(row.WakeAt), TimedOut: row.TimedOut, Result: row.Result,
			ResultBytes: int(row.ResultBytes),
		}
	}
	return steps, nil
}
