package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/jobq-dev/jobq"
)

func newListCommand(a *app) *cobra.Command {
	var filter jobq.Filter
	var states []string
	command := &cobra.Command{
		Use:   "list",
		Short: "List jobs, newest first",
		Example: `  jobq list --state failed --queue email
  jobq list --kind resize --limit 200 --json
  jobq list --before 4711        # the page after job 4711`,
		Args: exactArgs(0),
		RunE: a.withClient(func(cmd *cobra.Command, _ []string, client *jobq.Client) error {
			for _, state := range states {
				if !slices.Contains(jobq.States(), jobq.State(state)) {
					return usagef("state %q: must be one of %s", state, stateNames())
				}
				filter.States = append(filter.States, jobq.State(state))
			}
			page, err := client.List(cmd.Context(), filter)
			if err != nil {
				return err
			}
			if a.json {
				return writeJSON(cmd.OutOrStdout(), page)
			}
			return writePage(cmd, page)
		}),
	}
	flags := command.Flags()
	flags.StringSliceVar(&states, "state", nil, "only these states ("+stateNames()+"), may be repeated")
	flags.StringVar(&filter.Queue, "queue", "", "only this queue")
	flags.StringVar(&filter.Kind, "kind", "", "only this kind")
	flags.StringVar(&filter.Tag, "tag", "", "only jobs with this tag")
	flags.IntVar(&filter.Limit, "limit", 50, "jobs on a page, 1 to 1000")
	flags.Int64Var(&filter.Before, "before", 0, "continue below this job id")
	a.addJSONFlag(command)
	return command
}

func stateNames() string {
	names := make([]string, 0, 6)
	for _, state := range jobq.States() {
		names = append(names, string(state))
	}
	return strings.Join(names, ", ")
}

func writePage(cmd *cobra.Command, page *jobq.Page) error {
	t := newTable(cmd.OutOrStdout(), "ID", "STATE", "QUEUE", "KIND", "TRY", "WHEN", "LAST ERROR")
	for _, job := range page.Jobs {
		t.row(strconv.FormatInt(job.ID, 10), stateText(job), job.Queue, job.Kind,
			fmt.Sprintf("%d/%d", job.Attempts, job.MaxAttempts), when(job), cut(job.LastError, 60))
	}
	if err := t.flush(); err != nil {
		return err
	}
	if page.Next > 0 {
		fmt.Fprintf(cmd.ErrOrStderr(), "more: --before %d\n", page.Next)
	}
	return nil
}

// when is the time that matters most in the job's state.
func when(job *jobq.Job) string {
	switch {
	case job.FinishedAt != nil:
		return "ended " + ago(*job.FinishedAt)
	case job.StartedAt != nil:
		return "started " + ago(*job.StartedAt)
	case job.State == jobq.Scheduled:
		return "due in " + short(time.Until(job.RunAt))
	}
	return "since " + ago(job.RunAt)
}
