package worker

import (
	"encoding/json"
	"errors"

	"github.com/jobq-dev/jobq/internal/subproc"
)

// protocolVersion is of the messages to persistent and HTTP handlers. Members
// may be added to a message within a version.
const protocolVersion = 1

// jobMessage is a job as persistent and HTTP handlers get it.
type jobMessage struct {
	Version     int             `json:"jobq"`
	ID          int64           `json:"id"`
	Kind        string          `json:"kind"`
	Queue       string          `json:"queue"`
	Attempt     int             `json:"attempt"`
	MaxAttempts int             `json:"max_attempts"`
	LeaseToken  int64           `json:"lease_token"`
	TimeoutMs   int64           `json:"timeout_ms,omitempty"`
	Args        json.RawMessage `json:"args"`
	Checkpoint  json.RawMessage `json:"checkpoint,omitempty"`
	Metadata    json.RawMessage `json:"metadata,omitempty"`
	Tags        []string        `json:"tags,omitempty"`
}

// message is the run's job as JSON, in one line.
func (r *Run) message() ([]byte, error) {
	return json.Marshal(jobMessage{
		Version: protocolVersion, ID: r.row.ID, Kind: r.row.Kind, Queue: r.row.Queue, Attempt: r.Attempt(), MaxAttempts: r.MaxAttempts(),
		LeaseToken: r.row.LeaseToken, TimeoutMs: r.row.TimeoutMs, Args: r.row.Args, Checkpoint: r.checkpoint(),
		Metadata: r.row.Metadata, Tags: r.row.Tags,
	})
}

// verdictOf is what the handler returns for a reply that ends the job.
func verdictOf(reply subproc.Reply) error {
	text := "the handler gave no reason"
	if reply.Error != nil && *reply.Error != "" {
		text = withReason("", *reply.Error)
	}
	switch {
	case reply.Discard:
		return Discard(errors.New(text))
	case reply.Retry != nil:
		return Retry(*reply.Retry, errors.New(text))
	case reply.Error != nil:
		return errors.New(text)
	case reply.Cancel != nil:
		return Cancel(*reply.Cancel)
	case reply.Snooze != nil:
		return Snooze(*reply.Snooze)
	}
	return nil
}
