package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/coding"
	"github.com/jobq-dev/jobq/internal/steps"
)

// scriptRun is the run of a script, for the functions of package jobq.
type scriptRun struct {
	steps.Calls
	pool   *pgxpool.Pool
	client *jobq.Client
}

// withScriptRun runs the work of a command with the run that the environment names.
func (a *app) withScriptRun(work func(ctx context.Context, cmd *cobra.Command, args []string) error) func(*cobra.Command, []string) error {
	return a.withSteps(func(cmd *cobra.Command, args []string, open openSteps) error {
		calls, end, err := open(cmd.Context())
		if err != nil {
			return err
		}
		defer end()
		pool, _ := calls.DB.(*pgxpool.Pool)
		client, err := jobq.NewClient(pool, &jobq.Config{Schema: a.schema, Sessions: jobq.SessionsShared, Codec: a.codec})
		if err != nil {
			return usageError{err}
		}
		return work(steps.With(cmd.Context(), scriptRun{Calls: calls, pool: pool, client: client}), cmd, args)
	})
}

// Spawn is what jobq.Spawn calls.
func (r scriptRun) Spawn(ctx context.Context, name string, jobs []jobq.EnqueueParams) ([]jobq.Enqueued, error) {
	return steps.Spawn(ctx, r.Calls, r.pool, name, func(tx pgx.Tx) ([]jobq.Enqueued, error) {
		return r.client.EnqueueManyTx(ctx, tx, jobs)
	})
}

// Await is that of steps.Run.
func (r scriptRun) Await(ctx context.Context, name string, jobs []int64) (steps.Awaited, error) {
	awaited, err := r.Calls.Await(ctx, name, jobs)
	for i := range awaited.Jobs {
		job := &awaited.Jobs[i]
		if job.Result, err = coding.Decode(ctx, r.client.Codec(), coding.ValueOf(coding.Result, job.Kind, job.ID), job.Result); err != nil {
			return steps.Awaited{}, fmt.Errorf("await %q: job %d: %w", name, job.ID, err)
		}
	}
	return awaited, err
}

func newJobSpawnCommand(a *app) *cobra.Command {
	var options jobq.EnqueueOptions
	var kind string
	var keys keysFlag
	command := &cobra.Command{
		Use:   "spawn NAME --kind KIND [ARGS | @FILE | -]",
		Short: "Add another job once, and write its id",
		Long: `Add another job as a durable step: once, although the script is killed and runs again. The
job's args are JSON. Its id is written, and again when the script runs again. With a unique
key that is taken, that is the id of its holder.

Needs a kind with "steps: true", and a database: DATABASE_URL, for a login in the roles
jobq_runner and jobq_producer. See docs/steps.md.`,
		Example: `  page=$(jobq job spawn "page 1" --kind render '{"page": 1}')
  jobq job await "page 1 is rendered" "$page"`,
		Args: rangeArgs(1, 2),
		PreRunE: func(cmd *cobra.Command, _ []string) error {
			if kind == "" {
				return usagef("--kind is missing: the kind of the job to add")
			}
			if err := refuseZero(cmd, "max-attempts", "max-lost"); err != nil {
				return err
			}
			var err error
			a.codec, err = keys.codec("")
			return err
		},
		RunE: a.withScriptRun(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			job := jobq.RawArgs{Name: kind}
			if len(args) == 2 {
				var err error
				if job.JSON, err = readJSON(cmd, args[1]); err != nil {
					return err
				}
			}
			spawned, err := jobq.Spawn(ctx, args[0], job, &options)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), spawned.ID)
			return err
		}),
	}
	flags := command.Flags()
	flags.StringVar(&kind, "kind", "", "kind of the job")
	flags.StringVarP(&options.Queue, "queue", "q", "", `queue (default "default")`)
	flags.Int16Var(&options.Priority, "priority", 0, "lower runs first")
	durationVar(flags, &options.Delay, "delay", 0, "earliest start, from now")
	flags.IntVar(&options.MaxAttempts, "max-attempts", 0, "attempts before the job fails for good (default 25)")
	flags.IntVar(&options.MaxLost, "max-lost", 0, "runs that may be lost with their worker or host without using an attempt (default as in the queue; none: each uses one)")
	backoffVars(flags, &options.BackoffBase, &options.BackoffMax)
	uniqueVars(flags, &options)
	flags.StringVar(&options.PartitionKey, "partition-key", "", "what the job belongs to, such as a customer: keys take turns (docs/partition-keys.md)")
	tagsVar(flags, &options.Tags, "tag, may be repeated")
	keys.add(flags, keysEncryptUsage)
	return command
}

func newJobAwaitCommand(a *app) *cobra.Command {
	var keys keysFlag
	command := &cobra.Command{
		Use:   "await NAME ID...",
		Short: "End the run, and have the job run again when other jobs have ended",
		Long: `Wait for other jobs, as a durable step that holds no slot. If all have ended, their results
are written: that of one job as JSON, and nothing if it has none; of several, one line of
JSON for each, in the order of the ids given. If not, this ends the run and exits with 75,
with which the script must exit as well: "set -e" does that. The job runs again when all have
ended, without using an attempt. A janitor sees to that.

Exit codes as those of jobq wait: 0 all have completed; 7 a job has failed; 8 none has failed,
and one was cancelled; 3 there is no such job, or no more; 1 any other error.

The login must be in the roles jobq_runner and jobq_viewer. See docs/steps.md.`,
		Example: `  result=$(jobq job await "page 1 is rendered" "$page")`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) < 2 {
				return usagef("an argument is missing; usage: %s", cmd.UseLine())
			}
			return jobIDArgs(waitIDsMax)(cmd, args[1:])
		},
		PreRunE: func(*cobra.Command, []string) error {
			var err error
			a.codec, err = keys.codec("")
			return err
		},
		RunE: a.withScriptRun(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			ids := make([]int64, len(args)-1)
			for i, arg := range args[1:] {
				var err error
				if ids[i], err = parseID("job", arg); err != nil {
					return err
				}
			}
			ended, err := jobq.AwaitMany(ctx, args[0], ids)
			if errors.Is(err, jobq.ErrSuspended) {
				return errors.Join(errSilent, exitStatus(exitSuspended))
			}
			if err != nil {
				return err
			}
			return writeEnded(cmd, ended)
		}),
	}
	keys.add(command.Flags(), "file of keys, to decrypt results (default the keys in JOBQ_KEYS)")
	return command
}

// writeEnded writes how jobs have ended, and says which have not completed.
func writeEnded(cmd *cobra.Command, ended []jobq.Ended) error {
	var problems []awaited
	for _, job := range ended {
		answer := newAwaited(job.ID, job, nil, 0)
		if errors.Is(answer.err, jobq.ErrNotFound) {
			answer.code = exitNotFound
		}
		if answer.err != nil {
			problems = append(problems, answer)
		}
		var value any = job
		if len(ended) == 1 {
			if job.Result == nil {
				continue
			}
			value = job.Result
		}
		if err := writeLine(cmd.OutOrStdout(), value); err != nil {
			return err
		}
	}
	return worst(problems)
}
