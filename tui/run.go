package tui

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/tui/command"
	"github.com/jobq-dev/jobq/tui/polling"
	"github.com/jobq-dev/jobq/tui/screen"
	"github.com/jobq-dev/jobq/tui/theme"
)

// Config says what the UI shows and how. The zero value is ready to use.
type Config struct {
	// Context is the database to begin with, as far as it is known before it
	// has answered.
	Context Context
	// Contexts are all that the operator can go to. Default none.
	Contexts []Context
	// Connect opens the database of that name: Context's, or one of Contexts.
	// The UI closes the client's pool. It is called while the UI is shown
	// already, so that there is something to see at once.
	Connect func(ctx context.Context, name string) (*jobq.Client, Context, error)
	// Actor is who acts, as the audit names them. Default "unknown".
	Actor string
	// Codec decodes what the page of one job shows; nothing else is decoded, and nothing is
	// encoded. Default nil: encrypted values are shown by the names of their keys.
	Codec jobq.Codec
	// Keys are keys of commands, by their ids, in place of those they have.
	Keys map[string][]string
	// Theme is one of Themes. Default auto: what suits the terminal.
	Theme string
	// Calm redraws at most once a second.
	Calm bool
	// ASCII draws with ASCII only.
	ASCII bool
	// Poll does without live events.
	Poll bool
	// Open is where to begin: overview, jobs, queues, workers, schedules, errors,
	// audit, or job/ID. Default overview.
	Open string
	// Input and Output are the terminal. Default the standard ones.
	Input  io.Reader
	Output io.Writer
}

// ErrPanic is returned when the UI has failed and given the terminal back.
var ErrPanic = tea.ErrProgramPanic

// ErrInvalid is returned for a Config that cannot be meant.
var ErrInvalid = errors.New("invalid setting")

// Run shows the UI until the operator leaves it, or the context ends. A
// database that cannot be reached in the first place is an error.
func Run(ctx context.Context, config *Config) error {
	m, err := config.model()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// Signals end the caller's context. Bubble Tea's own handler would wait for
	// ever to deliver one to a program that the context has ended already.
	options := []tea.ProgramOption{tea.WithContext(ctx), tea.WithFPS(60), tea.WithoutSignalHandler()}
	if config.Input != nil {
		options = append(options, tea.WithInput(config.Input))
	}
	if config.Output != nil {
		options = append(options, tea.WithOutput(config.Output))
	}
	program := tea.NewProgram(m, options...)
	if config.Calm {
		m.env.send.every = tickBlur
	}
	m.env.send.start(ctx, program.Send, config.Poll)
	_, err = program.Run()
	m.env.send.stop()
	if !errors.Is(err, ErrPanic) { // else a connection may be in use still, for which closing would wait for ever
		m.env.link.close()()
	}
	if errors.Is(err, tea.ErrProgramKilled) && ctx.Err() != nil {
		return nil
	}
	return errors.Join(err, m.failed)
}

// model is the UI before it has asked anything.
func (c *Config) model() (*Model, error) {
	registry, err := command.WithKeys(c.Keys)
	if err != nil {
		return nil, fmt.Errorf("%w: keys: %w", ErrInvalid, err)
	}
	if _, err := theme.New(theme.Settings{Name: c.Theme}); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	e := &env{
		now: time.Now, edit: runEditor, save: saveFile, ascii: c.ASCII, send: &sender{every: feedEvery}, commands: registry, calm: c.Calm, contexts: c.Contexts, codec: c.Codec,
		connect: func(ctx context.Context, name string) (*link, error) {
			client, where, err := c.Connect(ctx, name)
			if err != nil {
				return nil, err
			}
			return newLink(client, c.Actor, where), nil
		},
	}
	e.use(&link{Context: c.Context})
	m := newModel(e)
	m.look.style.Name = c.Theme
	m.restyle()
	return m, m.openAt(c.Open)
}

// openAt shows a screen by its name.
func (m *Model) openAt(place string) error {
	if place == "" {
		place = string(screen.Overview)
	}
	if name := screen.Name(place); name != screen.Job && slices.Contains(screen.Names(), name) {
		m.at = name
		return nil
	}
	name, found := strings.CutPrefix(place, "job/")
	id, err := strconv.ParseInt(name, 10, 64)
	if !found || err != nil || id < 1 {
		return fmt.Errorf("%w: %q is no place: overview, jobs, queues, workers, schedules, errors, audit or job/ID", ErrInvalid, place)
	}
	m.showJob(id)
	m.history = history{back: []screen.Name{screen.Jobs}}
	return nil
}

// Print returns one frame, without a terminal and without colours.
func Print(ctx context.Context, config *Config, cells, lines int) (string, error) {
	m, err := config.model()
	if err != nil {
		return "", err
	}
	l, err := m.env.connect(ctx, m.env.name)
	if err != nil {
		return "", err
	}
	defer l.close()()
	m.env.use(l)
	m.resize(cells, lines)
	m.facts.WhyNotLive = "one frame: no live events"
	m.look.style.Bare = true
	m.restyle()
	// Twice: some panels ask about what others have answered.
	for range 2 {
		if err := m.loadAll(ctx); err != nil {
			return "", err
		}
	}
	drawn, _ := m.draw()
	frame := strings.Split(drawn, "\n")
	for i, line := range frame {
		frame[i] = strings.TrimRight(line, " ")
	}
	return strings.Join(frame, "\n"), nil
}

// loadAll asks everything that the screen wants, and waits for it.
func (m *Model) loadAll(ctx context.Context) error {
	for _, want := range m.wanted() {
		value, err := want.Ask(ctx, m.env.reader)
		if err != nil {
			return err
		}
		m.loaded(polling.Loaded{Panel: want.Panel, About: want.About, Value: value})
	}
	return nil
}

// sender stands between the feed of events and the program, and can be stopped
// while the program is suspended. The zero value hears nothing.
type sender struct {
	every time.Duration // between two messages, at least
	send  func(tea.Msg)
	mu    sync.Mutex
	// guarded by mu
	run    func(context.Context)
	parent context.Context
	cancel context.CancelFunc
	done   chan struct{}
}

// stop ends listening, and returns when the connection is closed.
func (s *sender) stop() {
	s.mu.Lock()
	cancel, done := s.cancel, s.done
	s.cancel = nil
	s.mu.Unlock()
	if cancel != nil {
		cancel()
		<-done
	}
}

// begin listens, unless it does so already.
func (s *sender) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.run == nil || s.cancel != nil || s.parent.Err() != nil {
		return
	}
	ctx, cancel := context.WithCancel(s.parent)
	done := make(chan struct{})
	s.cancel, s.done = cancel, done
	run := s.run
	go func() {
		defer close(done)
		run(ctx)
	}()
}

// pause, resume and listenTo are stop, begin and turnTo as commands.
func (s *sender) pause() tea.Cmd {
	return func() tea.Msg {
		s.stop()
		return nil
	}
}

func (s *sender) resume() tea.Cmd {
	return func() tea.Msg {
		s.begin()
		return nil
	}
}

func (s *sender) listenTo(client *jobq.Client) tea.Cmd {
	return func() tea.Msg {
		s.turnTo(client)
		return nil
	}
}
