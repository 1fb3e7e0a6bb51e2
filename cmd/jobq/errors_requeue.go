package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/format"
	"github.com/jobq-dev/jobq/internal/when"
	"github.com/jobq-dev/jobq/monitor"
	"github.com/jobq-dev/jobq/operator"
)

func newErrorsRequeueCommand(a *app) *cobra.Command {
	var query monitor.FailureQuery
	var bulk bulkFlags
	command := &cobra.Command{
		Use:   "requeue GROUP",
		Short: "Requeue a group: a sample first, then the others at a rate",
		Long: `Requeue the jobs of a group of failures that have failed for good within --since. With --sample it
requeues that many, the newest, and says how to see what becomes of them: they run before
the others are risked. In the audit a sample is "not at its end", since the others are
left. With --rate it requeues that many a second. If it is stopped, "jobq audit resume"
goes on with the rest. Jobs that fail while it works are left alone, also if they fail in
the same way again.

The others are all jobs that are in the group when they are requeued: jobs of the sample
that have failed again in the same way are among them.

It asks first, unless --yes is given. "jobq undo" takes it back for the jobs that have not run since.`,
		Example: `  jobq errors requeue 3f2a9c1e --sample 5
  jobq errors requeue 3f2a9c1e --rate 10/s --yes`,
		Args: exactArgs(1),
		RunE: a.withClient(func(cmd *cobra.Command, args []string, client *jobq.Client) error {
			sampled := cmd.Flags().Changed("sample")
			if sampled && bulk.max < 1 {
				return usagef("--sample must be at least 1, not %d", bulk.max)
			}
			query.ID = args[0]
			failures, err := failureGroup(cmd, client, query)
			if err != nil {
				return err
			}
			group := failures.Groups[0]
			if group.Failed == 0 {
				return notFoundf("no job of the group %s has failed for good; its jobs (%s) are to be tried again. To let them run now: jobq requeue --filter %s",
					group.ID, format.Number(group.Retrying), format.ShellWord(group.RetryFilter()))
			}
			params := operator.BulkParams{Action: jobq.ActionRequeue, Filter: jobq.Filter{Match: groupFilter(group, query)}}
			progress, err := a.runBulk(cmd, client, params, bulk)
			if err != nil || !sampled || bulk.dryRun {
				return err
			}
			others := "jobq errors requeue " + group.ID
			if query.Span != errorsSince {
				others += " --since " + when.FormatDuration(query.Span)
			}
			return saySample(cmd, client, others+" --rate 10/s", progress.AuditID)
		}),
	}
	flags := command.Flags()
	addSince(flags, &query)
	flags.IntVar(&bulk.max, "sample", 0, "requeue only so many, the newest")
	flags.StringVar(&bulk.rate, "rate", "", "at most so many a second, such as 10/s")
	flags.BoolVar(&bulk.dryRun, "dry-run", false, "only say how many jobs it would requeue")
	flags.BoolVar(&bulk.yes, "yes", false, "do not ask")
	a.addJSONFlag(command)
	return command
}

// saySample says how to look at the jobs that an action has requeued, and how to go on
// with the others.
func saySample(cmd *cobra.Command, client *jobq.Client, others string, auditID int64) error {
	entries, err := monitor.New(client).Audit(cmd.Context(), auditID+1, 1)
	if err != nil || len(entries) == 0 || len(entries[0].JobIDs) == 0 {
		return err
	}
	ids := make([]string, len(entries[0].JobIDs))
	for i, id := range entries[0].JobIDs {
		ids[i] = strconv.FormatInt(id, 10)
	}
	_, err = fmt.Fprintf(cmd.ErrOrStderr(), "look at them:       jobq list %s\nrequeue the others: %s\n",
		format.ShellWord("id:"+strings.Join(ids, ",")), others)
	return err
}
