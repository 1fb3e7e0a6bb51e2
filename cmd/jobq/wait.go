package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/when"
)

// waitIDsMax bounds the jobs of one call.
const waitIDsMax = 1000

func newWaitCommand(a *app) *cobra.Command {
	var timeout time.Duration
	var keys keysFlag
	var match string
	command := &cobra.Command{
		Use:   "wait ID... | --filter FILTER",
		Short: "Wait until jobs have ended, and print their results",
		Long: `Wait until jobs have ended: completed, failed for good, or cancelled. A job that waits for
its next attempt has not ended.

The result of one job that completed goes to standard output as JSON, and nothing if it has
none; why it did not complete goes to standard error. With several ids, or with --json, there
is one line of JSON for each job that has ended, in the order in which they do. An encrypted
result is plain text with --keys-file alone.

With --filter, wait until no job that matches is open, such as those of a sweep, also of jobs
that are added meanwhile. A line on standard error says how far they are, and how long they
take at the present rate; at the end, one on standard output has the counts by state.

Exit codes: 0 all have completed; 7 a job has failed; 8 none has failed, and one was cancelled;
9 a job has not ended within --timeout; 3 there is no such job, or none matches; 1 any other error. Of several,
1 counts before 9, 9 before 3, and 3 before 7.`,
		Example: `  jobq wait 4711 --timeout 30s
  jobq enqueue resize - < images.ndjson | xargs -n 1000 jobq wait
  jobq wait --filter tag:sweep1 --timeout 12h`,
		Args: func(cmd *cobra.Command, args []string) error {
			switch isFilter := cmd.Flags().Changed("filter"); {
			case isFilter && len(args) > 0:
				return usagef("name jobs by id, or --filter, and not both")
			case isFilter && strings.TrimSpace(match) == "":
				return usagef("--filter is empty: write id:>0 if you mean all jobs")
			case isFilter:
				return nil
			}
			return jobIDArgs(waitIDsMax)(cmd, args)
		},
		PreRunE: func(cmd *cobra.Command, _ []string) error {
			if err := refuseZero(cmd, "timeout"); err != nil {
				return err
			}
			var err error
			a.codec, err = keys.fromFile()
			return err
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := a.notifiedClient(cmd.Context())
			if err != nil {
				return err
			}
			defer client.Pool().Close()
			if match != "" {
				return a.awaitFilter(cmd, client, match, timeout)
			}
			var ids []int64
			for _, arg := range args {
				id, err := parseID("job", arg)
				if err != nil {
					return err
				}
				if !slices.Contains(ids, id) {
					ids = append(ids, id)
				}
			}
			return a.awaitJobs(cmd, client, ids, timeout)
		},
	}
	durationVar(command.Flags(), &timeout, "timeout", 0, "give up after so long (default: wait for ever)")
	command.Flags().StringVar(&match, "filter", "", "wait for all jobs that match, such as tag:sweep1")
	keys.add(command.Flags(), "file of keys, to print encrypted results as plain text")
	a.addJSONFlag(command)
	return command
}

// jobIDArgs wants ids of jobs, up to so many.
func jobIDArgs(most int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 || len(args) > most {
			return usagef("%s needs 1 to %d ids of jobs: jobq list shows them", cmd.Name(), most)
		}
		for _, arg := range args {
			if _, err := parseID("job", arg); err != nil {
				return err
			}
		}
		return nil
	}
}

// awaited is what has come of waiting for a job.
type awaited struct {
	ended jobq.Ended
	err   error // why it is not known, or why it did not complete
	code  int
}

// awaitJobs waits for the jobs, and prints how each has ended.
func (a *app) awaitJobs(cmd *cobra.Command, client *jobq.Client, ids []int64, timeout time.Duration) error {
	ctx := cmd.Context()
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	answers := make(chan awaited, len(ids))
	for _, id := range ids {
		go func() {
			ended, err := client.Wait(ctx, id)
			answers <- newAwaited(id, ended, err, timeout)
		}()
	}
	var problems []awaited
	var broken error // of the output
	for range ids {
		answer := <-answers
		if answer.err != nil {
			problems = append(problems, answer)
		}
		if key, encrypted := jobq.EncryptedWith(answer.ended.Result); encrypted && a.codec == nil {
			fmt.Fprintf(cmd.ErrOrStderr(), "warning: the result of job %d is encrypted with key %q, and printed so: --keys-file decrypts it\n", answer.ended.ID, key)
		}
		var value any = answer.ended
		switch isLine := a.json || len(ids) > 1; {
		case answer.ended.State == "" || !isLine && (answer.ended.Result == nil || errors.Is(answer.err, jobq.ErrUnreadable)):
			continue
		case !isLine:
			value = answer.ended.Result
		}
		broken = cmp.Or(broken, writeLine(cmd.OutOrStdout(), value))
	}
	return cmp.Or(broken, worst(problems))
}

func newAwaited(id int64, ended jobq.Ended, err error, timeout time.Duration) awaited {
	switch {
	case err == nil && ended.State == jobq.StateFailed:
		return awaited{ended, ended.Err(), exitFailed}
	case err == nil:
		return awaited{ended, ended.Err(), exitCancelled} // or completed, without an error
	case errors.Is(err, jobq.ErrUnreadable): // how it has ended is known, and its result is as it is stored
		return awaited{ended, err, exitError}
	case timeout > 0 && errors.Is(err, context.DeadlineExceeded):
		return awaited{jobq.Ended{}, fmt.Errorf("job %d has not ended within %s; to see why: jobq why %d", id, when.FormatDuration(timeout), id), exitNotEnded}
	}
	return awaited{jobq.Ended{}, err, exitCode(err)}
}

// worst is all that went wrong, with the exit code of what counts most.
func worst(problems []awaited) error {
	if len(problems) == 0 {
		return nil
	}
	rank := []int{exitCancelled, exitFailed, exitNotFound, exitNotEnded, exitError}
	slices.SortStableFunc(problems, func(a, b awaited) int { return cmp.Compare(slices.Index(rank, b.code), slices.Index(rank, a.code)) })
	texts := make([]error, len(problems))
	for i, problem := range problems {
		texts[i] = problem.err
	}
	return codedError{errors.Join(texts...), exitStatus(problems[0].code)}
}

// codedError is an error with an exit code of its own.
type codedError struct {
	error
	code exitStatus
}

func (e codedError) Unwrap() []error { return []error{e.code, e.error} }
