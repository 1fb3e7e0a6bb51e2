// Package request has what the parts of the UI ask its root for. They have no
// pointer to it: they return one of these messages, and the root does what it says
// before it takes in the next key.
package request

import (
	"context"

	tea "charm.land/bubbletea/v2"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/jobedit"
	"github.com/jobq-dev/jobq/operator"
	"github.com/jobq-dev/jobq/tui/data"
)

// What is shown, and where.
type (
	// Tell shows a text at the bottom for a while.
	Tell struct{ Text string }
	// Done says that there is nothing to do: the part has done it.
	Done struct{}
	// All are several requests, one after another.
	All []tea.Msg
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
)

// What is done with the database and the terminal.
type (
	// Begin runs a command whose answer is waited for: nothing else that needs to
	// know what came of it can be begun meanwhile.
	Begin struct{ Run tea.Cmd }
	// Change is a request that changes something, under the name that it has for
	// the operator. Where nothing can be changed by now it is refused, and says why.
	Change struct {
		Verb string
		Do   tea.Msg
	}
	// Run runs a command whose answer nothing waits for.
	Run struct{ Run tea.Cmd }
	// Read asks the database something; the answer goes to the screens.
	Read struct {
		Ask func(ctx context.Context, r data.Reader) tea.Msg
	}
	// ActOnAll asks whether to act on all jobs that match a filter, as they were
	// counted, and then does.
	ActOnAll struct {
		Action   jobq.Action
		Filter   string
		Snapshot operator.BulkSnapshot
		Max      int // of them, the newest; 0 for all
		Rate     int // jobs a second; 0 for as many as it can
	}
	// Renew says that something has changed: answers about these panels that are
	// under way are worthless, and what the screen shows is asked for anew.
	Renew struct{ Panels []data.Panel }
	// Screens gives a message to all screens, and not only to the one shown.
	Screens struct{ Msg tea.Msg }
	// Editor gives the terminal to the operator's editor until that ends. Nothing
	// is listened to and asked meanwhile. Ended makes the message that follows.
	Editor struct {
		File  *jobedit.File
		Ended func(error) tea.Msg
	}
	// StopBulk stops the action by filter that is under way, after its batch.
	StopBulk struct{}
)

// Later is something that lies over the screen and that no key has asked for just
// now: it waits until what is open by then has been closed. What is being typed
// there stays, and is no answer to a question that nobody has seen.
type Later struct{ Overlay tea.Msg }

// Ask is a question before something is done. The root adds to it which database
// it is about.
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
	Note  string // what the text is for, where the title does not say it; may be empty
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

// Note says what is too long for a line, until a key is pressed.
type Note struct {
	Title string
	Lines []string
}

// Help lists commands; typing narrows the list, enter runs the one under the cursor.
type Help struct {
	Entries []Entry
	Keys    []string // that leave the help while nothing is searched
}

// Entry is a command as the help shows it.
type Entry struct {
	ID, Help string
	Keys     []string
	Here     bool // it can be given on this screen
}

// Progress shows how far an action by filter has come, until its last Step.
type Progress struct {
	Title string
	Hint  string // how it is stopped
	Total int64  // how many jobs it is about; 0 when that is not known
}

// Step is how far it has come.
type Step struct {
	Done, Refused int64
	Ended         bool
}
