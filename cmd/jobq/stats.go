package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/format"
	"github.com/jobq-dev/jobq/internal/when"
	"github.com/jobq-dev/jobq/monitor"
)

// overview is what `jobq stats` shows.
type overview struct {
	At           time.Time            `json:"at"`
	StandbyLagNs *time.Duration       `json:"standby_lag_ns,omitempty"` // on a hot standby
	SpanNs       time.Duration        `json:"span_ns"`
	Queues       []monitor.Queue      `json:"queues"`
	Ended        []monitor.QueueStats `json:"ended"`
}

func newStatsCommand(a *app) *cobra.Command {
	var span, watch time.Duration
	var match string
	command := &cobra.Command{
		Use:   "stats",
		Short: "Show what waits, runs and has ended, by queue or of a sweep",
		Long: `Show what waits, runs and has ended, by queue.

With --filter, show the jobs that match by their state, such as those of a sweep with one tag:
how many a second have ended lately, how long the open ones take at this rate, and the CPU time
and the peak memory of their programs, in all runs that are recorded. It reads all these jobs.

` + filterHelp,
		Example: `  jobq stats --since 24h
  jobq stats --watch            # again every second, until interrupted
  jobq stats --watch=5s --json  # one JSON object each time
  jobq stats --filter tag:sweep1`,
		Args: exactArgs(0),
		RunE: a.withClient(func(cmd *cobra.Command, _ []string, client *jobq.Client) error {
			given := cmd.Flags().Changed
			switch {
			case span < time.Minute:
				return usagef("--since must be at least 1m, not %s", span)
			case given("filter") && given("since"):
				return usagef("--since is not for --filter: write age:<1h in the filter")
			case given("filter") && strings.TrimSpace(match) == "":
				return usagef("--filter is empty: write id:>0 if you mean all jobs")
			}
			write := func() error { return a.writeOverview(cmd, client, span) }
			if given("filter") {
				write = func() error { return a.writeSummary(cmd, client, match) }
			}
			if watch > 0 {
				return watchOverview(cmd, watch, write)
			}
			return write()
		}),
	}
	flags := command.Flags()
	durationVar(flags, &span, "since", time.Hour, "look back this far")
	flags.StringVar(&match, "filter", "", "show the jobs that match, such as tag:sweep1, by state, with a rate and their usage")
	durationVar(flags, &watch, "watch", 0, "show it again this often, until interrupted")
	flags.Lookup("watch").NoOptDefVal = "1s"
	a.addJSONFlag(command)
	return command
}

// watchOverview writes it again and again until it is interrupted, which can be
// in the middle of a query.
func watchOverview(cmd *cobra.Command, every time.Duration, write func() error) error {
	for {
		err := write()
		if cmd.Context().Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		select {
		case <-cmd.Context().Done():
			return nil
		case <-time.After(every):
		}
	}
}

func (a *app) writeOverview(cmd *cobra.Command, client *jobq.Client, span time.Duration) error {
	session, err := monitor.New(client).Session(cmd.Context())
	if err != nil {
		return err
	}
	queues, err := monitor.New(client).Queues(cmd.Context())
	if err != nil {
		return err
	}
	ended, err := monitor.New(client).Stats(cmd.Context(), span)
	if err != nil {
		return err
	}
	if a.json {
		return writeJSON(cmd.OutOrStdout(), overview{At: time.Now().UTC(), StandbyLagNs: session.StandbyLag, SpanNs: span, Queues: queues, Ended: ended})
	}
	if session.StandbyLag != nil {
		fmt.Fprintf(cmd.ErrOrStderr(), "note: this is a standby, %s behind its primary server\n", format.Ago(*session.StandbyLag))
	}
	byQueue := make(map[string]monitor.QueueStats, len(ended))
	for _, stats := range ended {
		byQueue[stats.Queue] = stats
	}
	known := make(map[string]bool, len(queues))
	for _, queue := range queues {
		known[queue.Name] = true
	}
	for _, stats := range ended {
		if !known[stats.Queue] {
			queues = append(queues, monitor.Queue{Name: stats.Queue, AvailableMax: jobq.CountMax})
		}
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%s, ended within %s\n", time.Now().UTC().Format(time.RFC3339), when.FormatDuration(span))
	t := newTable(cmd.OutOrStdout(), "QUEUE", "AVAILABLE", "SCHEDULED", "RUNNING", "COMPLETED", "FAILED", "RETRIED", "LOST",
		"CANCELLED", "AVG RUN", "AVG WAIT")
	for _, queue := range queues {
		stats := byQueue[queue.Name]
		t.row(queue.Name, format.Available(queue), format.CappedAt(queue.Scheduled, jobq.CountMax), format.Number(queue.Running), format.Number(stats.Completed),
			format.Number(stats.Failed), format.Number(stats.Retried), format.Number(stats.Lost), format.Number(stats.Cancelled),
			average(stats.RunTime, stats.Runs(), format.AtMost), average(stats.WaitTime, stats.Completed, format.Took))
	}
	return t.flush()
}

func average(sum time.Duration, count int64, write func(time.Duration) string) string {
	if count == 0 {
		return "-"
	}
	return write(sum / time.Duration(count))
}
