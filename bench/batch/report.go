package main

import (
	"fmt"
	"slices"
)

// report prints medians, and of the rates the range. Of the server's time it
// prints the least too, and the distances between these: what others do on the
// machine only ever adds to it. "beside" compares with the rates of the same rounds.
func report(plans []plan, results [][]figures) {
	fmt.Println("| | jobs/s (range) | beside | µs/job, median | least | − | WAL B/job | − | insert µs, least | insert WAL B | history B/job | one by id ms | page of 50 ms |")
	fmt.Println("|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|")
	for i, p := range plans {
		all, first := results[i], results[p.against]
		rates := each(all, func(_ int, f figures) float64 { return f.perSecond })
		micros := func(_ int, f figures) float64 { return f.micros }
		wal := func(_ int, f figures) float64 { return f.wal }
		least := slices.Min(each(all, micros))
		fmt.Printf("| %s | %.0f (%.0f–%.0f) | %.2f | %.1f | %.1f | %+.1f | %.0f | %+.0f | %.1f | %.0f | %.0f | %.2f | %.2f |\n", p.name,
			median(rates), slices.Min(rates), slices.Max(rates),
			median(each(all, func(round int, f figures) float64 { return f.perSecond / first[round].perSecond })),
			median(each(all, micros)), least, least-slices.Min(each(first, micros)),
			median(each(all, wal)), median(each(all, wal))-median(each(first, wal)),
			slices.Min(each(all, func(_ int, f figures) float64 { return f.fillMicros })),
			median(each(all, func(_ int, f figures) float64 { return f.fillWAL })),
			median(each(all, func(_ int, f figures) float64 { return f.historyBytes })),
			median(each(all, func(_ int, f figures) float64 { return f.lookMillis })),
			median(each(all, func(_ int, f figures) float64 { return f.pageMillis })))
	}
}

func each(all []figures, value func(round int, f figures) float64) []float64 {
	values := make([]float64, len(all))
	for round, f := range all {
		values[round] = value(round, f)
	}
	return values
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}
