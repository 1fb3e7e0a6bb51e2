package tui

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"

	tea "charm.land/bubbletea/v2"
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
		m.pickRow(number)
		return nil
	}
	if filter, found := strings.CutPrefix(text, "/"); found && m.screen != screenJob {
		if err := m.applyFilter(strings.TrimSpace(filter)); err != nil {
			m.say(err.Error())
		}
		return nil
	}
	if text == "" {
		return nil
	}
	c := m.commandFor(m.screen, text)
	if text == "help" || c != nil && c.id == "help" {
		p.help()
		return nil
	}
	if c == nil {
		command, err := runTyped(m, strings.TrimPrefix(text, ":"))
		if err != nil {
			m.say(err.Error())
		}
		return command
	}
	return m.run(c)
}

// answer types the line into what asks, and enter after it. A line is a whole
// answer: it takes the place of what was there, and is all of a choice's number.
func (p *plain) answer(text string) tea.Cmd {
	m := p.m
	asking := m.overlay
	if text == "esc" || text == "back" {
		return asking.key(m, tea.KeyPressMsg{Code: tea.KeyEscape})
	}
	switch asking := asking.(type) {
	case *inputOverlay:
		asking.text = nil
	case *confirmOverlay:
		asking.input = ""
	case chooser:
		number, err := strconv.Atoi(text)
		at, count := asking.choices(m)
		switch {
		case err == nil && (number < 1 || number > count):
			m.say(fmt.Sprintf("no choice %d here", number))
			return nil
		case err == nil:
			*at, text = number-1, ""
		}
	}
	var commands []tea.Cmd
	for _, char := range text {
		if m.overlay == asking {
			commands = append(commands, asking.key(m, tea.KeyPressMsg{Code: char, Text: string(char)}))
		}
	}
	if m.overlay == asking {
		commands = append(commands, asking.key(m, tea.KeyPressMsg{Code: tea.KeyEnter}))
	}
	return tea.Batch(commands...)
}
