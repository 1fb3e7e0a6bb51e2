package tui

import (
	"fmt"

	tea "charm.land/bubbletea/v2"

	"github.com/jobq-dev/jobq/internal/format"
	"github.com/jobq-dev/jobq/tui/request"
	"github.com/jobq-dev/jobq/tui/screen"
)

// exportedMsg is what came of writing a file.
type exportedMsg struct {
	path, what string
	count      int
	err        error
}

// exports asks for the format of the file.
func (m *Model) exports() tea.Msg {
	selected := m.current().Selected()
	how := "as they are stored"
	if m.at == screen.Jobs {
		how = "without args, checkpoint and result" // which a list does not load: they can be large
	}
	note := fmt.Sprintf("%s %s, those that are loaded, to a file here, %s", format.Number(int64(len(selected.Rows()))), selected.Noun, how)
	return request.Choose{Title: "Export", Hint: "enter: write it   any other key: leave", Notes: []string{note}, Items: []request.Item{
		{Key: "j", Text: "JSON lines", Then: request.Export{Format: "jsonl"}},
		{Key: "c", Text: "CSV, one column a field", Then: request.Export{Format: "csv"}},
	}}
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
