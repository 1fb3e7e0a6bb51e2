package main

import (
	"fmt"
	"io"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"github.com/jobq-dev/jobq/sql/migrations"
)

// build is what is known of how this binary was built.
type build struct {
	Version string `json:"version"`          // such as v0.1.0, or devel
	Commit  string `json:"commit,omitempty"` // of git; empty after `go install …@version`, which has no git
	Schema  int    `json:"schema_version"`
	Go      string `json:"go"`
}

// thisBuild asks the binary itself: Go writes the tag and the commit into what
// is built in a checkout, so no flag of the linker is needed.
func thisBuild() build {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = &debug.BuildInfo{}
	}
	return buildOf(info)
}

func buildOf(info *debug.BuildInfo) build {
	b := build{Version: info.Main.Version, Schema: migrations.Latest(), Go: info.GoVersion}
	if b.Version == "" || b.Version == "(devel)" {
		b.Version = "devel"
	}
	for _, setting := range info.Settings {
		if setting.Key == "vcs.revision" {
			b.Commit = setting.Value
		}
	}
	return b
}

func (b build) write(out io.Writer) {
	parts := []string{"jobq " + b.Version}
	if b.Commit != "" {
		parts = append(parts, "commit "+b.Commit)
	}
	parts = append(parts, fmt.Sprintf("schema version %d", b.Schema), b.Go)
	fmt.Fprintln(out, strings.Join(parts, ", "))
}

// version is what workers tell others of themselves.
func version() string { return thisBuild().Version }

func newVersionCommand(a *app) *cobra.Command {
	command := &cobra.Command{
		Use: "version", Short: "Print the versions of jobq and of its schema", Args: exactArgs(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if a.json {
				return writeJSON(cmd.OutOrStdout(), thisBuild())
			}
			thisBuild().write(cmd.OutOrStdout())
			return nil
		},
	}
	a.addJSONFlag(command)
	return command
}
