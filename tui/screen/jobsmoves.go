package screen

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	tea "charm.land/bubbletea/v2"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/format"
	"github.com/jobq-dev/jobq/operator"
	"github.com/jobq-dev/jobq/tui/command"
	"github.com/jobq-dev/jobq/tui/data"
	"github.com/jobq-dev/jobq/tui/request"
)

// Actions are what the list does for commands.
func (s *JobList) Actions() map[string]Action {
	actions := moves(s.move, s.move, func() int { return s.visible }, s.top, s.end)
	do := func(disabled func() string, run func() tea.Msg) Action {
		return Action{Disabled: disabled, Run: func() tea.Msg {
			defer s.scroll()
			return run()
		}}
	}
	maps.Copy(actions, map[string]Action{
		command.Open:        do(s.noJob, s.open),
		command.Why:         do(s.noJob, s.why),
		command.Tree:        do(s.noJob, s.tree),
		command.NextTab:     do(nil, func() tea.Msg { return s.turn(1) }),
		command.PreviousTab: do(nil, func() tea.Msg { return s.turn(-1) }),
		command.Sort:        do(nil, s.chooseOrder),
		command.Reverse:     do(nil, s.turnAround),
		command.Mark:        do(s.noJob, s.mark),
		command.Range:       do(s.noJob, s.toggleRange),
		command.MarkLoaded:  do(s.noJob, s.markLoaded),
		command.SelectAll:   do(s.noJob, s.selectAll),
		command.Wide: do(s.allColumns, func() tea.Msg {
			s.columns = !s.columns
			return nil
		}),
	})
	return actions
}

// allColumns says why there are no other columns to see.
func (s *JobList) allColumns() string {
	if s.cells >= allFrom {
		return "all columns are on the screen"
	}
	return ""
}

func (s *JobList) noJob() string {
	if s.selected() == nil {
		return "no job is selected"
	}
	return ""
}

func (s *JobList) why() tea.Msg {
	if job := s.selected(); job != nil {
		return s.askWhy(job.ID)
	}
	return nil
}

func (s *JobList) tree() tea.Msg {
	if job := s.selected(); job != nil {
		return s.askTree(job.ID)
	}
	return nil
}

func (s *JobList) open() tea.Msg {
	if id := s.previewed(); id != 0 {
		return request.Job{ID: id}
	}
	return nil
}

// move moves the cursor by rows. The list then stands still, and asks for more
// when the end comes near.
func (s *JobList) move(by int) tea.Msg {
	if len(s.rows) == 0 {
		s.searchOn()
		return nil
	}
	was := s.cursor
	at := min(max(s.at()+by, 0), len(s.rows)-1)
	s.cursor, s.toEnd = s.rows[at].ID, false
	s.follow = s.follow && at == 0
	if !s.left[was].IsZero() && was != s.cursor {
		s.drop(was)
	}
	s.askMore(at > len(s.rows)-pageSize/2)
	s.stretch()
	s.scroll()
	return nil
}

// askMore asks for the page after the rows, if there is one.
func (s *JobList) askMore(near bool) {
	s.more = s.more || near && s.next != "" && len(s.rows) < rowsMax
}

// top goes to the first job and lets the list follow what is new.
func (s *JobList) top() tea.Msg {
	s.follow, s.cursor, s.offset, s.toEnd = true, 0, 0, false
	if len(s.rows) > 0 && s.above == 0 {
		s.cursor = s.rows[0].ID
	}
	s.asked++
	return nil
}

// end goes to the last job. Pages that are not there yet are asked for, up to
// rowsMax jobs; the cursor goes to their end when they come.
func (s *JobList) end() tea.Msg {
	s.move(len(s.rows))
	s.toEnd = s.next != "" && len(s.rows) < rowsMax
	s.askMore(s.toEnd)
	return nil
}

// step opens the job that is so many rows below another one.
func (s *JobList) step(step Step) tea.Msg {
	at := s.indexOf(step.ID)
	if at < 0 || at+step.By < 0 || at+step.By >= len(s.rows) {
		return request.Tell{Text: "there is no further job in the list"}
	}
	s.move(at + step.By - s.at())
	return request.Job{ID: s.cursor}
}

// reset empties the list, because it is about to be another one.
func (s *JobList) reset() {
	s.rows, s.next, s.more, s.toEnd, s.cursor, s.offset, s.follow, s.above, s.total = nil, "", false, false, 0, 0, true, 0, -1
	s.recent, s.known, s.stopped = false, false, ""
	s.asked++
	clear(s.left)
	s.unmark()
}

func (s *JobList) setTab(t tab) {
	s.tab, s.sort = (t+tabEnd)%tabEnd, ""
	s.reset()
}

func (s *JobList) turn(by tab) tea.Msg {
	s.setTab(s.tab + by)
	return nil
}

func (s *JobList) setMatch(match string) {
	s.match = match
	s.reset()
}

// order is the one that the list has.
func (s *JobList) order() order {
	sort := s.sort
	if sort == "" {
		sort = s.tab.orders()[0].sort
	}
	for _, o := range s.tab.orders() {
		if o.sort == sort && o.reverse == s.reverse {
			return o
		}
	}
	return s.tab.orders()[0]
}

func (s *JobList) setOrder(o order) {
	s.sort, s.reverse = o.sort, o.reverse
	s.reset()
}

// turnAround reverses the order.
func (s *JobList) turnAround() tea.Msg {
	o := s.order()
	s.setOrder(order{sort: o.sort, reverse: !o.reverse})
	return nil
}

// chooseOrder offers the orders that the tab's jobs have.
func (s *JobList) chooseOrder() tea.Msg {
	orders := s.tab.orders()
	items := make([]request.Item, len(orders))
	for i, o := range orders {
		items[i] = request.Item{Text: o.title, Then: o}
	}
	return request.Choose{
		Title: "Sort", Hint: "enter or a number: sort   esc: leave", Items: items, At: slices.Index(orders, s.order()),
		Notes: []string{"Other states have other orders."},
	}
}

// mark marks the job under the cursor, by its id, and goes on to the next.
func (s *JobList) mark() tea.Msg {
	s.ranged = nil
	if s.all = nil; s.marks[s.cursor] {
		delete(s.marks, s.cursor)
	} else {
		s.marks[s.cursor] = true
	}
	return s.move(1)
}

func (s *JobList) markLoaded() tea.Msg {
	marked := len(s.marks) > 0
	if s.unmark(); marked {
		return nil
	}
	for _, row := range s.rows {
		s.marks[row.ID] = true
	}
	s.follow = false
	return nil
}

// markRange is a range of marks that grows and shrinks with the cursor.
type markRange struct {
	from   int64          // the job where it began
	before map[int64]bool // what was marked besides
}

// toggleRange begins a range of marks at the cursor, or ends it.
func (s *JobList) toggleRange() tea.Msg {
	if s.ranged != nil {
		s.ranged = nil
		return nil
	}
	s.all, s.follow = nil, false
	s.ranged = &markRange{s.cursor, maps.Clone(s.marks)}
	s.stretch()
	return request.Tell{Text: fmt.Sprintf("range: moving marks jobs; %s ends it, %s drops the marks", s.Key(command.Range), s.Key(command.Back))}
}

// stretch marks what lies between the beginning of the range and the cursor.
func (s *JobList) stretch() {
	if s.ranged == nil {
		return
	}
	from, to := s.indexOf(s.ranged.from), s.at()
	if from < 0 || to < 0 {
		s.ranged = nil // its first job has gone
		return
	}
	clear(s.marks)
	for i, row := range s.rows {
		if i >= min(from, to) && i <= max(from, to) || s.ranged.before[row.ID] {
			s.marks[row.ID] = true
		}
	}
}

// unmark drops all marks and selections.
func (s *JobList) unmark() {
	clear(s.marks)
	s.all, s.ranged = nil, nil
}

// selectedAll is what matched the filter when all of it was selected.
type selectedAll struct {
	all AllMatching
	err error
}

// selectAll selects what matches the filter at this moment, by the clock of the
// database: what is counted now is what an action will be about.
func (s *JobList) selectAll() tea.Msg {
	s.unmark()
	s.follow, s.counting = false, true
	match := s.filterText()
	return request.Read{Ask: func(ctx context.Context, r data.Reader) tea.Msg {
		snapshot, err := r.BulkSnapshot(ctx, "", jobq.Filter{Match: match}) // which action is not known yet
		return selectedAll{AllMatching{match, snapshot}, err}
	}}
}

// selectedAll shows the selection, unless the list is about other jobs by now or
// some were marked meanwhile.
func (s *JobList) selectedAll(msg selectedAll) tea.Msg {
	s.counting = false
	switch {
	case msg.err != nil:
		return request.Tell{Text: "select-all: " + ShortError(msg.err)}
	case s.filterText() == msg.all.Filter && len(s.marks) == 0:
		s.all = &msg.all
	}
	return nil
}

// Selected are the marked jobs, else the one under the cursor, each as the
// operator sees it.
func (s *JobList) Selected() Selection {
	selection := Selection{
		All: s.all, Counting: s.counting, Cursor: s.cursor, List: s.command(), Place: place{s.tab, s.match}, Noun: "jobs", Columns: format.JobColumns(),
		Rows: func() []json.RawMessage {
			deleted := func(job *jobq.Job) bool { return job.State == jobq.StateDeleted }
			return encoded(slices.DeleteFunc(slices.Clone(s.rows), deleted))
		},
	}
	for _, row := range s.rows {
		if row.State != jobq.StateDeleted && (s.marks[row.ID] || len(s.marks) == 0 && row.ID == s.cursor) {
			selection.Targets = append(selection.Targets, operator.Target{ID: row.ID, State: row.State, LeaseToken: row.LeaseToken})
		}
	}
	if s.story.of(s.cursor) {
		selection.Job = s.story.job
	}
	return selection
}

// command is the command that lists the same jobs, without the filter's quotes.
func (s *JobList) command() string {
	words := []string{"list", format.ShellWord(s.filterText())}
	o := s.order()
	if o.sort != jobq.SortNewest {
		words = append(words, "--sort", string(o.sort))
	}
	if o.reverse {
		words = append(words, "--reverse")
	}
	return strings.Join(words, " ")
}
