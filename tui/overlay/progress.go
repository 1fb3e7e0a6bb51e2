package overlay

import (
	"fmt"

	tea "charm.land/bubbletea/v2"

	"github.com/jobq-dev/jobq/internal/format"
	"github.com/jobq-dev/jobq/tui/request"
	"github.com/jobq-dev/jobq/tui/widget"
)

// Step is how far an action by filter has come.
type Step struct{ Done, Refused int64 }

// Progress shows an action by filter that is under way.
type Progress struct {
	frame
	title, hint string
	total       int64 // 0 when it is not known
	step        Step
}

// barCells is how long the bar is.
const barCells = 40

// NewProgress shows an action on so many jobs; the hint says how it is stopped.
func NewProgress(paint *widget.Painter, title, hint string, total int64) *Progress {
	return &Progress{frame: frame{paint: paint}, title: title, hint: hint, total: total}
}

// Update takes a step in, or asks to stop.
func (o *Progress) Update(msg tea.Msg) Result {
	switch msg := msg.(type) {
	case Step:
		o.step = msg
	case tea.KeyPressMsg:
		if msg.String() == "esc" {
			return Result{Then: request.StopBulk{}}
		}
	}
	return Result{}
}

// View draws how far it is.
func (o *Progress) View() ([]string, *Spot) {
	done, refused := format.Number(o.step.Done), format.Number(o.step.Refused)
	if o.total == 0 {
		return o.box(o.title, []string{fmt.Sprintf("%s %s changed, %s left alone", o.paint.Spinner(), done, refused), o.hint}), nil
	}
	share := float64(o.step.Done+o.step.Refused) / float64(o.total)
	return o.box(o.title, []string{
		o.paint.Progress(share, barCells), fmt.Sprintf("%s of %s changed, %s left alone", done, format.Capped(o.total), refused), o.hint,
	}), nil
}
