// Package data is what the terminal UI knows of a database: what its screens ask,
// the answers, and what workers say between two answers. It asks nothing itself:
// the root of the UI does, for the screen that is shown.
package data

import (
	"context"
	"fmt"
	"time"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/monitor"
	"github.com/jobq-dev/jobq/operator"
)

// Reader is what the UI asks of the database. jobq.Client, monitor.Monitor and
// operator.Operator together are one.
type Reader interface {
	Session(ctx context.Context) (*monitor.Session, error)
	Queues(ctx context.Context) ([]monitor.Queue, error)
	Keys(ctx context.Context, query monitor.KeyQuery) (monitor.Keys, error)
	Minutes(ctx context.Context, span time.Duration) ([]monitor.Minute, error)
	Failures(ctx context.Context, query monitor.FailureQuery) (monitor.Failures, error)
	Silent(ctx context.Context) ([]monitor.SilentRuns, error)
	Kinds(ctx context.Context) ([]monitor.Kind, error)
	Leader(ctx context.Context) (*monitor.Leader, error)
	Events(ctx context.Context, before int64, limit int) ([]monitor.Event, error)
	Workers(ctx context.Context) ([]monitor.Worker, error)
	List(ctx context.Context, filter jobq.Filter) (*jobq.Page, error)
	Count(ctx context.Context, filter jobq.Filter, limit int) (int64, error)
	Estimate(ctx context.Context, filter jobq.Filter) (int64, error)
	BulkSnapshot(ctx context.Context, action jobq.Action, filter jobq.Filter) (operator.BulkSnapshot, error)
	Get(ctx context.Context, id int64) (*jobq.Job, error)
	Attempts(ctx context.Context, id int64) ([]monitor.Attempt, error)
	LastSteps(ctx context.Context, id int64, limit int) ([]monitor.Step, error)
	Output(ctx context.Context, id int64, after monitor.OutputPiece) ([]monitor.OutputPiece, error)
	Why(ctx context.Context, id int64) ([]monitor.Reason, error)
	Graph(ctx context.Context, id int64) ([]monitor.GraphJob, error)
	JobActions(ctx context.Context, id int64) ([]monitor.JobAction, error)
	Audit(ctx context.Context, before int64, limit int) ([]monitor.AuditEntry, error)
	Schedules(ctx context.Context, after string, limit int) ([]monitor.Schedule, error)
	Ticks(ctx context.Context, name string, limit int) ([]monitor.Tick, error)
}

// Panel is something that is asked of the database as one.
type Panel int

// The panels.
const (
	Session Panel = iota
	Queues
	Minutes
	Failures // of late
	Errors   // failures of a day
	Silent
	Kinds
	Workers
	Leader
	Events
	Page    // the first page of the list of jobs
	More    // the page after those that are there
	Visible // the jobs on the screen
	Count   // how many jobs match
	Job     // one job with its history
	Audit
	Schedules
	Ticks // of one schedule
	Keys  // partition keys of one queue
	PanelEnd
)

// String is the panel in a message to the operator.
func (p Panel) String() string {
	return [PanelEnd]string{
		"session", "counts", "statistics", "failures", "errors", "silent runs", "kinds", "workers", "leader", "events", "page", "next page", "rows", "count", "job", "audit",
		"schedules", "ticks", "keys",
	}[p]
}

// Want is a question that a screen has.
type Want struct {
	Panel Panel
	// About tells this question from others of its panel, and is compared with
	// ==. An answer about something else is of no use any more: when it differs
	// from the question under way, the new one is asked at once.
	About any
	Ask   func(ctx context.Context, r Reader) (any, error)
}

// Answer is what came of a question.
type Answer struct {
	Panel Panel
	About any
	Value any // nil with an error
	Err   error
	At    time.Time
}

// AskAgain is after how long a question that took too long is asked again.
const AskAgain = 30 * time.Second

// FailuresSpan is how far back failures ask for attention, and ErrorsSpan how far
// back they are listed.
const (
	FailuresSpan = 20 * time.Minute
	ErrorsSpan   = 24 * time.Hour
)

// Wants are the questions of these panels, which are the same on all screens.
func Wants(panels ...Panel) []Want {
	wants := make([]Want, len(panels))
	for i, panel := range panels {
		wants[i] = Want{Panel: panel, Ask: panel.ask}
	}
	return wants
}

// ask asks what is the same on all screens.
func (p Panel) ask(ctx context.Context, r Reader) (any, error) {
	switch p {
	case Session:
		return r.Session(ctx)
	case Queues:
		return r.Queues(ctx)
	case Minutes:
		return r.Minutes(ctx, time.Hour)
	case Failures:
		return r.Failures(ctx, monitor.FailureQuery{Span: FailuresSpan})
	case Errors:
		return r.Failures(ctx, monitor.FailureQuery{Span: ErrorsSpan})
	case Silent:
		return r.Silent(ctx)
	case Kinds:
		return r.Kinds(ctx)
	case Workers:
		return r.Workers(ctx)
	case Leader:
		return r.Leader(ctx)
	case Events:
		return r.Events(ctx, 0, EventsMax)
	case Audit:
		return r.Audit(ctx, 0, AuditMax)
	case Schedules:
		return r.Schedules(ctx, "", SchedulesMax)
	case Page, More, Visible, Count, Job, Ticks, Keys, PanelEnd: // screens have questions of their own
	}
	return nil, fmt.Errorf("panel %s has no question of its own", p)
}

// How many events, actions, schedules and ticks of one, and keys of a queue are asked for.
const (
	KeysMax      = 100
	EventsMax    = 20
	AuditMax     = 100
	SchedulesMax = 500
	TicksMax     = 100
)

// Event is what a worker says about one job.
type Event struct {
	ID, Token   int64
	Queue, Kind string
	State       jobq.State
	Attempts    int
	Percent     float32
	Stage       string
	Took        time.Duration
}

// Ended is how many runs have completed, how many have failed, whether or not their
// jobs are tried again, and how many ended otherwise: put off, or cancelled.
type Ended struct{ Completed, Failed, Others int64 }

// Feed is what workers have said since the one before.
type Feed struct {
	At     time.Time
	Events []Event
	Ended  map[string]Ended // by queue
	Lag    time.Duration    // from the worker's clock to ours
	Gap    bool             // something was not heard: look again
}

// Patch changes the job as the event tells. An event of an earlier run than the one
// that is known, or of one that is known to be over, is ignored: it was sent before
// what is known. What the event does not say and makes out of date is emptied, until
// the database is asked again.
func (e Event) Patch(job *jobq.Job, now time.Time) (applied bool) {
	begun := job.State != jobq.StateRunning || e.Token != job.LeaseToken
	if e.Token < job.LeaseToken || e.Token == job.LeaseToken && job.State != jobq.StateRunning {
		return false
	}
	if begun || e.State != jobq.StateRunning {
		job.Progress, job.LeaseExpiresAt, job.CancelRequestedAt = nil, nil, nil
	}
	if e.Attempts != job.Attempts {
		job.LastError = ""
	}
	if begun {
		job.LeaseOwner = ""
	}
	job.State, job.Attempts, job.LeaseToken = e.State, e.Attempts, e.Token
	switch e.State {
	case jobq.StateRunning:
		if begun || job.StartedAt == nil { // nil: it was claimed ahead
			job.StartedAt, job.FinishedAt = &now, nil
		}
		if e.Percent > 0 || e.Stage != "" {
			message := ""
			if p := job.Progress; p != nil && p.Percent == e.Percent && p.Stage == e.Stage {
				message = p.Message // of which events say nothing
			}
			job.Progress = &jobq.Progress{Percent: e.Percent, Stage: e.Stage, Message: message, At: now}
		}
	case jobq.StateCompleted, jobq.StateFailed, jobq.StateCancelled:
		started := now.Add(-e.Took)
		job.StartedAt, job.FinishedAt = &started, &now
	case jobq.StateWaiting, jobq.StateScheduled, jobq.StateAvailable:
		job.StartedAt, job.FinishedAt, job.LeaseOwner, job.RunAt = nil, nil, "", now
	}
	return true
}
