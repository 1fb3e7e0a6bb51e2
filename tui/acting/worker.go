package acting

import (
	"context"
	"fmt"

	tea "charm.land/bubbletea/v2"

	"github.com/jobq-dev/jobq/monitor"
	"github.com/jobq-dev/jobq/tui/command"
	"github.com/jobq-dev/jobq/tui/data"
	"github.com/jobq-dev/jobq/tui/request"
	"github.com/jobq-dev/jobq/tui/screen"
	"github.com/jobq-dev/jobq/tui/widget"
)

func (p *Part) drainAction(worker *monitor.Worker) screen.Action {
	return screen.Action{
		Disabled: func() string {
			switch {
			case worker == nil:
				return "no worker has registered"
			case worker.Draining:
				return "the worker drains already"
			}
			return ""
		},
		Run: func() tea.Msg { return p.drain(*worker) },
	}
}

// drain asks a worker to take no new jobs, and to stop.
func (p *Part) drain(worker monitor.Worker) tea.Msg {
	ask := request.Ask{
		Title: "drain worker " + widget.Clean(worker.ID),
		Details: []string{
			fmt.Sprintf("effect    it takes no new jobs, and stops when those it has are finished: %d now", worker.Running+worker.Claimed),
			"this cannot be undone; what supervises it may start another one",
		},
		Yes: p.change(command.Drain, timeout, func(ctx context.Context, w Writer) tea.Msg {
			asked, err := w.DrainWorker(ctx, worker.ID)
			return drained{worker.ID, asked, err}
		}),
	}
	if p.Place().Confirm {
		ask.Typed = request.Typed{Text: command.Drain, Effect: "drain it"}
	}
	return ask
}

// drained is what came of asking a worker to drain.
type drained struct {
	worker string
	asked  bool
	err    error
}

func (p *Part) askedToDrain(msg drained) tea.Msg {
	text := "asked worker " + widget.Clean(msg.worker) + " to drain"
	switch {
	case msg.err != nil:
		text = "drain: " + screen.ShortError(msg.err)
	case !msg.asked:
		text = "drain: the worker drains already"
	}
	return request.All{request.Tell{Text: text}, request.Renew{Panels: []data.Panel{data.Workers}}}
}
