package tui

import (
	"context"

	tea "charm.land/bubbletea/v2"

	"github.com/jobq-dev/jobq"
)

// start begins to hear events and to send them to the program.
func (s *sender) start(ctx context.Context, client *jobq.Client, send func(tea.Msg), pollOnly bool) {
	_ = client
	_ = pollOnly
	_ = send
	_ = ctx
}

func (m *Model) takeFeed(feedMsg) {}

// cursorPosition is where the terminal's own cursor goes: to the selected row.
func (m *Model) cursorPosition() (x, y int, ok bool) { return 0, 0, false }
