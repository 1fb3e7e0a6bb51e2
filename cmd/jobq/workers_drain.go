package main

import (
	"errors"
	"fmt"
	"math"

	"github.com/spf13/cobra"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/printable"
	"github.com/jobq-dev/jobq/monitor"
)

func newWorkersDrainCommand(a *app) *cobra.Command {
	command := &cobra.Command{
		Use: "drain WORKER|HOST...", Short: "Ask workers to leave when what they run has ended",
		Long: `Ask workers to take no new work, and to leave when what they run has ended, as SIGUSR1
does on their host. A worker hears of it at once, or within ten seconds where it cannot
listen; it has drained when "jobq workers" does not list it any more. What supervises
it may start another one. The name of a host stands for all its workers. It is in the
audit, and cannot be undone.`,
		Example: `  jobq workers drain web-1-4711-0a1b2c3d
  jobq workers drain web-1   # all workers of that host`,
		Args: rangeArgs(1, math.MaxInt),
		RunE: a.withClient(func(cmd *cobra.Command, args []string, client *jobq.Client) error {
			named, err := workersNamed(cmd, client, args)
			if err != nil {
				return err
			}
			var failures []error
			for _, worker := range named {
				id := worker.ID
				asked, err := a.operator(client).DrainWorker(cmd.Context(), id)
				switch {
				case err != nil:
					failures = append(failures, err)
				case asked:
					fmt.Fprintf(cmd.OutOrStdout(), "worker %s was asked to drain\n", printable.Line(id))
				default:
					fmt.Fprintf(cmd.OutOrStdout(), "worker %s drains already\n", printable.Line(id))
				}
			}
			return errors.Join(failures...)
		}),
	}
	return command
}

// workersNamed are the workers that the names stand for, each once: a worker by its id, or all workers of a host. An id
// wins over a host of the same name. A name of neither is taken for the id of a worker that is not listed.
func workersNamed(cmd *cobra.Command, client *jobq.Client, names []string) (named []monitor.Worker, err error) {
	workers, err := monitor.New(client).Workers(cmd.Context())
	if err != nil {
		return nil, err
	}
	seen := make(map[string]bool)
	add := func(worker monitor.Worker) {
		if !seen[worker.ID] {
			seen[worker.ID] = true
			named = append(named, worker)
		}
	}
	for _, name := range names {
		var byID *monitor.Worker
		var ofHost []monitor.Worker
		for i, worker := range workers {
			if worker.ID == name {
				byID = &workers[i]
			}
			if worker.Hostname == name {
				ofHost = append(ofHost, worker)
			}
		}
		switch {
		case byID != nil && len(ofHost) > 1:
			fmt.Fprintf(cmd.ErrOrStderr(), "note: %s is taken for the worker of that id, not for the host\n", printable.Line(name))
			add(*byID)
		case byID != nil:
			add(*byID)
		case len(ofHost) > 0:
			for _, worker := range ofHost {
				add(worker)
			}
		default:
			add(monitor.Worker{ID: name})
		}
	}
	return named, nil
}
