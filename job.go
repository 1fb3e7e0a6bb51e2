package jobq

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/jobq-dev/jobq/internal/db"
)

// State is where a job is in its life; see the package documentation.
type State string

// The states of a job.
const (
	Scheduled State = "scheduled"
	Available State = "available"
	Running   State = "running"
	Completed State = "completed"
	Failed    State = "failed"
	Cancelled State = "cancelled"
)

// States are all states, in the order of a job's life.
func States() []State { return []State{Scheduled, Available, Running, Completed, Failed, Cancelled} }

// Job is a job as stored. Pointers and JSON are nil, and texts empty, where
// they do not apply. Times are the database's.
type Job struct {
	ID          int64           `json:"id"`
	State       State           `json:"state"`
	Queue       string          `json:"queue"`
	Kind        string          `json:"kind"`
	Priority    int16           `json:"priority"`
	Args        json.RawMessage `json:"args,omitempty"` // nil in a list
	Attempts    int             `json:"attempts"`       // runs that ended badly
	MaxAttempts int             `json:"max_attempts"`
	Crashes     int             `json:"crashes"` // those of them that were lost
	RunAt       time.Time       `json:"run_at"`
	CreatedAt   time.Time       `json:"created_at"`
	StartedAt   *time.Time      `json:"started_at,omitempty"` // when it was claimed; of a job that has failed, when its handler was called
	FinishedAt  *time.Time      `json:"finished_at,omitempty"`
	Timeout     time.Duration   `json:"timeout_ns,omitempty"`
	UniqueKey   string          `json:"unique_key,omitempty"`
	Tags        []string        `json:"tags,omitempty"`
	Metadata    json.RawMessage `json:"metadata,omitempty"`
	Checkpoint  json.RawMessage `json:"checkpoint,omitempty"` // nil in a list
	Result      json.RawMessage `json:"result,omitempty"`     // nil in a list
	LastError   string          `json:"last_error,omitempty"`
	ClearReason string          `json:"clear_reason,omitempty"` // why the last run was taken away, until the next one ends

	LeaseToken        int64      `json:"lease_token"` // how often it was claimed
	LeaseOwner        string     `json:"lease_owner,omitempty"`
	LeaseExpiresAt    *time.Time `json:"lease_expires_at,omitempty"`
	CancelRequestedAt *time.Time `json:"cancel_requested_at,omitempty"`
	Progress          *Progress  `json:"progress,omitempty"`
}

// Progress is how far the current run says that it is.
type Progress struct {
	Percent float32   `json:"percent"`
	Stage   string    `json:"stage,omitempty"`
	Message string    `json:"message,omitempty"`
	At      time.Time `json:"at"`
}

// Outcome is how a run ended.
type Outcome string

// The outcomes of a run. Failed, timed out and lost count against max_attempts.
const (
	OutcomeCompleted Outcome = "completed"
	OutcomeFailed    Outcome = "failed"
	OutcomeTimedOut  Outcome = "timed_out"
	OutcomeLost      Outcome = "lost"
	OutcomeCancelled Outcome = "cancelled"
	OutcomeReleased  Outcome = "released"
	OutcomeSnoozed   Outcome = "snoozed"
)

// Attempt is the record of a run that did not simply succeed, or that left
// output.
type Attempt struct {
	Number     int       `json:"number"` // from 1; runs that do not count keep the number
	Outcome    Outcome   `json:"outcome"`
	LeaseToken int64     `json:"lease_token"`
	WorkerID   string    `json:"worker_id"`
	StartedAt  time.Time `json:"started_at"` // when its handler was called; of a lost run, when it was claimed
	FinishedAt time.Time `json:"finished_at"`
	Error      string    `json:"error,omitempty"`
	Output     string    `json:"output,omitempty"`
	Usage      *Usage    `json:"usage,omitempty"` // nil when no program ran
}

// Usage is how a program ended and what it used, with those of its children
// that it waited for.
type Usage struct {
	ExitCode    int     `json:"exit_code"`        // -1 when a signal ended it
	Signal      string  `json:"signal,omitempty"` // such as SIGKILL
	CPUSeconds  float64 `json:"cpu_seconds"`
	MaxRSSBytes int64   `json:"max_rss_bytes"`
}

// OutputPiece is a part of what a program has written while it runs.
type OutputPiece struct {
	LeaseToken int64 `json:"lease_token"` // of the run
	// BeginsAt and EndsAt count the bytes that the run has written before the
	// piece and up to its end. Between two pieces there may be a gap.
	BeginsAt int64  `json:"begins_at"`
	EndsAt   int64  `json:"ends_at"`
	Content  string `json:"content"` // control characters made visible
}

// Get returns a job, or ErrNotFound.
func (c *Client) Get(ctx context.Context, id int64) (*Job, error) {
	row, err := c.queries.JobGet(ctx, id)
	if err != nil {
		return nil, c.clientError(fmt.Sprintf("get job %d", id), err)
	}
	return jobFromRow(row), nil
}

// Attempts returns the recorded runs of a job, oldest first. A job without
// any, or that does not exist, has none.
func (c *Client) Attempts(ctx context.Context, id int64) ([]Attempt, error) {
	rows, err := c.queries.AttemptList(ctx, id)
	if err != nil {
		return nil, c.clientError(fmt.Sprintf("attempts of job %d", id), err)
	}
	attempts := make([]Attempt, len(rows))
	for i, row := range rows {
		attempts[i] = Attempt{
			Number: int(row.Number), Outcome: Outcome(row.Outcome), LeaseToken: row.LeaseToken, WorkerID: row.WorkerID,
			StartedAt: row.StartedAt.Time.UTC(), FinishedAt: row.FinishedAt.Time.UTC(),
			Error: text(row.Error), Output: text(row.Output),
		}
		if row.Usage != nil {
			attempts[i].Usage = new(Usage)
			if err := json.Unmarshal(row.Usage, attempts[i].Usage); err != nil {
				return nil, fmt.Errorf("attempts of job %d: usage: %w", id, err)
			}
		}
	}
	return attempts, nil
}

// Output returns what the programs of a job have written after a piece, oldest
// first, at most 100 pieces; a zero piece means from the beginning. It has the
// output of runs that take longer than a moment, for those who follow; some
// minutes after the end only the attempt has it.
func (c *Client) Output(ctx context.Context, id int64, after OutputPiece) ([]OutputPiece, error) {
	if after == (OutputPiece{}) {
		after.BeginsAt = -1
	}
	rows, err := c.queries.OutputSince(ctx, id, after.LeaseToken, after.BeginsAt)
	if err != nil {
		return nil, c.clientError(fmt.Sprintf("output of job %d", id), err)
	}
	pieces := make([]OutputPiece, len(rows))
	for i, row := range rows {
		pieces[i] = OutputPiece{LeaseToken: row.LeaseToken, BeginsAt: row.BeginsAt, EndsAt: row.EndsAt, Content: row.Content}
	}
	return pieces, nil
}

func jobFromRow(row db.JobGetRow) *Job {
	job := &Job{
		ID: row.ID, State: State(row.State), Queue: row.Queue, Kind: row.Kind, Priority: row.Priority, Args: row.Args,
		Attempts: int(row.Attempts), MaxAttempts: int(row.MaxAttempts), Crashes: int(row.Crashes),
		RunAt: row.RunAt.Time.UTC(), CreatedAt: row.CreatedAt.Time.UTC(), StartedAt: utc(row.StartedAt), FinishedAt: utc(row.FinishedAt),
		Timeout: time.Duration(row.TimeoutMs) * time.Millisecond, UniqueKey: text(row.UniqueKey), Tags: row.Tags,
		Metadata: row.Metadata, Checkpoint: row.Checkpoint, Result: row.Result, LastError: text(row.LastError), ClearReason: text(row.ClearReason),
		LeaseToken: row.LeaseToken, LeaseOwner: text(row.LeaseOwner), LeaseExpiresAt: utc(row.LeaseExpiresAt),
		CancelRequestedAt: utc(row.CancelRequestedAt),
	}
	if row.ProgressedAt != nil {
		job.Progress = &Progress{
			Stage: text(row.ProgressStage), Message: text(row.ProgressMessage), At: row.ProgressedAt.UTC(),
		}
		if row.ProgressPercent != nil {
			job.Progress.Percent = *row.ProgressPercent
		}
	}
	return job
}

func text(value *string) string {
	if value == nil {
		return ""
	}
	return *value
}

func textOrNull(value string) *string {
	if value == "" {
		return nil
	}
	return &value
}

func utc(moment *time.Time) *time.Time {
	if moment == nil {
		return nil
	}
	inUTC := moment.UTC()
	return &inUTC
}

func timeOrNil(moment pgtype.Timestamptz) *time.Time {
	if !moment.Valid {
		return nil
	}
	return utc(&moment.Time)
}
