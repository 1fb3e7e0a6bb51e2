package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"
)

// progressEvery is how often a file or a log hears of progress.
const progressEvery = 10 * time.Second

// progressLine tells how far a long action has come: a terminal has one line
// that changes, and anything else a new line every progressEvery.
type progressLine struct {
	out      io.Writer
	terminal bool
	lastAt   time.Time // when a line was written, or work began
	begun    bool      // there is a line on the terminal
	width    int       // of the longest text of sayPadded
}

func newProgressLine(out io.Writer) *progressLine {
	return &progressLine{out: out, terminal: isTerminal(out), lastAt: time.Now()}
}

// say has no more characters in one call than in the next: a line that is
// shorter would not cover the one before.
func (p *progressLine) say(format string, args ...any) {
	switch {
	case p.terminal:
		p.begun = true
		fmt.Fprintf(p.out, "\r"+format, args...)
	case time.Since(p.lastAt) >= progressEvery:
		p.lastAt = time.Now()
		fmt.Fprintf(p.out, format+"\n", args...)
	}
}

// sayPadded is say for a text that can become shorter.
func (p *progressLine) sayPadded(text string) {
	p.width = max(p.width, ansi.StringWidth(text))
	p.say("%s", text+strings.Repeat(" ", p.width-ansi.StringWidth(text)))
}

// end leaves the terminal's line.
func (p *progressLine) end() {
	if p.begun {
		fmt.Fprintln(p.out)
	}
}
