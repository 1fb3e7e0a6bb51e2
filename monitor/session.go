package monitor

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/dberror"
)

// Leader is the janitor that has been elected.
type Leader struct {
	PID int `json:"pid"` // of the server's process
	// Address and Since are empty where the role may not see them: another role's session without pg_read_all_stats.
	Address string    `json:"address,omitempty"`
	Since   time.Time `json:"since,omitzero"` // no later than its election
}

// Leader returns the janitor that leads, or nil when there is none, or the
// role may not see it.
func (m *Monitor) Leader(ctx context.Context) (*Leader, error) {
	class, object := m.schema.AdvisoryKey(db.LockJanitor)
	row, err := m.queries.LockHolder(ctx, int64(class), int64(object))
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, dberror.Wrap(m.schema, "leader", err)
	}
	leader := &Leader{PID: int(row.Pid.Int32), Address: row.Address}
	if row.BackendStart != nil {
		leader.Since = row.BackendStart.UTC()
	}
	return leader, nil
}

// Session is what decides what the client can see and do.
type Session struct {
	Database string `json:"database"`
	Host     string `json:"host"`
	Role     string `json:"role"`
	ReadOnly bool   `json:"read_only"` // a standby, or told so
	MayAct   bool   `json:"may_act"`   // the role has the privileges
	// StandbyLag is how far a hot standby is behind its primary server: 0 if it has applied all that it has received. It is
	// nil on a primary, and on a standby that does not know.
	StandbyLag *time.Duration `json:"standby_lag_ns,omitempty"`
	At         time.Time      `json:"at"`             // the server's clock
	NextExpiry time.Duration  `json:"next_expiry_ns"` // until the first lease ends unless extended; 0 for none
	NextDue    time.Duration  `json:"next_due_ns"`    // until the next scheduled job is due; 0 for none
}

// Session returns the facts about the client's session.
func (m *Monitor) Session(ctx context.Context) (*Session, error) {
	row, err := m.queries.SessionFacts(ctx)
	if err != nil {
		return nil, dberror.Wrap(m.schema, "session", err)
	}
	session := &Session{
		Database: row.Database, Host: m.pool.Config().ConnConfig.Host, Role: row.Role, ReadOnly: row.ReadOnly, MayAct: row.MayAct,
		At:         db.Moment(row.At),
		NextExpiry: time.Duration(row.NextExpiryMs) * time.Millisecond, NextDue: time.Duration(row.NextDueMs) * time.Millisecond,
	}
	if row.StandbyLagMs >= 0 {
		lag := time.Duration(row.StandbyLagMs) * time.Millisecond
		session.StandbyLag = &lag
	}
	return session, nil
}
