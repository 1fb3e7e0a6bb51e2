package worker

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/steps"
)

// testSteps are the steps of a TestJob, in memory.
type testSteps struct {
	mu sync.Mutex
	// guarded by mu
	done map[string]json.RawMessage
	used map[string]bool // by this run
}

// Context returns a context for the handler in which jobq.Step and its like work, in
// memory. Steps that TestJobOptions.Steps has are done. A sleep, and a wait for an event,
// that it does not have return jobq.ErrSuspended. jobq.StepTx begins its transaction as ever.
func (j *TestJob[T]) Context(ctx context.Context) context.Context {
	return steps.With(ctx, &j.Job.test.steps)
}

// Steps are the durable steps that are done now, by name, with their results.
func (j *TestJob[T]) Steps() map[string]json.RawMessage {
	s := &j.Job.test.steps
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.done)
}

// Begin is that of steps.Run.
func (s *testSteps) Begin(_ context.Context, name string) (steps.Answer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	result, done := s.done[name]
	if done && s.used[name] {
		return steps.Answer{}, fmt.Errorf("step %q: %w: two steps with this name in one run", name, jobq.ErrConflict)
	}
	s.useLocked(name)
	return steps.Answer{Done: done, Result: result}, nil
}

func (s *testSteps) useLocked(name string) {
	if s.used == nil {
		s.used = make(map[string]bool)
	}
	s.used[name] = true
}

// Store is that of steps.Run.
func (s *testSteps) Store(_ context.Context, _ pgx.Tx, name string, result json.RawMessage) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, done := s.done[name]; done {
		return fmt.Errorf("step %q: %w: it is done already", name, jobq.ErrConflict)
	}
	if s.done == nil {
		s.done = make(map[string]json.RawMessage)
	}
	s.done[name] = result
	s.useLocked(name)
	return nil
}

// Sleep is that of steps.Run.
func (s *testSteps) Sleep(ctx context.Context, name string, _ time.Duration) (steps.Answer, error) {
	return s.Begin(ctx, name)
}

// Wait is that of steps.Run.
func (s *testSteps) Wait(ctx context.Context, name string, _ time.Duration) (steps.Answer, error) {
	return s.Begin(ctx, name)
}
