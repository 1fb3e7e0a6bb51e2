package jobq

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/jobq-dev/jobq/internal/db"
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

// Failure groups jobs of a queue that failed for the same reason.
type Failure struct {
	Queue string    `json:"queue"`
	Error string    `json:"error"` // its first words
	Jobs  int64     `json:"jobs"`
	Since time.Time `json:"since"`
}

// failuresMax is how many jobs that did not succeed Failures looks at.
const failuresMax = 10_000

// Failures groups the failures within the span, most frequent first: those among
// the last 10,000 jobs that did not succeed.
func (c *Client) Failures(ctx context.Context, span time.Duration) ([]Failure, error) {
	rows, err := c.queries.FailuresByError(ctx, db.Interval(span), failuresMax)
	if err != nil {
		return nil, c.clientError("failures", err)
	}
	failures := make([]Failure, len(rows))
	for i, row := range rows {
		failures[i] = Failure{row.Queue, row.Error, row.Jobs, row.Since.Time.UTC()}
	}
	return failures, nil
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
	row, err := c.queries.JanitorLeader(ctx, int64(class), int64(object))
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
