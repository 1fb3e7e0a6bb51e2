package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/catalogue"
	"github.com/jobq-dev/jobq/internal/printable"
	"github.com/jobq-dev/jobq/internal/when"
	"github.com/jobq-dev/jobq/monitor"
	"github.com/jobq-dev/jobq/operator"
)

func newQueuesSetCommand(a *app) *cobra.Command {
	var key string
	var yes bool
	command := &cobra.Command{
		Use:   "set NAME SETTING=VALUE...",
		Short: "Change settings of a queue",
		Long: `Change settings of a queue. They are kept in the database, and every worker and janitor obeys them within seconds. What is not given stays as it is. Combinations that cannot work are refused.

` + settingsHelp(catalogue.QueueSettings()) + `
docs/limits.md says what limits and rates promise, docs/partition-keys.md the settings of keys, and docs/recovery.md shows five ways of recovery. A shorter retention deletes jobs that are kept now, and needs --yes.

With --key it sets nothing of the queue, but the weight of one of its partition keys: of a key of weight 3, three jobs start where one of a key without a weight does. "jobq queues keys" lists the weights, and 1 takes one away. In a queue with a key_separator, the weight of the key that is named as a group is that of the group.`,
		Example: `  jobq queues set mail rate=100/s burst=20
  jobq queues set mail rate=none
  jobq queues set export key_limit=1    # one job of each key at a time
  jobq queues set ledger key_order=hold # and in their order
  jobq queues set reports --key customer-17 weight=3
  jobq queues set audit retention=90d failed_retention=365d
  jobq queues set video lease=45m extend_every=2m stale_grace=45m`,
		Args: rangeArgs(2, 1000),
		RunE: func(cmd *cobra.Command, args []string) error {
			values, err := settingValues(args[1:])
			if err != nil {
				return err
			}
			if cmd.Flags().Changed("key") {
				weight, err := weightValue(args[0], values)
				if err != nil {
					return err
				}
				return a.withClient(func(cmd *cobra.Command, args []string, client *jobq.Client) error {
					return a.setKeyWeight(cmd, client, args[0], key, weight)
				})(cmd, args)
			}
			change, err := queueChange(values)
			if err != nil {
				return err
			}
			return a.withClient(func(cmd *cobra.Command, args []string, client *jobq.Client) error {
				return a.setQueue(cmd, client, args[0], change, yes)
			})(cmd, args)
		},
		ValidArgsFunction: completeSettings(catalogue.QueueSettingNames()),
	}
	command.Flags().StringVar(&key, "key", "", "the partition key that gets a weight")
	command.Flags().BoolVar(&yes, "yes", false, "also where that deletes jobs")
	a.addJSONFlag(command)
	return command
}

// settingsHelp are the settings for the help, in two columns.
func settingsHelp[Change, Stored any](settings []catalogue.Setting[Change, Stored]) string {
	var help strings.Builder
	for _, s := range settings {
		fmt.Fprintf(&help, "  %-17s %s\n", s.Name, strings.ReplaceAll(wrap(s.Takes+": "+s.Help, helpWidth-20), "\n", "\n"+strings.Repeat(" ", 20)))
	}
	return help.String()
}

// settingValues cuts words such as limit=3 at their =.
func settingValues(words []string) (map[string]string, error) {
	values := make(map[string]string, len(words))
	for _, word := range words {
		name, value, cut := strings.Cut(word, "=")
		_, twice := values[name]
		switch {
		case !cut:
			return nil, usagef("%q must be a setting and its value, such as limit=3", word)
		case twice:
			return nil, usagef("%s is given twice", name)
		}
		values[name] = value
	}
	return values, nil
}

// queueChange reads the settings of a queue.
func queueChange(values map[string]string) (operator.QueueChange, error) {
	change, err := catalogue.QueueChange(values)
	wrong := (*catalogue.SettingError)(nil)
	if !errors.As(err, &wrong) {
		return change, err
	}
	if wrong.Name == "weight" {
		return change, usagef("weight needs --key: it is that of one partition key")
	}
	return change, usagef("%w%s", err, didYouMean(wrong.Name, otherThan(wrong.Name, catalogue.QueueSettingNames())))
}

func otherThan(name string, names []string) []string {
	if slices.Contains(names, name) {
		return nil // it is right, and its value is not
	}
	return names
}

// weightValue reads the weight of a key, which has no other setting.
func weightValue(queue string, values map[string]string) (int, error) {
	for name := range values {
		if name != "weight" {
			return 0, usagef("%s is about the whole queue: set it in a command of its own, without --key", name)
		}
	}
	weight, err := strconv.Atoi(values["weight"])
	if err != nil || weight < 1 || weight > jobq.KeyWeightMax {
		return 0, usagef("weight must be 1 to %d, not %.50q; \"jobq queues pause %s --key\" stops the key", jobq.KeyWeightMax, values["weight"], printable.Line(queue))
	}
	return weight, nil
}

// completeSettings completes the names of settings, after the name of what has them.
func completeSettings(names []string) cobra.CompletionFunc {
	return func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) == 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		completed := make([]string, len(names))
		for i, name := range names {
			completed[i] = name + "="
		}
		return completed, cobra.ShellCompDirectiveNoSpace | cobra.ShellCompDirectiveNoFileComp
	}
}

func (a *app) setQueue(cmd *cobra.Command, client *jobq.Client, name string, change operator.QueueChange, yes bool) error {
	if !yes {
		if err := refuseLoss(cmd.Context(), client, name, change); err != nil {
			return err
		}
	}
	note := a.unknownNote(cmd.Context(), client, name)
	id, err := a.operator(client).SetQueue(cmd.Context(), name, change)
	if err != nil {
		return err
	}
	if err := a.sayChanged(cmd, changed{Queue: name, AuditID: id}, "set"); err != nil {
		return err
	}
	note(cmd)
	return nil
}

// unknownNote is the note that nothing knew the queue before, which may be misspelt, or is as it should be where
// settings come before the first job.
func (a *app) unknownNote(ctx context.Context, client *jobq.Client, name string) func(*cobra.Command) {
	known, err := monitor.New(client).QueueKnown(ctx, name)
	if err != nil || known { // only a note depends on it
		return func(*cobra.Command) {}
	}
	unknown := unknownQueue(ctx, client, name)
	return func(cmd *cobra.Command) {
		fmt.Fprintf(cmd.ErrOrStderr(), "note: before this, %s\n", printable.Line(unknown.Error()))
	}
}

// setKeyWeight gives a partition key of a queue a weight.
func (a *app) setKeyWeight(cmd *cobra.Command, client *jobq.Client, queue, key string, weight int) error {
	note := a.unknownNote(cmd.Context(), client, queue)
	acted, err := a.operator(client).SetKeyWeight(cmd.Context(), queue, key, weight)
	if err != nil {
		return err
	}
	set := changed{Queue: queue, Key: key, AuditID: acted.AuditID, HasJobs: &acted.HasJobs}
	if err := a.sayChanged(cmd, set, fmt.Sprintf("of weight %d", weight)); err != nil {
		return err
	}
	note(cmd)
	return nil
}

// refuseLoss says what the change would delete.
func refuseLoss(ctx context.Context, client *jobq.Client, name string, change operator.QueueChange) error {
	if change.Retention == nil && change.FailedRetention == nil {
		return nil
	}
	queues, err := monitor.New(client).Queues(ctx)
	if err != nil {
		return err
	}
	settings, err := monitor.New(client).Settings(ctx)
	if err != nil {
		return err
	}
	var before monitor.QueueSettings
	if at := slices.IndexFunc(queues, func(queue monitor.Queue) bool { return queue.Name == name }); at >= 0 {
		before = queues[at].QueueSettings
	}
	after := before
	after.Retention = *cmp.Or(change.Retention, &before.Retention)
	after.FailedRetention = *cmp.Or(change.FailedRetention, &before.FailedRetention)
	was, wasFailed := before.Kept(settings)
	is, isFailed := after.Kept(settings)
	if is >= was && isFailed >= wasFailed {
		return nil
	}
	return usagef("finished jobs of the queue are kept for %s now, and failed ones for %s; with this, those that have ended longer than %s and %s ago are deleted "+
		"within minutes, and no undo brings them back: add --yes to do it", when.FormatDuration(was), when.FormatDuration(wasFailed),
		when.FormatDuration(is), when.FormatDuration(isFailed))
}
