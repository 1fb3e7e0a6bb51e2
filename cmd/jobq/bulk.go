package main

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/format"
	"github.com/jobq-dev/jobq/operator"
)

// bulkFlags are those of an action by filter.
type bulkFlags struct {
	filter, rate string
	dryRun, yes  bool
	max          int
}

func (b *bulkFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&b.filter, "filter", "", "act on all jobs that match")
	flags.BoolVar(&b.dryRun, "dry-run", false, "only say how many jobs it would act on")
	flags.BoolVar(&b.yes, "yes", false, "with --filter: do not ask")
	b.addLimits(flags, "with --filter: ")
}

func (b *bulkFlags) addLimits(flags *pflag.FlagSet, when string) {
	flags.IntVar(&b.max, "max", 0, when+"act on this many jobs at most")
	flags.StringVar(&b.rate, "rate", "", when+"at most so many a second, such as 100/s")
}

// bulkHelp is what all actions by filter promise.
const bulkHelp = `With --filter it acts on all jobs that match when it has counted them; those
that come later are left alone, and so are those in states in which it does nothing. It
asks first; with --yes, which it needs where there is no terminal, it does not. What was
done is in "jobq audit", and "jobq undo" takes it back where nothing has happened since.
What was stopped goes on with "jobq audit resume". Where every job was refused, the exit
code is that of the first refusal, such as 4. An empty filter is refused: id:>0 means all
jobs.

` + filterHelp

// targetsOf reads ids, or none where there is a filter. What an unset variable
// of a script can leave behind is refused: an empty filter means all jobs.
func (b *bulkFlags) targetsOf(cmd *cobra.Command, args []string) ([]operator.Target, error) {
	given := cmd.Flags().Changed
	switch {
	case (len(args) == 0) == !given("filter"):
		return nil, usagef("name jobs by id, or --filter, and not both; usage: %s", cmd.UseLine())
	case given("filter") && strings.TrimSpace(b.filter) == "":
		return nil, usagef("--filter is empty: write id:>0 if you mean all jobs")
	case len(args) > 0 && (given("max") || given("rate")):
		return nil, usagef("--max and --rate need --filter")
	}
	ids := make([]int64, len(args))
	for i, arg := range args {
		id, err := parseID("job", arg)
		if err != nil {
			return nil, err
		}
		ids[i] = id
	}
	slices.Sort(ids)
	var targets []operator.Target
	for _, id := range slices.Compact(ids) { // twice, the second action on a job would be refused: its state has changed
		targets = append(targets, operator.Target{ID: id})
	}
	return targets, nil
}

// runBulk acts on what a filter matches, after it has asked, and returns how far it
// came.
func (a *app) runBulk(cmd *cobra.Command, client *jobq.Client, params operator.BulkParams, flags bulkFlags) (none operator.BulkProgress, err error) {
	if err := flags.limit(cmd, &params); err != nil {
		return none, err
	}
	if err := flags.canAsk(cmd, params.Action); err != nil {
		return none, err
	}
	snapshot, err := a.operator(client).BulkSnapshot(cmd.Context(), params.Action, params.Filter)
	if err != nil {
		return none, err
	}
	params.Snapshot = snapshot
	count, matches := snapshot.Count, format.Count(snapshot.Count, "job")
	switch {
	case params.Max > 0 && count > int64(params.Max):
		count = int64(params.Max)
		matches = format.Count(count, "job")
	case snapshot.More:
		matches = "all jobs that match, more than " + format.Number(count)
	}
	if flags.dryRun {
		return none, a.sayWould(cmd, would{params.Action, count, snapshot.More && count == snapshot.Count}, matches)
	}
	if !flags.yes {
		if err := askForBulk(cmd, params.Action, matches); err != nil {
			return none, err
		}
	}
	return a.workThrough(cmd, client, params)
}

// limit sets how many jobs, and how many a second. A limit that is given bounds
// something: none at all is to leave it out.
func (b *bulkFlags) limit(cmd *cobra.Command, params *operator.BulkParams) (err error) {
	given := cmd.Flags().Changed
	if given("max") && b.max < 1 {
		return usagef("--max must be at least 1, not %d", b.max)
	}
	params.Max = b.max
	if given("rate") {
		if params.RatePerSecond, err = format.ParsePerSecond(b.rate); err != nil {
			return usagef("--rate %q: %s", b.rate, err)
		}
	}
	return nil
}

// workThrough runs an action by filter, or goes on with one, and says how far
// it comes.
func (a *app) workThrough(cmd *cobra.Command, client *jobq.Client, params operator.BulkParams) (operator.BulkProgress, error) {
	verb := string(params.Action)
	if params.Resume > 0 {
		verb = fmt.Sprintf("action %d", params.Resume)
	}
	line := newProgressLine(cmd.ErrOrStderr())
	params.OnBatch = func(progress operator.BulkProgress) {
		line.say("%s: %s done, %s refused", verb, format.Number(progress.Done), format.Number(progress.Refused))
	}
	progress, err := a.operator(client).Bulk(cmd.Context(), params)
	line.end()
	switch {
	case progress.AuditID == 0:
	case a.json:
		err = errors.Join(err, writeJSON(cmd.OutOrStdout(), progress))
	default:
		for _, job := range progress.Problems {
			fmt.Fprintf(cmd.ErrOrStderr(), "job %d: %s\n", job.ID, job.Err())
		}
		if more := progress.Refused - len(progress.Problems); more > 0 && len(progress.Problems) > 0 {
			fmt.Fprintf(cmd.ErrOrStderr(), "and %s more\n", format.Number(more))
		}
		fmt.Fprintf(cmd.OutOrStdout(), "%s: %s, %s refused; take it back with: jobq undo %d\n", verb, format.Count(progress.Done, "job"), format.Number(progress.Refused), progress.AuditID)
	}
	// What is in conflict is undone, or somebody else goes on with it.
	if err != nil && progress.AuditID > 0 && !errors.Is(err, jobq.ErrConflict) {
		return progress, fmt.Errorf("%s stopped before its end, go on with jobq audit resume %d: %w", verb, progress.AuditID, err)
	}
	if err == nil && progress.Done == 0 && len(progress.Problems) > 0 {
		err = fmt.Errorf("%s: every job was refused: %w", verb, progress.Problems[0].Err())
	}
	return progress, err
}

// canAsk says whether somebody reads questions and can answer them. Actions by
// filter look before they count, which can take long.
func (b *bulkFlags) canAsk(cmd *cobra.Command, action jobq.Action) error {
	if b.yes || b.dryRun || isTerminal(cmd.InOrStdin()) && isTerminal(cmd.ErrOrStderr()) {
		return nil
	}
	return usagef("%s by filter asks first, and there is no terminal to ask on: give --yes, or --dry-run to see how many jobs it is about", action)
}

// askForBulk asks for the action's name.
func askForBulk(cmd *cobra.Command, action jobq.Action, matches string) error {
	return askFor(cmd, fmt.Sprintf("%s %s?", action, matches), string(action))
}

// askFor asks a question that only the word answers with yes.
func askFor(cmd *cobra.Command, question, word string) error {
	fmt.Fprintf(cmd.ErrOrStderr(), "%s Type %q to go on: ", question, word)
	answer, err := awaitInput(cmd.Context(), func() (answer string, err error) {
		_, err = fmt.Fscanln(cmd.InOrStdin(), &answer)
		return answer, err
	})
	switch {
	case cmd.Context().Err() != nil:
		return fmt.Errorf("nothing was done: %w", err)
	case err != nil || answer != word:
		return usagef("nothing was done")
	}
	return nil
}

// wouldAct says how many of the jobs named an action would be about.
func (a *app) wouldAct(cmd *cobra.Command, client *jobq.Client, action jobq.Action, targets []operator.Target) error {
	const idsMax = 200 // of one filter, which has at most 4096 bytes
	var count int64
	for some := range slices.Chunk(targets, idsMax) {
		ids := make([]string, len(some))
		for i, target := range some {
			ids[i] = strconv.FormatInt(target.ID, 10)
		}
		snapshot, err := a.operator(client).BulkSnapshot(cmd.Context(), action, jobq.Filter{Match: "id:" + strings.Join(ids, ",")})
		if err != nil {
			return err
		}
		count += snapshot.Count
	}
	return a.sayWould(cmd, would{action, count, false}, fmt.Sprintf("%s of %s", format.Number(count), format.Count(len(targets), "job")))
}

// would is what --dry-run says as JSON.
type would struct {
	Action jobq.Action `json:"action"`
	Count  int64       `json:"count"`
	More   bool        `json:"more,omitempty"` // there may be more than could be counted
}

// sayWould is what --dry-run says: how many jobs, and that in words.
func (a *app) sayWould(cmd *cobra.Command, what would, jobs string) error {
	if a.json {
		return writeJSON(cmd.OutOrStdout(), what)
	}
	_, err := fmt.Fprintf(cmd.OutOrStdout(), "would %s %s\n", what.Action, jobs)
	return err
}
