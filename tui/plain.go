package tui

import (
	"context"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/jobq-dev/jobq/tui/command"
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
	m.env.plain, m.env.ascii = true, true
	m.restyle()
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
	m.env.commands = slices.DeleteFunc(m.env.commands, func(c *command.Command) bool { return c.Drawn })
	m.resize(plainCells, plainLines)
	m.Update(feedStateMsg{feedPolling, "polling, as plain mode does"})
	return &plain{m: m, out: output, msgs: make(chan tea.Msg), stop: stop, asked: true}
}

func (p *plain) run(lines <-chan string) error {
	ticker := time.NewTicker(tickBlur)
	defer ticker.Stop()
	defer func() { p.m.acting.StopBulk() }() // nobody would hear of it any more
	p.do(p.m.connect(p.m.env.name))
	for ended := false; ; {
		// A line is heard when the one before has been answered, so that what
		// is typed ahead, or piped, means what it would mean then.
		heard := lines
		switch {
		case p.asked && p.m.acting.Bulk() == "":
			heard = nil
		case ended && p.m.acting.Bulk() == "":
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
