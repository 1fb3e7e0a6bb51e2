package metrics

import (
	"cmp"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

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
	// queuesMax is how many queues have counters of their own, as kindsMax is for kinds. The ends of
	// further ones count for "other".
	queuesMax = 1000
)

// counts are ends by outcome.
type counts struct{ completed, failed, retried, lost, cancelled int64 }

// ended is what has ended of one name, a queue or a kind, within a minute.
type ended struct {
	minuteOf
	counts
}

type minuteOf struct {
	at   time.Time
	name string
}

// ends makes counters of the sums by minute, which the database keeps only for a while.
//
// Example: the minute 12:00 had 5 completed jobs when it was last read, and has 7 now. The
// counter grows by 2. The sums at the first reading do not count.
type ends struct {
	namesMax int
	seen     map[minuteOf]counts // as last read
	totals   map[string]*counts  // by name
	newest   time.Time           // the latest minute in seen
}

func ofQueues(minutes []monitor.Minute) []ended {
	all := make([]ended, len(minutes))
	for i, m := range minutes {
		all[i] = ended{minuteOf{m.At, m.Queue}, counts{m.Completed, m.Failed, m.Retried, m.Lost, m.Cancelled}}
	}
	return all
}

func ofKinds(minutes []monitor.KindMinute) []ended {
	all := make([]ended, len(minutes))
	for i, m := range minutes {
		all[i] = ended{minuteOf{m.At, m.Kind}, counts{m.Completed, m.Failed, m.Retried, m.Lost, m.Cancelled}}
	}
	return all
}

// span is how far back to read. since is the time since the last reading.
func (e *ends) span(since time.Duration) time.Duration {
	if e.seen == nil {
		return endsSpan
	}
	return min(endsSpan+since, endsSpanMax)
}

func (e *ends) add(minutes []ended) {
	isFirst := e.seen == nil
	if isFirst {
		e.seen, e.totals = make(map[minuteOf]counts), make(map[string]*counts)
	}
	for _, m := range minutes {
		was, total := e.seen[m.minuteOf], e.total(m.name)
		e.seen[m.minuteOf] = m.counts
		if !isFirst {
			total.completed += max(m.completed-was.completed, 0)
			total.failed += max(m.failed-was.failed, 0)
			total.retried += max(m.retried-was.retried, 0)
			total.lost += max(m.lost-was.lost, 0)
			total.cancelled += max(m.cancelled-was.cancelled, 0)
		}
		if m.at.After(e.newest) {
			e.newest = m.at
		}
	}
	for of := range e.seen {
		if e.newest.Sub(of.at) > endsKept {
			delete(e.seen, of)
		}
	}
}

func (e *ends) total(name string) *counts {
	if _, known := e.totals[name]; !known && len(e.totals) >= e.namesMax {
		name = otherName
	}
	if e.totals[name] == nil {
		e.totals[name] = &counts{}
	}
	return e.totals[name]
}

// total is what has ended of one name.
type total struct {
	name string
	counts
}

// copies are the totals as they are now.
func (e *ends) copies() (totals []total) {
	for name, counts := range e.totals {
		totals = append(totals, total{name, *counts})
	}
	slices.SortFunc(totals, func(a, b total) int { return cmp.Compare(a.name, b.name) })
	return totals
}

func (t total) send(to chan<- prometheus.Metric, m metric) {
	m.send(to, float64(t.completed), t.name, "completed")
	m.send(to, float64(t.failed), t.name, "failed")
	m.send(to, float64(t.retried), t.name, "retried")
	m.send(to, float64(t.lost), t.name, "lost")
	m.send(to, float64(t.cancelled), t.name, "cancelled")
}
