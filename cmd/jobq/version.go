package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/jobq-dev/jobq/sql/migrations"
)

// version is the module's version, as the build knows it.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" || info.Main.Version == "(devel)" {
		return "devel"
	}
	return info.Main.Version
}

func newVersionCommand(a *app) *cobra.Command {
	command := &cobra.Command{
		Use: "version", Short: "Print the version of jobq and of its schema", Args: exactArgs(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if a.json {
				return writeJSON(cmd.OutOrStdout(), map[string]any{
					"version": version(), "schema_version": migrations.Latest(), "go": runtime.Version(),
				})
			}
			fmt.Fprintf(cmd.OutOrStdout(), "jobq %s, schema version %d, %s\n", version(), migrations.Latest(), runtime.Version())
			return nil
		},
	}
	a.addJSONFlag(command)
	return command
}
