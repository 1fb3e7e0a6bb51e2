package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
)

// The help of each command fits into a terminal of 80 columns, and that of jobq into 60 lines.
func TestHelpFits(t *testing.T) {
	t.Parallel()
	root := newRootCommand(&app{schema: "jobq"})
	var check func(cmd *cobra.Command)
	check = func(cmd *cobra.Command) {
		var help bytes.Buffer
		cmd.InitDefaultHelpFlag()
		writeHelp(&help, cmd)
		lines := strings.Split(strings.TrimSuffix(help.String(), "\n"), "\n")
		for _, line := range lines {
			if len([]rune(line)) > helpWidth {
				t.Errorf("%s --help: %d columns: %s", cmd.CommandPath(), len([]rune(line)), line)
			}
		}
		if cmd == root && len(lines) > 60 {
			t.Errorf("jobq --help has %d lines", len(lines))
		}
		for _, below := range cmd.Commands() {
			if below.Name() != "completion" { // cobra's
				check(below)
			}
		}
	}
	check(root)
}

// A noun alone lists, list and ls do so too; and words of other tools are answered with the right one.
func TestWordsOfOthers(t *testing.T) {
	t.Parallel()
	root := newRootCommand(&app{schema: "jobq"})
	for _, words := range []string{"queues", "queues ls", "queues list", "kinds", "kinds ls", "schedules", "schedules ls", "workers", "workers ls", "contexts", "jobs", "ls"} {
		cmd, rest, err := root.Find(strings.Fields(words))
		require.NoError(t, err, words)
		require.Empty(t, rest, words)
		require.Contains(t, strings.ToLower(cmd.Short), "list", words)
	}
	for words, want := range otherWords {
		name := words[strings.LastIndexByte(words, ' ')+1:]
		_, stderr, code := invoke(t, "", name)
		require.Equal(t, exitUsage, code, words)
		require.Contains(t, stderr, "jobq calls it jobq "+want, words)
		_, rest, err := root.Find(strings.Fields(want))
		require.NoError(t, err, want)
		require.Empty(t, rest, want)
	}
	_, stderr, code := invoke(t, "", "keygen", "--database-url", "postgres://x")
	require.Equal(t, exitUsage, code)
	require.Contains(t, stderr, `--database-url: "jobq keygen" uses no database`)
	for _, topic := range topicNames(root) {
		stdout, _, code := invoke(t, "", "help", topic)
		require.Zero(t, code, topic)
		require.NotEmpty(t, stdout, topic)
	}
}
