package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/format"
	"github.com/jobq-dev/jobq/internal/printable"
	"github.com/jobq-dev/jobq/monitor"
	"github.com/jobq-dev/jobq/operator"
)

func newWorkersHoldCommand(a *app) *cobra.Command {
	var reason string
	command := &cobra.Command{
		Use: "hold HOST", Short: "Let the workers of a host claim nothing, also later ones",
		Long: `Let all workers of a host claim nothing until it is released, also workers that start
there later. What they run goes on, and what they have claimed and not begun goes back,
without an attempt. They hear of it at once, or within ten seconds where they cannot
listen. The host must be written as "jobq workers --json" has it in hostname; a host
that has no worker now can be held too.`,
		Example: `  jobq workers hold gpu-3 --reason "uncorrectable memory errors"
  jobq workers release gpu-3`,
		Args: exactArgs(1),
		RunE: a.withClient(func(cmd *cobra.Command, args []string, client *jobq.Client) error {
			held, err := a.operator(client).HoldHost(cmd.Context(), args[0], reason)
			if err != nil {
				return err
			}
			return a.sayHost(cmd, held, "held")
		}),
	}
	command.Flags().StringVar(&reason, "reason", "", "why, for others to read")
	a.addJSONFlag(command)
	return command
}

func newWorkersReleaseCommand(a *app) *cobra.Command {
	command := &cobra.Command{
		Use: "release HOST", Short: "Let the workers of a host that is held claim again",
		Example: "  jobq workers release gpu-3", Args: exactArgs(1),
		RunE: a.withClient(func(cmd *cobra.Command, args []string, client *jobq.Client) error {
			released, err := a.operator(client).ReleaseHost(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return a.sayHost(cmd, released, "released")
		}),
	}
	a.addJSONFlag(command)
	return command
}

// sayHost says what came of holding or releasing a host, and how that is taken back.
func (a *app) sayHost(cmd *cobra.Command, host operator.HeldHost, is string) error {
	if a.json {
		return writeJSON(cmd.OutOrStdout(), host)
	}
	name, workers := printable.Line(host.Host), format.Count(host.Workers, "worker")
	if host.Workers == 0 { // its name may be misspelt
		workers = "it has no worker now"
		if is == "held" {
			workers += ", and later ones are held"
		}
	}
	text := fmt.Sprintf("host %s is %s (%s); take it back with: jobq undo %d", name, is, workers, host.AuditID)
	switch {
	case host.AuditID == 0 && is == "held":
		text = fmt.Sprintf("host %s is already held (%s)", name, workers)
	case host.AuditID == 0:
		text = fmt.Sprintf("host %s is not held (%s)", name, workers)
	}
	_, err := fmt.Fprintln(cmd.OutOrStdout(), text)
	return err
}

// noteHeldHosts says which hosts are held, also those that have no worker now, and why.
func noteHeldHosts(cmd *cobra.Command, client *jobq.Client) error {
	hosts, err := monitor.New(client).HeldHosts(cmd.Context())
	if err != nil {
		return err
	}
	for _, host := range hosts {
		text := fmt.Sprintf("note: host %s is held by %s, %s", host.Host, host.By, ago(host.Since))
		if host.Reason != "" {
			text += ": " + host.Reason
		}
		fmt.Fprintln(cmd.ErrOrStderr(), printable.Line(text))
	}
	return nil
}
