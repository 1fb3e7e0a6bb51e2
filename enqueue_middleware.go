package jobq

import (
	"context"
	"fmt"
	"slices"

	"github.com/jobq-dev/jobq/internal/db"
)

// EnqueueMiddleware wraps every enqueue of a client, to log, trace, measure or refuse it.
// It is called once for each call of Enqueue, EnqueueMany and their like, and calls next
// once, which adds the jobs and answers in their order. The jobs of a Graph come in an order
// in which each is after all that it waits for; After does not have those that it waits for
// by their names. What the middleware returns is what the caller gets. It may be called from
// several goroutines.
//
// The jobs have the defaults of their kinds, and Args that are not nil. Before it calls next, the middleware may
// assign to their fields: the slice is not the caller's. What Tags and Metadata point to
// is the caller's, and stays as it is. With EnqueueTx and EnqueueManyTx, next returns
// before the transaction commits.
type EnqueueMiddleware func(ctx context.Context, jobs []EnqueueParams, next func(ctx context.Context) ([]Enqueued, error)) ([]Enqueued, error)

// addMany adds jobs, and addOne one.
type (
	addMany func(ctx context.Context, jobs []EnqueueParams) ([]Enqueued, error)
	addOne  func(ctx context.Context, args Args, options *EnqueueOptions) (Enqueued, error)
)

// manyWithin adds the jobs within the middleware.
func (c *Client) manyWithin(ctx context.Context, jobs []EnqueueParams, add addMany) ([]Enqueued, error) {
	isNil := func(job EnqueueParams) bool { return db.IsNil(job.Args) }
	if len(jobs) == 0 || len(jobs) > EnqueueManyMax || slices.ContainsFunc(jobs, isNil) {
		return add(ctx, jobs) // nothing is added
	}
	own := make([]EnqueueParams, len(jobs))
	for i, job := range jobs {
		own[i] = withDefaults(job)
	}
	next := func(ctx context.Context) ([]Enqueued, error) { return add(ctx, own) }
	for i := len(c.middleware) - 1; i >= 0; i-- {
		middleware, inner := c.middleware[i], next
		next = func(ctx context.Context) ([]Enqueued, error) { return middleware(ctx, own, inner) }
	}
	enqueued, err := next(ctx)
	if err == nil && len(enqueued) != len(jobs) {
		return nil, fmt.Errorf("enqueue: the middleware answers for %d jobs instead of %d", len(enqueued), len(jobs))
	}
	return enqueued, err
}

// oneWithin adds the job within the middleware.
func (c *Client) oneWithin(ctx context.Context, args Args, options *EnqueueOptions, add addOne) (Enqueued, error) {
	job := EnqueueParams{Args: args}
	if options != nil {
		job.EnqueueOptions = *options
	}
	enqueued, err := c.manyWithin(ctx, []EnqueueParams{job}, func(ctx context.Context, jobs []EnqueueParams) ([]Enqueued, error) {
		one, err := add(ctx, jobs[0].Args, &jobs[0].EnqueueOptions)
		return []Enqueued{one}, err
	})
	if err != nil {
		return Enqueued{}, err
	}
	return enqueued[0], nil
}
