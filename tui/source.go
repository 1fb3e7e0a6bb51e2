package tui

import (
	"context"
	"os"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/jobedit"
	"github.com/jobq-dev/jobq/tui/acting"
	"github.com/jobq-dev/jobq/tui/command"
	"github.com/jobq-dev/jobq/tui/commandline"
	"github.com/jobq-dev/jobq/tui/data"
)

// env is what the model has of the world. Only going to another database
// changes it.
type env struct {
	link       *link // whose parts the next ones are
	reader     data.Reader
	writer     acting.Writer
	host       string
	schema     string
	name       string // of the context, as the operator calls it
	color      string
	production bool // looks different
	confirm    bool // asks for typed confirmations
	noWrite    bool // told to be read-only

	codec    jobq.Codec // for the page of one job; nil for none
	contexts []Context  // that the operator can go to
	connect  func(ctx context.Context, name string) (*link, error)

	now      func() time.Time
	ascii    bool             // draws with ASCII only
	commands command.Registry // with the operator's keys
	calm     bool             // moves as little as possible
	plain    bool             // tells, and does not draw
	send     *sender
	// edit gives the terminal to the operator's editor, until that ends.
	edit func(file *jobedit.File, done func(error) tea.Msg) tea.Cmd
	save func(path string, content []byte) error
}

// place is the database that is acted on.
func (e *env) place() acting.Place {
	return acting.Place{Reader: e.reader, Writer: e.writer, Confirm: e.confirm, Program: commandline.Program{Flags: e.link.Flags}}
}

// runEditor is edit in a real terminal.
func runEditor(file *jobedit.File, done func(error) tea.Msg) tea.Cmd {
	return tea.ExecProcess(file.Command(context.Background()), done)
}

// saveFile is save on the real disk: for the operator's eyes only.
func saveFile(path string, content []byte) error { return os.WriteFile(path, content, 0o600) }

// keyOf is the key of a command as the operator has it, for texts that name
// one: its first or, in plain mode, the first that is no row's number. A command
// without one goes by its id, which plain mode takes as well.
func (e *env) keyOf(id string) string {
	c := e.commands.Find(id)
	if c == nil {
		return id
	}
	keys := c.Keys
	if e.plain {
		keys = plainKeys(c)
	}
	if len(keys) == 0 {
		return id
	}
	return keys[0]
}
