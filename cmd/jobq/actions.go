package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

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

func (b *bulkFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&b.filter, "filter", "", "act on all jobs that match")
	flags.BoolVar(&b.dryRun, "dry-run", false, "with --filter: only say how many jobs match")
	flags.BoolVar(&b.yes, "yes", false, "with --filter: do not ask")
	b.addLimits(flags, "with --filter: ")
}

func (b *bulkFlags) addLimits(flags *pflag.FlagSet, when string) {
	flags.IntVar(&b.max, "max", 0, when+"act on this many jobs at most")
	flags.StringVar(&b.rate, "rate", "", when+"at most so many a second, such as 100/s")
}

// bulkHelp is what all actions by filter promise.
const bulkHelp = `With --filter it acts on all jobs that match when it has counted them; those
that come later are left alone. It asks first, unless --yes is given. What was done is in
"jobq audit", and "jobq undo" takes it back where nothing has happened since.
What was stopped goes on with "jobq audit resume".

` + filterHelp

// targetsOf reads ids, or none where there is a filter.
func (b *bulkFlags) targetsOf(cmd *cobra.Command, args []string) ([]jobq.Target, error) {
	if (len(args) == 0) == (b.filter == "") {
		return nil, usagef("name jobs by id, or --filter, and not both; usage: %s", cmd.UseLine())
	}
	targets := make([]jobq.Target, len(args))
	for i, arg := range args {
		id, err := parseID(arg)
		if err != nil {
			return nil, err
		}
		targets[i].ID = id
	}
	return targets, nil
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
				if bulk.filter != "" {
					return runBulk(cmd, client, jobq.BulkParams{Action: action, Filter: jobq.Filter{Match: bulk.filter}}, bulk)
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

// runBulk acts on what a filter matches, after it has asked.
func runBulk(cmd *cobra.Command, client *jobq.Client, params jobq.BulkParams, flags bulkFlags) error {
	if err := flags.limit(&params); err != nil {
		return err
	}
	snapshot, err := client.BulkSnapshot(cmd.Context(), params.Filter)
	if err != nil {
		return err
	}
	params.Snapshot = snapshot
	matches := strconv.FormatInt(snapshot.Count, 10)
	if snapshot.Count >= jobq.CountMax {
		matches = fmt.Sprintf("at least %d", jobq.CountMax)
	}
	if flags.dryRun {
		fmt.Fprintf(cmd.OutOrStdout(), "would %s %s jobs\n", params.Action, matches)
		return nil
	}
	if !flags.yes {
		if err := askForBulk(cmd, params.Action, matches); err != nil {
			return err
		}
	}
	return workThrough(cmd, client, params)
}

// limit sets how many jobs, and how many a second.
func (b *bulkFlags) limit(params *jobq.BulkParams) (err error) {
	params.Max = b.max
	params.RatePerSecond, err = parseRate(b.rate)
	return err
}

// workThrough runs an action by filter, or goes on with one, and says how far
// it comes.
func workThrough(cmd *cobra.Command, client *jobq.Client, params jobq.BulkParams) error {
	verb := string(params.Action)
	if params.Resume > 0 {
		verb = fmt.Sprintf("action %d", params.Resume)
	}
	params.OnBatch = func(progress jobq.BulkProgress) {
		fmt.Fprintf(cmd.ErrOrStderr(), "%s: %d done, %d refused\n", verb, progress.Done, progress.Refused)
	}
	progress, err := client.Bulk(cmd.Context(), params)
	if progress.AuditID > 0 {
		fmt.Fprintf(cmd.OutOrStdout(), "%s: %d jobs, %d refused; take it back with: jobq undo %d\n", verb, progress.Done, progress.Refused, progress.AuditID)
	}
	if errors.Is(err, context.Canceled) {
		return fmt.Errorf("%s stopped before its end, go on with jobq audit resume %d: %w", verb, progress.AuditID, err)
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
