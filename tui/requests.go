package tui

import (
	"context"
	"fmt"

	tea "charm.land/bubbletea/v2"

	"github.com/jobq-dev/jobq/tui/command"
	"github.com/jobq-dev/jobq/tui/data"
	"github.com/jobq-dev/jobq/tui/overlay"
	"github.com/jobq-dev/jobq/tui/polling"
	"github.com/jobq-dev/jobq/tui/request"
	"github.com/jobq-dev/jobq/tui/screen"
	"github.com/jobq-dev/jobq/tui/widget"
)

// lay puts what a request asks for over the screen. A question says which database it
// is about.
func (m *Model) lay(asked tea.Msg) tea.Cmd {
	if ask, isQuestion := asked.(request.Ask); isQuestion {
		ask.Details = append([]string{"database  " + m.database()}, ask.Details...)
		asked = ask
	}
	m.overlay = overlay.For(m.paint, asked)
	m.overlay.SetSize(m.width, m.height)
	return nil
}

// database is which database a question is about: what the operator calls it, and
// where it is.
func (m *Model) database() string {
	where := m.env.host
	if m.facts.Session != nil {
		where += "/" + m.facts.Session.Database
	}
	if m.env.name != "" {
		where = m.env.name + "  " + where
	}
	return widget.Clean(where)
}

// askHeld lays the first of what is held over the screen, unless an overlay is open.
func (m *Model) askHeld() tea.Cmd {
	if m.overlay != nil || len(m.held) == 0 {
		return nil
	}
	asked := m.held[0]
	m.held = m.held[1:]
	return m.lay(asked)
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

// request does what a part or an overlay asks for.
func (m *Model) request(msg tea.Msg) tea.Cmd {
	switch msg := msg.(type) {
	case nil, request.Done:
	case request.Tell:
		m.say(msg.Text)
	case request.All:
		var commands []tea.Cmd
		for _, asked := range msg {
			commands = append(commands, m.request(asked))
		}
		return tea.Batch(commands...)
	case request.Ask, request.Prompt, request.Choose, request.Note, request.Help, request.Progress:
		return m.lay(msg)
	case request.Later:
		m.held = append(m.held, msg.Overlay)
		return m.askHeld()
	case request.Step:
		if m.overlay != nil {
			return m.toOverlay(msg)
		}
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
	default:
		return m.work(msg)
	}
	return nil
}

// work does what a part asks for with the database, a file or the terminal.
func (m *Model) work(msg tea.Msg) tea.Cmd {
	switch msg := msg.(type) {
	case request.Export:
		return m.export(msg.Format)
	case request.Begin:
		return m.begin(msg.Run)
	case request.Run:
		return msg.Run
	case request.Change:
		if reason := m.writeDisabled(); reason != "" { // the database may have gone while it was asked about
			m.say(msg.Verb + ": " + reason)
			return nil
		}
		return m.request(msg.Do)
	case request.Read:
		return m.begin(m.read(msg.Ask))
	case request.Renew:
		m.polling.Need()
		m.polling.Renew(msg.Panels...)
	case request.Screens:
		return m.toScreens(msg.Msg)
	case request.Editor:
		return m.lend(msg)
	case effect:
		return msg.apply(m)
	default: // between an overlay, or an actor, and the part that has asked for it
		return tea.Batch(m.toActors(msg), m.toScreen(msg))
	}
	return nil
}

// read asks the database something apart from the model.
func (m *Model) read(ask func(context.Context, data.Reader) tea.Msg) tea.Cmd {
	reader := m.env.reader
	return func() tea.Msg {
		ctx, cancel := context.WithTimeout(context.Background(), polling.Timeout)
		defer cancel()
		return ask(ctx, reader)
	}
}

// runNamed runs a command by its id, if the screen has it.
func (m *Model) runNamed(id string) tea.Cmd {
	c := m.env.commands.Find(id)
	switch {
	case c == nil:
		return nil
	case !c.On(string(m.at)):
		m.say(id + ": not on this screen")
		return nil
	}
	return m.run(c)
}

// help lists the commands.
func (m *Model) help() tea.Msg {
	entries := make([]request.Entry, len(m.env.commands))
	for i, c := range m.env.commands {
		entries[i] = request.Entry{ID: c.ID, Help: c.Help, Keys: c.Keys, Here: c.On(string(m.at))}
	}
	return request.Help{Entries: entries, Keys: m.env.commands.Find(command.Help).Keys}
}

// copies offers what can be copied.
func (m *Model) copies() tea.Msg {
	copies := m.env.place().Program.Items(m.at, m.current().Selected(), m.editing.Last())
	items := make([]request.Item, len(copies))
	for i, item := range copies {
		items[i] = request.Item{Text: fmt.Sprintf("%-10s %s", item.Name, widget.Clean(item.Text)), Then: request.Copy{Text: item.Text}}
	}
	return request.Choose{Title: "Copy", Hint: "enter or a number: copy   esc: leave", Items: items}
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
