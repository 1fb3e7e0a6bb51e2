package monitor

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/dberror"
)

// AuditEntry is an action that somebody has taken.
type AuditEntry struct {
	ID     int64       `json:"id"`
	At     time.Time   `json:"at"`
	Actor  string      `json:"actor"`
	Action jobq.Action `json:"action"`
	Target string      `json:"target,omitempty"` // the filter, the queue, the kind, the worker or the schedule
	Note   string      `json:"note,omitempty"`
	// Change is what an edit, a clone, SetQueue, SetSettings or SetSchedule has set, by
	// the names of columns. Args of more than 1000 bytes are "..." in it.
	Change     json.RawMessage `json:"change,omitempty"`
	Done       int             `json:"done"`    // jobs changed
	Refused    int             `json:"refused"` // jobs that could not be
	JobIDs     []int64         `json:"job_ids"` // the first 20 of those changed
	UndoneBy   int64           `json:"undone_by,omitempty"`
	Undoes     int64           `json:"undoes,omitempty"`
	SnapshotAt *time.Time      `json:"snapshot_at,omitempty"` // of an action by filter
	// IDMax and IDDone are how far an action by filter has come: from the
	// highest id down.
	IDMax  int64 `json:"id_max,omitempty"`
	IDDone int64 `json:"id_done,omitempty"`
	// Max is how many jobs a run of an action by filter changes at most; 0 for
	// no bound.
	Max int `json:"max,omitempty"`
	// EndedAt is when an action by filter has come to its end.
	EndedAt *time.Time `json:"ended_at,omitempty"`
}

// NoResume says why the action cannot go on, or nothing when it can: it was
// one by filter, and was stopped.
func (e *AuditEntry) NoResume() string {
	switch {
	case e.IDMax == 0:
		return "it is not one by filter"
	case e.UndoneBy > 0:
		return "it is undone"
	case e.EndedAt != nil:
		return "it has come to its end"
	}
	return ""
}

// Audit returns up to limit actions, newest first, below the id of the last
// one of the page before; 0 begins with the newest.
func (m *Monitor) Audit(ctx context.Context, before int64, limit int) ([]AuditEntry, error) {
	if limit < 1 || limit > 1000 {
		return nil, fmt.Errorf("audit: %w: limit must be 1 to 1000, not %d", jobq.ErrInvalid, limit)
	}
	if before <= 0 {
		before = math.MaxInt64
	}
	rows, err := m.queries.AuditList(ctx, before, int32(limit)) // #nosec G115 -- checked above
	if err != nil {
		return nil, dberror.Wrap(m.schema, "audit", err)
	}
	entries := make([]AuditEntry, len(rows))
	for i, row := range rows {
		entries[i] = auditEntry(db.AuditGetRow(row))
	}
	return entries, nil
}

func auditEntry(row db.AuditGetRow) AuditEntry {
	number := func(n pgtype.Int8) int64 { return n.Int64 }
	return AuditEntry{
		ID: row.ID, At: db.Moment(row.At), Actor: row.Actor, Action: jobq.Action(row.Action), Target: db.Text(row.Target),
		Note: db.Text(row.Note), Done: int(row.Done), Refused: int(row.Refused), JobIDs: row.JobIds,
		UndoneBy: number(row.UndoneBy), Undoes: number(row.Undoes), SnapshotAt: db.UTC(row.SnapshotAt),
		IDMax: number(row.IDMax), IDDone: number(row.IDDone), EndedAt: db.UTC(row.EndedAt), Max: int(row.DoneMax.Int32), Change: row.Change,
	}
}

// JobAction is something that a person did to a job.
type JobAction struct {
	AuditID int64       `json:"audit_id"`
	At      time.Time   `json:"at"`
	Actor   string      `json:"actor"`
	Action  jobq.Action `json:"action"`
	Before  jobq.State  `json:"before"`
	After   jobq.State  `json:"after"`
}

// JobActions returns what people did to a job, oldest first, up to 100.
func (m *Monitor) JobActions(ctx context.Context, id int64) ([]JobAction, error) {
	rows, err := m.queries.AuditOfJob(ctx, id)
	if err != nil {
		return nil, dberror.Wrap(m.schema, fmt.Sprintf("actions on job %d", id), err)
	}
	actions := make([]JobAction, len(rows))
	for i, row := range rows {
		actions[i] = JobAction{row.ID, db.Moment(row.At), row.Actor, jobq.Action(row.Action), jobq.State(row.StateBefore), jobq.State(row.StateAfter)}
	}
	return actions, nil
}
