package operator

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/dberror"
	"github.com/jobq-dev/jobq/internal/filter"
	"github.com/jobq-dev/jobq/internal/sleep"
)

// bulkBatch is how many jobs one statement of a bulk action is about.
const bulkBatch = 500

// bulkProblemsMax is how many of the jobs that could not be changed a bulk action names.
const bulkProblemsMax = 10

// BulkParams is an action on all jobs that a filter matches.
type BulkParams struct {
	// Action is requeue, cancel, delete or edit. Required, unless Resume is given.
	Action jobq.Action
	// Change is what ActionEdit changes, and with which args ActionRequeue requeues: see RequeueWith. Default: nothing.
	Change JobChange
	// Filter says which jobs. Its Sort, Reverse, Before, After and Limit mean nothing.
	// Default: all jobs.
	Filter jobq.Filter
	// Snapshot is of BulkSnapshot: the action is about the jobs that were counted
	// then. Default: those that are there when it begins.
	Snapshot BulkSnapshot
	// Max bounds how many jobs this call changes, not counting those that were
	// before a Resume. An action that has reached it, and has more to do, has
	// not come to its end. Default 0: no bound, and less is ErrInvalid; with
	// Resume, 0 means the bound that the action has begun with: what is left
	// of it, or all of it again.
	Max int
	// RatePerSecond bounds how many jobs are changed in a second. Default 0: no
	// bound, and less is ErrInvalid.
	RatePerSecond int
	// Resume goes on with an action that has not come to its end: the id of
	// its entry in the audit. Action, Change and Filter are the entry's then. Default
	// 0: a new one.
	Resume int64
	// OnBatch is told after each batch. Default nil: nobody.
	OnBatch func(BulkProgress)
}

// bulkAction is an action by filter, as the audit has it.
type bulkAction struct {
	id            int64
	action        jobq.Action
	target        string // the filter
	done, refused int    // jobs so far
	max           int    // how many jobs a run of the action changes at most; 0 for no bound
	snapshotAt    *time.Time
	idMax, idDone int64 // from the highest id down to the last one that is done; 0 for none done
}

// BulkSnapshot is what a filter matches at a moment.
type BulkSnapshot struct {
	At    time.Time // by the clock of the database
	IDMax int64     // later jobs have higher ids
	Count int64     // jobs that match: all of them, unless More
	More  bool      // there may be more than Count: all could not be counted within two seconds
}

// BulkSnapshot counts what a Bulk of that action would be about that begins
// now; without an action, all that matches. With BulkParams.Snapshot it is about
// no more than that whenever it begins: later jobs, and those that end later,
// are left alone.
func (o *Operator) BulkSnapshot(ctx context.Context, action jobq.Action, chosen jobq.Filter) (BulkSnapshot, error) {
	const operation = "count jobs"
	query, err := queryOf(chosen)
	if err != nil {
		return BulkSnapshot{}, fmt.Errorf("%s: %w", operation, err)
	}
	row, err := o.queries.AuditSnapshot(ctx)
	if err != nil {
		return BulkSnapshot{}, dberror.Wrap(o.schema, operation, err)
	}
	snapshot := BulkSnapshot{At: row.At.Time.UTC(), IDMax: row.IDMax}
	page := bulkPage(query, bulkAction{action: action, snapshotAt: &snapshot.At, idMax: snapshot.IDMax})
	snapshot.Count, snapshot.More, err = o.bulkCount(ctx, page, countLimits{all: 2 * time.Second, answer: 500 * time.Millisecond})
	return snapshot, dberror.Wrap(o.schema, operation, err)
}

// countLimits bound how long jobs are counted beyond CountMax, and how much of the time that the
// caller gives is left for the answer.
type countLimits struct{ all, answer time.Duration }

// bulkCount counts the jobs of the list: up to CountMax in any case, and all of them if that ends
// within the limits; more says that it did not. It runs without JIT compilation, which would take
// longer than the count.
func (o *Operator) bulkCount(ctx context.Context, page db.JobPage, limits countLimits) (count int64, more bool, err error) {
	page.Size = jobq.CountMax
	count, err = o.schema.JobCount(ctx, o.pool, page)
	if err != nil || count < jobq.CountMax {
		return count, false, err
	}
	timeout := limits.all
	if deadline, bounded := ctx.Deadline(); bounded {
		timeout = min(timeout, time.Until(deadline)-limits.answer)
	}
	if timeout < time.Millisecond {
		return count, true, nil
	}
	page.Size = math.MaxInt32
	all := count
	err = pgx.BeginTxFunc(ctx, o.pool, pgx.TxOptions{AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, fmt.Sprintf("set local jit = off; set local statement_timeout = %d", timeout.Milliseconds()))
		if err == nil {
			all, err = o.schema.JobCount(ctx, tx, page)
		}
		return err
	})
	if errors.Is(dberror.Wrap(o.schema, "count all jobs", err), jobq.ErrTimeout) && ctx.Err() == nil {
		return count, true, nil
	}
	return all, false, err
}

// BulkProgress is how far a bulk action has come.
type BulkProgress struct {
	AuditID int64 `json:"audit_id"`
	Done    int   `json:"done"`    // jobs changed
	Refused int   `json:"refused"` // jobs that could not be
	// Problems are the first of those that this call could not change, at most 10, and why.
	Problems []ActedJob `json:"problems,omitempty"`
}

// Bulk acts on the jobs that the filter matches when it begins: jobs that are
// enqueued, or end, later are left alone, ages are those of that moment, and jobs in a
// state in which the action does nothing, such as finished ones of a cancel, are left
// alone, too. It works in batches from the newest job down, each batch a transaction,
// and records all of them as one action, which can be undone as one. When the context ends it stops between two
// batches, and Resume goes on from there: ErrConflict if the action has come to
// its end, was undone, or runs. One whose process was killed counts as running
// for a minute more.
func (o *Operator) Bulk(ctx context.Context, params BulkParams) (BulkProgress, error) {
	if params.Max < 0 || params.RatePerSecond < 0 {
		return BulkProgress{}, fmt.Errorf("act by filter: %w: max and rate must not be negative", jobq.ErrInvalid)
	}
	if err := o.checkTexts("act by filter"); err != nil {
		return BulkProgress{}, err
	}
	id, err := o.bulkID(ctx, params)
	if err != nil {
		return BulkProgress{}, err
	}
	holder := rand.Text()
	if err := o.bulkHold(ctx, id, holder); err != nil {
		return BulkProgress{}, err
	}
	defer o.bulkLetGo(ctx, id, holder)
	bulk, err := o.bulkEntry(ctx, id, params.Resume > 0)
	if err != nil {
		return BulkProgress{}, err
	}
	return o.bulkWork(ctx, bulk, holder, params)
}

// bulkWork does what is left to do of an action, for the one who holds it.
func (o *Operator) bulkWork(ctx context.Context, bulk bulkAction, holder string, params BulkParams) (BulkProgress, error) {
	progress := BulkProgress{AuditID: bulk.id, Done: bulk.done, Refused: bulk.refused}
	query, err := filter.ParseStored(bulk.target)
	if err != nil {
		return progress, fmt.Errorf("action %d: %w", bulk.id, err)
	}
	page := bulkPage(query, bulk)
	if params.Max == 0 && bulk.max > 0 {
		params.Max = bulk.max - bulk.done%bulk.max
	}
	for {
		began := time.Now()
		size := bulkBatch
		if params.RatePerSecond > 0 {
			size = min(size, params.RatePerSecond)
		}
		left := params.Max - (progress.Done - bulk.done)
		if params.Max > 0 {
			size = min(size, max(left, 1)) // one even at the bound: without a next job, the action has come to its end
		}
		page.Size = size
		rows, err := o.schema.JobList(ctx, o.pool, page)
		if err != nil {
			return progress, dberror.Wrap(o.schema, string(bulk.action), err)
		}
		if len(rows) == 0 {
			return progress, o.bulkEnd(ctx, bulk)
		}
		if params.Max > 0 && left <= 0 {
			return progress, nil
		}
		targets := make([]Target, len(rows))
		for i, row := range rows {
			targets[i] = Target{ID: row.ID, State: jobq.State(row.State), LeaseToken: row.LeaseToken}
		}
		if err := o.bulkRenew(ctx, bulk.id, holder); err != nil {
			return progress, err
		}
		acted, err := o.act(ctx, db.JobActParams{Action: string(bulk.action), AuditID: bulk.id}, targets)
		if err != nil {
			return progress, err
		}
		progress.Done += acted.Changed()
		problems := acted.Problems()
		progress.Refused += len(problems)
		progress.Problems = append(progress.Problems, problems[:min(len(problems), bulkProblemsMax-len(progress.Problems))]...)
		page.After = &db.JobKey{ID: rows[len(rows)-1].ID}
		if params.OnBatch != nil {
			params.OnBatch(progress)
		}
		if params.RatePerSecond > 0 {
			pause := time.Duration(len(rows)) * time.Second / time.Duration(params.RatePerSecond)
			if err := sleep.For(ctx, pause-time.Since(began)); err != nil {
				return progress, err
			}
		}
	}
}

// bulkLease is how long nobody else works on an action after its last batch has
// begun. It is longer than a batch takes, and short enough to wait for if the process
// has died.
const bulkLease = time.Minute

// letGoTimeout bounds the end of an action's lease.
const letGoTimeout = 5 * time.Second

// bulkHold makes sure that nobody else works on the action for a bulkLease from now.
func (o *Operator) bulkHold(ctx context.Context, id int64, holder string) error {
	operation := fmt.Sprintf("action %d", id)
	held, err := o.queries.AuditHold(ctx, holder, db.Interval(bulkLease), id)
	if err == nil && held == 0 {
		if _, err = o.auditGet(ctx, id); err == nil {
			return fmt.Errorf("%s: %w: it runs", operation, jobq.ErrConflict)
		}
	}
	return dberror.Wrap(o.schema, operation, err)
}

// bulkRenew makes sure that nobody else has worked on the action since it was
// held, or will for a bulkLease from now.
func (o *Operator) bulkRenew(ctx context.Context, id int64, holder string) error {
	operation := fmt.Sprintf("action %d", id)
	renewed, err := o.queries.AuditRenew(ctx, db.Interval(bulkLease), id, holder)
	if err == nil && renewed == 0 {
		return fmt.Errorf("%s: %w: somebody else has gone on with it", operation, jobq.ErrConflict)
	}
	return dberror.Wrap(o.schema, operation, err)
}

// bulkLetGo lets others work on the action at once.
func (o *Operator) bulkLetGo(ctx context.Context, id int64, holder string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), letGoTimeout)
	defer cancel()
	_ = o.queries.AuditLetGo(ctx, id, holder) // the lease ends by itself
}

// bulkID is the id of the action in the audit: a new one, or the one to resume.
func (o *Operator) bulkID(ctx context.Context, params BulkParams) (int64, error) {
	if params.Resume > 0 {
		return params.Resume, nil
	}
	return o.bulkBegin(ctx, params)
}

// bulkEntry is the action as the audit has it. That somebody resumes it is recorded.
func (o *Operator) bulkEntry(ctx context.Context, id int64, resume bool) (bulkAction, error) {
	operation := fmt.Sprintf("action %d", id)
	row, err := o.auditGet(ctx, id)
	if err == nil && resume {
		err = o.queries.AuditResume(ctx, o.actor, id)
	}
	return bulkAction{
		id: row.ID, action: jobq.Action(row.Action), target: db.Text(row.Target), done: int(row.Done), refused: int(row.Refused),
		max: int(row.DoneMax.Int32), snapshotAt: row.SnapshotAt, idMax: row.IDMax.Int64, idDone: row.IDDone.Int64,
	}, dberror.Wrap(o.schema, operation, err)
}

// bulkBegin records a new action by filter.
func (o *Operator) bulkBegin(ctx context.Context, params BulkParams) (int64, error) {
	query, err := queryOf(params.Filter)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", params.Action, err)
	}
	begin := db.AuditBeginParams{
		Actor: o.actor, Action: string(params.Action), Target: db.TextOrNull(query.String()),
		DoneMax: pgtype.Int4{Int32: int32(min(params.Max, math.MaxInt32)), Valid: params.Max > 0}, // #nosec G115 -- bounded here
	}
	if snapshot := params.Snapshot; snapshot.IDMax > 0 {
		begin.SnapshotAt, begin.IDMax = &snapshot.At, pgtype.Int8{Int64: snapshot.IDMax, Valid: true}
	}
	switch {
	case params.Action == jobq.ActionRequeue && !params.Change.IsEmpty():
		if begin.Change, err = params.Change.argsColumns(); err != nil {
			return 0, fmt.Errorf("%s: %w", params.Action, err)
		}
	case params.Action == jobq.ActionEdit && !params.Change.IsEmpty():
		if begin.Change, err = params.Change.columns(); err != nil {
			return 0, fmt.Errorf("%s: %w", params.Action, err)
		}
	case params.Action != jobq.ActionRequeue && params.Action != jobq.ActionCancel && params.Action != jobq.ActionDelete:
		return 0, fmt.Errorf("%w: no action %q on jobs, or nothing to change", jobq.ErrInvalid, params.Action)
	}
	id, err := o.queries.AuditBegin(ctx, begin)
	return id, dberror.Wrap(o.schema, string(params.Action), err)
}

// bulkEnd records that an action by filter has come to its end.
func (o *Operator) bulkEnd(ctx context.Context, bulk bulkAction) error {
	return dberror.Wrap(o.schema, string(bulk.action), o.queries.AuditEnd(ctx, bulk.id))
}

// queryOf is the filter as the audit stores it, read again.
func queryOf(chosen jobq.Filter) (filter.Query, error) {
	text, err := chosen.Text()
	if err != nil {
		return filter.Query{}, err
	}
	query, err := filter.ParseStored(text)
	if err != nil {
		return filter.Query{}, fmt.Errorf("%w: %w", jobq.ErrInvalid, err)
	}
	return query, nil
}

// bulkPage is the first page of what is left to do of an action. Jobs in other
// states than it is for would cost a lock each, and there can be millions. Ages are
// those of the moment at which it was counted: it may take long, or go on days later.
func bulkPage(query filter.Query, bulk bulkAction) db.JobPage {
	page, states := query.Page(*bulk.snapshotAt), statesOf(bulk.action)
	page.IDMax = bulk.idMax
	page.States = slices.DeleteFunc(page.States, func(state string) bool { return !slices.Contains(states, jobq.State(state)) })
	matches := page.Condition
	page.Condition = func(stage db.Stage, first int) (string, []any) {
		sql, args := matches(stage, first)
		if stage.Finished == "" {
			return sql, args
		}
		return fmt.Sprintf("%s and %s <= $%d::timestamptz", sql, stage.Finished, first+len(args)), append(args, *bulk.snapshotAt)
	}
	if bulk.idDone > 0 {
		page.After = &db.JobKey{ID: bulk.idDone}
	}
	return page
}
