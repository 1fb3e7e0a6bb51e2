package main

import (
	"errors"
	"fmt"
	"time"
)

// The bars that the UI has to clear, wherever it is measured.
const (
	firstFrameMax  = 150 * time.Millisecond // with ten million jobs, at the median
	eventMedianMax = 200 * time.Millisecond
	eventWorstMax  = 500 * time.Millisecond // at the 99th percentile
	uiCPUMax       = 10.0                   // % of a core
	uiBytesMax     = 60 << 20
	serverCPUMax   = 5.0             // % of a core, by one UI's sessions
	loadMin        = 10_000          // jobs/s, under which the UI has to clear them
	noMatchMax     = 5 * time.Second // until a filter without a match has given up
)

// bars remembers which were missed.
type bars struct{ missed int }

// check prints a verdict.
func (b *bars) check(cleared bool, format string, values ...any) {
	verdict := "ok    "
	if !cleared {
		verdict = "MISSED"
		b.missed++
	}
	fmt.Printf("  %s %s\n", verdict, fmt.Sprintf(format, values...))
}

// atMost checks times.
func (b *bars) atMost(what string, span, limit time.Duration) {
	b.check(span < limit, "%s %s, under %s", what, round(span), limit)
}

// usage checks what the UI costs, and under load whether that was one.
func (b *bars) usage(f figures, loaded bool) {
	b.check(f.uiPercent < uiCPUMax, "UI's CPU time %.1f %%, under %.0f %%", f.uiPercent, uiCPUMax)
	b.check(f.residentBytes < uiBytesMax, "UI's memory %d MB, under %d MB", f.residentBytes>>20, uiBytesMax>>20)
	b.check(f.serverPercent <= serverCPUMax, "server's CPU time %.1f %%, at most %.0f %%", f.serverPercent, serverCPUMax)
	if loaded {
		b.load(f.jobsPerSecond)
	}
}

// load checks that there was one: the other bars are cleared easily without.
func (b *bars) load(jobsPerSecond float64) {
	b.check(jobsPerSecond >= loadMin, "load %.0f jobs/s, at least %d", jobsPerSecond, loadMin)
}

func (b *bars) err() error {
	if b.missed > 0 {
		return errors.New("bars missed: " + fmt.Sprint(b.missed))
	}
	return nil
}
