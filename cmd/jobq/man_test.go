package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
)

// Every command has a man page that names its flags. Method: the pages are made as a
// release has them, into JOBQ_MAN if it names a folder (`make release-files`). They are
// made by a test because a command could not make them without having the generator in
// every user's binary.
func TestManPages(t *testing.T) {
	t.Parallel()
	folder := os.Getenv("JOBQ_MAN")
	if folder == "" {
		folder = t.TempDir()
	}
	root := newRootCommand(&app{schema: "jobq"})
	root.DisableAutoGenTag = true // it has today's date
	header := &doc.GenManHeader{Section: "1", Source: "jobq", Manual: "jobq"}
	require.NoError(t, doc.GenManTree(root, header, folder))
	var check func(command *cobra.Command)
	check = func(command *cobra.Command) {
		name := strings.ReplaceAll(command.CommandPath(), " ", "-")
		page, err := os.ReadFile(filepath.Join(folder, name+".1"))
		require.NoError(t, err)
		require.Contains(t, string(page), ".TH", name)
		text := strings.ReplaceAll(string(page), `\-`, "-")
		command.NonInheritedFlags().VisitAll(func(flag *pflag.Flag) { require.Contains(t, text, "--"+flag.Name, name) })
		for _, below := range command.Commands() {
			if below.IsAvailableCommand() {
				check(below)
			}
		}
	}
	check(root)
}
