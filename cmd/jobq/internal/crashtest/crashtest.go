// Package crashtest is what `jobq crash-test` does: it runs a user's own worker on the
// user's own database, kills it again and again, and compares how often each job has
// had its effect.
//
// The moment between a job's effect and its completion is forced. A job with a unique
// key gives the key up in the transaction that ends it. So a lock on the key's row
// makes that transaction wait, whoever runs it:
//
//	worker                                  crash-test
//	                                        adds the job, to be due tomorrow; locks its key
//	                                        makes it due
//	claims the job, has its effect
//	completes the job: waits for the key
//	                                        sees who waits, and kills the worker's process group
//	                                        ends the sessions that wait, as if their statement
//	                                        had never arrived; unlocks the key
//	                                        starts the worker again
//	runs the job again
//
// An effect that was committed by itself is then there twice. One in the transaction
// that completes the job was rolled back, and is there once.
package crashtest

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	mathrand "math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/sleep"
	"github.com/jobq-dev/jobq/janitor"
	"github.com/jobq-dev/jobq/operator"
)

// The most kills of a test, each of which uses up an attempt, and a job can have 32,767;
// and the most jobs, which are added in one statement.
const (
	KillsMax = 10_000
	JobsMax  = jobq.EnqueueManyMax
)

const (
	poll = 10 * time.Millisecond
	// tagPrefix begins the tag of all jobs of a test.
	tagPrefix = "crash-test-"
	// actor does in the audit and in events what a test does.
	actor = "jobq crash-test"
	// NumberMark stands for the number of the job in Config.Args.
	NumberMark = "{{n}}"
	// A run that was killed is repeated soon: nobody wants to wait for the backoff.
	backoffBase, backoffMax = 100 * time.Millisecond, time.Second
	// spareAttempts are attempts beside those that kills use up.
	spareAttempts = 25
)

// Config says what to run, and how often to kill it.
type Config struct {
	Client *jobq.Client
	// Command runs the worker. It gets Env besides this process's environment.
	Command []string
	Env     []string
	// WorkerLog is the file that the worker's output is appended to. Default "": a
	// temporary one, of which an error shows the end.
	WorkerLog string

	Kind, Queue string
	// Args are the args of each job, as JSON; {{n}} is the number of the job, from 1.
	Args string
	// EffectQuery returns rows of a job's id and how often it has had its effect. It
	// may take the ids as $1::bigint[]. Jobs that it leaves out have had none.
	EffectQuery string
	// Jobs is how many jobs are run. Forced of them are killed between the effect and
	// the completion, and while the others run there are Random kills.
	Jobs, Forced, Random int
	// Within is how long after a job has begun a random kill comes at the latest.
	// Default 0: one and a half times as long as a forced job took to its end.
	Within time.Duration
	// Timeout is how long to wait for a job to get on.
	Timeout time.Duration
	// StopTimeout is how long the worker may take to end when all jobs have ended.
	// Default 0: a minute.
	StopTimeout time.Duration
	// Seed makes the random moments those of another time.
	Seed uint64
	// BesideOthers allows jobs and workers that are not this test's.
	BesideOthers bool
	// Progress is told what happens.
	Progress func(format string, args ...any)
}

// Result is what came of it.
type Result struct {
	OK     bool   `json:"ok"` // each job had its effect once
	Kind   string `json:"kind"`
	Jobs   int    `json:"jobs"`
	Forced int    `json:"forced_kills"`
	Random int    `json:"random_kills"` // fewer than asked for if the jobs were done before
	Seed   uint64 `json:"seed"`
	Twice  []Job  `json:"twice"`  // had the effect more than once
	Never  []Job  `json:"never"`  // completed, and never had it
	Failed []Job  `json:"failed"` // did not complete
}

// Job is a job for which something is wrong.
type Job struct {
	ID      int64 `json:"id"`
	Number  int   `json:"number"`  // what {{n}} was
	Effects int64 `json:"effects"` // how often it had its effect
	Crashes int   `json:"crashes"` // runs that were lost with their worker
	// Forced means that its worker was killed between the effect and the completion.
	Forced bool       `json:"forced"`
	State  jobq.State `json:"state"`
	Error  string     `json:"error,omitempty"` // of the last run that failed
}

// Run does the test. The jobs stay in the database, with a tag that the progress names.
// An error means that it could not be done; what has not ended of the jobs is cancelled then.
func Run(ctx context.Context, config Config) (*Result, error) {
	var random [4]byte
	if _, err := rand.Read(random[:]); err != nil {
		return nil, err
	}
	t := &test{
		Config: config, tag: tagPrefix + hex.EncodeToString(random[:]),
		schema:   db.SchemaOf(config.Client.Schema(), config.Client.Sessions()),
		operator: operator.New(config.Client, actor),
		random:   mathrand.New(mathrand.NewPCG(config.Seed, 0)), // #nosec G404 -- moments of kills, to be had again
		numbers:  make(map[int64]int), forced: make(map[int64]bool),
	}
	if err := t.check(ctx); err != nil {
		return nil, err
	}
	earlier, err := t.ownWorkers(ctx)
	if err != nil {
		return nil, err
	}
	t.earlier = earlier
	config.Progress("jobs of kind %s: %d, in queue %s, with the tag %s; seed %d", t.Kind, t.Jobs, t.Queue, t.tag, t.Seed)
	keeper, err := janitor.New(config.Client, &janitor.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	kept := make(chan error, 1)
	go func() { kept <- keeper.Run(ctx) }()
	t.worker = &workerProcess{command: config.Command, env: config.Env, logPath: config.WorkerLog, patience: cmp.Or(config.StopTimeout, stopTimeout)}
	result, err := t.run(ctx)
	err = errors.Join(err, t.worker.end())
	if err != nil {
		err = errors.Join(err, t.cleanUp(ctx))
	}
	cancel()
	if keptErr := <-kept; keptErr != nil && !errors.Is(keptErr, context.Canceled) {
		err = errors.Join(err, keptErr)
	}
	if err != nil {
		return nil, err
	}
	return result, nil
}

// test is the state of a run.
type test struct {
	Config
	tag      string
	schema   *db.Schema
	operator *operator.Operator
	random   *mathrand.Rand
	worker   *workerProcess
	earlier  []string       // workers that registered before this test
	numbers  map[int64]int  // of the jobs, by id
	forced   map[int64]bool // those whose worker was killed before their end
	took     time.Duration  // of all forced jobs, until their ends
	killed   int            // at random
}

// check refuses what would spoil the test, or be spoiled by it.
func (t *test) check(ctx context.Context) error {
	for _, number := range []int{1, t.Jobs} {
		if !json.Valid(t.args(number)) {
			return fmt.Errorf("%w: args are not JSON: %s", jobq.ErrInvalid, t.args(number))
		}
	}
	if _, err := t.effects(ctx); err != nil {
		return err
	}
	if t.BesideOthers {
		return nil
	}
	page, err := t.Client.List(ctx, jobq.Filter{States: unfinished, Limit: 1})
	if err != nil {
		return err
	}
	if len(page.Jobs) > 0 {
		for _, tag := range page.Jobs[0].Tags {
			if strings.HasPrefix(tag, tagPrefix) {
				return fmt.Errorf("%w: job %d is left of a crash test that was aborted: `jobq cancel --filter tag:%s --yes` cancels its jobs, but a running one only when "+
					"its worker ends it, or a janitor finds its lease ended, such as that of `jobq janitor`", jobq.ErrConflict, page.Jobs[0].ID, tag)
			}
		}
		return fmt.Errorf("%w: the database has unfinished jobs that this test did not make, such as job %d of kind %s, and the worker that is killed would run them: "+
			"use a database for the test alone, or --beside-others", jobq.ErrConflict, page.Jobs[0].ID, page.Jobs[0].Kind)
	}
	var other string
	if err := t.Client.Pool().QueryRow(ctx, t.schema.SQL(otherSQL)).Scan(&other); err != nil {
		return err
	}
	if other != "" {
		return fmt.Errorf("%w: worker %s may run, and what it takes is not killed: stop it, or use --beside-others", jobq.ErrConflict, other)
	}
	return nil
}

// otherSQL has a worker that may run: after 30 seconds without a heartbeat, one is no
// reason to refuse.
const otherSQL = `select coalesce((select w.id from jobq.worker w where w.heartbeat_at > now() - interval '30 seconds' order by w.id limit 1), '')`

var unfinished = []jobq.State{jobq.StateScheduled, jobq.StateAvailable, jobq.StateRunning}

func (t *test) args(number int) json.RawMessage {
	return json.RawMessage(strings.ReplaceAll(t.Args, NumberMark, strconv.Itoa(number)))
}

// run kills at forced moments, then at random ones, and compares.
func (t *test) run(ctx context.Context) (*Result, error) {
	if err := t.worker.start(ctx); err != nil {
		return nil, err
	}
	if err := t.awaitWorker(ctx); err != nil {
		return nil, err
	}
	for number := 1; number <= t.Forced; number++ {
		if err := t.forceOne(ctx, number); err != nil {
			return nil, err
		}
	}
	if err := t.killAtRandom(ctx); err != nil {
		return nil, err
	}
	// What it has not sent yet is stored now. The jobs have ended, so a worker that does
	// not end well spoils nothing.
	if err := t.worker.stop(); err != nil {
		t.Progress("warning: %s", err)
	}
	return t.compare(ctx)
}

// ownWorkers are the workers that have registered since the test has begun.
func (t *test) ownWorkers(ctx context.Context) ([]string, error) {
	rows, err := t.Client.Pool().Query(ctx, t.schema.SQL("select id from jobq.worker where id <> all($1::text[])"), append([]string{}, t.earlier...))
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// awaitWorker waits until the worker has registered: one that works on another database
// never does, and would leave the first job waiting for no reason that the job can tell.
func (t *test) awaitWorker(ctx context.Context) error {
	for end := time.Now().Add(t.Timeout); ; {
		own, err := t.ownWorkers(ctx)
		if err != nil || len(own) > 0 {
			return err
		}
		if err := t.worker.check(); err != nil {
			return err
		}
		if time.Now().After(end) {
			return t.worker.withLog(fmt.Errorf("no worker has registered in the database %s after the start of the command: its own configuration may fix another URL or "+
				"schema, so let it take DATABASE_URL or JOBQ_DATABASE_URL, and JOBQ_SCHEMA; --timeout waits longer", t.Timeout))
		}
		if err := sleep.For(ctx, poll); err != nil {
			return err
		}
	}
}

// options are those of all jobs.
func (t *test) options() jobq.EnqueueOptions {
	return jobq.EnqueueOptions{
		Queue: t.Queue, MaxAttempts: t.Forced + t.Random + spareAttempts, BackoffBase: backoffBase, BackoffMax: backoffMax, Tags: []string{t.tag},
	}
}

// compare says for each job how often it had its effect.
func (t *test) compare(ctx context.Context) (*Result, error) {
	result := &Result{
		Kind: t.Kind, Jobs: len(t.numbers), Forced: len(t.forced), Random: t.killed, Seed: t.Seed,
		Twice: []Job{}, Never: []Job{}, Failed: []Job{},
	}
	effects, err := t.effects(ctx)
	if err != nil {
		return nil, err
	}
	for _, id := range t.ids() {
		stored, err := t.Client.Get(ctx, id)
		if err != nil {
			return nil, err
		}
		job := Job{
			ID: id, Number: t.numbers[id], Effects: effects[id], Crashes: stored.Crashes, Forced: t.forced[id], State: stored.State, Error: stored.LastError,
		}
		switch {
		case job.Effects > 1:
			result.Twice = append(result.Twice, job)
		case stored.State != jobq.StateCompleted:
			result.Failed = append(result.Failed, job)
		case job.Effects < 1:
			result.Never = append(result.Never, job)
		}
	}
	result.OK = len(result.Twice)+len(result.Never)+len(result.Failed) == 0
	return result, nil
}
