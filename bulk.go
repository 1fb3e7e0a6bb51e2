package jobq

import (
	"context"
	"crypto/rand"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/filter"
)

// bulkBatch is how many jobs one statement of a bulk action is about.
const bulkBatch = 500

// BulkParams is an action on all jobs that a filter matches.
type BulkParams struct {
	Action Action
	Change JobChange // of ActionEdit
	Filter Filter    // of which Sort, Reverse, Before, After and Limit mean nothing
	// Snapshot is of BulkSnapshot: the action is about the jobs that were counted
	// then. The zero value means those that are there when it begins.
	Snapshot BulkSnapshot
	// Max bounds how many jobs this call changes, not counting those that were
	// before a Resume. An action that has reached it, and has more to do, has
	// not come to its end. Zero means no bound, and less is ErrInvalid; with
	// Resume, zero means the bound that the action has begun with: what is left
	// of it, or all of it again.
	Max int
	// RatePerSecond bounds how many jobs are changed in a second. Zero means
	// no bound, and less is ErrInvalid.
	RatePerSecond int
	// Resume goes on with an action that has not come to its end: the id of
	// its entry in the audit. Action, Change and Filter are the entry's then.
	Resume int64
	// OnBatch is told after each batch.
	OnBatch func(BulkProgress)
}

// BulkSnapshot is what a filter matches at a moment.
type BulkSnapshot struct {
	At    time.Time // by the clock of the database
	IDMax int64     // later jobs have higher ids
	Count int64     // jobs that match, up to CountMax
}

// BulkSnapshot counts what a Bulk of that action would be about that begins
// now; without an action, all that matches. With BulkParams.Snapshot it is about
// no more than that whenever it begins: later jobs, and those that end later,
// are left alone.
func (c *Client) BulkSnapshot(ctx context.Context, action Action, filter Filter) (BulkSnapshot, error) {
	const operation = "count jobs"
	query, err := filter.query()
	if err != nil {
		return BulkSnapshot{}, fmt.Errorf("%s: %w", operation, err)
	}
	row, err := c.queries.AuditSnapshot(ctx)
	if err != nil {
		return BulkSnapshot{}, c.clientError(operation, err)
	}
	snapshot := BulkSnapshot{At: row.At.Time.UTC(), IDMax: row.IDMax}
	page := bulkPage(query, AuditEntry{Action: action, SnapshotAt: &snapshot.At, IDMax: snapshot.IDMax})
	page.Size = CountMax
	snapshot.Count, err = c.schema.JobCount(ctx, c.pool, page)
	return snapshot, c.clientError(operation, err)
}

// BulkProgress is how far a bulk action has come.
type BulkProgress struct {
	AuditID int64 `json:"audit_id"`
	Done    int   `json:"done"`    // jobs changed
	Refused int   `json:"refused"` // jobs that could not be
}

// Bulk acts on the jobs that the filter matches when it begins: jobs that are
// enqueued, or end, later are left alone, and so are those in a state in which
// the action does nothing, such as finished ones of a cancel. It works in batches from the newest
// job down, each batch a transaction, and records all of them as one action,
// which can be undone as one. When the context ends it stops between two
// batches, and Resume goes on from there: ErrConflict if the action has come to
// its end, was undone, or runs. One whose process was killed counts as running
// for a minute more.
func (c *Client) Bulk(ctx context.Context, params BulkParams) (BulkProgress, error) {
	if params.Max < 0 || params.RatePerSecond < 0 {
		return BulkProgress{}, fmt.Errorf("act by filter: %w: max and rate must not be negative", ErrInvalid)
	}
	id, err := c.bulkID(ctx, params)
	if err != nil {
		return BulkProgress{}, err
	}
	holder := rand.Text()
	if err := c.bulkHold(ctx, id, holder); err != nil {
		return BulkProgress{}, err
	}
	defer c.bulkLetGo(ctx, id, holder)
	entry, err := c.bulkEntry(ctx, id, params.Resume > 0)
	if err != nil {
		return BulkProgress{}, err
	}
	return c.bulkWork(ctx, entry, holder, params)
}

// bulkWork does what is left to do of an action, for the one who holds it.
func (c *Client) bulkWork(ctx context.Context, entry AuditEntry, holder string, params BulkParams) (BulkProgress, error) {
	progress := BulkProgress{AuditID: entry.ID, Done: entry.Done, Refused: entry.Refused}
	query, err := filter.ParseStored(entry.Target)
	if err != nil {
		return progress, fmt.Errorf("action %d: %w", entry.ID, err)
	}
	page := bulkPage(query, entry)
	if params.Max == 0 && entry.Max > 0 {
		params.Max = entry.Max - entry.Done%entry.Max
	}
	for {
		began := time.Now()
		size := bulkBatch
		if params.RatePerSecond > 0 {
			size = min(size, params.RatePerSecond)
		}
		left := params.Max - (progress.Done - entry.Done)
		if params.Max > 0 {
			size = min(size, max(left, 1)) // one even at the bound: without a next job, the action has come to its end
		}
		page.Size = size
		rows, err := c.schema.JobList(ctx, c.pool, page)
		if err != nil {
			return progress, c.clientError(string(entry.Action), err)
		}
		if len(rows) == 0 {
			return progress, c.bulkEnd(ctx, entry)
		}
		if params.Max > 0 && left <= 0 {
			return progress, nil
		}
		targets := make([]Target, len(rows))
		for i, row := range rows {
			targets[i] = Target{ID: row.ID, State: State(row.State), LeaseToken: row.LeaseToken}
		}
		if err := c.bulkRenew(ctx, entry.ID, holder); err != nil {
			return progress, err
		}
		acted, err := c.act(ctx, db.JobActParams{Action: string(entry.Action), AuditID: entry.ID}, targets)
		if err != nil {
			return progress, err
		}
		progress.Done += acted.Changed()
		progress.Refused += len(acted.Problems())
		page.After = &db.JobKey{ID: rows[len(rows)-1].ID}
		if params.OnBatch != nil {
			params.OnBatch(progress)
		}
		if params.RatePerSecond > 0 {
			pause := time.Duration(len(rows)) * time.Second / time.Duration(params.RatePerSecond)
			if err := sleep(ctx, pause-time.Since(began)); err != nil {
				return progress, err
			}
		}
	}
}

func sleep(ctx context.Context, duration time.Duration) error {
	if duration <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(duration)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// bulkLease is how long nobody else works on an action after its last batch has
// begun: longer than one takes, and no longer than one waits for who has died.
const bulkLease = time.Minute

// letGoTimeout bounds the end of an action's lease.
const letGoTimeout = 5 * time.Second

// bulkHold makes sure that nobody else works on the action for a bulkLease from now.
func (c *Client) bulkHold(ctx context.Context, id int64, holder string) error {
	operation := fmt.Sprintf("action %d", id)
	held, err := c.queries.AuditHold(ctx, holder, db.Interval(bulkLease), id)
	if err == nil && held == 0 {
		if _, err = c.auditGet(ctx, id); err == nil {
			return fmt.Errorf("%s: %w: it runs", operation, ErrConflict)
		}
	}
	return c.clientError(operation, err)
}

// bulkRenew makes sure that nobody else has worked on the action since it was
// held, or will for a bulkLease from now.
func (c *Client) bulkRenew(ctx context.Context, id int64, holder string) error {
	operation := fmt.Sprintf("action %d", id)
	renewed, err := c.queries.AuditRenew(ctx, db.Interval(bulkLease), id, holder)
	if err == nil && renewed == 0 {
		return fmt.Errorf("%s: %w: somebody else has gone on with it", operation, ErrConflict)
	}
	return c.clientError(operation, err)
}

// bulkLetGo lets others work on the action at once.
func (c *Client) bulkLetGo(ctx context.Context, id int64, holder string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), letGoTimeout)
	defer cancel()
	_ = c.queries.AuditLetGo(ctx, id, holder) // the lease ends by itself
}

// bulkID is the id of the action in the audit: a new one, or the one to resume.
func (c *Client) bulkID(ctx context.Context, params BulkParams) (int64, error) {
	if params.Resume > 0 {
		return params.Resume, nil
	}
	return c.bulkBegin(ctx, params)
}

// bulkEntry is the audit's entry of the action. One to resume is checked, and
// says who does.
func (c *Client) bulkEntry(ctx context.Context, id int64, resume bool) (AuditEntry, error) {
	operation := fmt.Sprintf("action %d", id)
	row, err := c.auditGet(ctx, id)
	if err == nil && resume {
		err = c.queries.AuditResume(ctx, c.actor, id)
	}
	return auditEntry(row), c.clientError(operation, err)
}

// bulkBegin records a new action by filter.
func (c *Client) bulkBegin(ctx context.Context, params BulkParams) (int64, error) {
	query, err := params.Filter.query()
	if err != nil {
		return 0, fmt.Errorf("%s: %w", params.Action, err)
	}
	begin := db.AuditBeginParams{
		Actor: c.actor, Action: string(params.Action), Target: textOrNull(query.String()),
		DoneMax: pgtype.Int4{Int32: int32(min(params.Max, math.MaxInt32)), Valid: params.Max > 0}, // #nosec G115 -- bounded here
	}
	if snapshot := params.Snapshot; snapshot.IDMax > 0 {
		begin.SnapshotAt, begin.IDMax = &snapshot.At, pgtype.Int8{Int64: snapshot.IDMax, Valid: true}
	}
	switch {
	case params.Action == ActionEdit && !params.Change.IsEmpty():
		if begin.Change, err = params.Change.columns(); err != nil {
			return 0, fmt.Errorf("%s: %w", params.Action, err)
		}
	case params.Action != ActionRequeue && params.Action != ActionCancel && params.Action != ActionDelete:
		return 0, fmt.Errorf("%w: no action %q on jobs, or nothing to change", ErrInvalid, params.Action)
	}
	id, err := c.queries.AuditBegin(ctx, begin)
	return id, c.clientError(string(params.Action), err)
}

// bulkEnd records that an action by filter has come to its end.
func (c *Client) bulkEnd(ctx context.Context, entry AuditEntry) error {
	return c.clientError(string(entry.Action), c.queries.AuditEnd(ctx, entry.ID))
}

// bulkPage is the first page of what is left to do of an action. Jobs in other
// states than it is for would cost a lock each, and there can be millions.
func bulkPage(query filter.Query, entry AuditEntry) db.JobPage {
	page, states := pageOf(query), entry.Action.states()
	page.IDMax = entry.IDMax
	page.States = slices.DeleteFunc(page.States, func(state string) bool { return !slices.Contains(states, State(state)) })
	matches := page.Condition
	page.Condition = func(stage db.Stage, first int) (string, []any) {
		sql, args := matches(stage, first)
		if stage.Finished == "" {
			return sql, args
		}
		return fmt.Sprintf("%s and %s <= $%d::timestamptz", sql, stage.Finished, first+len(args)), append(args, *entry.SnapshotAt)
	}
	if entry.IDDone > 0 {
		page.After = &db.JobKey{ID: entry.IDDone}
	}
	return page
}

// Count counts the jobs that the filter matches, up to limit: a count that
// has reached it means "at least as many".
func (c *Client) Count(ctx context.Context, filter Filter, limit int) (int64, error) {
	filter.Sort, filter.After, filter.Before = NewestFirst, "", 0
	page, err := filter.page()
	if err != nil {
		return 0, fmt.Errorf("count jobs: %w", err)
	}
	page.Size = limit
	count, err := c.schema.JobCount(ctx, c.pool, page)
	if err != nil {
		return 0, c.clientError("count jobs", err)
	}
	return count, nil
}
