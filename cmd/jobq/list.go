package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/format"
	"github.com/jobq-dev/jobq/internal/printable"
	"github.com/jobq-dev/jobq/monitor"
)

// filterHelp ends the help of every command that has a filter.
const filterHelp = `A filter is made of terms, such as state:failed queue:email age:<2h. "jobq help filter" has all of it.`

// listFlags are the flags of `jobq list`.
type listFlags struct {
	filter        jobq.Filter
	states        []string
	columns       []string
	keys          keysFlag
	order, format string
	watch         time.Duration
}

func newListCommand(a *app) *cobra.Command {
	var f listFlags
	command := &cobra.Command{
		Use:     "list [FILTER...]",
		Aliases: []string{"ls", "jobs"},
		Short:   "List jobs, newest first",
		Long: `List jobs, newest first unless sorted otherwise: a page of them, and with -o csv all, or as
many as --limit says.

With --columns, a table or CSV has these columns: fields of a job, such as id and state, its
args, checkpoint, result, metadata and progress, and members of these, such as args.dt and
result.loss.mean. Cells of CSV are as they are stored: numbers have all their digits, what a
job does not have is empty. A spreadsheet may take a text for a formula that begins with =, +, -
or @: import such columns as text. The list is read page by page, so it has each job as it was
when its page was read.

` + filterHelp,
		Example: `  jobq list 'state:failed queue:email kind:Send*' --sort finished
  jobq list state:scheduled --sort due -o wide
  jobq list 'args.tenant=4411 age:<2h' -o jsonl | jq .id
  jobq list -queue:email -tag:test     # jobs of other queues, without that tag
  jobq list tag:sweep1 -o csv --columns id,state,args.dt,result.loss > done.csv
  jobq list state:failed --watch       # one JSON object per change
  jobq list --after 4711               # the page after job 4711`,
		RunE: a.withClient(func(cmd *cobra.Command, args []string, client *jobq.Client) error {
			if a.json {
				f.format = "json"
			}
			return listJobs(cmd, client, strings.Join(args, " "), &f)
		}),
	}
	f.add(command.Flags())
	a.addJSONFlag(command)
	return command
}

func (f *listFlags) add(flags *pflag.FlagSet) {
	namesVar(flags, &f.states, "state", "only these states ("+stateNames()+"), may be repeated")
	flags.StringVar(&f.filter.Queue, "queue", "", "only this queue")
	flags.StringVar(&f.filter.Kind, "kind", "", "only this kind")
	flags.StringVar(&f.filter.Tag, "tag", "", "only jobs with this tag")
	flags.IntVar(&f.filter.Limit, "limit", 50, "jobs on a page, 1 to 1000; with -o csv, jobs in all (default all)")
	flags.Int64Var(&f.filter.Before, "before", 0, "continue below this job id, in a list by id")
	flags.StringVar(&f.filter.After, "after", "", "continue after this cursor, in any order")
	flags.StringVar(&f.order, "sort", string(jobq.SortNewest), "id, finished (failed and cancelled jobs), due (scheduled jobs) or started (running jobs)")
	flags.BoolVar(&f.filter.Reverse, "reverse", false, "turn the order around")
	flags.StringVarP(&f.format, "output", "o", "table", "table, wide, json, jsonl, csv or id")
	namesVar(flags, &f.columns, "columns", "of a table or CSV, such as id,state,args.dt,result.loss")
	f.keys.add(flags, "file of keys, to show encrypted args, checkpoints and results of --columns as plain text")
	durationVar(flags, &f.watch, "watch", 0, "write a JSON object for each new job and each change, looking this often")
	flags.Lookup("watch").NoOptDefVal = "1s"
}

func listJobs(cmd *cobra.Command, client *jobq.Client, match string, f *listFlags) error {
	filter := f.filter
	filter.Match, filter.Sort = match, jobq.Sort(f.order)
	for _, state := range f.states {
		if !slices.Contains(jobq.States(), jobq.State(state)) {
			return usagef("state %q: must be one of %s%s", state, stateNames(), didYouMean(state, strings.Split(stateNames(), ", ")))
		}
		filter.States = append(filter.States, jobq.State(state))
	}
	if filter.Limit < 1 { // which to the client means the default
		return usagef("--limit must be 1 to 1000, not %d", filter.Limit)
	}
	write, ok := pageWriters[f.format]
	if !ok && f.format != "csv" {
		return usagef("-o %q: must be table, wide, json, jsonl, csv or id", f.format)
	}
	table, err := f.table()
	if err != nil {
		return err
	}
	switch {
	case f.watch > 0:
		return watchList(cmd, client, filter, f.watch)
	case f.format == "csv" && cmd.Flags().Changed("limit"):
		return table.writeCSV(cmd, client, filter, filter.Limit)
	case f.format == "csv":
		return table.writeCSV(cmd, client, filter, 0)
	case len(f.columns) > 0:
		filter.Values, write = format.NeedsValues(f.columns), table.writeTable
	}
	page, err := client.List(cmd.Context(), filter)
	if err != nil {
		return err
	}
	err = write(cmd, page)
	if err == nil && len(page.Jobs) == 0 && (f.format == "table" || f.format == "wide") {
		sayNothing(cmd, client, filter)
	}
	return err
}

// table is what the flags say of columns.
func (f *listFlags) table() (*listColumns, error) {
	switch {
	case len(f.columns) == 0:
		return &listColumns{columns: format.JobColumns()}, nil
	case f.watch > 0 || f.format != "csv" && f.format != "table":
		return nil, usagef("--columns is for a table or -o csv; JSON has all fields")
	}
	if err := format.CheckJobColumns(f.columns); err != nil {
		return nil, usagef("--columns: %w", err)
	}
	codec, err := f.keys.fromFile()
	return &listColumns{columns: f.columns, codec: codec}, err
}

// sayNothing says that a list is empty, and whether that is because nobody knows
// its queue. The list has been answered: that this could not be found out is no
// error.
func sayNothing(cmd *cobra.Command, client *jobq.Client, filter jobq.Filter) {
	fmt.Fprintln(cmd.ErrOrStderr(), "no job matches")
	if filter.Queue == "" {
		return
	}
	if known, err := monitor.New(client).QueueKnown(cmd.Context(), filter.Queue); err == nil && !known {
		fmt.Fprintln(cmd.ErrOrStderr(), printable.Line(unknownQueue(cmd.Context(), client, filter.Queue).Error()))
	}
}

func stateNames() string {
	names := make([]string, 0, 6)
	for _, state := range jobq.States() {
		names = append(names, string(state))
	}
	return strings.Join(names, ", ")
}

// watchList appends one line for each job of the first page that is new or
// has changed since the last look, oldest first, until it is interrupted.
func watchList(cmd *cobra.Command, client *jobq.Client, filter jobq.Filter, every time.Duration) error {
	seen := make(map[int64]string)
	for {
		page, err := client.List(cmd.Context(), filter)
		if cmd.Context().Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		now := make(map[int64]string, len(page.Jobs))
		for _, job := range slices.Backward(page.Jobs) {
			version := versionOf(job)
			if now[job.ID] = version; seen[job.ID] == version {
				continue
			}
			if err := writeLine(cmd.OutOrStdout(), job); err != nil {
				return err
			}
		}
		seen = now
		select {
		case <-cmd.Context().Done():
			return nil
		case <-time.After(every):
		}
	}
}

// versionOf is what a watcher wants to hear about when it changes.
func versionOf(job *jobq.Job) string {
	percent, stage := float32(0), ""
	if job.Progress != nil {
		percent, stage = job.Progress.Percent, job.Progress.Stage
	}
	return fmt.Sprint(job.State, job.Attempts, job.Lost, job.LeaseToken, job.RunAt.UnixMicro(), job.CancelRequestedAt != nil, percent, stage)
}
