package tui

import (
	"fmt"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/jobq-dev/jobq"
)

type screen int

const (
	screenOverview screen = iota
	screenJobs
	screenQueues
	screenWorkers
	screenAudit
	screenJob
)

// Model is the whole UI.
type Model struct {
	env           env
	width, height int

	screen screen
	back   []screen // where esc leads
	polls  [panelEnd]poll

	// What the database has said last.
	session  *jobq.Session
	queues   []jobq.Queue
	minutes  []jobq.Minute
	failures []jobq.Failure
	workers  []jobq.Worker
	leader   *jobq.Leader
	events   []jobq.Event
	audit    []jobq.AuditEntry
	jobs     jobsModel
	job      jobModel

	cursor map[screen]string // of the screens whose rows have names

	overlay    overlay
	toast      string
	toastUntil time.Time
	lastAudit  int64 // for undo
	bulk       *bulkRun

	feed       feedState
	feedReason string
	feedAt     time.Time
	feedLag    time.Duration
	activity   []activity

	lastKey      time.Time
	frozen       bool
	blurred      bool
	suspended    bool
	offlineSince time.Time
	offlineTries int
	pending      int // commands under way, for tests to wait on
}

// activity is a line of what happens.
type activity struct {
	at   time.Time
	text string
}

func newModel(e env) *Model {
	m := &Model{env: e, width: 80, height: 24, cursor: make(map[screen]string), lastKey: e.now()}
	m.jobs = newJobsModel()
	m.job.follow = true
	return m
}

// Init starts the clock and the first queries.
func (m *Model) Init() tea.Cmd { return tea.Batch(m.poll(), m.tick()) }

func (m *Model) tick() tea.Cmd {
	every := tickEvery
	if m.blurred {
		every = tickBlur
	}
	return tea.Tick(every, func(now time.Time) tea.Msg { return tickMsg(now) })
}

// Update takes a message in, and returns what to do outside of the model.
func (m *Model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
	case tea.FocusMsg:
		m.blurred = false
		m.need(m.wanted()...)
	case tea.BlurMsg:
		m.blurred = true
	case tea.ResumeMsg:
		m.suspended = false
		m.need(m.wanted()...)
		return m, tea.Batch(m.poll(), m.env.send.resume())
	case tickMsg:
		m.age()
		return m, tea.Batch(m.poll(), m.tick())
	case loadedMsg:
		m.loaded(msg)
		return m, m.poll() // some ask about what others have answered
	case feedMsg:
		m.takeFeed(msg)
		return m, m.poll()
	case feedStateMsg:
		m.feed, m.feedReason = msg.state, msg.reason
	case panicMsg:
		panic(fmt.Sprintf("%v\n\n%s", msg.reason, msg.stack))
	case actedMsg:
		m.acted(msg)
		return m, m.poll()
	case queueActedMsg:
		m.queueActed(msg)
		return m, m.poll()
	case bulkMsg:
		return m, m.takeBulk(msg)
	case startBulkMsg:
		return m, m.startBulk(msg)
	case exportedMsg:
		m.exported(msg)
	case tea.PasteMsg:
		if o, ok := m.overlay.(*inputOverlay); ok {
			o.insert(clean(msg.Content))
		}
	case tea.KeyPressMsg:
		m.lastKey = m.env.now()
		return m, tea.Batch(m.key(msg), m.poll())
	}
	return m, nil
}

// key goes to what is on top: an overlay, else the registry.
func (m *Model) key(msg tea.KeyPressMsg) tea.Cmd {
	name := msg.String()
	if name == "ctrl+c" {
		return tea.Quit
	}
	if m.overlay != nil {
		return m.overlay.key(m, msg)
	}
	if command := commandFor(m.screen, name); command != nil {
		return m.run(command)
	}
	return nil
}

// run runs a command, or says why it cannot.
func (m *Model) run(c *command) tea.Cmd {
	if c.class != reading {
		if reason := m.writeDisabled(); reason != "" {
			m.say(c.id + ": " + reason)
			return nil
		}
	}
	if c.disabled != nil {
		if reason := c.disabled(m); reason != "" {
			m.say(c.id + ": " + reason)
			return nil
		}
	}
	return c.run(m)
}

// writeDisabled says why nothing can be changed, if so.
func (m *Model) writeDisabled() string {
	switch {
	case m.env.noWrite:
		return "read-only, as it was started"
	case m.offline():
		return "the database does not answer"
	case m.session == nil:
		return ""
	case m.session.ReadOnly:
		return "the database is read-only: a standby, or told so"
	case !m.session.MayAct:
		return "role " + clean(m.session.Role) + " may not change jobs"
	}
	return ""
}

// say shows a text at the bottom for a while.
func (m *Model) say(text string) {
	m.toast, m.toastUntil = text, m.env.now().Add(6*time.Second)
}

// age lets go of what is only shown for a while.
func (m *Model) age() {
	now := m.env.now()
	if now.After(m.toastUntil) {
		m.toast = ""
	}
	m.jobs.age(now)
}

// show opens a screen; esc leads back.
func (m *Model) show(s screen) {
	if m.screen == s {
		return
	}
	if m.screen == screenJobs {
		m.jobs.settle()
	}
	m.back = append(m.back, m.screen)
	if len(m.back) > 20 {
		m.back = m.back[1:]
	}
	m.screen = s
	m.need(m.wanted()...)
}

// showTop opens one of the numbered screens.
func (m *Model) showTop(s screen) tea.Cmd {
	m.show(s)
	m.back = nil
	return nil
}

// leave goes back: marks, filter, then the screen before.
func (m *Model) leave() tea.Cmd {
	switch {
	case m.screen == screenJobs && (len(m.jobs.marks) > 0 || m.jobs.all != nil):
		m.jobs.marks, m.jobs.all = make(map[int64]bool), nil
		return nil
	case m.screen == screenJobs && m.jobs.match != "":
		m.jobs.setMatch("")
		m.renew(panelPage, panelVisible, panelCount)
		return nil
	case len(m.back) > 0:
		m.screen = m.back[len(m.back)-1]
		m.back = m.back[:len(m.back)-1]
		m.renew(panelJob)
		m.need(m.wanted()...)
		return nil
	}
	return nil
}

// setQueues stores the queues, those with trouble first. Between those
// without, the order is by name and never changes.
func (m *Model) setQueues(queues []jobq.Queue) {
	m.queues = queues
	now := m.env.now()
	slices.SortStableFunc(m.queues, func(a, b jobq.Queue) int {
		if x, y := m.trouble(a, now), m.trouble(b, now); x != y {
			return y - x
		}
		return strings.Compare(a.Name, b.Name)
	})
}

// trouble ranks queues: failures of late, then jobs that wait, then a pause.
func (m *Model) trouble(q jobq.Queue, now time.Time) int {
	rank := 0
	if slices.ContainsFunc(m.failures, func(f jobq.Failure) bool { return f.Queue == q.Name }) {
		rank += 4
	}
	if q.HeadRunAt != nil && now.Sub(*q.HeadRunAt) > waitTrouble {
		rank += 2
	}
	if q.PausedAt != nil {
		rank++
	}
	return rank
}

// waitTrouble is how long a job may wait before the UI draws attention to it.
const waitTrouble = 30 * time.Second
