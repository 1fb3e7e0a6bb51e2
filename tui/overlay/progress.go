package overlay

import (
	"fmt"

	tea "charm.land/bubbletea/v2"

	"github.com/jobq-dev/jobq/internal/format"
	"github.com/jobq-dev/jobq/tui/command"
	"github.com/jobq-dev/jobq/tui/request"
	"github.com/jobq-dev/jobq/tui/widget"
)

// Progress shows an action by filter that is under way.
type Progress struct {
	frame
	about request.Progress
	step  request.Step
}

// barCells is how long the bar is.
const barCells = 40

// NewProgress shows an action of which nothing is done yet.
func NewProgress(paint *widget.Painter, about request.Progress) *Progress {
	return &Progress{frame: frame{paint: paint}, about: about}
}

// Update takes a step in, or asks to stop.
func (o *Progress) Update(msg tea.Msg) Result {
	switch msg := msg.(type) {
	case request.Step:
		o.step = msg
		return Result{Done: msg.Ended}
	case tea.KeyPressMsg:
		if msg.String() == command.Leave {
			return Result{Then: request.StopBulk{}}
		}
	}
	return Result{}
}

// View draws how far it is.
func (o *Progress) View() ([]string, *Spot) {
	done, refused := format.Number(o.step.Done), format.Number(o.step.Refused)
	if o.about.Total == 0 {
		return o.box(o.about.Title, []string{fmt.Sprintf("%s %s changed, %s left alone", o.paint.Spinner(), done, refused), o.about.Hint}), nil
	}
	share := float64(o.step.Done+o.step.Refused) / float64(o.about.Total)
	return o.box(o.about.Title, []string{
		o.paint.Progress(share, barCells), fmt.Sprintf("%s of %s changed, %s left alone", done, format.Number(o.about.Total), refused), o.about.Hint,
	}), nil
}
