package tui

import (
	"slices"
	"strings"

	tea "charm.land/bubbletea/v2"

	"github.com/jobq-dev/jobq"
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
	screens  []screen // nil for all
	class    class
	drawn    bool                // is about the drawn screen: plain mode goes without
	disabled func(*Model) string // why it cannot be done now; nil for always
	run      func(*Model) tea.Cmd
}

var (
	onJobs   = []screen{screenJobs}
	onJob    = []screen{screenJob}
	onBoth   = []screen{screenJobs, screenJob}
	onQueues = []screen{screenOverview, screenQueues}

	onWorkers = []screen{screenWorkers}
	onAudit   = []screen{screenAudit}
	notOnJob  = []screen{screenOverview, screenJobs, screenQueues, screenWorkers, screenAudit}
)

// commands is the registry.
func commands() []*command {
	return slices.Concat(screenCommands(), moveCommands(), actionCommands(), listCommands(), otherCommands())
}

func screenCommands() []*command {
	top := func(id, key, help string, s screen) *command {
		return &command{id: id, keys: []string{key}, help: help, run: func(m *Model) tea.Cmd { return m.showTop(s) }}
	}
	return []*command{
		top("overview", "1", "Overview: is anything wrong, and where", screenOverview),
		top("jobs", "2", "Jobs", screenJobs),
		top("queues", "3", "Queues", screenQueues),
		top("workers", "4", "Workers, leader and janitor", screenWorkers),
		top("audit", "6", "Audit: who did what", screenAudit),
		{id: "open", keys: []string{"enter"}, title: "open", help: "Open what is under the cursor", run: (*Model).open},
		{id: "back", keys: []string{"esc"}, help: "Go back: selection, filter, screen", run: (*Model).leave},
		{id: "backward", keys: []string{"["}, help: "The view that was seen before", screens: notOnJob, run: (*Model).backward},
		{id: "forward", keys: []string{"]"}, help: "The view that was gone back from", screens: notOnJob, run: (*Model).forward},
	}
}

func moveCommands() []*command {
	move := func(id, help string, by int, keys ...string) *command {
		return &command{id: id, keys: keys, help: help, run: func(m *Model) tea.Cmd { return m.move(by) }}
	}
	return []*command{
		move("down", "One down", 1, "j", "down"),
		move("up", "One up", -1, "k", "up"),
		move("half-down", "Ten down", 10, "ctrl+d"),
		move("half-up", "Ten up", -10, "ctrl+u"),
		move("page-down", "A page down", 20, "ctrl+f", "pgdown"),
		move("page-up", "A page up", -20, "ctrl+b", "pgup"),
		move("end", "To the end", 1_000_000, "G", "end"),
		{id: "top", keys: []string{"g", "home"}, help: "To the top; the list follows what is new", run: (*Model).goTop},
	}
}

func listCommands() []*command {
	tabBy := func(by tab) func(*Model) tea.Cmd {
		return func(m *Model) tea.Cmd {
			m.jobs.setTab(m.jobs.tab + by)
			m.renew(panelPage, panelVisible, panelCount)
			return nil
		}
	}
	return []*command{
		{id: "next-tab", keys: []string{"l", "right", "tab"}, help: "Next state", screens: onJobs, run: tabBy(1)},
		{id: "previous-tab", keys: []string{"h", "left", "shift+tab"}, help: "Previous state", screens: onJobs, run: tabBy(-1)},
		{id: "filter", keys: []string{"/"}, title: "filter", help: "Filter jobs: " + grammarHint + "; in a job, search its output", run: (*Model).askFilter},
		{id: "next-match", keys: []string{"n"}, help: "The next line of the output that the search finds", screens: onJob, disabled: noSearch, run: func(m *Model) tea.Cmd { return m.findMatch(1) }},
		{id: "previous-match", keys: []string{"N"}, help: "The previous one", screens: onJob, disabled: noSearch, run: func(m *Model) tea.Cmd { return m.findMatch(-1) }},
		{id: "sort", keys: []string{"s"}, help: "Sort by what an index has", screens: onJobs, run: (*Model).openSort},
		{id: "reverse", keys: []string{"S"}, help: "Turn the order around", screens: onJobs, run: (*Model).turnAround},
		{id: "mark", keys: []string{"space"}, title: "mark", help: "Mark the job, and go on", screens: onJobs, disabled: noJob, run: (*Model).mark},
		{id: "range", keys: []string{"v"}, help: "Mark a range: moving marks, until this is pressed again", screens: onJobs, disabled: noJob, run: (*Model).toggleRange},
		{id: "mark-loaded", keys: []string{"*"}, help: "Mark all jobs that are loaded, or none", screens: onJobs, disabled: noJob, run: (*Model).markLoaded},
		{id: "select-all", keys: []string{"A"}, title: "all matching", help: "Select all jobs that match the filter now", screens: onJobs, disabled: noJob, run: (*Model).selectAll},
		{id: "newer", keys: []string{"["}, help: "The job above in the list", screens: onJob, run: func(m *Model) tea.Cmd { return m.neighbour(-1) }},
		{id: "older", keys: []string{"]"}, help: "The job below in the list", screens: onJob, run: func(m *Model) tea.Cmd { return m.neighbour(1) }},
		{id: "panel", keys: []string{"tab", "shift+tab"}, help: "Move in the output, or among the runs", screens: onJob, run: func(m *Model) tea.Cmd {
			m.job.focused = !m.job.focused
			return nil
		}},
		{id: "output", keys: []string{"L"}, title: "output", help: "The run's output, full screen", screens: onJob, run: func(m *Model) tea.Cmd {
			m.job.output, m.job.scroll = !m.job.output, 0
			return nil
		}},
	}
}

func actionCommands() []*command {
	act := func(action jobq.Action) func(*Model) tea.Cmd {
		return func(m *Model) tea.Cmd { return m.act(action) }
	}
	return []*command{
		{id: "requeue", keys: []string{"r"}, title: "requeue", help: "Make the job available now; undo takes it back", screens: onBoth, class: reversible, disabled: noRequeue, run: act(jobq.ActionRequeue)},
		{id: "cancel", keys: []string{"c"}, title: "cancel", help: "Cancel the job; asks when it runs", screens: onBoth, class: reversible, disabled: noCancel, run: act(jobq.ActionCancel)},
		{id: "edit", drawn: true, keys: []string{"e"}, title: "edit", help: "Change a job that waits, in your editor", screens: onBoth, class: reversible, disabled: noEdit, run: func(m *Model) tea.Cmd { return m.edit(false) }},
		{id: "clone", drawn: true, keys: []string{"C"}, help: "Make a new job of the job, in your editor", screens: onBoth, class: reversible, disabled: noClone, run: func(m *Model) tea.Cmd { return m.edit(true) }},
		{id: "delete", keys: []string{"D"}, title: "Delete", help: "Delete the job with its history", screens: onBoth, class: destructive, disabled: noDelete, run: act(jobq.ActionDelete)},
		{id: "pause", keys: []string{"p"}, title: "pause", help: "Pause the queue, or let it go on", screens: onQueues, class: reversible, disabled: noQueue, run: (*Model).togglePause},
		{id: "drain", keys: []string{"d"}, title: "drain", help: "Ask the worker to take no new work, and to leave when its jobs have ended", screens: onWorkers, class: destructive, disabled: noDrain, run: (*Model).drain},
		{id: "resume", keys: []string{"R"}, title: "Resume", help: "Go on with an action by filter that was stopped", screens: onAudit, class: destructive, disabled: noResume, run: (*Model).resumeBulk},
		{id: "undo", keys: []string{"u", "z"}, help: "Undo the last action on jobs that nothing has happened to since; on the Audit screen, the action under the cursor", class: reversible, disabled: noUndo, run: (*Model).undo},
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
			m.need(m.wanted()...)
			return nil
		}},
		{id: "wide", keys: []string{"w"}, help: "Other columns: priority, creation, worker, tags", screens: onJobs, run: func(m *Model) tea.Cmd {
			m.look.wide = !m.look.wide
			return nil
		}},
		{id: "times", keys: []string{"T"}, help: "Times in UTC, or how long ago", run: func(m *Model) tea.Cmd {
			m.paint.Absolute = !m.paint.Absolute
			return nil
		}},
		{id: "mouse", drawn: true, keys: []string{"M"}, help: "Take the mouse, or give it back to the terminal", run: (*Model).toggleMouse},
		{id: "refetch", keys: []string{"ctrl+r"}, help: "Ask the database again", run: func(m *Model) tea.Cmd {
			m.renew(m.wanted()...)
			return nil
		}},
		{id: "redraw", drawn: true, keys: []string{"ctrl+l"}, help: "Draw the screen again", run: func(*Model) tea.Cmd { return tea.ClearScreen }},
		{id: "help", keys: []string{"?"}, title: "help", help: "What the keys do", run: (*Model).openHelp},
		{id: "suspend", drawn: true, keys: []string{"ctrl+z"}, help: "Suspend; stops listening to the database meanwhile", run: (*Model).suspend},
		{id: "quit", keys: []string{"q"}, title: "quit", help: "Quit; in a screen opened from another, go back", run: func(m *Model) tea.Cmd {
			if len(m.back) > 0 && m.screen == screenJob {
				return m.leave()
			}
			return tea.Quit
		}},
	}
}

const grammarHint = `state:failed queue:email kind:Send* err:"smtp 421" age:<2h args.tenant=4411`

// commandFor is the command of a key on a screen, or nil. Those of the screen
// come before those of all.
func (m *Model) commandFor(s screen, key string) *command {
	var general *command
	for _, c := range m.env.commands {
		if !slices.Contains(c.keys, key) {
			continue
		}
		if slices.Contains(c.screens, s) {
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
	help, used := m.keyOf("help")+" help", 0
	for _, c := range m.env.commands {
		if c.title == "" || c.screens != nil && !slices.Contains(c.screens, m.screen) {
			continue
		}
		if c.id == "filter" && m.screen == screenJob || c.class != reading && m.writeDisabled() != "" {
			continue
		}
		hint := c.keys[0] + " " + c.title
		if c.id == "help" || used+len(hint)+2 > cells-len(help)-2 {
			continue
		}
		used += len(hint) + 2
		hints = append(hints, m.paint.Title.Render(c.keys[0])+" "+c.title)
	}
	return strings.Join(append(hints, m.paint.Title.Render(m.keyOf("help"))+" help"), "  ")
}
