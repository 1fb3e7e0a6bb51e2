// Package doctor looks for what is wrong with a queue and its database, and says
// what to do about it. It is what `jobq doctor` runs.
//
// Each check is a function of its own in a read-only transaction of its own, which
// the server ends when it takes too long. So a check that is slow, or that the role
// may not do, keeps no other from its answer, and a busy database is not slowed.
// docs/doctor.md says what each check means; checks.go lists them.
package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/jobq-dev/jobq/internal/db"
)

// Severity is how bad a finding is.
type Severity string

// The severities, the worst first.
const (
	// Critical: jobs do not run or are not recovered, or data can be lost.
	Critical Severity = "critical"
	// Warning: it works, but worse than it should, or not for long.
	Warning Severity = "warning"
	// Note: it is meant to be so, perhaps, and costs something.
	Note Severity = "note"
)

// rank orders the severities, the worst first.
func (s Severity) rank() int { return slices.Index([]Severity{Critical, Warning, Note}, s) }

// Finding is one thing that is wrong.
type Finding struct {
	Check    string   `json:"check"`
	Severity Severity `json:"severity"`
	Problem  string   `json:"problem"`
	Advice   string   `json:"advice"`
}

// Skipped is a check that could not be done, or only in part, for want of a right
// or because it has no meaning here. It is no finding.
type Skipped struct {
	Check  string `json:"check"`
	Reason string `json:"reason"`
}

// Report is what all checks have found.
type Report struct {
	At       time.Time `json:"at"`
	Schema   string    `json:"schema"`
	Healthy  bool      `json:"healthy"`  // there is neither a critical finding nor a warning
	Findings []Finding `json:"findings"` // the worst first
	Skipped  []Skipped `json:"skipped"`
	Checks   []string  `json:"checks"` // all of them, in the order in which they were done
}

// Worst is the severity of the worst finding, "" when there is none.
func (r *Report) Worst() Severity {
	if len(r.Findings) == 0 {
		return ""
	}
	return r.Findings[0].Severity
}

// Limits are from where on something is wrong. The zero value of a field is its
// default, which defaultLimits has.
type Limits struct {
	TransactionAge     time.Duration // of a transaction, open or prepared; ten times as long is critical
	SlotBytes          int64         // of WAL that an unused replication slot keeps
	XIDsHeld           int64         // transactions whose dead rows a standby or a used slot keeps; ten times as many are critical
	DeadRows           int64         // in a table, if they are also more than the live ones
	Waited             time.Duration // how long a job may wait for its start; six times as long is critical
	Unserved           time.Duration // the same, of a queue or a kind that no worker has ever had
	Late               time.Duration // how late a janitor may be
	PausedFor          time.Duration // how long a queue or a kind may be paused
	LostPerHour        int64         // runs whose lease has expired
	ClockSkew          time.Duration // between this machine and the server
	NotifyQueueShare   float64       // of the server's queue of notifications, from 0 to 1
	ConnectionsShare   float64       // of those that the server allows, from 0 to 1
	NotificationWithin time.Duration // how long a notification may be on its way
}

func defaultLimits() Limits {
	return Limits{
		TransactionAge: 5 * time.Minute, SlotBytes: 1 << 30, XIDsHeld: 1_000_000, DeadRows: 100_000, Waited: 10 * time.Minute, Unserved: time.Minute, Late: 5 * time.Minute,
		PausedFor: 24 * time.Hour, LostPerHour: 10, ClockSkew: 5 * time.Second, NotifyQueueShare: 0.25, ConnectionsShare: 0.8,
		NotificationWithin: 2 * time.Second,
	}
}

// orDefaults fills in what is zero.
func (l Limits) orDefaults() Limits {
	d := defaultLimits()
	return Limits{
		TransactionAge: cmp.Or(l.TransactionAge, d.TransactionAge), SlotBytes: cmp.Or(l.SlotBytes, d.SlotBytes),
		XIDsHeld: cmp.Or(l.XIDsHeld, d.XIDsHeld), DeadRows: cmp.Or(l.DeadRows, d.DeadRows), Waited: cmp.Or(l.Waited, d.Waited),
		Unserved: cmp.Or(l.Unserved, d.Unserved), Late: cmp.Or(l.Late, d.Late),
		PausedFor: cmp.Or(l.PausedFor, d.PausedFor), LostPerHour: cmp.Or(l.LostPerHour, d.LostPerHour), ClockSkew: cmp.Or(l.ClockSkew, d.ClockSkew),
		NotifyQueueShare: cmp.Or(l.NotifyQueueShare, d.NotifyQueueShare), ConnectionsShare: cmp.Or(l.ConnectionsShare, d.ConnectionsShare),
		NotificationWithin: cmp.Or(l.NotificationWithin, d.NotificationWithin),
	}
}

// Config says what to examine.
type Config struct {
	Pool *pgxpool.Pool // to the database; needed
	// Listen says how workers connect for notifications. Default: as Pool does.
	Listen   *pgxpool.Config
	Schema   string      // that has jobq's tables. Default jobq
	Sessions db.Sessions // what is known of them. Default: to be found out
	Limits   Limits
	// Now is this machine's clock. Default time.Now.
	Now func() time.Time
}

const (
	// statementTimeout bounds each statement of a check, on the server.
	statementTimeout = 3 * time.Second
	// lockTimeout is how long a check waits for a lock, as for a table that is being changed.
	lockTimeout = 500 * time.Millisecond
	// checkTimeout bounds a check, with its connections.
	checkTimeout = 15 * time.Second
)

// patient is what the checks examine.
type patient struct {
	pool     *pgxpool.Pool
	listen   *pgxpool.Config // nil: as pool
	schema   *db.Schema
	known    db.Sessions // as told
	sessions db.Sessions // as found out by checkPooler
	limits   Limits
	now      func() time.Time
	newer    bool // a later jobq has changed the tables
	// tx is the check's own transaction, on which queries runs the generated queries.
	tx      pgx.Tx
	queries *db.Queries
}

// notAllowed ends a check that cannot be done, or whose answer is not all of it: the
// findings that come with it count.
type notAllowed struct{ reason string }

func (e notAllowed) Error() string { return e.reason }

// Run does all checks, one after the other. Its error says that the database cannot
// be examined at all; a check that fails is a finding.
func Run(ctx context.Context, config Config) (*Report, error) {
	schema, err := db.NewSchema(config.Schema)
	if err != nil {
		return nil, err
	}
	known := cmp.Or(config.Sessions, db.SessionsAuto)
	schema.Assume(db.SessionsShared) // safe whatever the pooler check finds
	p := &patient{pool: config.Pool, listen: config.Listen, schema: schema, known: known, sessions: known, limits: config.Limits.orDefaults(), now: config.Now}
	if p.now == nil {
		p.now = time.Now
	}
	// Raw statements of checks must name nothing either: what an earlier doctor has prepared
	// would be in a session that a pooler hands to this one.
	if safe := config.Pool.Config(); db.NamesStatements(safe.ConnConfig) {
		db.NameNoStatements(safe.ConnConfig)
		db.PinPool(safe)
		safe.MinConns, safe.MinIdleConns = 0, 0
		if p.pool, err = pgxpool.NewWithConfig(ctx, safe); err != nil {
			return nil, err
		}
		defer p.pool.Close()
	}
	if err := p.reach(ctx); err != nil {
		return nil, err
	}
	report := &Report{At: p.now().UTC(), Schema: schema.Name(), Findings: []Finding{}, Skipped: []Skipped{}}
	for _, c := range checks() {
		report.Checks = append(report.Checks, c.name)
		findings, skipped := p.do(ctx, c)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		report.Findings = append(report.Findings, findings...)
		report.Skipped = append(report.Skipped, skipped...)
	}
	slices.SortStableFunc(report.Findings, func(a, b Finding) int { return a.Severity.rank() - b.Severity.rank() })
	report.Healthy = report.Worst() == "" || report.Worst() == Note
	return report, nil
}

// reach says whether the database answers and has the right tables.
func (p *patient) reach(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	tables, err := db.ReadTables(ctx, p.pool, p.schema)
	if err != nil {
		return err
	}
	p.newer = tables.AreNewer()
	return tables.Check(p.schema)
}

// do runs one check. What goes wrong with it is said in its name.
func (p *patient) do(ctx context.Context, c check) ([]Finding, []Skipped) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	findings, err := p.inTransaction(ctx, c)
	for i := range findings {
		findings[i].Check = c.name
	}
	var refused notAllowed
	var answer *pgconn.PgError
	switch {
	case err == nil:
		return findings, nil
	case errors.As(err, &refused):
		return findings, []Skipped{{c.name, refused.reason}}
	case errors.As(err, &answer) && answer.Code == codeInsufficientPrivilege:
		return findings, []Skipped{{c.name, "this role may not: " + answer.Message}}
	}
	return append(findings, Finding{
		c.name, Warning, fmt.Sprintf("the check could not be done: %v", err),
		"try again; if it stays so, the database is overloaded, or a session holds a lock on what the check reads",
	}), nil
}

const codeInsufficientPrivilege = "42501"

// inTransaction runs a check in a read-only transaction, with the limits set for that
// transaction alone: a pooler hands the session on. The search path makes the server
// name all of our objects with their schema.
func (p *patient) inTransaction(ctx context.Context, c check) (findings []Finding, err error) {
	if c.apart {
		return c.run(ctx, p)
	}
	err = pgx.BeginTxFunc(ctx, p.pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		settings := db.PinLocalSQL() + fmt.Sprintf("; set local statement_timeout = %d; set local lock_timeout = %d",
			statementTimeout.Milliseconds(), lockTimeout.Milliseconds())
		if _, err := tx.Exec(ctx, settings, pgx.QueryExecModeSimpleProtocol); err != nil {
			return err
		}
		p.tx, p.queries = tx, p.schema.Queries(tx)
		var err error
		findings, err = c.run(ctx, p)
		return err
	})
	return findings, err
}
