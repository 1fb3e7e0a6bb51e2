package tui

import (
	"slices"
	"strings"

	tea "charm.land/bubbletea/v2"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/tui/screen"
	"github.com/jobq-dev/jobq/tui/widget"
)

// class says how much a command does.
type class int

const (
	reading     class = iota
	reversible        // can be undone, and does not ask unless the context is production
	destructive       // always asks
)

// command is something an operator can do. The keys, the help, the palette,
// the hints at the bottom and docs/keys.md are all made of this list.
type command struct {
	id       string
	keys     []string
	title    string // in the hints; empty for none
	help     string
	screens  []screen.Name // nil for all
	class    class
	drawn    bool                 // is about the drawn screen: plain mode goes without
	disabled func(*Model) string  // why it cannot be done now; nil for always
	run      func(*Model) tea.Cmd // nil where the screen has an action for it
}

var (
	onJobs   = []screen.Name{screen.Jobs}
	onJob    = []screen.Name{screen.Job}
	onBoth   = []screen.Name{screen.Jobs, screen.Job}
	onFailed = []screen.Name{screen.Jobs, screen.Job, screen.Errors}
	onQueues = []screen.Name{screen.Overview, screen.Queues}

	onWorkers = []screen.Name{screen.Workers}
	onAudit   = []screen.Name{screen.Audit}
	notOnJob  = []screen.Name{screen.Overview, screen.Jobs, screen.Queues, screen.Workers, screen.Errors, screen.Audit}
)

// on says whether the command can be given on the screen.
func (c *command) on(name screen.Name) bool {
	return c.screens == nil || slices.Contains(c.screens, name)
}

// commands is the registry.
func commands() []*command {
	return slices.Concat(screenCommands(), moveCommands(), actionCommands(), listCommands(), otherCommands())
}

func screenCommands() []*command {
	top := func(name screen.Name, key, help string) *command {
		return &command{id: string(name), keys: []string{key}, help: help, run: func(m *Model) tea.Cmd { return m.showTop(name) }}
	}
	return []*command{
		top(screen.Overview, "1", "Overview: is anything wrong, and where"),
		top(screen.Jobs, "2", "Jobs"),
		top(screen.Queues, "3", "Queues"),
		top(screen.Workers, "4", "Workers, leader and janitor"),
		top(screen.Errors, "5", "Errors: why jobs have failed, in groups"),
		top(screen.Audit, "6", "Audit: who did what"),
		{id: "open", keys: []string{"enter"}, title: "open", help: "Open what is under the cursor"},
		{id: "back", keys: []string{"esc"}, help: "Go back: selection, filter, full screen, screen", run: (*Model).leave},
		{id: "backward", keys: []string{"["}, help: "The view that was seen before this one", screens: notOnJob, run: (*Model).backward},
		{id: "forward", keys: []string{"]"}, help: "Forward again, after going to a view seen before", screens: notOnJob, run: (*Model).forward},
	}
}

func moveCommands() []*command {
	return []*command{
		{id: "down", keys: []string{"j", "down"}, help: "One row down"},
		{id: "up", keys: []string{"k", "up"}, help: "One row up"},
		{id: "half-down", keys: []string{"ctrl+d"}, help: "Half a page down"},
		{id: "half-up", keys: []string{"ctrl+u"}, help: "Half a page up"},
		{id: "page-down", keys: []string{"ctrl+f", "pgdown"}, help: "A page down: as many rows as are visible"},
		{id: "page-up", keys: []string{"ctrl+b", "pgup"}, help: "A page up"},
		{id: "end", keys: []string{"G", "end"}, help: "To the end; output is followed from there"},
		{id: "top", keys: []string{"g", "home"}, help: "To the top; a list of jobs follows new ones from there"},
	}
}

func listCommands() []*command {
	return []*command{
		{id: "next-tab", keys: []string{"l", "right", "tab"}, help: "The next state", screens: onJobs},
		{id: "previous-tab", keys: []string{"h", "left", "shift+tab"}, help: "The previous state", screens: onJobs},
		{id: "filter", keys: []string{"/"}, title: "filter", help: "Filter jobs: " + grammarHint + "; in a job, search its output", run: (*Model).askFilter},
		{id: "next-match", keys: []string{"n"}, help: "The next line of the output that has the text searched for", screens: onJob},
		{id: "previous-match", keys: []string{"N"}, help: "The previous such line", screens: onJob},
		{id: "sort", keys: []string{"s"}, help: "Sort the list", screens: onJobs},
		{id: "reverse", keys: []string{"S"}, help: "Turn the order around", screens: onJobs},
		{id: "mark", keys: []string{"space"}, title: "mark", help: "Mark the job, and go on to the next", screens: onJobs},
		{id: "range", keys: []string{"v"}, help: "Mark a range: moving marks, until this is pressed again", screens: onJobs},
		{id: "mark-loaded", keys: []string{"*"}, help: "Mark all jobs that are loaded, or none", screens: onJobs},
		{id: "select-all", keys: []string{"A"}, title: "all matching", help: "Select all jobs that match the filter now", screens: onJobs},
		{id: "newer", keys: []string{"["}, help: "The job above this one in the list", screens: onJob},
		{id: "older", keys: []string{"]"}, help: "The job below this one in the list", screens: onJob},
		{id: "panel", keys: []string{"tab", "shift+tab"}, help: "Move in the output, or among the runs", screens: onJob},
		{id: "output", keys: []string{"L"}, title: "output", help: "The run's output on the full screen", screens: onJob},
	}
}

func actionCommands() []*command {
	act := func(action jobq.Action) func(*Model) tea.Cmd {
		return func(m *Model) tea.Cmd { return m.act(action) }
	}
	return []*command{
		{id: "requeue", keys: []string{"r"}, title: "requeue", help: "Let the job run again as soon as it can; on the Errors screen, all jobs of the group; undo takes it back", screens: onFailed, class: reversible, disabled: noRequeue, run: act(jobq.ActionRequeue)},
		{id: "cancel", keys: []string{"c"}, title: "cancel", help: "Cancel the job; asks when it runs", screens: onBoth, class: reversible, disabled: noCancel, run: act(jobq.ActionCancel)},
		{id: "edit", drawn: true, keys: []string{"e"}, title: "edit", help: "Change a job that waits, in your editor", screens: onBoth, class: reversible, disabled: noEdit, run: func(m *Model) tea.Cmd { return m.edit(false) }},
		{id: "clone", drawn: true, keys: []string{"C"}, help: "Make a new job like this one, in your editor", screens: onBoth, class: reversible, disabled: noClone, run: func(m *Model) tea.Cmd { return m.edit(true) }},
		{id: "delete", keys: []string{"D"}, title: "Delete", help: "Delete the job with its history", screens: onBoth, class: destructive, disabled: noDelete, run: act(jobq.ActionDelete)},
		{id: "pause", keys: []string{"p"}, title: "pause", help: "Pause the queue and say why, or let it go on", screens: onQueues, class: reversible, disabled: noQueue, run: (*Model).togglePause},
		{id: "drain", keys: []string{"d"}, title: "drain", help: "Ask the worker to take no new jobs, and to stop when those it has are finished", screens: onWorkers, class: destructive, disabled: noDrain, run: (*Model).drain},
		{id: "resume", keys: []string{"R"}, title: "Resume", help: "Go on with an action by filter that was stopped", screens: onAudit, class: destructive, disabled: noResume, run: (*Model).resumeBulk},
		{id: "undo", keys: []string{"u", "z"}, help: "Undo the last action, on the jobs that have not changed since; on the Audit screen, the action under the cursor", class: reversible, disabled: noUndo, run: (*Model).undo},
	}
}

func otherCommands() []*command {
	return []*command{
		{id: "copy", keys: []string{"y"}, title: "copy", help: "Copy an id, a permalink, or the command line that does the same", run: (*Model).openCopy},
		{id: "export", keys: []string{"x"}, help: "Write what the screen has loaded to a file, as JSON lines or CSV", run: (*Model).openExport},
		{id: "palette", keys: []string{":", "ctrl+p"}, title: "command", help: "Type a command, `job ID`, `jobs FILTER`, `ctx NAME` or `theme NAME`", run: (*Model).openPalette},
		{id: "contexts", keys: []string{"@"}, help: "Go to another database of your settings; in the palette, `ctx NAME` does", disabled: noContexts, run: (*Model).openContexts},
		{id: "freeze", keys: []string{"f"}, title: "freeze", help: "Let the screen stand still, or follow again", run: func(m *Model) tea.Cmd {
			m.frozen = !m.frozen
			m.need()
			return nil
		}},
		{id: "wide", keys: []string{"w"}, help: "Other columns: priority, creation, worker, tags", screens: onJobs},
		{id: "times", keys: []string{"T"}, help: "Times in UTC, or how long ago", run: func(m *Model) tea.Cmd {
			m.paint.Absolute = !m.paint.Absolute
			return nil
		}},
		{id: "mouse", drawn: true, keys: []string{"M"}, help: "Take the mouse, or give it back to the terminal", run: (*Model).toggleMouse},
		{id: "refetch", keys: []string{"ctrl+r"}, help: "Ask the database again", run: func(m *Model) tea.Cmd {
			for _, want := range m.wanted() {
				m.renew(want.Panel)
			}
			return nil
		}},
		{id: "redraw", drawn: true, keys: []string{"ctrl+l"}, help: "Draw the screen again", run: func(*Model) tea.Cmd { return tea.ClearScreen }},
		{id: "help", keys: []string{"?"}, title: "help", help: "What the keys do", run: (*Model).openHelp},
		{id: "suspend", drawn: true, keys: []string{"ctrl+z"}, help: "Suspend; stops listening to the database meanwhile", run: (*Model).suspend},
		{id: "quit", keys: []string{"q"}, title: "quit", help: "Quit; in a screen opened from another, go back", run: func(m *Model) tea.Cmd {
			if len(m.back) > 0 && m.at == screen.Job {
				return m.leave()
			}
			return tea.Quit
		}},
	}
}

// suspend stops the program as the shell's job control does. It stops
// listening before: a stopped listener keeps VACUUM from removing anything in
// the whole database.
func (m *Model) suspend() tea.Cmd {
	m.suspended = true
	return tea.Sequence(m.env.send.pause(), tea.Suspend)
}

const grammarHint = `state:failed queue:email kind:Send* err:"smtp 421" age:<2h args.tenant=4411`

// commandFor is the command of a key on a screen, or nil. Those of the screen
// come before those of all.
func (e *env) commandFor(name screen.Name, key string) *command {
	var general *command
	for _, c := range e.commands {
		if !slices.Contains(c.keys, key) {
			continue
		}
		if slices.Contains(c.screens, name) {
			return c
		}
		if c.screens == nil {
			general = c
		}
	}
	return general
}

// keyHints are the keys that matter most on the screen.
func (m *Model) keyHints(cells int) string {
	var hints []string
	help, used := m.env.keyOf("help")+" help", 0
	for _, c := range m.env.commands {
		if c.title == "" || !c.on(m.at) || c.id == "help" {
			continue
		}
		if c.id == "filter" && m.at == screen.Job || c.class != reading && m.writeDisabled() != "" {
			continue
		}
		hint := widget.Width(c.keys[0] + " " + c.title)
		if used+hint+2 > cells-len(help)-2 {
			continue
		}
		used += hint + 2
		hints = append(hints, m.paint.Title.Render(c.keys[0])+" "+c.title)
	}
	return strings.Join(append(hints, m.paint.Title.Render(m.env.keyOf("help"))+" help"), "  ")
}
