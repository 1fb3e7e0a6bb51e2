package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/jobq-dev/jobq/fault/check"
	"github.com/jobq-dev/jobq/internal/postgres"
)

// The timing of every run, short so that much happens, and what follows from
// it.
const (
	lease       = 2 * time.Second
	extendEvery = 500 * time.Millisecond
	scan        = 500 * time.Millisecond
	poll        = time.Second
	maxAttempts = 5
	slack       = 3 * time.Second // for a machine whose cores are all busy; the mutants that reap late do so by 9 s and more
	patience    = 60 * time.Second
	leaderTTL   = 3 * time.Second
	// followerPatience is how late work is when a janitor that does not lead does
	// it: a leader that has died would have been replaced by then.
	followerPatience = leaderTTL + 2*scan
	drainPatience    = 40 * time.Second
)

// brokenPromise is an error that says that jobq did not do what it must. Other
// errors say that a run could not be made or judged.
type brokenPromise string

func (b brokenPromise) Error() string { return string(b) }

func brokenf(format string, args ...any) error { return brokenPromise(fmt.Sprintf(format, args...)) }

// cluster is the server of many runs, with what all need.
type cluster struct {
	server  *postgres.Server
	binary  string // jobq
	self    string // this program
	scratch string
	names   atomic.Int64
}

// lab is one run: a database of its own, processes and their traces.
type lab struct {
	*cluster
	ctx         context.Context
	seed        uint64
	random      *rand.Rand
	database    string
	folder      string // of the ledgers
	mutant      string
	environ     []string      // of processes that are started, besides this one's
	connections int           // at most, of the pools of processes that are started; 0 means as they like
	pool        *pgxpool.Pool // the supervisor's own, direct
	run         check.Run
	scale       time.Duration               // how long the fault goes on
	after       func(*check.Verdict) string // makes the figure when the checker has spoken
	more        string                      // further arguments of each enqueue of enqueueTogether, in SQL
	samples     []time.Duration             // that the report sums up over all runs
	own         *server                     // instead of the cluster's
	socket      string                      // of whichever server it is
	atEnd       []func() error
	patient     time.Duration // for the drain at the end
	drained     bool

	mu sync.Mutex
	// guarded by mu
	processes []*process
	roles     int
	produced  int
	figure    string
}

func newLab(ctx context.Context, c *cluster, t *trial) (*lab, error) {
	number, seed := c.names.Add(1), t.seed
	l := &lab{
		cluster: c, ctx: ctx, seed: seed, random: rand.New(rand.NewPCG(seed, 0)), mutant: t.mutant, scale: t.scale, patient: drainPatience, // #nosec G404 -- repeatable on purpose
		database: fmt.Sprintf("fault_%d", number), folder: filepath.Join(c.scratch, fmt.Sprint(number)),
		run: check.Run{
			Processes: make(map[string]int), Janitors: make(map[string]bool), Late: make(map[int]time.Time), Died: make(map[int]time.Time), Bound: scan + slack,
			MayOverlap: t.cutOff,
		},
	}
	l.run.Folder = l.folder
	if err := os.MkdirAll(l.folder, 0o755); err != nil {
		return nil, err
	}
	l.socket = c.server.SocketFile()
	if t.mutant != "" {
		l.patient = drainPatience / 4 // it is not to be expected that it drains
	}
	if t.server != nil {
		if err := ownServer(t.server)(l); err != nil {
			return l, err
		}
	}
	admin, err := pgx.Connect(ctx, l.url("postgres"))
	if err != nil {
		return l, err
	}
	defer func() { _ = admin.Close(ctx) }()
	if _, err := admin.Exec(ctx, "create database "+l.database); err != nil {
		return l, err
	}
	config, err := pgxpool.ParseConfig(l.url(l.database))
	if err != nil {
		return l, err
	}
	config.MaxConns = 20
	if l.pool, err = pgxpool.NewWithConfig(ctx, config); err != nil {
		return l, err
	}
	if out, err := exec.CommandContext(ctx, c.binary, "migrate", "up", "--database-url", l.url(l.database)).CombinedOutput(); err != nil { // #nosec G204 -- the program under test
		return l, fmt.Errorf("migrate: %w: %s", err, out)
	}
	if err := l.set("lease="+lease.String(), "extend_every="+extendEvery.String()); err != nil {
		return l, err
	}
	if err := l.changeFunctions(); err != nil {
		return l, err
	}
	return l, l.withConn(func(conn *pgx.Conn) error { return check.Install(ctx, conn) })
}

// url is a database of the run's server, directly.
func (l *lab) url(database string) string {
	if l.own != nil {
		return l.own.url(database)
	}
	return l.server.SocketURL(database)
}

// set changes settings of the queue.
func (l *lab) set(args ...string) error {
	args = append([]string{"queues", "set", "default", "--database-url", l.url(l.database)}, args...)
	if out, err := exec.CommandContext(l.ctx, l.binary, args...).CombinedOutput(); err != nil { // #nosec G204 -- the program under test
		return fmt.Errorf("%v: %w: %s", args, err, out)
	}
	return nil
}

func (l *lab) withConn(use func(*pgx.Conn) error) error {
	conn, err := l.pool.Acquire(l.ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	return use(conn.Conn())
}

// role makes a role for one process, so that the history says who did what.
func (l *lab) role() (string, error) {
	l.mu.Lock()
	l.roles++
	name := fmt.Sprintf("%s_p%d", l.database, l.roles)
	l.mu.Unlock()
	_, err := l.pool.Exec(l.ctx, "create role "+name+" login superuser")
	return name, err
}

// worker starts a worker without a janitor, for jobs of the kinds task and flow.
func (l *lab) worker(args ...string) (*process, error) {
	return l.workerOn("", append([]string{"-q", "default=4"}, args...)...)
}

func (l *lab) workerOn(host hostname, args ...string) (*process, error) {
	all := []string{
		"worker", "--janitor", "off", "--poll", poll.String(), "--drain-timeout", "20s",
		"--run", fmt.Sprintf("task=%s program %s", l.self, l.folder),
		"--run-stream", fmt.Sprintf("flow=%s flow %s", l.self, l.folder),
	}
	if !l.run.Recovers {
		all = append(all, "--reconcile", "off")
	}
	p, err := l.start(host, append(all, args...)...)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	l.run.Processes[p.role] = p.pid()
	l.mu.Unlock()
	return p, l.awaitLog(p, "worker started")
}

// stick holds what the process has sent for long, while new connections get
// through, and tells the checker that what arrives of it later is old. All of
// the process's connections must have been held for a while.
func (l *lab) stick(p *process) (release func(), err error) {
	now, err := l.now()
	if err != nil {
		return nil, err
	}
	rows, err := l.pool.Query(l.ctx, "select pid from pg_stat_activity where usename = $1", p.role)
	if err != nil {
		return nil, err
	}
	pids, err := pgx.CollectRows(rows, pgx.RowTo[int])
	if err != nil {
		return nil, err
	}
	for _, pid := range pids {
		l.run.Late[pid] = now
	}
	return p.proxy.stick(), nil
}

// janitor starts a janitor.
func (l *lab) janitor(args ...string) error {
	p, err := l.start("", append([]string{
		"janitor", "--scan", scan.String(), "--leader-retry", scan.String(), "--leader-ttl", leaderTTL.String(), "--leader-renew", "1s",
	}, args...)...)
	if err != nil {
		return err
	}
	l.mu.Lock()
	l.run.Janitors[p.role] = true
	l.mu.Unlock()
	return nil
}

func (l *lab) awaitLog(p *process, text string) error {
	return l.within(patience, fmt.Sprintf("%q in the log of %s", text, p.args[0]), func() (bool, error) {
		if !p.alive() {
			return false, fmt.Errorf("%v ended: %s", p.args, p.log)
		}
		return p.log.count(text) > 0, nil
	})
}

// crew starts workers and two janitors.
func (l *lab) crew(count int) ([]*process, error) {
	for range 2 {
		if err := l.janitor(); err != nil {
			return nil, err
		}
	}
	workers := make([]*process, count)
	var err error
	for i := range workers {
		if workers[i], err = l.worker(); err != nil {
			return nil, err
		}
	}
	return workers, nil
}

// within waits until the condition holds.
func (l *lab) within(limit time.Duration, what string, holds func() (bool, error)) error {
	if l.mutant != "" {
		limit = min(limit, patience/3) // it may wait for what the mutant has broken
	}
	for end := time.Now().Add(limit); time.Now().Before(end) && l.ctx.Err() == nil; pause(l.ctx, 10*time.Millisecond) {
		ok, err := holds()
		if ok || err != nil {
			return err
		}
	}
	return brokenf("waited %s for %s", limit, what)
}

// number reads one number; -1 while the server is away.
func (l *lab) number(sql string, args ...any) int {
	number := -1
	if err := l.pool.QueryRow(l.ctx, sql, args...).Scan(&number); err != nil {
		return -1
	}
	return number
}

// text is number for what is to be read.
func (l *lab) text(sql string, args ...any) string {
	var text *string
	if err := l.pool.QueryRow(l.ctx, sql, args...).Scan(&text); err != nil || text == nil {
		return fmt.Sprint("unknown: ", err)
	}
	return *text
}

func (l *lab) awaitNumber(limit time.Duration, want int, sql string, args ...any) error {
	return l.within(limit, fmt.Sprintf("%s to be %d", sql, want), func() (bool, error) { return l.number(sql, args...) == want, nil })
}

// sendsNothing waits until workers have sent nothing for a while. After a claim, a worker looks once more for what came beside
// the notification: what it sends later on its only connection would wait for that answer.
func (l *lab) sendsNothing() error {
	return l.awaitNumber(patience, 0, `select count(*) from pg_stat_activity a where a.datname = current_database()
		and a.application_name = 'jobq-worker' and (a.state <> 'idle' or a.state_change > clock_timestamp() - interval '100 ms')`)
}

// now is the database's clock.
func (l *lab) now() (now time.Time, err error) {
	err = l.pool.QueryRow(l.ctx, "select clock_timestamp()").Scan(&now)
	return now, err
}

// unfinished counts the jobs that have yet to end, of kinds that workers run.
const unfinished = "select count(*) from jobq.job where finished_at is null and (kind in ('task', 'flow') or state = 'running')"

// drain heals everything, waits until no job is left, and ends all processes.
func (l *lab) drain() error {
	if l.drained {
		return nil
	}
	l.drained = true
	l.mu.Lock()
	processes := append([]*process(nil), l.processes...)
	l.mu.Unlock()
	for _, p := range processes {
		p.proxy.heal()
		if p.stopped {
			p.thaw()
		}
	}
	err := l.awaitNumber(l.patient, 0, unfinished)
	if err == nil { // nor is any lease held, when the last ends are told
		err = l.awaitNumber(l.patient, 0, "select count(*) from jobq.lease")
	}
	if err == nil {
		err = l.atRest(processes)
	}
	for _, p := range processes {
		err = errors.Join(err, p.end())
	}
	return errors.Join(err, l.survivors())
}

// atRest waits until processes that have nothing to do hold nothing in the
// server.
func (l *lab) atRest(processes []*process) error {
	roles := []string{}
	for _, p := range processes {
		if p.alive() {
			roles = append(roles, p.role)
		}
	}
	held := ""
	err := l.within(10*time.Second, "I10", func() (bool, error) {
		return held == "", l.withConn(func(conn *pgx.Conn) (err error) {
			held, err = check.AtRest(l.ctx, conn, roles)
			return err
		})
	})
	if held != "" {
		return brokenf("I10: held by idle processes for 10 s: %s", held)
	}
	return err
}

// awaitReaper waits until a janitor leads, and returns when it must have reaped
// whatever had to wait for that, by the database's clock.
func (l *lab) awaitReaper() (time.Time, error) {
	err := l.awaitNumber(patience, 1, `select count(*) from pg_locks l join pg_stat_activity a using (pid)
		where a.datname = current_database() and a.application_name = 'jobq-janitor' and l.locktype = 'advisory' and l.granted`)
	if err != nil {
		return time.Time{}, err
	}
	now, err := l.now()
	return now.Add(scan), err
}

// survivors looks for programs that have outlived their workers.
func (l *lab) survivors() error {
	left := ""
	err := l.within(5*time.Second, "the end of every program", func() (bool, error) {
		out, err := exec.CommandContext(l.ctx, "ps", "-eo", "pid,ppid,stat,etime,args").Output()
		left = ""
		for line := range strings.Lines(string(out)) {
			if slices.Contains(strings.Fields(line), l.folder) { // as a whole: other runs' begin with it
				left += line
			}
		}
		return left == "", err
	})
	if left != "" {
		return brokenf("I9: programs have outlived their workers by 5 s:\n%s", left)
	}
	return err
}

// close removes the run's database.
func (l *lab) close() error {
	l.mu.Lock()
	processes := append([]*process(nil), l.processes...)
	l.mu.Unlock()
	for _, p := range processes {
		if p.alive() {
			p.kill()
		}
	}
	if l.pool != nil {
		l.pool.Close()
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(l.ctx), 20*time.Second)
	defer cancel()
	var err error
	if l.own != nil {
		l.own.end(syscall.SIGINT)
	} else if admin, connectErr := pgx.Connect(ctx, l.url("postgres")); connectErr == nil {
		_, err = admin.Exec(ctx, "drop database if exists "+l.database+" with (force)")
		_ = admin.Close(ctx)
	}
	for _, end := range l.atEnd {
		err = errors.Join(err, end())
	}
	return err
}
