package data

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/jobq-dev/jobq/monitor"
)

// Each row of the queues asks for the figures of its queue, on each frame. They
// were copied from those of all queues: 26 MB for a screen of 200 queues.
func TestFiguresOfAQueueCopyNoOthers(t *testing.T) {
	now := time.Date(2026, 11, 23, 12, 0, 30, 0, time.UTC)
	f := NewFacts(func() time.Time { return now })
	var minutes []monitor.Minute
	for i := range 200 {
		for minute := range 60 {
			minutes = append(minutes, monitor.Minute{
				At:         now.Truncate(time.Minute).Add(-time.Duration(minute) * time.Minute),
				QueueStats: monitor.QueueStats{Queue: fmt.Sprint("queue-", i), Completed: 1, Failed: int64(i)},
			})
		}
	}
	f.Take(Answer{Panel: Minutes, At: now, Value: minutes})
	f.Heard(Feed{Ended: map[string]Ended{"queue-7": {Completed: 5}, "queue-8": {Completed: 1}}})

	if r := f.Rates("queue-7"); r.Completed != 7.0/90 || r.Failed != 14.0/90 {
		t.Errorf("queue-7 completes %v and fails %v a second, want 7 and 14 in 90 s", r.Completed, r.Failed)
	}
	if s := f.Series("queue-7", true); s[0] != 7 || s[59] != 7 {
		t.Errorf("queue-7 failed %v, want 7 in each minute", s)
	}
	if s := f.Series("", false); s[0] != 200 || s[59] != 206 {
		t.Errorf("all queues completed %d and now %d, want 200 and 206", s[0], s[59])
	}

	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range 10 {
		f.Rates("queue-7")
		f.Series("queue-7", false)
	}
	runtime.ReadMemStats(&after)
	if each := (after.TotalAlloc - before.TotalAlloc) / 10; each > 10_000 {
		t.Errorf("the figures of one queue took %d bytes, want those of 60 counts", each)
	}
}
