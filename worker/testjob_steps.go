package worker

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
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
	done    map[string]json.RawMessage
	used    map[string]bool // by this run
	spawned map[string][]jobq.EnqueueParams
	lastID  int64 // of the jobs that it has spawned
}

// Context returns a context for the handler in which jobq.Step and its like work in
// memory. The steps in TestJobOptions.Steps are done. A sleep, a wait for an event and an
// await of jobs that are not among them return jobq.ErrSuspended. jobq.StepTx still begins
// a real transaction.
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

// Spawned are the jobs that the handler has added by jobq.Spawn and SpawnMany, by the names of
// the steps. Nothing is checked, and no unique key is held. They have the ids after the
// job's own.
func (j *TestJob[T]) Spawned() map[string][]jobq.EnqueueParams {
	s := &j.Job.test.steps
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.spawned)
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

// Await is that of steps.Run.
func (s *testSteps) Await(ctx context.Context, name string, _ []int64) (steps.Awaited, error) {
	answer, err := s.Begin(ctx, name)
	if err != nil || !answer.Done {
		return steps.Awaited{}, err
	}
	ends, err := steps.DecodeEnds(name, answer.Result)
	slices.SortFunc(ends, func(a, b steps.End) int { return cmp.Compare(a.ID, b.ID) })
	return steps.Awaited{Done: true, Jobs: ends}, err
}

// Spawn is what jobq.Spawn calls.
func (s *testSteps) Spawn(ctx context.Context, name string, jobs []jobq.EnqueueParams) (added []jobq.Enqueued, err error) {
	answer, err := s.Begin(ctx, name)
	if err != nil {
		return nil, err
	}
	if answer.Done {
		if err := json.Unmarshal(answer.Result, &added); err != nil {
			return nil, fmt.Errorf("spawn %q: decode what is planted: %w", name, err)
		}
		return added, nil
	}
	added = s.add(name, jobs)
	result, err := json.Marshal(added)
	if err == nil {
		err = s.Store(ctx, nil, name, result)
	}
	return added, err
}

// add gives ids to jobs that were spawned, and remembers them.
func (s *testSteps) add(name string, jobs []jobq.EnqueueParams) []jobq.Enqueued {
	s.mu.Lock()
	defer s.mu.Unlock()
	added := make([]jobq.Enqueued, len(jobs))
	for i := range jobs {
		s.lastID++
		added[i].ID = s.lastID
	}
	if s.spawned == nil {
		s.spawned = make(map[string][]jobq.EnqueueParams)
	}
	s.spawned[name] = jobs
	return added
}
