package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/format"
	"github.com/jobq-dev/jobq/monitor"
)

// filterStats is what `jobq stats --filter` shows.
type filterStats struct {
	At     time.Time `json:"at"`
	Filter string    `json:"filter"`
	*monitor.Summary
	Usage monitor.SummaryUsage `json:"usage"`
}

// writeSummary writes what has become of the jobs that match.
func (a *app) writeSummary(cmd *cobra.Command, client *jobq.Client, match string) error {
	show, filter := monitor.New(client), jobq.Filter{Match: match}
	summary, err := show.Summary(cmd.Context(), filter)
	if err != nil {
		return err
	}
	usage, err := show.Usage(cmd.Context(), filter)
	if err != nil {
		return err
	}
	if a.json {
		return writeJSON(cmd.OutOrStdout(), filterStats{time.Now().UTC(), match, summary, usage})
	}
	if summary.Jobs == 0 {
		fmt.Fprintln(cmd.ErrOrStderr(), "no job matches")
	}
	var header, row []string
	for _, state := range jobq.States() {
		header, row = append(header, strings.ToUpper(string(state))), append(row, format.Number(summary.States[state]))
	}
	t := newTable(cmd.OutOrStdout(), append(header, "JOBS", "ENDED/S", "TIME LEFT", "CPU", "PEAK MEMORY")...)
	row = append(row, format.Number(summary.Jobs), ratePerSecond(summary), timeLeft(summary), "-", "-")
	if usage.Runs > 0 {
		row[len(row)-2], row[len(row)-1] = format.Took(usage.CPUTime), fmt.Sprintf("%.1f MiB", float64(usage.MaxRSSBytes)/(1<<20))
	}
	t.row(row...)
	return t.flush()
}

// ratePerSecond is how many have ended a second lately, with the digits that a few in an hour need.
func ratePerSecond(summary *monitor.Summary) string {
	switch rate := summary.EndedPerSecond; {
	case rate == 0:
		return "-"
	case rate < 0.1:
		return fmt.Sprintf("%.2g", rate)
	default:
		return format.Rate(rate)
	}
}

// timeLeft is how long the open jobs take at the present rate.
func timeLeft(summary *monitor.Summary) string {
	switch {
	case summary.Open == 0:
		return "-"
	case summary.Left == 0:
		return "unknown"
	}
	return "about " + format.Ago(summary.Left)
}

// stateCounts are the states that have jobs: "12 running, 300 available".
func stateCounts(summary *monitor.Summary) string {
	var counts []string
	for _, state := range jobq.States() {
		if count := summary.States[state]; count > 0 {
			counts = append(counts, format.Number(count)+" "+string(state))
		}
	}
	return strings.Join(counts, ", ")
}
