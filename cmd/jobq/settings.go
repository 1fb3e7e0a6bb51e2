package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/when"
	"github.com/jobq-dev/jobq/monitor"
	"github.com/jobq-dev/jobq/operator"
)

// schemaSetting is a setting of the whole schema, as people name it.
type schemaSetting struct {
	name, help string
	get        func(monitor.Settings) string
	change     func(text string) (operator.SettingsChange, error)
	// loses says what is lost for good when the setting changes; nil, or empty, for
	// nothing.
	loses func(before monitor.Settings, change operator.SettingsChange) string
}

func schemaSettings() []schemaSetting {
	return []schemaSetting{{
		name: "finished_retention",
		help: "how long jobs are kept that have completed, failed or were cancelled: 1d to 10 years",
		get:  func(s monitor.Settings) string { return when.FormatDuration(s.FinishedRetention) },
		change: func(text string) (operator.SettingsChange, error) {
			duration, err := when.ParseDuration(text)
			return operator.SettingsChange{FinishedRetention: &duration}, err
		},
		loses: func(before monitor.Settings, change operator.SettingsChange) string {
			if *change.FinishedRetention >= before.FinishedRetention {
				return ""
			}
			return "jobs that have ended longer ago are deleted within minutes, and no undo brings them back"
		},
	}, {
		name: "failed_retention",
		help: "how long those are kept that failed or were cancelled: 1d to 10 years, or none",
		get: func(s monitor.Settings) string {
			if s.FailedRetention == 0 {
				return "none"
			}
			return when.FormatDuration(s.FailedRetention)
		},
		change: func(text string) (operator.SettingsChange, error) {
			if text == "none" {
				return operator.SettingsChange{FailedRetention: new(time.Duration)}, nil
			}
			duration, err := when.ParseDuration(text)
			return operator.SettingsChange{FailedRetention: &duration}, err
		},
		loses: func(before monitor.Settings, change operator.SettingsChange) string {
			after := before
			after.FailedRetention = *change.FailedRetention
			var queue monitor.QueueSettings // one without a retention of its own
			_, kept := queue.Kept(before)
			if _, keeps := queue.Kept(after); keeps >= kept {
				return ""
			}
			return "jobs that have failed or were cancelled longer ago are deleted within minutes, and no undo brings them back"
		},
	}, {
		name: "quarantine_crashes",
		help: "after how many crashes in a row of its workers a kind is paused: 1 to 1000; 0 for never",
		get:  func(s monitor.Settings) string { return strconv.Itoa(s.QuarantineCrashes) },
		change: func(text string) (operator.SettingsChange, error) {
			crashes, err := strconv.Atoi(text)
			if err != nil {
				err = errors.New("must be a number from 0 to 1000")
			}
			return operator.SettingsChange{QuarantineCrashes: &crashes}, err
		},
	}, {
		name: "keep_until_exported",
		help: "whether a day stays, however old, until \"jobq export\" has written it: true or false",
		get:  func(s monitor.Settings) string { return strconv.FormatBool(s.KeepUntilExported) },
		change: func(text string) (operator.SettingsChange, error) {
			keep, err := strconv.ParseBool(text)
			if err != nil {
				err = errors.New("must be true or false")
			}
			return operator.SettingsChange{KeepUntilExported: &keep}, err
		},
		loses: func(before monitor.Settings, change operator.SettingsChange) string {
			if *change.KeepUntilExported || !before.KeepUntilExported {
				return ""
			}
			return "days past finished_retention that were not exported are deleted within minutes, and no undo brings them back"
		},
	}, {
		name: "exported_before",
		help: "the day (UTC) before which all days were exported: \"jobq export\" moves it",
		get:  func(s monitor.Settings) string { return s.ExportedBefore.Format(time.DateOnly) },
		change: func(text string) (operator.SettingsChange, error) {
			day, err := time.Parse(time.DateOnly, text)
			if err != nil {
				err = errors.New("must be a day, such as 2026-11-02")
			}
			return operator.SettingsChange{ExportedBefore: &day}, err
		},
		loses: func(before monitor.Settings, change operator.SettingsChange) string {
			if !before.KeepUntilExported || !change.ExportedBefore.After(before.ExportedBefore) {
				return ""
			}
			return "earlier days past finished_retention are deleted within minutes, exported or not, and no undo brings them back"
		},
	}}
}

// settingNamed is a setting by its name.
func settingNamed(name string) (schemaSetting, error) {
	names := make([]string, 0, len(schemaSettings()))
	for _, setting := range schemaSettings() {
		if setting.name == name {
			return setting, nil
		}
		names = append(names, setting.name)
	}
	return schemaSetting{}, usagef("no setting %q: there are %s%s", name, strings.Join(names, ", "), didYouMean(name, names))
}

func newSettingsCommand(a *app) *cobra.Command {
	command := &cobra.Command{
		Use:   "settings [NAME]",
		Short: "Show and change what holds for all queues",
		Long: `Show the settings of the whole schema, which every janitor obeys. Those of a queue are
in "jobq queues show".

finished_retention is how long jobs are kept that have completed, failed or were
cancelled, with their attempts and output: 7d by default, 1d to 10 years. Jobs go by
whole days (UTC), so that the last ones are kept up to a day longer. A job that waits
or runs is never removed. failed_retention is for those that failed or were cancelled: "none", as
long as the others, by default. A queue may have its own: "jobq queues set --retention".

quarantine_crashes is after how many crashes in a row of the workers that run it a kind is
paused: 5 by default, 0 for never. "jobq kinds resume" lets it go on.

keep_until_exported is whether a day of ended jobs stays, however old, until "jobq export" has
written it to a file: false by default. exported_before is how far that has come. Set it by hand
to have days exported again, or when something else than "jobq export" has stored them.`,
		Example: `  jobq settings
  jobq settings set finished_retention 30d
  jobq settings set failed_retention 90d
  jobq settings set quarantine_crashes 3
  jobq settings set keep_until_exported true`,
		Args: rangeArgs(0, 1),
		RunE: a.withClient(func(cmd *cobra.Command, args []string, client *jobq.Client) error {
			shown := schemaSettings()
			if len(args) == 1 {
				one, err := settingNamed(args[0])
				if err != nil {
					return err
				}
				shown = []schemaSetting{one}
			}
			stored, err := monitor.New(client).Settings(cmd.Context())
			if err != nil {
				return err
			}
			if a.json {
				return writeJSON(cmd.OutOrStdout(), stored)
			}
			t := newTable(cmd.OutOrStdout(), "SETTING", "VALUE", "WHAT IT IS")
			for _, setting := range shown {
				t.row(setting.name, setting.get(stored), setting.help)
			}
			return t.flush()
		}),
	}
	a.addJSONFlag(command)
	command.AddCommand(newSettingsSetCommand(a))
	return command
}

// settingsSet is what `jobq settings set --json` writes.
type settingsSet struct {
	AuditID int64 `json:"audit_id"` // 0 when it was so already
	monitor.Settings
}

func newSettingsSetCommand(a *app) *cobra.Command {
	var yes bool
	command := &cobra.Command{
		Use:   "set NAME VALUE",
		Short: "Change a setting of the whole schema",
		Long: `Change a setting of the whole schema. It is in "jobq audit", and "jobq undo" puts the
old value back. What lets jobs be deleted that are kept now, such as a shorter
finished_retention, needs --yes, since no undo brings them back.`,
		Example: `  jobq settings set finished_retention 30d
  jobq settings set finished_retention 36h --yes`,
		Args: exactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			setting, err := settingNamed(args[0])
			if err != nil {
				return err
			}
			change, err := setting.change(args[1])
			if err != nil {
				return usagef("%s %q: %w", setting.name, args[1], err)
			}
			return a.withClient(func(cmd *cobra.Command, _ []string, client *jobq.Client) error {
				return a.changeSetting(cmd, client, setting, change, yes)
			})(cmd, args)
		},
	}
	command.Flags().BoolVar(&yes, "yes", false, "also where that deletes jobs")
	a.addJSONFlag(command)
	return command
}

func (a *app) changeSetting(cmd *cobra.Command, client *jobq.Client, setting schemaSetting, change operator.SettingsChange, yes bool) error {
	before, err := monitor.New(client).Settings(cmd.Context())
	if err != nil {
		return err
	}
	old := setting.get(before)
	if setting.loses != nil && !yes {
		if loses := setting.loses(before, change); loses != "" {
			return usagef("%s is %s now; with %s, %s: add --yes to do it", setting.name, old, cmd.Flags().Arg(1), loses)
		}
	}
	id, err := a.operator(client).SetSettings(cmd.Context(), change)
	if err != nil {
		return err
	}
	after, err := monitor.New(client).Settings(cmd.Context())
	if err != nil {
		return err
	}
	out := cmd.OutOrStdout()
	switch {
	case a.json:
		return writeJSON(out, settingsSet{id, after})
	case id == 0:
		fmt.Fprintf(out, "%s is %s already\n", setting.name, old)
	default:
		fmt.Fprintf(out, "%s is %s, and was %s; take it back with: jobq undo %d\n", setting.name,
			setting.get(after), old, id)
	}
	return nil
}
