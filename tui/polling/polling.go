// Package polling decides when the database is asked what: of each panel one query
// is under way at most, a slow database is asked less often, and one that is away
// more rarely still. It keeps how the last query of each panel went.
//
// Example: a query of 2 ms is asked again after its panel's floor, which is 2 s for
// the counts of queues; one of 250 ms after 20 s, which is eighty times as long.
package polling

import (
	"context"
	"errors"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/tui/data"
)

const (
	// Timeout bounds every query of the UI. The pool's statement_timeout is
	// shorter, so that the server gives up first.
	Timeout = 3 * time.Second
	// dutyShare bounds a panel's use of the server: after a query that took
	// some time it waits for so many times as long. Three or four panels that ask
	// for much are on a screen, so that all take a twentieth of a core at most.
	dutyShare = 80
	waitMax   = data.AskAgain
	// blurFactor makes an unwatched UI ask less often.
	blurFactor = 10
)

// floors are how often a panel is asked at most.
var floors = [data.PanelEnd]time.Duration{
	data.Session: 5 * time.Second, data.Queues: 2 * time.Second, data.Minutes: 5 * time.Second, data.Failures: 5 * time.Second,
	data.Errors: 2 * time.Second, data.Silent: 10 * time.Second, data.Kinds: 10 * time.Second,
	data.Workers: 5 * time.Second, data.Leader: 5 * time.Second, data.Events: 5 * time.Second, data.Page: 2 * time.Second,
	data.More: 2 * time.Second, data.Visible: 2 * time.Second, data.Count: 10 * time.Second, data.Job: time.Second, data.Audit: 5 * time.Second,
	data.Schedules: 5 * time.Second, data.Ticks: 5 * time.Second, data.Keys: 2 * time.Second,
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

// Poller asks one database.
type Poller struct {
	// Blurred says that nobody looks.
	Blurred bool

	now          func() time.Time
	polls        [data.PanelEnd]poll
	offlineSince time.Time // zero while the database answers
	offlineTries int
}

// New has asked nothing yet.
func New(now func() time.Time) *Poller { return &Poller{now: now} }

// Reset begins anew with another database: answers of the one before, which may be
// under way, are worth nothing.
func (p *Poller) Reset() {
	for i := range p.polls {
		p.polls[i] = poll{generation: p.polls[i].generation + 1}
	}
	p.offlineSince, p.offlineTries = time.Time{}, 0
}

// Need makes all panels due now.
func (p *Poller) Need() {
	for i := range p.polls {
		p.polls[i].due = time.Time{}
	}
}

// Renew makes answers that are under way worthless, because something has changed
// since they were asked for, and asks anew.
func (p *Poller) Renew(panels ...data.Panel) {
	for _, panel := range panels {
		p.polls[panel].forget()
	}
}

// Hurry asks again soon: after the floor given, or else the panel's own, and no
// sooner than a slow database allows.
func (p *Poller) Hurry(floor time.Duration, panels ...data.Panel) {
	for _, panel := range panels {
		state := &p.polls[panel]
		wait := max(floor, dutyShare*state.took)
		if floor == 0 {
			wait = max(floors[panel], wait)
		}
		soon := state.at.Add(wait)
		if state.err == nil && state.due.After(soon) {
			state.due = soon
		}
	}
}

// Ask returns the queries of what is wanted and due, each of which ends as Loaded.
func (p *Poller) Ask(reader data.Reader, wants []data.Want) tea.Cmd {
	now := p.now()
	var queries []tea.Cmd
	for _, want := range wants {
		state := &p.polls[want.Panel]
		if want.About != state.about {
			state.about = want.About
			state.forget()
		}
		if state.underWay || now.Before(state.due) {
			continue
		}
		state.underWay = true
		queries = append(queries, load(reader, want, state.generation, p.now))
	}
	return tea.Batch(queries...)
}

// load runs a query apart from the UI.
func load(reader data.Reader, want data.Want, generation int, now func() time.Time) tea.Cmd {
	return func() tea.Msg {
		ctx, cancel := context.WithTimeout(context.Background(), Timeout)
		defer cancel()
		began := now()
		value, err := want.Ask(ctx, reader)
		return Loaded{want.Panel, want.About, generation, now().Sub(began), value, err}
	}
}

// Loaded is the answer to a panel's query.
type Loaded struct {
	Panel      data.Panel
	About      any
	Generation int // an old one answers a question that nobody asks any more
	Took       time.Duration
	Value      any
	Err        error
}

// Take takes an answer in, and sets when to ask again. It is false for the answer
// to a question that nobody asks any more.
func (p *Poller) Take(msg Loaded) (data.Answer, bool) {
	state, now := &p.polls[msg.Panel], p.now()
	if msg.Generation != state.generation {
		return data.Answer{}, false
	}
	state.underWay = false
	state.took, state.err = msg.Took, msg.Err
	if msg.Err == nil {
		state.at = now
		if p.Offline() {
			p.Need() // it is back: nothing has to wait any longer
		}
		p.offlineSince, p.offlineTries = time.Time{}, 0
	}
	state.due = now.Add(p.waitAfter(msg))
	return data.Answer{Panel: msg.Panel, About: msg.About, Value: msg.Value, Err: msg.Err, At: now}, true
}

// waitAfter is how long to wait after an answer before the next question.
func (p *Poller) waitAfter(msg Loaded) time.Duration {
	wait := min(max(dutyShare*msg.Took, floors[msg.Panel]), waitMax)
	if p.Blurred {
		wait = min(wait*blurFactor, waitMax)
	}
	switch {
	case errors.Is(msg.Err, jobq.ErrTimeout) && !asleep(msg):
		return waitMax
	case errors.Is(msg.Err, jobq.ErrUnavailable) || asleep(msg):
		if p.offlineSince.IsZero() {
			p.offlineSince = p.now()
		}
		p.offlineTries++
		return min(500*time.Millisecond<<min(p.offlineTries, 5), 15*time.Second)
	}
	return wait
}

// asleep says that the database has not even answered that it took too long,
// and that to the smallest question: it is not a query that is slow.
func asleep(msg Loaded) bool {
	return msg.Panel == data.Session && errors.Is(msg.Err, context.DeadlineExceeded)
}

// Offline says whether the database did not answer last time.
func (p *Poller) Offline() bool { return !p.offlineSince.IsZero() }

// OfflineFor is how long it has not answered.
func (p *Poller) OfflineFor() time.Duration { return p.now().Sub(p.offlineSince) }

// Waits says whether one of these questions is under way.
func (p *Poller) Waits(wants []data.Want) bool {
	for _, want := range wants {
		if p.polls[want.Panel].underWay {
			return true
		}
	}
	return false
}

// Problem is the first of these questions whose last query went wrong.
func (p *Poller) Problem(wants []data.Want) (panel data.Panel, err error) {
	for _, want := range wants {
		if err := p.polls[want.Panel].err; err != nil {
			return want.Panel, err
		}
	}
	return 0, nil
}

// Oldest is when the oldest of the last good answers to these questions came; now
// when there is none.
func (p *Poller) Oldest(wants []data.Want) time.Time {
	oldest := p.now()
	for _, want := range wants {
		if at := p.polls[want.Panel].at; !at.IsZero() && at.Before(oldest) {
			oldest = at
		}
	}
	return oldest
}
