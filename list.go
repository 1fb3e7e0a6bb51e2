package jobq

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/dberror"
	"github.com/jobq-dev/jobq/internal/filter"
)

// Filter chooses jobs. Zero fields choose all.
type Filter struct {
	// Match is a filter as people write it, such as
	//
	//	state:failed queue:email kind:Send* err:"smtp 421" age:<2h args.tenant=4411
	//
	// Terms must all hold; commas separate alternatives, - in front means not.
	// It adds to the fields below. See docs/filter.md.
	Match  string
	States []State
	Queue  string
	Kind   string
	Tag    string
	// Sort is the order. Default SortNewest.
	Sort Sort
	// Reverse turns the order around.
	Reverse bool
	// Before continues a list by id after a page: its Next. Zero means from
	// the newest job. ErrInvalid with another order.
	Before int64
	// After continues any list after a page: its Cursor.
	After string
	// Limit is the size of the page: 1 to 1000. Default 50.
	Limit int
	// Values lists jobs with their args, checkpoint and result, as they are stored: Job.Decode decrypts them. Each can
	// have 1 MiB: choose small pages. Default false.
	Values bool
}

// Sort is an order of jobs. There are only those that an index has, so that a page
// costs the same however deep it is, and that of the jobs that run, which are few.
type Sort string

// The orders.
const (
	SortNewest   Sort = "id"       // by id, which is about the order of creation
	SortFinished Sort = "finished" // last ended first; failed and cancelled jobs only
	SortDue      Sort = "due"      // next due first; scheduled jobs only
	SortStarted  Sort = "started"  // first started first, what has not begun last; running jobs only
)

// Page is a part of a list. Jobs come without args, checkpoint and result, which can
// be large, unless the filter says Values.
type Page struct {
	Jobs []*Job `json:"jobs"`
	// Next is the Before of the next page of a list by id; 0 when this is the
	// last, or the list is in another order.
	Next int64 `json:"next,omitempty"`
	// Cursor is the After of the next page; empty when this is the last.
	Cursor string `json:"cursor,omitempty"`
}

// List returns a page of jobs, newest id first unless told otherwise. However
// deep the page, it costs the same, but a filter that matches few of many jobs
// looks at many.
func (c *Client) List(ctx context.Context, filter Filter) (*Page, error) {
	limit := filter.Limit
	if limit == 0 {
		limit = 50
	}
	if limit < 1 || limit > 1000 {
		return nil, fmt.Errorf("list jobs: %w: limit must be 1 to 1000, not %d", ErrInvalid, limit)
	}
	request, err := filter.page()
	if err != nil {
		return nil, fmt.Errorf("list jobs: %w", err)
	}
	request.Size = limit + 1 // one more, to know whether there are more
	rows, err := c.schema.JobList(ctx, c.pool, request)
	if err != nil {
		return nil, dberror.Wrap(c.schema, "list jobs", dberror.NeedRole(db.RoleViewer, err))
	}
	page := &Page{Jobs: make([]*Job, 0, min(len(rows), limit))}
	for _, row := range rows[:min(len(rows), limit)] {
		page.Jobs = append(page.Jobs, jobFromRow(row))
	}
	if len(rows) > limit {
		last := page.Jobs[limit-1]
		page.Cursor = cursorOf(last, request.Sort)
		if request.Sort == db.SortID {
			page.Next = last.ID
		}
	}
	return page, nil
}

// Text is what the filter chooses in the grammar of docs/filter.md, which is how the
// audit stores it and how Match reads it: Match and the fields States, Queue, Kind and
// Tag. Names are in quotes where they would be read as anything but a name: the queue
// a,b is queue:"a,b", where queue:a,b is two queues. ErrInvalid says what Match or
// States have wrong.
func (f Filter) Text() (string, error) {
	query, err := f.query()
	return query.String(), err
}

// query is the whole filter in the terms of one grammar.
func (f Filter) query() (filter.Query, error) {
	query, err := filter.Parse(f.Match)
	if err != nil {
		return query, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if len(f.States) > 0 {
		names := make([]string, len(f.States))
		for i, state := range f.States {
			if !slices.Contains(States(), state) {
				return query, fmt.Errorf("%w: no state %q", ErrInvalid, state)
			}
			names[i] = string(state)
		}
		query = query.And(filter.Equal("state", names...))
	}
	for _, term := range []struct{ field, value string }{{"queue", f.Queue}, {"kind", f.Kind}, {"tag", f.Tag}} {
		if term.value != "" {
			query = query.And(filter.Equal(term.field, term.value))
		}
	}
	return query, nil
}

// page turns the filter into what the database is asked.
func (f Filter) page() (db.JobPage, error) {
	query, err := f.query()
	if err != nil {
		return db.JobPage{}, err
	}
	page := query.Page(time.Time{})
	page.Sort, page.Ascending, page.Values = db.JobSort(f.Sort), f.Reverse, f.Values
	among := func(states ...State) bool {
		return !slices.ContainsFunc(page.States, func(state string) bool { return !slices.Contains(states, State(state)) })
	}
	switch f.Sort {
	case "", SortNewest:
		page.Sort = db.SortID
	case SortFinished:
		if !among(StateFailed, StateCancelled) {
			return page, fmt.Errorf("%w: sort by finished: only failed and cancelled jobs have that order", ErrInvalid)
		}
	case SortDue:
		if !among(StateScheduled) {
			return page, fmt.Errorf("%w: sort by due: only scheduled jobs have that order", ErrInvalid)
		}
		page.Ascending = !f.Reverse
	case SortStarted:
		if !among(StateRunning) {
			return page, fmt.Errorf("%w: sort by started: only running jobs have that order", ErrInvalid)
		}
		page.Ascending = !f.Reverse
	default:
		return page, fmt.Errorf("%w: no sort %q; there are id, finished, due and started", ErrInvalid, f.Sort)
	}
	if f.Before > 0 && page.Sort != db.SortID {
		return page, fmt.Errorf("%w: before is for a list by id: use after with the page's cursor", ErrInvalid)
	}
	if f.Before > 0 {
		page.After = &db.JobKey{ID: f.Before}
	}
	if f.After != "" {
		page.After, err = parseCursor(f.After, page.Sort)
	}
	return page, err
}

// cursorOf is where a page has ended: the id, and before it the time that the
// list is sorted by, in microseconds, which is what PostgreSQL keeps.
func cursorOf(job *Job, sort db.JobSort) string {
	id := strconv.FormatInt(job.ID, 10)
	switch {
	case sort == db.SortFinished && job.FinishedAt != nil:
		return strconv.FormatInt(job.FinishedAt.UnixMicro(), 10) + "." + id
	case sort == db.SortStarted:
		started := db.NotBegun()
		if job.StartedAt != nil {
			started = *job.StartedAt
		}
		return strconv.FormatInt(started.UnixMicro(), 10) + "." + id
	case sort == db.SortDue:
		return strconv.FormatInt(job.RunAt.UnixMicro(), 10) + "." + id
	}
	return id
}

func parseCursor(cursor string, sort db.JobSort) (*db.JobKey, error) {
	moment, idText, timed := strings.Cut(cursor, ".")
	if !timed {
		idText = cursor
	}
	id, err := strconv.ParseInt(idText, 10, 64)
	key := &db.JobKey{ID: id}
	if timed && err == nil {
		var micros int64
		micros, err = strconv.ParseInt(moment, 10, 64)
		key.Time = time.UnixMicro(micros)
	}
	if err != nil || timed != (sort != db.SortID) {
		return nil, fmt.Errorf("%w: cursor %q is not of a list in this order", ErrInvalid, cursor)
	}
	return key, nil
}

// CountMax bounds counts of jobs that nobody needs to be exact: a count that has
// reached it means "at least as many".
const CountMax = 10_000

// Count counts the jobs that the filter matches, up to limit: a count that
// has reached it means "at least as many".
func (c *Client) Count(ctx context.Context, filter Filter, limit int) (int64, error) {
	filter.Sort, filter.After, filter.Before, filter.Values = SortNewest, "", 0, false
	page, err := filter.page()
	if err != nil {
		return 0, fmt.Errorf("count jobs: %w", err)
	}
	page.Size = limit
	count, err := c.schema.JobCount(ctx, c.pool, page)
	if err != nil {
		return 0, dberror.Wrap(c.schema, "count jobs", dberror.NeedRole(db.RoleViewer, err))
	}
	return count, nil
}

// Estimate is about how many jobs the filter matches, where that is known without a look at the jobs: from the
// statistics of the server, which its autovacuum keeps. It is 0 where it is not known: for filters of other terms than
// states, queues and kinds, and in a database that was never analyzed.
func (c *Client) Estimate(ctx context.Context, filter Filter) (int64, error) {
	filter.Sort, filter.After, filter.Before = SortNewest, "", 0
	query, err := filter.query()
	if err != nil {
		return 0, fmt.Errorf("estimate jobs: %w", err)
	}
	if !query.Estimable() {
		return 0, nil
	}
	about, err := c.schema.JobEstimate(ctx, c.pool, query.Page(time.Time{}))
	return about, dberror.Wrap(c.schema, "estimate jobs", dberror.NeedRole(db.RoleViewer, err))
}
