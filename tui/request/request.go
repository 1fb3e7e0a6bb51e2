// Package request has what screens and overlays ask the root of the UI for. They
// have no pointer to it: they return one of these messages, and the root does
// what it says before it takes in the next key.
package request

import tea "charm.land/bubbletea/v2"

type (
	// Tell shows a text at the bottom for a while.
	Tell struct{ Text string }
	// Command runs a command of the registry, as its key does.
	Command struct{ ID string }
	// Job shows a job in detail.
	Job struct{ ID int64 }
	// Jobs shows the jobs that match a filter.
	Jobs struct{ Match string }
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
	// StopBulk stops the action by filter that is under way, after its batch.
	StopBulk struct{}
)
