package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/format"
	"github.com/jobq-dev/jobq/internal/printable"
	"github.com/jobq-dev/jobq/monitor"
)

func newSchedulesAddCommand(a *app) *cobra.Command {
	var schedule jobq.Schedule
	var args, metadata, catchUp, overlap string
	command := &cobra.Command{
		Use:   "add NAME --kind KIND {--cron WHEN | --every DURATION}",
		Short: "Add a schedule, or change the one of that name into this one",
		Long: `Add a schedule, or change the one of that name into this one: what is not given gets its
default. One that is so already is not touched, so that a script may add it again and
again.

A cron expression has five fields: minute, hour, day of the month, month and day of the
week. Each is *, a list of values or ranges such as 1-5,9, or has steps such as */15.
Months and days have names (jan, mon); Sunday is 0 or 7. When both fields for days are
given, either will do. There are @hourly, @daily, @weekly, @monthly and @yearly.

Where clocks are set forward, what they skip fires once, when they have been set; where
they are set back, what comes twice fires the first time. A schedule for every hour
follows the time that passes.`,
		Example: `  jobq schedules add report --cron '0 9 * * mon' --tz Asia/Tokyo --kind report
  jobq schedules add tick --every 1s --kind tick --queue fast --catch-up none
  jobq schedules add bill --cron '@monthly' --kind bill --catch-up all
  jobq schedules add sync --every 5m --kind sync --overlap skip
  jobq schedules add invoices --every 1h --kind invoice --queue ledger`,
		Args: exactArgs(1),
		PreRunE: func(cmd *cobra.Command, _ []string) error {
			if schedule.Kind == "" {
				return usagef("--kind is missing: the kind of the job to add")
			}
			return refuseZero(cmd, "every", "max-attempts", "timeout", "backoff-base", "backoff-max", "catch-up-max", "catch-up-within")
		},
		RunE: func(cmd *cobra.Command, positional []string) (err error) {
			schedule.Name, schedule.CatchUp, schedule.Overlap = positional[0], jobq.CatchUp(catchUp), jobq.Overlap(overlap)
			if args != "" {
				if schedule.Args, err = jsonArgument("args", args); err != nil {
					return err
				}
			}
			if metadata != "" {
				if schedule.Metadata, err = jsonArgument("metadata", metadata); err != nil {
					return err
				}
			}
			return a.withClient(func(cmd *cobra.Command, _ []string, client *jobq.Client) error {
				return a.addSchedule(cmd, client, schedule)
			})(cmd, positional)
		},
	}
	flags := command.Flags()
	flags.StringVar(&schedule.Cron, "cron", "", "when: a cron expression")
	flags.StringVar(&schedule.TimeZone, "tz", "", "time zone of the cron expression, such as Europe/Berlin (default UTC)")
	durationVar(flags, &schedule.Every, "every", 0, "when: every so often, 1s to 366d, counted from midnight UTC of 1970-01-01")
	flags.StringVar(&schedule.Kind, "kind", "", "kind of the job")
	flags.StringVar(&args, "args", "", "args of the job: JSON, or @FILE (default {})")
	flags.StringVarP(&schedule.Queue, "queue", "q", "", `queue of the job (default "default")`)
	flags.Int16Var(&schedule.Priority, "priority", 0, "lower runs first")
	flags.IntVar(&schedule.MaxAttempts, "max-attempts", 0, "attempts before the job fails for good (default 25)")
	durationVar(flags, &schedule.Timeout, "timeout", 0, "longest run (default no limit)")
	backoffVars(flags, &schedule.BackoffBase, &schedule.BackoffMax)
	tagsVar(flags, &schedule.Tags, "tag of the job, may be repeated")
	flags.StringVar(&metadata, "metadata", "", "metadata of the job: a JSON object, or @FILE")
	flags.StringVar(&schedule.PartitionKey, "partition-key", "", "partition key of the job: its limit and order hold for the job (docs/partition-keys.md)")
	flags.StringVar(&catchUp, "catch-up", "", "which ticks fire that were missed: none, latest or all (default latest)")
	flags.IntVar(&schedule.CatchUpMax, "catch-up-max", 0, "how many of them at most, with all: 1 to 1000 (default 100)")
	durationVar(flags, &schedule.CatchUpWithin, "catch-up-within", 0, "how late a tick may fire at most (default 1d)")
	flags.StringVar(&overlap, "overlap", "", "a tick while the job of the one before is unfinished: allow or skip (default allow)")
	a.addJSONFlag(command)
	return command
}

func (a *app) addSchedule(cmd *cobra.Command, client *jobq.Client, schedule jobq.Schedule) error {
	before, err := monitor.New(client).Schedule(cmd.Context(), schedule.Name)
	if err != nil && !errors.Is(err, jobq.ErrNotFound) {
		return err
	}
	auditID, err := a.operator(client).SetSchedule(cmd.Context(), schedule)
	if err != nil {
		return err
	}
	if before.Source != "" && auditID != 0 { // also with --json
		fmt.Fprintf(cmd.ErrOrStderr(), "note: it was declared by %s, which leaves it alone from now on; to give it back: jobq undo %d\n", printable.Line(before.Source), auditID)
	}
	if err := a.sayChanged(cmd, changed{Schedule: schedule.Name, AuditID: auditID}, "set"); err != nil || a.json {
		return err
	}
	set, err := monitor.New(client).Schedule(cmd.Context(), schedule.Name)
	if err != nil { // it is set all the same
		fmt.Fprintf(cmd.ErrOrStderr(), "note: when it fires next is not known: %s\n", printable.Line(err.Error()))
		return nil
	}
	if set.PausedAt != nil {
		fmt.Fprintf(cmd.OutOrStdout(), "it is paused: jobq schedules resume %s\n", printable.Line(schedule.Name))
		return nil
	}
	fmt.Fprintf(cmd.OutOrStdout(), "next: %s\n", format.ScheduleNext(set, time.Now()))
	return nil
}
