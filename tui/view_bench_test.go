package tui

import (
	"fmt"
	"testing"
	"time"

	"github.com/jobq-dev/jobq/monitor"
)

// BenchmarkView draws whole screens: a row in a long list must cost no more
// than it did. Run it with -benchmem before and after a change of styles.
func BenchmarkView(b *testing.B) {
	for name, keys := range map[string][]string{
		"overview": {Overview}, "queues": {Overview}, "jobs": {Jobs}, "job": {Jobs, Open}, "dialog": {Jobs, Delete},
	} {
		b.Run(name, func(b *testing.B) {
			bench := newBench(120, 35)
			if name == "queues" {
				bench.manyQueues()
			}
			bench.press(keys...)
			b.ReportAllocs()
			for b.Loop() {
				_ = bench.View()
			}
		})
	}
}

// manyQueues makes it a database of 200 queues, each with failures in each minute.
func (b *bench) manyQueues() {
	for i := range 200 {
		name := fmt.Sprintf("queue-%d", i)
		b.fake.queues = append(b.fake.queues, monitor.Queue{Name: name, Slots: 1})
		for minute := range 60 {
			at := noon.Truncate(time.Minute).Add(-time.Duration(minute) * time.Minute)
			b.fake.minutes = append(b.fake.minutes, monitor.Minute{At: at, QueueStats: monitor.QueueStats{Queue: name, Failed: int64(i)}})
		}
	}
	b.tick(time.Minute)
}
