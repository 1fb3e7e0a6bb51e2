package main

import (
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/format"
	"github.com/jobq-dev/jobq/monitor"
)

func newSchedulesCommand(a *app) *cobra.Command {
	command := &cobra.Command{
		Use:   "schedules",
		Short: "List schedules, which add jobs at times; set and pause them",
		Long: `Schedules add jobs by themselves: by a cron expression in a time zone, or every so often.
A janitor makes them fire; "jobq worker" has one inside. docs/schedules.md is a guide.`,
		Example: `  jobq schedules add report --cron '0 9 * * mon' --tz Asia/Tokyo --kind report
  jobq schedules list
  jobq schedules next report
  jobq schedules pause report --reason "until the mail server is back"`,
	}
	list := &cobra.Command{
		Short: "List schedules with their next ticks and what is wrong with them", Args: exactArgs(0),
		Example: "  jobq schedules list --json",
		RunE:    a.withClient(a.listSchedules),
	}
	a.addJSONFlag(list)
	return asList(command, list, newSchedulesAddCommand(a), newSchedulesApplyCommand(a), newSchedulesShowCommand(a), newSchedulesNextCommand(a),
		newSchedulesPauseCommand(a), newSchedulesResumeCommand(a), newSchedulesRunCommand(a), newSchedulesRemoveCommand(a))
}

func newSchedulesPauseCommand(a *app) *cobra.Command {
	var reason string
	command := &cobra.Command{
		Use: "pause NAME", Short: "Stop a schedule; jobs that it has added are not touched", Args: exactArgs(1),
		Example: `  jobq schedules pause report --reason "until the mail server is back"`,
		RunE: a.withClient(func(cmd *cobra.Command, args []string, client *jobq.Client) error {
			auditID, err := a.operator(client).PauseSchedule(cmd.Context(), args[0], reason)
			if err != nil {
				return a.scheduleError(cmd, client, args[0], err)
			}
			return a.sayChanged(cmd, changed{Schedule: args[0], AuditID: auditID}, "paused")
		}),
	}
	command.Flags().StringVar(&reason, "reason", "", "why, for others to read")
	a.addJSONFlag(command)
	return command
}

func newSchedulesResumeCommand(a *app) *cobra.Command {
	command := &cobra.Command{
		Use: "resume NAME", Short: "Let a schedule fire again, from now on", Args: exactArgs(1),
		Example: "  jobq schedules resume report",
		RunE: a.withClient(func(cmd *cobra.Command, args []string, client *jobq.Client) error {
			auditID, err := a.operator(client).ResumeSchedule(cmd.Context(), args[0])
			if err != nil {
				return a.scheduleError(cmd, client, args[0], err)
			}
			return a.sayChanged(cmd, changed{Schedule: args[0], AuditID: auditID}, "running")
		}),
	}
	a.addJSONFlag(command)
	return command
}

func newSchedulesRemoveCommand(a *app) *cobra.Command {
	command := &cobra.Command{
		Use: "rm NAME", Short: "Forget a schedule; jobs that it has added stay", Args: exactArgs(1),
		Example: "  jobq schedules rm report",
		RunE: a.withClient(func(cmd *cobra.Command, args []string, client *jobq.Client) error {
			auditID, err := a.operator(client).RemoveSchedule(cmd.Context(), args[0])
			if err != nil {
				return a.scheduleError(cmd, client, args[0], err)
			}
			return a.sayChanged(cmd, changed{Schedule: args[0], AuditID: auditID}, "removed")
		}),
	}
	a.addJSONFlag(command)
	return command
}

func newSchedulesRunCommand(a *app) *cobra.Command {
	command := &cobra.Command{
		Use: "run NAME", Short: "Add the job of a schedule now, also when it is paused", Args: exactArgs(1),
		Long:    `Add the job of a schedule now, also when it is paused. Its ticks stay as they are. The id of the job is printed.`,
		Example: "  jobq schedules run report",
		RunE: a.withClient(func(cmd *cobra.Command, args []string, client *jobq.Client) error {
			id, err := a.operator(client).RunSchedule(cmd.Context(), args[0])
			if err != nil {
				return a.scheduleError(cmd, client, args[0], err)
			}
			return a.printEnqueued(cmd.OutOrStdout(), []jobq.Enqueued{{ID: id}})
		}),
	}
	a.addJSONFlag(command)
	return command
}

// scheduleError offers a similar name where there is no schedule of the one given.
func (a *app) scheduleError(cmd *cobra.Command, client *jobq.Client, name string, err error) error {
	if !errors.Is(err, jobq.ErrNotFound) {
		return err
	}
	hint := ""
	if schedules, listErr := monitor.New(client).Schedules(cmd.Context(), "", schedulesPage); listErr == nil { // only the hint depends on it
		var names []string
		for _, schedule := range schedules {
			names = append(names, schedule.Name)
		}
		hint = didYouMean(name, names)
	}
	if hint == "" {
		hint = `; "jobq schedules list" shows those there are`
	}
	return notFoundf("no schedule %q%s", name, hint)
}

// schedulesPage is how many schedules one question asks for.
const schedulesPage = 1000

func (a *app) listSchedules(cmd *cobra.Command, _ []string, client *jobq.Client) error {
	schedules := []monitor.Schedule{}
	for after := ""; ; {
		page, err := monitor.New(client).Schedules(cmd.Context(), after, schedulesPage)
		if err != nil {
			return err
		}
		schedules = append(schedules, page...)
		if len(page) < schedulesPage {
			break
		}
		after = page[len(page)-1].Name
	}
	if a.json {
		return writeJSON(cmd.OutOrStdout(), schedules)
	}
	now := time.Now()
	t := newTable(cmd.OutOrStdout(), "SCHEDULE", "WHEN", "KIND", "QUEUE", "PARTITION KEY", "NEXT", "LAST", "STATE")
	for _, schedule := range schedules {
		last := ""
		if schedule.LastTickAt != nil {
			last = ago(*schedule.LastTickAt)
		}
		t.row(schedule.Name, format.ScheduleWhen(schedule), schedule.Kind, schedule.Queue, schedule.PartitionKey, format.ScheduleNext(schedule, now), last, cut(format.ScheduleState(schedule, now)))
	}
	return t.flush()
}
