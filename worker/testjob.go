package worker

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/db"
)

// TestJobOptions say what a handler finds in a job that NewTestJob makes. The zero
// value, and nil, mean the defaults. The limits of the database are not checked, but
// attempts and crashes are cut to what it can hold: 0 to 32,767 before this attempt.
type TestJobOptions struct {
	// ID is the job's id. Default 1.
	ID int64
	// Queue is the queue that it was claimed from. Default "default".
	Queue string
	// PartitionKey is the job's partition key. Default "": none.
	PartitionKey string
	// Attempt is the number of this attempt. Default 1.
	Attempt int
	// MaxAttempts is how many attempts the job has. Default 25
	// (jobq.DefaultMaxAttempts).
	MaxAttempts int
	// LeaseToken is the token of this run. Default 1.
	LeaseToken int64
	// Crashes is how many of its runs were lost. Default 0.
	Crashes int
	// Lost is how many of its runs were lost without using an attempt. Default 0.
	Lost int
	// LastError is the error of the attempt before. Default "": none.
	LastError string
	// ClearReason is why the run before was taken away. Default "": it was not.
	ClearReason string
	// Checkpoint is what an earlier run has saved, as JSON. Default nil: nothing.
	Checkpoint json.RawMessage
	// Steps are the durable steps that earlier runs have done, by name, with their results:
	// a sleep whose time is over, too, and an event that has come. That of a spawn is a JSON
	// array of jobq.Enqueued, and that of an await one of jobq.Ended. Default: none.
	Steps map[string]json.RawMessage
	// Tags are the job's tags. Default: none.
	Tags []string
	// Metadata is the job's metadata, as JSON. Default nil: none.
	Metadata json.RawMessage
	// CreatedAt is when it was enqueued. Default: now.
	CreatedAt time.Time
}

// TestJob is a job for the unit test of a handler: Job is what the handler takes,
// and the methods say what it has reported. Nothing talks to a database.
//
// Progress, Heartbeat, SetResult and SaveCheckpoint keep what they are given, and
// CompleteTx only that it was called: it does not touch the transaction. A test of
// the transaction needs a database and a worker.
type TestJob[T jobq.Args] struct {
	Job *Job[T]
}

// testRecord is what a TestJob remembers beside the run itself.
type testRecord struct {
	completed atomic.Bool
	steps     testSteps
}

// NewTestJob makes a job for the unit test of a handler or of a middleware, which
// takes its Job.Run. The args are used as they are: what does not survive JSON would
// be missing when a worker runs the job. Nil options mean the defaults.
func NewTestJob[T jobq.Args](args T, options *TestJobOptions) *TestJob[T] {
	if options == nil {
		options = &TestJobOptions{}
	}
	created := options.CreatedAt
	if created.IsZero() {
		created = time.Now()
	}
	at := pgtype.Timestamptz{Time: created, Valid: true}
	run := &Run{
		test:         &testRecord{steps: testSteps{done: maps.Clone(options.Steps), lastID: cmp.Or(options.ID, 1)}},
		partitionKey: options.PartitionKey,
		worker:       &Worker{id: "test"},
		row: db.JobClaimRow{
			ID: cmp.Or(options.ID, 1), Kind: args.Kind(), Queue: cmp.Or(options.Queue, "default"), LeaseToken: cmp.Or(options.LeaseToken, 1),
			Attempts:    smallint(options.Attempt - 1),
			MaxAttempts: smallint(cmp.Or(options.MaxAttempts, jobq.DefaultMaxAttempts)),
			Crashes:     smallint(options.Crashes),
			Lost:        smallint(options.Lost),
			LastError:   orNull(options.LastError), ClearReason: orNull(options.ClearReason),
			Checkpoint: options.Checkpoint, Tags: options.Tags, Metadata: options.Metadata,
			CreatedAt: at, RunAt: at, StartedAt: at,
		},
	}
	return &TestJob[T]{Job: &Job[T]{Run: run, Args: args}}
}

// smallint is the number, or the nearest that the database could hold.
func smallint(n int) int16 {
	return int16(min(max(n, 0), math.MaxInt16)) // #nosec G115 -- within its bounds
}

// Result decodes what the handler has given to SetResult last into target, and says
// whether there was anything. Job.Checkpoint returns what it has saved as a checkpoint.
func (j *TestJob[T]) Result(target any) (bool, error) {
	result := j.Job.reports.soFar().result
	if result == nil {
		return false, nil
	}
	if err := json.Unmarshal(result, target); err != nil {
		return false, fmt.Errorf("decode result of job %d: %w", j.Job.ID(), err)
	}
	return true, nil
}

// Progress is how far the handler has said that it is: the last percentage, stage and
// message that it has given. At is zero.
func (j *TestJob[T]) Progress() jobq.Progress {
	report := j.Job.reports.lastProgress()
	progress := jobq.Progress{Stage: db.Text(report.Stage), Message: db.Text(report.Message)}
	if report.Percent != nil {
		progress.Percent = *report.Percent
	}
	return progress
}

// CompletedTx says whether the handler has called CompleteTx.
func (j *TestJob[T]) CompletedTx() bool { return j.Job.test.completed.Load() }
