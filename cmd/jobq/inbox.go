package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/jobq-dev/jobq/internal/inbox"
)

func newInboxCommand(a *app) *cobra.Command {
	var options inbox.Options
	var remove bool
	command := &cobra.Command{
		Use:   "inbox QUEUE",
		Short: "Forward jobs from River, graphile-worker or pg-boss",
		Long: `Forward jobs from River, graphile-worker or pg-boss, for those who switch.
QUEUE is ` + strings.Join(inbox.Queues(), ", ") + `.

Producers stay as they are, with the client of the other queue. A trigger on its table adds
each new job to jobq, in the same transaction, and removes it there. What has no match in
jobq is refused with an error that says so. docs/migrate.md says what becomes what.

Run the SQL as a role that owns the table and may add jobs (jobq_producer, and select on
jobq.queue for graphile-worker). To change the kinds, run it again with others.`,
		Example: `  jobq inbox river --kind sort_args | psql "$DATABASE_URL" -v ON_ERROR_STOP=1
  jobq inbox pg-boss --kind resize --kind 'send mail' > inbox.sql
  jobq inbox graphile-worker --remove | psql "$DATABASE_URL"`,
		Args:      exactArgs(1),
		ValidArgs: inbox.Queues(),
		RunE: func(cmd *cobra.Command, args []string) error {
			options.Queue, options.Schema = args[0], a.schema
			write := inbox.Create
			if remove {
				if len(options.Kinds) > 0 || options.UniqueKeys {
					return usagef("--remove is of the whole inbox: leave out --kind and --unique-keys")
				}
				write = inbox.Remove
			}
			script, err := write(options)
			if err != nil {
				return usageError{err}
			}
			fmt.Fprint(cmd.OutOrStdout(), script)
			return nil
		},
	}
	flags := command.Flags()
	flags.StringArrayVar(&options.Kinds, "kind", nil, "what goes to jobq: a kind of River's, a task of graphile-worker, a queue of pg-boss (repeatable; default all)")
	flags.StringVar(&options.From, "from", "", "schema of the other queue's tables (default public, graphile_worker or pgboss)")
	flags.BoolVar(&options.UniqueKeys, "unique-keys", false, "take its keys for unique keys of jobq, though they mean something else there")
	flags.BoolVar(&remove, "remove", false, "print SQL that removes the inbox; jobs that are in jobq stay")
	return command
}
