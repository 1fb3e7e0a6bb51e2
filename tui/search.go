package tui

import (
	"fmt"
	"slices"
	"strings"

	tea "charm.land/bubbletea/v2"

	"github.com/jobq-dev/jobq/tui/widget"
)

// askSearch lets the operator type what to look for in the run's output.
func (m *Model) askSearch() tea.Cmd {
	m.overlay = &inputOverlay{
		title: "Search the output", text: []rune(m.job.search), hints: func(*Model, string) []string { return nil },
		accept: func(m *Model, text string) (tea.Cmd, error) {
			m.job.search, m.job.found, m.job.output = text, -1, true
			if text == "" {
				m.job.scroll = 0
				return nil, nil
			}
			return m.findMatch(1), nil
		},
	}
	return nil
}

func noSearch(m *Model) string {
	if m.job.search == "" {
		return "there is no search: " + m.keyOf("filter") + " begins one"
	}
	return ""
}

// findMatch goes to the next line with the searched text, or the previous one,
// and round at the ends.
func (m *Model) findMatch(by int) tea.Cmd {
	lines := m.outputText()
	var at []int
	for i, line := range lines {
		if matches(line, m.job.search) {
			at = append(at, i)
		}
	}
	if len(at) == 0 {
		m.say("search: nothing in the output matches " + widget.Clean(m.job.search))
		return nil
	}
	place, exact := slices.BinarySearch(at, m.job.found)
	switch {
	case by < 0:
		place--
	case exact:
		place++
	}
	place = (place + len(at)) % len(at)
	m.job.found, m.job.output = at[place], true
	m.job.scroll = max(len(lines)-1-at[place]-m.layout().body/2, 0)
	m.say(fmt.Sprintf("match %d of %d", place+1, len(at)))
	return nil
}

func matches(line, search string) bool {
	return strings.Contains(strings.ToLower(line), strings.ToLower(search))
}
