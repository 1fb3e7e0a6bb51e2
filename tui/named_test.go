package tui

import "github.com/jobq-dev/jobq/tui/command"

// The keys that tests press, by what they do. They come from the registry: a test
// reads as a story, and another key is one change.
var (
	Overview, Jobs, Queues   = command.Key(command.Overview), command.Key(command.Jobs), command.Key(command.Queues)
	Workers, Errors, Audit   = command.Key(command.Workers), command.Key(command.Errors), command.Key(command.Audit)
	Schedules                = command.Key(command.Schedules)
	RunNow, Remove           = command.Key(command.RunNow), command.Key(command.Remove)
	Open, Back               = command.Key(command.Open), command.Key(command.Back)
	Backward, Forward        = command.Key(command.Backward), command.Key(command.Forward)
	Older                    = command.Key(command.Older)
	Down, Up, Top, End       = command.Key(command.Down), command.Key(command.Up), command.Key(command.Top), command.Key(command.End)
	PageUp                   = command.Key(command.PageUp)
	NextTab, PreviousTab     = command.Key(command.NextTab), command.Key(command.PreviousTab)
	Filter, Sort, Reverse    = command.Key(command.Filter), command.Key(command.Sort), command.Key(command.Reverse)
	NextMatch, PreviousMatch = command.Key(command.NextMatch), command.Key(command.PreviousMatch)
	Mark, Range, SelectAll   = command.Key(command.Mark), command.Key(command.Range), command.Key(command.SelectAll)
	Panel, Output            = command.Key(command.Panel), command.Key(command.Output)
	FromStep                 = command.Key(command.RequeueFromStep)
	WithDependents           = command.Key(command.RequeueWithDependents)
	Requeue, Cancel, Delete  = command.Key(command.Requeue), command.Key(command.Cancel), command.Key(command.Delete)
	Edit, Clone              = command.Key(command.Edit), command.Key(command.Clone)
	Pause, Drain, Resume     = command.Key(command.Pause), command.Key(command.Drain), command.Key(command.Resume)
	Undo, Copy, Export       = command.Key(command.Undo), command.Key(command.Copy), command.Key(command.Export)
	Palette, Contexts, Help  = command.Key(command.Palette), command.Key(command.Contexts), command.Key(command.Help)
	Wide, Times, Mouse       = command.Key(command.Wide), command.Key(command.Times), command.Key(command.Mouse)
	Why                      = command.Key(command.Why)
	Tree                     = command.Key(command.Tree)
	Keys                     = command.Key(command.PartitionKeys)
)

// The answers to questions. No is any key but one.
const (
	Yes      = command.Yes
	No       = "n"
	Accept   = command.Accept
	Leave    = command.Leave
	Complete = command.Complete
)
