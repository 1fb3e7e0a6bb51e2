package tui

import (
	"context"
	"fmt"
	"slices"

	tea "charm.land/bubbletea/v2"

	"github.com/jobq-dev/jobq/internal/format"
	"github.com/jobq-dev/jobq/tui/data"
	"github.com/jobq-dev/jobq/tui/overlay"
	"github.com/jobq-dev/jobq/tui/request"
	"github.com/jobq-dev/jobq/tui/screen"
	"github.com/jobq-dev/jobq/tui/widget"
)

// lay puts an overlay over the screen.
func (m *Model) lay(o overlay.Overlay) tea.Cmd {
	o.SetSize(m.width, m.height)
	m.overlay = o
	return nil
}

// askLate asks what an answer of the database has led to: at once, or when the
// overlay that is open by then has been closed. What is being typed there stays,
// and is no answer to a question that nobody has seen.
func (m *Model) askLate(ask func() tea.Cmd) tea.Cmd {
	m.held = append(m.held, ask)
	return m.askHeld()
}

// askHeld asks what was held, unless an overlay is open.
func (m *Model) askHeld() tea.Cmd {
	if m.overlay != nil || len(m.held) == 0 {
		return nil
	}
	ask := m.held[0]
	m.held = m.held[1:]
	return ask()
}

// toOverlay gives a message to the overlay, and does what that asks for.
func (m *Model) toOverlay(msg tea.Msg) tea.Cmd { return m.came(m.overlay.Update(msg)) }

// came does what an overlay has come to.
func (m *Model) came(result overlay.Result) tea.Cmd {
	if result.Done {
		m.overlay = nil
	}
	command := m.request(result.Then)
	return tea.Batch(command, m.askHeld())
}

// request does what a screen or an overlay asks for.
func (m *Model) request(msg tea.Msg) tea.Cmd {
	switch msg := msg.(type) {
	case nil, request.Done:
	case request.Tell:
		m.say(msg.Text)
	case request.Ask:
		return m.lay(overlay.NewConfirm(m.paint, msg))
	case request.Prompt:
		return m.lay(overlay.NewPrompt(m.paint, msg))
	case request.Choose:
		return m.lay(overlay.NewChoice(m.paint, msg))
	case request.Command:
		return m.runNamed(msg.ID)
	case request.Job:
		return m.showJob(msg.ID)
	case request.Jobs:
		return m.showJobs(msg.Match, false)
	case filtered:
		return m.showJobs(string(msg), true)
	case request.Neighbour:
		return m.request(m.screens[screen.Jobs].Update(screen.Step{ID: msg.ID, By: msg.By}))
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
	case request.Read:
		return m.begin(m.read(msg.Ask))
	case request.ActOnAll:
		all := &screen.AllMatching{Filter: msg.Filter, Snapshot: msg.Snapshot}
		return m.askLate(func() tea.Cmd { return m.actOnAll(msg.Action, all) })
	case request.StopBulk:
		if m.bulk != nil {
			m.bulk.stop()
		}
	case effect:
		return msg.apply(m)
	default: // between an overlay and the screen that has asked for it
		return m.toScreen(msg)
	}
	return nil
}

// read asks the database something apart from the model.
func (m *Model) read(ask func(context.Context, data.Reader) tea.Msg) tea.Cmd {
	reader := m.env.reader
	return func() tea.Msg {
		ctx, cancel := context.WithTimeout(context.Background(), queryTimeout)
		defer cancel()
		return ask(ctx, reader)
	}
}

// runNamed runs a command by its id, if the screen has it.
func (m *Model) runNamed(id string) tea.Cmd {
	at := slices.IndexFunc(m.env.commands, func(c *command) bool { return c.id == id })
	switch {
	case at < 0:
		return nil
	case !m.env.commands[at].on(m.at):
		m.say(id + ": not on this screen")
		return nil
	}
	return m.run(m.env.commands[at])
}

// ask asks, and begins the command on a yes. With typed, that must be typed.
func (m *Model) ask(title string, details []string, typed request.Typed, run tea.Cmd) tea.Cmd {
	details = append([]string{fmt.Sprintf("database  %s  %s", m.env.name, widget.Clean(m.env.host))}, details...)
	return m.request(request.Ask{Title: title, Details: details, Typed: typed, Yes: request.Begin{Run: run}})
}

// openHelp lists the commands.
func (m *Model) openHelp() tea.Cmd {
	var entries []overlay.Entry
	var keys []string
	for _, c := range m.env.commands {
		entries = append(entries, overlay.Entry{ID: c.id, Help: c.help, Keys: c.keys, Here: c.on(m.at)})
		if c.id == "help" {
			keys = c.keys
		}
	}
	return m.lay(overlay.NewHelp(m.paint, entries, keys))
}

// openCopy offers what can be copied.
func (m *Model) openCopy() tea.Cmd {
	copies := m.copyItems()
	items := make([]request.Item, len(copies))
	for i, item := range copies {
		items[i] = request.Item{Text: fmt.Sprintf("%-10s %s", item.name, widget.Clean(item.text)), Then: request.Copy{Text: item.text}}
	}
	return m.request(request.Choose{Title: "Copy", Hint: "enter or a number: copy   esc: leave", Items: items})
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

// openContexts lists the databases of the operator's settings.
func (m *Model) openContexts() tea.Cmd {
	items := make([]request.Item, len(m.env.contexts))
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
		items[i] = request.Item{Text: fmt.Sprintf("%s %s%s", name, widget.Clean(c.Database), notes), Then: request.Context{Name: c.Name}}
	}
	at := slices.IndexFunc(m.env.contexts, func(c Context) bool { return c.Name == m.env.name })
	return m.request(request.Choose{Title: "Contexts", Hint: "enter or a number: go there   esc: stay", Items: items, At: at})
}

// openExport asks for the format of the file.
func (m *Model) openExport() tea.Cmd {
	selected := m.current().Selected()
	how := "as they are stored"
	if m.at == screen.Jobs {
		how = "without args, checkpoint and result" // which a list does not load: they can be large
	}
	note := fmt.Sprintf("%s %s, to a file here, %s", format.Number(int64(len(selected.Rows()))), selected.Noun, how)
	return m.request(request.Choose{Title: "Export", Hint: "enter: write it   any other key: leave", Notes: []string{note}, Items: []request.Item{
		{Key: "j", Text: "JSON lines", Then: request.Export{Format: "jsonl"}},
		{Key: "c", Text: "CSV, one column a field", Then: request.Export{Format: "csv"}},
	}})
}
