package tui

import (
	"fmt"

	tea "charm.land/bubbletea/v2"

	"github.com/jobq-dev/jobq/internal/format"
	"github.com/jobq-dev/jobq/tui/screen"
)

// exportedMsg is what came of writing a file.
type exportedMsg struct {
	path, what string
	count      int
	err        error
}

// export writes what is loaded.
func (m *Model) export(extension string) tea.Cmd {
	selected := m.current().Selected()
	rows, what := selected.Rows(), selected.Noun
	path := fmt.Sprintf("jobq-%s-%s.%s", what, m.env.now().UTC().Format("20060102-150405"), extension)
	save := m.env.save
	return m.begin(func() tea.Msg {
		content, err := format.JSONLines(rows), error(nil)
		if extension == "csv" {
			content, err = format.CSV(rows, selected.Columns, nil)
		}
		if err == nil {
			err = save(path, content)
		}
		return exportedMsg{path, what, len(rows), err}
	})
}

func (msg exportedMsg) apply(m *Model) tea.Cmd {
	if msg.err != nil {
		m.say("export: " + screen.ShortError(msg.err))
		return nil
	}
	m.say(fmt.Sprintf("wrote %d %s to %s", msg.count, msg.what, msg.path))
	return nil
}
