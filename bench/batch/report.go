package main

import (
	"fmt"
	"io"
	"slices"

	"github.com/jobq-dev/jobq/internal/measure"
)

// report prints medians, and of the rates the range. Of the server's time it
// prints the least too, and the distances between these: what others do on the
// machine only ever adds to it. "beside" compares with the rates of the same rounds.
func report(out io.Writer, plans []plan, results [][]figures) {
	fmt.Fprintln(out, "| | jobs/s (range) | beside | µs/job, median | least | − | WAL B/job | − | insert µs, least | insert WAL B | history B/job | one by id ms | page of 50 ms | all by kind ms |")
	fmt.Fprintln(out, "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|")
	for i, p := range plans {
		all, first := results[i], results[0]
		rates := measure.SpreadOf(each(all, func(_ int, f figures) float64 { return f.perSecond }))
		micros := func(_ int, f figures) float64 { return f.micros }
		wal := func(_ int, f figures) float64 { return f.wal }
		least := slices.Min(each(all, micros))
		fmt.Fprintf(out, "| %s | %.0f (%.0f–%.0f) | %.2f | %.1f | %.1f | %+.1f | %.0f | %+.0f | %.1f | %.0f | %.0f | %.2f | %.2f | %.0f |\n", p.name,
			rates.Median, rates.Min, rates.Max,
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

// median is the middle as all benchmarks take it.
func median(values []float64) float64 { return measure.SpreadOf(values).Median }

// reportPairs prints what each variant costs more than its twin of the same rounds.
func reportPairs(out io.Writer, plans []plan, results [][][2]figures) {
	fmt.Fprintln(out, "| | server µs/job, by round | of | WAL B/job | of | insert: µs, by round | of | WAL B | of |")
	fmt.Fprintln(out, "|---|---:|---:|---:|---:|---:|---:|---:|---:|")
	for i, p := range plans {
		all := results[i]
		value := func(which int, of func(figures) float64) float64 {
			values := make([]float64, len(all))
			for round, f := range all {
				values[round] = of(f[which])
			}
			return median(values)
		}
		distance := func(of func(figures) float64) string {
			values := make([]float64, len(all))
			for round, f := range all {
				values[round] = of(f[1]) - of(f[0])
			}
			spread := measure.SpreadOf(values)
			return fmt.Sprintf("%+.2f (%+.2f – %+.2f)", spread.Median, spread.Min, spread.Max)
		}
		micros, wal := func(f figures) float64 { return f.micros }, func(f figures) float64 { return f.wal }
		fillMicros, fillWAL := func(f figures) float64 { return f.fillMicros }, func(f figures) float64 { return f.fillWAL }
		fmt.Fprintf(out, "| %s | %s | %.1f | %+.0f | %.0f | %s | %.1f | %+.0f | %.0f |\n", p.name,
			distance(micros), value(0, micros), value(1, wal)-value(0, wal), value(0, wal),
			distance(fillMicros), value(0, fillMicros), value(1, fillWAL)-value(0, fillWAL), value(0, fillWAL))
	}
}
