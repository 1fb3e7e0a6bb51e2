package tui

import (
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/jobq-dev/jobq/tui/acting"
	"github.com/jobq-dev/jobq/tui/command"
	"github.com/jobq-dev/jobq/tui/data"
	"github.com/jobq-dev/jobq/tui/editing"
	"github.com/jobq-dev/jobq/tui/overlay"
	"github.com/jobq-dev/jobq/tui/polling"
	"github.com/jobq-dev/jobq/tui/screen"
	"github.com/jobq-dev/jobq/tui/theme"
	"github.com/jobq-dev/jobq/tui/widget"
)

// Model is the root of the UI. It owns the connection, the size, what the
// database has said, the questions under way and the overlay, and takes messages
// to the screen that is shown. What a screen is about, it knows itself.
type Model struct {
	env           *env
	width, height int
	look          look
	paint         *widget.Painter
	facts         *data.Facts
	polling       *polling.Poller

	screens map[screen.Name]screen.Screen
	acting  *acting.Part
	editing *editing.Part
	at      screen.Name
	history history

	overlay    overlay.Overlay // nil for none
	held       []tea.Msg       // requests for overlays that wait until it is closed
	toast      string
	toastUntil time.Time

	feed    feedState
	feedAt  time.Time
	feedLag time.Duration

	lastKey   time.Time
	frozen    bool
	suspended bool
	pending   int    // commands whose answers are waited for
	switching string // the context that is being connected to
	failed    error  // what ended the UI before it could begin
}

// look is how the operator wants to see things, wherever he is.
type look struct {
	style theme.Settings
	bare  *theme.Theme // the same without styles
	mouse bool         // is heard
}

func newModel(e *env) *Model {
	if e.commands == nil {
		e.commands = command.All()
	}
	m := &Model{env: e, at: screen.Overview, lastKey: e.now(), facts: data.NewFacts(e.now), paint: &widget.Painter{Now: e.now}, polling: polling.New(e.now)}
	m.restyle()
	act := acting.Kit{Key: e.keyOf, Place: e.place}
	m.acting, m.editing = acting.New(act), editing.New(act, m.paint)
	kit := screen.Kit{Paint: m.paint, Facts: m.facts, Key: e.keyOf, Codec: e.codec}
	m.screens = map[screen.Name]screen.Screen{
		screen.Overview: screen.NewOverview(kit), screen.Jobs: screen.NewJobs(kit), screen.Queues: screen.NewQueues(kit),
		screen.Workers: screen.NewWorkers(kit), screen.Schedules: screen.NewSchedules(kit), screen.Errors: screen.NewErrors(kit),
		screen.Audit: screen.NewAudit(kit), screen.Job: screen.NewJob(kit),
	}
	m.resize(80, 24)
	return m
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
	if m.polling.Blurred || m.env.calm {
		every = tickBlur
	}
	return tea.Tick(every, func(now time.Time) tea.Msg { return tickMsg(now) })
}

// Update takes a message in, and returns what to do outside of the model: what
// the message asks for, and the questions that are due then.
func (m *Model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	var next tea.Cmd
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.resize(msg.Width, msg.Height)
	case tea.FocusMsg:
		m.polling.Blurred = false
		m.polling.Need()
	case tea.BlurMsg:
		m.polling.Blurred = true
	case tea.ResumeMsg:
		m.suspended = false
		m.polling.Need()
		next = m.env.send.resume()
	case tea.BackgroundColorMsg:
		m.look.style.Background = map[bool]string{true: "dark", false: "light"}[msg.IsDark()]
		m.restyle()
	case tea.ColorProfileMsg:
		m.look.style.Profile = msg.Profile
		m.restyle()
	case tea.KeyPressMsg:
		m.lastKey = m.env.now()
		next = m.key(msg)
	case tea.PasteMsg:
		if m.overlay != nil {
			next = m.toOverlay(msg)
		}
	case tea.MouseWheelMsg, tea.MouseClickMsg:
		next = m.mouse(msg)
	case polling.Loaded:
		next = m.loaded(msg)
	case effect:
		next = msg.apply(m)
	default:
		next = tea.Batch(m.toActors(msg), m.toScreens(msg))
	}
	return m, tea.Batch(next, m.poll())
}

// resize gives all screens their new size.
func (m *Model) resize(cells, lines int) {
	m.width, m.height = cells, lines
	for _, s := range m.screens {
		s.SetSize(cells, max(lines-headLines-footLines, 1))
	}
	if m.overlay != nil {
		m.overlay.SetSize(cells, lines)
	}
}

// current is the screen that is shown.
func (m *Model) current() screen.Screen { return m.screens[m.at] }

// toScreens gives a message to all screens, and does what they ask for.
func (m *Model) toScreens(msg tea.Msg) tea.Cmd {
	var commands []tea.Cmd
	for _, name := range screen.Names() {
		commands = append(commands, m.request(m.screens[name].Update(msg)))
	}
	return tea.Batch(commands...)
}

// toActors gives a message to the parts that act, and does what they ask for.
func (m *Model) toActors(msg tea.Msg) tea.Cmd {
	return tea.Batch(m.request(m.acting.Update(msg)), m.request(m.editing.Update(msg)))
}

// toScreen gives a message to the screen that is shown.
func (m *Model) toScreen(msg tea.Msg) tea.Cmd { return m.request(m.current().Update(msg)) }

// key goes to what is on top: an overlay, else the registry.
func (m *Model) key(msg tea.KeyPressMsg) tea.Cmd {
	name := msg.String()
	if name == command.Interrupt {
		return tea.Quit
	}
	if m.overlay != nil {
		return m.toOverlay(msg)
	}
	if c := m.env.commands.For(string(m.at), name); c != nil {
		return m.run(c)
	}
	return nil
}

// run runs a command, or says why it cannot.
func (m *Model) run(c *command.Command) tea.Cmd {
	action, found := m.action(c)
	reason := ""
	switch {
	case !found:
		return nil
	case c.Class != command.Reading && m.writeDisabled() != "":
		reason = m.writeDisabled()
	case action.Alone && m.pending > 0:
		reason = underWay
	case action.Disabled != nil:
		reason = action.Disabled()
	}
	if reason != "" {
		m.say(c.ID + ": " + reason)
		return nil
	}
	return m.request(action.Run())
}

// action is what is done for a command. What the screen does for it comes before
// what is done everywhere.
func (m *Model) action(c *command.Command) (screen.Action, bool) {
	return find(c, m.actionSets())
}

// actionSets are what each part does for commands, in the order in which they are
// asked.
func (m *Model) actionSets() []map[string]screen.Action {
	selected := m.current().Selected()
	return []map[string]screen.Action{m.current().Actions(), m.acting.Actions(selected), m.editing.Actions(selected), m.actions()}
}

// find is the first action for a command.
func find(c *command.Command, sets []map[string]screen.Action) (screen.Action, bool) {
	for _, actions := range sets {
		if action, found := actions[c.ID]; found {
			return action, true
		}
	}
	return screen.Action{}, false
}

// writeDisabled says why nothing can be changed, if so.
func (m *Model) writeDisabled() string {
	session := m.facts.Session
	switch {
	case m.env.noWrite:
		return "read-only, as it was started"
	case m.env.reader == nil:
		return "the database has not answered yet"
	case m.switching != "":
		return "on the way to " + widget.Clean(m.switching)
	case m.polling.Offline():
		return "the database does not answer"
	case session == nil:
		return ""
	case session.ReadOnly:
		return "the database is read-only: a standby, or told so"
	case !session.MayAct:
		return "role " + widget.Clean(session.Role) + " may not change jobs"
	}
	return ""
}

// toastShown is how long a text at the bottom is shown.
const toastShown = 6 * time.Second

// say shows a text at the bottom for a while.
func (m *Model) say(text string) { m.toast, m.toastUntil = text, m.env.now().Add(toastShown) }

// age lets go of what is only shown for a while.
func (m *Model) age() {
	if m.env.now().After(m.toastUntil) {
		m.toast = ""
	}
	m.toScreens(screen.Tick{})
}

// mouse moves in the screen.
func (m *Model) mouse(msg tea.Msg) tea.Cmd {
	if m.overlay != nil {
		return nil
	}
	switch msg := msg.(type) {
	case tea.MouseWheelMsg:
		if msg.Button == tea.MouseWheelDown {
			return m.toScreen(screen.Scroll{By: wheelRows})
		}
		if msg.Button == tea.MouseWheelUp {
			return m.toScreen(screen.Scroll{By: -wheelRows})
		}
	case tea.MouseClickMsg:
		if msg.Button == tea.MouseLeft {
			return m.toScreen(screen.Click{Line: msg.Y - headLines})
		}
	}
	return nil
}

// wheelRows is how far a turn of the wheel moves.
const wheelRows = 3
