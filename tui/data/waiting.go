package data

import (
	"fmt"
	"slices"

	"github.com/jobq-dev/jobq/internal/format"
	"github.com/jobq-dev/jobq/monitor"
)

// WhyWaiting is the likely reason why jobs of a queue wait, or those of one kind
// when a kind is given; empty when there is none to be seen. It is made of what
// the UI knows, and asks nothing.
//
// Example: a job of kind Resize2 waits, and all workers of its queue have
// registered the kinds Resize and Crop: "no live worker has kind Resize2".
func (f *Facts) WhyWaiting(q monitor.Queue, kind string) string {
	if q.PausedAt != nil {
		return "the queue is paused by " + format.PausedBy(q)
	}
	if !f.Known(Workers) || q.HeadRunAt == nil && kind == "" {
		return ""
	}
	takers, hasKind := 0, false
	for _, w := range f.Workers {
		if w.Slots[q.Name] == 0 || w.Draining || f.now().Sub(w.HeartbeatAt) > WorkerSilence {
			continue
		}
		takers++
		hasKind = hasKind || len(w.Kinds) == 0 || slices.Contains(w.Kinds, kind)
	}
	switch {
	case takers == 0:
		return "no live worker takes jobs from the queue"
	case kind != "" && !hasKind:
		return "no live worker has kind " + kind
	case q.Slots > 0 && q.Running >= q.Slots && q.HeadRunAt != nil:
		return fmt.Sprintf("all %s slots have been in use for %s", format.Number(q.Slots), format.Ago(f.now().Sub(*q.HeadRunAt)))
	}
	return ""
}
