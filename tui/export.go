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
func (m *Model) export(extension string) tea.Cmd {
	encode := jsonLines
	if extension == "csv" {
		encode = format.CSV
	}
	rows, what := m.exported()
	path := fmt.Sprintf("jobq-%s-%s.%s", what, m.env.now().UTC().Format("20060102-150405"), extension)
	save := m.env.save
	return m.begin(func() tea.Msg {
		content, err := encode(rows)
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
