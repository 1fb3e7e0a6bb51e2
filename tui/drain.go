package tui

import (
	"context"
	"fmt"

	tea "charm.land/bubbletea/v2"

	"github.com/jobq-dev/jobq/tui/overlay"
	"github.com/jobq-dev/jobq/tui/widget"
)

// drainedMsg is what came of asking a worker to drain.
type drainedMsg struct {
	worker string
	asked  bool
	err    error
}

func noDrain(m *Model) string {
	if len(m.workers) == 0 {
		return "no worker has registered"
	}
	if m.workers[m.workerAt()].Draining {
		return "the worker drains already"
	}
	return ""
}

// drain asks the worker under the cursor to take no new work, and to leave.
func (m *Model) drain() tea.Cmd {
	worker := m.workers[m.workerAt()]
	m.moveWorker(0)
	w := m.env.writer
	var answer overlay.Typed
	if m.env.confirm {
		answer = overlay.Typed{Text: "drain", Effect: "drain it"}
	}
	m.ask("drain worker "+widget.Clean(worker.ID), []string{
		fmt.Sprintf("effect    it takes no new work, and leaves when what it runs has ended: %d now", worker.Running),
		"this cannot be undone; what supervises it may start another one",
	}, answer, m.write(func(ctx context.Context) tea.Msg {
		asked, err := w.DrainWorker(ctx, worker.ID)
		return drainedMsg{worker.ID, asked, err}
	}))
	return nil
}

func (m *Model) drained(msg drainedMsg) {
	switch {
	case msg.err != nil:
		m.say("drain: " + shortError(msg.err))
	case !msg.asked:
		m.say("drain: the worker drains already")
	default:
		m.say("asked worker " + widget.Clean(msg.worker) + " to drain")
	}
	m.need(panelWorkers)
}
