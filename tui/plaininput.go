package tui

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"

	tea "charm.land/bubbletea/v2"

	"github.com/jobq-dev/jobq/tui/command"
	"github.com/jobq-dev/jobq/tui/overlay"
	"github.com/jobq-dev/jobq/tui/screen"
)

// read sends the lines of the input, and closes when there are no more.
func read(ctx context.Context, input io.Reader, lines chan<- string) {
	defer close(lines)
	scanner := bufio.NewScanner(input)
	for scanner.Scan() {
		select {
		case lines <- scanner.Text():
		case <-ctx.Done():
			return
		}
	}
}

// take does what a line says: an answer to what was asked, the number of a
// row, / and a filter, a key, or the name of a command.
func (p *plain) take(text string) tea.Cmd {
	m := p.m
	p.asked = true
	if m.overlay != nil {
		return p.answer(text)
	}
	if number, err := strconv.Atoi(text); err == nil {
		return m.toScreen(screen.Pick{Row: number})
	}
	if filter, found := strings.CutPrefix(text, "/"); found && m.at != screen.Job {
		filter = strings.TrimSpace(filter)
		if err := checkFilter(filter); err != nil {
			m.say(err.Error())
			return nil
		}
		return m.request(filtered(filter))
	}
	if text == "" {
		return nil
	}
	c := m.env.commands.For(string(m.at), text)
	if text == command.Help || c != nil && c.ID == command.Help {
		p.help()
		return nil
	}
	if c == nil {
		asked, err := m.typed(strings.TrimPrefix(text, ":"))
		if err != nil {
			m.say(err.Error())
			return nil
		}
		return m.request(asked)
	}
	return m.run(c)
}

// answer types the line into what asks, and enter after it. A line is a whole
// answer: it takes the place of what was there, and is all of a choice's number.
func (p *plain) answer(text string) tea.Cmd {
	m := p.m
	asking := m.overlay
	if text == command.Leave || text == command.Back {
		return m.toOverlay(tea.KeyPressMsg{Code: tea.KeyEscape})
	}
	if field, ok := asking.(interface{ SetText(text string) }); ok {
		field.SetText("")
	}
	if choice, ok := asking.(*overlay.Choice); ok {
		if number, err := strconv.Atoi(text); err == nil {
			result, chosen := choice.Choose(number)
			if !chosen {
				m.say(fmt.Sprintf("no choice %d here", number))
				return nil
			}
			return m.came(result)
		}
	}
	var commands []tea.Cmd
	for _, char := range text {
		if m.overlay == asking {
			commands = append(commands, m.toOverlay(tea.KeyPressMsg{Code: char, Text: string(char)}))
		}
	}
	if _, takesLine := asking.(interface{ SetText(text string) }); m.overlay == asking && takesLine {
		commands = append(commands, m.toOverlay(tea.KeyPressMsg{Code: tea.KeyEnter}))
	}
	return tea.Batch(commands...)
}
