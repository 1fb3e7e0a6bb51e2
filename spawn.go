package jobq

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/jobq-dev/jobq/internal/steps"
)

// SpawnManyMax is the most jobs that one call of [SpawnMany] or [AwaitMany] takes.
const SpawnManyMax = 10_000

// spawner is a run that can add jobs as a step: see worker.Run.
type spawner interface {
	Spawn(ctx context.Context, name string, jobs []EnqueueParams) ([]Enqueued, error)
}

// Spawn adds another job, once: the job and the step that says so are stored in one
// transaction, with the client of the worker. When the handler's job runs again, Spawn returns
// what was added then. For the name, see [Step]; for args and options, [Client.Enqueue].
//
// With a unique key that another job holds, nothing is added, and what is returned is that
// job, as a Duplicate. A spawned job is a job like any other: it goes on when the one that has
// spawned it fails or is cancelled.
func Spawn(ctx context.Context, name string, args Args, options *EnqueueOptions) (Enqueued, error) {
	job := EnqueueParams{Args: args}
	if options != nil {
		job.EnqueueOptions = *options
	}
	enqueued, err := SpawnMany(ctx, name, []EnqueueParams{job})
	if err != nil {
		return Enqueued{}, err
	}
	if len(enqueued) != 1 {
		return Enqueued{}, fmt.Errorf("spawn %q: %w: it has added %d jobs before", name, ErrConflict, len(enqueued))
	}
	return enqueued[0], nil
}

// SpawnMany is [Spawn] of several jobs in one step, all of them or none: at most SpawnManyMax.
// It answers in their order.
func SpawnMany(ctx context.Context, name string, jobs []EnqueueParams) ([]Enqueued, error) {
	run, ok := steps.Of(ctx).(spawner)
	if !ok {
		return nil, fmt.Errorf("spawn %q: %w", name, ErrNoRun)
	}
	if len(jobs) > SpawnManyMax {
		return nil, fmt.Errorf("spawn %q: %w: jobs must be at most %d in one call, not %d", name, ErrInvalid, SpawnManyMax, len(jobs))
	}
	return run.Spawn(ctx, name, jobs)
}

// Await returns the result of another job, such as one that [Spawn] has added: the zero value
// for a job that has none. If that has not ended yet, Await ends the run and returns
// [ErrSuspended], which the handler must return. The job holds no slot, and runs again,
// without using an attempt, when the other one has ended: a janitor sees to that.
//
// The error is a *NotCompletedError if the other job has failed or was cancelled, and
// ErrNotFound if there is no such job, or no more: it was deleted, or its retention has ended,
// 7 days after its end by default. What was returned once is returned in later runs, whatever
// has become of the other job. For the name, see [Step].
//
// If the result cannot be decoded with the worker's Codec, the error is ErrUnreadable, as for a
// [Step].
func Await[T any](ctx context.Context, name string, id int64) (value T, err error) {
	ended, err := AwaitMany(ctx, name, []int64{id})
	if err != nil {
		return value, err
	}
	if err := ended[0].Decode(&value); err != nil {
		return value, fmt.Errorf("await %q: %w", name, err)
	}
	return value, nil
}

// AwaitMany is [Await] of several jobs in one step, at most SpawnManyMax: the job runs again
// when all of them have ended. It says how each has ended, in the order of ids. Their results
// are at most 16 MiB, all together. A job that is gone has no State, and its Err is
// ErrNotFound, unless it is known that it had failed or was cancelled.
func AwaitMany(ctx context.Context, name string, ids []int64) ([]Ended, error) {
	run := steps.Of(ctx)
	if run == nil {
		return nil, fmt.Errorf("await %q: %w", name, ErrNoRun)
	}
	if ids == nil {
		ids = []int64{}
	}
	awaited, err := run.Await(ctx, name, ids)
	if err != nil {
		return nil, err
	}
	if !awaited.Done {
		return nil, ErrSuspended
	}
	ended := make([]Ended, len(ids))
	for i, id := range ids {
		place, found := slices.BinarySearchFunc(awaited.Jobs, id, func(job steps.End, id int64) int { return cmp.Compare(job.ID, id) })
		if !found { // of a test's, since the database refuses it
			return nil, fmt.Errorf("await %q: %w: job %d is not one that it has awaited before", name, ErrConflict, id)
		}
		job := awaited.Jobs[place]
		ended[i] = Ended{ID: id, State: State(job.State), Result: job.Result, Error: job.Error, FinishedAt: job.FinishedAt.UTC(), isEncoded: awaited.IsEncoded}
	}
	return ended, nil
}
