package main

import (
	"bytes"
	"context"
	"fmt"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/format"
)

// namedEnqueued is what became of a job of a graph.
type namedEnqueued struct {
	Name string `json:"name,omitempty"`
	jobq.Enqueued
}

// enqueueGraph adds the jobs of all lines of standard input at once, and prints the id of
// each, in the order of the lines.
func (a *app) enqueueGraph(cmd *cobra.Command, client *jobq.Client, options jobq.EnqueueOptions) error {
	ctx, cancel := context.WithCancel(cmd.Context())
	defer cancel() // ends the reader when a line is refused
	var graph jobq.Graph
	work := added{}
	var keys, names []string // by line: the name in the graph, and the one that was given
	number := 0
	lines := readLines(ctx, cmd.InOrStdin())
	for open := true; open; {
		var line inputLine
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case line, open = <-lines:
		}
		if graph.Len() > jobq.EnqueueManyMax {
			return usagef("line %d: at most %s can be added at once (nothing was added)", number, format.Count(int64(jobq.EnqueueManyMax), "job"))
		}
		if number++; !open || line.err == nil && len(bytes.TrimSpace(line.text)) == 0 {
			continue
		}
		job, err := graphLine(line)
		if err != nil {
			return fmt.Errorf("line %d: %w (nothing was added)", number, err)
		}
		params, after, err := job.params(options)
		if err != nil {
			return fmt.Errorf("line %d: %w (nothing was added)", number, err)
		}
		key := job.Name
		if key == "" {
			key = fmt.Sprintf("line %d", number)
		}
		work.add(params.Queue, params.Args.Kind())
		graph.Add(key, params.Args, &params.EnqueueOptions, after...)
		keys, names = append(keys, key), append(names, job.Name)
	}
	enqueued, err := client.EnqueueGraph(ctx, &graph)
	if err != nil {
		return fmt.Errorf("%w (nothing was added)", err)
	}
	for i, key := range keys {
		job := namedEnqueued{names[i], enqueued[key]}
		if a.json {
			err = writeLine(cmd.OutOrStdout(), job)
		} else {
			_, err = fmt.Fprintln(cmd.OutOrStdout(), job.ID)
		}
		if err != nil {
			return err
		}
	}
	work.say(cmd, client)
	return nil
}

// graphLine is the job of a line.
func graphLine(line inputLine) (job *jobLine, err error) {
	if line.err != nil {
		return nil, line.err
	}
	if !utf8.Valid(line.text) {
		return nil, usagef("not valid UTF-8")
	}
	job = &jobLine{}
	if err := decodeLine(bytes.TrimSpace(line.text), job); err != nil {
		return nil, usagef("not a job: %w", err)
	}
	return job, nil
}
