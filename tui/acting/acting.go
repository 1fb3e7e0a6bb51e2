// Package acting changes jobs, queues, workers and schedules, and takes changes back. It asks
// before what needs asking, knows which action was the last, for undo, and owns the
// action by filter that is under way. It draws nothing: like a screen it takes
// messages, and returns what the root is to do.
//
// Example: requeue on one failed job returns a request.Change; its answer comes
// as a Result, which says what became of the job and remembers the action for undo.
package acting

import (
	"context"

	tea "charm.land/bubbletea/v2"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/operator"
	"github.com/jobq-dev/jobq/tui/command"
	"github.com/jobq-dev/jobq/tui/commandline"
	"github.com/jobq-dev/jobq/tui/data"
	"github.com/jobq-dev/jobq/tui/request"
	"github.com/jobq-dev/jobq/tui/screen"
)

// Writer is what may be done to a database. [operator.Operator] is one.
type Writer interface {
	Act(ctx context.Context, action jobq.Action, targets ...operator.Target) (*operator.Acted, error)
	RequeueFromStep(ctx context.Context, target operator.Target, step string) (acted *operator.Acted, forgotten int, err error)
	RequeueWithDependents(ctx context.Context, targets ...operator.Target) (*operator.Acted, error)
	Edit(ctx context.Context, change operator.JobChange, targets ...operator.Target) (*operator.Acted, error)
	Clone(ctx context.Context, id int64, change operator.JobChange) (*operator.Cloned, error)
	DrainWorker(ctx context.Context, id string) (bool, error)
	Undo(ctx context.Context, auditID int64) (*operator.Acted, error)
	Bulk(ctx context.Context, params operator.BulkParams) (operator.BulkProgress, error)
	PauseQueue(ctx context.Context, name, reason string) (operator.QueueActed, error)
	ResumeQueue(ctx context.Context, name string) (operator.QueueActed, error)
	PauseKey(ctx context.Context, queue, key, reason string) (operator.KeyActed, error)
	ResumeKey(ctx context.Context, queue, key string) (operator.KeyActed, error)
	PauseSchedule(ctx context.Context, name, reason string) (auditID int64, err error)
	ResumeSchedule(ctx context.Context, name string) (auditID int64, err error)
	RemoveSchedule(ctx context.Context, name string) (auditID int64, err error)
	RunSchedule(ctx context.Context, name string) (jobID int64, err error)
}

var _ Writer = (*operator.Operator)(nil)

// Place is the database that is acted on.
type Place struct {
	Reader data.Reader
	Writer Writer
	// Confirm asks before what elsewhere is done at once, and has typed what is
	// answered with a key elsewhere.
	Confirm bool
	Program commandline.Program // leads there
}

// Kit is what acting is given. Place is asked each time, since the operator can go
// to another database.
type Kit struct {
	Key   func(id string) string // the key of a command as the operator has it
	Place func() Place
}

// Part is the part of the UI that acts. It belongs to one database.
type Part struct {
	Kit
	lastAudit int64    // the number of the last action, which undo takes back; 0 for none
	bulk      *bulkRun // the action by filter that is under way; nil for none
}

// New has done nothing yet.
func New(kit Kit) *Part { return &Part{Kit: kit} }

// Actions are what can be done with what is selected, by the ids of the commands.
func (p *Part) Actions(selected screen.Selection) map[string]screen.Action {
	act := func(action jobq.Action, check func(jobq.State) string) screen.Action {
		return screen.Action{
			Disabled: func() string { return Refusal(selected, check) },
			Run:      func() tea.Msg { return p.act(action, selected) },
		}
	}
	pause := p.pauseAction(selected.Queue)
	switch {
	case selected.Schedule != nil:
		pause = p.pauseScheduleAction(*selected.Schedule)
	case selected.Keys != nil:
		pause = p.pauseKeyAction(*selected.Keys)
	}
	return map[string]screen.Action{
		command.Requeue: act(jobq.ActionRequeue, noRequeue),
		command.Cancel:  act(jobq.ActionCancel, noCancel),
		command.Delete:  act(jobq.ActionDelete, noDelete),
		command.Pause:   pause,
		command.RunNow:  p.runAction(selected.Schedule),
		command.Remove:  p.removeAction(selected.Schedule),
		command.Drain:   p.drainAction(selected.Worker),
		command.Resume:  p.resumeAction(selected.Entry),
		command.Undo:    p.undoAction(selected.Entry),

		command.RequeueFromStep:       p.fromStepAction(selected),
		command.RequeueWithDependents: p.withDependentsAction(selected),
	}
}

// Update takes a message in: what came of an action, or what a question that acting
// has asked was answered with.
func (p *Part) Update(msg tea.Msg) tea.Msg {
	switch msg := msg.(type) {
	case Result:
		return p.came(msg, msg.Text())
	case stepChosen:
		return p.askFromStep(msg)
	case withDependents:
		return p.came(msg.Result, msg.Text())
	case fromStep:
		return p.came(msg.Result, msg.Text())
	case request.ActOnAll:
		return request.Later{Overlay: p.actOnAll(msg)}
	case startBulk:
		return p.beginBulk(msg)
	case bulkStep:
		return p.stepped(msg)
	case request.StopBulk:
		p.StopBulk()
	case pauseQueue:
		return p.pause(msg)
	case queueActed:
		return p.queueChanged(msg)
	case pauseKey:
		return p.pauseKeyNow(msg)
	case keyActed:
		return p.keyChanged(msg)
	case pauseSchedule:
		return p.pauseScheduleNow(msg)
	case scheduleActed:
		return p.scheduleChanged(msg)
	case drained:
		return p.askedToDrain(msg)
	case undoSeen:
		return p.confirmUndo(msg)
	}
	return nil
}
