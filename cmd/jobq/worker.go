package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"os/signal"
	"regexp"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/jobq-dev/jobq/internal/config"
	"github.com/jobq-dev/jobq/janitor"
	"github.com/jobq-dev/jobq/metrics"
	"github.com/jobq-dev/jobq/worker"
	"github.com/jobq-dev/jobq/worker/programs"
)

// workerFlags are the flags of `jobq worker`.
type workerFlags struct {
	queues              []string
	run                 []string
	runStream           []string
	runHTTP             []string
	endsItself          []string
	steps               []string
	lockLost            string
	config              string
	allowExec           bool
	batch               worker.Batch
	lease               time.Duration
	poll                time.Duration
	pollOnly            bool
	claimAhead          bool
	drainTimeout        time.Duration
	timeout             time.Duration
	failUnreadableAfter time.Duration
	restAfterFailures   int
	reconcile           string
	janitorMode         string
	janitor             janitorFlags
	metricsAddr         string
	log                 logFlags
	keys                keysFlag
}

func newWorkerCommand(a *app) *cobra.Command {
	var f workerFlags
	command := &cobra.Command{
		Use:   "worker",
		Short: "Run jobs with programs",
		Long: `Run jobs, each kind with a program of yours. The program gets the job's args as JSON
on standard input and JOBQ_JOB_ID, JOBQ_IDEMPOTENCY_KEY, JOBQ_KIND, JOBQ_QUEUE,
JOBQ_ATTEMPT, JOBQ_MAX_ATTEMPTS, JOBQ_LEASE_TOKEN and JOBQ_CHECKPOINT in its environment,
which else has only PATH, HOME, LANG and TZ of the worker's. Exit code 0 completes the job,
75 tries it again later without using an attempt, 65 fails it for good; any other,
and death by a signal, is a failed attempt, with the end of standard error as its text.

--run-stream keeps processes that take job after job, as lines of JSON on standard
input, and --run-http posts jobs to a server. docs/subprocess.md has all three contracts.
With --ends-itself, a handler calls jobq.complete in its own transaction, with the token in
JOBQ_RUN_TOKEN, and so stores its effects and the job's end together: docs/transactional-completion.md.
With --steps, a script does durable steps with "jobq job step": docs/steps.md.
With --lock-lost freeze, a program survives an outage of the database that is longer than its lease:
docs/program-contract.md.

--config names a file that says more about each kind: user, limits, environment,
timeouts, slots of its own; docs/configuration.md has all of it. What flags say wins.

The first SIGTERM or SIGINT drains: nothing new is claimed, running jobs have
--drain-timeout to end and are then stopped and given back without using an attempt.
A second one, a second later or more, does not wait. SIGUSR1, and "jobq workers drain" from anywhere, take no new
work and end when what runs has ended, however long that takes. A janitor runs inside
unless --janitor=off.

Exit codes: 0 drained, 1 error or too many failures in a row, 2 usage.`,
		Example: `  jobq worker --run hello='cat'
  jobq worker --run-stream score='python3 -u score.py'
  jobq worker --run-http mail=http://127.0.0.1:8080/jobs
  jobq worker -q images=4 --run resize='./resize.sh --fast'`,
		Args: exactArgs(0),
		RunE: func(cmd *cobra.Command, _ []string) error { return a.runWorker(cmd, f) },
	}
	flags := command.Flags()
	flags.StringArrayVarP(&f.queues, "queue", "q", nil, "queue to claim from, NAME or NAME=SLOTS, may be repeated (default default=10)")
	flags.StringArrayVar(&f.run, "run", nil, "KIND='COMMAND ARGS': the program for a kind, may be repeated; no shell is involved")
	flags.StringArrayVar(&f.runStream, "run-stream", nil, "KIND='COMMAND ARGS': a program that is kept and runs job after job, may be repeated")
	flags.StringArrayVar(&f.runHTTP, "run-http", nil, "KIND=URL: a server to which jobs are posted, may be repeated")
	flags.StringArrayVar(&f.endsItself, "ends-itself", nil, "KIND whose handler ends its jobs itself, by jobq.complete in transactions of its own, may be repeated")
	flags.StringArrayVar(&f.steps, "steps", nil, "KIND whose handler does durable steps, such as those of jobq job step, may be repeated")
	flags.StringVar(&f.lockLost, "lock-lost", envOr(lockLostVariable, config.LostKill), "what a lost lease means for programs, where the file does not say: sigkill; sigterm; or freeze, which stops them during an outage of the database, and lets them go on if nobody has taken the job")
	flags.StringVar(&f.config, "config", envOr("JOBQ_CONFIG", ""), "file that says how kinds are run, such as jobq.yaml")
	flags.BoolVar(&f.allowExec, "allow-exec", false, "run jobs of kind exec, which say themselves which program to run")
	durationVar(flags, &f.batch.TimeLimit, "time-limit", 0, "drain after this time (default never)")
	flags.IntVar(&f.batch.MaxConsecutiveFailures, "max-consecutive-failures", 0, "drain and exit with 1 after so many failed runs in a row (default never)")
	flags.BoolVar(&f.batch.ExitWhenEmpty, "exit-when-empty", false, "drain when nothing is available and nothing runs")
	durationVar(flags, &f.lease, "lease", 0, `set the lease of the queues, for all workers, as "jobq queues set" does and with its privileges (default as stored, else 60s)`)
	durationVar(flags, &f.poll, "poll", worker.DefaultPollInterval, "look at idle queues this often when nothing wakes the worker")
	flags.BoolVar(&f.pollOnly, "poll-only", false, "do without LISTEN; behind a pooler that shares sessions it is so by itself, unless --listen-url gives a direct connection")
	flags.BoolVar(&f.claimAhead, "claim-ahead", true, "also claim the short jobs that begin in the next 50 ms, of queues for which the file does not say otherwise; false: only when a slot is free")
	durationVar(flags, &f.drainTimeout, "drain-timeout", worker.DefaultDrainTimeout, "how long running jobs may go on when the worker stops")
	durationVar(flags, &f.timeout, "timeout", 0, "end runs that take longer, of jobs and kinds that have no timeout of their own (default none)")
	durationVar(flags, &f.failUnreadableAfter, "fail-unreadable-after", worker.DefaultFailUnreadableAfter, "how long a job waits that no worker can decrypt, before it fails for good")
	flags.IntVar(&f.restAfterFailures, "rest-after-failures", worker.DefaultRestAfterFailures, "leave a kind to other workers for a while when so many of its runs in a row fail here, and theirs succeed; 0: never")
	flags.StringVar(&f.reconcile, "reconcile", string(worker.ReconcileHost), "whose jobs to recover before claiming: host, those of dead workers of this host; all, everybody's, if no other worker is present; off")
	flags.StringVar(&f.janitorMode, "janitor", string(janitor.ModeLeader), "run a janitor inside: leader, which is any behind a pooler that shares sessions, unless --listen-url gives a direct connection; any; or off")
	f.janitor.add(flags)
	addMetricsFlag(flags, &f.metricsAddr)
	f.log.add(flags)
	f.keys.add(flags, "file of keys, to decrypt and encrypt args, checkpoints, results and steps (default JOBQ_KEYS, else keys_file of the config file)")
	return command
}

// heapGrowth is by how many percent of what lives the heap of a worker's
// process grows before garbage is collected, unless GOGC says otherwise. What
// lives is a few MB; at Go's 100, a busy worker collects a hundred times a
// second, which is a third of its CPU time.
const heapGrowth = 400

func collectSeldom() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(heapGrowth)
	}
}

func (a *app) runWorker(cmd *cobra.Command, f workerFlags) error {
	collectSeldom()
	if a.isProcess {
		programs.AdoptOrphans()
	}
	if err := refuseZero(cmd, append(zeroIsDefault(), "lease", "poll", "drain-timeout", "fail-unreadable-after", "timeout")...); err != nil {
		return err
	}
	log, err := f.log.logger(cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	file, err := f.load(cmd.Flags().Changed)
	if err != nil {
		return err
	}
	if file.WritableByAll {
		log.Warn("every user of this machine can change the config file, and so what this worker runs: chmod o-w it", "config", f.config)
	}
	if err := refuseQueueNames(f.config, file); err != nil {
		return err
	}
	queues, err := parseQueues(f.queues)
	if err != nil {
		return err
	}
	if len(queues) == 0 {
		queues = slotsOf(file)
	}
	configs, err := queueConfigs(queues, file, f.claimAhead)
	if err != nil {
		return err
	}
	warnIfFewDescriptors(log, queues, descriptorsMax())
	handlers, err := handlersOf(&f, file)
	if err != nil {
		return err
	}
	if a.codec, err = f.keys.codec(file.Codec.KeysFile); err != nil {
		return err
	}
	warnIfReadable(log, cmp.Or(f.keys.file, file.Codec.KeysFile))
	client, err := a.uncheckedClient(cmd.Context())
	if err != nil {
		return err
	}
	defer client.Pool().Close()
	workerConfig := worker.Config{
		Queues: configs, Lease: f.lease, PollInterval: f.poll, PollOnly: f.pollOnly, DrainTimeout: f.drainTimeout, Timeout: f.timeout, FailUnreadableAfter: f.failUnreadableAfter, RestAfterFailures: f.restAfterFailures,
		Reconcile: worker.Reconcile(f.reconcile), Batch: f.batch, Logger: log, Version: version(),
	}
	if f.janitorMode == janitorOff {
		log.Warn("no janitor here: unless one runs elsewhere, jobs of dead workers stay running, and scheduled jobs and those that wait for others do not start")
		workerConfig.NoJanitor = true
	} else {
		workerConfig.Janitor = f.janitor.config(cmd.Flags(), f.janitorMode, log)
	}
	runs := metrics.NewRuns()
	if f.metricsAddr != "" {
		workerConfig.Middleware = []worker.Middleware{runs.Middleware}
	}
	w, err := worker.New(client, &workerConfig)
	if err != nil {
		return usageError{err}
	}
	runners := programs.New(w)
	for _, handle := range handlers {
		if err := handle(runners); err != nil {
			return usageError{err}
		}
	}
	if err := a.declareAtStart(cmd.Context(), log, client, file); err != nil {
		return err
	}
	if err := a.setLimitsAtStart(cmd.Context(), log, client, file, queues); err != nil {
		return err
	}
	if err := a.setKindsAtStart(cmd.Context(), log, client, file); err != nil {
		return err
	}
	if f.metricsAddr != "" {
		stop, err := serveMetrics(cmd.Context(), f.metricsAddr, workerMetrics(w, runs), log)
		if err != nil {
			return err
		}
		defer stop()
	}
	return runWithSignals(cmd.Context(), w)
}

const (
	// descriptorsPerProgram are a program's four streams, its supervisor, and what its start needs besides.
	descriptorsPerProgram = 10
	// descriptorsBeside are for connections to the database, to the metrics, and the rest.
	descriptorsBeside = metricsConnsMax + 64
)

// descriptorsMax is how many files this process may have open: the runtime has raised the limit as far as
// it may. 0 when it is not known.
func descriptorsMax() uint64 {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 0
	}
	return uint64(limit.Cur) //nolint:unconvert // it is signed on FreeBSD
}

func warnIfFewDescriptors(log *slog.Logger, queues map[string]int, most uint64) {
	needed := uint64(descriptorsBeside)
	for _, slots := range queues {
		needed += descriptorsPerProgram * uint64(max(slots, 0)) // #nosec G115 -- not negative
	}
	if most > 0 && most < needed {
		log.Warn("the limit of open files is low for so many slots", "limit", most, "needed", needed)
	}
}

// load reads the config file, if there is one, and takes from it what no flag says.
func (f *workerFlags) load(changed func(flag string) bool) (*config.File, error) {
	file := new(config.File)
	if f.config != "" {
		var err error
		if file, err = config.Load(f.config); err != nil {
			return nil, usagef("--config: %w", err)
		}
	}
	for flag, setting := range map[string]struct {
		target *time.Duration
		value  config.Duration
	}{
		"lease": {&f.lease, file.Lease}, "poll": {&f.poll, file.Poll}, "drain-timeout": {&f.drainTimeout, file.DrainTimeout},
		"fail-unreadable-after": {&f.failUnreadableAfter, file.FailUnreadableAfter}, "timeout": {&f.timeout, file.Timeout},
	} {
		if setting.value > 0 && !changed(flag) {
			*setting.target = time.Duration(setting.value)
		}
	}
	if file.RestAfterFailures != nil && !changed("rest-after-failures") {
		f.restAfterFailures = *file.RestAfterFailures
	}
	switch {
	case f.restAfterFailures < 0:
		return nil, usagef("--rest-after-failures must not be negative, not %d: 0 means never", f.restAfterFailures)
	case f.restAfterFailures == 0:
		f.restAfterFailures = -1 // never, in Config
	}
	return file, nil
}

// runWithSignals runs a worker until it has drained or cannot go on, and obeys the signals that hurry a drain or begin one.
func runWithSignals(ctx context.Context, w *worker.Worker) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	defer drainNowOnSecondSignal(ctx, w)()
	defer drainOnSignal(w)()
	return w.Run(ctx)
}

// drainOnSignal makes SIGUSR1 the end of new work. The function returned
// undoes it.
func drainOnSignal(w *worker.Worker) func() {
	signals := make(chan os.Signal, 1)
	ended := make(chan struct{})
	signal.Notify(signals, syscall.SIGUSR1)
	go func() {
		for {
			select {
			case <-signals:
				w.Drain()
			case <-ended:
				return
			}
		}
	}()
	return func() {
		signal.Stop(signals)
		close(ended)
	}
}

// sameSignal is how long after the first signal another one is the same: a terminal's Ctrl-C, and timeout(1),
// reach a worker directly and once more through whoever has started it.
const sameSignal = time.Second

// drainNowOnSecondSignal makes a draining worker not wait when it is told to
// stop again. The function returned undoes it.
func drainNowOnSecondSignal(ctx context.Context, w *worker.Worker) func() {
	signals := make(chan os.Signal, 2)
	ended := make(chan struct{})
	go func() {
		select {
		case <-ended:
			return
		case <-ctx.Done():
		}
		first := time.Now()
		signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
		for {
			select {
			case <-signals:
				if time.Since(first) < sameSignal {
					continue
				}
				w.DrainNow()
			case <-ended:
			}
			return
		}
	}()
	return func() {
		signal.Stop(signals)
		close(ended)
	}
}

// parseQueues reads NAME=SLOTS flags.
func parseQueues(flags []string) (map[string]int, error) {
	queues := make(map[string]int, len(flags))
	for _, flag := range flags {
		name, number, ok := strings.Cut(flag, "=")
		slots := worker.DefaultSlots
		if ok {
			var err error
			if slots, err = strconv.Atoi(number); err != nil {
				return nil, usagef("--queue %q: must be NAME=SLOTS, such as images=4", flag)
			}
		}
		if !utf8.ValidString(name) {
			return nil, usagef("--queue %q: not valid UTF-8", name)
		}
		if problem, flags, _ := queueNameProblem(name); problem != "" {
			return nil, usagef("--queue %q: a queue whose name %s; %s", flag, problem, flags)
		}
		if _, twice := queues[name]; twice {
			return nil, usagef("--queue %q is given twice", name)
		}
		queues[name] = slots
	}
	return queues, nil
}

// slotsAfterColon is what people write for NAME=SLOTS.
var slotsAfterColon = regexp.MustCompile(`^(.+):([0-9]+)$`)

// queueNameProblem is what a name has that looks like something else than the name of a queue, and what to write as
// flags and in the file instead: a worker would wait for ever for jobs in such a queue. It is empty for other names.
func queueNameProblem(name string) (problem, flags, file string) {
	switch slots := slotsAfterColon.FindStringSubmatch(name); {
	case strings.Contains(name, ","):
		return "has a comma", "for several queues write -q " + strings.Join(strings.Split(name, ","), " -q "), "write each queue as an entry of its own"
	case strings.Contains(name, "*"):
		const only = "a worker claims only from queues that it names: write "
		return "has an asterisk", only + "-q for each", only + "each as an entry of its own"
	case slots != nil:
		return "ends with a colon and a number", fmt.Sprintf("for %s slots write -q %s=%s", slots[2], slots[1], slots[2]),
			fmt.Sprintf("for %s slots write %s: {slots: %s}", slots[2], slots[1], slots[2])
	}
	return "", "", ""
}

// refuseQueueNames refuses such names in the config file, the first of them by its line.
func refuseQueueNames(path string, file *config.File) error {
	names := slices.SortedFunc(maps.Keys(file.Queues), func(a, b string) int { return cmp.Compare(file.Queues[a].Line, file.Queues[b].Line) })
	for _, name := range names {
		if problem, _, instead := queueNameProblem(name); problem != "" {
			return usagef("%s: line %d: queues: %s: a queue whose name %s; %s", path, file.Queues[name].Line, name, problem, instead)
		}
	}
	return nil
}

// slotsOf are the queues of the config file with their slots.
func slotsOf(file *config.File) map[string]int {
	queues := make(map[string]int, len(file.Queues))
	for name, queue := range file.Queues {
		queues[name] = worker.DefaultSlots
		if queue.Slots != nil {
			queues[name] = *queue.Slots
		}
	}
	return queues
}

// queueConfigs are the queues as the worker takes them. Zero slots, which are the
// default there, are a mistake where somebody writes them.
func queueConfigs(queues map[string]int, file *config.File, claimAhead bool) (map[string]worker.QueueConfig, error) {
	configs := make(map[string]worker.QueueConfig, len(queues))
	for name, slots := range queues {
		if slots < 1 {
			return nil, usagef("queue %q: slots must be at least 1, not %d", name, slots)
		}
		configs[name] = worker.QueueConfig{Slots: slots, NoClaimAhead: !claimAhead || file.Queues[name].NoClaimAhead}
	}
	return configs, nil
}

// logFlags choose how daemons log.
type logFlags struct{ format, level string }

type flagSet interface {
	StringVar(target *string, name, value, usage string)
}

func (l *logFlags) add(flags flagSet) {
	flags.StringVar(&l.format, "log-format", "text", "text or json")
	flags.StringVar(&l.level, "log-level", "info", "debug, info, warn or error")
}

func (l *logFlags) logger(out io.Writer) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(l.level)); err != nil {
		return nil, usagef("--log-level %q: must be debug, info, warn or error", l.level)
	}
	options := &slog.HandlerOptions{Level: level}
	switch l.format {
	case "text":
		return slog.New(slog.NewTextHandler(out, options)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(out, options)), nil
	}
	return nil, usagef("--log-format %q: must be text or json", l.format)
}
