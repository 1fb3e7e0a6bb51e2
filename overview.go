package jobq

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/filter"
)

// Minute sums up the jobs of a queue that ended within a minute.
type Minute struct {
	At time.Time `json:"at"`
	QueueStats
}

// Minutes returns what ended within the last span, by minute and queue. It
// reads sums, never jobs.
func (c *Client) Minutes(ctx context.Context, span time.Duration) ([]Minute, error) {
	rows, err := c.queries.StatsByMinute(ctx, db.Interval(span))
	if err != nil {
		return nil, c.clientError("stats by minute", err)
	}
	minutes := make([]Minute, len(rows))
	for i, row := range rows {
		minutes[i] = Minute{row.Minute.Time.UTC(), QueueStats{
			Queue: row.Queue, Completed: row.Completed, Failed: row.Failed, Retried: row.Retried, Lost: row.Lost,
			Cancelled: row.Cancelled, RunTime: seconds(row.RunSeconds), WaitTime: seconds(row.WaitSeconds),
		}}
	}
	return minutes, nil
}

// Failure is a group of jobs that have failed: those of one queue and kind, for
// the same reason.
type Failure struct {
	Queue   string    `json:"queue"`
	Kind    string    `json:"kind"`
	Error   string    `json:"error"` // its first words
	Jobs    int64     `json:"jobs"`
	First   time.Time `json:"first"`   // when the first of them failed
	Last    time.Time `json:"last"`    // and the last
	Example int64     `json:"example"` // the id of the newest
}

// Filter is the filter that finds the jobs of the group, whenever they failed.
func (f Failure) Filter() string {
	var query filter.Query
	return query.And(filter.Equal("state", string(Failed)), filter.Equal("queue", f.Queue), filter.Equal("kind", f.Kind), filter.Reason(f.Error)).String()
}

// Failures are the jobs that have failed within a span, in groups.
type Failures struct {
	Groups []Failure `json:"groups"` // the most frequent first
	// More says that not all failures within the span were looked at: there may be
	// more jobs in each group, and other groups.
	More bool `json:"more,omitempty"`
	// Left is how many groups were found beside these.
	Left int64 `json:"left,omitempty"`
}

// failuresMax is how many jobs that did not succeed Failures looks at, and
// failureGroupsMax how many groups it returns.
const (
	failuresMax      = 10_000
	failureGroupsMax = 100
)

// Failures groups the failures within the span, most frequent first: those among
// the last 10,000 jobs that did not succeed.
func (c *Client) Failures(ctx context.Context, span time.Duration) (Failures, error) {
	rows, err := c.queries.FailuresByError(ctx, failureGroupsMax, db.Interval(span), failuresMax)
	if err != nil {
		return Failures{}, c.clientError("failures", err)
	}
	failures := Failures{Groups: make([]Failure, len(rows))}
	for i, row := range rows {
		failures.Groups[i] = Failure{row.Queue, row.Kind, row.Error, row.Jobs, row.First.Time.UTC(), row.Last.Time.UTC(), row.Example}
		failures.More, failures.Left = row.Looked >= failuresMax, row.Groups-int64(len(rows))
	}
	return failures, nil
}

// SilentRuns are runs of a queue and kind that have said nothing for long.
type SilentRuns struct {
	Queue   string        `json:"queue"`
	Kind    string        `json:"kind"`
	Runs    int64         `json:"runs"`
	Since   time.Time     `json:"since"`    // the one that has been silent for the longest
	Example int64         `json:"example"`  // the id of its job
	Usual   time.Duration `json:"usual_ns"` // how long a run of the kind takes on average; 0 when that is not known
}

// When a run is silent: see Silent.
const (
	silenceUsualSpan   = time.Hour
	silenceUsualFactor = 3
	silenceLeast       = 10 * time.Minute
	silenceUnknown     = time.Hour

	silentRunsMax   = 1_000
	silentGroupsMax = 20
)

// Silent returns the runs that have neither reported progress nor written output
// for long, those that have been silent for the longest first. Long is three times
// what runs of the kind that ended within the last hour took on average, and ten
// minutes at least; an hour where no run of the kind has ended. A worker that
// extends the lease is no sign of the run. Of runs that have not reported progress
// for that long, it looks at the output of 1,000.
func (c *Client) Silent(ctx context.Context) ([]SilentRuns, error) {
	rows, err := c.queries.RunsSilent(ctx, db.RunsSilentParams{
		Span: db.Interval(silenceUsualSpan), UsualFactor: silenceUsualFactor, LeastSilence: db.Interval(silenceLeast),
		UnknownSilence: db.Interval(silenceUnknown), RowCount: silentRunsMax, GroupCount: silentGroupsMax,
	})
	if err != nil {
		return nil, c.clientError("silent runs", err)
	}
	silent := make([]SilentRuns, len(rows))
	for i, row := range rows {
		silent[i] = SilentRuns{row.Queue, row.Kind, row.Runs, row.Since.Time.UTC(), row.Example, seconds(row.UsualSeconds)}
	}
	return silent, nil
}

// Leader is the janitor that has been elected.
type Leader struct {
	PID     int       `json:"pid"` // of the server's process
	Address string    `json:"address"`
	Since   time.Time `json:"since"` // no later than its election
}

// Leader returns the janitor that leads, or nil when there is none, or the
// role may not see it.
func (c *Client) Leader(ctx context.Context) (*Leader, error) {
	class, object := c.schema.AdvisoryKey(db.LockJanitor)
	row, err := c.queries.LockHolder(ctx, int64(class), int64(object))
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, c.clientError("leader", err)
	}
	leader := &Leader{PID: int(row.Pid.Int32), Address: row.Address}
	if row.BackendStart != nil {
		leader.Since = row.BackendStart.UTC()
	}
	return leader, nil
}

// Session is what decides what the client can see and do.
type Session struct {
	Database   string        `json:"database"`
	Host       string        `json:"host"`
	Role       string        `json:"role"`
	ReadOnly   bool          `json:"read_only"`      // a standby, or told so
	MayAct     bool          `json:"may_act"`        // the role has the privileges
	At         time.Time     `json:"at"`             // the server's clock
	NextExpiry time.Duration `json:"next_expiry_ns"` // until the first lease ends unless extended; 0 for none
	NextDue    time.Duration `json:"next_due_ns"`    // until the next scheduled job is due; 0 for none
}

// Session returns the facts about the client's session.
func (c *Client) Session(ctx context.Context) (*Session, error) {
	row, err := c.queries.SessionFacts(ctx)
	if err != nil {
		return nil, c.clientError("session", err)
	}
	return &Session{
		Database: row.Database, Host: c.pool.Config().ConnConfig.Host, Role: row.Role, ReadOnly: row.ReadOnly, MayAct: row.MayAct,
		At:         row.At.Time.UTC(),
		NextExpiry: time.Duration(row.NextExpiryMs) * time.Millisecond, NextDue: time.Duration(row.NextDueMs) * time.Millisecond,
	}, nil
}
