package main

import (
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/format"
	"github.com/jobq-dev/jobq/internal/when"
	"github.com/jobq-dev/jobq/monitor"
)

const (
	// errorsSince is how far back failures are looked at unless told otherwise.
	errorsSince = 24 * time.Hour
	// newestShown is how many jobs of a group "errors show" names.
	newestShown = 5
)

// failureShown is what "errors show --json" writes.
type failureShown struct {
	monitor.Failure
	Filter      string           `json:"filter"`                // that finds those of its jobs that have failed for good
	RetryFilter string           `json:"retry_filter"`          // and those that are to be tried again
	Newest      []int64          `json:"newest"`                // ids of the newest that have failed for good; where none has, of the others
	Runs        int              `json:"example_runs"`          // of the example
	Run         *monitor.Attempt `json:"example_run,omitempty"` // the last of them
}

func newErrorsCommand(a *app) *cobra.Command {
	var query monitor.FailureQuery
	command := &cobra.Command{
		Use:   "errors",
		Short: "Show why jobs fail, in groups; requeue a group",
		Long: `Show why jobs fail: in groups of one queue, kind and error, the most frequent first. FAILED have
failed for good, within --since. RETRYING have failed and are to be tried again, whenever they failed:
they are scheduled or available. FIRST and LAST are about FAILED.

Errors count as the same when their first lines differ in numbers, ids, addresses and
quoted texts alone; a # stands for those. What follows code, status, errno, signal,
SQLSTATE, HTTP or SMTP counts as it is.

A group has an id, which stays the same: "jobq errors show" and "jobq errors requeue" take it.
At most the last ` + format.Number(monitor.FailuresMax) + ` jobs that did not succeed are looked at, and the newest ` + format.Number(monitor.FailuresMax) + ` of those that are to be
tried again; a + after a number says that there may be more.`,
		Example: `  jobq errors
  jobq errors --queue email --since 7d
  jobq errors show 3f2a9c1e
  jobq errors requeue 3f2a9c1e --sample 5      # try a few
  jobq errors requeue 3f2a9c1e --rate 10/s     # then the others`,
		Args: exactArgs(0),
		RunE: a.withClient(func(cmd *cobra.Command, _ []string, client *jobq.Client) error {
			if query.Limit < 1 || query.Limit > monitor.FailureGroupsMax { // 0 would mean the default
				return usagef("--limit must be 1 to %d, not %d", monitor.FailureGroupsMax, query.Limit)
			}
			if err := checkSince(query); err != nil {
				return err
			}
			failures, err := monitor.New(client).Failures(cmd.Context(), query)
			if err != nil {
				return err
			}
			if a.json {
				return writeJSON(cmd.OutOrStdout(), failures)
			}
			return writeFailures(cmd, failures, query)
		}),
	}
	addSince(command.Flags(), &query)
	command.Flags().StringVar(&query.Queue, "queue", "", "only this queue")
	command.Flags().StringVar(&query.Kind, "kind", "", "only this kind")
	command.Flags().IntVar(&query.Limit, "limit", 50, "groups to show, 1 to 1000")
	a.addJSONFlag(command)
	command.AddCommand(newErrorsShowCommand(a), newErrorsRequeueCommand(a))
	return command
}

func addSince(flags *pflag.FlagSet, query *monitor.FailureQuery) {
	durationVar(flags, &query.Span, "since", errorsSince, "jobs that have failed so long ago, or later")
}

func checkSince(query monitor.FailureQuery) error {
	if query.Span <= 0 {
		return usagef("--since must be positive, not %s", query.Span)
	}
	return nil
}

func writeFailures(cmd *cobra.Command, failures monitor.Failures, query monitor.FailureQuery) error {
	notes := cmd.ErrOrStderr()
	switch {
	case len(failures.Groups) == 0 && (failures.More || failures.MoreRetrying): // said below
		fmt.Fprintln(notes, "no such job was found")
	case len(failures.Groups) == 0:
		fmt.Fprintf(notes, "no such job has failed in the last %s, and none is to be tried again\n", when.FormatDuration(query.Span))
	default:
		t := newTable(cmd.OutOrStdout(), "GROUP", "FAILED", "RETRYING", "QUEUE", "KIND", "FIRST", "LAST", "EXAMPLE", "ERROR")
		for _, group := range failures.Groups {
			first, last := "-", "-"
			if group.Failed > 0 {
				first, last = ago(group.First), ago(group.Last)
			}
			t.row(group.ID, format.OrMore(group.Failed, failures.More), format.OrMore(group.Retrying, failures.MoreRetrying), group.Queue, group.Kind, first, last,
				strconv.FormatInt(group.Example, 10), group.Error)
		}
		if err := t.flush(); err != nil {
			return err
		}
	}
	if failures.Left > 0 {
		fmt.Fprintf(notes, "%s more: --limit shows more, --queue and --kind choose\n", format.Count(failures.Left, "group"))
	}
	if failures.More {
		fmt.Fprintf(notes, "only the last %s jobs that did not succeed were looked at: there may be more\n", format.Number(monitor.FailuresMax))
	}
	if failures.MoreRetrying {
		fmt.Fprintf(notes, "of the jobs that are to be tried again, only the newest %s were looked at: there may be more\n", format.Number(monitor.FailuresMax))
	}
	return nil
}

// groupID is what the id of a group of failures looks like.
var groupID = regexp.MustCompile(`^[0-9a-f]{8}$`)

// failureGroup finds the group that the query names, as the only one of the answer. Without an id the query
// would mean all groups.
func failureGroup(cmd *cobra.Command, client *jobq.Client, query monitor.FailureQuery) (monitor.Failures, error) {
	query.ID = strings.ToLower(query.ID)
	if !groupID.MatchString(query.ID) {
		return monitor.Failures{}, usagef(`group %q: must be 8 hexadecimal digits, as "jobq errors" shows them`, query.ID)
	}
	if err := checkSince(query); err != nil {
		return monitor.Failures{}, err
	}
	failures, err := monitor.New(client).Failures(cmd.Context(), query)
	switch {
	case err != nil:
		return monitor.Failures{}, err
	case len(failures.Groups) == 0 && (failures.More || failures.MoreRetrying):
		return monitor.Failures{}, notFoundf(`no group %q among the last %s jobs that did not succeed, nor among the newest that are to be tried again, and no others were looked at`,
			query.ID, format.Number(monitor.FailuresMax))
	case len(failures.Groups) == 0:
		return monitor.Failures{}, notFoundf(`no group %q among the jobs that have failed in the last %s, or are to be tried again: "jobq errors" lists the groups, and --since looks further back`,
			query.ID, when.FormatDuration(query.Span))
	case len(failures.Groups) > 1: // two in four thousand million
		return monitor.Failures{}, fmt.Errorf(`%d groups have the id %q: requeue by filter instead, as in "jobq requeue --filter '%s'"`,
			len(failures.Groups), query.ID, failures.Groups[0].Filter())
	}
	return failures, nil
}

func newErrorsShowCommand(a *app) *cobra.Command {
	var query monitor.FailureQuery
	command := &cobra.Command{
		Use: "show GROUP", Short: "Show a group of failures, with the whole error of its newest job", Args: exactArgs(1),
		Example: "  jobq errors show 3f2a9c1e\n  jobq errors show 3f2a9c1e --json | jq -r .filter",
		RunE: a.withClient(func(cmd *cobra.Command, args []string, client *jobq.Client) error {
			query.ID = args[0]
			failures, err := failureGroup(cmd, client, query)
			if err != nil {
				return err
			}
			group := failures.Groups[0]
			shown := failureShown{Failure: group, Filter: groupFilter(group, query), RetryFilter: group.RetryFilter(), Newest: []int64{}}
			match := shown.Filter
			if group.Failed == 0 {
				match = shown.RetryFilter
			}
			newest, err := client.List(cmd.Context(), jobq.Filter{Match: match, Limit: newestShown})
			if err != nil {
				return err
			}
			for _, job := range newest.Jobs {
				shown.Newest = append(shown.Newest, job.ID)
			}
			runs, err := monitor.New(client).Attempts(cmd.Context(), group.Example)
			if err != nil {
				return err
			}
			if shown.Runs = len(runs); len(runs) > 0 {
				shown.Run = &runs[len(runs)-1]
			}
			if a.json {
				return writeJSON(cmd.OutOrStdout(), shown)
			}
			return writeFailure(cmd.OutOrStdout(), shown, failures)
		}),
	}
	addSince(command.Flags(), &query)
	a.addJSONFlag(command)
	return command
}

// groupFilter finds the jobs of a group that have failed within the span.
func groupFilter(group monitor.Failure, query monitor.FailureQuery) string {
	return group.Filter() + " age:<" + when.FormatDuration(query.Span)
}

func writeFailure(out io.Writer, shown failureShown, failures monitor.Failures) error {
	newest := make([]string, len(shown.Newest))
	for i, id := range shown.Newest {
		newest[i] = strconv.FormatInt(id, 10)
	}
	var page strings.Builder
	fields := newFields(&page)
	rows := [][2]string{
		{"group", shown.ID},
		{"queue", shown.Queue},
		{"kind", shown.Kind},
		{"error", shown.Error},
		{"failed", format.OrMore(shown.Failed, failures.More)},
		{"retrying", format.OrMore(shown.Retrying, failures.MoreRetrying)},
	}
	if shown.Failed > 0 {
		rows = append(rows, [][2]string{
			{"first", fmt.Sprintf("%s (%s)", shown.First.Format(time.RFC3339), ago(shown.First))},
			{"last", fmt.Sprintf("%s (%s)", shown.Last.Format(time.RFC3339), ago(shown.Last))},
		}...)
	}
	rows = append(rows, [2]string{"newest jobs", strings.Join(newest, ", ")})
	if shown.Failed > 0 {
		rows = append(rows, [2]string{"all that failed", "jobq list " + format.ShellWord(shown.Filter)})
	}
	if shown.Retrying > 0 {
		rows = append(rows, [2]string{"all that retry", "jobq list " + format.ShellWord(shown.RetryFilter)})
	}
	for _, row := range rows {
		fields.row(row[0], row[1])
	}
	if err := fields.flush(); err != nil {
		return err
	}
	if shown.Run != nil {
		fmt.Fprintf(&page, "\njob %d, of which this is the last run:\n", shown.Example)
		writeRun(&page, shown.Runs, 0, *shown.Run)
	}
	_, err := io.WriteString(out, page.String())
	return err
}
