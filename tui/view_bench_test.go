package tui

import "testing"

// BenchmarkView draws whole screens: a row in a long list must cost no more
// than it did. Run it with -benchmem before and after a change of styles.
func BenchmarkView(b *testing.B) {
	for name, keys := range map[string][]string{
		"overview": {"1"}, "jobs": {"2"}, "job": {"2", "enter"}, "dialog": {"2", "D"},
	} {
		b.Run(name, func(b *testing.B) {
			bench := newBench(120, 35)
			bench.press(keys...)
			b.ReportAllocs()
			for b.Loop() {
				_ = bench.View()
			}
		})
	}
}
