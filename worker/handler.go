package worker

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/coding"
)

// kindRunesMax is how long a kind's name can be; the tables have the same limit.
const kindRunesMax = 128

// Handler runs jobs of one kind. Its context is cancelled when the run has to
// stop; context.Cause says why. A nil error completes the job.
type Handler[T jobq.Args] func(ctx context.Context, job *Job[T]) error

// Middleware wraps every run of a worker, to log, trace, measure or guard it.
type Middleware func(ctx context.Context, run *Run, next func(ctx context.Context) error) error

// rawHandler is a Handler without its type.
type rawHandler func(ctx context.Context, run *Run) error

// handled is a kind's handler and its options.
type handled struct {
	call    rawHandler
	options HandleOptions
}

// Handle makes the worker run jobs of T's kind with the handler. Nil options mean
// the defaults. To be called before Run. A second handler for a kind is an error:
// a kind has all its options from one call.
//
// Args that do not decode into T are a failed attempt like any other: a newer
// worker may understand them.
func Handle[T jobq.Args](w *Worker, handler Handler[T], options *HandleOptions) error {
	zero, err := zeroArgs[T]()
	if err != nil {
		return err
	}
	if handler == nil {
		return fmt.Errorf("handler of kind %q: it is nil", zero.Kind())
	}
	return w.handle(zero.Kind(), options, func(ctx context.Context, r *Run) error {
		job := &Job[T]{Run: r}
		if err := json.Unmarshal(r.row.Args, &job.Args); err != nil {
			return fmt.Errorf("decode args: %w", coding.Misfit(err, job.Args, r.argsEncoded))
		}
		return handler(ctx, job)
	})
}

// zeroArgs is what the kind is asked of: if T is a pointer, that to a zero value.
func zeroArgs[T jobq.Args]() (zero T, err error) {
	switch of := reflect.TypeFor[T](); of.Kind() {
	case reflect.Pointer:
		zero, _ = reflect.New(of.Elem()).Interface().(T)
	case reflect.Interface:
		err = fmt.Errorf("handler: the args have the type %s, which is no type of their own", of)
	default:
	}
	return zero, err
}

// HandleRaw is Handle for a handler that takes the args of its kind as JSON.
func HandleRaw(w *Worker, kind string, handler Handler[jobq.RawArgs], options *HandleOptions) error {
	if handler == nil {
		return fmt.Errorf("handler of kind %q: it is nil", kind)
	}
	return w.handle(kind, options, func(ctx context.Context, r *Run) error {
		return handler(ctx, &Job[jobq.RawArgs]{Run: r, Args: jobq.RawArgs{Name: r.row.Kind, JSON: r.row.Args}})
	})
}

func (w *Worker) handle(kind string, options *HandleOptions, handler rawHandler) error {
	if w == nil {
		return fmt.Errorf("handler of kind %q: the worker is nil", kind)
	}
	if kind == "" {
		return errors.New("handler: the kind is empty; Kind must work on a zero value")
	}
	if len([]rune(kind)) > kindRunesMax {
		return fmt.Errorf("handler: kind %q: must be at most %d characters", kind, kindRunesMax)
	}
	if w.started.Load() {
		return fmt.Errorf("handler of kind %q: Run was called already", kind)
	}
	if _, ok := w.handlers.byKind[kind]; ok {
		return fmt.Errorf("handler of kind %q: it has one already; give a kind its handler and options in one call", kind)
	}
	if options == nil {
		options = &HandleOptions{}
	}
	own := *options
	own.Timeout = cmp.Or(own.Timeout, w.config.Timeout)
	if err := options.check(); err != nil {
		return fmt.Errorf("handler of kind %q: %w", kind, err)
	}
	w.handlers.byKind[kind] = handled{handler, own}
	return nil
}

// kindSlots are the kinds that have slots of their own, and how many.
func (w *Worker) kindSlots() map[string]int {
	slots := make(map[string]int)
	for kind, handled := range w.handlers.byKind {
		if handled.options.Slots > 0 {
			slots[kind] = handled.options.Slots
		}
	}
	return slots
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
