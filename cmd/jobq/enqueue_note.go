package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/format"
	"github.com/jobq-dev/jobq/internal/printable"
	"github.com/jobq-dev/jobq/monitor"
)

// addedMax is how many kinds of how many queues an enqueue remembers for its notes.
const addedMax = 20

// added are the kinds that an enqueue has added to each queue.
type added map[string]map[string]bool

func (d added) add(queue, kind string) {
	if queue == "" {
		queue = jobq.DefaultQueue
	}
	if d[queue] == nil && len(d) < addedMax {
		d[queue] = map[string]bool{}
	}
	if kinds := d[queue]; kinds != nil && len(kinds) < addedMax {
		kinds[kind] = true
	}
}

func (d added) addAll(jobs []jobq.EnqueueParams) {
	for _, job := range jobs {
		d.add(job.Queue, job.Args.Kind())
	}
}

// say notes the queues and kinds that no worker has ever had: they may be misspelt. A role that may only add jobs
// does not see workers, and gets no note.
func (d added) say(cmd *cobra.Command, client *jobq.Client) {
	watch := monitor.New(client)
	for _, queue := range slices.Sorted(maps.Keys(d)) {
		kinds := slices.Sorted(maps.Keys(d[queue]))
		served, known, err := watch.Served(cmd.Context(), queue, kinds...)
		if err != nil {
			return // only a note depends on it
		}
		unknown := slices.DeleteFunc(kinds, func(kind string) bool { return slices.Contains(known, kind) })
		switch {
		case !served:
			fmt.Fprintf(cmd.ErrOrStderr(), "note: no worker has ever had queue %s%s\n", printable.Line(queue), nearestQueue(cmd.Context(), watch, queue))
		case len(unknown) > 0:
			fmt.Fprintf(cmd.ErrOrStderr(), "note: no worker of queue %s has ever had %s%s\n", printable.Line(queue), kindsText(unknown), nearestKind(cmd.Context(), watch, unknown))
		}
	}
}

// kindsText names kinds: "kind a", "the kinds a and b".
func kindsText(kinds []string) string {
	const namesMax = 5
	for i, kind := range kinds {
		kinds[i] = printable.Line(kind)
	}
	switch {
	case len(kinds) == 1:
		return "kind " + kinds[0]
	case len(kinds) > namesMax:
		return fmt.Sprintf("the kinds %s and %s more", strings.Join(kinds[:namesMax], ", "), format.Number(len(kinds)-namesMax))
	}
	return "the kinds " + strings.Join(kinds[:len(kinds)-1], ", ") + " and " + kinds[len(kinds)-1]
}

func nearestKind(ctx context.Context, watch *monitor.Monitor, unknown []string) string {
	kinds, err := watch.Kinds(ctx)
	if err != nil || len(unknown) > 1 {
		return ""
	}
	var names []string
	for _, kind := range kinds {
		if kind.Workers+kind.Completed+kind.Failed > 0 {
			names = append(names, kind.Name)
		}
	}
	return didYouMean(unknown[0], names)
}

func nearestQueue(ctx context.Context, watch *monitor.Monitor, unknown string) string {
	queues, err := watch.Queues(ctx)
	if err != nil {
		return ""
	}
	var names []string
	for _, queue := range queues {
		if queue.Name != unknown {
			names = append(names, queue.Name)
		}
	}
	return didYouMean(unknown, names)
}
