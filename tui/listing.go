package tui

import (
	"fmt"
	"maps"

	tea "charm.land/bubbletea/v2"

	"github.com/jobq-dev/jobq"
)

// order is an order of jobs that an index has: a page then costs the same
// however deep it is.
type order struct {
	title   string
	sort    jobq.Sort
	reverse bool
}

// orders are those of the tab's jobs, its own first.
func (t tab) orders() []order {
	byID := []order{{"newest first", jobq.NewestFirst, false}, {"oldest first", jobq.NewestFirst, true}}
	switch t {
	case tabFailed, tabCancelled:
		return append([]order{{"last ended first", jobq.FinishedFirst, false}, {"first ended first", jobq.FinishedFirst, true}}, byID...)
	case tabScheduled, tabRetrying:
		return append([]order{{"next due first", jobq.DueFirst, false}, {"last due first", jobq.DueFirst, true}}, byID...)
	case tabAll, tabAvailable, tabRunning, tabCompleted, tabEnd:
	}
	return byID
}

// order is the one that the list has.
func (j *jobsModel) order() order {
	sort := j.sort
	if sort == "" {
		sort = j.tab.orders()[0].sort
	}
	for _, o := range j.tab.orders() {
		if o.sort == sort && o.reverse == j.reverse {
			return o
		}
	}
	return j.tab.orders()[0]
}

// setOrder makes the list another one.
func (m *Model) setOrder(o order) tea.Cmd {
	m.jobs.sort, m.jobs.reverse = o.sort, o.reverse
	m.jobs.reset()
	m.renew(panelPage, panelVisible, panelCount)
	return nil
}

// turnAround reverses the order.
func (m *Model) turnAround() tea.Cmd {
	o := m.jobs.order()
	return m.setOrder(order{sort: o.sort, reverse: !o.reverse})
}

// markRange is a range of marks that grows and shrinks with the cursor.
type markRange struct {
	from   int64          // the job where it began
	before map[int64]bool // what was marked besides
}

// toggleRange begins a range of marks at the cursor, or ends it.
func (m *Model) toggleRange() tea.Cmd {
	j := &m.jobs
	if j.ranged != nil {
		j.ranged = nil
		return nil
	}
	j.all, j.follow = nil, false
	j.ranged = &markRange{j.cursor, maps.Clone(j.marks)}
	j.stretch()
	m.say(fmt.Sprintf("range: moving marks; %s ends it, %s drops the marks", m.keyOf("range"), m.keyOf("back")))
	return nil
}

// stretch marks what lies between the beginning of the range and the cursor.
func (j *jobsModel) stretch() {
	if j.ranged == nil {
		return
	}
	from, to := j.indexOf(j.ranged.from), j.at()
	if from < 0 || to < 0 {
		j.ranged = nil // its first job has gone
		return
	}
	clear(j.marks)
	for i, row := range j.rows {
		if i >= min(from, to) && i <= max(from, to) || j.ranged.before[row.ID] {
			j.marks[row.ID] = true
		}
	}
}

// unmark drops all marks and selections.
func (j *jobsModel) unmark() {
	clear(j.marks)
	j.all, j.ranged = nil, nil
}
