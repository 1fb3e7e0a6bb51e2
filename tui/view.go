package tui

import (
	"fmt"
	"strings"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
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
	view := tea.NewView(m.look.theme.paint(m.frame()))
	view.AltScreen = true
	view.ReportFocus = true
	view.WindowTitle = m.title()
	if m.look.mouse {
		view.MouseMode = tea.MouseModeCellMotion
	}
	if y, ok := m.cursorLine(); ok {
		view.Cursor = tea.NewCursor(0, y)
		view.Cursor.Blink = false
	}
	return view
}

func (m *Model) title() string {
	title := "jobq"
	if m.env.name != "" {
		title += " " + m.env.name
	}
	return clean(title)
}

// frame is the screen as text: exactly height lines of exactly width cells.
func (m *Model) frame() string {
	if m.width < widthMin || m.height < heightMin {
		return m.tooSmall()
	}
	lines := []string{m.headLine(), m.tabLine(), m.rule(m.width)}
	body := m.body()
	for i := range m.layout().body {
		line := ""
		if i < len(body) {
			line = body[i]
		}
		lines = append(lines, m.fit(line, m.width))
	}
	lines = append(lines, m.rule(m.width), m.footLine())
	if m.overlay != nil {
		lines = m.cover(lines, m.overlay.view(m))
	}
	return strings.Join(lines, "\n")
}

// tooSmall says what would be large enough, and what works instead.
func (m *Model) tooSmall() string {
	text := fmt.Sprintf("jobq needs %dx%d, this is %dx%d. `jobq stats --watch` works at any size.", widthMin, heightMin, m.width, m.height)
	lines := strings.Split(ansi.Wordwrap(text, max(m.width, 1), ""), "\n")
	for i := range lines {
		lines[i] = m.fit(lines[i], m.width)
	}
	for len(lines) < m.height {
		lines = append(lines, m.fit("", m.width))
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

// headLine says where we are, how fresh what is shown is, and what we may do.
func (m *Model) headLine() string {
	name := ""
	if m.env.name != "" {
		name = bold(clean(m.env.name))
		if m.env.color != "" && !m.env.production {
			name = styled(sgrReverse+colorSGR(m.env.color), " "+clean(m.env.name)+" ")
		}
	}
	left := " " + bold("jobq") + " " + name
	if m.layout().wide {
		if m.session != nil {
			left += "  " + clean(m.env.host) + "/" + clean(m.session.Database)
		}
		if m.env.schema != "" {
			left += "  schema " + clean(m.env.schema)
		}
	}
	right := m.health()
	if m.layout().wide {
		if m.leader != nil {
			right += fmt.Sprintf("   leader pid %d@%s", m.leader.PID, clean(m.leader.Address))
		}
	}
	access := "RW"
	switch {
	case m.env.reader == nil, m.session == nil: // it is not known yet
		access = "--"
	case m.writeDisabled() != "":
		access = styled(sgrYellow, "RO")
	}
	right += "   " + access + "  " + m.env.now().UTC().Format("15:04:05Z") + " "
	if m.env.production {
		return m.productionLine(left, right)
	}
	return m.spread(left, right, m.width)
}

// productionLine is the first line, painted from end to end, with the word in
// it where the name does not say it.
func (m *Model) productionLine(left, right string) string {
	if !strings.Contains(strings.ToLower(m.env.name), "prod") {
		left += "  PRODUCTION"
	}
	paint := sgrRed
	if m.env.color != "" {
		paint = colorSGR(m.env.color)
	}
	return styled(sgrReverse+sgrBold+paint, ansi.Strip(m.spread(left, right, m.width)))
}

// reasonCells is the room on line 1 for why there are no live events.
const reasonCells = 40

// health is how fresh the screen is.
func (m *Model) health() string {
	g := m.env.glyphs
	now := m.env.now()
	switch {
	case m.env.reader == nil:
		return dim("connecting " + g.more)
	case m.offline():
		return red(fmt.Sprintf("%s offline %s", g.off, ago(now.Sub(m.offlineSince)))) + ", trying on"
	case m.frozen:
		return styled(sgrYellow, g.pause+" frozen")
	case m.feed == feedLive && m.feedLag > 0:
		return styled(sgrGreen, g.live) + " live " + took(m.feedLag)
	case m.feed == feedLive:
		return styled(sgrGreen, g.live) + " live"
	}
	health := styled(sgrYellow, g.poll) + " poll"
	if m.feed == feedPolling && m.feedReason != "" {
		health += ": " + ansi.Truncate(clean(m.feedReason), reasonCells, g.more)
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
			names[i] = styled(sgrReverse, names[i])
		}
	}
	return m.fit(" "+strings.Join(names, "   "), m.width)
}

// footLine is what was said last, or else what the keys do.
func (m *Model) footLine() string {
	if m.toast != "" {
		return m.fit(" "+bold(clean(m.toast)), m.width)
	}
	right := ""
	if m.layout().wide {
		if age := m.dataAge(); age != "" {
			right = dim("updated " + age + " ago ")
		}
	}
	if problem := m.problem(); problem != "" {
		right = styled(sgrYellow, problem) + " "
	}
	return m.spread(" "+m.keyHints(m.width-width(right)-2), right, m.width)
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
			return clean(names[p] + ": " + queryProblem(err))
		}
	}
	return ""
}

// cover draws a box over the middle of the lines.
func (m *Model) cover(lines, box []string) []string {
	if len(box) == 0 {
		return lines
	}
	top := max((len(lines)-len(box))/2, 0)
	for i, row := range box {
		if top+i < len(lines) {
			left := max((m.width-width(row))/2, 0)
			lines[top+i] = m.fit(strings.Repeat(" ", left)+row, m.width)
		}
	}
	return lines
}
