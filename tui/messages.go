package tui

import (
	"fmt"
	"maps"
	"slices"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/jobq-dev/jobq/tui/data"
	"github.com/jobq-dev/jobq/tui/screen"
)

// effect is a message of the UI itself: an answer, the clock, or what a worker
// says. Each says beside its type what it does to the model.
type effect interface {
	apply(m *Model) tea.Cmd
}

// tickMsg is the UI's clock: it ages what is shown and starts due queries.
type tickMsg time.Time

func (tickMsg) apply(m *Model) tea.Cmd {
	m.age()
	return m.tick()
}

// panicMsg is a panic of a goroutine that the program does not know.
type panicMsg struct {
	reason any
	stack  []byte
}

func (msg panicMsg) apply(*Model) tea.Cmd { panic(fmt.Sprintf("%v\n\n%s", msg.reason, msg.stack)) }

// feedStateMsg says whether events are heard.
type feedStateMsg struct {
	state  feedState
	reason string
}

type feedState int

const (
	feedOff feedState = iota
	feedPolling
	feedLive
)

func (msg feedStateMsg) apply(m *Model) tea.Cmd {
	m.feed = msg.state
	m.facts.Live, m.facts.WhyNotLive = msg.state == feedLive, msg.reason
	return m.toScreens(screen.Tick{})
}

// feedMsg has the events that workers have sent since the feedMsg before. Events
// are gathered, so that one comes every 100 ms at most (feedEvery).
type feedMsg data.Feed

// apply shows the events without asking the database: the rows of their jobs change
// in place, and the counts of this minute grow. Jobs that ended without an event of
// their own are seen with the next poll, which comes sooner then.
func (msg feedMsg) apply(m *Model) tea.Cmd {
	m.feedAt, m.feedLag = msg.At, msg.Lag
	if m.frozen {
		return nil
	}
	feed := data.Feed(msg)
	m.facts.Heard(feed)
	command := m.toScreens(feed)
	if msg.Gap && m.at == screen.Jobs {
		m.polling.Hurry(gapEvery, data.Visible)
	}
	if len(msg.Ended) > 0 {
		m.polling.Hurry(0, data.Queues, data.Page)
	}
	if slices.ContainsFunc(slices.Collect(maps.Values(feed.Ended)), func(ended data.Ended) bool { return ended.Failed > 0 }) {
		m.polling.Hurry(failedEvery, data.Errors)
	}
	return command
}

// failedEvery is how often the groups of errors are asked for while runs fail.
const failedEvery = time.Second

// gapEvery is how often the rows on the screen are looked at while workers do
// more than they can name.
const gapEvery = 200 * time.Millisecond
