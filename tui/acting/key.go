package acting

import (
	"context"
	"fmt"

	tea "charm.land/bubbletea/v2"

	"github.com/jobq-dev/jobq/operator"
	"github.com/jobq-dev/jobq/tui/command"
	"github.com/jobq-dev/jobq/tui/data"
	"github.com/jobq-dev/jobq/tui/request"
	"github.com/jobq-dev/jobq/tui/screen"
	"github.com/jobq-dev/jobq/tui/widget"
)

// pauseKeyAction pauses a partition key, after asking for a reason, or lets it go on.
func (p *Part) pauseKeyAction(keys screen.KeySelection) screen.Action {
	if keys.Key == nil {
		return screen.Action{Disabled: func() string { return "no key is selected" }}
	}
	queue, key := keys.Queue, keys.Key.Key
	if keys.Key.PausedAt != nil {
		return screen.Action{Title: command.Resume, Run: func() tea.Msg {
			return p.changeKey(queue, key, command.Resume, func(ctx context.Context, w Writer) (operator.KeyActed, error) {
				return w.ResumeKey(ctx, queue, key)
			})
		}}
	}
	return screen.Action{Run: func() tea.Msg {
		return request.Prompt{
			Title:  fmt.Sprintf("Pause key %s of queue %s", widget.Clean(key), widget.Clean(queue)),
			Note:   "Type the reason, which everybody sees, or nothing.",
			Accept: func(text string) (tea.Msg, error) { return pauseKey{queue, key, text}, nil },
		}
	}}
}

// pauseKey pauses a partition key for a reason.
type pauseKey struct{ queue, key, reason string }

func (p *Part) pauseKeyNow(msg pauseKey) tea.Msg {
	return p.changeKey(msg.queue, msg.key, command.Pause, func(ctx context.Context, w Writer) (operator.KeyActed, error) {
		return w.PauseKey(ctx, msg.queue, msg.key, msg.reason)
	})
}

// changeKey changes a partition key and, where that is asked for, asks first.
func (p *Part) changeKey(queue, key, verb string, change func(context.Context, Writer) (operator.KeyActed, error)) tea.Msg {
	run := p.change(verb, timeout, func(ctx context.Context, w Writer) tea.Msg {
		acted, err := change(ctx, w)
		return keyActed{queue, key, verb, acted, err}
	})
	if !p.Place().Confirm {
		return run
	}
	return request.Ask{Title: fmt.Sprintf("%s key %s of queue %s", verb, widget.Clean(key), widget.Clean(queue)), Yes: run}
}

// keyActed is what came of an action on a partition key.
type keyActed struct {
	queue, key, verb string
	acted            operator.KeyActed
	err              error
}

func (p *Part) keyChanged(msg keyActed) tea.Msg {
	name := fmt.Sprintf("key %s of queue %s", widget.Clean(msg.key), widget.Clean(msg.queue))
	text := fmt.Sprintf("%sd %s", msg.verb, name)
	switch {
	case msg.err != nil:
		text = msg.verb + ": " + screen.ShortError(msg.err)
	case !msg.acted.Changed:
		text = fmt.Sprintf("%s: %s was so already", msg.verb, name)
	default:
		p.lastAudit = msg.acted.AuditID
		text += p.undoHint()
	}
	return request.All{request.Tell{Text: text}, request.Renew{Panels: []data.Panel{data.Keys}}}
}
