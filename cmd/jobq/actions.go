package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
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

// bulkFlags are those of an action by filter.
type bulkFlags struct {
	filter, rate string
	dryRun, yes  bool
	max          int
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
		Long: short + ".\n\n" + long + `

With --filter it acts on all jobs that match now; those that come later are
left alone. It asks first, unless --yes is given. What was done is in
"jobq audit", and "jobq undo" takes it back where nothing has happened since.

` + filterHelp,
		Example: fmt.Sprintf("  jobq %s 4711 4712\n  jobq %s --filter 'state:failed queue:email' --dry-run\n"+
			"  jobq %s --filter 'state:failed queue:email' --yes --max 1000 --rate 100/s", name, name, name),
		RunE: func(cmd *cobra.Command, args []string) error {
			if (len(args) == 0) == (bulk.filter == "") {
				return usagef("name jobs by id, or --filter, and not both; usage: %s", cmd.UseLine())
			}
			targets := make([]jobq.Target, len(args))
			for i, arg := range args {
				id, err := parseID(arg)
				if err != nil {
					return err
				}
				targets[i].ID = id
			}
			return a.withClient(func(cmd *cobra.Command, _ []string, client *jobq.Client) error {
				if bulk.filter != "" {
					return runBulk(cmd, client, action, bulk)
				}
				acted, err := client.Act(cmd.Context(), action, targets...)
				if err != nil {
					return err
				}
				return sayActed(cmd, name, acted)
			})(cmd, args)
		},
	}
	flags := command.Flags()
	flags.StringVar(&bulk.filter, "filter", "", "act on all jobs that match")
	flags.BoolVar(&bulk.dryRun, "dry-run", false, "with --filter: only say how many jobs match")
	flags.BoolVar(&bulk.yes, "yes", false, "with --filter: do not ask")
	flags.IntVar(&bulk.max, "max", 0, "with --filter: act on this many jobs at most")
	flags.StringVar(&bulk.rate, "rate", "", "with --filter: at most so many a second, such as 100/s")
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

func runBulk(cmd *cobra.Command, client *jobq.Client, action jobq.Action, flags bulkFlags) error {
	rate, err := parseRate(flags.rate)
	if err != nil {
		return err
	}
	filter := jobq.Filter{Match: flags.filter}
	count, err := client.Count(cmd.Context(), filter, jobq.CountMax)
	if err != nil {
		return err
	}
	matches := strconv.FormatInt(count, 10)
	if count >= jobq.CountMax {
		matches = fmt.Sprintf("at least %d", jobq.CountMax)
	}
	if flags.dryRun {
		fmt.Fprintf(cmd.OutOrStdout(), "would %s %s jobs\n", action, matches)
		return nil
	}
	if !flags.yes {
		if err := askForBulk(cmd, action, matches); err != nil {
			return err
		}
	}
	progress, err := client.Bulk(cmd.Context(), jobq.BulkParams{
		Action: action, Filter: filter, Max: flags.max, RatePerSecond: rate,
		OnBatch: func(progress jobq.BulkProgress) {
			fmt.Fprintf(cmd.ErrOrStderr(), "%s: %d done, %d refused\n", action, progress.Done, progress.Refused)
		},
	})
	if progress.AuditID > 0 {
		fmt.Fprintf(cmd.OutOrStdout(), "%s: %d jobs, %d refused; take it back with: jobq undo %d\n", action, progress.Done, progress.Refused, progress.AuditID)
	}
	if errors.Is(err, context.Canceled) {
		return fmt.Errorf("%s stopped before its end: %w", action, err)
	}
	return err
}

// askForBulk asks for the action's name. Without a terminal there is nobody to ask.
func askForBulk(cmd *cobra.Command, action jobq.Action, matches string) error {
	file, ok := cmd.InOrStdin().(*os.File)
	if !ok || !isTerminal(file) {
		return usagef("%s by filter asks first: give --yes where there is no terminal", action)
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "%s %s jobs? Type %q to go on: ", action, matches, action)
	var answer string
	if _, err := fmt.Fscanln(file, &answer); err != nil || answer != string(action) {
		return usagef("nothing was done")
	}
	return nil
}

// parseRate reads 100/s, or just 100.
func parseRate(text string) (int, error) {
	if text == "" {
		return 0, nil
	}
	rate, err := strconv.Atoi(strings.TrimSuffix(text, "/s"))
	if err != nil || rate < 1 {
		return 0, usagef("--rate %q: jobs a second, such as 100/s", text)
	}
	return rate, nil
}
