package tui

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/jobq-dev/jobq/internal/format"
	"github.com/jobq-dev/jobq/tui/command"
	"github.com/jobq-dev/jobq/tui/overlay"
	"github.com/jobq-dev/jobq/tui/screen"
	"github.com/jobq-dev/jobq/tui/widget"
)

// The smallest terminal that the screens fit in.
const (
	widthMin  = 60
	heightMin = 15
)

// headLines and footLines are what is above and below the body of a screen: where
// we are and the screens, and what the keys do, each with a line that parts it.
const (
	headLines = 3
	footLines = 2
)

// wide says whether line 1 has room for more.
func (m *Model) wide() bool { return m.width >= 120 }

// View draws the screen.
func (m *Model) View() tea.View {
	frame, cursor := m.draw()
	view := tea.NewView(frame)
	view.AltScreen = true
	view.ReportFocus = true
	view.WindowTitle = widget.Clean(strings.TrimSpace("jobq " + m.env.name))
	if m.look.mouse {
		view.MouseMode = tea.MouseModeCellMotion
	}
	if cursor != nil {
		view.Cursor = tea.NewCursor(cursor.X, cursor.Y)
		view.Cursor.Blink = false
	}
	return view
}

// draw draws exactly height lines of width cells, and says where the terminal's
// cursor goes: into a text field, or to the selected row, which is what screen
// readers and magnifiers follow.
func (m *Model) draw() (frame string, cursor *overlay.Spot) {
	if m.width < widthMin || m.height < heightMin {
		return m.tooSmall(), nil
	}
	body := m.current().View()
	head := body.Head
	if head == "" {
		head = m.screenNames()
	}
	lines := []string{m.headLine(), head, m.paint.Rule(m.width)}
	for i := range m.height - headLines - footLines {
		line := ""
		if i < len(body.Lines) {
			line = body.Lines[i]
		}
		lines = append(lines, m.paint.Fit(line, m.width))
	}
	lines = append(lines, m.paint.Rule(m.width), m.footLine())
	if m.overlay == nil {
		if body.Cursor >= 0 {
			cursor = &overlay.Spot{Y: headLines + body.Cursor}
		}
		return strings.Join(lines, "\n"), cursor
	}
	box, spot := m.overlay.View()
	lines, x, y := widget.Over(lines, box, m.width)
	if spot != nil {
		cursor = &overlay.Spot{X: min(x+spot.X, m.width-1), Y: min(y+spot.Y, m.height-1)}
	}
	return strings.Join(lines, "\n"), cursor
}

// tooSmall says what would be large enough, and what works instead.
func (m *Model) tooSmall() string {
	text := fmt.Sprintf("jobq needs %dx%d, this is %dx%d. `jobq stats --watch` works at any size.", widthMin, heightMin, m.width, m.height)
	lines := strings.Split(ansi.Wordwrap(text, max(m.width, 1), ""), "\n")
	for i := range lines {
		lines[i] = m.paint.Fit(lines[i], m.width)
	}
	for len(lines) < m.height {
		lines = append(lines, m.paint.Fit("", m.width))
	}
	return strings.Join(lines[:max(m.height, 1)], "\n")
}

// headLine says where we are, how fresh what is shown is, and what we may do. In
// production it is painted from end to end, with the word in it where the name
// does not say it.
func (m *Model) headLine() string {
	if !m.env.production {
		left, right := m.headParts(m.paint)
		return m.paint.Spread(left, right, m.width)
	}
	bare := *m.paint
	bare.Theme = m.look.bare
	left, right := m.headParts(&bare)
	if !strings.Contains(strings.ToLower(m.env.name), "prod") {
		left += "  PRODUCTION"
	}
	colour := m.env.color
	if colour == "" {
		colour = "red"
	}
	return m.paint.Banner(colour).Render(m.paint.Spread(left, right, m.width))
}

func (m *Model) headParts(p *widget.Painter) (left, right string) {
	name := ""
	if m.env.name != "" {
		name = p.Title.Render(widget.Clean(m.env.name))
		if m.env.color != "" && !m.env.production {
			name = p.Banner(m.env.color).Render(" " + widget.Clean(m.env.name) + " ")
		}
	}
	left = " " + p.Title.Render("jobq") + " " + name
	right = m.health(p)
	if m.wide() {
		if m.facts.Session != nil {
			left += "  " + widget.Clean(m.env.host) + "/" + widget.Clean(m.facts.Session.Database)
		}
		if m.env.schema != "" {
			left += "  schema " + widget.Clean(m.env.schema)
		}
		if m.facts.Leader != nil {
			right += "   leader pid " + widget.ServerProcess(m.facts.Leader.PID, m.facts.Leader.Address)
		}
	}
	access := "RW"
	switch {
	case m.env.reader == nil, m.facts.Session == nil: // it is not known yet
		access = "--"
	case m.writeDisabled() != "":
		access = p.Warn.Render(strings.TrimSpace("RO " + m.standbyLag()))
	}
	return left, right + "   " + access + "  " + m.env.now().UTC().Format("15:04:05Z") + " "
}

// standbyLag is how far the standby that is shown is behind, if that is a second or more.
func (m *Model) standbyLag() string {
	if lag := m.facts.Session.StandbyLag; lag != nil && *lag >= time.Second {
		return format.Ago(*lag) + " behind"
	}
	return ""
}

// reasonCells is the room on line 1 for why there are no live events.
const reasonCells = 40

// health is how fresh the screen is.
func (m *Model) health(p *widget.Painter) string {
	switch {
	case m.env.reader == nil:
		return p.Muted.Render("connecting " + p.More)
	case m.polling.Offline():
		offline := p.Off + " offline " + format.Ago(m.polling.OfflineFor())
		return p.Alarm.Render(offline) + ", trying on"
	case m.frozen:
		return p.Warn.Render(p.Pause + " frozen")
	case m.feed == feedLive && m.feedLag > 0:
		return p.Good.Render(p.Live) + " live " + format.Took(m.feedLag)
	case m.feed == feedLive:
		return p.Good.Render(p.Live) + " live"
	}
	health := p.Warn.Render(p.Poll) + " poll"
	if m.feed == feedPolling && m.facts.WhyNotLive != "" {
		health += ": " + ansi.Truncate(widget.Clean(m.facts.WhyNotLive), reasonCells, p.More)
	}
	return health
}

// screenNames are the screens that have a key.
func (m *Model) screenNames() string {
	names := func(titles map[screen.Name]string, gap string) string {
		var names []string
		for _, name := range screen.Names() {
			if name == screen.Job {
				continue
			}
			title := cmp.Or(titles[name], strings.ToUpper(string(name[:1]))+string(name[1:]))
			text := m.env.keyOf(string(name)) + " " + title
			if name == m.at {
				text = m.paint.Selected.Render(text)
			}
			names = append(names, text)
		}
		return " " + strings.Join(names, gap)
	}
	line := names(nil, "   ")
	if widget.Width(line) > m.width {
		line = names(nil, "  ")
	}
	if widget.Width(line) > m.width {
		line = names(map[screen.Name]string{screen.Overview: "Over", screen.Schedules: "Sched"}, " ")
	}
	return m.paint.Fit(line, m.width)
}

// footLine is what was said last, or else what the keys do.
func (m *Model) footLine() string {
	if m.toast != "" {
		return m.paint.Fit(" "+m.paint.Title.Render(widget.Clean(m.toast)), m.width)
	}
	right := ""
	if m.wide() {
		right = m.paint.Muted.Render("updated " + m.dataAge() + " ago ")
	}
	if problem := m.problem(); problem != "" {
		right = m.paint.Warn.Render(problem) + " "
	}
	return m.paint.Spread(" "+m.keyHints(m.width-widget.Width(right)-2), right, m.width)
}

// dataAge is how old the oldest answer on the screen is.
func (m *Model) dataAge() string {
	oldest := m.polling.Oldest(m.current().Wants())
	if m.feed == feedLive && !m.feedAt.IsZero() && m.feedAt.After(oldest) {
		oldest = m.feedAt
	}
	return format.Seconds(m.env.now().Sub(oldest))
}

// problem is the last query that went wrong, of those on the screen.
func (m *Model) problem() string {
	panel, err := m.polling.Problem(m.wanted())
	if err == nil || m.polling.Offline() { // which line 1 says
		return ""
	}
	return widget.Clean(panel.String() + ": " + screen.Problem(err))
}

// keyHints are the keys that matter most on the screen, of those that do something with
// what is selected.
func (m *Model) keyHints(cells int) string {
	var hints []string
	help, used := m.env.keyOf(command.Help)+" help", 0
	sets := m.actionSets()
	for _, c := range m.env.commands {
		if c.Title == "" || !c.On(string(m.at)) || c.ID == command.Help {
			continue
		}
		if c.ID == command.Filter && m.at == screen.Job || c.Class != command.Reading && m.writeDisabled() != "" {
			continue
		}
		action, found := find(c, sets)
		if !found || action.Disabled != nil && action.Disabled() != "" {
			continue
		}
		title := cmp.Or(action.Title, c.Title)
		hint := widget.Width(c.Keys[0] + " " + title)
		if used+hint+2 > cells-len(help)-2 {
			continue
		}
		used += hint + 2
		hints = append(hints, m.paint.Title.Render(c.Keys[0])+" "+title)
	}
	return strings.Join(append(hints, m.paint.Title.Render(m.env.keyOf(command.Help))+" help"), "  ")
}
