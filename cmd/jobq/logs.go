package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/spf13/cobra"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/printable"
	"github.com/jobq-dev/jobq/monitor"
)

// followEvery is how often `logs -f` looks for more.
const followEvery = 250 * time.Millisecond

func newLogsCommand(a *app) *cobra.Command {
	var follow bool
	command := &cobra.Command{
		Use:   "logs ID",
		Short: "Show what a job's program has written",
		Long: `Show what the last run of a job has written, up to now if it runs. With -f, go on
until the job has ended, also through further attempts.`,
		Example: "  jobq logs -f 4711",
		Args:    exactArgs(1),
		RunE: a.withClient(func(cmd *cobra.Command, args []string, client *jobq.Client) error {
			id, err := parseID("job", args[0])
			if err != nil {
				return err
			}
			f := &follower{client: client, id: id, out: cmd.OutOrStdout(), errOut: cmd.ErrOrStderr()}
			return f.run(cmd.Context(), follow)
		}),
	}
	command.Flags().BoolVarP(&follow, "follow", "f", false, "go on until the job has ended")
	return command
}

// follower prints a job's output once.
type follower struct {
	client *jobq.Client
	id     int64
	out    io.Writer
	errOut io.Writer
	last   monitor.OutputPiece // that was printed
	done   int64               // runs with tokens up to this one are printed
	begun  bool
	told   bool // that there is no output of a running program here
}

// run prints what there is, and what comes until the job has ended, or until it
// is interrupted, be that in a query: that is how one stops following.
func (f *follower) run(ctx context.Context, follow bool) error {
	err := f.print(ctx, follow)
	if follow && ctx.Err() != nil {
		return nil
	}
	return err
}

func (f *follower) print(ctx context.Context, follow bool) error {
	for {
		// In this order: what a run has written is stored before it ends.
		job, err := f.client.Get(ctx, f.id)
		if err != nil {
			return err
		}
		if err := f.printNew(ctx, job); err != nil {
			return err
		}
		if !follow || job.State == jobq.StateCompleted || job.State == jobq.StateFailed || job.State == jobq.StateCancelled {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(followEvery):
		}
	}
}

// printNew prints pieces, and the whole output of runs too short to have any.
func (f *follower) printNew(ctx context.Context, job *jobq.Job) error {
	runs, err := monitor.New(f.client).Attempts(ctx, f.id)
	if err != nil {
		return err
	}
	if !f.begun { // only the last run is asked for
		f.begun, f.done = true, job.LeaseToken-1
		for _, run := range runs {
			if run.LeaseToken == job.LeaseToken && run.Output != "" {
				// It has ended: its output is whole, and its pieces go, the first ones first.
				fmt.Fprint(f.out, printable.Text(run.Output))
				f.done = run.LeaseToken
			}
		}
		f.last = monitor.OutputPiece{LeaseToken: f.done, BeginsAt: math.MaxInt64}
	}
	err = f.printPieces(ctx)
	if errors.Is(err, monitor.ErrOutputOnPrimary) {
		f.tell(job)
	} else if err != nil {
		return err
	}
	for _, run := range runs {
		if run.LeaseToken <= f.done {
			continue
		}
		f.done = run.LeaseToken
		if run.LeaseToken > f.last.LeaseToken {
			fmt.Fprint(f.out, printable.Text(run.Output))
		}
	}
	return nil
}

// tell says once, of a running job on a standby, where its output is: what it has written is printed when it has ended.
func (f *follower) tell(job *jobq.Job) {
	if !f.told && job.State == jobq.StateRunning {
		f.told = true
		fmt.Fprintf(f.errOut, "note: job %d runs: %v\n", f.id, monitor.ErrOutputOnPrimary)
	}
}

func (f *follower) printPieces(ctx context.Context) error {
	for {
		pieces, err := monitor.New(f.client).Output(ctx, f.id, f.last)
		if err != nil {
			return err
		}
		for _, piece := range pieces {
			seen := int64(0)
			if piece.LeaseToken == f.last.LeaseToken {
				seen = f.last.EndsAt
			}
			if gap := piece.BeginsAt - seen; gap > 0 {
				fmt.Fprintf(f.out, "\n[%d bytes left out]\n", gap)
			}
			fmt.Fprint(f.out, printable.Text(piece.Content))
			f.last = piece
		}
		if len(pieces) == 0 {
			return nil
		}
	}
}
