package operator

import (
	"context"
	"fmt"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/dberror"
)

// statesOf are those in which the action does something to a job. What is no
// action on jobs has all of them.
func statesOf(action jobq.Action) []jobq.State {
	switch action {
	case jobq.ActionCancel:
		return []jobq.State{jobq.StateWaiting, jobq.StateScheduled, jobq.StateAvailable, jobq.StateRunning}
	case jobq.ActionRequeue:
		return []jobq.State{jobq.StateScheduled, jobq.StateCompleted, jobq.StateFailed, jobq.StateCancelled} // one that waits for others runs before them only if it is named by its id
	case jobq.ActionDelete:
		return []jobq.State{jobq.StateWaiting, jobq.StateScheduled, jobq.StateAvailable, jobq.StateCompleted, jobq.StateFailed, jobq.StateCancelled}
	case jobq.ActionEdit:
		return []jobq.State{jobq.StateWaiting, jobq.StateScheduled, jobq.StateAvailable}
	default:
		return jobq.States()
	}
}

// Target is a job to act on. With a State, the job must still be in it, with
// that lease token, or it is left alone: what a person sees may be old.
type Target struct {
	ID         int64
	State      jobq.State
	LeaseToken int64
	// Seen, for an edit, is the job as it was when the change was thought of:
	// what the change is about must still be so.
	Seen *jobq.Job
}

// Acted is what came of an action.
type Acted struct {
	// AuditID is the action's entry in the audit, for Undo.
	AuditID int64      `json:"audit_id"`
	Jobs    []ActedJob `json:"jobs"`
	// Dependents is what became of the jobs that wait for these; nil unless it was asked for: RequeueWithDependents.
	Dependents *ActedDependents `json:"dependents,omitempty"`
}

// ActedJob is what came of an action on one job.
type ActedJob struct {
	ID      int64      `json:"id"`
	Before  jobq.State `json:"before,omitempty"`
	After   jobq.State `json:"after,omitempty"` // StateDeleted after a delete
	Changed bool       `json:"changed"`         // false too when there was nothing to do
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
	return dberror.Refused(string(j.Code), j.Problem)
}

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

// Act requeues, cancels or deletes up to 1000 jobs in the operator's name,
// and records it in the audit, from where it can be undone. What
// cannot be done to one job keeps nothing from being done to the others.
func (o *Operator) Act(ctx context.Context, action jobq.Action, targets ...Target) (*Acted, error) {
	if action != jobq.ActionRequeue && action != jobq.ActionCancel && action != jobq.ActionDelete {
		return nil, fmt.Errorf("%w: no action %q on jobs", jobq.ErrInvalid, action)
	}
	return o.act(ctx, db.JobActParams{Action: string(action)}, targets)
}

// RequeueFromStep requeues a job that does not run, as Act does, and has it do a step
// again, and all steps that it came to after that one. It returns how many these are. An
// undo brings the job back, and not the steps.
//
// ErrNotFound: there is no such job, or it has no such step. ErrConflict: it runs.
func (o *Operator) RequeueFromStep(ctx context.Context, target Target, step string) (acted *Acted, forgotten int, err error) {
	operation := fmt.Sprintf("requeue job %d from step", target.ID)
	if err := o.checkTexts(operation, argument{"step", step}); err != nil {
		return nil, 0, err
	}
	expected, err := o.expected(operation, target)
	if err != nil {
		return nil, 0, err
	}
	row, err := dberror.Retry(ctx, func() (db.JobActFromStepRow, error) {
		return o.queries.JobActFromStep(ctx, db.JobActFromStepParams{Step: step, Actor: o.actor, JobID: target.ID, Expected: expected})
	})
	if err != nil {
		return nil, 0, dberror.Wrap(o.schema, operation, err)
	}
	return &Acted{AuditID: row.Audit, Jobs: []ActedJob{{
		ID: row.JobID, Before: jobq.State(row.StateBefore), After: jobq.State(row.StateAfter), Changed: row.Changed || row.Forgotten > 0,
		Problem: row.Problem, Code: Code(row.Code),
	}}}, int(row.Forgotten), nil
}

// expected is what the database is to find of the job, for example "failed/900": its state
// and the token of its last lease. It is empty where that does not matter.
func (o *Operator) expected(operation string, target Target) (string, error) {
	if target.State == "" {
		return "", nil
	}
	return fmt.Sprintf("%s/%d", target.State, target.LeaseToken), o.checkTexts(operation, argument{"state", string(target.State)})
}

func (o *Operator) act(ctx context.Context, params db.JobActParams, targets []Target) (*Acted, error) {
	if len(targets) == 0 || len(targets) > 1000 {
		return nil, fmt.Errorf("%s: %w: 1 to 1000 jobs, not %d", params.Action, jobq.ErrInvalid, len(targets))
	}
	if err := o.checkTexts(params.Action); err != nil {
		return nil, err
	}
	params.Actor = o.actor
	for _, target := range targets {
		expected, err := o.expected(params.Action, target)
		if err != nil {
			return nil, err
		}
		seen, err := seenOf(target.Seen, params.Change)
		if err != nil {
			return nil, err
		}
		params.Ids, params.Expected = append(params.Ids, target.ID), append(params.Expected, expected)
		params.Seen = append(params.Seen, seen)
	}
	rows, err := dberror.Retry(ctx, func() ([]db.JobActRow, error) { return o.queries.JobAct(ctx, params) })
	if err != nil {
		return nil, dberror.Wrap(o.schema, params.Action, err)
	}
	acted := &Acted{AuditID: params.AuditID}
	for _, row := range rows {
		acted.AuditID = row.Audit
		acted.Jobs = append(acted.Jobs, actedJob(row))
	}
	return acted, nil
}

func actedJob(row db.JobActRow) ActedJob {
	return ActedJob{
		ID: row.JobID, Before: jobq.State(row.StateBefore), After: jobq.State(row.StateAfter), Changed: row.Changed,
		Problem: row.Problem, Code: Code(row.Code),
	}
}
