package command

import "slices"

// Class says how much a command does.
type Class int

// The classes.
const (
	Reading     Class = iota
	Reversible        // can be undone, and does not ask unless the context is production
	Destructive       // always asks
)

// Command is something that an operator can do. What does it stands with the parts
// of the UI, as an action under the same ID.
type Command struct {
	ID      string
	Keys    []string
	Title   string // in the hints; empty for none
	Help    string
	Screens []string // nil for all
	Class   Class
	Drawn   bool // is about the drawn screen: plain mode goes without
}

// On says whether the command can be given on the screen.
func (c *Command) On(screen string) bool {
	return c.Screens == nil || slices.Contains(c.Screens, screen)
}

var (
	onJobs     = []string{Jobs}
	onJob      = []string{Job}
	onBoth     = []string{Jobs, Job}
	onFailed   = []string{Jobs, Job, Errors}
	onPausable = []string{Overview, Queues, Schedules}

	onWorkers = []string{Workers}
	onAudit   = []string{Audit}
	notOnJob  = []string{Overview, Jobs, Queues, Workers, Schedules, Errors, Audit}

	onSchedules = []string{Schedules}
	onQueues    = []string{Queues}
)

// Registry is all commands, with their keys or the operator's own.
type Registry []*Command

// All is the registry with the keys that commands have.
func All() Registry {
	return slices.Concat(screenCommands(), moveCommands(), actionCommands(), listCommands(), otherCommands())
}

// Find is the command with the id, or nil.
func (r Registry) Find(id string) *Command {
	at := slices.IndexFunc(r, func(c *Command) bool { return c.ID == id })
	if at < 0 {
		return nil
	}
	return r[at]
}

// For is the command of a key on a screen, or nil. Those of the screen come before
// those of all.
func (r Registry) For(screen, key string) *Command {
	var general *Command
	for _, c := range r {
		switch {
		case !slices.Contains(c.Keys, key):
		case slices.Contains(c.Screens, screen):
			return c
		case c.Screens == nil:
			general = c
		}
	}
	return general
}

// Key is the key that a command has unless the operator has chosen another.
func Key(id string) string { return All().Find(id).Keys[0] }

const grammarHint = `state:failed queue:email kind:Send* err:"smtp 421" age:<2h args.tenant=4411`

func screenCommands() []*Command {
	return []*Command{
		{ID: Overview, Keys: []string{"1"}, Help: "Overview: is anything wrong, and where"},
		{ID: Jobs, Keys: []string{"2"}, Help: "Jobs"},
		{ID: Queues, Keys: []string{"3"}, Help: "Queues"},
		{ID: Workers, Keys: []string{"4"}, Help: "Workers, leader and janitor"},
		{ID: Schedules, Keys: []string{"5"}, Help: "Schedules: what adds jobs by itself, and when"},
		{ID: Errors, Keys: []string{"6"}, Help: "Errors: why jobs have failed, in groups"},
		{ID: Audit, Keys: []string{"7"}, Help: "Audit: who did what"},
		{ID: Open, Keys: []string{"enter"}, Title: "open", Help: "Open what is under the cursor"},
		{ID: Back, Keys: []string{"esc"}, Help: "Go back: selection, filter, full screen, screen"},
		{ID: Backward, Keys: []string{"["}, Help: "The view that was seen before this one", Screens: notOnJob},
		{ID: Forward, Keys: []string{"]"}, Help: "Forward again, after going to a view seen before", Screens: notOnJob},
	}
}

func moveCommands() []*Command {
	return []*Command{
		{ID: Down, Keys: []string{"j", "down"}, Help: "One row down"},
		{ID: Up, Keys: []string{"k", "up"}, Help: "One row up"},
		{ID: HalfDown, Keys: []string{"ctrl+d"}, Help: "Half a page down"},
		{ID: HalfUp, Keys: []string{"ctrl+u"}, Help: "Half a page up"},
		{ID: PageDown, Keys: []string{"ctrl+f", "pgdown"}, Help: "A page down: as many rows as are visible"},
		{ID: PageUp, Keys: []string{"ctrl+b", "pgup"}, Help: "A page up"},
		{ID: End, Keys: []string{"G", "end"}, Help: "To the end; output is followed from there"},
		{ID: Top, Keys: []string{"g", "home"}, Help: "To the top; a list of jobs follows new ones from there"},
	}
}

func listCommands() []*Command {
	return []*Command{
		{ID: NextTab, Keys: []string{"l", "right", "tab"}, Help: "The next state", Screens: onJobs},
		{ID: PreviousTab, Keys: []string{"h", "left", "shift+tab"}, Help: "The previous state", Screens: onJobs},
		{ID: Filter, Keys: []string{"/"}, Title: "filter", Help: "Filter jobs: " + grammarHint + "; in a job, search its output"},
		{ID: NextMatch, Keys: []string{"n"}, Help: "The next line of the output that has the text searched for", Screens: onJob},
		{ID: PreviousMatch, Keys: []string{"N"}, Help: "The previous such line", Screens: onJob},
		{ID: Sort, Keys: []string{"s"}, Help: "Sort the list", Screens: onJobs},
		{ID: Reverse, Keys: []string{"S"}, Help: "Turn the order around", Screens: onJobs},
		{ID: Mark, Keys: []string{"space"}, Title: "mark", Help: "Mark the job, and go on to the next", Screens: onJobs},
		{ID: Range, Keys: []string{"v"}, Help: "Mark a range: moving marks, until this is pressed again", Screens: onJobs},
		{ID: MarkLoaded, Keys: []string{"*"}, Help: "Mark all jobs that are loaded, or none", Screens: onJobs},
		{ID: SelectAll, Keys: []string{"A"}, Title: "all matching", Help: "Select all jobs that match the filter now", Screens: onJobs},
		{ID: Newer, Keys: []string{"["}, Help: "The job above this one in the list", Screens: onJob},
		{ID: Older, Keys: []string{"]"}, Help: "The job below this one in the list", Screens: onJob},
		{ID: Panel, Keys: []string{"tab", "shift+tab"}, Help: "Move in the output, or among the runs", Screens: onJob},
		{ID: Why, Keys: []string{"w"}, Title: "why", Help: "Why the job is not running: each reason, and what to do about it", Screens: onBoth},
		{ID: Tree, Keys: []string{"t"}, Help: "The jobs for which this one waits or has waited, and those that wait for it, as a tree; enter opens one", Screens: onBoth},
		{ID: PartitionKeys, Keys: []string{"K"}, Title: "keys", Help: "The partition keys of the queue: what waits and runs of each; enter lists the jobs of one", Screens: onQueues},
		{ID: Output, Keys: []string{"L"}, Title: "output", Help: "The run's output on the full screen", Screens: onJob},
	}
}

func actionCommands() []*Command {
	return []*Command{
		{ID: Requeue, Keys: []string{"r"}, Title: "requeue", Help: "Let the job run again as soon as it can; on the Errors screen, the jobs of the group: a sample, all at a rate, or all at once; undo takes it back", Screens: onFailed, Class: Reversible},
		{ID: RequeueFromStep, Keys: []string{"R"}, Title: "from step", Help: "Let the job run again, and do a durable step again with all those after it", Screens: onJob, Class: Destructive},
		{ID: RequeueWithDependents, Keys: []string{"b"}, Help: "Let the job run again, and let jobs wait for it again that were cancelled with it", Screens: onBoth, Class: Destructive},
		{ID: Cancel, Keys: []string{"c"}, Title: "cancel", Help: "Cancel the job; asks when it runs", Screens: onBoth, Class: Reversible},
		{ID: Edit, Drawn: true, Keys: []string{"e"}, Title: "edit", Help: "Change a job that waits, in your editor", Screens: onBoth, Class: Reversible},
		{ID: Clone, Drawn: true, Keys: []string{"C"}, Help: "Make a new job like this one, in your editor", Screens: onBoth, Class: Reversible},
		{ID: Delete, Keys: []string{"D"}, Title: "Delete", Help: "Delete the job with its history", Screens: onBoth, Class: Destructive},
		{ID: Pause, Keys: []string{"p"}, Title: "pause", Help: "Pause the queue, the partition key or the schedule and say why, or let it go on", Screens: onPausable, Class: Reversible},
		{ID: RunNow, Keys: []string{"t"}, Title: "run now", Help: "Add the job of the schedule now, also when it is paused", Screens: onSchedules, Class: Reversible},
		{ID: Remove, Keys: []string{"D"}, Title: "Remove", Help: "Forget the schedule; jobs that it has added stay", Screens: onSchedules, Class: Destructive},
		{ID: Drain, Keys: []string{"d"}, Title: "drain", Help: "Ask the worker to take no new jobs, and to stop when those it has are finished", Screens: onWorkers, Class: Destructive},
		{ID: Resume, Keys: []string{"R"}, Title: "Resume", Help: "Go on with an action by filter that was stopped", Screens: onAudit, Class: Destructive},
		{ID: Undo, Keys: []string{"u", "z"}, Help: "Undo the last action, on the jobs that have not changed since; on the Audit screen, the action under the cursor", Class: Reversible},
	}
}

func otherCommands() []*Command {
	return []*Command{
		{ID: Copy, Keys: []string{"y"}, Title: "copy", Help: "Copy an id, a permalink, or the command line that does the same"},
		{ID: Export, Keys: []string{"x"}, Help: "Write what the screen has loaded to a file, as JSON lines or CSV"},
		{ID: Palette, Keys: []string{":", "ctrl+p"}, Title: "command", Help: "Type a command, `job ID`, `jobs FILTER`, `ctx NAME` or `theme NAME`"},
		{ID: Contexts, Keys: []string{"@"}, Help: "Go to another database of your settings; in the palette, `ctx NAME` does"},
		{ID: Freeze, Keys: []string{"f"}, Title: "freeze", Help: "Let the screen stand still, or follow again"},
		{ID: Wide, Keys: []string{"W"}, Help: "Other columns: priority, creation, worker, tags", Screens: onJobs},
		{ID: Times, Keys: []string{"T"}, Help: "Times in UTC, or how long ago"},
		{ID: Mouse, Drawn: true, Keys: []string{"M"}, Help: "Take the mouse, or give it back to the terminal"},
		{ID: Refetch, Keys: []string{"ctrl+r"}, Help: "Ask the database again"},
		{ID: Redraw, Drawn: true, Keys: []string{"ctrl+l"}, Help: "Draw the screen again"},
		{ID: Help, Keys: []string{"?"}, Title: "help", Help: "What the keys do"},
		{ID: Suspend, Drawn: true, Keys: []string{"ctrl+z"}, Help: "Suspend; stops listening to the database meanwhile"},
		{ID: Quit, Keys: []string{"q"}, Title: "quit", Help: "Quit; in a screen opened from another, go back"},
	}
}
