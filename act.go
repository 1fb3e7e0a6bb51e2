package jobq

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/jobq-dev/jobq/internal/db"
)

// Action is what a person does to jobs or queues, as the audit names it.
type Action string

// The actions. The first three are for Act, and they and ActionEdit for Bulk.
const (
	ActionRequeue Action = "requeue"
	ActionCancel  Action = "cancel"
	ActionDelete  Action = "delete"
	ActionEdit    Action = "edit"
	ActionClone   Action = "clone"
	ActionPause   Action = "pause"
	ActionResume  Action = "resume"
	ActionDrain   Action = "drain"
	// ActionSettings is of SetSettings.
	ActionSettings Action = "settings"
	ActionUndo     Action = "undo"
)

// states are those in which the action does something to a job. What is no
// action on jobs has all of them.
func (a Action) states() []State {
	switch a {
	case ActionCancel:
		return []State{Scheduled, Available, Running}
	case ActionRequeue:
		return []State{Scheduled, Completed, Failed, Cancelled}
	case ActionDelete:
		return []State{Scheduled, Available, Completed, Failed, Cancelled}
	case ActionEdit:
		return []State{Scheduled, Available}
	default:
		return States()
	}
}

// Target is a job to act on. With a State, the job must still be in it, with
// that lease token, or it is left alone: what a person sees may be old.
type Target struct {
	ID         int64
	State      State
	LeaseToken int64
	// Seen, for an edit, is the job as it was when the change was thought of:
	// what the change is about must still be so.
	Seen *Job
}

// Acted is what came of an action.
type Acted struct {
	// AuditID is the action's entry in the audit, for Undo.
	AuditID int64      `json:"audit_id"`
	Jobs    []ActedJob `json:"jobs"`
}

// ActedJob is what came of an action on one job.
type ActedJob struct {
	ID      int64 `json:"id"`
	Before  State `json:"before,omitempty"`
	After   State `json:"after,omitempty"` // Deleted after a delete
	Changed bool  `json:"changed"`         // false too when there was nothing to do
	// Problem is why nothing was done, in words, and Code the same for programs:
	// CodeNotFound, CodeConflict or CodeDuplicate.
	Problem string `json:"problem,omitempty"`
	Code    Code   `json:"code,omitempty"`
}

// Err is the problem as an error: ErrNotFound, ErrConflict or ErrDuplicate, with
// the reason; nil when there is none.
func (j ActedJob) Err() error {
	if j.Problem == "" {
		return nil
	}
	return refusedError(j.Code, j.Problem)
}

// Deleted is the state after a delete.
const Deleted = "deleted"

// Changed counts the jobs that the action has changed.
func (a *Acted) Changed() (changed int) {
	for _, job := range a.Jobs {
		if job.Changed {
			changed++
		}
	}
	return changed
}

// Problems are the jobs that nothing was done to.
func (a *Acted) Problems() (problems []ActedJob) {
	for _, job := range a.Jobs {
		if job.Problem != "" {
			problems = append(problems, job)
		}
	}
	return problems
}

// Act requeues, cancels or deletes up to 1000 jobs in the name of the client's
// Actor, and records it in the audit, from where it can be undone. What
// cannot be done to one job keeps nothing from being done to the others.
func (c *Client) Act(ctx context.Context, action Action, targets ...Target) (*Acted, error) {
	if action != ActionRequeue && action != ActionCancel && action != ActionDelete {
		return nil, fmt.Errorf("%w: no action %q on jobs", ErrInvalid, action)
	}
	return c.act(ctx, db.JobActParams{Action: string(action)}, targets)
}

func (c *Client) act(ctx context.Context, params db.JobActParams, targets []Target) (*Acted, error) {
	if len(targets) == 0 || len(targets) > 1000 {
		return nil, fmt.Errorf("%s: %w: 1 to 1000 jobs, not %d", params.Action, ErrInvalid, len(targets))
	}
	params.Actor = c.actor
	for _, target := range targets {
		expected := ""
		if target.State != "" {
			expected = fmt.Sprintf("%s/%d", target.State, target.LeaseToken)
		}
		seen, err := seenOf(target.Seen, params.Change)
		if err != nil {
			return nil, err
		}
		params.Ids, params.Expected = append(params.Ids, target.ID), append(params.Expected, expected)
		params.Seen = append(params.Seen, seen)
	}
	rows, err := retried(ctx, func() ([]db.JobActRow, error) { return c.queries.JobAct(ctx, params) })
	if err != nil {
		return nil, c.clientError(params.Action, err)
	}
	acted := &Acted{AuditID: params.AuditID}
	for _, row := range rows {
		acted.AuditID = row.Audit
		acted.Jobs = append(acted.Jobs, ActedJob{
			ID: row.JobID, Before: State(row.StateBefore), After: State(row.StateAfter), Changed: row.Changed,
			Problem: row.Problem, Code: Code(row.Code),
		})
	}
	return acted, nil
}

// Undo takes back an action on those of its jobs that nothing has happened to
// since; the others come with the reason. It works in transactions of up to 1000
// jobs: one that was stopped goes on when it is called again. With an error, Acted
// has the jobs of the transactions before it, which stay undone; without any, it
// has no jobs. An action of which
// nothing could be taken back can be undone later. Of a job that was deleted, the
// latest 100 attempts come back. ErrNotFound if there is no such
// action, ErrConflict if it is undone already, an undo itself, a drain, or a
// pause or resume of a queue that was paused or resumed since, or a change of
// settings that were changed since.
func (c *Client) Undo(ctx context.Context, auditID int64) (*Acted, error) {
	operation := fmt.Sprintf("undo action %d", auditID)
	undone := &Acted{}
	if _, err := c.auditGet(ctx, auditID); err != nil {
		return undone, c.clientError(operation, err)
	}
	for ended := false; !ended; {
		rows, err := retried(ctx, func() ([]db.AuditUndoRow, error) { return c.queries.AuditUndo(ctx, c.actor, auditID) })
		if err != nil {
			return undone, c.clientError(operation, err)
		}
		for _, row := range rows {
			undone.AuditID, ended = row.Audit, row.Ended
			if row.JobID == 0 {
				continue
			}
			undone.Jobs = append(undone.Jobs, ActedJob{
				ID: row.JobID, Before: State(row.StateBefore), After: State(row.StateAfter), Changed: row.Problem == "",
				Problem: row.Problem, Code: Code(row.Code),
			})
		}
	}
	return undone, nil
}

// AuditEntry is an action that somebody has taken.
type AuditEntry struct {
	ID     int64     `json:"id"`
	At     time.Time `json:"at"`
	Actor  string    `json:"actor"`
	Action Action    `json:"action"`
	Target string    `json:"target,omitempty"` // the filter, the queue or the worker
	Note   string    `json:"note,omitempty"`
	// Change is what an edit, a clone or SetSettings has set, by the names of columns. Args
	// of more than 1000 bytes are "..." in it.
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
func (c *Client) Audit(ctx context.Context, before int64, limit int) ([]AuditEntry, error) {
	if limit < 1 || limit > 1000 {
		return nil, fmt.Errorf("audit: %w: limit must be 1 to 1000, not %d", ErrInvalid, limit)
	}
	if before <= 0 {
		before = math.MaxInt64
	}
	rows, err := c.queries.AuditList(ctx, before, int32(limit)) // #nosec G115 -- checked above
	if err != nil {
		return nil, c.clientError("audit", err)
	}
	entries := make([]AuditEntry, len(rows))
	for i, row := range rows {
		entries[i] = auditEntry(db.AuditGetRow(row))
	}
	return entries, nil
}

// auditGet is an action, or errNoAction.
func (c *Client) auditGet(ctx context.Context, id int64) (db.AuditGetRow, error) {
	row, err := c.queries.AuditGet(ctx, id)
	if errors.Is(err, pgx.ErrNoRows) {
		err = errNoAction
	}
	return row, err
}

func auditEntry(row db.AuditGetRow) AuditEntry {
	number := func(n pgtype.Int8) int64 { return n.Int64 }
	return AuditEntry{
		ID: row.ID, At: row.At.Time.UTC(), Actor: row.Actor, Action: Action(row.Action), Target: text(row.Target),
		Note: text(row.Note), Done: int(row.Done), Refused: int(row.Refused), JobIDs: row.JobIds,
		UndoneBy: number(row.UndoneBy), Undoes: number(row.Undoes), SnapshotAt: utc(row.SnapshotAt),
		IDMax: number(row.IDMax), IDDone: number(row.IDDone), EndedAt: utc(row.EndedAt), Max: int(row.DoneMax.Int32), Change: row.Change,
	}
}

// JobAction is something that a person did to a job.
type JobAction struct {
	AuditID int64     `json:"audit_id"`
	At      time.Time `json:"at"`
	Actor   string    `json:"actor"`
	Action  Action    `json:"action"`
	Before  State     `json:"before"`
	After   State     `json:"after"`
}

// JobActions returns what people did to a job, oldest first, up to 100.
func (c *Client) JobActions(ctx context.Context, id int64) ([]JobAction, error) {
	rows, err := c.queries.AuditOfJob(ctx, id)
	if err != nil {
		return nil, c.clientError(fmt.Sprintf("actions on job %d", id), err)
	}
	actions := make([]JobAction, len(rows))
	for i, row := range rows {
		actions[i] = JobAction{row.ID, row.At.Time.UTC(), row.Actor, Action(row.Action), State(row.StateBefore), State(row.StateAfter)}
	}
	return actions, nil
}
