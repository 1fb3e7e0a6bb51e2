package tui

import (
	"fmt"
	"strings"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/jobq-dev/jobq/internal/format"
	"github.com/jobq-dev/jobq/tui/overlay"
	"github.com/jobq-dev/jobq/tui/widget"
)

// The smallest terminal that the screens fit in.
const (
	widthMin  = 60
	heightMin = 15
)

// layout is where things go; the only place that knows the breakpoints.
type layout struct {
	wide    bool // extra columns, two columns of detail
	narrow  bool
	preview int // lines of preview below the list
	body    int // lines between header and footer
}

func (m *Model) layout() layout {
	l := layout{wide: m.width >= 120, narrow: m.width < 80, body: m.height - 5}
	if m.height >= 30 {
		l.preview = 8
	}
	return l
}

// View draws the screen.
func (m *Model) View() tea.View {
	frame, cursor := m.draw()
	view := tea.NewView(frame)
	view.AltScreen = true
	view.ReportFocus = true
	view.WindowTitle = m.title()
	if m.look.mouse {
		view.MouseMode = tea.MouseModeCellMotion
	}
	if cursor != nil {
		view.Cursor = tea.NewCursor(cursor.X, cursor.Y)
		view.Cursor.Blink = false
	}
	return view
}

func (m *Model) title() string {
	title := "jobq"
	if m.env.name != "" {
		title += " " + m.env.name
	}
	return widget.Clean(title)
}

// draw draws exactly height lines of width cells, and says where the terminal's
// cursor goes: into a text field, or to the selected row, which is what screen
// readers and magnifiers follow.
func (m *Model) draw() (frame string, cursor *overlay.Spot) {
	if m.width < widthMin || m.height < heightMin {
		return m.tooSmall(), nil
	}
	lines := []string{m.headLine(), m.tabLine(), m.paint.Rule(m.width)}
	body := m.body()
	for i := range m.layout().body {
		line := ""
		if i < len(body) {
			line = body[i]
		}
		lines = append(lines, m.paint.Fit(line, m.width))
	}
	lines = append(lines, m.paint.Rule(m.width), m.footLine())
	if m.overlay == nil {
		if r := m.rowsShown(); r.count > 0 {
			cursor = &overlay.Spot{Y: r.top + r.at}
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

func (m *Model) body() []string {
	switch m.screen {
	case screenOverview:
		return m.overviewBody()
	case screenJobs:
		return m.jobsBody()
	case screenQueues:
		return m.queuesBody()
	case screenWorkers:
		return m.workersBody()
	case screenAudit:
		return m.auditBody()
	case screenJob:
		return m.jobBody()
	}
	return nil
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
	if m.layout().wide {
		if m.session != nil {
			left += "  " + widget.Clean(m.env.host) + "/" + widget.Clean(m.session.Database)
		}
		if m.env.schema != "" {
			left += "  schema " + widget.Clean(m.env.schema)
		}
		if m.leader != nil {
			right += fmt.Sprintf("   leader pid %d@%s", m.leader.PID, widget.Clean(m.leader.Address))
		}
	}
	access := "RW"
	switch {
	case m.env.reader == nil, m.session == nil: // it is not known yet
		access = "--"
	case m.writeDisabled() != "":
		access = p.Warn.Render("RO")
	}
	return left, right + "   " + access + "  " + m.env.now().UTC().Format("15:04:05Z") + " "
}

// reasonCells is the room on line 1 for why there are no live events.
const reasonCells = 40

// health is how fresh the screen is.
func (m *Model) health(p *widget.Painter) string {
	switch {
	case m.env.reader == nil:
		return p.Muted.Render("connecting " + p.More)
	case m.offline():
		offline := p.Off + " offline " + format.Ago(m.env.now().Sub(m.offlineSince))
		return p.Alarm.Render(offline) + ", trying on"
	case m.frozen:
		return p.Warn.Render(p.Pause + " frozen")
	case m.feed == feedLive && m.feedLag > 0:
		return p.Good.Render(p.Live) + " live " + format.Took(m.feedLag)
	case m.feed == feedLive:
		return p.Good.Render(p.Live) + " live"
	}
	health := p.Warn.Render(p.Poll) + " poll"
	if m.feed == feedPolling && m.feedReason != "" {
		health += ": " + ansi.Truncate(widget.Clean(m.feedReason), reasonCells, p.More)
	}
	return health
}

func (m *Model) tabLine() string {
	if m.screen == screenJob {
		return m.jobHead()
	}
	names := []string{"Overview", "Jobs", "Queues", "Workers", "Audit"}
	for i, name := range names {
		names[i] = m.keyOf(strings.ToLower(name)) + " " + name
		if screen(i) == m.screen {
			names[i] = m.paint.Selected.Render(names[i])
		}
	}
	return m.paint.Fit(" "+strings.Join(names, "   "), m.width)
}

// footLine is what was said last, or else what the keys do.
func (m *Model) footLine() string {
	if m.toast != "" {
		return m.paint.Fit(" "+m.paint.Title.Render(widget.Clean(m.toast)), m.width)
	}
	right := ""
	if m.layout().wide {
		if age := m.dataAge(); age != "" {
			right = m.paint.Muted.Render("updated " + age + " ago ")
		}
	}
	if problem := m.problem(); problem != "" {
		right = m.paint.Warn.Render(problem) + " "
	}
	return m.paint.Spread(" "+m.keyHints(m.width-widget.Width(right)-2), right, m.width)
}

// dataAge is how old the oldest answer on the screen is.
func (m *Model) dataAge() string {
	now := m.env.now()
	oldest := now
	for _, p := range m.wanted()[1:] {
		if at := m.polls[p].at; !at.IsZero() && at.Before(oldest) {
			oldest = at
		}
	}
	if m.feed == feedLive && !m.feedAt.IsZero() && m.feedAt.After(oldest) {
		oldest = m.feedAt
	}
	return fmt.Sprintf("%.1fs", now.Sub(oldest).Seconds())
}

// problem is the last query that went wrong, of those on the screen.
func (m *Model) problem() string {
	names := map[panel]string{
		panelQueues: "counts", panelMinutes: "stats", panelFailures: "failures", panelWorkers: "workers", panelPage: "page",
		panelVisible: "rows", panelCount: "count", panelJob: "job", panelAudit: "audit", panelSession: "session", panelLeader: "leader", panelEvents: "events",
	}
	for _, p := range m.wanted() {
		if err := m.polls[p].err; err != nil {
			if m.offline() {
				return "" // line 1 says it
			}
			return widget.Clean(names[p] + ": " + queryProblem(err))
		}
	}
	return ""
}
