package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/format"
	"github.com/jobq-dev/jobq/monitor"
)

func newWorkersCommand(a *app) *cobra.Command {
	var programs bool
	list := &cobra.Command{
		Short: "List worker processes", Args: exactArgs(0),
		Example: `  jobq workers
  jobq workers --programs   # how programs have ended, and what they used
  jobq workers drain web-1-4711-0a1b2c3d`,
		RunE: a.withClient(func(cmd *cobra.Command, _ []string, client *jobq.Client) error {
			workers, err := monitor.New(client).Workers(cmd.Context())
			if err != nil {
				return err
			}
			if a.json {
				return writeJSON(cmd.OutOrStdout(), workers)
			}
			if programs {
				return writePrograms(cmd.OutOrStdout(), workers)
			}
			t := newTable(cmd.OutOrStdout(), "WORKER", "RUNNING", "HEARTBEAT", "UP", "VERSION", "QUEUES", "KINDS")
			for _, w := range workers {
				queues := make([]string, 0, len(w.Slots))
				for name, slots := range w.Slots {
					queues = append(queues, fmt.Sprintf("%s=%d", name, slots))
				}
				kinds := slices.Clone(w.Kinds)
				for i, kind := range kinds {
					if slots := w.KindSlots[kind]; slots > 0 {
						kinds[i] = fmt.Sprintf("%s=%d", kind, slots)
					}
				}
				name := w.ID
				if w.Draining {
					name += " (draining)"
				}
				t.row(name, format.Number(w.Running), ago(w.HeartbeatAt), format.Ago(time.Since(w.StartedAt)),
					w.Version, strings.Join(queues, ","), strings.Join(kinds, ","))
			}
			return t.flush()
		}),
	}
	list.Flags().BoolVar(&programs, "programs", false, "show what the programs of each kind have done (JSON has it always)")
	a.addJSONFlag(list)
	return asList(&cobra.Command{Use: "workers", Short: "List worker processes; drain them", Example: list.Example}, list, newWorkersDrainCommand(a))
}

func newWorkersDrainCommand(a *app) *cobra.Command {
	command := &cobra.Command{
		Use: "drain ID...", Short: "Ask workers to leave when what they run has ended",
		Long: `Ask workers to take no new work, and to leave when what they run has ended, as SIGUSR1
does on their host. A worker hears of it at once, or within ten seconds where it cannot
listen; it has drained when "jobq workers" does not list it any more. What supervises
it may start another one. It is in the audit, and cannot be undone.`,
		Example: `  jobq workers drain web-1-4711-0a1b2c3d`,
		Args:    rangeArgs(1, math.MaxInt),
		RunE: a.withClient(func(cmd *cobra.Command, args []string, client *jobq.Client) error {
			var failures []error
			for _, id := range args {
				asked, err := a.operator(client).DrainWorker(cmd.Context(), id)
				switch {
				case err != nil:
					failures = append(failures, err)
				case asked:
					fmt.Fprintf(cmd.OutOrStdout(), "worker %s was asked to drain\n", id)
				default:
					fmt.Fprintf(cmd.OutOrStdout(), "worker %s drains already\n", id)
				}
			}
			return errors.Join(failures...)
		}),
	}
	return command
}

func writePrograms(out io.Writer, workers []monitor.Worker) error {
	t := newTable(out, "WORKER", "KIND", "STARTED", "NOT STARTED", "OK", "LATER", "FINAL", "FAILED", "SIGNALLED", "STOPPED", "CPU", "MAX MEMORY", "TROUBLE")
	for _, w := range workers {
		for _, kind := range slices.Sorted(maps.Keys(w.Programs)) {
			p := w.Programs[kind]
			row := []string{w.ID, kind}
			for _, n := range []int64{p.Started, p.NotStarted, p.Succeeded, p.Later, p.Final, p.Failed, p.Signalled, p.Stopped} {
				row = append(row, format.Number(n))
			}
			t.row(append(row, format.Took(time.Duration(p.CPUSeconds*float64(time.Second))), fmt.Sprintf("%.1f MiB", float64(p.MaxRSSBytes)/(1<<20)), p.Trouble)...)
		}
	}
	return t.flush()
}
