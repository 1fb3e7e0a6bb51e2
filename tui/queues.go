package tui

import (
	"context"
	"fmt"

	tea "charm.land/bubbletea/v2"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/format"
	"github.com/jobq-dev/jobq/tui/overlay"
	"github.com/jobq-dev/jobq/tui/widget"
)

func (m *Model) queuesBody() []string {
	if m.polls[panelQueues].at.IsZero() {
		return []string{"", " " + m.waiting(panelQueues)}
	}
	lines := m.queueTable(m.queueRows(), "trouble first")
	if len(m.queues) == 0 {
		return lines
	}
	q := m.queues[m.queueAt()]
	r := m.rates(q.Name)
	lines = append(lines, m.paint.Rule(m.width, widget.Clean(q.Name)))
	paused := "no"
	if q.PausedAt != nil {
		paused = fmt.Sprintf("since %s by %s %s", m.paint.Clock(*q.PausedAt), widget.Clean(q.PausedBy), widget.Clean(q.PauseReason))
	}
	return append(
		lines,
		fmt.Sprintf(" paused    %s", paused),
		fmt.Sprintf(" lease     %s        slots %d, %d running", q.Lease, q.Slots, q.Running),
		fmt.Sprintf(" last min  %s/s done   %s/s failed   run avg %s   wait avg %s", format.Rate(r.completed), format.Rate(r.failed), format.Took(r.run), format.Took(r.wait)),
		" 60 min    "+m.paint.Spark(m.series(q.Name, false), 60),
		" failed    "+m.paint.Spark(m.series(q.Name, true), 60),
	)
}

// queueRows is how many queues the screen has room for.
func (m *Model) queueRows() int { return max(m.layout().body-9, 3) }

// moveQueue moves the cursor over queues, which it knows by name.
func (m *Model) moveQueue(by int) {
	m.cursor[screenQueues] = m.cursor[screenQueues].moved(by, len(m.queues), m.queueName)
}

// openQueue shows the queue's jobs.
func (m *Model) openQueue() tea.Cmd {
	if len(m.queues) == 0 {
		return nil
	}
	m.show(screenJobs)
	m.jobs.setMatch("queue:" + quoteValue(m.queues[m.queueAt()].Name))
	m.renew(panelPage, panelVisible, panelCount)
	return nil
}

func noQueue(m *Model) string {
	if len(m.queues) == 0 {
		return "no queue is selected"
	}
	return ""
}

// togglePause pauses the queue under the cursor, or lets it go on.
func (m *Model) togglePause() tea.Cmd {
	q := m.queues[m.queueAt()]
	m.moveQueue(0)
	w := m.env.writer
	verb := "pause"
	act := func(ctx context.Context) (bool, error) { return w.PauseQueue(ctx, q.Name, "", "from the terminal UI") }
	if q.PausedAt != nil {
		verb = "resume"
		act = func(ctx context.Context) (bool, error) { return w.ResumeQueue(ctx, q.Name) }
	}
	run := m.write(func(ctx context.Context) tea.Msg {
		changed, err := act(ctx)
		return queueActedMsg{q.Name, verb, changed, err}
	})
	if !m.env.confirm {
		return m.begin(run)
	}
	m.ask(fmt.Sprintf("%s queue %s", verb, widget.Clean(q.Name)), nil, overlay.Typed{}, run)
	return nil
}

func (m *Model) queueActed(msg queueActedMsg) {
	switch {
	case msg.err != nil:
		m.say(msg.verb + ": " + shortError(msg.err))
	case !msg.changed:
		m.say(fmt.Sprintf("%s: queue %s was so already", msg.verb, widget.Clean(msg.queue)))
	default:
		m.say(fmt.Sprintf("%sd queue %s", msg.verb, widget.Clean(msg.queue)))
	}
	m.need(panelQueues)
}

// write runs a change apart from the model.
func (m *Model) write(change func(context.Context) tea.Msg) tea.Cmd {
	return func() tea.Msg {
		ctx, cancel := context.WithTimeout(context.Background(), writeTimeout)
		defer cancel()
		return change(ctx)
	}
}

var _ writer = (*jobq.Client)(nil)
