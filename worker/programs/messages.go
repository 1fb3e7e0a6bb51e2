package programs

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/subproc"
	"github.com/jobq-dev/jobq/internal/when"
	"github.com/jobq-dev/jobq/worker"
)

const (
	// enqueuedMax bounds the jobs that one run of a program may add by messages.
	enqueuedMax = 10_000
	// problemsMax bounds the problems with messages of one run that its failure names.
	problemsMax = 5
)

// messages are what a program has said about its job. They are for one goroutine
// at a time.
type messages struct {
	run      worker.ExternalRun
	enqueued int
	snooze   *time.Duration
	cancel   *string
	problems []error
}

// take does at once what a message asks for. Only a snooze or a cancellation waits for the end of
// the program.
func (m *messages) take(ctx context.Context, message subproc.Message) {
	m.run.NoteActivity()
	if p := message.Progress; p != nil || message.Stage != "" || message.Message != "" {
		m.run.Report(p, message.Stage, message.Message)
	}
	if message.Checkpoint != nil {
		m.note(m.saveCheckpoint(ctx, message.Checkpoint))
	}
	if message.Result != nil {
		m.note(m.run.SetResult(message.Result))
	}
	if message.Enqueue != nil {
		m.note(m.enqueue(ctx, message.Enqueue))
	}
	if message.Snooze != nil {
		m.snooze = message.Snooze
	}
	if message.Cancel != nil {
		m.cancel = message.Cancel
	}
}

// note keeps the first few problems, to fail the run with them at its end.
func (m *messages) note(problem error) {
	if problem != nil && len(m.problems) < problemsMax {
		m.problems = append(m.problems, problem)
	}
}

func (m *messages) saveCheckpoint(ctx context.Context, checkpoint json.RawMessage) error {
	if err := checkCheckpoint(checkpoint); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return m.run.SaveCheckpoint(ctx, checkpoint)
}

// newJob is a job that a program adds, with the names of the SQL function's
// arguments.
type newJob struct {
	Kind         string          `json:"kind"`
	Args         json.RawMessage `json:"args"`
	Queue        string          `json:"queue"`
	Priority     int16           `json:"priority"`
	RunAt        time.Time       `json:"run_at"`
	MaxAttempts  int             `json:"max_attempts"`
	MaxLost      int             `json:"max_lost"`
	UniqueKey    string          `json:"unique_key"`
	Uniqueness   newUniqueness   `json:"uniqueness"`
	PartitionKey string          `json:"partition_key"`
	Tags         []string        `json:"tags"`
	Metadata     json.RawMessage `json:"metadata"`
}

// newUniqueness is what is said of a unique key beside the key, with times such as "1h".
type newUniqueness struct {
	By         []string      `json:"by"`
	Window     string        `json:"window"`
	For        string        `json:"for"`
	OnConflict jobq.Conflict `json:"on_conflict"`
}

// set sets the options that it is about.
func (u newUniqueness) set(options *jobq.EnqueueOptions) error {
	options.UniqueBy, options.OnConflict = u.By, u.OnConflict
	for _, period := range []struct {
		name, text string
		into       *time.Duration
	}{{"window", u.Window, &options.UniqueWindow}, {"for", u.For, &options.UniqueFor}} {
		if period.text == "" {
			continue
		}
		var err error
		if *period.into, err = when.ParseDuration(period.text); err != nil || *period.into == 0 {
			return fmt.Errorf(`uniqueness: %s must be a duration such as "1h", not %.40q`, period.name, period.text)
		}
	}
	return nil
}

// enqueue adds a job at once, if the lease is still this run's.
func (m *messages) enqueue(ctx context.Context, raw json.RawMessage) error {
	var job newJob
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&job); err != nil {
		return fmt.Errorf("enqueue: %w", err)
	}
	options := &jobq.EnqueueOptions{
		Queue: job.Queue, Priority: job.Priority, RunAt: job.RunAt, MaxAttempts: job.MaxAttempts, MaxLost: job.MaxLost,
		UniqueKey: job.UniqueKey, PartitionKey: job.PartitionKey, Tags: job.Tags, Metadata: job.Metadata,
	}
	if err := job.Uniqueness.set(options); err != nil {
		return fmt.Errorf("enqueue: %w", err)
	}
	if m.enqueued++; m.enqueued > enqueuedMax {
		return fmt.Errorf("enqueue: more than %d jobs in one run", enqueuedMax)
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return m.run.Enqueue(ctx, jobq.RawArgs{Name: job.Kind, JSON: job.Args}, options)
}

// problem is all that was noted, in one error, or nil.
func (m *messages) problem() error {
	if len(m.problems) == 0 {
		return nil
	}
	return fmt.Errorf("control channel: %w", errors.Join(m.problems...))
}

// outcome is what the handler returns for a program that has succeeded. If a message could
// not be understood or obeyed, the run fails: the message may have been a checkpoint.
func (m *messages) outcome() error {
	switch {
	case len(m.problems) > 0:
		return m.problem()
	case m.cancel != nil:
		return worker.Cancel(errors.New(*m.cancel))
	case m.snooze != nil:
		return worker.Snooze(*m.snooze)
	}
	return nil
}
