package tui

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/jobq-dev/jobq/internal/printable"
)

// The page that plain mode shows at once.
const (
	plainCells = 120
	plainLines = 40
)

// plain is the UI as lines that come one after another, for screen readers,
// braille displays and terminals that can do nothing else. The model, its
// commands and its questions are the same; what differs is that a line is
// typed, and that the screen is told and not drawn. It does not listen: it
// could not let go of that when the shell suspends it.
type plain struct {
	m       *Model
	out     io.Writer
	msgs    chan tea.Msg
	working sync.WaitGroup
	stop    <-chan struct{}
	asked   bool      // the screen is told once its answers have come
	told    time.Time // until when the toast that was told last is shown
	away    bool      // it was told that the database does not answer
	above   bool      // and that there are new jobs
}

// RunPlain tells what Run draws, line by line, and takes a command a line, until
// the operator quits, the input or the context ends.
func RunPlain(ctx context.Context, config *Config, input io.Reader, output io.Writer) error {
	m, err := config.model()
	if err != nil {
		return err
	}
	m.env.plain, m.env.glyphs = true, asciiGlyphs
	ctx, cancel := context.WithCancel(ctx)
	p := newPlain(m, output, ctx.Done())
	lines := make(chan string)
	go read(ctx, input, lines)
	err = p.run(lines)
	cancel()
	p.working.Wait()
	m.env.link.close()()
	return err
}

func newPlain(m *Model, output io.Writer, stop <-chan struct{}) *plain {
	m.env.commands = slices.DeleteFunc(m.env.commands, func(c *command) bool { return c.drawn })
	m.width, m.height = plainCells, plainLines
	m.feed, m.feedReason = feedPolling, "polling, as plain mode does"
	return &plain{m: m, out: output, msgs: make(chan tea.Msg), stop: stop, asked: true}
}

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

func (p *plain) run(lines <-chan string) error {
	ticker := time.NewTicker(tickBlur)
	defer ticker.Stop()
	defer func() {
		if p.m.bulk != nil { // nobody would hear of it any more
			p.m.bulk.stop()
		}
	}()
	p.do(p.m.connect(p.m.env.name))
	for ended := false; ; {
		// A line is heard when the one before has been answered, so that what
		// is typed ahead, or piped, means what it would mean then.
		heard := lines
		switch {
		case p.asked && p.m.bulk == nil:
			heard = nil
		case ended && p.m.bulk == nil:
			return nil
		}
		select {
		case <-p.stop:
			return nil
		case <-ticker.C:
			p.m.age()
		case line, more := <-heard:
			if !more {
				ended, lines = true, nil
				continue
			}
			p.m.lastKey = p.m.env.now()
			p.do(p.take(strings.TrimSpace(line)))
		case msg := <-p.msgs:
			if _, quit := msg.(tea.QuitMsg); quit {
				return p.m.failed
			}
			_, command := p.m.Update(msg)
			p.do(command)
		}
		p.do(p.m.poll())
		p.tell()
	}
}

// do runs a command apart from the loop, as Bubble Tea does.
func (p *plain) do(command tea.Cmd) {
	if command == nil {
		return
	}
	p.working.Go(func() {
		switch msg := command().(type) {
		case nil:
		case tea.BatchMsg:
			for _, c := range msg {
				p.do(c)
			}
		default:
			select {
			case p.msgs <- msg:
			case <-p.stop:
			}
		}
	})
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

// tell writes what is new: what was said, how the database is, and what was
// asked for once all of it is there.
func (p *plain) tell() {
	m := p.m
	if m.toast != "" && m.toastUntil != p.told {
		p.told = m.toastUntil
		p.line(m.toast)
	}
	if m.offline() != p.away {
		p.away = m.offline()
		p.line(map[bool]string{true: "the database does not answer; trying on", false: "the database answers again"}[p.away])
	}
	if above := m.screen == screenJobs && m.jobs.above > 0; above != p.above {
		p.above = above
		if above {
			p.line("there are new jobs above; " + m.keyOf("top") + " goes there")
		}
	}
	if m.bulk != nil {
		p.line(fmt.Sprintf("%s: %s of %s done; esc stops", m.bulk.action, number(int64(m.bulk.progress.Done)), capped(m.bulk.total)))
	}
	if !p.asked || m.env.reader == nil || m.switching != "" || m.pending > 0 || m.bulk != nil || m.waits() {
		return
	}
	p.asked = false
	if m.overlay != nil {
		p.lines(m.overlay.view(m))
		return
	}
	p.lines(m.told())
}

// waits says whether a question of the screen is under way.
func (m *Model) waits() bool {
	return slices.ContainsFunc(m.wanted(), func(p panel) bool { return m.polls[p].underWay })
}

func (p *plain) help() {
	p.asked = false
	p.line("type the number of a row, / and a filter, a key, or a command's name; an empty line tells the screen again")
	for _, c := range p.m.env.commands {
		if c.screens == nil || slices.Contains(c.screens, p.m.screen) {
			name := c.id
			if keys := c.plainKeys(); len(keys) > 0 {
				name += ", or " + strings.Join(keys, " ")
			}
			p.line(name + ": " + c.help)
		}
	}
}

// plainKeys are the command's keys in plain mode, where a number is a row.
func (c *command) plainKeys() []string {
	return slices.DeleteFunc(slices.Clone(c.keys), func(key string) bool {
		_, err := strconv.Atoi(key)
		return err == nil
	})
}

func (p *plain) lines(texts []string) {
	for _, text := range texts {
		p.line(text)
	}
}

// colours are all that the UI itself puts into a line for the terminal.
var colours = regexp.MustCompile("\x1b\\[[0-9;]*m")

// line writes one, without the colours and the blanks of a drawing. It is the
// one way to the terminal: here everything else that could drive it becomes
// visible, whatever job it comes from.
func (p *plain) line(text string) {
	if text = strings.Join(strings.Fields(colours.ReplaceAllString(text, "")), " "); text != "" {
		_, _ = fmt.Fprintln(p.out, printable.Line(text)) // a terminal that has gone ends the input as well
	}
}
