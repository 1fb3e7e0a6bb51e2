package tui

import (
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/jobq-dev/jobq/tui/data"
	"github.com/jobq-dev/jobq/tui/polling"
)

// The UI's clock, also while nobody looks, and after which time without a key a UI
// that nobody looks at asks nothing any more.
const (
	tickEvery = 250 * time.Millisecond
	tickBlur  = time.Second
	idleAfter = 10 * time.Minute
)

// wanted are the questions of what is on the screen. That about the session comes
// first: it tells a database that is away from a query that is slow.
func (m *Model) wanted() []data.Want {
	return append(data.Wants(data.Session), m.current().Wants()...)
}

// poll returns the queries that are due, unless the screen stands still.
func (m *Model) poll() tea.Cmd {
	idle := m.polling.Blurred && m.env.now().Sub(m.lastKey) > idleAfter
	if m.env.reader == nil || m.suspended || m.frozen || idle {
		return nil
	}
	return m.polling.Ask(m.env.reader, m.wanted())
}

// loaded takes the answer to a question in, and shows it.
func (m *Model) loaded(msg polling.Loaded) tea.Cmd {
	answer, fresh := m.polling.Take(msg)
	if !fresh {
		return nil
	}
	m.facts.Take(answer)
	return m.toScreens(answer)
}
