package data

import (
	"slices"

	"github.com/jobq-dev/jobq/internal/format"
	"github.com/jobq-dev/jobq/monitor"
)

// WhyWaiting is the likely reason why jobs of a queue wait, or those of one kind
// when a kind is given; empty when there is none to be seen. It is made of what
// the UI knows, and asks nothing: monitor.Why asks, and is exact.
//
// Example: a job of kind Resize2 waits, and all workers of its queue have
// registered the kinds Resize and Crop: "no live worker has kind Resize2".
func (f *Facts) WhyWaiting(q monitor.Queue, kind string) string {
	reason, found := f.likelyReason(q, kind)
	if !found {
		return ""
	}
	says, _ := format.Why(0, reason, f.now())
	return says
}

func (f *Facts) likelyReason(q monitor.Queue, kind string) (reason monitor.Reason, found bool) {
	if q.PausedAt != nil {
		return monitor.Reason{Code: monitor.ReasonQueuePaused, Facts: monitor.ReasonFacts{By: q.PausedBy, Note: q.PauseReason}}, true
	}
	if at := slices.IndexFunc(f.Kinds, func(k monitor.Kind) bool { return k.Name == kind && k.PausedAt != nil }); at >= 0 {
		return monitor.Reason{Code: monitor.ReasonKindPaused, Facts: monitor.ReasonFacts{Kind: kind, By: f.Kinds[at].PausedBy, Note: f.Kinds[at].PauseReason}}, true
	}
	if !f.Known(Workers) || q.Available == 0 && kind == "" {
		return reason, false
	}
	t := f.takersOf(q.Name, kind)
	switch {
	case t.live == 0:
		return monitor.Reason{Code: monitor.ReasonNoWorker}, true
	case kind != "" && !t.hasKind:
		return monitor.Reason{Code: monitor.ReasonNoWorkerOfKind, Facts: monitor.ReasonFacts{Kind: kind}}, true
	case t.held > 0 && !t.isFree:
		host := t.heldOne
		return monitor.Reason{Code: monitor.ReasonWorkersHeld, Facts: monitor.ReasonFacts{
			Workers: t.held, Host: host.Hostname, By: host.Held.By, Note: host.Held.Reason, Since: &host.Held.Since,
		}}, true
	case q.MaxRunning > 0 && q.Held() >= int64(q.MaxRunning):
		return monitor.Reason{Code: monitor.ReasonQueueLimit, Facts: monitor.ReasonFacts{Running: q.Held(), Limit: int64(q.MaxRunning)}}, true
	case q.ThrottledUntil != nil && q.Rate != nil:
		return monitor.Reason{Code: monitor.ReasonQueueRate, Facts: monitor.ReasonFacts{Rate: q.Rate, Until: q.ThrottledUntil}}, true
	case !t.isApart && q.Slots > 0 && q.Held() >= q.Slots && q.HeadRunAt != nil:
		return monitor.Reason{Code: monitor.ReasonWorkersFull, Facts: monitor.ReasonFacts{Slots: q.Slots}}, true
	}
	return reason, false
}

// takers are the workers that take jobs from a queue, as far as they live and do not drain.
type takers struct {
	live    int64
	hasKind bool // one of them has the kind
	isFree  bool // one that has it is not held
	held    int64
	heldOne *monitor.Worker // one of those that have the kind and are held
	isApart bool            // kinds have slots of their own: what runs there cannot be told from what runs in those of the queue
}

// takersOf are the takers of a queue. Without a kind they are those of any kind.
func (f *Facts) takersOf(queue, kind string) (t takers) {
	for i, w := range f.Workers {
		if w.Slots[queue] == 0 || w.Draining || f.now().Sub(w.HeartbeatAt) > WorkerSilence {
			continue
		}
		t.live++
		t.isApart = t.isApart || len(w.KindSlots) > 0
		hasKind := kind == "" || len(w.Kinds) == 0 || slices.Contains(w.Kinds, kind)
		t.hasKind = t.hasKind || hasKind
		switch {
		case !hasKind:
		case w.Held == nil:
			t.isFree = true
		default:
			t.held++
			t.heldOne = &f.Workers[i]
		}
	}
	return t
}
