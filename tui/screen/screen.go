// Package screen has the screens of the terminal UI. Each is a component: it keeps
// what it shows, takes messages, and draws. A screen knows neither the root nor
// another screen; what it wants to be done it returns as a request.
package screen

import (
	"encoding/json"
	"fmt"
	"strings"

	tea "charm.land/bubbletea/v2"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/monitor"
	"github.com/jobq-dev/jobq/operator"
	"github.com/jobq-dev/jobq/tui/command"
	"github.com/jobq-dev/jobq/tui/data"
	"github.com/jobq-dev/jobq/tui/request"
	"github.com/jobq-dev/jobq/tui/widget"
)

// Screen is one of the screens.
type Screen interface {
	// SetSize says how large the body of the screen is.
	SetSize(cells, lines int)
	// Update takes a message in, and returns what the root is to do; nil for
	// nothing.
	Update(msg tea.Msg) tea.Msg
	// View draws the screen. It changes nothing.
	View() View
	// Told is the same in lines of words, for those who hear it.
	Told() []string
	// Actions are what the screen does for commands, by their ids.
	Actions() map[string]Action
	// Wants are the questions whose answers it shows.
	Wants() []data.Want
	// Selected is what an action is about.
	Selected() Selection
}

// Name names a screen.
type Name string

// The screens, as the settings and the command line name them.
const (
	Overview  Name = "overview"
	Jobs      Name = "jobs"
	Queues    Name = "queues"
	Workers   Name = "workers"
	Schedules Name = "schedules"
	Errors    Name = "errors"
	Audit     Name = "audit"
	Job       Name = "job"
)

// Names are all screens. Job has no key of its own: it is opened from others.
func Names() []Name { return []Name{Overview, Jobs, Queues, Workers, Schedules, Errors, Audit, Job} }

// View is what a screen looks like.
type View struct {
	Head  string   // in place of the names of the screens; empty for those
	Lines []string // no more than there is room for
	// Cursor is the line of the selected row, where the terminal's own cursor
	// goes; -1 for none.
	Cursor int
}

// Action is what a part of the UI does for a command.
type Action struct {
	Title    string        // in the hints, where it is now another than the command's
	Disabled func() string // why it cannot be done now; nil for always
	Alone    bool          // not while something is under way, whose end it must know
	Run      func() tea.Msg
}

// Selection is what an action on the screen is about. What does not apply is nil.
type Selection struct {
	Targets  []operator.Target // jobs, as the operator sees them
	All      *AllMatching      // in place of them: all that match a filter
	Counting bool              // All is about to be set
	Cursor   int64             // the job under the cursor; 0 for none
	Job      *jobq.Job         // the same with its args, where they are known
	Steps    []monitor.Step    // the last ones of that job, where they are known
	Queue    *monitor.Queue
	Keys     *KeySelection // of the queue that is open
	Worker   *monitor.Worker
	Schedule *monitor.Schedule
	Entry    *monitor.AuditEntry
	List     string // the command that lists the same jobs
	Match    string // the filter that finds them, where they are a group
	// Place is the message that brings this view of the screen back.
	Place tea.Msg
	// Rows are what the screen has loaded, one JSON object each, and Noun is what
	// they are: "jobs". Columns are those that a table of them has in any case.
	Rows    func() []json.RawMessage
	Noun    string
	Columns []string
}

// KeySelection is one of the partition keys of a queue.
type KeySelection struct {
	Queue string
	Key   *monitor.Key // nil for none
}

// AllMatching is a selection by filter: what it meant when it was made.
type AllMatching struct {
	Filter   string
	Snapshot operator.BulkSnapshot
}

// The messages that all screens take. Beside them there are data.Answer and
// data.Feed.
type (
	// Click is a click on a line of the body.
	Click struct{ Line int }
	// Pick chooses a row by its number, from 1.
	Pick struct{ Row int }
	// Scroll moves so many rows.
	Scroll struct{ By int }
	// Back is what esc means on the screen, if it means anything there.
	Back struct{}
	// Tick says that time has passed.
	Tick struct{}
	// Left says that the screen is shown no more.
	Left struct{}
	// Acted is what an action has done to jobs.
	Acted struct{ *operator.Acted }
)

// Kit is what all screens are given.
type Kit struct {
	Paint *widget.Painter
	Facts *data.Facts
	// Key is the key of a command as the operator has it, for texts that name one.
	Key func(id string) string
	// Codec decodes what the page of one job shows; nil for nothing.
	Codec jobq.Codec
}

// base is what all screens have.
type base struct {
	Kit
	cells, lines int
}

func (b *base) SetSize(cells, lines int) { b.cells, b.lines = cells, lines }

// wide and narrow are the widths at which screens look different.
func (b *base) wide() bool   { return b.cells >= 120 }
func (b *base) narrow() bool { return b.cells < 80 }

// waiting is what stands where an answer is yet to come.
func (b *base) waiting(p data.Panel) string {
	if err := b.Facts.Err(p); err != nil {
		return b.Paint.Warn.Render(Problem(err))
	}
	return b.Paint.Muted.Render(b.Paint.Spinner() + " asking the database")
}

// moves are the actions that move by rows and to the ends, and those that scroll by
// pages of what is visible, which is the same in a list.
func moves(move, scroll func(by int) tea.Msg, page func() int, top, end func() tea.Msg) map[string]Action {
	by := func(rows int) Action { return Action{Run: func() tea.Msg { return move(rows) }} }
	scrolled := func(lines func() int) Action { return Action{Run: func() tea.Msg { return scroll(lines()) }} }
	return map[string]Action{
		command.Down:     by(1),
		command.Up:       by(-1),
		command.HalfDown: scrolled(func() int { return max(page()/2, 1) }),
		command.HalfUp:   scrolled(func() int { return -max(page()/2, 1) }),
		command.PageDown: scrolled(page),
		command.PageUp:   scrolled(func() int { return -page() }),
		command.Top:      {Run: top},
		command.End:      {Run: end},
	}
}

// toldRow is a row with its number, by which it can be picked.
func toldRow(i, count int, selected bool, text string) string {
	row := fmt.Sprintf("%d of %d: %s", i+1, count, strings.TrimRight(text, ", "))
	if selected {
		row += ", selected"
	}
	return row
}

func noRow(row int) tea.Msg { return request.Tell{Text: fmt.Sprintf("no row %d here", row)} }

// encoded are rows as JSON. What came from the database always encodes.
func encoded[T any](rows []T) []json.RawMessage {
	lines := make([]json.RawMessage, 0, len(rows))
	for _, row := range rows {
		if line, err := json.Marshal(row); err == nil {
			lines = append(lines, line)
		}
	}
	return lines
}
