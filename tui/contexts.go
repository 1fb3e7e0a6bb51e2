package tui

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/tui/widget"
)

// Context is a database as the operator knows it.
type Context struct {
	// Name is what he calls it. Empty for a database without a name.
	Name string
	// Database says in the list of contexts where it is; never a password.
	Database string
	// Color paints the name: red, green, yellow, blue, magenta or cyan.
	// Default none.
	Color string
	// Production paints the whole first line.
	Production bool
	// Confirm asks to type the number of jobs for what elsewhere asks for a y.
	Confirm bool
	// ReadOnly takes all actions away. The database must enforce it too: give
	// the client a pool whose sessions are read-only.
	ReadOnly bool
	// Flags lead the jobq command to this database, in the command lines that
	// can be copied. Default none: the environment does.
	Flags []string
}

// link is a database that has answered, or the first one before it has.
type link struct {
	Context
	reader       reader // nil before
	writer       writer
	host, schema string
	client       *jobq.Client // nil in tests
}

func newLink(client *jobq.Client, where Context) *link {
	host := client.Pool().Config().ConnConfig.Host
	if strings.HasPrefix(host, "/") { // the folder of a socket
		host = "local"
	}
	return &link{Context: where, reader: client, writer: client, host: host, schema: client.Schema(), client: client}
}

// use makes the link the database that the UI is about.
func (e *env) use(l *link) {
	e.link = l
	e.reader, e.writer, e.host, e.schema = l.reader, l.writer, l.host, l.schema
	e.name, e.color, e.production, e.confirm, e.noWrite = l.Name, l.Color, l.Production, l.Confirm, l.ReadOnly
}

// connectTimeout bounds the way to another database.
const connectTimeout = 10 * time.Second

// switchedMsg is what came of going to another database.
type switchedMsg struct {
	name string
	link *link
	err  error
}

// goTo connects to another context. Until it has answered, the screen stays,
// and nothing can be changed: no action may be under way when the database
// changes under it.
func (m *Model) goTo(name string) (tea.Cmd, error) {
	at := slices.IndexFunc(m.env.contexts, func(c Context) bool { return c.Name == name })
	switch {
	case len(m.env.contexts) == 0:
		return nil, fmt.Errorf("no contexts: your settings name none, see `jobq contexts --help`")
	case at < 0:
		return nil, fmt.Errorf("no context %q; there are %s", name, strings.Join(m.contextNames(""), ", "))
	case m.bulk != nil || m.pending > 0:
		return nil, errors.New(underWay)
	}
	m.say("connecting to " + name + " " + m.paint.More)
	return m.connect(name), nil
}

// connect connects apart from the model.
func (m *Model) connect(name string) tea.Cmd {
	m.switching = name
	connect, feed := m.env.connect, m.env.send
	return func() tea.Msg {
		ctx, cancel := context.WithTimeout(context.Background(), connectTimeout)
		defer cancel()
		l, err := connect(ctx, name)
		if err == nil {
			feed.stop() // its last word has been said before the switch
		}
		return switchedMsg{name, l, err}
	}
}

// switched begins anew with the other database. Answers of the one before,
// which may be under way, are of an old generation.
func (m *Model) switched(msg switchedMsg) tea.Cmd {
	m.switching = ""
	if msg.err != nil && m.env.reader == nil {
		m.failed = msg.err
		return tea.Quit
	}
	if msg.err != nil {
		m.say("context " + msg.name + ": " + shortError(msg.err))
		return nil
	}
	old := m.env.link
	if old.reader == nil {
		m.env.use(msg.link)
		return tea.Batch(m.poll(), m.env.send.listenTo(msg.link.client))
	}
	fresh := newModel(m.env)
	fresh.env.use(msg.link)
	fresh.width, fresh.height, fresh.look = m.width, m.height, m.look
	fresh.paint.Absolute = m.paint.Absolute
	fresh.restyle()
	if m.env.send.send == nil { // told to poll, there too
		fresh.feed, fresh.feedReason = m.feed, m.feedReason
	}
	for p := range fresh.polls {
		fresh.polls[p].generation = m.polls[p].generation + 1
	}
	*m = *fresh
	m.say("this is " + msg.name)
	return tea.Batch(m.poll(), m.env.send.listenTo(msg.link.client), old.close())
}

// close ends the link as a command, once its last query has.
func (l *link) close() tea.Cmd {
	return func() tea.Msg {
		if l.client != nil {
			l.client.Pool().Close()
		}
		return nil
	}
}

// contextNames are the names that begin so.
func (m *Model) contextNames(prefix string) (names []string) {
	for _, c := range m.env.contexts {
		if strings.HasPrefix(c.Name, prefix) {
			names = append(names, c.Name)
		}
	}
	return names
}

// contextOverlay lists the contexts.
type contextOverlay struct{ at int }

func (m *Model) openContexts() tea.Cmd {
	at := slices.IndexFunc(m.env.contexts, func(c Context) bool { return c.Name == m.env.name })
	m.overlay = &contextOverlay{max(at, 0)}
	return nil
}

func noContexts(m *Model) string {
	if len(m.env.contexts) == 0 {
		return "your settings name none, see `jobq contexts --help`"
	}
	return ""
}

func (o *contextOverlay) choices(m *Model) (at *int, count int) { return &o.at, len(m.env.contexts) }

func (o *contextOverlay) key(m *Model, msg tea.KeyPressMsg) tea.Cmd {
	chosen, leave := pick(m, o, msg.String())
	if leave || chosen {
		m.overlay = nil
	}
	if !chosen {
		return nil
	}
	command, err := m.goTo(m.env.contexts[o.at].Name)
	if err != nil {
		m.say("contexts: " + err.Error())
	}
	return command
}

func (o *contextOverlay) view(m *Model) []string {
	lines := make([]string, 0, len(m.env.contexts)+2)
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
		lines = append(lines, m.paint.Fit(fmt.Sprintf("%s %s %s%s", m.choice(i, o.at), name, widget.Clean(c.Database), notes), min(m.width-8, 100)))
	}
	return m.box("Contexts", append(lines, "", m.paint.Muted.Render("enter or a number: go there   esc: stay")))
}

// chooser is an overlay with a list of choices: where the cursor is, and how
// many there are.
type chooser interface {
	choices(m *Model) (at *int, count int)
}

// pick moves in a list of choices: chosen when one is, leave when none will be.
func pick(m *Model, o chooser, key string) (chosen, leave bool) {
	at, count := o.choices(m)
	switch {
	case key == "down" || key == "j":
		*at = min(*at+1, count-1)
	case key == "up" || key == "k":
		*at = max(*at-1, 0)
	case key == "enter":
		return count > 0, count == 0
	case len(key) == 1 && key[0] >= '1' && int(key[0]-'1') < count:
		*at = int(key[0] - '1')
		return true, false
	default:
		return false, true
	}
	return false, false
}

// choice is the number of a line in a list of choices, if it can be typed, with
// the cursor's mark.
func (m *Model) choice(i, at int) string {
	marks := "  "
	if i == at {
		marks = m.paint.Title.Render("> ")
	}
	if i >= 9 && !m.paint.Plain { // no key has it
		return marks + " "
	}
	return marks + strconv.Itoa(i+1)
}
