// Package command has the registry of what an operator can do in the terminal UI,
// and the keys that do it. Help, hints, palette, docs/tui-keys.md and the operator's own
// keys are made of it; the parts of the UI and the tests name commands and keys as
// they are called here, so that another key is one change.
package command

// The commands, as the palette and the operator's settings name them.
const (
	// Screens.
	Overview  = "overview"
	Jobs      = "jobs"
	Queues    = "queues"
	Workers   = "workers"
	Schedules = "schedules"
	Errors    = "errors"
	Audit     = "audit"
	Job       = "job" // a screen without a command of its own
	Open      = "open"
	Back      = "back"
	Backward  = "backward"
	Forward   = "forward"

	// Moves.
	Down     = "down"
	Up       = "up"
	HalfDown = "half-down"
	HalfUp   = "half-up"
	PageDown = "page-down"
	PageUp   = "page-up"
	End      = "end"
	Top      = "top"

	// Lists, and a job.
	NextTab       = "next-tab"
	PreviousTab   = "previous-tab"
	Filter        = "filter"
	NextMatch     = "next-match"
	PreviousMatch = "previous-match"
	Sort          = "sort"
	Reverse       = "reverse"
	Mark          = "mark"
	Range         = "range"
	MarkLoaded    = "mark-loaded"
	SelectAll     = "select-all"
	Newer         = "newer"
	Older         = "older"
	Panel         = "panel"
	Output        = "output"
	PartitionKeys = "partition-keys"

	// Actions.
	Requeue = "requeue"
	Cancel  = "cancel"
	Edit    = "edit"
	Clone   = "clone"
	Delete  = "delete"
	Pause   = "pause"
	RunNow  = "run"
	Remove  = "remove"
	Drain   = "drain"
	Resume  = "resume"
	Undo    = "undo"

	RequeueFromStep       = "requeue-from-step"
	RequeueWithDependents = "requeue-with-dependents"

	// The rest.
	Why      = "why"
	Tree     = "tree"
	Copy     = "copy"
	Export   = "export"
	Palette  = "palette"
	Contexts = "contexts"
	Freeze   = "freeze"
	Wide     = "wide"
	Times    = "times"
	Mouse    = "mouse"
	Refetch  = "refetch"
	Redraw   = "redraw"
	Help     = "help"
	Suspend  = "suspend"
	Quit     = "quit"
)

// Keys that are no commands: they always mean the same, in every question, list and
// text, and cannot be chosen anew.
const (
	Yes       = "y"      // to a question; every other key is a no
	Accept    = "enter"  // what is typed, or under the cursor
	Leave     = "esc"    // without doing anything
	Complete  = "tab"    // what is typed
	Interrupt = "ctrl+c" // quits at once, whatever is shown
)
