package tui

import (
	"context"
	"errors"
	"fmt"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/jobq-dev/jobq"
)

// panel is something that is asked of the database as one.
type panel int

const (
	panelSession panel = iota
	panelQueues
	panelMinutes
	panelFailures
	panelWorkers
	panelLeader
	panelEvents
	panelPage
	panelVisible
	panelCount
	panelJob
	panelAudit
	panelEnd
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
	waitMax   = 30 * time.Second
	// blurFactor makes an unwatched UI ask less often, and idleAfter not at all.
	blurFactor = 10
	idleAfter  = 10 * time.Minute
	tickEvery  = 250 * time.Millisecond
	tickBlur   = time.Second
)

// floors are the shortest waits between two queries of a panel.
var floors = [panelEnd]time.Duration{
	panelSession: 5 * time.Second, panelQueues: 2 * time.Second, panelMinutes: 5 * time.Second, panelFailures: 5 * time.Second,
	panelWorkers: 5 * time.Second, panelLeader: 5 * time.Second, panelEvents: 5 * time.Second, panelPage: 2 * time.Second, panelVisible: 2 * time.Second,
	panelCount: 10 * time.Second, panelJob: time.Second, panelAudit: 5 * time.Second,
}

// poll is the state of a panel's query.
type poll struct {
	underWay   bool
	generation int
	due        time.Time // not before
	at         time.Time // of the last good answer
	took       time.Duration
	err        error
}

// need makes the panels due now.
func (m *Model) need(panels ...panel) {
	for _, p := range panels {
		m.polls[p].due = time.Time{}
	}
}

// renew makes answers that are under way worthless, because the question has
// changed, and asks anew.
func (m *Model) renew(panels ...panel) {
	for _, p := range panels {
		m.polls[p].generation++
		m.polls[p].underWay = false
		m.polls[p].due = time.Time{}
	}
}

// poll returns the queries of the panels that are wanted and due.
func (m *Model) poll() tea.Cmd {
	if m.env.reader == nil || m.suspended || m.frozen || m.blurred && m.env.now().Sub(m.lastKey) > idleAfter {
		return nil
	}
	now := m.env.now()
	var commands []tea.Cmd
	for _, p := range m.wanted() {
		state := &m.polls[p]
		if state.underWay || now.Before(state.due) {
			continue
		}
		query := m.query(p)
		if query == nil {
			continue
		}
		state.underWay = true
		commands = append(commands, m.load(p, state.generation, query))
	}
	return tea.Batch(commands...)
}

// load runs a query apart from the model.
func (m *Model) load(p panel, generation int, query func(context.Context) (any, error)) tea.Cmd {
	now := m.env.now
	return func() tea.Msg {
		ctx, cancel := context.WithTimeout(context.Background(), queryTimeout)
		defer cancel()
		began := now()
		value, err := query(ctx)
		return loadedMsg{p, generation, now().Sub(began), value, err}
	}
}

// loaded takes an answer in, and sets when to ask again: a slow database is
// asked less often.
func (m *Model) loaded(msg loadedMsg) {
	state := &m.polls[msg.panel]
	if msg.generation != state.generation {
		return
	}
	state.underWay = false
	state.took, state.err = msg.took, msg.err
	wait := min(max(dutyShare*msg.took, floors[msg.panel]), waitMax)
	if m.blurred {
		wait = min(wait*blurFactor, waitMax)
	}
	now := m.env.now()
	switch {
	case msg.err == nil:
		state.at = now
		if m.offline() {
			m.need(m.wanted()...) // whatever has waited for long need not any more
		}
		m.offlineSince, m.offlineTries = time.Time{}, 0
		m.take(msg.panel, msg.value)
	case errors.Is(msg.err, jobq.ErrTimeout) && msg.panel == panelPage && m.jobs.match != "" && !m.jobs.recent:
		m.jobs.recent, wait = true, 0
	case errors.Is(msg.err, jobq.ErrTimeout) && !asleep(msg):
		wait = waitMax
	case errors.Is(msg.err, jobq.ErrUnavailable) || asleep(msg):
		if m.offlineSince.IsZero() {
			m.offlineSince = now
		}
		m.offlineTries++
		wait = min(500*time.Millisecond<<min(m.offlineTries, 5), 15*time.Second)
	}
	state.due = now.Add(wait)
}

// asleep says that the database has not even answered that it took too long,
// and that to the smallest question: it is not a query that is slow.
func asleep(msg loadedMsg) bool {
	return msg.panel == panelSession && errors.Is(msg.err, context.DeadlineExceeded)
}

// queryProblem says in one line why a panel is not up to date.
func queryProblem(err error) string {
	if errors.Is(err, jobq.ErrTimeout) {
		return fmt.Sprintf("timed out, asking again in %s", waitMax)
	}
	return shortError(err)
}

// offline says whether the database did not answer last time.
func (m *Model) offline() bool { return !m.offlineSince.IsZero() }

// wanted are the panels of what is on the screen.
func (m *Model) wanted() []panel {
	panels := []panel{panelSession}
	switch m.screen {
	case screenOverview:
		panels = append(panels, panelQueues, panelMinutes, panelFailures, panelWorkers, panelLeader)
	case screenJobs:
		panels = append(panels, panelQueues, panelPage, panelVisible, panelCount)
		if m.jobs.previewed() != 0 && m.layout().preview > 0 {
			panels = append(panels, panelJob)
		}
	case screenJob:
		panels = append(panels, panelJob)
	case screenQueues:
		panels = append(panels, panelQueues, panelMinutes)
	case screenWorkers:
		panels = append(panels, panelWorkers, panelLeader, panelMinutes, panelEvents)
	case screenAudit:
		panels = append(panels, panelAudit)
	}
	return panels
}

// query is what a panel asks, or nil when there is nothing to ask.
func (m *Model) query(p panel) func(context.Context) (any, error) {
	r := m.env.reader
	switch p {
	case panelSession:
		return func(ctx context.Context) (any, error) { return r.Session(ctx) }
	case panelQueues:
		return func(ctx context.Context) (any, error) { return r.Queues(ctx) }
	case panelMinutes:
		return func(ctx context.Context) (any, error) { return r.Minutes(ctx, time.Hour) }
	case panelFailures:
		return func(ctx context.Context) (any, error) { return r.Failures(ctx, 20*time.Minute) }
	case panelWorkers:
		return func(ctx context.Context) (any, error) { return r.Workers(ctx) }
	case panelLeader:
		return func(ctx context.Context) (any, error) { return r.Leader(ctx) }
	case panelEvents:
		return func(ctx context.Context) (any, error) { return r.Events(ctx, 0, 20) }
	case panelAudit:
		return func(ctx context.Context) (any, error) { return r.Audit(ctx, 0, 100) }
	case panelPage, panelVisible, panelCount:
		return m.jobs.query(r, p)
	case panelJob:
		id := m.job.id
		if m.screen == screenJobs {
			id = m.jobs.previewed()
		}
		after := jobq.OutputPiece{}
		if m.job.outputOf == id {
			after = m.job.last
		} else {
			m.job.outputOf, m.job.live, m.job.last = id, "", after
		}
		return func(ctx context.Context) (any, error) { return loadJob(ctx, r, id, after) }
	case panelEnd:
	}
	return nil
}

// take stores a good answer.
func (m *Model) take(p panel, value any) {
	switch p {
	case panelSession:
		m.session = value.(*jobq.Session)
	case panelQueues:
		m.setQueues(value.([]jobq.Queue))
	case panelMinutes:
		m.minutes = value.([]jobq.Minute)
	case panelFailures:
		m.failures = value.([]jobq.Failure)
	case panelWorkers:
		m.workers = value.([]jobq.Worker)
		m.moveWorker(0)
	case panelLeader:
		m.leader = value.(*jobq.Leader)
	case panelEvents:
		m.events = value.([]jobq.Event)
	case panelAudit:
		m.audit = value.([]jobq.AuditEntry)
		m.moveAudit(0)
	case panelPage:
		m.jobs.takePage(value.(pageAnswer))
	case panelVisible:
		m.jobs.takeVisible(value.([]*jobq.Job), m.env.now())
	case panelCount:
		m.jobs.total = value.(int64)
	case panelJob:
		m.job.take(value.(jobStory))
	case panelEnd:
	}
}
