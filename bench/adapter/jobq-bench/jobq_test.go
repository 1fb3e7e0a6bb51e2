package main

import (
	"testing"
	"time"
)

// Quantiles are exact to three digits at any size, and memory does not grow.
func TestHistogram(t *testing.T) {
	t.Parallel()
	for _, value := range []time.Duration{0, time.Microsecond, 2047 * time.Microsecond, 2048 * time.Microsecond, 12345 * time.Microsecond, 3 * time.Second, 5 * time.Hour} {
		var h histogram
		h.add(value)
		if got := h.quantile(0.5); got > value || value-got > value/1000 {
			t.Errorf("%s is counted as %s", value, got)
		}
	}
	var h histogram
	for i := range 1000 {
		h.add(time.Duration(i+1) * time.Millisecond)
	}
	for q, want := range map[float64]time.Duration{0.5: 500 * time.Millisecond, 0.99: 990 * time.Millisecond, 1: time.Second} {
		if got := h.quantile(q); got > want || want-got > want/1000 {
			t.Errorf("quantile %v is %s, not %s", q, got, want)
		}
	}
	var none histogram
	if none.quantile(0.99) != 0 {
		t.Error("without samples there is nothing to say")
	}
	h.add(1000 * time.Hour) // counted as the longest there is
}

// Only the last seconds count, and a second that comes round again begins anew.
func TestWindow(t *testing.T) {
	t.Parallel()
	m, now := newMeter(), time.Unix(1_000_000, 0)
	m.start(now.Add(-40*time.Second-time.Second), now.Add(-40*time.Second))
	if got := m.latencies(now, 1)[0]; got != 0 {
		t.Errorf("40 s ago counts: %s", got)
	}
	m.start(now.Add(-2*time.Millisecond), now)
	if got := m.latencies(now, 1)[0]; got != 2*time.Millisecond {
		t.Errorf("the largest is %s", got)
	}
	later := now.Add((windowSeconds + 1) * time.Second)
	m.start(later.Add(-time.Millisecond), later)
	if got := m.latencies(later, 1)[0]; got != time.Millisecond {
		t.Errorf("the second before counts: %s", got)
	}
}

// Samples stand at full multiples of the interval, whenever the process began.
func TestNextSample(t *testing.T) {
	t.Parallel()
	at := time.Unix(1003, 5e8)
	if got := nextSample(at, 7*time.Second); !got.Equal(time.Unix(1008, 0)) {
		t.Errorf("%s", got)
	}
	if got := nextSample(at, 5*time.Second); !got.Equal(time.Unix(1005, 0)) {
		t.Errorf("%s", got)
	}
	if got := nextSample(time.Unix(1005, 0), 5*time.Second); !got.Equal(time.Unix(1010, 0)) {
		t.Errorf("%s", got)
	}
}

// The depth is the last count and what was done since.
func TestWaiting(t *testing.T) {
	t.Parallel()
	m := newMeter()
	m.enqueued.Store(100)
	m.started.Store(30)
	m.counted(70, m.changed())
	m.enqueued.Add(10)
	m.started.Add(5)
	if got := m.waiting(); got != 75 {
		t.Errorf("%d wait", got)
	}
	m.started.Add(500) // of other processes' jobs
	if got := m.waiting(); got != 0 {
		t.Errorf("%d wait", got)
	}
}
