package tui

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	tea "charm.land/bubbletea/v2"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/format"
)

// exportedMsg is what came of writing a file.
type exportedMsg struct {
	path, what string
	count      int
	err        error
}

// exportOverlay asks for the format of the file.
type exportOverlay struct{}

func (m *Model) openExport() tea.Cmd {
	m.overlay = &exportOverlay{}
	return nil
}

func (o *exportOverlay) key(m *Model, msg tea.KeyPressMsg) tea.Cmd {
	m.overlay = nil
	switch msg.String() {
	case "j", "enter":
		return m.export("jsonl", jsonLines)
	case "c":
		return m.export("csv", format.CSV)
	}
	return nil
}

func (o *exportOverlay) view(m *Model) []string {
	rows, what := m.exported()
	how := "as they are stored"
	if m.screen == screenJobs {
		how = "without args, checkpoint and result" // which a list does not load: they can be large
	}
	return m.box("Export", []string{
		fmt.Sprintf("%s %s, to a file here,", format.Number(int64(len(rows))), what), how, "",
		"j  JSON lines", "c  CSV, one column a field", "", m.paint.Muted.Render("any other key: leave"),
	})
}

// exported are the rows of the screen, and what they are.
func (m *Model) exported() (rows []json.RawMessage, what string) {
	switch m.screen {
	case screenJobs:
		deleted := func(job *jobq.Job) bool { return job.State == jobq.Deleted }
		return encoded(slices.DeleteFunc(slices.Clone(m.jobs.rows), deleted)), "jobs"
	case screenWorkers:
		return encoded(m.workers), "workers"
	case screenAudit:
		return encoded(m.audit), "actions"
	case screenJob:
		if m.job.story.job == nil {
			return nil, "jobs"
		}
		return encoded([]any{m.job.story.job}), "jobs"
	case screenOverview, screenQueues:
	}
	return encoded(m.queues), "queues"
}

// encoded are the rows as JSON. What came from the database always encodes.
func encoded[T any](rows []T) []json.RawMessage {
	lines := make([]json.RawMessage, 0, len(rows))
	for _, row := range rows {
		if line, err := json.Marshal(row); err == nil {
			lines = append(lines, line)
		}
	}
	return lines
}

// export writes what is loaded.
func (m *Model) export(extension string, format func([]json.RawMessage) ([]byte, error)) tea.Cmd {
	rows, what := m.exported()
	path := fmt.Sprintf("jobq-%s-%s.%s", what, m.env.now().UTC().Format("20060102-150405"), extension)
	save := m.env.save
	return m.begin(func() tea.Msg {
		content, err := format(rows)
		if err == nil {
			err = save(path, content)
		}
		return exportedMsg{path, what, len(rows), err}
	})
}

func (m *Model) exportDone(msg exportedMsg) {
	if msg.err != nil {
		m.say("export: " + shortError(msg.err))
		return
	}
	m.say(fmt.Sprintf("wrote %d %s to %s", msg.count, msg.what, msg.path))
}

func jsonLines(rows []json.RawMessage) ([]byte, error) {
	var content bytes.Buffer
	for _, row := range rows {
		content.Write(row)
		content.WriteByte('\n')
	}
	return content.Bytes(), nil
}
