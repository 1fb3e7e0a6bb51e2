package main

import (
	"fmt"
	"io"
	"maps"
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
  jobq workers --programs   # how programs have ended, and why a kind waits
  jobq workers drain web-1-4711-0a1b2c3d
  jobq workers hold web-1 --reason "bad disk"
  jobq workers lost web-1   # the host is gone: its jobs run elsewhere now`,
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
					if w.Programs[kind].Trouble != "" {
						kinds[i] += " (waits)"
					}
				}
				name := w.ID
				if w.Draining {
					name += " (draining)"
				}
				if w.Held != nil {
					name += " (held)"
				}
				t.row(name, format.Number(w.Running), ago(w.HeartbeatAt), format.Ago(time.Since(w.StartedAt)),
					w.Version, strings.Join(queues, ","), strings.Join(kinds, ","))
			}
			if err := t.flush(); err != nil {
				return err
			}
			return noteHeldHosts(cmd, client)
		}),
	}
	list.Flags().BoolVar(&programs, "programs", false, "show what the programs of each kind have done (JSON has it always)")
	a.addJSONFlag(list)
	return asList(&cobra.Command{Use: "workers", Short: "List workers; drain them, hold hosts, take the jobs of lost ones", Example: list.Example}, list,
		newWorkersDrainCommand(a), newWorkersLostCommand(a), newWorkersHoldCommand(a), newWorkersReleaseCommand(a))
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
