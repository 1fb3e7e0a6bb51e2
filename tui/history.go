package tui

import (
	tea "charm.land/bubbletea/v2"

	"github.com/jobq-dev/jobq/tui/screen"
)

const (
	// pastMax bounds the views that can be gone back to, and backMax the screens
	// that esc goes back to.
	pastMax = 50
	backMax = 20
)

// visited is a view that was seen, and the message that brings it back.
type visited struct {
	name  screen.Name
	place tea.Msg
}

// history is where the operator has been.
type history struct {
	back  []screen.Name // where esc leads
	past  []visited     // where backward leads, the last one last
	ahead []visited     // and forward
}

// leave keeps the view that is about to be left. There is no way forward from it any
// more.
func (h *history) leave(here visited) {
	h.past = append(h.past, here)
	h.past = h.past[max(len(h.past)-pastMax, 0):]
	h.ahead = nil
}

// open keeps the view that is about to be left for another screen; esc leads back.
func (h *history) open(here visited) {
	h.leave(here)
	h.back = append(h.back, here.name)
	h.back = h.back[max(len(h.back)-backMax, 0):]
}

// escape is where esc leads from here; false where it leads nowhere.
func (h *history) escape(here visited) (screen.Name, bool) {
	last := len(h.back) - 1
	if last < 0 {
		return "", false
	}
	h.leave(here)
	name := h.back[last]
	h.back = h.back[:last]
	return name, true
}

// backward is the view that was seen before this one, and forward the one that was
// gone back from; false where there is none.
func (h *history) backward(here visited) (visited, bool) { return h.travel(&h.past, &h.ahead, here) }

func (h *history) forward(here visited) (visited, bool) { return h.travel(&h.ahead, &h.past, here) }

func (h *history) travel(from, to *[]visited, here visited) (visited, bool) {
	last := len(*from) - 1
	if last < 0 {
		return visited{}, false
	}
	there := (*from)[last]
	*from, *to = (*from)[:last], append(*to, here)
	h.back = nil
	if there.name == screen.Job {
		h.back = []screen.Name{screen.Jobs}
	}
	return there, true
}
