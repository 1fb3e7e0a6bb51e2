package main

import (
	"math/bits"
	"sync"
	"sync/atomic"
	"time"
)

// windowSeconds is over how long latencies are looked at.
const windowSeconds = 30

// meter counts jobs and measures how long they waited.
type meter struct {
	enqueued, started, completed atomic.Int64
	// depth is the last count of waiting jobs, and depthChanged what changed had been then.
	depth, depthChanged atomic.Int64

	mu sync.Mutex
	// guarded by mu: one histogram for each of the last seconds
	seconds [windowSeconds + 1]struct {
		unix int64
		histogram
	}
}

func newMeter() *meter { return &meter{} }

// start notes that a job which was added at a time starts at another.
func (m *meter) start(added, started time.Time) {
	m.started.Add(1)
	m.mu.Lock()
	defer m.mu.Unlock()
	now := started.Unix()
	second := &m.seconds[now%int64(len(m.seconds))]
	if second.unix != now {
		second.unix, second.histogram = now, histogram{}
	}
	second.add(started.Sub(added))
}

// changed is by how much the depth has grown since the process began, as far as this process knows.
func (m *meter) changed() int64 { return m.enqueued.Load() - m.started.Load() }

// counted keeps a count of waiting jobs; changed is what changed was before it.
func (m *meter) counted(waiting, changed int64) {
	m.depth.Store(waiting)
	m.depthChanged.Store(changed)
}

// waiting is about how many jobs wait now: the last count, and what this process has done since.
func (m *meter) waiting() int64 {
	return max(m.depth.Load()+m.changed()-m.depthChanged.Load(), 0)
}

// latencies are quantiles of the last seconds; zero when no job has started.
func (m *meter) latencies(now time.Time, quantiles ...float64) []time.Duration {
	var all histogram
	m.mu.Lock()
	for i := range m.seconds {
		if second := &m.seconds[i]; second.unix > now.Unix()-windowSeconds {
			all.merge(&second.histogram)
		}
	}
	m.mu.Unlock()
	values := make([]time.Duration, len(quantiles))
	for i, q := range quantiles {
		values[i] = all.quantile(q)
	}
	return values
}

const (
	// exact is up to how many microseconds each has a bucket of its own. Above, a bucket is at most a thousandth as wide as
	// its values: three significant digits.
	exact = 2048
	half  = exact / 2
	// doublings reach 2^36 µs, which is 19 hours.
	doublings = 25
)

// histogram counts durations in a fixed amount of memory.
type histogram struct {
	counts [exact + doublings*half]uint32
	total  uint64
}

// bucket is where so many microseconds are counted.
func bucket(micros uint64) int {
	doubled := max(bits.Len64(micros)-bits.Len64(exact-1), 0)
	if doubled > doublings {
		return exact + doublings*half - 1
	}
	if doubled == 0 {
		return int(micros) // #nosec G115 -- below exact
	}
	return exact + (doubled-1)*half + int(micros>>doubled) - half // #nosec G115 -- below exact
}

// lowest is the least number of microseconds of a bucket.
func lowest(bucket int) uint64 {
	if bucket < exact {
		return uint64(bucket) // #nosec G115 -- not negative
	}
	doubled := (bucket-exact)/half + 1
	return uint64((bucket-exact)%half+half) << doubled // #nosec G115 -- not negative
}

func (h *histogram) add(d time.Duration) {
	h.counts[bucket(uint64(max(d, 0).Microseconds()))]++ // #nosec G115 -- not negative
	h.total++
}

func (h *histogram) merge(other *histogram) {
	if other.total == 0 {
		return
	}
	for i, count := range other.counts {
		h.counts[i] += count
	}
	h.total += other.total
}

// quantile is the bucket of the smallest value that a part of q does not exceed.
func (h *histogram) quantile(q float64) time.Duration {
	var seen uint64
	for i, count := range h.counts {
		if seen += uint64(count); count > 0 && float64(seen) >= q*float64(h.total) {
			return time.Duration(lowest(i)) * time.Microsecond // #nosec G115 -- 2^36 at most
		}
	}
	return 0
}
