package tui

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jobq-dev/jobq"
)

// tab is a state that the list is about.
type tab int

const (
	tabAll tab = iota
	tabAvailable
	tabScheduled
	tabRunning
	tabRetrying
	tabFailed
	tabCancelled
	tabCompleted
	tabEnd
)

var tabNames = [tabEnd]string{"All", "Available", "Scheduled", "Running", "Retrying", "Failed", "Cancelled", "Completed"}

// term is the tab in the filter's grammar.
func (t tab) term() string {
	if t == tabAll {
		return ""
	}
	return "state:" + strings.ToLower(tabNames[t])
}

const (
	pageSize = 100
	// rowsMax bounds what is kept of a list; who wants to look further filters.
	rowsMax = 2000
	// recentJobs is how many of the newest jobs are searched when a filter
	// that matches few of very many has taken too long.
	recentJobs = 400_000
	// leftShown is how long a row stays that no longer matches.
	leftShown = 5 * time.Second
)

// jobsModel is the list of jobs.
type jobsModel struct {
	tab     tab
	match   string    // the operator's filter, beside the tab
	sort    jobq.Sort // what the operator has chosen; empty for the tab's own
	reverse bool

	rows     []*jobq.Job
	next     string // cursor of the page after the last row
	more     bool   // the page after is being fetched
	cursor   int64  // the job under the cursor, 0 for none
	offset   int    // of the first row on the screen
	follow   bool   // new jobs come in at the top
	above    int    // new jobs that have not
	left     map[int64]time.Time
	marks    map[int64]bool
	ranged   *markRange // that grows with the cursor; nil for none
	all      *allMatching
	counting bool  // all is about to be set: what matches is being counted
	total    int64 // jobs that match, up to CountMax; -1 when unknown
	recent   bool  // the whole was too much to search: only the newest jobs are
	visible  int   // rows on the screen
}

// allMatching is a selection by filter: what it meant when it was made.
type allMatching struct {
	filter   string
	snapshot jobq.BulkSnapshot
}

func newJobsModel() jobsModel {
	return jobsModel{follow: true, left: make(map[int64]time.Time), marks: make(map[int64]bool), total: -1, visible: 20}
}

// pageAnswer is a page, and whether it is the first or goes on after the rows.
type pageAnswer struct {
	page  *jobq.Page
	after bool
}

// filter is what the list shows.
func (j *jobsModel) filter() jobq.Filter {
	o := j.order()
	return jobq.Filter{Match: j.filterText(), Limit: pageSize, Sort: o.sort, Reverse: o.reverse}
}

// filterText is the tab and the filter as one text.
func (j *jobsModel) filterText() string {
	return strings.TrimSpace(j.tab.term() + " " + j.match)
}

// query is what one of the list's panels asks.
func (j *jobsModel) query(r reader, p panel) func(context.Context) (any, error) {
	filter := j.filter()
	switch {
	case p == panelPage && j.more:
		filter.After = j.next
		return func(ctx context.Context) (any, error) {
			page, err := r.List(ctx, filter)
			return pageAnswer{page, true}, err
		}
	case p == panelPage && j.recent:
		return func(ctx context.Context) (any, error) {
			page, err := listRecent(ctx, r, filter)
			return pageAnswer{page, false}, err
		}
	case p == panelPage:
		return func(ctx context.Context) (any, error) {
			page, err := r.List(ctx, filter)
			return pageAnswer{page, false}, err
		}
	case p == panelVisible:
		ids := j.visibleIDs()
		if len(ids) == 0 {
			return nil
		}
		match := "id:" + strings.Join(ids, ",")
		return func(ctx context.Context) (any, error) {
			page, err := r.List(ctx, jobq.Filter{Match: match, Limit: len(ids)})
			if err != nil {
				return nil, err
			}
			return page.Jobs, nil
		}
	}
	return func(ctx context.Context) (any, error) { return r.Count(ctx, filter, jobq.CountMax) }
}

// listRecent looks for what matches among the newest jobs only.
func listRecent(ctx context.Context, r reader, filter jobq.Filter) (*jobq.Page, error) {
	newest, err := r.List(ctx, jobq.Filter{Limit: 1})
	if err != nil || len(newest.Jobs) == 0 {
		return newest, err
	}
	filter.Match += fmt.Sprintf(" id:>%d", max(newest.Jobs[0].ID-recentJobs, 0))
	return r.List(ctx, filter)
}

func (j *jobsModel) visibleIDs() (ids []string) {
	for i := j.offset; i < min(j.offset+j.visible, len(j.rows)); i++ {
		ids = append(ids, strconv.FormatInt(j.rows[i].ID, 10))
	}
	return ids
}

// takePage takes a page in. The rows stay where they are unless the list
// follows: then what is new comes in at the top, and the cursor stays with its
// job as long as that is on the page.
func (j *jobsModel) takePage(answer pageAnswer) {
	if answer.after {
		j.more = false
		j.rows = append(j.rows, answer.page.Jobs...)
		j.next = answer.page.Cursor
		return
	}
	if len(j.rows) == 0 || j.follow && j.keeps(answer.page.Jobs) {
		j.replace(answer.page)
		return
	}
	j.follow = false // the cursor's job has left: what became of it is asked for by id
	known := make(map[int64]*jobq.Job, len(j.rows))
	for _, row := range j.rows {
		known[row.ID] = row
	}
	j.above = 0
	for _, job := range answer.page.Jobs {
		if row, ok := known[job.ID]; ok {
			*row = *job
			delete(j.left, job.ID)
			continue
		}
		j.above++
	}
}

// keeps says whether the page has the cursor's job, or may go without it.
func (j *jobsModel) keeps(jobs []*jobq.Job) bool {
	return j.cursor == 0 || slices.ContainsFunc(jobs, func(job *jobq.Job) bool { return job.ID == j.cursor })
}

// replace makes the page the list. Rows that have just left stay for a while.
func (j *jobsModel) replace(page *jobq.Page) {
	j.rows, j.next, j.above, j.more = page.Jobs, page.Cursor, 0, false
	clear(j.left)
	if j.at() < 0 {
		j.cursor = 0
	}
	if j.cursor == 0 && len(j.rows) > 0 {
		j.cursor = j.rows[0].ID
	}
	for id := range j.marks {
		if j.indexOf(id) < 0 {
			delete(j.marks, id)
		}
	}
}

// takeVisible updates rows in place with what has become of their jobs.
func (j *jobsModel) takeVisible(jobs []*jobq.Job, now time.Time) {
	fresh := make(map[int64]*jobq.Job, len(jobs))
	for _, job := range jobs {
		fresh[job.ID] = job
	}
	for i := j.offset; i < min(j.offset+j.visible, len(j.rows)); i++ {
		row := j.rows[i]
		job, ok := fresh[row.ID]
		switch {
		case ok:
			*row = *job
			j.notice(row, now)
		case j.left[row.ID].IsZero():
			row.State = jobq.Deleted
			j.left[row.ID] = now
		}
	}
}

// notice remembers when a row's job left the list's state.
func (j *jobsModel) notice(row *jobq.Job, now time.Time) {
	if j.tab.holds(row) {
		delete(j.left, row.ID)
	} else if j.left[row.ID].IsZero() {
		j.left[row.ID] = now
	}
}

// holds says whether a job is in the tab's state.
func (t tab) holds(job *jobq.Job) bool {
	switch t {
	case tabAll:
		return job.State != jobq.Deleted
	case tabRetrying:
		return job.State == jobq.Scheduled && job.Attempts > 0
	case tabAvailable, tabScheduled, tabRunning, tabFailed, tabCancelled, tabCompleted, tabEnd:
	}
	return string(job.State) == strings.ToLower(tabNames[t])
}

// age drops rows that have left a while ago, but for the one under the cursor.
func (j *jobsModel) age(now time.Time) {
	for id, at := range j.left {
		if id != j.cursor && now.Sub(at) > leftShown {
			j.drop(id)
		}
	}
}

func (j *jobsModel) drop(id int64) {
	at := j.indexOf(id)
	if at < 0 {
		delete(j.left, id)
		return
	}
	j.rows = slices.Delete(slices.Clone(j.rows), at, at+1)
	delete(j.left, id)
	delete(j.marks, id)
	if at < j.offset {
		j.offset--
	}
}

func (j *jobsModel) indexOf(id int64) int {
	return slices.IndexFunc(j.rows, func(row *jobq.Job) bool { return row.ID == id })
}

// at is the place of the cursor's job, or -1.
func (j *jobsModel) at() int { return j.indexOf(j.cursor) }

// selected is the job under the cursor, or nil.
func (j *jobsModel) selected() *jobq.Job {
	if at := j.at(); at >= 0 {
		return j.rows[at]
	}
	return nil
}

func (j *jobsModel) previewed() int64 {
	if job := j.selected(); job != nil && job.State != jobq.Deleted {
		return job.ID
	}
	return 0
}

// move moves the cursor by rows. The list then stands still, and asks for more
// when the end comes near.
func (j *jobsModel) move(by int) {
	if len(j.rows) == 0 {
		return
	}
	was := j.cursor
	at := min(max(j.at()+by, 0), len(j.rows)-1)
	j.cursor = j.rows[at].ID
	j.follow = j.follow && at == 0
	if !j.left[was].IsZero() && was != j.cursor {
		j.drop(was)
	}
	if at > len(j.rows)-pageSize/2 && j.next != "" && !j.more && len(j.rows) < rowsMax {
		j.more = true
	}
}

// top goes to the first job and lets the list follow what is new.
func (j *jobsModel) top() {
	j.follow, j.cursor, j.offset = true, 0, 0
	if len(j.rows) > 0 && j.above == 0 {
		j.cursor = j.rows[0].ID
	}
}

// reset empties the list, because it is about to be another one.
func (j *jobsModel) reset() {
	j.rows, j.next, j.more, j.cursor, j.offset, j.follow, j.above, j.total = nil, "", false, 0, 0, true, 0, -1
	j.recent = false
	clear(j.left)
	j.unmark()
}

func (j *jobsModel) setTab(t tab) {
	j.tab, j.sort = (t+tabEnd)%tabEnd, ""
	j.reset()
}

func (j *jobsModel) setMatch(match string) {
	j.match = match
	j.reset()
}

// settle forgets what would not be true any more after a while out of sight.
func (j *jobsModel) settle() {
	for id := range j.left {
		if id != j.cursor {
			j.drop(id)
		}
	}
}

// targets are the jobs that an action is about: the marked ones, else the one
// under the cursor, each as the operator sees it.
func (j *jobsModel) targets() (targets []jobq.Target) {
	for _, row := range j.rows {
		if row.State == jobq.Deleted {
			continue
		}
		if j.marks[row.ID] || len(j.marks) == 0 && row.ID == j.cursor {
			targets = append(targets, jobq.Target{ID: row.ID, State: row.State, LeaseToken: row.LeaseToken})
		}
	}
	return targets
}
