package main

import (
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/jobq-dev/jobq"
)

func newAuditCommand(a *app) *cobra.Command {
	var before int64
	var limit int
	command := &cobra.Command{
		Use:   "audit",
		Short: "Show who did what to jobs and queues, newest first",
		Example: `  jobq audit
  jobq audit --json | jq '.[] | select(.action == "delete")'`,
		Args: exactArgs(0),
		RunE: a.withClient(func(cmd *cobra.Command, _ []string, client *jobq.Client) error {
			entries, err := client.Audit(cmd.Context(), before, limit)
			if err != nil {
				return err
			}
			if a.json {
				return writeJSON(cmd.OutOrStdout(), entries)
			}
			t := newTable(cmd.OutOrStdout(), "ID", "AT", "WHO", "ACTION", "JOBS", "REFUSED", "WHAT", "NOTE")
			for _, entry := range entries {
				t.row(strconv.FormatInt(entry.ID, 10), entry.At.Format(time.RFC3339), entry.Actor, string(entry.Action),
					strconv.Itoa(entry.Done), strconv.Itoa(entry.Refused), auditTarget(entry), auditNote(entry))
			}
			return t.flush()
		}),
	}
	command.Flags().Int64Var(&before, "before", 0, "continue below this id")
	command.Flags().IntVar(&limit, "limit", 50, "actions to show, 1 to 1000")
	a.addJSONFlag(command)
	return command
}

// auditTarget is what the action was about: a filter or a queue, or the jobs.
func auditTarget(entry jobq.AuditEntry) string {
	if entry.Target != "" {
		return cut(entry.Target)
	}
	text := ""
	for i, id := range entry.JobIDs {
		if i == 3 {
			return text + " …"
		}
		text += " " + strconv.FormatInt(id, 10)
	}
	return text
}

func auditNote(entry jobq.AuditEntry) string {
	switch {
	case entry.UndoneBy > 0:
		return fmt.Sprintf("undone by %d", entry.UndoneBy)
	case entry.Undoes > 0:
		return fmt.Sprintf("undoes %s %d", entry.Note, entry.Undoes)
	}
	return entry.Note
}

func newUndoCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "undo AUDIT-ID",
		Short: "Take an action back, on the jobs that nothing has happened to since",
		Example: `  jobq audit      # shows the ids
  jobq undo 17`,
		Args: exactArgs(1),
		RunE: a.withClient(func(cmd *cobra.Command, args []string, client *jobq.Client) error {
			id, err := parseID(args[0])
			if err != nil {
				return err
			}
			undone, err := client.Undo(cmd.Context(), id)
			if err != nil {
				return err
			}
			err = sayActed(cmd, "undo on", undone)
			fmt.Fprintf(cmd.ErrOrStderr(), "%d of %d undone\n", undone.Changed(), len(undone.Jobs))
			return err
		}),
	}
}
