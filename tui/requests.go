package tui

import (
	"fmt"
	"slices"

	tea "charm.land/bubbletea/v2"

	"github.com/jobq-dev/jobq/internal/format"
	"github.com/jobq-dev/jobq/tui/overlay"
	"github.com/jobq-dev/jobq/tui/request"
	"github.com/jobq-dev/jobq/tui/widget"
)

// lay puts an overlay over the screen.
func (m *Model) lay(o overlay.Overlay) tea.Cmd {
	o.SetSize(m.width, m.height)
	m.overlay = o
	return nil
}

// toOverlay gives a message to the overlay, and does what that asks for.
func (m *Model) toOverlay(msg tea.Msg) tea.Cmd { return m.came(m.overlay.Update(msg)) }

// came does what an overlay has come to.
func (m *Model) came(result overlay.Result) tea.Cmd {
	if result.Done {
		m.overlay = nil
	}
	return m.request(result.Then)
}

// request does what a screen or an overlay asks for.
func (m *Model) request(msg tea.Msg) tea.Cmd {
	switch msg := msg.(type) {
	case nil:
	case request.Tell:
		m.say(msg.Text)
	case request.Command:
		return m.runNamed(msg.ID)
	case request.Job:
		return m.openJob(msg.ID)
	case request.Jobs:
		m.showMatching(msg.Match)
	case request.Context:
		return m.goTo(msg.Name)
	case request.Theme:
		return m.setTheme(msg.Name)
	case request.Copy:
		return m.copyText(msg.Text)
	case request.Export:
		return m.export(msg.Format)
	case request.Begin:
		return m.begin(msg.Run)
	case request.StopBulk:
		if m.bulk != nil {
			m.bulk.stop()
		}
	case order:
		return m.setOrder(msg)
	case searched:
		return m.search(string(msg))
	}
	return nil
}

// runNamed runs a command by its id, if the screen has it.
func (m *Model) runNamed(id string) tea.Cmd {
	at := slices.IndexFunc(m.env.commands, func(c *command) bool { return c.id == id })
	if at < 0 {
		return nil
	}
	c := m.env.commands[at]
	if !c.on(m.screen) {
		m.say(c.id + ": not on this screen")
		return nil
	}
	return m.run(c)
}

// on says whether the command can be given on the screen.
func (c *command) on(s screen) bool { return c.screens == nil || slices.Contains(c.screens, s) }

// ask asks, and begins the command on a yes. With typed, that must be typed.
func (m *Model) ask(title string, details []string, typed overlay.Typed, run tea.Cmd) {
	details = append([]string{fmt.Sprintf("database  %s  %s", m.env.name, widget.Clean(m.env.host))}, details...)
	m.lay(overlay.NewConfirm(m.paint, overlay.Question{Title: title, Details: details, Typed: typed, Yes: request.Begin{Run: run}}))
}

// openHelp lists the commands.
func (m *Model) openHelp() tea.Cmd {
	var entries []overlay.Entry
	var keys []string
	for _, c := range m.env.commands {
		entries = append(entries, overlay.Entry{ID: c.id, Help: c.help, Keys: c.keys, Here: c.on(m.screen)})
		if c.id == "help" {
			keys = c.keys
		}
	}
	return m.lay(overlay.NewHelp(m.paint, entries, keys))
}

// openCopy offers what can be copied.
func (m *Model) openCopy() tea.Cmd {
	copies := m.copyItems()
	items := make([]overlay.Item, len(copies))
	for i, item := range copies {
		items[i] = overlay.Item{Text: fmt.Sprintf("%-10s %s", item.name, widget.Clean(item.text)), Then: request.Copy{Text: item.text}}
	}
	return m.lay(overlay.NewChoice(m.paint, "Copy", "enter or a number: copy   esc: leave", items, 0))
}

// copyText puts the text on the clipboard, through the terminal, and shows it,
// for terminals that do not let programs do that.
func (m *Model) copyText(text string) tea.Cmd {
	if m.paint.Plain { // to read, or to copy from there
		m.say(text)
		return nil
	}
	m.say("copied: " + text)
	return tea.SetClipboard(text)
}

// openSort lists the orders that the tab's jobs have.
func (m *Model) openSort() tea.Cmd {
	orders := m.jobs.tab.orders()
	items := make([]overlay.Item, len(orders))
	for i, o := range orders {
		items[i] = overlay.Item{Text: o.title, Then: o}
	}
	at := slices.Index(orders, m.jobs.order())
	return m.lay(overlay.NewChoice(m.paint, "Sort", "enter or a number: sort   esc: leave", items, at,
		"Only orders that an index has: another state may have more."))
}

// openContexts lists the databases of the operator's settings.
func (m *Model) openContexts() tea.Cmd {
	items := make([]overlay.Item, len(m.env.contexts))
	for i, c := range m.env.contexts {
		notes := ""
		if c.Production {
			notes += "  production"
		}
		if c.ReadOnly {
			notes += "  read-only"
		}
		if c.Name == m.env.name {
			notes += "  here"
		}
		name := m.paint.Context(c.Color).Render(m.paint.Fit(widget.Clean(c.Name), 16))
		items[i] = overlay.Item{Text: fmt.Sprintf("%s %s%s", name, widget.Clean(c.Database), notes), Then: request.Context{Name: c.Name}}
	}
	at := slices.IndexFunc(m.env.contexts, func(c Context) bool { return c.Name == m.env.name })
	return m.lay(overlay.NewChoice(m.paint, "Contexts", "enter or a number: go there   esc: stay", items, at))
}

// openExport asks for the format of the file.
func (m *Model) openExport() tea.Cmd {
	rows, what := m.exported()
	how := "as they are stored"
	if m.screen == screenJobs {
		how = "without args, checkpoint and result" // which a list does not load: they can be large
	}
	items := []overlay.Item{
		{Key: "j", Text: "JSON lines", Then: request.Export{Format: "jsonl"}},
		{Key: "c", Text: "CSV, one column a field", Then: request.Export{Format: "csv"}},
	}
	return m.lay(overlay.NewChoice(m.paint, "Export", "enter: write it   any other key: leave", items, 0,
		fmt.Sprintf("%s %s, to a file here, %s", format.Number(int64(len(rows))), what, how)))
}
