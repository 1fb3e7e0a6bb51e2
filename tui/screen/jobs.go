package screen

import (
	"errors"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/tui/data"
	"github.com/jobq-dev/jobq/tui/request"
	"github.com/jobq-dev/jobq/tui/widget"
)

const (
	// pageSize is how many jobs are asked for at once, and endSize when the way to
	// the end of the list is long.
	pageSize = 100
	endSize  = 1000
	// rowsMax bounds what is kept of a list; who wants to look further filters.
	rowsMax = 2000
	// recentJobs is how many jobs are searched at once when a filter that
	// matches few of very many has taken too long: the newest, and then those below.
	recentJobs = 400_000
	// leftShown is how long a row stays that no longer matches.
	leftShown = 5 * time.Second
)

// JobList is the screen with a list of jobs, in one state or in all.
type JobList struct {
	base
	tab     tab
	match   string    // the operator's filter, beside the tab
	sort    jobq.Sort // what the operator has chosen; empty for the tab's own
	reverse bool
	columns bool // others than usual

	rows    []*jobq.Job
	next    string // cursor of the page after the last row
	more    bool   // the page after is asked for
	toEnd   bool   // and all after it, until the end
	cursor  int64  // the job under the cursor, 0 for none
	offset  int    // of the first row on the screen
	visible int    // rows on the screen
	preview int    // lines of the preview
	follow  bool   // new jobs come in at the top
	above   int    // new jobs that have not
	left    map[int64]time.Time
	asked   int    // makes a question a new one
	known   bool   // the first page has come: no rows then means that no job matches
	total   int64  // jobs that match, up to CountMax; -1 when unknown
	about   int64  // about how many, where there are more; 0 when unknown
	recent  bool   // the whole was too much to search at once: the newest jobs are first
	stopped string // why the search does not go on below them; empty while it does

	marks    map[int64]bool
	ranged   *markRange // that grows with the cursor; nil for none
	all      *AllMatching
	counting bool // all is about to be set: what matches is being counted

	story    Story // of the job under the cursor
	recorded int   // goes up when the database has more to tell of it
}

// ShowJobs shows the jobs that match. A filter that begins with a state, such as
// state:failed, chooses that state's tab. Any other shows all states; with Stay, one
// that names no state leaves the tab as it is.
type ShowJobs struct {
	Match string
	Stay  bool
}

// place brings a view of the list back.
type place struct {
	tab   tab
	match string
}

// Step moves the cursor from a job to the one so many rows below, and opens it.
type Step struct {
	ID int64
	By int
}

// NewJobs makes the screen.
func NewJobs(kit Kit) *JobList {
	return &JobList{base: base{Kit: kit}, follow: true, left: make(map[int64]time.Time), marks: make(map[int64]bool), total: -1, visible: 1}
}

// The lines of the screen that are no rows: tabs, filter, a line, the header, and
// the note below the rows.
const (
	jobsHead       = 4
	jobsNote       = 1
	previewLines   = 9
	previewFrom    = 25 // lines of the body, from which there is a preview
	previewSummary = previewLines - 1
)

// SetSize gives the rows what the other parts leave.
func (s *JobList) SetSize(cells, lines int) {
	s.base.SetSize(cells, lines)
	s.preview = 0
	if lines >= previewFrom {
		s.preview = previewLines
	}
	s.visible = max(lines-jobsHead-jobsNote-s.preview, 1)
	s.scroll()
}

// scroll keeps the cursor on the screen, moving the rows as little as possible.
func (s *JobList) scroll() {
	if at := s.at(); at >= 0 {
		s.offset = widget.Window(s.offset, at, len(s.rows), s.visible)
	}
	s.offset = max(min(s.offset, len(s.rows)-s.visible), 0)
}

// Update takes a message in.
func (s *JobList) Update(msg tea.Msg) tea.Msg {
	defer s.scroll()
	switch msg := msg.(type) {
	case data.Answer:
		return s.take(msg)
	case data.Feed:
		for _, event := range msg.Events {
			if at := s.indexOf(event.ID); at >= 0 {
				event.Patch(s.rows[at], s.Paint.Now())
				s.notice(s.rows[at], s.Paint.Now())
			}
			if s.story.apply(event, msg.At) {
				s.recorded++
			}
		}
	case ShowJobs:
		s.show(msg)
	case place:
		if msg.tab != s.tab || msg.match != s.match {
			s.setTab(msg.tab)
			s.setMatch(msg.match)
		}
	case Step:
		return s.step(msg)
	case order:
		s.setOrder(msg)
	case reasons:
		return s.tellWhy(msg)
	case tree:
		return s.tellTree(msg)
	case selectedAll:
		return s.selectedAll(msg)
	case Acted:
		s.unmark()
		s.patch(msg)
		s.recorded++
	case Scroll:
		return s.move(msg.By)
	case Click:
		row := s.offset + msg.Line - jobsHead
		if msg.Line >= jobsHead && row < min(s.offset+s.visible, len(s.rows)) && s.at() >= 0 {
			return s.move(row - s.at())
		}
	case Pick:
		if msg.Row < 1 || msg.Row > len(s.rows) {
			return noRow(msg.Row)
		}
		return s.move(msg.Row - 1 - s.at())
	case Back:
		return s.leave()
	case Tick:
		s.age(s.Paint.Now())
	case Left:
		s.settle()
	}
	return nil
}

// leave drops marks, then the filter.
func (s *JobList) leave() tea.Msg {
	switch {
	case len(s.marks) > 0 || s.all != nil:
		s.unmark()
	case s.match != "":
		s.setMatch("")
	default:
		return nil
	}
	return request.Done{}
}

// show shows the jobs that match.
func (s *JobList) show(msg ShowJobs) {
	t, rest := tabOf(msg.Match)
	if t == tabAll && msg.Stay && !namesStates(msg.Match) {
		t = s.tab
	}
	s.setTab(t)
	s.setMatch(rest)
}

// take takes an answer in, unless the question is another one by now.
func (s *JobList) take(answer data.Answer) tea.Msg {
	switch {
	case answer.Panel == data.Page && answer.About == any(s.question()):
		if errors.Is(answer.Err, jobq.ErrTimeout) && s.match != "" && !s.recent {
			s.recent = true // another question, which is asked at once
		}
		if page, ok := answer.Value.(*jobq.Page); ok {
			s.takePage(page)
		}
	case answer.Panel == data.More && answer.About == any(s.moreQuestion()):
		s.more = false
		if page, ok := answer.Value.(*jobq.Page); ok {
			s.takeMore(page)
		} else if s.toEnd {
			s.toEnd = false
			return request.Tell{Text: "end: " + ShortError(answer.Err)}
		} else if s.recent && answer.Err != nil {
			s.stopped = ShortError(answer.Err)
		}
	case answer.Panel == data.Visible:
		if looked, ok := answer.Value.(looked); ok {
			s.takeLooked(looked)
		}
	case answer.Panel == data.Count && answer.About == any(s.filterText()):
		if counted, ok := answer.Value.(counted); ok {
			s.total, s.about = counted.total, counted.about
		}
	case answer.Panel == data.Job:
		if story, ok := answer.Value.(Story); ok && story.job.ID == s.previewed() {
			s.story = story
		}
	}
	return nil
}

// takePage takes the first page in. The rows stay where they are unless the list
// follows: then what is new comes in at the top, and the cursor stays with its
// job as long as that is on the page.
func (s *JobList) takePage(page *jobq.Page) {
	s.known = true
	if _, _, goesOn := s.searching(); goesOn && len(s.rows) == 0 && len(page.Jobs) == 0 {
		return // the search is further down already
	}
	if len(s.rows) == 0 || s.follow && s.keeps(page.Jobs) {
		s.replace(page)
		return
	}
	s.follow = false // the cursor's job has left: what became of it is asked for by id
	known := make(map[int64]*jobq.Job, len(s.rows))
	for _, row := range s.rows {
		known[row.ID] = row
	}
	s.above = 0
	reached := false // the first row that is known
	for _, job := range page.Jobs {
		row, ok := known[job.ID]
		switch {
		case ok:
			*row = *job
			delete(s.left, job.ID)
			reached = true
		case !reached:
			s.above++
		}
	}
}

// keeps says whether the page has the cursor's job, or may go without it.
func (s *JobList) keeps(jobs []*jobq.Job) bool {
	return s.cursor == 0 || slices.ContainsFunc(jobs, func(job *jobq.Job) bool { return job.ID == s.cursor })
}

// replace makes the page the list.
func (s *JobList) replace(page *jobq.Page) {
	s.rows, s.next, s.above, s.more = page.Jobs, page.Cursor, 0, false
	clear(s.left)
	if s.at() < 0 {
		s.cursor = 0
	}
	if s.cursor == 0 && len(s.rows) > 0 {
		s.cursor = s.rows[0].ID
	}
	for id := range s.marks {
		if s.indexOf(id) < 0 {
			delete(s.marks, id)
		}
	}
	s.searchOn()
}

// searchOn asks for the jobs below those that were searched until the screen is full.
func (s *JobList) searchOn() {
	if _, _, goesOn := s.searching(); goesOn {
		s.askMore(len(s.rows) < s.visible)
	}
}

// takeMore adds the page after, and goes on to the end when that was asked for.
func (s *JobList) takeMore(page *jobq.Page) {
	s.rows = append(s.rows, page.Jobs...)
	s.next, s.stopped = page.Cursor, ""
	if s.recent { // the first page is not all that there is to see
		s.follow = false
	}
	if s.cursor == 0 && len(s.rows) > 0 {
		s.cursor = s.rows[0].ID
	}
	if s.toEnd && len(s.rows) > 0 {
		s.cursor = s.rows[len(s.rows)-1].ID
		s.more = s.next != "" && len(s.rows) < rowsMax
		s.toEnd = s.more
	}
	s.searchOn()
	s.stretch()
}

// takeLooked updates rows in place with what has become of their jobs. A job that
// was looked for and not found was deleted.
func (s *JobList) takeLooked(looked looked) {
	now := s.Paint.Now()
	for _, row := range s.rows {
		job, found := looked.found[row.ID]
		switch {
		case found:
			*row = *job
			s.notice(row, now)
		case looked.ids[row.ID] && s.left[row.ID].IsZero():
			row.State = jobq.StateDeleted
			s.left[row.ID] = now
		}
	}
}

// notice remembers when a row's job left the list's state.
func (s *JobList) notice(row *jobq.Job, now time.Time) {
	if s.tab.holds(row) {
		delete(s.left, row.ID)
	} else if s.left[row.ID].IsZero() {
		s.left[row.ID] = now
	}
}

// patch shows at once what an action has done.
func (s *JobList) patch(acted Acted) {
	for _, job := range acted.Jobs {
		at := s.indexOf(job.ID)
		if job.Problem != "" || job.After == "" || at < 0 {
			continue
		}
		row := s.rows[at]
		row.State = job.After
		if job.After != jobq.StateRunning {
			row.StartedAt = nil
		}
		s.notice(row, s.Paint.Now())
		s.follow = false
	}
}

// age drops rows that have left a while ago, but for the one under the cursor.
func (s *JobList) age(now time.Time) {
	for id, at := range s.left {
		if id != s.cursor && now.Sub(at) > leftShown {
			s.drop(id)
		}
	}
}

// settle forgets what would not be true any more after a while out of sight.
func (s *JobList) settle() {
	for id := range s.left {
		if id != s.cursor {
			s.drop(id)
		}
	}
}

func (s *JobList) drop(id int64) {
	at := s.indexOf(id)
	delete(s.left, id)
	if at < 0 {
		return
	}
	s.rows = slices.Delete(slices.Clone(s.rows), at, at+1)
	delete(s.marks, id)
	if at < s.offset {
		s.offset--
	}
}

func (s *JobList) indexOf(id int64) int {
	return slices.IndexFunc(s.rows, func(row *jobq.Job) bool { return row.ID == id })
}

// at is the place of the cursor's job, or -1.
func (s *JobList) at() int { return s.indexOf(s.cursor) }

// selected is the job under the cursor, or nil.
func (s *JobList) selected() *jobq.Job {
	if at := s.at(); at >= 0 {
		return s.rows[at]
	}
	return nil
}

// previewed is the id of the job under the cursor that is still there, or 0.
func (s *JobList) previewed() int64 {
	if job := s.selected(); job != nil && job.State != jobq.StateDeleted {
		return job.ID
	}
	return 0
}

// filterText is the tab and the filter as one text.
func (s *JobList) filterText() string { return strings.TrimSpace(s.tab.term() + " " + s.match) }

// Match is the operator's filter, beside the state that the list is about.
func (s *JobList) Match() string { return s.match }
