// Package check decides whether a run kept what jobq promises, from what row
// triggers and ledgers outside of the database have written down. It imports
// nothing of jobq and knows nothing of its code, so that it cannot share its
// mistakes.
package check

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

//go:embed history.sql
var historySQL string

// Install puts the triggers into the database, before the run.
func Install(ctx context.Context, conn *pgx.Conn) error {
	_, err := conn.Exec(ctx, historySQL)
	return err
}

// Run is what the checker must know of a run besides its traces.
type Run struct {
	Folder string // of the ledgers
	// Processes are the pids of workers by the role that they connect as. Only
	// what such a role does is a worker's.
	Processes map[string]int
	// Janitors are the roles of janitors.
	Janitors map[string]bool
	// Recovers says that workers recover the jobs of dead ones when they start.
	Recovers bool
	// Died is when each process that died was still alive, by its pid.
	Died map[int]time.Time
	// Bound is how long after a lease's end its job may stay with a dead worker.
	Bound time.Duration
	// Paused are spans in which nobody could have reaped, such as when the
	// server was down: they do not count towards the bound.
	Paused []Span
	// MayOverlap says that processes were stopped or cut off, and with them the
	// programs that they would have ended in time.
	MayOverlap bool
	// MayLose says that what the dead server had not sent on may be lost, and its
	// history with it.
	MayLose bool
	// ClockSteps says that the server's clock was set: no time is judged by it.
	ClockSteps bool
	// StatsGo says that the clock stood so far back that statistics of that time are deleted when it is right.
	StatsGo bool
	// Requeues says that an operator requeues finished jobs.
	Requeues bool
	// Late are server processes, by pid, that carry nothing that was sent after a
	// time: their clients are gone, and only what lay in the network arrives.
	Late map[int]time.Time
}

// Span is a time by the database's clock.
type Span struct{ From, To time.Time }

// Violation is a broken promise: an invariant of docs/internals/fault-tests.md, and what happened.
type Violation struct {
	Invariant string
	What      string
}

func (v Violation) String() string { return v.Invariant + ": " + v.What }

// Verdict is what a run came to.
type Verdict struct {
	Violations []Violation
	// What was there to be judged: a run without any of it proves nothing.
	Transitions, Acknowledged, Reaps, Completions, Effects int
	Lost                                                   int // acknowledged jobs without an effect or a recorded reason
	Forgotten                                              int // acknowledged jobs that a dead server had not sent on: see Run.MayLose
	Stale                                                  int // writes of workers to jobs that were not theirs
	Early                                                  int // reaps before the lease's end
	DoubleBump                                             int // transitions that counted a run more or less often than they must
	Overlaps                                               int // runs of a job that began while an earlier one had not ended
	Duplicates                                             int // jobs whose effect was complete more than once
	// ReapDelays is how long after a lease's end each reap came.
	ReapDelays []time.Duration
	Reaped     []Reap
}

// Reap is a job taken from its owner.
type Reap struct {
	Owner string
	At    time.Time
}

// row is a line of the history: of a table, or, made of those, of a stage of a job.
type row struct {
	Seq                                int64
	At                                 time.Time
	Txid                               int64
	Session                            string
	PID                                int
	Stage, Op                          string
	ID                                 int64
	Token                              *int64
	Slot                               *int16
	Owner                              *string
	Expires, ExpiresNew                *time.Time
	Attempts, AttemptsNew, MaxAttempts *int
	State, StateBefore                 *string
	Result                             *string
	Error                              *string
	Key                                *string
	ProgressBy, CheckpointBy           *string
	Lost                               bool
	Jobs                               []int64
	Slots, Ms                          []int16
}

// Check judges a run that has ended and been drained.
func Check(ctx context.Context, conn *pgx.Conn, run Run) (*Verdict, error) {
	rows, err := conn.Query(ctx, `select seq, at, txid, session::text, pid, stage, op, id, token, slot, owner, expires, expires_new, attempts,
		attempts_new, max_attempts, state, state_before, result::text, error, key, progress_by, checkpoint_by, lost, jobs, slots, ms
		from fault.history order by seq`)
	if err != nil {
		return nil, err
	}
	history, err := pgx.CollectRows(rows, pgx.RowToStructByPos[row])
	if err != nil {
		return nil, err
	}
	c := &checker{run: run, verdict: &Verdict{Transitions: len(history)}, jobs: make(map[int64][]row), outcomes: make(map[[2]int64]string)}
	if err := c.attempts(ctx, conn); err != nil {
		return nil, err
	}
	if err := c.readBegun(); err != nil {
		return nil, err
	}
	c.follow(history)
	for id, job := range c.jobs {
		c.job(id, job)
	}
	if err := c.counts(ctx, conn); err != nil {
		return nil, err
	}
	if err := c.ledgers(); err != nil {
		return nil, err
	}
	if err := c.rest(ctx, conn); err != nil {
		return nil, err
	}
	slices.SortFunc(c.verdict.Violations, func(a, b Violation) int { return strings.Compare(a.String(), b.String()) })
	slices.Sort(c.verdict.ReapDelays)
	return c.verdict, nil
}

type checker struct {
	run     Run
	verdict *Verdict
	jobs    map[int64][]row
	// outcomes are how runs ended by what jobq tells its users, by job and token.
	outcomes map[[2]int64]string
	// begun are the runs whose programs have begun, by job and token.
	begun     map[[2]int64]bool
	completed int // runs, by the history
}

func (c *checker) violate(invariant, format string, args ...any) {
	c.verdict.Violations = append(c.verdict.Violations, Violation{invariant, fmt.Sprintf(format, args...)})
}

// isWorkers says whether the session is of a worker, and of the one that owns.
func (c *checker) isWorkers(r row) (worker, owns bool) {
	pid, ok := c.run.Processes[r.Session]
	if !ok || r.Owner == nil {
		return ok, false
	}
	return true, strings.Contains(*r.Owner, fmt.Sprintf("-%d-", pid))
}

// job follows one job through its stages.
func (c *checker) job(id int64, history []row) {
	stage := ""
	var token int64
	var claimed time.Time
	attempts := 0
	for i := 0; i < len(history); i++ {
		r := history[i]
		if r.Attempts != nil && r.MaxAttempts != nil && (*r.Attempts < 0 || *r.Attempts > *r.MaxAttempts) {
			c.violate("I4", "job %d has %d attempts of %d", id, *r.Attempts, *r.MaxAttempts)
		}
		if from, late := c.run.Late[r.PID]; late && r.Stage == "running" && r.Op != "insert" && claimed.After(from) {
			c.verdict.Stale++
			c.violate("I3", "job %d, token %d: %s by what was sent before its claim", id, *r.Token, r.Op)
		}
		switch {
		case r.Op == "insert":
			if stage == "pending" && r.Stage == "finished" && leavesPending(history[i+1:], r.Txid) {
				stage = "left pending" // a job that cannot be read is copied before it is deleted
			}
			c.enter(id, stage, r, token)
			if r.Stage == "running" {
				claimed = r.At
				if r.Token != nil {
					token = *r.Token
				}
				if *r.AttemptsNew != attempts {
					c.verdict.DoubleBump++
					c.violate("I4", "job %d: a claim changed attempts from %d to %d", id, attempts, *r.AttemptsNew)
				}
			}
			attempts, stage = *r.AttemptsNew, r.Stage
		case r.Op == "delete" && r.Stage == "running":
			var next *row
			for k := i + 1; k < len(history) && history[k].Txid == r.Txid; k++ {
				if history[k].Op == "insert" {
					next = &history[k]
					break
				}
			}
			c.leave(id, r, next)
			stage = "left " + r.Stage
		case r.Op == "delete":
			if stage == r.Stage {
				stage = "left " + r.Stage
			}
		case r.Stage == "running":
			c.held(id, r)
		}
	}
}

// leavesPending says whether the transaction deletes the job from pending, later in its history.
func leavesPending(later []row, txid int64) bool {
	return slices.ContainsFunc(later, func(r row) bool { return r.Txid == txid && r.Op == "delete" && r.Stage == "pending" })
}

// enter checks that a stage may follow the one before.
func (c *checker) enter(id int64, before string, r row, token int64) {
	legal := map[string][]string{
		"":              {"pending"},
		"left pending":  {"running", "finished"},
		"left running":  {"pending", "finished"},
		"left finished": {"pending"},
	}
	if !slices.Contains(legal[before], r.Stage) || (before == "left finished" && !c.run.Requeues) {
		c.violate("I5", "job %d: %s after %q", id, r.Stage, before)
	}
	if r.Stage == "running" && *r.Token <= token && !c.run.ClockSteps {
		c.violate("I4", "job %d: token %d claimed after %d", id, *r.Token, token)
	}
}

// held checks a change of a running job: an extension, progress or a wish.
func (c *checker) held(id int64, r row) {
	if worker, owns := c.isWorkers(r); worker && !owns {
		c.verdict.Stale++
		c.violate("I3", "job %d, token %d of %s: changed by %s", id, *r.Token, *r.Owner, r.Session)
	}
	for what, by := range map[string]*string{"progress": r.ProgressBy, "a checkpoint": r.CheckpointBy} {
		if by != nil && *by != fmt.Sprint(*r.Token) {
			c.verdict.Stale++
			c.violate("I3", "job %d: %s of token %s was stored under token %d", id, what, *by, *r.Token)
		}
	}
	if r.ExpiresNew != nil && r.ExpiresNew.Before(*r.Expires) && !c.run.ClockSteps {
		c.violate("I4", "job %d: its lease was shortened from %s to %s", id, r.Expires.Format(clock), r.ExpiresNew.Format(clock))
	}
}

const clock = "15:04:05.000"

// leave checks the end of a run: by its worker, or by whoever takes it away.
func (c *checker) leave(id int64, r row, next *row) {
	if next == nil {
		c.violate("I5", "job %d left running and went nowhere", id)
		return
	}
	counted := *next.AttemptsNew - *r.Attempts
	worker, owns := c.isWorkers(r)
	switch {
	case c.run.Janitors[r.Session]:
		c.reaped(id, r, counted)
	case worker && !owns && c.run.Recovers && next.Error != nil && *next.Error == "orphaned by worker restart":
		c.orphaned(id, r, counted)
	case worker && !owns:
		c.verdict.Stale++
		c.violate("I3", "job %d, token %d of %s: ended by %s", id, *r.Token, *r.Owner, r.Session)
	case worker:
		c.finished(id, r, next, counted)
	}
}

// readBegun reads which runs have begun from the ledger of the programs.
func (c *checker) readBegun() error {
	effects, err := ReadLedger(c.run.Folder, Effects)
	c.begun = make(map[[2]int64]bool)
	for _, e := range effects {
		if e.What == "begin" {
			c.begun[[2]int64{e.Job, e.Token}] = true
		}
	}
	return err
}

// neverBegan says whether a reap has given a job back that had not begun: it counts and records nothing.
func (c *checker) neverBegan(id, token int64, counted int) bool {
	run := [2]int64{id, token}
	return counted == 0 && c.outcomes[run] == "" && !c.begun[run]
}

func (c *checker) reaped(id int64, r row, counted int) {
	c.verdict.Reaps++
	unbegun := c.neverBegan(id, *r.Token, counted)
	if counted != 1 && !unbegun {
		c.verdict.DoubleBump++
		c.violate("I4", "job %d: a reap counted %d", id, counted)
	}
	if outcome := c.outcomes[[2]int64{id, *r.Token}]; outcome != "lost" && !unbegun {
		c.violate("I4", "job %d, token %d: reaped, and its attempt is %q", id, *r.Token, outcome)
	}
	c.verdict.Reaped = append(c.verdict.Reaped, Reap{*r.Owner, r.At})
	if c.run.ClockSteps {
		return
	}
	delay := r.At.Sub(*r.Expires)
	if delay < 0 {
		c.verdict.Early++
		c.violate("I7", "job %d: reaped %s before its lease ended", id, -delay)
		return
	}
	paused := c.paused(*r.Expires, r.At)
	if paused == 0 {
		c.verdict.ReapDelays = append(c.verdict.ReapDelays, delay)
	}
	if delay-paused > c.run.Bound {
		c.violate("I6", "job %d: reaped %s after its lease ended (and nobody could for %s of them), later than %s", id,
			delay.Round(time.Millisecond), paused.Round(time.Millisecond), c.run.Bound)
	}
}

// paused is for how much of the time nobody could have reaped.
func (c *checker) paused(from, to time.Time) (total time.Duration) {
	spans := slices.SortedFunc(slices.Values(c.run.Paused), func(a, b Span) int { return a.From.Compare(b.From) })
	for _, span := range spans {
		if span.From.After(from) {
			from = span.From
		}
		end := span.To
		if end.After(to) {
			end = to
		}
		if end.After(from) {
			total += end.Sub(from)
			from = end
		}
	}
	return total
}

// orphaned is a job that a starting worker took from one that must be dead.
func (c *checker) orphaned(id int64, r row, counted int) {
	c.verdict.Reaps++
	pid := 0
	if parts := strings.Split(*r.Owner, "-"); len(parts) > 2 {
		pid, _ = strconv.Atoi(parts[len(parts)-2]) // else nobody died by it
	}
	if alive, died := c.run.Died[pid]; !died || r.At.Before(alive) {
		c.verdict.Early++
		c.violate("I7", "job %d: recovered from %s, which lived", id, *r.Owner)
	}
	if counted != 1 && !c.neverBegan(id, *r.Token, counted) {
		c.verdict.DoubleBump++
		c.violate("I4", "job %d: a recovery counted %d", id, counted)
	}
}

// finished is a run whose end its own worker reports.
func (c *checker) finished(id int64, r row, next *row, counted int) {
	outcome := c.outcomes[[2]int64{id, *r.Token}] // "": completed, or given back before it began
	failed := outcome == "failed" || outcome == "timed_out"
	if failed != (counted == 1) || counted < 0 || counted > 1 {
		c.verdict.DoubleBump++
		c.violate("I4", "job %d: an end as %q counted %d", id, outcome, counted)
	}
	if failed && next.Error != nil {
		var by int64
		_, text, said := strings.Cut(*next.Error, "told to fail by token ")
		if _, err := fmt.Sscan(text, &by); said && err == nil && by != *r.Token {
			c.verdict.Stale++
			c.violate("I3", "job %d: the failure of token %d was stored under token %d", id, by, *r.Token)
		}
	}
	if next.State == nil || *next.State != "completed" {
		return
	}
	c.verdict.Completions++
	if next.Result == nil {
		return
	}
	var result struct{ Token int64 }
	if err := json.Unmarshal([]byte(*next.Result), &result); err == nil && result.Token != 0 && result.Token != *r.Token {
		c.verdict.Stale++
		c.violate("I3", "job %d: the result of token %d was stored under token %d", id, result.Token, *r.Token)
	}
}
