package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/jobq-dev/jobq/internal/format"
)

// meter shows on a terminal how far a long input has come.
type meter struct {
	out         io.Writer // nil when nobody looks
	bytesTotal  int64     // 0 when unknown
	bytesRead   int64
	jobs        int
	started     time.Time
	lastShownAt time.Time
}

func newMeter(out io.Writer, in io.Reader) *meter {
	m := &meter{started: time.Now()}
	if isTerminal(out) {
		m.out = out
	}
	if file, ok := in.(*os.File); ok {
		if info, err := file.Stat(); err == nil && info.Mode().IsRegular() {
			m.bytesTotal = info.Size()
		}
	}
	return m
}

func (m *meter) read(bytes int) { m.bytesRead += int64(bytes) }

func (m *meter) add(jobs int) {
	m.jobs += jobs
	if m.out != nil && time.Since(m.lastShownAt) > 100*time.Millisecond {
		m.lastShownAt = time.Now()
		m.show()
	}
}

func (m *meter) show() {
	const width = 30
	bar := ""
	if m.bytesTotal > 0 {
		full := int(min(m.bytesRead*width/m.bytesTotal, width))
		bar = fmt.Sprintf("[%s%s] %3d%%  ", strings.Repeat("#", full), strings.Repeat(".", width-full), min(m.bytesRead*100/m.bytesTotal, 100))
	}
	rate := float64(m.jobs) / max(time.Since(m.started).Seconds(), 0.001)
	fmt.Fprintf(m.out, "\r%s%s, %s/s ", bar, format.Count(int64(m.jobs), "job"), format.Rate(rate))
}

func (m *meter) done() {
	if m.out != nil && m.jobs > 0 {
		m.show()
		fmt.Fprintln(m.out)
	}
}
