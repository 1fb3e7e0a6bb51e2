package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/jobq-dev/jobq"
)

// Handler runs jobs of one kind. Its context is cancelled when the run has to
// stop; context.Cause says why. A nil error completes the job.
type Handler[T jobq.Args] func(ctx context.Context, job *Job[T]) error

// Middleware wraps every run of a worker, to log, trace, measure or guard it.
type Middleware func(ctx context.Context, run *Run, next func(ctx context.Context) error) error

// rawHandler is a Handler without its type.
type rawHandler func(ctx context.Context, run *Run) error

// Handle makes the worker run jobs of T's kind with the handler. To be called
// before Run; a second handler for a kind is an error.
//
// Args that do not decode into T are a failed attempt like any other: a newer
// worker may understand them.
func Handle[T jobq.Args](w *Worker, handler Handler[T]) error {
	var zero T
	return w.handle(zero.Kind(), func(ctx context.Context, r *Run) error {
		job := &Job[T]{Run: r}
		if err := json.Unmarshal(r.row.Args, &job.Args); err != nil {
			return fmt.Errorf("decode args: %w", err)
		}
		return handler(ctx, job)
	})
}

// HandleRaw makes the worker run jobs of a kind with a handler that takes
// their args as JSON.
func HandleRaw(w *Worker, kind string, handler Handler[jobq.RawArgs]) error {
	return w.handle(kind, func(ctx context.Context, r *Run) error {
		return handler(ctx, &Job[jobq.RawArgs]{Run: r, Args: jobq.RawArgs{Name: r.row.Kind, JSON: r.row.Args}})
	})
}

func (w *Worker) handle(kind string, handler rawHandler) error {
	if kind == "" {
		return errors.New("handler: the kind is empty; Kind must work on a zero value")
	}
	if _, ok := w.handlers.byKind[kind]; ok {
		return fmt.Errorf("handler: kind %q has one already", kind)
	}
	w.handlers.byKind[kind] = handler
	return nil
}

// kinds are the kinds that the worker claims: those that it handles.
func (w *Worker) kinds() []string {
	kinds := make([]string, 0, len(w.handlers.byKind))
	for kind := range w.handlers.byKind {
		kinds = append(kinds, kind)
	}
	slices.Sort(kinds)
	return kinds
}
