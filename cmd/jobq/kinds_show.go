package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/catalogue"
	"github.com/jobq-dev/jobq/internal/format"
	"github.com/jobq-dev/jobq/monitor"
)

func newKindsShowCommand(a *app) *cobra.Command {
	command := &cobra.Command{
		Use: "show KIND", Short: "Show all settings of a kind, and how its jobs do", Args: exactArgs(1),
		Long:    `Show all settings of a kind, its workers, and how its jobs did within the last hour. "jobq kinds set" changes its settings.`,
		Example: "  jobq kinds show mail",
		RunE: a.withClient(func(cmd *cobra.Command, args []string, client *jobq.Client) error {
			kind, err := kindNamed(cmd.Context(), client, args[0])
			if err != nil {
				return err
			}
			if a.json {
				return writeJSON(cmd.OutOrStdout(), kind)
			}
			return writeKind(cmd.OutOrStdout(), kind)
		}),
	}
	a.addJSONFlag(command)
	return command
}

func writeKind(out io.Writer, kind monitor.Kind) error {
	paused := "no"
	if kind.PausedAt != nil {
		paused = ago(*kind.PausedAt) + " by " + format.By(kind.PausedBy, kind.PauseReason)
	}
	fields := newFields(out)
	for _, row := range [][2]string{
		{"kind", kind.Name},
		{"workers", format.Number(kind.Workers)},
		{"available", format.OrMore(kind.Available, kind.AvailableMore)},
		{"last hour", fmt.Sprintf("%s completed, %s failed, %s retried", format.Number(kind.Completed), format.Number(kind.Failed), format.Number(kind.Retried))},
		{"crashes", format.Number(kind.Crashes)},
		{"paused", paused},
	} {
		fields.row(row[0], row[1])
	}
	for _, setting := range catalogue.KindSettings() {
		fields.row(setting.Name, setting.Text(&kind.KindSettings))
	}
	return fields.flush()
}
