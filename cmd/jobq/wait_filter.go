package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/dberror"
	"github.com/jobq-dev/jobq/internal/format"
	"github.com/jobq-dev/jobq/internal/sleep"
	"github.com/jobq-dev/jobq/internal/when"
	"github.com/jobq-dev/jobq/monitor"
)

// Between two looks at the jobs of a filter is a second at least, and this many times as long as a look takes: a filter
// that reads many jobs must not keep the database busy.
const (
	filterLookEvery = time.Second
	filterLookShare = 10
)

// awaitFilter waits until no job that matches is open, and prints what has become of them.
func (a *app) awaitFilter(cmd *cobra.Command, client *jobq.Client, match string, timeout time.Duration) error {
	ctx := cmd.Context()
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	line := newProgressLine(cmd.ErrOrStderr())
	last, err := lookUntilNoneIsOpen(ctx, client, match, line)
	line.end()
	switch {
	case timeout > 0 && errors.Is(ctx.Err(), context.DeadlineExceeded):
		open := "jobs"
		if last != nil {
			open = format.Count(last.Open, "job")
		}
		return codedError{fmt.Errorf("%s of %s not ended within %s", open, match, when.FormatDuration(timeout)), exitNotEnded}
	case err != nil:
		return err
	case a.json:
		err = writeJSON(cmd.OutOrStdout(), last)
	case last.Jobs > 0:
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s: %s\n", format.Count(last.Jobs, "job"), stateCounts(last))
	}
	failed, cancelled := last.States[jobq.StateFailed], last.States[jobq.StateCancelled]
	switch {
	case err != nil:
		return err
	case failed > 0:
		return codedError{fmt.Errorf("%s failed: jobq list 'state:failed %s'", format.Count(failed, "job"), match), exitFailed}
	case cancelled > 0:
		return codedError{fmt.Errorf("%s cancelled", format.Count(cancelled, "job")), exitCancelled}
	}
	return nil
}

// lookUntilNoneIsOpen looks again and again, also while the database is away, and returns what it saw last.
func lookUntilNoneIsOpen(ctx context.Context, client *jobq.Client, match string, line *progressLine) (last *monitor.Summary, err error) {
	for {
		began := time.Now()
		summary, err := monitor.New(client).Summary(ctx, jobq.Filter{Match: match})
		isAway := errors.Is(err, jobq.ErrUnavailable) || errors.Is(err, jobq.ErrTimeout)
		switch {
		case err != nil && (ctx.Err() != nil || !isAway):
			return last, err
		case err != nil:
			line.sayPadded("the database is away")
		case summary.Jobs == 0 && last == nil:
			return summary, dberror.NotFound("no job matches " + match)
		case summary.Open == 0:
			return summary, nil
		default:
			last = summary
			line.sayPadded(fmt.Sprintf("%s: %s; %s/s, %s left", format.Count(summary.Jobs, "job"), stateCounts(summary), ratePerSecond(summary), timeLeft(summary)))
		}
		if err := sleep.For(ctx, max(filterLookEvery, filterLookShare*time.Since(began))); err != nil {
			return last, err
		}
	}
}
