package main

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/jobq-dev/jobq/internal/format"
	"github.com/jobq-dev/jobq/migrate"
	"github.com/jobq-dev/jobq/sql/migrations"
)

func newMigrateCommand(a *app) *cobra.Command {
	command := &cobra.Command{
		Use:   "migrate",
		Short: "Make and change jobq's tables",
		Example: `  jobq migrate up
  jobq migrate status
  jobq migrate sql | less          # what "up" would run on an empty database`,
	}
	return asGroup(command, newMigrateUpCommand(a), newMigrateDownCommand(a), newMigrateStatusCommand(a), newMigrateSQLCommand(a))
}

// withMigration runs work with a pool and a config that logs warnings, such as for which
// session a migration waits: the command says itself what was done.
func (a *app) withMigration(work func(cmd *cobra.Command, pool *pgxpool.Pool, config *migrate.Config) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, _ []string) error {
		pool, err := a.pool(cmd.Context())
		if err != nil {
			return err
		}
		defer pool.Close()
		log, err := (&logFlags{format: "text", level: "warn"}).logger(cmd.ErrOrStderr())
		if err != nil {
			return err
		}
		return work(cmd, pool, &migrate.Config{Schema: a.schema, Logger: log})
	}
}

func newMigrateUpCommand(a *app) *cobra.Command {
	var target int
	var dryRun bool
	command := &cobra.Command{
		Use: "up", Short: "Apply the migrations that are missing", Args: exactArgs(0),
		PreRunE: func(*cobra.Command, []string) error {
			if target < 0 || target > migrations.Latest() {
				return usagef("--target %d: versions are 1 to %d", target, migrations.Latest())
			}
			return nil
		},
		RunE: a.withMigration(func(cmd *cobra.Command, pool *pgxpool.Pool, config *migrate.Config) error {
			config.Target, config.DryRun = target, dryRun
			result, err := migrate.Up(cmd.Context(), pool, config)
			return a.writeMigrated(cmd.OutOrStdout(), result, dryRun, err)
		}),
	}
	command.Flags().IntVar(&target, "target", 0, "version to arrive at (default the latest)")
	command.Flags().BoolVar(&dryRun, "dry-run", false, "only say what would be done")
	a.addJSONFlag(command)
	return command
}

func newMigrateDownCommand(a *app) *cobra.Command {
	var target int
	var dryRun, yes bool
	command := &cobra.Command{
		Use: "down", Short: "Take migrations back; jobs in dropped tables are gone", Args: exactArgs(0),
		PreRunE: func(*cobra.Command, []string) error {
			if target < -1 || target > migrations.Latest() {
				return usagef("--target %d: versions are 1 to %d, or -1 for nothing left", target, migrations.Latest())
			}
			return nil
		},
		RunE: a.withMigration(func(cmd *cobra.Command, pool *pgxpool.Pool, config *migrate.Config) error {
			if !yes && !dryRun {
				return usagef("this drops tables with the jobs in them: add --yes, or --dry-run to see which migrations")
			}
			config.Target, config.DryRun = target, dryRun
			result, err := migrate.Down(cmd.Context(), pool, config)
			return a.writeMigrated(cmd.OutOrStdout(), result, dryRun, err)
		}),
	}
	command.Flags().IntVar(&target, "target", 0, "version to arrive at, -1 for nothing left (default one step)")
	command.Flags().BoolVar(&dryRun, "dry-run", false, "only say what would be done")
	command.Flags().BoolVar(&yes, "yes", false, "do it")
	a.addJSONFlag(command)
	return command
}

func (a *app) writeMigrated(out io.Writer, result *migrate.Result, dryRun bool, err error) error {
	if err != nil {
		return err
	}
	if a.json {
		return writeJSON(out, result)
	}
	verb := map[string]string{"up": "applied", "down": "took back"}[result.Direction]
	if dryRun {
		verb = "would do"
	}
	for _, version := range result.Versions {
		fmt.Fprintf(out, "%s %03d %s (%s)\n", verb, version.Version, version.Name, format.Took(version.Duration))
	}
	switch {
	case len(result.Versions) == 0:
		fmt.Fprintln(out, "nothing to do")
	case dryRun && result.Direction == "up":
		fmt.Fprintln(out, whoGoesOn(result.Versions))
	}
	return nil
}

// whoGoesOn says whether the programs of today work on after these migrations.
func whoGoesOn(versions []migrate.Version) string {
	today, from := versions[0].Version-1, 0
	for _, version := range versions {
		from = max(from, version.CompatibleFrom)
	}
	switch {
	case today == 0:
		return "there are no tables yet"
	case from <= today:
		return fmt.Sprintf("programs that know version %d go on: migrate while they work", today)
	}
	return fmt.Sprintf("programs must know version %d: stop workers and janitors of earlier ones first", from)
}

func newMigrateStatusCommand(a *app) *cobra.Command {
	command := &cobra.Command{
		Use: "status", Short: "Show which migrations are applied", Args: exactArgs(0),
		RunE: a.withMigration(func(cmd *cobra.Command, pool *pgxpool.Pool, config *migrate.Config) error {
			status, err := migrate.GetStatus(cmd.Context(), pool, config)
			if err != nil && !errors.Is(err, migrate.ErrNewerSchema) {
				return err
			}
			if a.json {
				return errors.Join(writeJSON(cmd.OutOrStdout(), status), err)
			}
			t := newTable(cmd.OutOrStdout(), "VERSION", "NAME", "APPLIED", "COMPATIBLE FROM")
			for _, version := range status.Versions {
				applied := "pending"
				if version.AppliedAt != nil {
					applied = version.AppliedAt.Format(time.RFC3339)
				}
				t.row(strconv.Itoa(version.Version), version.Name, applied, strconv.Itoa(version.CompatibleFrom))
			}
			flushed := t.flush()
			if err == nil && status.Current > status.Latest {
				fmt.Fprintln(cmd.OutOrStdout(), "\nA later jobq has changed the tables. This one works with them.")
			}
			return errors.Join(flushed, err)
		}),
	}
	a.addJSONFlag(command)
	return command
}

func newMigrateSQLCommand(a *app) *cobra.Command {
	var from, target int
	command := &cobra.Command{
		Use: "sql", Short: "Print the SQL of the migrations, to read or to run with psql", Args: exactArgs(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			script, err := migrate.SQL(&migrate.Config{Schema: a.schema, Target: target}, from)
			if err != nil {
				return usageError{err}
			}
			fmt.Fprint(cmd.OutOrStdout(), script)
			return nil
		},
	}
	command.Flags().IntVar(&from, "from", 0, "version that the database has already")
	command.Flags().IntVar(&target, "target", 0, "version to arrive at (default the latest)")
	return command
}
