package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/format"
	"github.com/jobq-dev/jobq/internal/when"
	"github.com/jobq-dev/jobq/monitor"
)

// shownTicks is how many ticks "schedules show" has.
const shownTicks = 10

// scheduleShown is what "schedules show --json" writes.
type scheduleShown struct {
	monitor.Schedule
	Ticks []monitor.Tick `json:"ticks"` // the latest, newest first
}

func newSchedulesShowCommand(a *app) *cobra.Command {
	command := &cobra.Command{
		Use: "show NAME", Short: "Show a schedule, its latest ticks and their jobs", Args: exactArgs(1),
		Long:    `Show all settings of a schedule, its latest ticks and their jobs. Ticks are kept for 7 days.`,
		Example: "  jobq schedules show report",
		RunE: a.withClient(func(cmd *cobra.Command, args []string, client *jobq.Client) error {
			m := monitor.New(client)
			schedule, err := m.Schedule(cmd.Context(), args[0])
			if err != nil {
				return a.scheduleError(cmd, client, args[0], err)
			}
			ticks, err := m.Ticks(cmd.Context(), args[0], shownTicks)
			if err != nil {
				return err
			}
			if a.json {
				return writeJSON(cmd.OutOrStdout(), scheduleShown{schedule, ticks})
			}
			return writeSchedule(cmd.OutOrStdout(), schedule, ticks)
		}),
	}
	a.addJSONFlag(command)
	return command
}

func writeSchedule(out io.Writer, schedule monitor.Schedule, ticks []monitor.Tick) error {
	now := time.Now()
	fields := newFields(out)
	row := func(name, value string) {
		if value != "" {
			fields.row(name, value)
		}
	}
	duration := func(duration time.Duration) string {
		if duration == 0 {
			return ""
		}
		return when.FormatDuration(duration)
	}
	row("schedule", schedule.Name)
	row("when", format.ScheduleWhen(schedule))
	row("next", format.ScheduleNext(schedule, now))
	row("state", format.ScheduleState(schedule, now))
	row("pause reason", schedule.PauseReason)
	if schedule.Error != "" {
		row("error", fmt.Sprintf("%s (%s, %s in a row)", schedule.Error, ago(*schedule.ErrorAt), format.Count(schedule.Failures, "failure")))
	}
	row("kind", schedule.Kind)
	row("args", string(schedule.Args))
	row("queue", schedule.Queue)
	row("priority", strconv.Itoa(int(schedule.Priority)))
	row("max attempts", strconv.Itoa(schedule.MaxAttempts))
	row("timeout", duration(schedule.Timeout))
	row("backoff base", duration(schedule.BackoffBase))
	row("backoff max", duration(schedule.BackoffMax))
	row("tags", strings.Join(schedule.Tags, ", "))
	row("metadata", string(schedule.Metadata))
	row("partition key", schedule.PartitionKey)
	row("catch up", format.ScheduleCatchUp(schedule))
	row("overlap", string(schedule.Overlap))
	row("source", schedule.Source)
	if err := fields.flush(); err != nil || len(ticks) == 0 {
		return err
	}
	fmt.Fprintln(out)
	t := newTable(out, "TICK", "JOB", "STATE")
	for _, tick := range ticks {
		job, state := format.TickJob(tick)
		t.row(format.InZone(tick.At, schedule.TimeZone), job, state)
	}
	return t.flush()
}

func newSchedulesNextCommand(a *app) *cobra.Command {
	var count int
	command := &cobra.Command{
		Use: "next NAME", Short: "Show when a schedule fires next, by the clocks of its time zone", Args: exactArgs(1),
		Example: "  jobq schedules next report --count 3",
		RunE: a.withClient(func(cmd *cobra.Command, args []string, client *jobq.Client) error {
			m := monitor.New(client)
			schedule, err := m.Schedule(cmd.Context(), args[0])
			if err != nil {
				return a.scheduleError(cmd, client, args[0], err)
			}
			ticks, err := m.NextTicks(cmd.Context(), args[0], count)
			if err != nil {
				return err
			}
			if a.json {
				return writeJSON(cmd.OutOrStdout(), ticks)
			}
			if schedule.PausedAt != nil {
				fmt.Fprintf(cmd.ErrOrStderr(), "note: it is paused, and does not fire at these times\n")
			}
			for _, tick := range ticks {
				fmt.Fprintf(cmd.OutOrStdout(), "%s, %s\n", format.InZone(tick, schedule.TimeZone), format.UntilTick(tick, time.Now()))
			}
			return nil
		}),
	}
	command.Flags().IntVarP(&count, "count", "n", 5, "how many, 1 to 1000")
	a.addJSONFlag(command)
	return command
}
