package tui

import (
	"fmt"
	"slices"
	"strings"

	tea "charm.land/bubbletea/v2"

	"github.com/jobq-dev/jobq/tui/overlay"
	"github.com/jobq-dev/jobq/tui/widget"
)

// searched is what the operator looks for in the output.
type searched string

// askSearch lets the operator type what to look for in the run's output.
func (m *Model) askSearch() tea.Cmd {
	return m.lay(overlay.NewPrompt(m.paint, overlay.About{
		Title: "Search the output", Text: m.job.search,
		Accept: func(text string) (tea.Msg, error) { return searched(text), nil },
	}))
}

// search looks for a text in the output; none ends the search.
func (m *Model) search(text string) tea.Cmd {
	m.job.search, m.job.found, m.job.output = text, -1, true
	if text == "" {
		m.job.scroll = 0
		return nil
	}
	return m.findMatch(1)
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
