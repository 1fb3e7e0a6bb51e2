package main

import (
	"fmt"
	"slices"
)

// report prints medians, and of the rates the range. Of the server's time it
// prints the least too, and the distances between these: what others do on the
// machine only ever adds to it. "beside" compares with the rates of the same rounds.
func report(plans []plan, results [][]figures) {
	fmt.Println("| | jobs/s (range) | beside | µs/job, median | least | − | WAL B/job | − | insert µs, least | insert WAL B | history B/job | one by id ms | page of 50 ms | all by kind ms |")
	fmt.Println("|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|")
	for i, p := range plans {
		all, first := results[i], results[0]
		rates := each(all, func(_ int, f figures) float64 { return f.perSecond })
		micros := func(_ int, f figures) float64 { return f.micros }
		wal := func(_ int, f figures) float64 { return f.wal }
		least := slices.Min(each(all, micros))
		fmt.Printf("| %s | %.0f (%.0f–%.0f) | %.2f | %.1f | %.1f | %+.1f | %.0f | %+.0f | %.1f | %.0f | %.0f | %.2f | %.2f | %.0f |\n", p.name,
			median(rates), slices.Min(rates), slices.Max(rates),
			median(each(all, func(round int, f figures) float64 { return f.perSecond / first[round].perSecond })),
			median(each(all, micros)), least, least-slices.Min(each(first, micros)),
			median(each(all, wal)), median(each(all, wal))-median(each(first, wal)),
			slices.Min(each(all, func(_ int, f figures) float64 { return f.fillMicros })),
			median(each(all, func(_ int, f figures) float64 { return f.fillWAL })),
			median(each(all, func(_ int, f figures) float64 { return f.historyBytes })),
			median(each(all, func(_ int, f figures) float64 { return f.lookMillis })),
			median(each(all, func(_ int, f figures) float64 { return f.pageMillis })),
			median(each(all, func(_ int, f figures) float64 { return f.scanMillis })))
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

// reportPairs prints what each variant costs more than its twin of the same rounds.
func reportPairs(plans []plan, results [][][2]figures) {
	fmt.Println("| | server µs/job, by round | of | WAL B/job | of | insert: µs, by round | of | WAL B | of |")
	fmt.Println("|---|---:|---:|---:|---:|---:|---:|---:|---:|")
	for i, p := range plans {
		all := results[i]
		value := func(which int, of func(figures) float64) float64 {
			values := make([]float64, len(all))
			for round, f := range all {
				values[round] = of(f[which])
			}
			return median(values)
		}
		distance := func(of func(figures) float64) (spread string) {
			values := make([]float64, len(all))
			for round, f := range all {
				values[round] = of(f[1]) - of(f[0])
			}
			return fmt.Sprintf("%+.2f (%+.2f – %+.2f)", median(values), slices.Min(values), slices.Max(values))
		}
		micros, wal := func(f figures) float64 { return f.micros }, func(f figures) float64 { return f.wal }
		fillMicros, fillWAL := func(f figures) float64 { return f.fillMicros }, func(f figures) float64 { return f.fillWAL }
		fmt.Printf("| %s | %s | %.1f | %+.0f | %.0f | %s | %.1f | %+.0f | %.0f |\n", p.name,
			distance(micros), value(0, micros), value(1, wal)-value(0, wal), value(0, wal),
			distance(fillMicros), value(0, fillMicros), value(1, fillWAL)-value(0, fillWAL), value(0, fillWAL))
	}
}
