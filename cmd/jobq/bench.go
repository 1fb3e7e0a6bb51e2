package main

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/jobq-dev/jobq/cmd/jobq/internal/bench"
	"github.com/jobq-dev/jobq/internal/measure"
)

func newBenchCommand(a *app) *cobra.Command {
	command := &cobra.Command{
		Use:   "bench",
		Short: "Measure jobq on your database, in a schema of its own",
		Long: `Measure jobq on your database and its settings. Each bench makes a schema of its own,
` + bench.SchemaPrefix + `…, and removes it when it ends or is interrupted; your own jobs are not
touched, but the server is kept busy. The jobs do nothing, so that the figures are jobq's
cost. Server CPU and WAL are those of the whole server: measure on a quiet one.`,
		Example: `  jobq bench drain
  jobq bench drain --jobs 1000000 --workers 2 --slots 500 --json
  jobq bench held --duration 10m`,
	}
	for _, scenario := range bench.Scenarios() {
		command.AddCommand(newBenchScenarioCommand(a, scenario))
	}
	return asGroup(command)
}

func newBenchScenarioCommand(a *app, scenario bench.Scenario) *cobra.Command {
	config := scenario.Default
	command := &cobra.Command{
		Use: scenario.Name, Short: scenario.Short, Long: scenario.Long, Args: exactArgs(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			collectSeldom() // as `jobq worker` does
			if cmd.Flags().Changed("schema") {
				return usagef("a bench makes a schema of its own: leave --schema out")
			}
			if err := checkBench(scenario, config); err != nil {
				return err
			}
			var err error
			if config.Pool, err = a.poolConfig(); err != nil {
				return err
			}
			config.Progress = cmd.ErrOrStderr()
			result, err := bench.Run(cmd.Context(), scenario, config)
			if err != nil {
				return err
			}
			if a.json {
				return writeJSON(cmd.OutOrStdout(), result)
			}
			return writeBench(cmd.OutOrStdout(), result)
		},
	}
	addBenchFlags(command, scenario.Flags, &config)
	a.addJSONFlag(command)
	return command
}

// addBenchFlags adds the flags that a scenario has.
func addBenchFlags(command *cobra.Command, names []string, config *bench.Config) {
	flags := command.Flags()
	for name, flag := range map[string]struct {
		value *int
		usage string
	}{
		"jobs":    {&config.Jobs, "jobs to run"},
		"workers": {&config.Workers, "workers, all in this process"},
		"slots":   {&config.Slots, "slots of each worker: jobs at once (default as workers have)"},
		"writers": {&config.Writers, "connections that enqueue at once"},
		"batch":   {&config.Batch, "jobs in one call, where many are enqueued"},
		"rate":    {&config.Rate, "jobs to enqueue a second"},
		"rows":    {&config.Rows, "jobs that are in the way"},
		"samples": {&config.Samples, "jobs to time"},
	} {
		if slices.Contains(names, name) {
			flags.IntVar(flag.value, name, *flag.value, flag.usage)
		}
	}
	if slices.Contains(names, "duration") {
		durationVar(flags, &config.Duration, "duration", config.Duration, "how long to measure, for each line of the result")
	}
}

// checkBench refuses numbers that make no sense. Slots may be 0: the default.
func checkBench(scenario bench.Scenario, config bench.Config) error {
	for name, value := range map[string]int{
		"jobs": config.Jobs, "workers": config.Workers, "writers": config.Writers, "batch": config.Batch,
		"rate": config.Rate, "rows": config.Rows, "samples": config.Samples, "duration": int(config.Duration),
	} {
		if slices.Contains(scenario.Flags, name) && value < 1 {
			return usagef("--%s must be positive", name)
		}
	}
	if config.Slots < 0 {
		return usagef("--slots must not be negative")
	}
	return nil
}

// writeBench shows a result to people: a table, what limits, and charts.
func writeBench(out io.Writer, result *bench.Result) error {
	var settings []string
	for _, setting := range result.Server {
		if slices.Contains([]string{"server_version", "shared_buffers", "synchronous_commit", "fsync"}, setting.Name) {
			settings = append(settings, setting.Name+" "+setting.Value)
		}
	}
	fmt.Fprintf(out, "%s; a round trip takes %.2f ms, a commit %.2f ms\n\n", strings.Join(settings, ", "), result.RoundTripMs, result.CommitMs)
	columns := benchColumns(result.Cases)
	header := []string{strings.ToUpper(result.Bench)}
	for _, column := range columns {
		header = append(header, strings.TrimSpace(strings.ToUpper(column.Name)+" "+column.Unit))
	}
	t := newTable(out, header...)
	for _, c := range result.Cases {
		cells := []string{c.Name}
		for _, column := range columns {
			cells = append(cells, benchCell(c, column))
		}
		t.row(cells...)
	}
	if err := t.flush(); err != nil {
		return err
	}
	for _, c := range result.Cases {
		if c.Limit != "" {
			fmt.Fprintf(out, "\n%s: limited by %s\n", c.Name, c.Limit)
		}
	}
	writeBenchCharts(out, result.Cases)
	return nil
}

// benchColumns are the figures that any case has, in order.
func benchColumns(cases []bench.Case) []bench.Figure {
	var columns []bench.Figure
	for _, c := range cases {
		for _, figure := range c.Figures {
			if !slices.ContainsFunc(columns, func(known bench.Figure) bool { return known.Name == figure.Name }) {
				columns = append(columns, figure)
			}
		}
	}
	return columns
}

func benchCell(c bench.Case, column bench.Figure) string {
	for _, figure := range c.Figures {
		if figure.Name == column.Name {
			if figure.Value >= 1000 {
				return strconv.FormatFloat(figure.Value, 'f', 0, 64)
			}
			return strconv.FormatFloat(figure.Value, 'f', 2, 64)
		}
	}
	return "-"
}

// writeBenchCharts draws the rates over time, all to one scale.
func writeBenchCharts(out io.Writer, cases []bench.Case) {
	top := 0.0
	for _, c := range cases {
		if c.Rates != nil {
			top = max(top, measure.Top(c.Rates.Fit(60)))
		}
	}
	for _, c := range cases {
		if c.Rates != nil && len(c.Rates.Values) > 1 {
			fmt.Fprintf(out, "\n%s, jobs/s over time\n%s", c.Name, measure.Chart(*c.Rates, top))
		}
	}
}
