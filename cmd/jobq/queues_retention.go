package main

import (
	"context"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/when"
	"github.com/jobq-dev/jobq/monitor"
	"github.com/jobq-dev/jobq/operator"
)

// retentionFlags are those of how long finished jobs of a queue are kept.
type retentionFlags struct {
	retention, failed     time.Duration
	noRetention, noFailed bool
	yes                   bool
}

func (r *retentionFlags) add(command *cobra.Command) {
	flags := command.Flags()
	durationVar(flags, &r.retention, "retention", 0, "how long finished jobs of the queue are kept, 1d to 10 years")
	flags.BoolVar(&r.noRetention, "no-retention", false, "as long as in all queues")
	durationVar(flags, &r.failed, "failed-retention", 0, "and those of them that failed or were cancelled")
	flags.BoolVar(&r.noFailed, "no-failed-retention", false, "as long as the others of the queue, or as failed_retention says of all queues")
	flags.BoolVar(&r.yes, "yes", false, "also where that deletes jobs")
	command.MarkFlagsMutuallyExclusive("retention", "no-retention")
	command.MarkFlagsMutuallyExclusive("failed-retention", "no-failed-retention")
}

// change adds what was given.
func (r *retentionFlags) change(given func(name string) bool, change *operator.QueueChange) error {
	for name, duration := range map[string]time.Duration{"retention": r.retention, "failed-retention": r.failed} {
		if given(name) && duration <= 0 {
			return usagef("--%s must be 1d to 10 years; --no-%[1]s takes it away", name)
		}
	}
	change.Retention = ifGiven(given("retention") || r.noRetention, r.retention)
	change.FailedRetention = ifGiven(given("failed-retention") || r.noFailed, r.failed)
	return nil
}

// refuse says what the change would delete, unless the caller knows.
func (r *retentionFlags) refuse(ctx context.Context, client *jobq.Client, name string, change operator.QueueChange) error {
	if r.yes || change.Retention == nil && change.FailedRetention == nil {
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
	if change.Retention != nil {
		after.Retention = *change.Retention
	}
	if change.FailedRetention != nil {
		after.FailedRetention = *change.FailedRetention
	}
	was, wasFailed := before.Kept(settings)
	is, isFailed := after.Kept(settings)
	if is >= was && isFailed >= wasFailed {
		return nil
	}
	return usagef("finished jobs of the queue are kept for %s now, and failed ones for %s; with this, those that have ended longer than %s and %s ago are deleted "+
		"within minutes, and no undo brings them back: add --yes to do it", when.FormatDuration(was), when.FormatDuration(wasFailed),
		when.FormatDuration(is), when.FormatDuration(isFailed))
}

// formatKept says how long finished jobs of a queue are kept, and whose settings say so.
func formatKept(queue *monitor.QueueSettings, settings monitor.Settings) string {
	completed, failed := queue.Kept(settings)
	text := when.FormatDuration(completed)
	if failed != completed {
		text += ", failed and cancelled ones " + when.FormatDuration(failed)
	}
	if queue.Retention == 0 && queue.FailedRetention == 0 {
		text += ", as in all queues: jobq settings"
	}
	return text
}
