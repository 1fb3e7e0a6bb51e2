package tui

import (
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/jobq-dev/jobq/tui/data"
	"github.com/jobq-dev/jobq/tui/overlay"
	"github.com/jobq-dev/jobq/tui/screen"
	"github.com/jobq-dev/jobq/tui/theme"
	"github.com/jobq-dev/jobq/tui/widget"
)

// Model is the root of the UI. It owns the connection, the size, what the
// database has said, the questions under way and the overlay, and takes messages
// to the screen that is shown. What a screen is about, it knows itself.
type Model struct {
	env           env
	width, height int
	look          look
	paint         *widget.Painter
	facts         *data.Facts
	polls         [data.PanelEnd]poll

	screens map[screen.Name]screen.Screen
	at      screen.Name
	back    []screen.Name // where esc leads
	past    []visited     // where [ leads, the last one first
	ahead   []visited     // and ]

	overlay    overlay.Overlay  // nil for none
	held       []func() tea.Cmd // questions that wait until it is closed
	toast      string
	toastUntil time.Time
	lastAudit  int64  // for undo
	lastEdit   string // as a command, without the program's name
	bulk       *bulkRun

	feed    feedState
	feedAt  time.Time
	feedLag time.Duration

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
	mouse bool         // is heard
}

func newModel(e env) *Model {
	if e.commands == nil {
		e.commands = commands()
	}
	m := &Model{env: e, at: screen.Overview, lastKey: e.now(), facts: data.NewFacts(e.now), paint: &widget.Painter{Now: e.now}}
	m.restyle()
	kit := screen.Kit{Paint: m.paint, Facts: m.facts, Key: m.env.keyOf}
	m.screens = map[screen.Name]screen.Screen{
		screen.Overview: screen.NewOverview(kit), screen.Jobs: screen.NewJobs(kit), screen.Queues: screen.NewQueues(kit),
		screen.Workers: screen.NewWorkers(kit), screen.Errors: screen.NewErrors(kit), screen.Audit: screen.NewAudit(kit), screen.Job: screen.NewJob(kit),
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
	if m.blurred || m.env.calm {
		every = tickBlur
	}
	return tea.Tick(every, func(now time.Time) tea.Msg { return tickMsg(now) })
}

// Update takes a message in, and returns what to do outside of the model: what
// the message asks for, and the questions that are due then.
func (m *Model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	var command tea.Cmd
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.resize(msg.Width, msg.Height)
	case tea.FocusMsg:
		m.blurred = false
		m.need()
	case tea.BlurMsg:
		m.blurred = true
	case tea.ResumeMsg:
		m.suspended = false
		m.need()
		command = m.env.send.resume()
	case tea.BackgroundColorMsg:
		m.look.style.Background = map[bool]string{true: "dark", false: "light"}[msg.IsDark()]
		m.restyle()
	case tea.ColorProfileMsg:
		m.look.style.Profile = msg.Profile
		m.restyle()
	case tea.KeyPressMsg:
		m.lastKey = m.env.now()
		command = m.key(msg)
	case tea.PasteMsg:
		if m.overlay != nil {
			command = m.toOverlay(msg)
		}
	case tea.MouseWheelMsg, tea.MouseClickMsg:
		command = m.mouse(msg)
	case effect:
		command = msg.apply(m)
	default:
		command = m.toScreens(msg)
	}
	return m, tea.Batch(command, m.poll())
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

// toScreen gives a message to the screen that is shown.
func (m *Model) toScreen(msg tea.Msg) tea.Cmd { return m.request(m.current().Update(msg)) }

// key goes to what is on top: an overlay, else the registry.
func (m *Model) key(msg tea.KeyPressMsg) tea.Cmd {
	name := msg.String()
	if name == "ctrl+c" {
		return tea.Quit
	}
	if m.overlay != nil {
		return m.toOverlay(msg)
	}
	if command := m.env.commandFor(m.at, name); command != nil {
		return m.run(command)
	}
	return nil
}

// run runs a command, or says why it cannot. What the screen does for it comes
// before what the root does.
func (m *Model) run(c *command) tea.Cmd {
	action, ours := m.current().Actions()[c.id]
	reason := ""
	switch {
	case c.class != reading && m.writeDisabled() != "":
		reason = m.writeDisabled()
	case ours && action.Disabled != nil:
		reason = action.Disabled()
	case !ours && c.disabled != nil:
		reason = c.disabled(m)
	}
	switch {
	case reason != "":
		m.say(c.id + ": " + reason)
		return nil
	case ours:
		return m.request(action.Run())
	case c.run != nil:
		return c.run(m)
	}
	return nil
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
	case m.offline():
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

// toggleMouse takes the mouse, or gives it back to the terminal, with which
// text can be selected then.
func (m *Model) toggleMouse() tea.Cmd {
	m.look.mouse = !m.look.mouse
	if m.look.mouse {
		m.say("mouse: the wheel moves, a click selects; " + m.env.keyOf("mouse") + " gives it back to the terminal")
	} else {
		m.say("mouse: given back to the terminal")
	}
	return nil
}
