package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/jobq-dev/jobq"
)

func newRequeueCommand(a *app) *cobra.Command {
	return a.newActionCommand(jobq.ActionRequeue, "Make finished or scheduled jobs available now",
		`A finished job gets at least one more attempt. A running one is refused: cancel it first.`)
}

func newCancelCommand(a *app) *cobra.Command {
	return a.newActionCommand(jobq.ActionCancel, "Cancel jobs that wait, and ask running ones to stop",
		`A running job is cancelled by its worker, which learns of it at once or with its next
heartbeat. A job that has ended already stays as it is.`)
}

func newDeleteCommand(a *app) *cobra.Command {
	return a.newActionCommand(jobq.ActionDelete, "Delete jobs that do not run, with their history",
		"\"jobq undo\" brings them back while the audit remembers them: 90 days.")
}

// newActionCommand makes a command that acts on the jobs named, or on all that
// match a filter. It goes on after a job that cannot be acted on; the exit
// code tells that there was one.
func (a *app) newActionCommand(action jobq.Action, short, long string) *cobra.Command {
	var bulk bulkFlags
	name := string(action)
	command := &cobra.Command{
		Use:   name + " ID... | --filter FILTER",
		Short: short,
		Long:  short + ".\n\n" + long + "\n\n" + bulkHelp,
		Example: fmt.Sprintf("  jobq %s 4711 4712\n  jobq %s --filter 'state:failed queue:email' --dry-run\n"+
			"  jobq %s --filter 'state:failed queue:email' --yes --max 1000 --rate 100/s", name, name, name),
		RunE: func(cmd *cobra.Command, args []string) error {
			targets, err := bulk.targetsOf(cmd, args)
			if err != nil {
				return err
			}
			return a.withClient(func(cmd *cobra.Command, _ []string, client *jobq.Client) error {
				switch {
				case bulk.filter != "":
					return a.runBulk(cmd, client, jobq.BulkParams{Action: action, Filter: jobq.Filter{Match: bulk.filter}}, bulk)
				case bulk.dryRun:
					return a.wouldAct(cmd, client, action, targets)
				}
				acted, err := client.Act(cmd.Context(), action, targets...)
				if err != nil {
					return err
				}
				return sayActed(cmd, name, acted)
			})(cmd, args)
		},
	}
	bulk.add(command.Flags())
	return command
}

// sayActed writes a line for each job, and an error for each that nothing was
// done to.
func sayActed(cmd *cobra.Command, verb string, acted *jobq.Acted) error {
	var failures []error
	for _, job := range acted.Jobs {
		if job.Problem != "" {
			failures = append(failures, problemError(verb, job))
			continue
		}
		after := string(job.After)
		if job.After == jobq.Running {
			after = "cancel requested"
		}
		fmt.Fprintf(cmd.OutOrStdout(), "%d %s\n", job.ID, after)
	}
	return errors.Join(failures...)
}

// problemError is the problem with the exit code that it deserves.
func problemError(verb string, job jobq.ActedJob) error {
	switch {
	case job.Problem == "no such job":
		return fmt.Errorf("%s job %d: %w", verb, job.ID, jobq.ErrNotFound)
	case strings.Contains(job.Problem, "unique"):
		return fmt.Errorf("%s job %d: %w: %s", verb, job.ID, jobq.ErrDuplicate, job.Problem)
	}
	return fmt.Errorf("%s job %d: %w: %s", verb, job.ID, jobq.ErrConflict, job.Problem)
}
