package acting

import (
	"context"
	"fmt"

	tea "charm.land/bubbletea/v2"

	"github.com/jobq-dev/jobq/monitor"
	"github.com/jobq-dev/jobq/operator"
	"github.com/jobq-dev/jobq/tui/command"
	"github.com/jobq-dev/jobq/tui/data"
	"github.com/jobq-dev/jobq/tui/request"
	"github.com/jobq-dev/jobq/tui/screen"
	"github.com/jobq-dev/jobq/tui/widget"
)

func (p *Part) pauseAction(queue *monitor.Queue) screen.Action {
	return screen.Action{
		Disabled: func() string {
			if queue == nil {
				return "no queue is selected"
			}
			return ""
		},
		Run: func() tea.Msg { return p.togglePause(*queue) },
	}
}

// togglePause pauses a queue, after asking for a reason, or lets it go on.
func (p *Part) togglePause(queue monitor.Queue) tea.Msg {
	if queue.PausedAt == nil {
		return request.Prompt{
			Title:  fmt.Sprintf("Pause queue %s: the reason, for the others who see it", widget.Clean(queue.Name)),
			Accept: func(text string) (tea.Msg, error) { return pauseQueue{queue.Name, text}, nil },
		}
	}
	return p.changeQueue(queue.Name, command.Resume, func(ctx context.Context, w Writer) (operator.QueueActed, error) {
		return w.ResumeQueue(ctx, queue.Name)
	})
}

// pauseQueue pauses a queue for a reason.
type pauseQueue struct{ queue, reason string }

func (p *Part) pause(msg pauseQueue) tea.Msg {
	return p.changeQueue(msg.queue, command.Pause, func(ctx context.Context, w Writer) (operator.QueueActed, error) {
		return w.PauseQueue(ctx, msg.queue, msg.reason)
	})
}

// changeQueue changes a queue and, where that is asked for, asks first.
func (p *Part) changeQueue(queue, verb string, change func(context.Context, Writer) (operator.QueueActed, error)) tea.Msg {
	run := p.change(verb, timeout, func(ctx context.Context, w Writer) tea.Msg {
		acted, err := change(ctx, w)
		return queueActed{queue, verb, acted, err}
	})
	if !p.Place().Confirm {
		return run
	}
	return request.Ask{Title: fmt.Sprintf("%s queue %s", verb, widget.Clean(queue)), Yes: run}
}

// queueActed is what came of an action on a queue.
type queueActed struct {
	queue, verb string
	acted       operator.QueueActed
	err         error
}

func (p *Part) queueChanged(msg queueActed) tea.Msg {
	text := fmt.Sprintf("%sd queue %s", msg.verb, widget.Clean(msg.queue))
	switch {
	case msg.err != nil:
		text = msg.verb + ": " + screen.ShortError(msg.err)
	case !msg.acted.Changed:
		text = fmt.Sprintf("%s: queue %s was so already", msg.verb, widget.Clean(msg.queue))
	default:
		p.lastAudit = msg.acted.AuditID
		text += p.undoHint()
	}
	return request.All{request.Tell{Text: text}, request.Renew{Panels: []data.Panel{data.Queues}}}
}
