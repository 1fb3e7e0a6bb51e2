package tui

import (
	"context"
	"os"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/jobedit"
	"github.com/jobq-dev/jobq/tui/data"
)

// writer is what it may do. *jobq.Client is one.
type writer interface {
	Act(ctx context.Context, action jobq.Action, targets ...jobq.Target) (*jobq.Acted, error)
	Edit(ctx context.Context, change jobq.JobChange, targets ...jobq.Target) (*jobq.Acted, error)
	Clone(ctx context.Context, id int64, change jobq.JobChange) (*jobq.Cloned, error)
	DrainWorker(ctx context.Context, id string) (bool, error)
	Undo(ctx context.Context, auditID int64) (*jobq.Acted, error)
	Bulk(ctx context.Context, params jobq.BulkParams) (jobq.BulkProgress, error)
	PauseQueue(ctx context.Context, name, by, reason string) (jobq.QueueActed, error)
	ResumeQueue(ctx context.Context, name string) (jobq.QueueActed, error)
}

// env is what the model has of the world. Only going to another database
// changes it.
type env struct {
	link       *link // whose parts the next ones are
	reader     data.Reader
	writer     writer
	host       string
	schema     string
	name       string // of the context, as the operator calls it
	color      string
	production bool // looks different
	confirm    bool // asks for typed confirmations
	noWrite    bool // told to be read-only

	contexts []Context // that the operator can go to
	connect  func(ctx context.Context, name string) (*link, error)

	now      func() time.Time
	ascii    bool       // draws with ASCII only
	commands []*command // the registry, with the operator's keys
	calm     bool       // moves as little as possible
	plain    bool       // tells, and does not draw
	send     *sender
	// edit gives the terminal to the operator's editor, until that ends.
	edit func(file *jobedit.File, done func(error) tea.Msg) tea.Cmd
	save func(path string, content []byte) error
}

// runEditor is edit in a real terminal.
func runEditor(file *jobedit.File, done func(error) tea.Msg) tea.Cmd {
	return tea.ExecProcess(file.Command(context.Background()), done)
}

// saveFile is save on the real disk: for the operator's eyes only.
func saveFile(path string, content []byte) error { return os.WriteFile(path, content, 0o600) }
