package worker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/subproc"
)

// enqueuedMax bounds the jobs that one run of a program may add by messages.
const enqueuedMax = 10_000

// said is what a program has told about a job. It is for one goroutine at a time.
type said struct {
	run      *Run
	enqueued int
	snooze   *time.Duration
	cancel   *string
	problems []error
}

func (s *said) hear(ctx context.Context, message subproc.Message) {
	s.run.signs.Add(1)
	if p := message.Progress; p != nil || message.Stage != "" || message.Message != "" {
		s.run.reportProgress(p, message.Stage, message.Message)
	}
	if message.Checkpoint != nil {
		if err := s.checkpoint(ctx, message.Checkpoint); err != nil {
			s.complain(err)
		}
	}
	if message.Result != nil {
		if err := s.run.SetResult(message.Result); err != nil {
			s.complain(err)
		}
	}
	if message.Enqueue != nil {
		if err := s.enqueue(ctx, message.Enqueue); err != nil {
			s.complain(err)
		}
	}
	if message.Snooze != nil {
		s.snooze = message.Snooze
	}
	if message.Cancel != nil {
		s.cancel = message.Cancel
	}
}

func (s *said) checkpoint(ctx context.Context, checkpoint json.RawMessage) error {
	if err := checkCheckpoint(checkpoint); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return s.run.SaveCheckpoint(ctx, checkpoint)
}

// complain remembers the first few problems of the control channel.
func (s *said) complain(err error) {
	if len(s.problems) < 5 {
		s.problems = append(s.problems, err)
	}
}

// newJob is a job that a program adds, with the names of the SQL function's
// arguments.
type newJob struct {
	Kind        string          `json:"kind"`
	Args        json.RawMessage `json:"args"`
	Queue       string          `json:"queue"`
	Priority    int16           `json:"priority"`
	RunAt       time.Time       `json:"run_at"`
	MaxAttempts int             `json:"max_attempts"`
	UniqueKey   string          `json:"unique_key"`
	Tags        []string        `json:"tags"`
	Metadata    json.RawMessage `json:"metadata"`
}

// enqueue adds a job at once, if the lease is still this run's.
func (s *said) enqueue(ctx context.Context, raw json.RawMessage) error {
	var job newJob
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&job); err != nil {
		return fmt.Errorf("enqueue: %w", err)
	}
	if s.enqueued++; s.enqueued > enqueuedMax {
		return fmt.Errorf("enqueue: more than %d jobs in one run", enqueuedMax)
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	options := &jobq.EnqueueOptions{
		Queue: job.Queue, Priority: job.Priority, RunAt: job.RunAt, MaxAttempts: job.MaxAttempts,
		UniqueKey: job.UniqueKey, Tags: job.Tags, Metadata: job.Metadata,
	}
	return s.run.inTransaction(ctx, func(tx pgx.Tx) error {
		_, err := s.run.worker.client.EnqueueTx(ctx, tx, jobq.RawArgs{Name: job.Kind, JSON: job.Args}, options)
		return err
	})
}

// inTransaction does work that is stored only under the run's lease.
func (r *Run) inTransaction(ctx context.Context, work func(tx pgx.Tx) error) error {
	err := pgx.BeginFunc(ctx, r.worker.pool, func(tx pgx.Tx) error {
		held, err := r.worker.schema.Queries(tx).RunHold(ctx, r.row.ID, r.row.LeaseToken, r.worker.id)
		if err != nil {
			return err
		}
		if held == 0 {
			return ErrLeaseLost
		}
		return work(tx)
	})
	if errors.Is(err, ErrLeaseLost) {
		r.worker.keeper.held.Lose(&r.hold)
	}
	return err
}

// problem is what could not be understood, in one error, or nil.
func (s *said) problem() error {
	if len(s.problems) == 0 {
		return nil
	}
	return fmt.Errorf("control channel: %w", errors.Join(s.problems...))
}

// ended is what the handler returns for a program that has ended well. What
// could not be understood comes first: it may have been a checkpoint.
func (s *said) ended() error {
	switch {
	case len(s.problems) > 0:
		return s.problem()
	case s.cancel != nil:
		return Cancel(*s.cancel)
	case s.snooze != nil:
		return Snooze(*s.snooze)
	}
	return nil
}
