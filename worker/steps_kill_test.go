package worker_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	osexec "os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/jobtest"
	"github.com/jobq-dev/jobq/internal/pgtest"
	"github.com/jobq-dev/jobq/internal/sleep"
	"github.com/jobq-dev/jobq/worker"
)

// stepsChild is the variable that makes the test program a worker of one run of a
// workflow, which kills itself: "URL of the database" or "URL boundary microseconds".
const stepsChild = "JOBQ_STEPS_CHILD"

// stepSeeds is the variable that says with how many seeds TestKilledAtEveryStatement runs.
const stepSeeds = "JOBQ_STEP_SEEDS"

// The parts of a workflow.
const (
	partStep  = "step"
	partTx    = "tx"
	partSleep = "sleep"
	partEvent = "event"
	partChild = "child" // a job that is spawned and awaited
)

// workflowOf is the order of the parts with a seed: each at least once.
func workflowOf(seed int) []string {
	random := rand.New(rand.NewPCG(uint64(seed), 1)) // #nosec G115 G404 -- a test's
	parts := []string{partStep, partTx, partSleep, partEvent, partChild}
	for range random.IntN(4) {
		parts = append(parts, parts[random.IntN(5)])
	}
	random.Shuffle(len(parts), func(i, j int) { parts[i], parts[j] = parts[j], parts[i] })
	return parts
}

// partName is the name of a part as a step, and of the event that it waits for.
func partName(place int, part string) string { return fmt.Sprint(place, " ", part) }

// spawnName is the name of the step that spawns the job of a part.
func spawnName(name string) string { return name + " spawned" }

// runWorkflow does the parts. Each effect has a value that no other has, and what a run
// sees of each part is written down.
func runWorkflow(ctx context.Context, pool *pgxpool.Pool, seed int) error {
	const effect = "insert into effect (name, value) values ($1, $2)"
	for i, part := range workflowOf(seed) {
		name := partName(i, part)
		own := strconv.FormatInt(rand.Int64(), 36) // #nosec G404 -- a test's
		var value string
		var err error
		switch part {
		case partStep:
			value, err = jobq.Step(ctx, name, func(ctx context.Context) (string, error) {
				_, err := pool.Exec(ctx, effect, name, own)
				return own, err
			})
		case partTx:
			value, err = jobq.StepTx(ctx, pool, name, func(ctx context.Context, tx pgx.Tx) (string, error) {
				_, err := tx.Exec(ctx, effect, name, own)
				return own, err
			})
		case partSleep:
			err = jobq.Sleep(ctx, name, 20*time.Millisecond)
		case partEvent:
			value, err = jobq.WaitEvent[string](ctx, name, 0)
		case partChild:
			var spawned jobq.Enqueued
			if spawned, err = jobq.Spawn(ctx, spawnName(name), spawnedPart{name}, nil); err == nil {
				value, err = jobq.Await[string](ctx, name, spawned.ID)
			}
		}
		if err == nil {
			_, err = pool.Exec(ctx, "insert into seen (name, value) values ($1, $2)", name, value)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// killer kills its process at a boundary of a statement: before it is sent, or after it
// was answered. With a delay it does so that much later, and the statement goes on
// meanwhile. It counts from the moment in which it is armed.
type killer struct {
	at    int64
	delay time.Duration
	armed atomic.Bool
	count atomic.Int64
}

type statementKey struct{}

// moment marks where a process was killed with a delay.
const moment = ", a moment later"

func (k *killer) before(ctx context.Context, sql string) context.Context {
	name, _, _ := strings.Cut(strings.TrimPrefix(sql, "-- name: "), " :")
	if name == sql {
		name = strings.Join(strings.Fields(sql)[:min(3, len(strings.Fields(sql)))], " ")
	}
	k.boundary("before " + name)
	return context.WithValue(ctx, statementKey{}, name)
}

func (k *killer) after(ctx context.Context) {
	name, _ := ctx.Value(statementKey{}).(string)
	k.boundary("after " + name)
}

func (k *killer) boundary(where string) {
	if !k.armed.Load() || k.count.Add(1)-1 != k.at {
		return
	}
	kill := func() {
		_, _ = fmt.Fprintln(os.Stdout, where)
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
	if k.delay == 0 {
		kill()
	}
	where += moment
	time.AfterFunc(k.delay, kill)
}

// TraceQueryStart is called before a statement is sent.
func (k *killer) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	return k.before(ctx, data.SQL)
}

// TraceQueryEnd is called after it was answered.
func (k *killer) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryEndData) {
	k.after(ctx)
}

// TraceBatchStart is TraceQueryStart of statements that are sent together.
func (k *killer) TraceBatchStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchStartData) context.Context {
	return k.before(ctx, "batch")
}

// TraceBatchQuery is called for each of them.
func (k *killer) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}

// TraceBatchEnd is TraceQueryEnd of them.
func (k *killer) TraceBatchEnd(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchEndData) {
	k.after(ctx)
}

// runStepsChild is a worker process that runs the one job of its database once.
func runStepsChild(plan string) error {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	go func() { // ends with the test, even one that is killed
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	words := strings.Fields(plan)
	config, err := pgxpool.ParseConfig(words[0])
	if err != nil {
		return err
	}
	k := &killer{at: -1}
	if len(words) > 1 {
		var delay int64
		if _, err := fmt.Sscan(words[1]+" "+words[2], &k.at, &delay); err != nil {
			return err
		}
		k.delay = time.Duration(delay) * time.Microsecond
	}
	config.ConnConfig.Tracer = k
	config.MaxConns = 2
	config.ConnConfig.RuntimeParams["application_name"] = stepsChild
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return err
	}
	defer pool.Close()
	client, err := jobq.NewClient(pool, nil)
	if err != nil {
		return err
	}
	w, err := worker.New(client, &worker.Config{
		NoJanitor: true,
		Queues:    map[string]worker.QueueConfig{"default": {Slots: 1}}, PollInterval: 50 * time.Millisecond,
		PollOnly: true, Reconcile: worker.ReconcileOff, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return err
	}
	err = worker.Handle(w, func(ctx context.Context, job *worker.Job[task]) error {
		k.armed.Store(true)
		defer w.Drain()
		return runWorkflow(ctx, pool, job.Args.N)
	}, nil)
	if err != nil {
		return err
	}
	return w.Run(ctx)
}

// startStepsChild runs a worker process until it has run the job once, or has killed itself,
// and says where it has.
func startStepsChild(ctx context.Context, url, plan string) (where string, err error) {
	child := osexec.CommandContext(ctx, os.Args[0]) // #nosec G204 -- this test program
	child.Env = append(os.Environ(), stepsChild+"="+strings.TrimSpace(url+" "+plan))
	var out, errs bytes.Buffer
	child.Stdout, child.Stderr = &out, &errs
	held, err := child.StdinPipe()
	if err != nil {
		return "", err
	}
	defer func() { _ = held.Close() }()
	err = child.Run()
	if child.ProcessState == nil { // it was never started
		return "", err
	}
	status, _ := child.ProcessState.Sys().(syscall.WaitStatus)
	if where = strings.TrimSpace(out.String()); where != "" && status.Signal() == syscall.SIGKILL {
		return where, nil
	}
	if err != nil {
		err = fmt.Errorf("child: %w: %s", err, errs.String())
	}
	return "", err
}

// A worker is killed with SIGKILL at each statement of jobs that do steps, sleep, wait
// for events, spawn other jobs and await them, before it is sent, while it is under way and after it. Whatever comes of
// it, each result is stored once, and all later runs see it; each effect in a
// StepTx happens once; each job is spawned once; and each job comes to its end. JOBQ_STEP_SEEDS says how many
// jobs; with 200 or more, it is checked that no statement was left out.
func TestKilledAtEveryStatement(t *testing.T) {
	t.Parallel()
	seeds := 3
	if text := os.Getenv(stepSeeds); text != "" {
		var err error
		seeds, err = strconv.Atoi(text)
		require.NoError(t, err)
	}
	var mu sync.Mutex
	kills, runs := make(map[string]int), 0
	t.Cleanup(func() { // when all seeds are done
		if !t.Failed() {
			checkKills(t, seeds, runs, kills)
		}
	})
	for seed := 1; seed <= seeds; seed++ {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			where := killOneWorkflow(t, seed)
			mu.Lock()
			defer mu.Unlock()
			runs += len(where)
			for _, each := range where {
				kills[each]++
			}
		})
	}
}

// checkKills says where the runs of all seeds were killed, and checks that it was everywhere.
func checkKills(t *testing.T, seeds, runs int, kills map[string]int) {
	t.Helper()
	killed := runs - kills[""]
	delete(kills, "")
	t.Logf("%d jobs, %d runs, %d of them killed, at %d places: %v", seeds, runs, killed, len(kills), kills)
	require.Positive(t, killed)
	if seeds < 200 {
		return
	}
	for _, statement := range []string{"StepGet", "StepPut", "StepSleep", "StepWait", "StepAwait", "JobEnqueueMany", "begin", "commit", "insert into effect", "insert into seen", "batch"} {
		for _, place := range []string{"before ", "after "} {
			where := place + statement
			require.Positive(t, kills[where]+kills[where+moment], where)
		}
	}
}

// killOneWorkflow runs one job to its end, and returns where each of its runs was killed,
// "" for one that was not.
func killOneWorkflow(t *testing.T, seed int) (where []string) {
	t.Helper()
	const runsMax = 100
	killsMax := 6 // beside other tests, on a slow machine
	if os.Getenv(stepSeeds) != "" {
		killsMax = 15
	}
	ctx, cancel := context.WithTimeout(context.Background(), jobtest.Eventually)
	defer cancel()
	client := newClient(t)
	pool := client.Pool()
	exec(t, pool, "create table effect (name text not null, value text not null); create table seen (name text not null, value text not null)")
	random := rand.New(rand.NewPCG(uint64(seed), 2)) // #nosec G115 G404 -- a test's
	parts := workflowOf(seed)
	emitted := make(map[string]int) // before which run, or while it runs
	done := len(parts)
	for i, part := range parts {
		switch part {
		case partEvent:
			emitted[partName(i, part)] = random.IntN(killsMax)
		case partChild:
			done++ // it is spawned, and awaited
		}
	}
	schema, err := db.NewSchema(client.Schema())
	require.NoError(t, err)
	id := enqueue(t, client, seed, &jobq.EnqueueOptions{MaxAttempts: 1000})
	for n := 0; ; n++ {
		goesOn, err := makeAvailable(ctx, client, schema, id)
		require.NoError(t, err)
		if !goesOn {
			break
		}
		require.Less(t, n, runsMax, "the job does not come to its end: it was killed at %q", where)
		var group errgroup.Group
		for name, at := range emitted {
			if at != n {
				continue
			}
			emit := func() error {
				first, err := client.Emit(ctx, name, "of "+name)
				if err == nil && !first {
					err = errors.New("emitted twice")
				}
				return err
			}
			if random.IntN(2) == 0 {
				require.NoError(t, emit())
			} else {
				group.Go(emit)
			}
		}
		stop, ended := make(chan struct{}), make(chan error, 1)
		switch random.IntN(3) { // when spawned jobs end: before the run, while it runs, or when it is over
		case 0:
			require.NoError(t, endParts(ctx, schema, pool))
			ended <- nil
		case 1:
			go func() { ended <- endPartsUntil(ctx, schema, pool, stop) }()
		default:
			ended <- nil
		}
		plan := ""
		if n < killsMax {
			plan = fmt.Sprint(random.IntN(4*len(parts)), " ", max(0, random.IntN(4000)-2000))
		}
		at, err := startStepsChild(ctx, pool.Config().ConnString(), plan)
		close(stop)
		require.NoError(t, err)
		require.NoError(t, group.Wait())
		require.NoError(t, <-ended)
		where = append(where, at)
	}
	require.Equal(t, done, number(t, client, "select count(*) from jobq.step where job_id = $1 and finished_at is not null", id))
	require.Equal(t, len(parts), number(t, client, "select count(*) from (select s.name from seen s group by s.name having count(distinct s.value) = 1) s"), "all runs see the same")
	require.Zero(t, number(t, client, "select count(*) from jobq.step s join seen e using (name) where s.type in ('step', 'event') and s.result #>> '{}' <> e.value"))
	require.Zero(t, number(t, client, "select count(*) from jobq.step s where s.type = 'sleep' and s.finished_at < s.wake_at"))
	require.Zero(t, number(t, client, "select count(*) from jobq.step s where s.type = 'event' and s.result #>> '{}' <> 'of ' || s.name"))
	require.Zero(t, number(t, client, "select count(*) from jobq.step s join seen e using (name) where s.type = 'await' and (s.result #>> '{0,result}' <> e.value or e.value <> 'of ' || s.name)"))
	require.Equal(t, done-len(parts), number(t, client, "select count(distinct args ->> 'of') from jobq.job where kind = 'part'"))
	require.Equal(t, done-len(parts), number(t, client, "select count(*) from jobq.job where kind = 'part'"), "each job is spawned once")
	for i, part := range parts {
		stored := "select count(*) from effect e where e.name = $1 and e.value = (select s.result #>> '{}' from jobq.step s where s.name = e.name)"
		all := number(t, client, "select count(*) from effect where name = $1", partName(i, part))
		switch part {
		case partTx:
			require.Equal(t, 1, all, "%s of seed %d, killed at %q", partName(i, part), seed, where)
			fallthrough
		case partStep:
			require.Equal(t, 1, number(t, client, stored, partName(i, part)))
		default:
			require.Zero(t, all)
		}
	}
	return where
}

// endParts runs all jobs that were spawned and wait in the line.
func endParts(ctx context.Context, schema *db.Schema, pool *pgxpool.Pool) error {
	answer, err := schema.Exchange(ctx, pool, db.Exchange{Owner: "parts", Claim: &db.JobClaimParams{
		Lease: db.Interval(time.Hour), Owner: "parts", Queue: "parts", Kinds: []string{"part"}, JobCount: 10,
	}})
	if err != nil || len(answer.Claimed) == 0 {
		return err
	}
	var completions []db.Completion
	for _, job := range answer.Claimed {
		var args spawnedPart
		if err := json.Unmarshal(job.Args, &args); err != nil {
			return err
		}
		result, err := json.Marshal("of " + args.Of)
		if err != nil {
			return err
		}
		completions = append(completions, db.Completion{Slot: jobtest.At(job), Result: result})
	}
	_, err = schema.Exchange(ctx, pool, db.Exchange{Owner: "parts", Completions: completions})
	return err
}

// endPartsUntil does so again and again.
func endPartsUntil(ctx context.Context, schema *db.Schema, pool *pgxpool.Pool, stop <-chan struct{}) error {
	for {
		select {
		case <-stop:
			return nil
		default:
		}
		if err := errors.Join(endParts(ctx, schema, pool), sleep.For(ctx, jobtest.Tick)); err != nil {
			return err
		}
	}
}

// makeAvailable makes a job be claimed by the next worker: it takes it from one that was
// killed, and ends a delay. It says whether the job has not come to its end. What a killed
// worker has sent last may go on while the job is taken from it, and no longer.
func makeAvailable(ctx context.Context, client *jobq.Client, schema *db.Schema, id int64) (goesOn bool, err error) {
	for {
		var sessions int
		err = client.Pool().QueryRow(ctx, "select count(*) from pg_stat_activity where datname = current_database() and application_name in ($1, 'jobq-worker')", stepsChild).Scan(&sessions)
		if err != nil {
			return false, err
		}
		var job *jobq.Job
		if job, err = client.Get(ctx, id); err != nil {
			return false, err
		}
		switch {
		case job.State == jobq.StateRunning:
			if err = pgtest.ExpireLeases(ctx, client.Pool(), id); err == nil {
				_, err = schema.Reap(ctx, client.Pool(), nil, 10, "test")
			}
		case sessions > 0:
		case job.State == jobq.StateWaiting:
			if err = endParts(ctx, schema, client.Pool()); err == nil {
				_, err = schema.Queries(client.Pool()).DependencyStep(ctx, db.DueFrom(time.Time{}), 10)
			}
		case job.State == jobq.StateScheduled:
			// As if it had been lost for the first time: it is alone anyway, and needs no idle worker to be seen.
			_, err = client.Pool().Exec(ctx, "update jobq.pending set crashes = 0 where id = $1 and crashes > 0", id)
			if err == nil {
				_, err = client.Pool().Exec(ctx, "select jobq.requeue($1)", id)
			}
		case job.State == jobq.StateAvailable:
			return true, nil
		case job.State == jobq.StateCompleted:
			return false, nil
		default:
			return false, fmt.Errorf("the job is %s: %s", job.State, job.LastError)
		}
		if err == nil {
			err = sleep.For(ctx, jobtest.Tick)
		}
		if err != nil {
			return false, err
		}
	}
}
