package tui

import (
	"context"
	"fmt"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/tui/data"
	"github.com/jobq-dev/jobq/tui/request"
	"github.com/jobq-dev/jobq/tui/screen"
	"github.com/jobq-dev/jobq/tui/widget"
)

// queueActedMsg is what came of an action on a queue.
type queueActedMsg struct {
	queue, verb string
	acted       jobq.QueueActed
	err         error
}

func (msg queueActedMsg) apply(m *Model) tea.Cmd {
	text := fmt.Sprintf("%sd queue %s", msg.verb, widget.Clean(msg.queue))
	switch {
	case msg.err != nil:
		text = msg.verb + ": " + screen.ShortError(msg.err)
	case !msg.acted.Changed:
		text = fmt.Sprintf("%s: queue %s was so already", msg.verb, widget.Clean(msg.queue))
	default:
		m.lastAudit = msg.acted.AuditID
		text += m.undoHint()
	}
	m.renew(data.Queues)
	return m.request(request.Tell{Text: text})
}

func noQueue(m *Model) string {
	if m.current().Selected().Queue == nil {
		return "no queue is selected"
	}
	return ""
}

// togglePause pauses the queue under the cursor, after asking for a reason, or
// lets it go on.
func (m *Model) togglePause() tea.Cmd {
	q := *m.current().Selected().Queue
	if q.PausedAt == nil {
		return m.request(request.Prompt{
			Title:  fmt.Sprintf("Pause queue %s: the reason, for the others who see it", widget.Clean(q.Name)),
			Accept: func(text string) (tea.Msg, error) { return pauseMsg{q.Name, text}, nil },
		})
	}
	w := m.env.writer
	return m.changeQueue(q.Name, "resume", func(ctx context.Context) (jobq.QueueActed, error) { return w.ResumeQueue(ctx, q.Name) })
}

// pauseMsg pauses a queue for a reason.
type pauseMsg struct{ queue, reason string }

func (msg pauseMsg) apply(m *Model) tea.Cmd {
	if reason := m.writeDisabled(); reason != "" { // the database may have gone while the reason was typed
		m.say("pause: " + reason)
		return nil
	}
	w := m.env.writer
	return m.changeQueue(msg.queue, "pause", func(ctx context.Context) (jobq.QueueActed, error) {
		return w.PauseQueue(ctx, msg.queue, "", msg.reason)
	})
}

// changeQueue changes a queue and, where that is asked for, asks first.
func (m *Model) changeQueue(queue, verb string, change func(context.Context) (jobq.QueueActed, error)) tea.Cmd {
	run := m.write(func(ctx context.Context) tea.Msg {
		acted, err := change(ctx)
		return queueActedMsg{queue, verb, acted, err}
	})
	if !m.env.confirm {
		return m.begin(run)
	}
	return m.ask(fmt.Sprintf("%s queue %s", verb, widget.Clean(queue)), nil, request.Typed{}, run)
}

// write runs a change apart from the model.
func (m *Model) write(change func(context.Context) tea.Msg) tea.Cmd {
	return writeWithin(writeTimeout, change)
}

func writeWithin(limit time.Duration, change func(context.Context) tea.Msg) tea.Cmd {
	return func() tea.Msg {
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		return change(ctx)
	}
}

// drainedMsg is what came of asking a worker to drain.
type drainedMsg struct {
	worker string
	asked  bool
	err    error
}

func noDrain(m *Model) string {
	worker := m.current().Selected().Worker
	switch {
	case worker == nil:
		return "no worker has registered"
	case worker.Draining:
		return "the worker drains already"
	}
	return ""
}

// drain asks the worker under the cursor to take no new jobs, and to stop.
func (m *Model) drain() tea.Cmd {
	worker := *m.current().Selected().Worker
	w := m.env.writer
	var answer request.Typed
	if m.env.confirm {
		answer = request.Typed{Text: "drain", Effect: "drain it"}
	}
	return m.ask("drain worker "+widget.Clean(worker.ID), []string{
		fmt.Sprintf("effect    it takes no new jobs, and stops when those it has are finished: %d now", worker.Running),
		"this cannot be undone; what supervises it may start another one",
	}, answer, m.write(func(ctx context.Context) tea.Msg {
		asked, err := w.DrainWorker(ctx, worker.ID)
		return drainedMsg{worker.ID, asked, err}
	}))
}

func (msg drainedMsg) apply(m *Model) tea.Cmd {
	text := "asked worker " + widget.Clean(msg.worker) + " to drain"
	switch {
	case msg.err != nil:
		text = "drain: " + screen.ShortError(msg.err)
	case !msg.asked:
		text = "drain: the worker drains already"
	}
	m.renew(data.Workers)
	return m.request(request.Tell{Text: text})
}

var _ writer = (*jobq.Client)(nil)
