package tui

import (
	"fmt"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/tui/overlay"
	"github.com/jobq-dev/jobq/tui/theme"
	"github.com/jobq-dev/jobq/tui/widget"
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
	look          look
	paint         *widget.Painter

	screen screen
	back   []screen // where esc leads
	past   []place  // where [ leads, the last one first
	ahead  []place  // and ]
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

	cursor map[screen]spot // of the screens whose rows have names

	overlay    overlay.Overlay // nil for none
	toast      string
	toastUntil time.Time
	lastAudit  int64  // for undo
	lastEdit   string // as a command, without the program's name
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
	pending      int    // commands whose answers are waited for
	switching    string // the context that is being connected to
	failed       error  // what ended the UI before it could begin
}

// look is how the operator wants to see things, wherever he is.
type look struct {
	style theme.Settings
	bare  *theme.Theme // the same without styles
	wide  bool         // other columns of jobs
	mouse bool         // is heard
}

// restyle makes the theme that the settings ask for. Their name was checked.
func (m *Model) restyle() {
	style := m.look.style
	style.ASCII = m.env.ascii
	style.Bare = style.Bare || m.env.plain
	if made, err := theme.New(style); err == nil {
		m.paint.Theme = made
	}
	style.Bare = true
	if made, err := theme.New(style); err == nil {
		m.look.bare = made
	}
	m.paint.Plain = m.env.plain
}

// activity is a line of what happens.
type activity struct {
	at   time.Time
	text string
}

func newModel(e env) *Model {
	if e.commands == nil {
		e.commands = commands()
	}
	m := &Model{env: e, width: 80, height: 24, cursor: make(map[screen]spot), lastKey: e.now()}
	m.paint = &widget.Painter{Now: e.now}
	m.restyle()
	m.jobs = newJobsModel()
	m.job.follow = true
	return m
}

// Init starts the clock and the way to the database.
func (m *Model) Init() tea.Cmd {
	begin := tea.Batch(m.connect(m.env.name), m.tick())
	if m.look.style.Name == "" || m.look.style.Name == theme.Auto {
		return tea.Batch(begin, tea.RequestBackgroundColor)
	}
	return begin
}

func (m *Model) tick() tea.Cmd {
	every := tickEvery
	if m.blurred || m.env.calm {
		every = tickBlur
	}
	return tea.Tick(every, func(now time.Time) tea.Msg { return tickMsg(now) })
}

// Update takes a message in, and returns what to do outside of the model.
func (m *Model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
		if m.overlay != nil {
			m.overlay.SetSize(m.width, m.height)
		}
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
	case answerMsg:
		return m.answered(msg)
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
		m.exportDone(msg)
	case selectedMsg:
		m.selected(msg)
	case undoSeenMsg:
		m.undoSeen(msg)
	case drainedMsg:
		m.drained(msg)
		return m, m.poll()
	case editReadyMsg:
		return m, m.editReady(msg)
	case editedMsg:
		return m, tea.Batch(m.edited(msg), m.poll())
	case editDoneMsg:
		m.editDone(msg)
		return m, m.poll()
	case tea.MouseWheelMsg:
		return m, tea.Batch(m.wheel(msg), m.poll())
	case tea.MouseClickMsg:
		return m, tea.Batch(m.click(msg), m.poll())
	case switchedMsg:
		return m, m.switched(msg)
	case tea.BackgroundColorMsg:
		m.look.style.Background = "light"
		if msg.IsDark() {
			m.look.style.Background = "dark"
		}
		m.restyle()
	case tea.ColorProfileMsg:
		m.look.style.Profile = msg.Profile
		m.restyle()
	case tea.PasteMsg:
		if m.overlay != nil {
			return m, m.toOverlay(msg)
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
		return m.toOverlay(msg)
	}
	if command := m.commandFor(m.screen, name); command != nil {
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
	case m.env.reader == nil:
		return "the database has not answered yet"
	case m.switching != "":
		return "on the way to " + widget.Clean(m.switching)
	case m.offline():
		return "the database does not answer"
	case m.session == nil:
		return ""
	case m.session.ReadOnly:
		return "the database is read-only: a standby, or told so"
	case !m.session.MayAct:
		return "role " + widget.Clean(m.session.Role) + " may not change jobs"
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
	m.remember()
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
		m.jobs.unmark()
		return nil
	case m.screen == screenJobs && m.jobs.match != "":
		m.jobs.setMatch("")
		m.renew(panelPage, panelVisible, panelCount)
		return nil
	case len(m.back) > 0:
		m.remember()
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
	if !m.polls[panelFailures].at.IsZero() || m.screen == screenQueues { // else their order is not known yet
		m.moveQueue(0) // what a key acts on stays the queue that it was shown on
	}
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
