package main

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/auditline"
	"github.com/jobq-dev/jobq/internal/format"
	"github.com/jobq-dev/jobq/monitor"
	"github.com/jobq-dev/jobq/operator"
)

func newAuditCommand(a *app) *cobra.Command {
	var before int64
	var limit int
	command := &cobra.Command{
		Use:   "audit",
		Short: "Show who did what to jobs and queues, newest first",
		Example: `  jobq audit
  jobq audit --json | jq '.[] | select(.action == "delete")'
  jobq audit resume 17 --rate 100/s`,
		Args: exactArgs(0),
		RunE: a.withClient(func(cmd *cobra.Command, _ []string, client *jobq.Client) error {
			entries, err := monitor.New(client).Audit(cmd.Context(), before, limit)
			if err != nil {
				return err
			}
			if a.json {
				return writeJSON(cmd.OutOrStdout(), entries)
			}
			t := newTable(cmd.OutOrStdout(), "ID", "AT", "WHO", "ACTION", "JOBS", "REFUSED", "WHAT", "NOTE")
			for _, entry := range entries {
				t.row(strconv.FormatInt(entry.ID, 10), entry.At.Format(time.RFC3339), entry.Actor, string(entry.Action),
					format.Number(entry.Done), format.Number(entry.Refused), cut(auditline.What(entry)), auditline.Note(entry))
			}
			return t.flush()
		}),
	}
	command.Flags().Int64Var(&before, "before", 0, "continue below this id")
	command.Flags().IntVar(&limit, "limit", 50, "actions to show, 1 to 1000")
	a.addJSONFlag(command)
	command.AddCommand(newAuditResumeCommand(a))
	return command
}

func newAuditResumeCommand(a *app) *cobra.Command {
	var bulk bulkFlags
	command := &cobra.Command{
		Use:   "resume AUDIT-ID",
		Short: "Go on with an action by filter that was stopped",
		Long: `Go on with an action by filter that was interrupted, that has reached its --max, or whose
process has ended (a minute later, if it was killed), on the jobs that it had not come to.
Jobs that were added after it began are left alone. In the audit it stays one action, and
"jobq undo" takes all of it back. Without --max, the limit given at its start holds: if that
was not reached, it does the rest; if it was, it does as many jobs again.`,
		Example: `  jobq audit      # shows the ids
  jobq audit resume 17 --rate 100/s`,
		Args: exactArgs(1),
		RunE: a.withClient(func(cmd *cobra.Command, args []string, client *jobq.Client) error {
			id, err := parseID("audit", args[0])
			if err != nil {
				return err
			}
			params := operator.BulkParams{Resume: id}
			if err := bulk.limit(cmd, &params); err != nil {
				return err
			}
			_, err = a.workThrough(cmd, client, params)
			return err
		}),
	}
	bulk.addLimits(command.Flags(), "")
	a.addJSONFlag(command)
	return command
}

func newUndoCommand(a *app) *cobra.Command {
	command := &cobra.Command{
		Use:   "undo AUDIT-ID",
		Short: "Undo an action, on the jobs that have not changed since",
		Long: `Undo an action, on the jobs that have not changed since. It works in steps of
1000 jobs; if it was stopped, give the command again and it goes on. A pause or resume is
taken back if its queue, or kind, was neither paused nor resumed since, and a change of settings
if there was no later one. So is what was done to a schedule, but for running it.`,
		Example: `  jobq audit      # shows the ids
  jobq undo 17`,
		Args: exactArgs(1),
		RunE: a.withClient(func(cmd *cobra.Command, args []string, client *jobq.Client) error {
			id, err := parseID("audit", args[0])
			if err != nil {
				return err
			}
			undone, err := a.operator(client).Undo(cmd.Context(), id)
			if err != nil {
				return a.sayUndoStopped(cmd, id, undone, err)
			}
			err = a.sayActed(cmd, "undo on", undone, actedLine)
			if len(undone.Jobs) == 0 {
				fmt.Fprintf(cmd.ErrOrStderr(), "action %d undone\n", id)
			} else {
				fmt.Fprintf(cmd.ErrOrStderr(), "%s of %s undone\n", format.Number(undone.Changed()), format.Number(len(undone.Jobs)))
			}
			return err
		}),
	}
	a.addJSONFlag(command)
	return command
}

// sayUndoStopped tells what an undo had taken back before an error stopped it,
// which stays so, and how to go on. It returns the error, after those of the jobs.
func (a *app) sayUndoStopped(cmd *cobra.Command, id int64, undone *operator.Acted, err error) error {
	if len(undone.Jobs) == 0 {
		return err
	}
	err = errors.Join(a.sayActed(cmd, "undo on", undone, actedLine), err)
	fmt.Fprintf(cmd.ErrOrStderr(), "%s of %s undone, then it was stopped; go on with: jobq undo %d\n", format.Number(undone.Changed()), format.Number(len(undone.Jobs)), id)
	return err
}
