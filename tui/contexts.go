package tui

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/monitor"
	"github.com/jobq-dev/jobq/operator"
	"github.com/jobq-dev/jobq/tui/acting"
	"github.com/jobq-dev/jobq/tui/data"
	"github.com/jobq-dev/jobq/tui/request"
	"github.com/jobq-dev/jobq/tui/screen"
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
	reader       data.Reader // nil before
	writer       acting.Writer
	host, schema string
	client       *jobq.Client // nil in tests
}

func newLink(client *jobq.Client, actor string, where Context) *link {
	host := client.Pool().Config().ConnConfig.Host
	if strings.HasPrefix(host, "/") { // the folder of a socket
		host = "local"
	}
	all := access{client, monitor.New(client), operator.New(client, actor)}
	return &link{Context: where, reader: all, writer: all, host: host, schema: client.Schema(), client: client}
}

// access is all that the UI asks of a database and does to it.
type access struct {
	*jobq.Client
	*monitor.Monitor
	*operator.Operator
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

// checkContext says why it is not possible to go to a context.
func (m *Model) checkContext(name string) error {
	switch {
	case len(m.env.contexts) == 0:
		return errors.New("no contexts: your settings name none, see `jobq contexts --help`")
	case !slices.ContainsFunc(m.env.contexts, func(c Context) bool { return c.Name == name }):
		return fmt.Errorf("no context %q; there are %s", name, strings.Join(m.env.contextNames(""), ", "))
	case m.pending > 0:
		return errors.New(underWay)
	}
	return nil
}

// goTo connects to another context. Until it has answered, the screen stays,
// and nothing can be changed: no action may be under way when the database
// changes under it.
func (m *Model) goTo(name string) tea.Cmd {
	if err := m.checkContext(name); err != nil {
		m.say("contexts: " + err.Error())
		return nil
	}
	m.say("connecting to " + name + " " + m.paint.More)
	return m.connect(name)
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

// apply begins anew with the other database. Answers of the one before,
// which may be under way, are of an old generation.
func (msg switchedMsg) apply(m *Model) tea.Cmd {
	m.switching = ""
	if msg.err != nil && m.env.reader == nil {
		m.failed = msg.err
		return tea.Quit
	}
	if msg.err != nil {
		m.say("context " + msg.name + ": " + screen.ShortError(msg.err))
		return nil
	}
	old := m.env.link
	if old.reader == nil {
		m.env.use(msg.link)
		return m.env.send.listenTo(msg.link.client)
	}
	m.env.use(msg.link)
	fresh := newModel(m.env)
	fresh.look = m.look
	fresh.paint.Absolute = m.paint.Absolute
	fresh.restyle()
	fresh.resize(m.width, m.height)
	fresh.facts.Live, fresh.facts.WhyNotLive = false, ""
	if m.env.send.send == nil { // told to poll, there too
		fresh.feed, fresh.facts.WhyNotLive = m.feed, m.facts.WhyNotLive
	}
	fresh.polling = m.polling
	fresh.polling.Reset()
	*m = *fresh
	m.say("this is " + msg.name)
	return tea.Batch(m.env.send.listenTo(msg.link.client), old.close())
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
func (e *env) contextNames(prefix string) (names []string) {
	for _, c := range e.contexts {
		if strings.HasPrefix(c.Name, prefix) {
			names = append(names, c.Name)
		}
	}
	return names
}

// noContexts says why there is no other database to go to.
func (e *env) noContexts() string {
	if len(e.contexts) == 0 {
		return "your settings name none, see `jobq contexts --help`"
	}
	return ""
}

// contexts offers the databases of the operator's settings.
func (m *Model) contexts() tea.Msg {
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
	return request.Choose{Title: "Contexts", Hint: "enter or a number: go there   esc: stay", Items: items, At: at}
}
