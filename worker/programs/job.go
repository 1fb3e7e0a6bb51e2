package programs

import (
	"encoding/json"

	"github.com/jobq-dev/jobq/worker"
)

// protocolVersion is of the messages to kept processes and HTTP servers. Members
// may be added to a message within a version.
const protocolVersion = 1

// jobMessage is a job as kept processes and HTTP servers get it.
type jobMessage struct {
	Version      int             `json:"jobq"`
	ID           int64           `json:"id"`
	Key          string          `json:"idempotency_key"`
	Kind         string          `json:"kind"`
	Queue        string          `json:"queue"`
	PartitionKey string          `json:"partition_key,omitempty"`
	Attempt      int             `json:"attempt"`
	MaxAttempts  int             `json:"max_attempts"`
	LeaseToken   int64           `json:"lease_token"`
	RunToken     string          `json:"run_token,omitempty"`
	TimeoutMs    int64           `json:"timeout_ms,omitempty"`
	Args         json.RawMessage `json:"args"`
	Checkpoint   json.RawMessage `json:"checkpoint,omitempty"`
	Metadata     json.RawMessage `json:"metadata,omitempty"`
	Tags         []string        `json:"tags,omitempty"`
}

// encodeJob is the run's job as JSON, in one line, with the token for handlers that end
// it themselves or do steps.
func encodeJob(run worker.ExternalRun, args []byte, withToken bool) ([]byte, error) {
	checkpoint, err := checkpointOf(run)
	if err != nil {
		return nil, err
	}
	message := jobMessage{
		Version: protocolVersion, ID: run.ID(), Key: run.IdempotencyKey(), Kind: run.Kind(), Queue: run.Queue(), PartitionKey: run.PartitionKey(), Attempt: run.Attempt(), MaxAttempts: run.MaxAttempts(),
		LeaseToken: run.LeaseToken(), TimeoutMs: run.Timeout().Milliseconds(), Args: args, Checkpoint: checkpoint,
		Metadata: run.Metadata(), Tags: run.Tags(),
	}
	if withToken {
		message.RunToken = run.RunToken()
	}
	return json.Marshal(message)
}
