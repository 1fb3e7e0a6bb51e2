package tui

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	tea "charm.land/bubbletea/v2"

	"github.com/jobq-dev/jobq/internal/filter"
	"github.com/jobq-dev/jobq/tui/theme"
	"github.com/jobq-dev/jobq/tui/widget"
)

// inputOverlay is a line of text to type, with what can be meant below it.
type inputOverlay struct {
	title   string
	text    []rune
	problem string
	hints   func(m *Model, text string) []string
	accept  func(m *Model, text string) (tea.Cmd, error)
}

const inputMax = 1000

func (o *inputOverlay) insert(text string) {
	for _, char := range text {
		if len(o.text) < inputMax {
			o.text = append(o.text, char)
		}
	}
}

func (o *inputOverlay) key(m *Model, msg tea.KeyPressMsg) tea.Cmd {
	o.problem = ""
	switch name := msg.String(); name {
	case "esc":
		m.overlay = nil
	case "enter":
		command, err := o.accept(m, strings.TrimSpace(string(o.text)))
		if err != nil {
			o.problem = widget.Clean(err.Error())
			return nil
		}
		if m.overlay == overlay(o) {
			m.overlay = nil
		}
		return command
	case "backspace":
		o.text = o.text[:max(len(o.text)-1, 0)]
	case "ctrl+u":
		o.text = nil
	case "ctrl+w":
		text := strings.TrimRight(string(o.text), " ")
		o.text = []rune(text[:strings.LastIndex(text, " ")+1])
	case "tab":
		if hints := o.hints(m, string(o.text)); len(hints) > 0 {
			word, _, _ := strings.Cut(hints[0], " ")
			text := string(o.text)
			o.text = []rune(text[:strings.LastIndexAny(text, " ")+1] + word)
		}
	default:
		o.insert(widget.Clean(msg.Text))
	}
	return nil
}

func (o *inputOverlay) view(m *Model) []string {
	lines := []string{string(o.text) + "_"}
	if o.problem != "" {
		lines = append(lines, m.paint.Error.Render(o.problem))
	}
	lines = append(lines, "")
	hints := o.hints(m, string(o.text))
	for _, hint := range hints[:min(len(hints), m.height-9)] {
		lines = append(lines, m.paint.Muted.Render(hint))
	}
	for i := range lines {
		lines[i] = m.paint.Fit(lines[i], min(m.width-8, 100))
	}
	return m.box(o.title, append(lines, m.paint.Muted.Render("enter: go   tab: complete   esc: leave")))
}

// askFilter lets the operator type which jobs to show.
func (m *Model) askFilter() tea.Cmd {
	if m.screen == screenJob {
		return m.askSearch()
	}
	m.overlay = &inputOverlay{
		title: "Filter", text: []rune(m.jobs.match), hints: fieldHints,
		accept: func(m *Model, text string) (tea.Cmd, error) { return nil, m.applyFilter(text) },
	}
	return nil
}

// applyFilter shows the jobs that match. A state in the filter chooses the tab.
func (m *Model) applyFilter(text string) error {
	query, err := filter.Parse(text)
	if err != nil {
		return err
	}
	for t := tabAvailable; t < tabEnd; t++ {
		if strings.HasPrefix(text+" ", t.term()+" ") {
			m.jobs.tab, text = t, strings.TrimSpace(strings.TrimPrefix(text, t.term()))
			query, err = filter.Parse(text)
		}
	}
	if err != nil {
		return err
	}
	if len(query.States()) < 6 {
		m.jobs.tab = tabAll // the filter speaks of states itself
	}
	if m.screen != screenJobs {
		m.show(screenJobs)
	}
	m.jobs.setMatch(text)
	m.renew(panelPage, panelVisible, panelCount)
	return nil
}

// fieldHints are the fields that the last word may become.
func fieldHints(_ *Model, text string) []string {
	word := text[strings.LastIndex(text, " ")+1:]
	word = strings.TrimPrefix(word, "-")
	var hints []string
	for _, field := range filter.Fields() {
		if strings.HasPrefix(field.Name, word) || strings.HasPrefix(word, field.Name) {
			hints = append(hints, fmt.Sprintf("%-10s %s", field.Name+":", field.Help))
		}
	}
	return hints
}

// quoteValue is a value as the filter's grammar reads it.
func quoteValue(value string) string {
	return strings.TrimPrefix(filter.Equal("queue", value).String(), "queue:")
}

// openPalette lets the operator type a command.
func (m *Model) openPalette() tea.Cmd {
	m.overlay = &inputOverlay{title: "Command", hints: commandHints, accept: runTyped}
	return nil
}

func commandHints(m *Model, text string) []string {
	if name, found := strings.CutPrefix(text, "ctx "); found {
		return m.contextNames(name)
	}
	if name, found := strings.CutPrefix(text, "theme "); found {
		return slices.DeleteFunc(theme.Names(), func(known string) bool { return !strings.HasPrefix(known, name) })
	}
	var hints []string
	for _, c := range m.env.commands {
		if strings.HasPrefix(c.id, text) {
			hints = append(hints, fmt.Sprintf("%-14s %s  %s", c.id, strings.Join(c.keys, " "), c.help))
		}
	}
	if text == "" || strings.HasPrefix("job ", text) {
		hints = append(hints, "job ID         open a job", "jobs FILTER    show the jobs that match")
	}
	for _, hint := range []string{"ctx NAME       go to another database of your settings", "theme NAME     " + strings.Join(theme.Names(), ", ")} {
		if strings.HasPrefix(hint, text) {
			hints = append(hints, hint)
		}
	}
	return hints
}

// runTyped does what was typed into the palette.
func runTyped(m *Model, text string) (tea.Cmd, error) {
	verb, rest, _ := strings.Cut(text, " ")
	switch {
	case verb == "job" || strings.HasPrefix(verb, "job/"):
		number := strings.TrimSpace(strings.TrimPrefix(strings.TrimPrefix(text, "job"), "/"))
		id, err := strconv.ParseInt(number, 10, 64)
		if err != nil || id < 1 {
			return nil, fmt.Errorf("job: a number is needed, such as job 4711")
		}
		m.overlay = nil
		return m.openJob(id), nil
	case verb == "ctx":
		return m.goTo(strings.TrimSpace(rest))
	case verb == "theme":
		return m.setTheme(strings.TrimSpace(rest))
	case verb == "jobs" && rest != "":
		m.overlay = nil
		return nil, m.applyFilter(rest)
	}
	for _, c := range m.env.commands {
		if c.id != text {
			continue
		}
		if c.screens != nil && !slices.Contains(c.screens, m.screen) {
			return nil, fmt.Errorf("%s: not on this screen", c.id)
		}
		m.overlay = nil
		return m.run(c), nil
	}
	return nil, fmt.Errorf("no command %q; tab completes", text)
}
