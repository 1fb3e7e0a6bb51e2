package main

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/catalogue"
	"github.com/jobq-dev/jobq/internal/config"
	"github.com/jobq-dev/jobq/internal/pgtest"
	"github.com/jobq-dev/jobq/monitor"
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
	help := settingsHelp(catalogue.QueueSettings())
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

// kindSettingExamples is a value of each setting of a kind that is not its default.
var kindSettingExamples = map[string]string{
	"queue": "post", "priority": "-5", "max_attempts": "3", "timeout": "1m", "backoff_base": "10s", "backoff_max": "2h",
	"owner": "team-mail", "runbook": "https://wiki.example.com/mail?a=b",
}

// Each setting of a kind is set, shown, listed, declared in jobq.yaml, found to be so already, and undone. A setting that
// is added is tested by its example.
func TestKindSettings(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	command := func(want int, args ...string) string {
		t.Helper()
		out, stderr, code := invoke(t, "", append(args, "--database-url", url)...)
		require.Equal(t, want, code, "%s: %s", args, stderr)
		return out + stderr
	}
	help := settingsHelp(catalogue.KindSettings())
	for _, setting := range catalogue.KindSettings() {
		value := kindSettingExamples[setting.Name]
		require.NotEmpty(t, value, "give an example of %s", setting.Name)
		require.Contains(t, help, "  "+setting.Name+" ", "jobq kinds set --help")
		kind, assignment := "k_"+setting.Name, setting.Name+"="+value
		said := command(exitOK, "kinds", "set", kind, assignment)
		require.Contains(t, said, "kind "+kind+" is set; take it back with: jobq undo ")
		require.Contains(t, said, `note: before this, no kind "`+kind+`" is known`)
		shown := fmt.Sprintf(`(?m)^%s +%s$`, setting.Name, regexp.QuoteMeta(value))
		require.Regexp(t, shown, command(exitOK, "kinds", "show", kind))
		require.Contains(t, command(exitOK, "kinds"), assignment)
		require.Equal(t, "kind "+kind+" is already set\n", command(exitOK, "kinds", "set", kind, assignment))

		file, err := config.Parse([]byte(fmt.Sprintf("kinds: {%s: {command: \"true\", settings: {%s: %q}}}", kind, setting.Name, value)))
		require.NoError(t, err, setting.Name)
		require.NotEqual(t, operator.KindChange{}, file.Kinds[kind].Settings.Change, setting.Name)
		defaults := monitor.DefaultKindSettings()
		command(exitOK, "kinds", "set", kind, setting.Name+"="+setting.Text(&defaults))
		require.Contains(t, command(exitNotFound, "kinds", "show", kind), "no kind", "it has no settings any more")
		undo := regexp.MustCompile(`jobq undo (\d+)`).FindStringSubmatch(said)
		require.Contains(t, command(exitConflict, "undo", undo[1]), "the settings of kind "+kind+" have been changed meanwhile")
	}
	require.Len(t, kindSettingExamples, len(catalogue.KindSettings()))
	defaults := monitor.DefaultKindSettings()
	require.Empty(t, catalogue.KindSet(&defaults))
}

// A value that cannot be is refused with what it must be, and a misspelt setting with a similar one. JSON has all settings.
func TestKindsSetRefuses(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	for assignment, want := range map[string]string{
		"max_attempt=3":                     "did you mean max_attempts?",
		"max_attempts=0":                    "max_attempts: must be a number of at least 1",
		"max_attempts=40000":                "max_attempts must be 1 to 32767, not 40000",
		"priority=40000":                    "priority: must be a whole number, -32768 to 32767, not \"40000\"",
		"timeout=5":                         "timeout: must be a duration",
		"owner=":                            "owner: must be 1 to 255 characters, or none",
		"queue=" + strings.Repeat("q", 129): "queue: must be 1 to 128 characters",
		"mail":                              "must be a setting and its value",
	} {
		_, stderr, code := invoke(t, "", "kinds", "set", "mail", assignment, "--database-url", url)
		require.Equal(t, exitUsage, code, assignment)
		require.Contains(t, stderr, want)
	}
	out, stderr, code := invoke(t, "", "kinds", "set", "mail", "timeout=90s", "owner=team", "--database-url", url, "--json")
	require.Zero(t, code, stderr)
	require.JSONEq(t, `{"kind": "mail", "audit_id": 1, "changed": true}`, out)
	out, stderr, code = invoke(t, "", "kinds", "show", "mail", "--database-url", url, "--json")
	require.Zero(t, code, stderr)
	require.JSONEq(t, `{"name": "mail", "workers": 0, "available": 0, "completed": 0, "failed": 0, "retried": 0, "lost": 0, "crashes": 0, "queue": "default",
		"priority": 0, "max_attempts": 25, "timeout_ns": 90000000000, "backoff_base_ns": 1000000000, "backoff_max_ns": 86400000000000, "owner": "team"}`, out)
	out, stderr, code = invoke(t, "", "undo", "1", "--database-url", url)
	require.Zero(t, code, stderr)
	require.NotContains(t, out, "nothing")
	_, _, code = invoke(t, "", "kinds", "show", "mail", "--database-url", url)
	require.Equal(t, exitNotFound, code)
}

// docs/configuration.md has all settings. Method: its tables are made of them; JOBQ_GOLDEN=write writes them.
func TestQueueSettingsDocs(t *testing.T) {
	t.Parallel()
	const path = "../../docs/configuration.md"
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	queue, kind := catalogue.Defaults(), monitor.DefaultKindSettings()
	page := withTable(t, string(content), "queue", settingsTable(catalogue.QueueSettings(), &queue))
	page = withTable(t, page, "kind", settingsTable(catalogue.KindSettings(), &kind))
	if os.Getenv("JOBQ_GOLDEN") == "write" {
		require.NoError(t, os.WriteFile(path, []byte(page), 0o600))
		return
	}
	require.Equal(t, page, string(content), "JOBQ_GOLDEN=write writes it anew")
}

// settingsTable are settings as a table of a page.
func settingsTable[Change, Stored any](settings []catalogue.Setting[Change, Stored], defaults *Stored) string {
	var table strings.Builder
	table.WriteString("\n| setting | | values | default |\n|---|---|---|---|\n")
	for _, setting := range settings {
		fmt.Fprintf(&table, "| `%s` | %s | %s | %s |\n", setting.Name, setting.Help, setting.Takes, setting.Text(defaults))
	}
	table.WriteString("\n")
	return table.String()
}

// withTable is the page with this table between the marks of the settings of queues or kinds.
func withTable(t *testing.T, page, of, table string) string {
	t.Helper()
	begin, end := "<!-- "+of+" settings: JOBQ_GOLDEN=write go test ./cmd/jobq -run QueueSettings -->\n", "<!-- /"+of+" settings -->"
	before, rest, found := strings.Cut(page, begin)
	require.True(t, found, of)
	_, after, found := strings.Cut(rest, end)
	require.True(t, found, of)
	return before + begin + table + end + after
}
