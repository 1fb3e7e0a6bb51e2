package main

import (
	"strings"

	"github.com/jobq-dev/jobq/internal/subproc"
	"github.com/jobq-dev/jobq/worker"
)

// addHandler gives a worker a handler.
type addHandler func(w *worker.Worker) error

// parseHandlers reads the flags that say what runs which kind.
func parseHandlers(f workerFlags) ([]addHandler, error) {
	var handlers []addHandler
	kinds := make(map[string]bool)
	add := func(flag string, values []string, make func(kind, value string) (addHandler, error)) error {
		for _, text := range values {
			kind, value, ok := strings.Cut(text, "=")
			if !ok || kind == "" {
				return usagef("--%s %q: must be KIND='COMMAND ARGS', or KIND=URL for --run-http", flag, text)
			}
			if kinds[kind] {
				return usagef("--%s %s: the kind is given twice", flag, kind)
			}
			kinds[kind] = true
			handler, err := make(kind, value)
			if err != nil {
				return usagef("--%s %s: %w", flag, kind, err)
			}
			handlers = append(handlers, handler)
		}
		return nil
	}
	if err := add("run", f.run, runHandler); err != nil {
		return nil, err
	}
	if err := add("run-stream", f.runStream, streamHandler); err != nil {
		return nil, err
	}
	if err := add("run-http", f.runHTTP, httpHandler); err != nil {
		return nil, err
	}
	if len(handlers) == 0 {
		return nil, usagef("nothing to run: give at least one --run KIND='COMMAND ARGS', --run-stream or --run-http")
	}
	return handlers, nil
}

func runHandler(kind, value string) (addHandler, error) {
	words, err := subproc.Split(value)
	return func(w *worker.Worker) error { return worker.HandleCommand(w, kind, worker.Command{Args: words}) }, err
}

func streamHandler(kind, value string) (addHandler, error) {
	words, err := subproc.Split(value)
	return func(w *worker.Worker) error {
		return worker.HandleStream(w, kind, worker.Stream{Command: worker.Command{Args: words}})
	}, err
}

func httpHandler(kind, value string) (addHandler, error) {
	return func(w *worker.Worker) error { return worker.HandleHTTP(w, kind, worker.HTTP{URL: value}) }, nil
}
