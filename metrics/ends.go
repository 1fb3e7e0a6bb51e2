package metrics

import (
	"time"

	"github.com/jobq-dev/jobq/monitor"
)

const (
	// endsSpan is how far back the ends of jobs are read each time: a transaction that ends a job
	// may commit some minutes later. The time since the last reading is added, up to endsSpanMax.
	endsSpan    = 5 * time.Minute
	endsSpanMax = time.Hour
	// endsKept is how long a minute is remembered. It is more than endsSpanMax, so that no
	// minute is counted twice.
	endsKept = 2 * endsSpanMax
	// endsQueuesMax is how many queues have counters of their own. The ends of further queues
	// count for the queue "other".
	endsQueuesMax = 1000
)

// ends makes counters of the sums by minute, which the database keeps only for a while.
//
// Example: the minute 12:00 had 5 completed jobs when it was last read, and has 7 now. The
// counter grows by 2. The sums at the first reading do not count.
type ends struct {
	seen   map[minuteOf]monitor.QueueStats // as last read
	totals map[string]*monitor.QueueStats  // by queue
	newest time.Time                       // the latest minute in seen
}

type minuteOf struct {
	at    time.Time
	queue string
}

// span is how far back to read. since is the time since the last reading.
func (e *ends) span(since time.Duration) time.Duration {
	if e.seen == nil {
		return endsSpan
	}
	return min(endsSpan+since, endsSpanMax)
}

func (e *ends) add(minutes []monitor.Minute) {
	isFirst := e.seen == nil
	if isFirst {
		e.seen, e.totals = make(map[minuteOf]monitor.QueueStats), make(map[string]*monitor.QueueStats)
	}
	for _, m := range minutes {
		of := minuteOf{m.At, m.Queue}
		was, total := e.seen[of], e.total(m.Queue)
		e.seen[of] = m.QueueStats
		if !isFirst {
			total.Completed += max(m.Completed-was.Completed, 0)
			total.Failed += max(m.Failed-was.Failed, 0)
			total.Retried += max(m.Retried-was.Retried, 0)
			total.Lost += max(m.Lost-was.Lost, 0)
			total.Cancelled += max(m.Cancelled-was.Cancelled, 0)
		}
		if m.At.After(e.newest) {
			e.newest = m.At
		}
	}
	for of := range e.seen {
		if e.newest.Sub(of.at) > endsKept {
			delete(e.seen, of)
		}
	}
}

func (e *ends) total(queue string) *monitor.QueueStats {
	if _, known := e.totals[queue]; !known && len(e.totals) >= endsQueuesMax {
		queue = otherKind
	}
	if e.totals[queue] == nil {
		e.totals[queue] = &monitor.QueueStats{Queue: queue}
	}
	return e.totals[queue]
}

// copies are the totals as they are now.
func (e *ends) copies() (totals []monitor.QueueStats) {
	for _, total := range e.totals {
		totals = append(totals, *total)
	}
	return totals
}
