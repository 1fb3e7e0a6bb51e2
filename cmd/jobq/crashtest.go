package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/cmd/jobq/internal/crashtest"
	"github.com/jobq-dev/jobq/internal/format"
)

// seedsMax is how many seeds there are to draw: few enough for people to write.
const seedsMax = 1_000_000

func newCrashTestCommand(a *app) *cobra.Command {
	var workerConfig string
	config := crashtest.Config{}
	command := &cobra.Command{
		Use:   "crash-test --kind KIND --effect-query SQL [-- WORKER ARGS...]",
		Short: "Kill your worker at the worst moments, and count its effects",
		Long: `Run your own worker on your own database, kill it again and again with SIGKILL, and
compare how often each job has had its effect. Jobs that had it twice or never are
reported, and the exit code is then 1.

The first jobs are killed at a forced moment: after the effect, when the job is about to be
completed. An effect that is stored by itself is found by the first of them. The others
run while the worker is killed at random moments.

The worker is WORKER with its arguments, or with --config a "jobq worker" of that file. It gets
DATABASE_URL, JOBQ_DATABASE_URL and JOBQ_SCHEMA. --args are the args of each job, in which {{n}} is
the number of the job, from 1. --effect-query returns rows of a job's id and how often it
has had its effect; it may take the ids of the jobs as $1. A job that it leaves out
has had none.

Use a database for the test alone. One with unfinished jobs or another worker is refused
unless --beside-others is given. The jobs stay in it.`,
		Example: `  jobq crash-test --kind charge --args '{"order_id": {{n}}}' --effect-query \
    'select job_id, count(*) from charge where job_id = any($1) group by 1' \
    -- ./myworker
  jobq crash-test --kind charge --config jobq.yaml --random 20 --jobs 200 \
    --effect-query 'select job_id, count(*) from charge group by 1' --json`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if !cmd.Flags().Changed("forced") {
				config.Forced = min(config.Forced, config.Jobs)
			}
			if err := checkCrashTest(cmd, config, workerConfig, args); err != nil {
				return err
			}
			config.Command = args
			if workerConfig != "" {
				self, err := os.Executable()
				if err != nil {
					return err
				}
				config.Command = []string{self, "worker", "--config", workerConfig}
			}
			if !cmd.Flags().Changed("seed") {
				config.Seed = rand.Uint64N(seedsMax) // #nosec G404 -- moments of kills
			}
			return a.runCrashTest(cmd, config)
		},
	}
	flags := command.Flags()
	flags.StringVar(&config.Kind, "kind", "", "kind of the jobs (required)")
	flags.StringVar(&config.EffectQuery, "effect-query", "", "SQL that returns a job's id and how often it had its effect (required)")
	flags.StringVar(&config.Args, "args", "{}", "args of each job; "+crashtest.NumberMark+" is its number")
	flags.StringVar(&config.Queue, "queue", jobq.DefaultQueue, "queue of the jobs")
	flags.StringVar(&workerConfig, "config", "", "run \"jobq worker\" with this jobq.yaml, instead of WORKER")
	flags.IntVar(&config.Jobs, "jobs", 20, "jobs to run")
	flags.IntVar(&config.Forced, "forced", 3, "how many of them are killed between the effect and the completion")
	flags.IntVar(&config.Random, "random", 5, "how often the worker is killed at a random moment while the others run")
	durationVar(flags, &config.Within, "within", 0, "how long after a job has begun a random kill comes at the latest (default 1.5 times what a forced job takes)")
	durationVar(flags, &config.Timeout, "timeout", 2*time.Minute, "how long a job may take to get on")
	flags.Uint64Var(&config.Seed, "seed", 0, "random moments of an earlier test (default: new ones)")
	flags.StringVar(&config.WorkerLog, "worker-log", "", "file to append the worker's output to (default: an error shows the end of it)")
	flags.BoolVar(&config.BesideOthers, "beside-others", false, "run beside other jobs and workers, which the kills may hit")
	a.addJSONFlag(command)
	return command
}

func checkCrashTest(cmd *cobra.Command, config crashtest.Config, workerConfig string, args []string) error {
	switch {
	case config.Kind == "":
		return usagef("--kind is missing: which jobs does the worker run?")
	case config.EffectQuery == "":
		return usagef("--effect-query is missing: how often has each job had its effect?")
	case len(args) == 0 && workerConfig == "":
		return usagef("the worker is missing: write its command after --, or use --config")
	case len(args) > 0 && workerConfig != "":
		return usagef("a worker's command and --config exclude each other")
	case config.Jobs < 1 || config.Jobs > crashtest.JobsMax:
		return usagef("--jobs must be 1 to %d", crashtest.JobsMax)
	case config.Forced < 0 || config.Random < 0:
		return usagef("--forced and --random must not be negative")
	case config.Forced > config.Jobs:
		return usagef("--forced %d: there are only %s", config.Forced, format.Count(config.Jobs, "job"))
	case config.Random > 0 && config.Forced == config.Jobs && cmd.Flags().Changed("random"):
		return usagef("--random %d: all jobs are forced ones; use more --jobs", config.Random)
	case config.Forced+config.Random > crashtest.KillsMax:
		return usagef("--forced and --random must be %d together at most", crashtest.KillsMax)
	}
	return refuseZero(cmd, "within", "timeout")
}

func (a *app) runCrashTest(cmd *cobra.Command, config crashtest.Config) error {
	client, err := a.client(cmd.Context())
	if err != nil {
		return err
	}
	defer client.Pool().Close()
	url, err := a.url()
	if err != nil {
		return err
	}
	config.Client, config.Env = client, []string{"JOBQ_SCHEMA=" + a.schema}
	if url != "" {
		config.Env = append(config.Env, "DATABASE_URL="+url, "JOBQ_DATABASE_URL="+url, "JOBQ_LISTEN_URL="+a.listenAddress())
	}
	config.Progress = func(format string, args ...any) { fmt.Fprintf(cmd.ErrOrStderr(), format+"\n", args...) }
	ctx := cmd.Context()
	if !signal.Ignored(syscall.SIGHUP) { // as nohup has it
		// The worker has a process group of its own, and does not get the terminal's.
		var stop context.CancelFunc
		ctx, stop = signal.NotifyContext(ctx, syscall.SIGHUP)
		defer stop()
	}
	result, err := crashtest.Run(ctx, config)
	if err != nil {
		return err
	}
	if a.json {
		err = writeJSON(cmd.OutOrStdout(), result)
	} else {
		err = writeCrashTest(cmd.OutOrStdout(), result)
	}
	if err == nil && !result.OK {
		return errSilent
	}
	return err
}

func writeCrashTest(out io.Writer, result *crashtest.Result) error {
	fmt.Fprintf(out, "%s of kind %s, %d killed between effect and completion, %s\n", format.Count(result.Jobs, "job"), result.Kind, result.Forced, format.Count(result.Random, "random kill"))
	if result.OK {
		fmt.Fprintln(out, "ok: each job had its effect once")
		return nil
	}
	t := newTable(out, "PROBLEM", "JOB", "N", "EFFECTS", "CRASHES", "KILLED", "STATE", "ERROR")
	for _, problem := range []struct {
		name string
		jobs []crashtest.Job
	}{{"twice", result.Twice}, {"never", result.Never}, {"failed", result.Failed}} {
		for _, job := range problem.jobs {
			killed := "at random"
			switch {
			case job.Forced:
				killed = "after the effect"
			case job.Crashes == 0:
				killed = "no"
			}
			t.row(problem.name, strconv.FormatInt(job.ID, 10), strconv.Itoa(job.Number), strconv.FormatInt(job.Effects, 10), strconv.Itoa(job.Crashes),
				killed, string(job.State), cut(job.Error))
		}
	}
	if err := t.flush(); err != nil {
		return err
	}
	fmt.Fprintf(out, "jobs with more than one effect: %d; completed without an effect: %d; not completed: %d\n", len(result.Twice), len(result.Never), len(result.Failed))
	return nil
}
