package main

import (
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/spf13/cobra"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/format"
	"github.com/jobq-dev/jobq/internal/printable"
	"github.com/jobq-dev/jobq/monitor"
	"github.com/jobq-dev/jobq/operator"
)

func newWorkersLostCommand(a *app) *cobra.Command {
	var reason string
	var yes bool
	command := &cobra.Command{
		Use: "lost WORKER|HOST...", Short: "Take the jobs of workers that do not come back",
		Long: `Take all jobs of workers away now that do not come back, such as those of a host that
was preempted, instead of when their leases expire. The jobs run elsewhere, at their old
places, and use no attempt. The name of a host stands for all its workers.

If such a worker lives all the same, what it stores for these jobs is refused, it ends
their programs when it hears of that, at the latest when their leases would have expired,
and it drains. Until then, the effects of a program may overlap with those of the next
run. So say it only of what is gone. It asks first; with --yes, which it needs where
there is no terminal, it does not. It is in the audit, and cannot be undone.`,
		Example: `  jobq workers lost spot-17 --reason preempted
  jobq workers lost web-1-4711-0a1b2c3d --yes`,
		Args: rangeArgs(1, math.MaxInt),
		RunE: a.withClient(func(cmd *cobra.Command, args []string, client *jobq.Client) error {
			named, err := workersNamed(cmd, client, args)
			if err != nil {
				return err
			}
			if !yes {
				if err := askForLost(cmd, named); err != nil {
					return err
				}
			}
			results := make([]operator.LostWorker, 0, len(named))
			var failures []error
			for _, worker := range named {
				lost, err := a.operator(client).LoseWorker(cmd.Context(), worker.ID, reason)
				if err != nil {
					failures = append(failures, err)
					continue
				}
				results = append(results, lost)
			}
			if a.json {
				failures = append(failures, writeJSON(cmd.OutOrStdout(), results))
				return errors.Join(failures...)
			}
			for _, lost := range results {
				fmt.Fprintln(cmd.OutOrStdout(), lostLine(lost))
			}
			return errors.Join(failures...)
		}),
	}
	command.Flags().StringVar(&reason, "reason", "", "why, for others to read: it becomes the error of the runs")
	command.Flags().BoolVar(&yes, "yes", false, "do not ask")
	a.addJSONFlag(command)
	return command
}

// lostLine says what became of a worker's jobs.
func lostLine(lost operator.LostWorker) string {
	line := fmt.Sprintf("worker %s: %s", printable.Line(lost.Worker), format.Count(lost.Jobs, "job"))
	switch {
	case lost.AuditID == 0:
		line = fmt.Sprintf("worker %s held nothing, and drains already", printable.Line(lost.Worker))
	case lost.Jobs == 1:
		line += " goes back to the queue, without an attempt"
	case lost.Jobs > 1:
		line += " go back to the queue, without an attempt"
	default:
		line += "; it was asked to drain"
	}
	if lost.Locked > 0 {
		line += fmt.Sprintf("; %s locked by another session: try again", format.Count(lost.Locked, "lease"))
	}
	return line
}

// askForLost asks before the jobs of workers are taken away. It says whose, how many, and what happens if a worker lives.
func askForLost(cmd *cobra.Command, named []monitor.Worker) error {
	if !isTerminal(cmd.InOrStdin()) || !isTerminal(cmd.ErrOrStderr()) {
		return usagef("workers lost asks first, and there is no terminal to ask on: give --yes")
	}
	var jobs int64
	out := cmd.ErrOrStderr()
	for _, worker := range named {
		jobs += worker.Running + worker.Claimed
		about := []string{"not listed"}
		if !worker.HeartbeatAt.IsZero() {
			about = []string{format.Count(worker.Running+worker.Claimed, "job"), "last heard " + ago(worker.HeartbeatAt)}
		}
		fmt.Fprintf(out, "worker %s: %s\n", printable.Line(worker.ID), strings.Join(about, ", "))
	}
	fmt.Fprintln(out, "If it lives all the same, what it stores for these jobs is refused, and its programs end when it\n"+
		"hears of that, at the latest when their leases would have expired; until then they run beside the next run.")
	return askFor(cmd, fmt.Sprintf("Take %s away?", format.Count(jobs, "job")), "lost")
}
