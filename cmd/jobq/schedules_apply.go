package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/config"
	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/printable"
	"github.com/jobq-dev/jobq/operator"
)

func newSchedulesApplyCommand(a *app) *cobra.Command {
	var path string
	command := &cobra.Command{
		Use:   "apply --config FILE",
		Short: "Make the schedules of an application what its file declares",
		Long: `Make the schedules of an application what its file declares, as a worker does that
starts with it: those that are not there are made, those that differ are changed, and
those that it declares no more are disabled. Schedules that others have made are left
alone. docs/configuration.md says what the file can say.`,
		Example: "  jobq schedules apply --config jobq.yaml",
		Args:    exactArgs(0),
		PreRunE: func(*cobra.Command, []string) error {
			if path == "" {
				return usagef("--config is missing: the file that declares schedules")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			file, err := config.Load(path)
			if err != nil {
				return usagef("--config: %w", err)
			}
			if file.Schedules == nil {
				return usagef("--config: %s declares no schedules", path)
			}
			return a.withClient(func(cmd *cobra.Command, _ []string, client *jobq.Client) error {
				done, err := a.declareSchedules(cmd.Context(), client, file)
				if err != nil {
					return err
				}
				if a.json {
					return writeJSON(cmd.OutOrStdout(), done)
				}
				return sayDeclared(cmd.OutOrStdout(), done)
			})(cmd, args)
		},
	}
	command.Flags().StringVar(&path, "config", envOr("JOBQ_CONFIG", ""), "file that declares schedules, such as jobq.yaml")
	a.addJSONFlag(command)
	return command
}

// declareSchedules makes schedules what the file declares.
func (a *app) declareSchedules(ctx context.Context, client *jobq.Client, file *config.File) (operator.Declared, error) {
	declaration := operator.Declaration{App: file.App, Version: file.SchedulesVersion}
	for name, s := range file.Schedules {
		declaration.Schedules = append(declaration.Schedules, jobq.Schedule{
			Name: name, Cron: s.Cron, TimeZone: s.TimeZone, Every: time.Duration(s.Every), Kind: s.Kind, Args: json.RawMessage(s.Args), Queue: s.Queue,
			Priority: s.Priority, MaxAttempts: s.MaxAttempts, Timeout: time.Duration(s.Timeout), BackoffBase: time.Duration(s.BackoffBase),
			BackoffMax: time.Duration(s.BackoffMax), Tags: s.Tags, Metadata: json.RawMessage(s.Metadata), PartitionKey: s.PartitionKey,
			CatchUp: jobq.CatchUp(s.CatchUp), CatchUpMax: s.CatchUpMax, CatchUpWithin: time.Duration(s.CatchUpWithin), Overlap: jobq.Overlap(s.Overlap),
		})
	}
	done, err := a.operator(client).DeclareSchedules(ctx, declaration)
	var of *operator.DeclarationError
	if errors.As(err, &of) && errors.Is(err, jobq.ErrInvalid) {
		return done, fmt.Errorf("%s: %w", file.Path, file.ScheduleError(of.Schedule, err))
	}
	return done, err
}

// refusedGroup is the one of declaredGroups that somebody should look at.
const refusedGroup = 3

// declaredGroups are what a declaration came to, in words.
func declaredGroups(done operator.Declared) [4]struct {
	what  string
	names []string
} {
	return [4]struct {
		what  string
		names []string
	}{
		{"set", done.Changed},
		{"enabled again", done.Enabled},
		{"disabled, since they are declared no more", done.Disabled},
		{"left alone, since somebody else has made schedules of these names", done.Refused},
	}
}

func sayDeclared(out io.Writer, done operator.Declared) error {
	if done.Newer > 0 {
		_, err := fmt.Fprintf(out, "nothing is changed: version %d is there, which is newer\n", done.Newer)
		return err
	}
	said := false
	for _, group := range declaredGroups(done) {
		if len(group.names) == 0 {
			continue
		}
		said = true
		if _, err := fmt.Fprintf(out, "%s: %s\n", group.what, printable.Line(strings.Join(group.names, ", "))); err != nil {
			return err
		}
	}
	if said {
		return nil
	}
	_, err := fmt.Fprintln(out, "all schedules are so already")
	return err
}

// declareAtStart is declareSchedules for a worker that starts, if its file declares any.
// A database that is away is waited for, as the worker does.
func (a *app) declareAtStart(ctx context.Context, log *slog.Logger, client *jobq.Client, file *config.File) error {
	if file.Schedules == nil {
		return nil
	}
	var done operator.Declared
	warned := false
	err := db.Retry(ctx, func(ctx context.Context) (err error) {
		done, err = a.declareSchedules(ctx, client, file)
		if db.IsTransient(err) && !warned {
			warned = true
			log.Warn("schedules of the config file cannot be applied yet, trying on", "error", err)
		}
		return err
	})
	switch {
	case ctx.Err() != nil: // the worker was asked to stop before there was anything to do
		return nil
	case db.IsForbidden(err):
		return fmt.Errorf("%w: let \"jobq schedules apply\" do it, and leave schedules out of the workers' file", err)
	case err != nil:
		return err
	}
	if done.Newer > 0 {
		log.Warn("schedules of the config file are not applied: a newer version is there", "app", file.App, "version", file.SchedulesVersion, "newer", done.Newer)
	}
	for i, group := range declaredGroups(done) {
		level := slog.LevelInfo
		if i == refusedGroup {
			level = slog.LevelWarn
		}
		if len(group.names) > 0 {
			log.Log(ctx, level, "schedules "+group.what, "app", file.App, "schedules", group.names)
		}
	}
	return nil
}
