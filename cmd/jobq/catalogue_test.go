package main

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/catalogue"
	"github.com/jobq-dev/jobq/internal/config"
	"github.com/jobq-dev/jobq/internal/pgtest"
	"github.com/jobq-dev/jobq/operator"
)

// settingExamples is a value of each setting that is not its default, with what it needs beside it.
var settingExamples = map[string]string{
	"limit": "limit=3", "rate": "rate=100/s", "burst": "rate=100/s burst=20", "key_limit": "key_limit=2", "key_order": "key_limit=1 key_order=stop",
	"key_rate": "key_rate=5/s", "key_rate_burst": "key_rate=5/s key_rate_burst=2", "key_separator": "key_separator=/", "age_after": "age_after=10m",
	"lease": "lease=2m extend_every=20s", "extend_every": "extend_every=10s", "heartbeat": "heartbeat=progress", "stale_grace": "stale_grace=1m", "redelivery": "redelivery=head",
	"redelivery_delay": "redelivery_delay=5s", "reset_on_reap": "reset_on_reap=yes", "max_lost": "max_lost=20", "retention": "retention=90d", "failed_retention": "failed_retention=365d",
}

// Each setting of the catalogue is set, shown, listed, declared in jobq.yaml, found to be so already, and undone; and it is
// documented. A setting that is added is tested by its example.
func TestQueueSettings(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	command := func(want int, args ...string) string {
		t.Helper()
		out, stderr, code := invoke(t, "", append(args, "--database-url", url)...)
		require.Equal(t, want, code, "%s: %s", args, stderr)
		return out
	}
	help := queueSettingsHelp()
	for _, setting := range catalogue.QueueSettings() {
		example := strings.Fields(settingExamples[setting.Name])
		require.NotEmpty(t, example, "give an example of %s", setting.Name)
		name, value, _ := strings.Cut(example[len(example)-1], "=")
		if setting.Name == "lease" {
			name, value, _ = strings.Cut(example[0], "=")
		}
		require.Equal(t, setting.Name, name)
		require.Contains(t, help, "  "+name+" ", "jobq queues set --help")

		queue := "q_" + name
		set := append([]string{"queues", "set", queue}, example...)
		said := command(exitOK, set...)
		shown := fmt.Sprintf(`(?m)^%s +%s$`, name, value)
		require.Regexp(t, shown, command(exitOK, "queues", "show", queue))
		require.Contains(t, command(exitOK, "queues"), name+"="+value)
		require.Contains(t, command(exitOK, set...), "is already set")

		file, err := config.Parse([]byte(fmt.Sprintf("queues:\n  %s: {%s}\n", queue, strings.ReplaceAll(strings.Join(example, ", "), "=", ": "))))
		require.NoError(t, err, name)
		require.NotEqual(t, operator.QueueChange{}, file.Queues[queue].Change, name)
		undo := strings.Fields(said[strings.Index(said, "undo"):])
		command(exitOK, undo...)
		require.NotRegexp(t, shown, command(exitOK, "queues", "show", queue))
	}
	require.Len(t, settingExamples, len(catalogue.QueueSettings()))
	defaults := catalogue.Defaults()
	require.Empty(t, catalogue.Set(&defaults))
}

// docs/configuration.md has all settings. Method: its table is made of them; JOBQ_GOLDEN=write writes it.
func TestQueueSettingsDocs(t *testing.T) {
	t.Parallel()
	const path, begin, end = "../../docs/configuration.md", "<!-- queue settings: JOBQ_GOLDEN=write go test ./cmd/jobq -run QueueSettings -->\n", "<!-- /queue settings -->"
	var table strings.Builder
	table.WriteString("\n| setting | | values | default |\n|---|---|---|---|\n")
	defaults := catalogue.Defaults()
	for _, setting := range catalogue.QueueSettings() {
		fmt.Fprintf(&table, "| `%s` | %s | %s | %s |\n", setting.Name, setting.Help, setting.Takes, setting.Text(&defaults))
	}
	table.WriteString("\n")
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	before, rest, found := strings.Cut(string(content), begin)
	require.True(t, found)
	_, after, found := strings.Cut(rest, end)
	require.True(t, found)
	page := before + begin + table.String() + end + after
	if os.Getenv("JOBQ_GOLDEN") == "write" {
		require.NoError(t, os.WriteFile(path, []byte(page), 0o600))
		return
	}
	require.Equal(t, page, string(content), "JOBQ_GOLDEN=write writes it anew")
}
