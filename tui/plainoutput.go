package tui

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/jobq-dev/jobq/internal/printable"
	"github.com/jobq-dev/jobq/tui/command"
	"github.com/jobq-dev/jobq/tui/widget"
)

// tell writes what is new: what was said, how the database is, and what was
// asked for once all of it is there.
func (p *plain) tell() {
	m := p.m
	if m.toast != "" && m.toastUntil != p.told {
		p.told = m.toastUntil
		p.line(m.toast)
	}
	if m.polling.Offline() != p.away {
		p.away = m.polling.Offline()
		p.line(map[bool]string{true: "the database does not answer; trying on", false: "the database answers again"}[p.away])
	}
	list, ok := m.current().(interface{ Above() bool })
	if above := ok && list.Above(); above != p.above {
		p.above = above
		if above {
			p.line("there are new jobs above; " + m.env.keyOf(command.Top) + " goes there")
		}
	}
	p.line(m.acting.Bulk())
	if !p.asked || m.env.reader == nil || m.switching != "" || m.pending > 0 || m.polling.Waits(m.wanted()) {
		return
	}
	p.asked = false
	if m.overlay != nil {
		box, _ := m.overlay.View()
		p.lines(box)
		return
	}
	p.lines(m.told())
}

// told is the screen in lines of words, and of which database it is.
func (m *Model) told() []string {
	head := m.env.name
	if head == "" {
		head = "jobq"
	}
	if m.env.production {
		head += ", production"
	}
	if reason := m.writeDisabled(); reason != "" {
		head += ", nothing can be changed: " + reason
	}
	lines := m.current().Told()
	if len(lines) > 0 {
		lines[0] += " of " + widget.Clean(head)
	}
	if problem := m.problem(); problem != "" {
		lines = append([]string{problem}, lines...)
	}
	return lines
}

func (p *plain) help() {
	p.asked = false
	p.line("type the number of a row, / and a filter, a key, or a command's name; an empty line tells the screen again")
	for _, c := range p.m.env.commands {
		if c.On(string(p.m.at)) {
			name := c.ID
			if keys := plainKeys(c); len(keys) > 0 {
				name += ", or " + strings.Join(keys, " ")
			}
			p.line(name + ": " + c.Help)
		}
	}
}

// plainKeys are a command's keys in plain mode, where a number is a row.
func plainKeys(c *command.Command) []string {
	return slices.DeleteFunc(slices.Clone(c.Keys), func(key string) bool {
		_, err := strconv.Atoi(key)
		return err == nil
	})
}

func (p *plain) lines(texts []string) {
	for _, text := range texts {
		p.line(text)
	}
}

// line writes one, without the blanks of a drawing. It is the one way to the
// terminal: plain mode has a theme without styles, and so everything here that
// could drive a terminal comes from a job, and becomes visible.
func (p *plain) line(text string) {
	if text = strings.Join(strings.Fields(text), " "); text != "" {
		_, _ = fmt.Fprintln(p.out, printable.Line(text)) // a terminal that has gone ends the input as well
	}
}
