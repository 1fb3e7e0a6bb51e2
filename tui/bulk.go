package tui

import (
	"context"
	"errors"
	"fmt"

	tea "charm.land/bubbletea/v2"

	"github.com/jobq-dev/jobq"
)

// bulkRun is a bulk action under way.
type bulkRun struct {
	action   jobq.Action
	total    int64
	progress jobq.BulkProgress
	stop     context.CancelFunc
	steps    <-chan bulkMsg
}

// actOnAll asks for the number of jobs, and then acts on all that matched.
func (m *Model) actOnAll(action jobq.Action) tea.Cmd {
	all := m.jobs.all
	details := []string{
		"filter    " + filterOrAll(all.filter),
		"snapshot  " + all.at.UTC().Format("15:04:05Z") + ": jobs that come or end later are left alone",
		"effect    " + effectOf(action),
		"as a command   " + clean(bulkCommand(action, all.filter)),
	}
	typed := fmt.Sprint(all.count)
	m.ask(fmt.Sprintf("%s %s jobs that match", action, capped(all.count)), details, typed, func() tea.Msg {
		return startBulkMsg{action, all}
	})
	return nil
}

func filterOrAll(filter string) string {
	if filter == "" {
		return "none: all jobs"
	}
	return clean(filter)
}

// startBulkMsg begins a bulk action that was confirmed.
type startBulkMsg struct {
	action jobq.Action
	all    *allMatching
}

// startBulk runs the action apart from the model, which hears of each batch.
func (m *Model) startBulk(msg startBulkMsg) tea.Cmd {
	ctx, stop := context.WithCancel(context.Background())
	steps := make(chan bulkMsg, 1)
	m.bulk = &bulkRun{action: msg.action, total: msg.all.count, stop: stop, steps: steps}
	m.overlay = &progressOverlay{}
	w := m.env.writer
	work := func() tea.Msg {
		defer stop()
		progress, err := w.Bulk(ctx, jobq.BulkParams{
			Action: msg.action, Filter: jobq.Filter{Match: msg.all.filter},
			OnBatch: func(progress jobq.BulkProgress) {
				select {
				case steps <- bulkMsg{progress: progress}:
				default: // the one before is yet to be shown; the next one says more
				}
			},
		})
		close(steps)
		return bulkMsg{progress: progress, done: true, err: err}
	}
	return tea.Batch(work, m.bulk.listen())
}

// listen waits for the next step.
func (b *bulkRun) listen() tea.Cmd {
	steps := b.steps
	return func() tea.Msg {
		step, open := <-steps
		if !open {
			return nil
		}
		return step
	}
}

func (m *Model) takeBulk(msg bulkMsg) tea.Cmd {
	if m.bulk == nil {
		return nil
	}
	if msg.progress.Done >= m.bulk.progress.Done {
		m.bulk.progress = msg.progress
	}
	if !msg.done {
		return m.bulk.listen()
	}
	text := fmt.Sprintf("%s: %d jobs, %d not", m.bulk.action, msg.progress.Done, msg.progress.Refused)
	switch {
	case errors.Is(msg.err, context.Canceled):
		text += fmt.Sprintf("; stopped, action %d", msg.progress.AuditID)
	case msg.err != nil:
		text += ": " + shortError(msg.err)
	}
	if msg.progress.Done > 0 {
		m.lastAudit = msg.progress.AuditID
		text += "   u undo"
	}
	m.say(text)
	if _, ok := m.overlay.(*progressOverlay); ok {
		m.overlay = nil
	}
	m.bulk, m.jobs.all = nil, nil
	m.renew(panelPage, panelVisible, panelCount)
	return m.poll()
}
