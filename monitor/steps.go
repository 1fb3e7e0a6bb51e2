package monitor

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/coding"
	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/dberror"
	"github.com/jobq-dev/jobq/internal/steps"
)

// StepType says what a durable step is.
type StepType string

// The types of steps.
const (
	StepPlain StepType = "step"  // of jobq.Step and jobq.StepTx
	StepSleep StepType = "sleep" // of jobq.Sleep
	StepEvent StepType = "event" // of jobq.WaitEvent
	StepAwait StepType = "await" // of jobq.Await and jobq.AwaitMany
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

// Decode replaces the result of a plain step of the job by the value for which it is stored, and
// likewise the results of the jobs that another one awaits. One that cannot be decoded stays
// as it is, and the error is jobq.ErrUnreadable. Events are stored as they are.
func (s *Step) Decode(ctx context.Context, codec jobq.Codec, job *jobq.Job) error {
	switch s.Type {
	case StepPlain:
	case StepAwait:
		return s.decodeEnds(ctx, codec)
	default:
		return nil
	}
	value, err := coding.Decode(ctx, codec, coding.ValueOfStep(job.Kind, job.ID, s.Name), s.Result)
	if err != nil {
		return err
	}
	s.Result = value
	return nil
}

// decodeEnds replaces the results of the jobs that the step awaits.
func (s *Step) decodeEnds(ctx context.Context, codec jobq.Codec) error {
	if s.Result == nil {
		return nil
	}
	ends, err := steps.DecodeEnds(s.Name, s.Result)
	if err != nil {
		return err
	}
	for i := range ends {
		if ends[i].Result, err = coding.Decode(ctx, codec, coding.ValueOf(coding.Result, ends[i].Kind, ends[i].ID), ends[i].Result); err != nil {
			return err
		}
	}
	value, err := json.Marshal(ends)
	if err == nil {
		s.Result = value
	}
	return err
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
	return m.LastSteps(ctx, id, stepsMax)
}

// LastSteps returns the last ones of what Steps returns, up to limit: 1 to 10,000.
func (m *Monitor) LastSteps(ctx context.Context, id int64, limit int) ([]Step, error) {
	if id < 1 {
		return nil, fmt.Errorf("steps: %w: the id of a job must be at least 1, not %d", jobq.ErrInvalid, id)
	}
	if limit < 1 || limit > stepsMax {
		return nil, fmt.Errorf("steps: %w: limit must be 1 to %d, not %d", jobq.ErrInvalid, stepsMax, limit)
	}
	rows, err := m.queries.StepList(ctx, stepResultMax, id, int32(limit))
	if err != nil {
		return nil, dberror.Wrap(m.schema, fmt.Sprintf("steps of job %d", id), err)
	}
	list := make([]Step, len(rows))
	for i, row := range rows {
		list[i] = Step{
			Name: row.Name, Type: StepType(row.Type), Number: int(row.Number), Attempts: int(row.Attempts), LeaseToken: row.LeaseToken,
			StartedAt: db.Moment(row.StartedAt), FinishedAt: db.UTC(row.FinishedAt), WakeAt: db.UTC(row.WakeAt), TimedOut: row.TimedOut, Result: row.Result,
			ResultBytes: int(row.ResultBytes),
		}
	}
	slices.Reverse(list)
	return list, nil
}
