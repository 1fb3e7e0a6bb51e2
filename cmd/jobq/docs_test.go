package main

import (
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/cmd/jobq/internal/crashtest"
	"github.com/jobq-dev/jobq/internal/doctor"
	"github.com/jobq-dev/jobq/internal/when"
	"github.com/jobq-dev/jobq/monitor"
	"github.com/jobq-dev/jobq/operator"
)

// docs/cli.md says what the commands and their JSON are. Method: it is made
// of them, and compared; JOBQ_GOLDEN=write writes it.
func TestCLIDocs(t *testing.T) {
	t.Parallel()
	var page strings.Builder
	page.WriteString("# The command line\n\nGenerated from the commands themselves: `JOBQ_GOLDEN=write go test ./cmd/jobq -run CLIDocs`.\n\n")
	page.WriteString("Durations on the command line are numbers with a unit, such as 90s, 2h30m, 30d or 1w. Times are such as " + when.Forms + ";\n" +
		"those without a zone are in that of the machine, and the answer says which that is.\n\n")
	page.WriteString("Data goes to standard output and everything else to standard error. Times in JSON are RFC 3339 in UTC, durations are\n" +
		"integers whose names end in their unit, and ids are numbers of up to 63 bits: read them as such, and not as floats.\n" +
		"Fields are added in time, and none is renamed or removed within a major version.\n")
	root := newRootCommand(&app{schema: "jobq"})
	describe(&page, root)
	page.WriteString("\n## JSON\n\nFields marked ? are left out where they do not apply.\n")
	for _, form := range []struct {
		title string
		value any
	}{
		{"`jobq list --json`, of which `-o jsonl` and `--watch` write the jobs, one a line", jobq.Page{}},
		{"A job: in `jobq list`, and with `runs` in `jobq show ID --json`", jobq.Job{}},
		{"A run, in `jobq show ID --json`", monitor.Attempt{}},
		{"A job of `jobq show ID --graph --json`", monitor.GraphJob{}},
		{"A job of `jobq why --json`", jobReasons{}},
		{"A reason, in `jobq why --json`", toldReason{}},
		{"The facts of a reason, in `jobq why --json`: docs/sql.md says which reason has which", monitor.ReasonFacts{}},
		{"The job with which it began, in `jobq why --json`", monitor.ReasonCause{}},
		{"A job that has ended, in `jobq wait` and `jobq enqueue --wait --json`", jobq.Ended{}},
		{"`jobq stats --json`, and again and again with `--watch`", overview{}},
		{"A queue, in `jobq stats --json` and `jobq queues list --json`", monitor.Queue{}},
		{"`jobq queues keys NAME --json`", monitor.Keys{}},
		{"A partition key, in `jobq queues keys NAME --json`", monitor.Key{}},
		{"What ended of a queue, in `jobq stats --json`", monitor.QueueStats{}},
		{"A kind, in `jobq kinds list --json`", monitor.Kind{}},
		{"What came of `jobq queues set|pause|resume`, `jobq kinds pause|resume` and `jobq schedules add|pause|resume|rm`, with `--json`", changed{}},
		{"A schedule, in `jobq schedules list --json`, and with `ticks` in `jobq schedules show --json`", monitor.Schedule{}},
		{"A tick, in `jobq schedules show --json`", monitor.Tick{}},
		{"What came of `jobq schedules apply --json`", operator.Declared{}},
		{"`jobq errors --json`", monitor.Failures{}},
		{"A group of failures, in `jobq errors --json`", monitor.Failure{}},
		{"`jobq errors show GROUP --json`", failureShown{}},
		{"A worker, in `jobq workers --json`", monitor.Worker{}},
		{"An action, in `jobq audit --json`", monitor.AuditEntry{}},
		{"The settings of all queues, in `jobq settings --json` and with `audit_id` in `jobq settings set --json`", monitor.Settings{}},
		{"What came of `jobq export --dir --json`", exported{}},
		{"A day of it", exportedDay{}},
		{"A line of an export", exportLine{}},
		{"Its first line", exportBegin{}},
		{"A run, in an export", monitor.DayAttempt{}},
		{"Its last line", exportEnd{}},
		{"What came of an action on jobs named by id, in `jobq requeue|cancel|delete|edit|undo --json`", operator.Acted{}},
		{"One of its jobs", operator.ActedJob{}},
		{"The jobs that were cancelled with these, in `jobq requeue --with-dependents --json`", operator.ActedDependents{}},
		{"What came of an action by filter, with `--json`", operator.BulkProgress{}},
		{"`jobq doctor --json`", doctor.Report{}},
		{"A finding of it, of severity critical, warning or note", doctor.Finding{}},
		{"A check that it could not do, or only in part", doctor.Skipped{}},
		{"`jobq crash-test --json`", crashtest.Result{}},
		{"A job of it for which something is wrong", crashtest.Job{}},
		{"A named database, in `jobq contexts --json`", contextInfo{}},
	} {
		fmt.Fprintf(&page, "\n### %s\n\n```text\n", form.title)
		fields(&page, reflect.TypeOf(form.value))
		page.WriteString("```\n")
	}
	const path = "../../docs/cli.md"
	if os.Getenv("JOBQ_GOLDEN") == "write" {
		require.NoError(t, os.WriteFile(path, []byte(page.String()), 0o600))
	}
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, page.String(), string(content), "JOBQ_GOLDEN=write writes it anew")
}

// describe writes a command and those below it.
func describe(page *strings.Builder, command *cobra.Command) {
	if command.Hidden || command.Name() == "help" || command.Name() == "completion" {
		return
	}
	fmt.Fprintf(page, "\n## %s\n\n", command.CommandPath())
	text := command.Long
	if text == "" {
		text = command.Short + "."
	}
	fmt.Fprintf(page, "%s\n\n    %s\n", indentBlocks(text), command.UseLine())
	if command.Example != "" {
		fmt.Fprintf(page, "\n%s\n", indentExamples(command.Example))
	}
	flags := command.LocalNonPersistentFlags()
	if command.HasPersistentFlags() {
		flags = command.PersistentFlags()
	}
	if usage := strings.TrimRight(flags.FlagUsagesWrapped(helpWidth), "\n"); usage != "" {
		fmt.Fprintf(page, "\n```\n%s\n```\n", usage)
	}
	for _, child := range command.Commands() {
		describe(page, child)
	}
}

// indentBlocks makes lines that begin with two blanks into code.
func indentBlocks(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, "  ") {
			lines[i] = "  " + line
		}
	}
	return strings.Join(lines, "\n")
}

func indentExamples(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = "    " + strings.TrimPrefix(line, "  ")
	}
	return strings.Join(lines, "\n")
}

// fields lists the fields of a struct as encoding/json writes them.
func fields(page *strings.Builder, of reflect.Type) {
	for i := range of.NumField() {
		field := of.Field(i)
		tag := field.Tag.Get("json")
		if tag == "" && field.Anonymous {
			fields(page, field.Type)
			continue
		}
		if !field.IsExported() {
			continue
		}
		name, options, _ := strings.Cut(tag, ",")
		if strings.Contains(options, "omitempty") {
			name += " ?"
		}
		fmt.Fprintf(page, "%-24s %s\n", name, typeName(field.Type))
	}
}

func typeName(of reflect.Type) string {
	switch of {
	case reflect.TypeFor[time.Time](), reflect.TypeFor[*time.Time]():
		return "time"
	case reflect.TypeFor[time.Duration]():
		return "nanoseconds"
	case reflect.TypeFor[json.RawMessage]():
		return "any JSON"
	}
	switch of.Kind() {
	case reflect.String:
		return "text"
	case reflect.Bool:
		return "true or false"
	case reflect.Slice:
		return "list of " + typeName(of.Elem())
	case reflect.Pointer:
		return typeName(of.Elem())
	case reflect.Map:
		return typeName(of.Elem()) + " by name"
	case reflect.Struct:
		return strings.ToLower(of.Name())
	default:
		return "number"
	}
}
