package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/coding"
	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/steps"
)

// eventWaitsMax is how many runs of a worker ask at once whether an event has come.
const eventWaitsMax = 4

// spawnsMax is how many runs of a worker add jobs at once, in the transactions of their steps.
const spawnsMax = 4

// stepRun is a run as jobq.Step and its like find it in the handler's context.
type stepRun Run

// stepCalls makes the calls of the run.
func (s *stepRun) stepCalls() steps.Calls {
	r := (*Run)(s)
	return steps.Calls{Schema: r.worker.schema, DB: r.worker.pool, JobID: r.row.ID, Token: ExternalRun{r}.RunToken()}
}

// notice is for every call: the run goes on, and ends on its own row, which these calls lock.
func (s *stepRun) notice() {
	s.signs.Add(1)
	s.reports.endOnRow()
}

// answered adds ErrLeaseLost to the error of a call that the database has refused because the run
// is over.
func (s *stepRun) answered(err error) error {
	if errors.Is(err, steps.ErrRunOver) {
		s.worker.keeper.held.Lose(&s.hold)
		return fmt.Errorf("%w: %w", ErrLeaseLost, err)
	}
	return err
}

func (s *stepRun) Begin(ctx context.Context, name string) (steps.Answer, error) {
	s.notice()
	answer, err := s.stepCalls().Begin(ctx, name)
	answer.IsEncoded = s.worker.codec != nil
	if err != nil || !answer.Done {
		return answer, s.answered(err)
	}
	r := (*Run)(s)
	if answer.Result, err = r.decoded(ctx, coding.ValueOfStep(r.row.Kind, r.row.ID, name), answer.Result); err != nil {
		return steps.Answer{}, r.unreadable(ctx, err)
	}
	return answer, nil
}

func (s *stepRun) Store(ctx context.Context, tx pgx.Tx, name string, result json.RawMessage) error {
	s.notice()
	r := (*Run)(s)
	stored, err := r.encode(ctx, coding.ValueOfStep(r.row.Kind, r.row.ID, name), result)
	if err != nil {
		return fmt.Errorf("step %q: %w", name, err)
	}
	return s.answered(s.stepCalls().Store(ctx, tx, name, stored))
}

func (s *stepRun) Sleep(ctx context.Context, name string, duration time.Duration) (steps.Answer, error) {
	s.mayEnd()
	answer, err := s.stepCalls().Sleep(ctx, name, duration)
	return answer, s.hasEnded(answer.MayHaveEnded, err)
}

func (s *stepRun) Wait(ctx context.Context, name string, timeout time.Duration) (steps.Answer, error) {
	// While a transaction is about to emit the event, the call waits for it for up to half a second
	// (event_lock), and holds a connection of the pool that all runs share.
	select {
	case s.worker.eventWaits <- struct{}{}:
		defer func() { <-s.worker.eventWaits }()
	case <-ctx.Done():
		return steps.Answer{}, fmt.Errorf("wait for event %q: %w", name, context.Cause(ctx))
	}
	s.mayEnd()
	answer, err := s.stepCalls().Wait(ctx, name, timeout)
	return answer, s.hasEnded(answer.MayHaveEnded, err)
}

func (s *stepRun) Await(ctx context.Context, name string, jobs []int64) (steps.Awaited, error) {
	s.mayEnd()
	awaited, err := s.stepCalls().Await(ctx, name, jobs)
	if err := s.hasEnded(awaited.MayHaveEnded, err); err != nil || !awaited.Done {
		return steps.Awaited{}, err
	}
	r := (*Run)(s)
	awaited.IsEncoded = r.worker.codec != nil
	for i := range awaited.Jobs {
		job := &awaited.Jobs[i]
		if job.Result, err = r.decoded(ctx, coding.ValueOf(coding.Result, job.Kind, job.ID), job.Result); err != nil {
			return steps.Awaited{}, r.unreadable(ctx, fmt.Errorf("await %q: job %d: %w", name, job.ID, err))
		}
	}
	return awaited, nil
}

// Spawn adds jobs as a step: see jobq.Spawn. Their ids are stored as they are, for people.
func (s *stepRun) Spawn(ctx context.Context, name string, jobs []jobq.EnqueueParams) ([]jobq.Enqueued, error) {
	// The transaction may have to wait for another one with the same unique key. It also calls
	// the codec and the enqueue middleware. Meanwhile it holds a connection of the pool that
	// extends leases.
	select {
	case s.worker.spawns <- struct{}{}:
		defer func() { <-s.worker.spawns }()
	case <-ctx.Done():
		return nil, fmt.Errorf("spawn %q: %w", name, context.Cause(ctx))
	}
	s.notice()
	added, err := steps.Spawn(ctx, s.stepCalls(), s.worker.pool, name, func(tx pgx.Tx) ([]jobq.Enqueued, error) {
		return s.worker.client.EnqueueManyTx(ctx, tx, jobs)
	})
	return added, s.answered(err)
}

// mayEnd is for a call that may end the run. It comes before the call: once that is
// stored, somebody may claim the job anew, even this worker.
func (s *stepRun) mayEnd() {
	s.notice()
	s.mayHaveEnded.Store(true)
	s.worker.keeper.held.Completing(&s.hold)
}

// hasEnded comes after such a call. mayHave says whether the call may have ended the run.
func (s *stepRun) hasEnded(mayHave bool, err error) error {
	if !mayHave {
		s.worker.keeper.held.GoesOn(&s.hold)
	}
	return s.answered(err)
}

// isSuspension says whether the run has ended because its job sleeps or waits. If this worker
// has claimed the job again since, that has stopped the handler of the earlier run.
func isSuspension(fate db.RunFateRow) bool { return fate.Outcome == string(jobq.OutcomeSnoozed) }

// saysSuspended says whether a handler, whose step has suspended the job, has returned the error
// that it should: jobq.ErrSuspended, or a snooze if it is a program.
func saysSuspended(err error, fate db.RunFateRow) (suspended bool) {
	if !isSuspension(fate) {
		return false
	}
	panicked := guard(func() error { // the error's methods are the handler's
		var snooze *SnoozeError
		suspended = errors.Is(err, jobq.ErrSuspended) || errors.As(err, &snooze)
		return nil
	})
	return suspended && panicked == nil
}
