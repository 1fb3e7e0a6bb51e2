package main

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/format"
	"github.com/jobq-dev/jobq/operator"
)

func newRequeueCommand(a *app) *cobra.Command {
	var values changeFlags
	command := a.newActionCommand(jobq.ActionRequeue, "Make finished, scheduled or waiting jobs available now",
		`A finished job gets at least one more attempt. A running one is refused: cancel it first.
Durable steps that are done stay done. With --from-step, one job does a step again, and
all that came after it; "jobq show" lists them. With --with-dependents, jobs that were
cancelled because a job failed for which they waited wait for it again.

With --set or --args, the jobs run again with other args; no worker gets one with its old
args. Such a job begins anew, without its checkpoint and its durable steps, and keeps its
unique key. Members of encrypted args cannot be set: --args and --keys-file replace those of
one job.`, &values)
	var step string
	command.Flags().StringVar(&step, "from-step", "", "of one job: do this durable step again, and those after it")
	var dependents bool
	command.Flags().BoolVar(&dependents, "with-dependents", false, "let jobs that were cancelled with these wait for them again")
	command.Example += "\n  jobq requeue --filter 'state:failed tag:sweep1' --set args.dt=0.01 --yes"
	plain := command.RunE
	command.RunE = func(cmd *cobra.Command, args []string) error {
		isChange := cmd.Flags().Changed("set") || cmd.Flags().Changed("args")
		isStep := cmd.Flags().Changed("from-step")
		switch {
		case isStep && isChange:
			return usagef("--from-step is not for other args: a job with other args does all its steps again")
		case dependents && (isStep || isChange):
			return usagef("--with-dependents goes with none of --set, --args and --from-step")
		case isStep:
			return a.withClient(func(cmd *cobra.Command, args []string, client *jobq.Client) error {
				return a.requeueFromStep(cmd, client, args, step)
			})(cmd, args)
		case dependents:
			return a.withClient(a.requeueWithDependents)(cmd, args)
		}
		return plain(cmd, args)
	}
	return command
}

// requeueWithDependents requeues jobs, and lets the jobs that were cancelled with them wait again.
func (a *app) requeueWithDependents(cmd *cobra.Command, args []string, client *jobq.Client) error {
	given := cmd.Flags().Changed
	if given("filter") || given("dry-run") || len(args) == 0 {
		return usagef("--with-dependents is for jobs by their ids; usage: jobq requeue ID... --with-dependents")
	}
	targets, err := (&bulkFlags{}).targetsOf(cmd, args)
	if err != nil {
		return err
	}
	acted, err := a.operator(client).RequeueWithDependents(cmd.Context(), targets...)
	if acted == nil {
		return err
	}
	err = errors.Join(a.sayActed(cmd, "requeue", acted, actedLine), err)
	if a.json {
		return err
	}
	out := cmd.OutOrStdout()
	if acted.Changed()+acted.Dependents.Requeued > 0 {
		fmt.Fprintf(out, "%s made to wait again; take it back with: jobq undo %d\n", format.Count(acted.Dependents.Requeued, "dependent"), acted.AuditID)
	}
	for _, job := range acted.Dependents.Problems {
		fmt.Fprintf(cmd.ErrOrStderr(), "job %d stays cancelled: %s\n", job.ID, job.Problem)
	}
	if more := acted.Dependents.Refused - len(acted.Dependents.Problems); more > 0 {
		fmt.Fprintf(cmd.ErrOrStderr(), "and %s more\n", format.Number(more))
	}
	return err
}

// requeueFromStep requeues one job, and has it do a step again, and those after it.
func (a *app) requeueFromStep(cmd *cobra.Command, client *jobq.Client, args []string, step string) error {
	given := cmd.Flags().Changed
	if len(args) != 1 || given("filter") || given("dry-run") || given("with-dependents") {
		return usagef("--from-step is for one job, by its id; usage: jobq requeue ID --from-step NAME")
	}
	id, err := parseID("job", args[0])
	if err != nil {
		return err
	}
	acted, forgotten, err := a.operator(client).RequeueFromStep(cmd.Context(), operator.Target{ID: id}, step)
	if err != nil {
		return err
	}
	return a.sayActed(cmd, "requeue", acted, func(job operator.ActedJob) string {
		return fmt.Sprintf("%s, does %s again", job.After, format.Count(int64(forgotten), "step"))
	})
}

func newCancelCommand(a *app) *cobra.Command {
	return a.newActionCommand(jobq.ActionCancel, "Cancel jobs that wait, and ask running ones to stop",
		`A running job is cancelled by its worker, which learns of it at once or with its next
heartbeat. A job that has ended already stays as it is.`, nil)
}

func newDeleteCommand(a *app) *cobra.Command {
	return a.newActionCommand(jobq.ActionDelete, "Delete jobs that do not run, with their history",
		"\"jobq undo\" brings them back while the audit remembers them: 90 days.", nil)
}

// newActionCommand makes a command that acts on the jobs named, or on all that
// match a filter. It goes on after a job that cannot be acted on; the exit
// code tells that there was one. values are flags that say with which args; nil for none.
func (a *app) newActionCommand(action jobq.Action, short, long string, values *changeFlags) *cobra.Command {
	name := string(action)
	command := &cobra.Command{
		Use:   name + " ID... | --filter FILTER",
		Short: short,
		Long:  short + ".\n\n" + long + "\n\n" + bulkHelp,
		Example: fmt.Sprintf("  jobq %s 4711 4712\n  jobq %s --filter 'state:failed queue:email' --dry-run\n"+
			"  jobq %s --filter 'state:failed queue:email' --yes --max 1000 --rate 100/s", name, name, name),
	}
	var bulk bulkFlags
	bulk.add(command.Flags())
	if values != nil {
		values.addArgs(command.Flags())
	}
	a.addJSONFlag(command)
	command.RunE = func(cmd *cobra.Command, args []string) error { return a.actOn(cmd, args, action, bulk, values) }
	return command
}

// actOn does the action to the jobs named, or to all that match the filter.
func (a *app) actOn(cmd *cobra.Command, args []string, action jobq.Action, bulk bulkFlags, values *changeFlags) error {
	targets, err := bulk.targetsOf(cmd, args)
	if err != nil {
		return err
	}
	var change operator.JobChange
	var codec argsCodec
	if values != nil && (cmd.Flags().Changed("set") || cmd.Flags().Changed("args")) {
		if change, err = values.change(cmd); err == nil {
			codec, err = values.argsCodec()
		}
		if err = cmp.Or(err, codec.check(change, len(targets))); err != nil {
			return err
		}
	}
	return a.withClient(func(cmd *cobra.Command, _ []string, client *jobq.Client) error {
		switch {
		case bulk.filter != "":
			_, err := a.runBulk(cmd, client, operator.BulkParams{Action: action, Filter: jobq.Filter{Match: bulk.filter}, Change: change}, bulk)
			return err
		case bulk.dryRun:
			return a.wouldAct(cmd, client, action, targets)
		}
		acted, err := a.actWith(cmd, client, action, change, codec, targets)
		if err != nil {
			return err
		}
		return a.sayActed(cmd, string(action), acted, actedLine)
	})(cmd, args)
}

// actWith does the action to the jobs named; a requeue with other args, if the change has some.
func (a *app) actWith(
	cmd *cobra.Command, client *jobq.Client, action jobq.Action, change operator.JobChange, codec argsCodec, targets []operator.Target,
) (acted *operator.Acted, err error) {
	if change.IsEmpty() {
		return a.operator(client).Act(cmd.Context(), action, targets...)
	}
	if change.Args != nil && len(targets) == 1 {
		if change.Args, err = codec.encodeFor(cmd.Context(), client, targets[0].ID, change.Args); err != nil {
			return nil, err
		}
	}
	return a.operator(client).RequeueWith(cmd.Context(), change, targets...)
}

// sayActed writes a line for each job, or all as JSON, and returns an error for
// each job that nothing was done to.
func (a *app) sayActed(cmd *cobra.Command, verb string, acted *operator.Acted, line func(operator.ActedJob) string) error {
	if a.json {
		if err := writeJSON(cmd.OutOrStdout(), acted); err != nil {
			return err
		}
	}
	var failures []error
	for _, job := range acted.Jobs {
		switch {
		case job.Problem != "":
			failures = append(failures, problemError(verb, job))
		case !a.json:
			fmt.Fprintf(cmd.OutOrStdout(), "%d %s\n", job.ID, line(job))
		}
	}
	return errors.Join(failures...)
}

// actedLine is what came of an action on a job.
func actedLine(job operator.ActedJob) string {
	if job.After == jobq.StateRunning {
		return "cancel requested"
	}
	return string(job.After)
}

// editedLine is what came of an edit.
func editedLine(job operator.ActedJob) string {
	if !job.Changed {
		return "was so already"
	}
	return "edited, " + string(job.After)
}

// problemError is why nothing was done to a job. The exit code follows from the
// code that the database has given.
func problemError(verb string, job operator.ActedJob) error {
	return fmt.Errorf("%s job %d: %w", verb, job.ID, job.Err())
}
