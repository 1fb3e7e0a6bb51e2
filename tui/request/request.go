// Package request has what screens and overlays ask the root of the UI for. They
// have no pointer to it: they return one of these messages, and the root does
// what it says before it takes in the next key.
package request

import (
	"context"

	tea "charm.land/bubbletea/v2"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/tui/data"
)

type (
	// Tell shows a text at the bottom for a while.
	Tell struct{ Text string }
	// Done says that there is nothing to do: the screen has done it.
	Done struct{}
	// Command runs a command of the registry, as its key does.
	Command struct{ ID string }
	// Job shows a job in detail.
	Job struct{ ID int64 }
	// Jobs shows the jobs that match a filter, in the state that it names, or in
	// all states.
	Jobs struct{ Match string }
	// Neighbour shows the job that is so many rows below another one in the list.
	Neighbour struct {
		ID int64
		By int
	}
	// Context goes to another database of the operator's settings.
	Context struct{ Name string }
	// Theme changes the colours.
	Theme struct{ Name string }
	// Copy puts a text on the clipboard.
	Copy struct{ Text string }
	// Export writes what the screen has loaded to a file: as jsonl or csv.
	Export struct{ Format string }
	// Begin runs a command whose answer is waited for: nothing else that needs to
	// know what came of it can be begun meanwhile.
	Begin struct{ Run tea.Cmd }
	// Read asks the database something; the answer goes to the screens.
	Read struct {
		Ask func(ctx context.Context, r data.Reader) tea.Msg
	}
	// ActOnAll asks whether to act on all jobs that match a filter, as they were
	// counted, and then does.
	ActOnAll struct {
		Action   jobq.Action
		Filter   string
		Snapshot jobq.BulkSnapshot
	}
	// StopBulk stops the action by filter that is under way, after its batch.
	StopBulk struct{}
)

// Ask is a question before something is done.
type Ask struct {
	Title   string
	Details []string
	Typed   Typed
	Yes     tea.Msg // what is done on a yes
}

// Typed is what must be typed before something is done. The zero value asks for y.
type Typed struct {
	Text    string
	Meaning string // of the text: "the number of jobs"
	Effect  string // of enter: "delete them"
}

// Prompt asks for a line of text.
type Prompt struct {
	Title string
	Text  string // to begin with
	// Hints are what can be meant by the text; the first word of the first one
	// takes the place of the last word of the text on tab. May be nil.
	Hints func(text string) []string
	// Accept is what the text means, or why it means nothing.
	Accept func(text string) (tea.Msg, error)
}

// Choose offers a list of which one is chosen.
type Choose struct {
	Title string
	Hint  string // what the keys do
	Items []Item
	At    int      // the one under the cursor at first
	Notes []string // below the list
}

// Item is something to choose.
type Item struct {
	Key  string // that chooses it at once; empty for the number of its place
	Text string
	Then tea.Msg // what is done when it is chosen
}
