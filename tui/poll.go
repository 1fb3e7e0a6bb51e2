package tui

import (
	"context"
	"errors"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/tui/data"
	"github.com/jobq-dev/jobq/tui/screen"
)

const (
	// queryTimeout bounds every query of the UI. The pool's statement_timeout
	// is shorter, so that the server gives up first.
	queryTimeout = 3 * time.Second
	// writeTimeout bounds an action.
	writeTimeout = 10 * time.Second
	// dutyShare bounds a panel's use of the server: after a query that took
	// some time it waits for so many times as long. Three or four panels that ask
	// for much are on a screen, so that all take a twentieth of a core at most.
	dutyShare = 80
	waitMax   = screen.AskAgain
	// blurFactor makes an unwatched UI ask less often, and idleAfter not at all.
	blurFactor = 10
	idleAfter  = 10 * time.Minute
	tickEvery  = 250 * time.Millisecond
	tickBlur   = time.Second
)

// floors are how often a panel is asked at most.
var floors = [data.PanelEnd]time.Duration{
	data.Session: 5 * time.Second, data.Queues: 2 * time.Second, data.Minutes: 5 * time.Second, data.Failures: 5 * time.Second,
	data.Errors: 5 * time.Second, data.Silent: 10 * time.Second,
	data.Workers: 5 * time.Second, data.Leader: 5 * time.Second, data.Events: 5 * time.Second, data.Page: 2 * time.Second,
	data.More: 2 * time.Second, data.Visible: 2 * time.Second, data.Count: 10 * time.Second, data.Job: time.Second, data.Audit: 5 * time.Second,
}

// poll is the state of a panel's query.
type poll struct {
	underWay   bool
	about      any // the question that was asked last
	generation int
	due        time.Time // not before
	at         time.Time // of the last good answer
	took       time.Duration
	err        error
}

// forget makes an answer that is under way worthless, and asks anew.
func (p *poll) forget() {
	p.generation++
	p.underWay, p.due = false, time.Time{}
}

// wanted are the questions of what is on the screen. That about the session comes
// first: it tells a database that is away from a query that is slow.
func (m *Model) wanted() []data.Want {
	return append(data.Wants(data.Session), m.current().Wants()...)
}

// need makes all that the screen shows due now.
func (m *Model) need() {
	for _, want := range m.wanted() {
		m.polls[want.Panel].due = time.Time{}
	}
}

// renew makes answers that are under way worthless, because something has changed
// since they were asked for, and asks anew.
func (m *Model) renew(panels ...data.Panel) {
	for _, p := range panels {
		m.polls[p].forget()
	}
}

// poll returns the queries of the panels that are wanted and due.
func (m *Model) poll() tea.Cmd {
	if m.env.reader == nil || m.suspended || m.frozen || m.blurred && m.env.now().Sub(m.lastKey) > idleAfter {
		return nil
	}
	now := m.env.now()
	var commands []tea.Cmd
	for _, want := range m.wanted() {
		state := &m.polls[want.Panel]
		if want.About != state.about {
			state.about = want.About
			state.forget()
		}
		if state.underWay || now.Before(state.due) {
			continue
		}
		state.underWay = true
		commands = append(commands, m.load(want, state.generation))
	}
	return tea.Batch(commands...)
}

// load runs a query apart from the model.
func (m *Model) load(want data.Want, generation int) tea.Cmd {
	now, reader := m.env.now, m.env.reader
	return func() tea.Msg {
		ctx, cancel := context.WithTimeout(context.Background(), queryTimeout)
		defer cancel()
		began := now()
		value, err := want.Ask(ctx, reader)
		return loadedMsg{want.Panel, want.About, generation, now().Sub(began), value, err}
	}
}

// loadedMsg is the answer to a panel's query. An old generation's answers a
// question that nobody asks any more.
type loadedMsg struct {
	panel      data.Panel
	about      any
	generation int
	took       time.Duration
	value      any
	err        error
}

func (msg loadedMsg) apply(m *Model) tea.Cmd {
	if msg.generation != m.polls[msg.panel].generation {
		return nil
	}
	return m.toScreens(m.take(msg))
}

// take takes an answer in, and sets when to ask again: a slow database is asked
// less often.
func (m *Model) take(msg loadedMsg) data.Answer {
	state, now := &m.polls[msg.panel], m.env.now()
	state.underWay = false
	state.took, state.err = msg.took, msg.err
	if msg.err == nil {
		state.at = now
		if m.offline() {
			m.need() // it is back: nothing has to wait any longer
		}
		m.offlineSince, m.offlineTries = time.Time{}, 0
	}
	state.due = now.Add(m.waitAfter(msg))
	answer := data.Answer{Panel: msg.panel, About: msg.about, Value: msg.value, Err: msg.err, At: now}
	m.facts.Take(answer)
	return answer
}

// waitAfter is how long to wait after an answer before the next question.
func (m *Model) waitAfter(msg loadedMsg) time.Duration {
	wait := min(max(dutyShare*msg.took, floors[msg.panel]), waitMax)
	if m.blurred {
		wait = min(wait*blurFactor, waitMax)
	}
	switch {
	case errors.Is(msg.err, jobq.ErrTimeout) && !asleep(msg):
		return waitMax
	case errors.Is(msg.err, jobq.ErrUnavailable) || asleep(msg):
		if m.offlineSince.IsZero() {
			m.offlineSince = m.env.now()
		}
		m.offlineTries++
		return min(500*time.Millisecond<<min(m.offlineTries, 5), 15*time.Second)
	}
	return wait
}

// asleep says that the database has not even answered that it took too long,
// and that to the smallest question: it is not a query that is slow.
func asleep(msg loadedMsg) bool {
	return msg.panel == data.Session && errors.Is(msg.err, context.DeadlineExceeded)
}

// offline says whether the database did not answer last time.
func (m *Model) offline() bool { return !m.offlineSince.IsZero() }
