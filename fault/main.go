// Command fault breaks jobq in every way that real queues have broken, with
// real processes, and lets a checker that knows nothing of jobq's code decide
// whether its promises held. See docs/internals/guarantees.md and docs/internals/fault-tests.md.
//
//	go run . --smoke          the short set and all mutants, for CI
//	go run . --out FILE       the full set, ten seeds each, as a table
//	go run . --only F4 -v     one scenario
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jobq-dev/jobq/fault/check"
	"github.com/jobq-dev/jobq/internal/postgres"
)

func main() {
	programs := map[string]func(folder string) error{"program": runProgram, "flow": runFlow, "own": runOwn, "steps": runSteps, "escaped": runEscaped}
	if len(os.Args) == 3 && programs[os.Args[1]] != nil {
		if err := programs[os.Args[1]](os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "fault:", err)
		os.Exit(1)
	}
}

// settings are the command line's.
type settings struct {
	smoke, mutants, verbose bool
	only                    string
	seeds, tries            int
	seed                    uint64
	out                     string
	parallel                int
}

func run(ctx context.Context) error {
	var s settings
	flag.BoolVar(&s.smoke, "smoke", false, "the short set: one seed each")
	flag.BoolVar(&s.mutants, "mutants", true, "break jobq on purpose too, and expect to catch it")
	flag.BoolVar(&s.verbose, "v", false, "print the logs of the processes of runs that failed")
	flag.StringVar(&s.only, "only", "", "scenarios to run, such as F1,F28")
	flag.IntVar(&s.seeds, "seeds", 10, "runs of each scenario, but for --smoke")
	flag.Uint64Var(&s.seed, "seed", uint64(time.Now().UnixNano()%1_000_000), "the first seed") // #nosec G115 -- positive
	flag.StringVar(&s.out, "out", "", "also write the table to this file, between the marks that it has if it is there")
	flag.IntVar(&s.tries, "tries", mutantTries, "of a mutant until it is caught: 1 shows that a scenario forces what catches its mutants")
	flag.IntVar(&s.parallel, "parallel", 2*runtime.NumCPU(), "scenarios at once")
	flag.Parse()
	page, err := openPage(s)
	if err != nil {
		return err
	}
	fmt.Printf("seed %d\n", s.seed)
	c, err := newCluster(ctx)
	if err != nil {
		return err
	}
	defer c.close()
	suite := &suite{settings: s, cluster: c, page: page, started: time.Now()}
	suite.plan()
	if s.out != "" && s.only == "" && len(suite.skipped) > 0 { // before an hour goes by
		return fmt.Errorf("%s would lose the rows of what cannot run here: %s", s.out, strings.Join(suite.skipped, "; "))
	}
	suite.work(ctx)
	return suite.report()
}

// newCluster builds jobq and starts a server for all runs.
func newCluster(ctx context.Context) (*cluster, error) {
	scratch, err := os.MkdirTemp("", "jobq-fault-")
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(scratch, 0o755); err != nil { // #nosec G302 -- the programs of jobs write there
		return nil, err
	}
	c := &cluster{scratch: scratch, binary: filepath.Join(scratch, "jobq")}
	if c.self, err = os.Executable(); err != nil {
		return nil, err
	}
	// The tag only adds what JOBQ_MUTANT can switch on.
	build := exec.CommandContext(ctx, "go", "build", "-tags", "jobq_mutant", "-o", c.binary, "github.com/jobq-dev/jobq/cmd/jobq")
	build.Dir = ".."
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build jobq: %w: %s", err, out)
	}
	c.server, err = postgres.Start(ctx, postgres.Config{InMemory: true, Durable: true, Settings: map[string]string{
		"max_connections": "400", "shared_buffers": "64MB",
	}})
	if err != nil {
		return nil, err
	}
	return c, nil
}

func (c *cluster) close() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := errors.Join(c.server.Stop(ctx), os.RemoveAll(c.scratch)); err != nil {
		fmt.Fprintln(os.Stderr, "fault:", err)
	}
}

// trial is one run of a scenario.
type trial struct {
	scenario
	seed   uint64
	mutant string

	figure  string
	samples []time.Duration
	verdict *check.Verdict
	problem error // the run could not be judged, or something did not happen
	logs    string
	took    time.Duration
	tries   int
}

// broke says whether a promise was broken.
func (t *trial) broke() bool { return t.problem != nil || len(t.verdict.Violations) > 0 }

// caught says whether a mutant was noticed by what it broke, and not by a run
// that could not be made.
func (t *trial) caught() bool {
	var broken brokenPromise
	return !strings.Contains(t.logs, "panic: ") && (len(t.verdict.Violations) > 0 || errors.As(t.problem, &broken))
}

// suite is all trials.
type suite struct {
	settings
	cluster *cluster
	page    page
	started time.Time
	trials  []*trial
	skipped []string // with the reason
}

// plan lists what is to be run: mutants last, each in the scenario that is to
// catch it.
func (s *suite) plan() {
	wanted := strings.Split(s.only, ",")
	var mutants []*trial
	for _, scenario := range scenarios() {
		if s.only != "" && !slices.Contains(wanted, scenario.id) || s.only == "" && s.smoke && !scenario.smoke {
			continue
		}
		if scenario.needs != nil {
			if err := scenario.needs(); err != nil {
				s.skipped = append(s.skipped, fmt.Sprintf("%s %s: %s", scenario.id, scenario.name, err))
				continue
			}
		}
		seeds := s.seeds
		if s.smoke {
			seeds, scenario.scale = 1, scenario.scale/4
		}
		for i := range seeds {
			s.trials = append(s.trials, &trial{scenario: scenario, seed: s.seed + uint64(i)}) // #nosec G115 -- small
		}
		if s.mutants {
			short := scenario
			short.scale = min(short.scale, 8*time.Second)
			for _, name := range scenario.mutants {
				mutants = append(mutants, &trial{scenario: short, seed: s.seed, mutant: name})
			}
		}
	}
	s.trials = append(s.trials, mutants...)
}

// work runs the trials, some at once, and those that touch the server alone
// at the end.
func (s *suite) work(ctx context.Context) {
	queue := make(chan *trial)
	var workers sync.WaitGroup
	var printing sync.Mutex
	do := func(t *trial) {
		if ctx.Err() != nil {
			t.problem = ctx.Err()
			return
		}
		started := time.Now()
		t.try(ctx, s.cluster, s.tries)
		t.took = time.Since(started)
		printing.Lock()
		defer printing.Unlock()
		s.print(t)
	}
	for range s.parallel {
		workers.Go(func() {
			for t := range queue {
				do(t)
			}
		})
	}
	var alone []*trial
	for _, t := range s.trials {
		if t.alone {
			alone = append(alone, t)
			continue
		}
		queue <- t
	}
	close(queue)
	workers.Wait()
	for _, t := range alone {
		do(t)
	}
}

// mutantTries is how often a mutant is tried by default until it is caught: what is on its
// way when the fault comes is a matter of chance, in scenarios that do not force it.
// jobq itself has one try.
const mutantTries = 12

// try runs the trial, and again one of a mutant that was not caught.
func (t *trial) try(ctx context.Context, c *cluster, most int) {
	for tries := 1; ; tries++ {
		t.run(ctx, c)
		t.tries = tries
		if t.mutant == "" || t.caught() || tries >= most || ctx.Err() != nil {
			return
		}
		*t = trial{scenario: t.scenario, seed: t.seed + 1, mutant: t.mutant}
	}
}

// run does the scenario, heals and drains, and asks the checker.
func (t *trial) run(ctx context.Context, c *cluster) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	l, err := newLab(ctx, c, t)
	if l == nil || err != nil {
		t.problem, t.verdict = err, &check.Verdict{}
		if l != nil {
			t.problem = errors.Join(err, l.close())
		}
		return
	}
	defer func() { t.problem = errors.Join(t.problem, l.close()) }()
	err = t.body(l)
	if drained := l.drain(); err == nil {
		err = drained
	}
	verdict, checkErr := l.check()
	t.problem = errors.Join(err, checkErr)
	if t.verdict = verdict; verdict == nil {
		t.verdict = &check.Verdict{}
	}
	t.figure = l.figure
	if l.after != nil {
		t.figure = l.after(t.verdict)
	}
	t.samples = l.samples
	if t.problem == nil && (t.verdict.Transitions == 0 || t.verdict.Effects == 0) {
		t.problem = errors.New("nothing happened that could be judged")
	}
	if t.broke() {
		for _, p := range l.processes {
			t.logs += fmt.Sprintf("--- %s %v\n%s", p.role, p.args, p.log)
		}
	}
}

// check asks the checker, when nobody is left who could still change anything.
func (l *lab) check() (verdict *check.Verdict, err error) {
	conn, err := l.pool.Acquire(l.ctx)
	if err != nil {
		return nil, err
	}
	defer conn.Release()
	return check.Check(l.ctx, conn.Conn(), l.run)
}
