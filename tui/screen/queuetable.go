package screen

import (
	"encoding/json"
	"fmt"

	tea "charm.land/bubbletea/v2"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/filter"
	"github.com/jobq-dev/jobq/internal/format"
	"github.com/jobq-dev/jobq/monitor"
	"github.com/jobq-dev/jobq/tui/command"
	"github.com/jobq-dev/jobq/tui/data"
	"github.com/jobq-dev/jobq/tui/request"
	"github.com/jobq-dev/jobq/tui/widget"
)

// queueTable is the list of queues, which two screens have.
type queueTable struct{ table }

// queueRows are the queues by their names.
type queueRows struct{ *data.Facts }

func (r queueRows) Len() int          { return len(r.Queues) }
func (r queueRows) Name(i int) string { return r.Queues[i].Name }

func newQueueTable(kit Kit) queueTable {
	return queueTable{table{base: base{Kit: kit}, rows: queueRows{kit.Facts}, panel: data.Queues}}
}

// selected is the queue under the cursor, or nil.
func (t *queueTable) selected() *monitor.Queue {
	if len(t.Facts.Queues) == 0 {
		return nil
	}
	return &t.Facts.Queues[t.at()]
}

// Actions are the moves, and to open the jobs of the queue.
func (t *queueTable) Actions() map[string]Action {
	actions := t.moves()
	actions[command.Open] = Action{Disabled: t.noQueue, Run: t.open}
	return actions
}

func (t *queueTable) noQueue() string {
	if t.selected() == nil {
		return "no queue is selected"
	}
	return ""
}

// open shows the queue's jobs.
func (t *queueTable) open() tea.Msg {
	q := t.selected()
	if q == nil {
		return nil
	}
	t.list.Move(0, t.rows)
	return request.Jobs{Match: "queue:" + quoted(q.Name)}
}

// quoted is a value as the filter's grammar reads it.
func quoted(value string) string {
	const field = "queue:"
	return filter.Equal("queue", value).String()[len(field):]
}

// Selected is the queue under the cursor.
func (t *queueTable) Selected() Selection {
	return Selection{
		Queue: t.selected(), Noun: "queues", Rows: func() []json.RawMessage { return encoded(t.Facts.Queues) },
	}
}

func queueColumns() []widget.Column {
	return []widget.Column{
		widget.Left("NAME", 0, 0).UpTo(40),
		widget.Right("SLOTS", 6, 5),
		widget.Right("RUN", 6, 0),
		widget.Right("AVAIL", 7, 0),
		widget.Right("SCHED", 7, 4),
		widget.Right("RETRY", 6, 3),
		widget.Right("FAIL", 7, 0),
		widget.Right("OLDEST", 6, 1),
		widget.Right("/s", 8, 2),
		widget.Left("60 MIN", 16, 3).UpTo(60),
	}
}

// headLines are the lines of the table above its first row.
const headLines = 2

// draw lists the queues that there is room for.
func (t *queueTable) draw() []string {
	columns := widget.ColumnsFor(queueColumns(), t.cells-2, 14)
	lines := []string{
		t.Paint.Rule(t.cells, "Queues "+t.position(), "trouble first"), t.Paint.Header(columns, t.cells),
	}
	first, end := t.list.Shown(t.rows)
	at := t.at()
	for i := first; i < end; i++ {
		lines = append(lines, t.row(columns, t.Facts.Queues[i], i == at))
	}
	if len(t.Facts.Queues) == 0 {
		lines = append(lines, "  "+t.Paint.Muted.Render("there are no queues yet: enqueue a job, or start a worker"))
	}
	return lines
}

// inUse is how many jobs run. Where there are more than slots, the rest stands after a
// plus: 67 jobs with 64 slots are 64+3. The rest runs in a draining worker, whose slots
// are not counted, or is about to begin.
func inUse(running, slots int64) string {
	if slots > 0 && running > slots {
		return format.Number(slots) + "+" + format.Number(running-slots)
	}
	return format.Number(running)
}

// atLimit is how many jobs of a queue run, of as many as its limit lets: 3/3.
func atLimit(q monitor.Queue) string {
	return format.Number(q.Held()) + "/" + format.Number(int64(q.MaxRunning))
}

func (t *queueTable) row(columns []widget.Column, q monitor.Queue, selected bool) string {
	now := t.Paint.Now()
	name := widget.Clean(q.Name)
	switch {
	case q.PausedAt != nil:
		name += " " + t.Paint.Warn.Render(t.Paint.Pause+" PAUSED "+format.Ago(now.Sub(*q.PausedAt)))
	case data.Unused(q):
		name = t.Paint.Muted.Render(name + " (not in use)")
	}
	runs := inUse(q.Running, q.Slots)
	if limited := atLimit(q); q.MaxRunning > 0 && len(limited) <= widget.Cells(columns, "RUN") { // else only the queue's detail has it
		runs = limited
	}
	oldest, failed := "-", format.Capped(q.Failed)
	if q.HeadRunAt != nil {
		wait := now.Sub(*q.HeadRunAt)
		if oldest = format.Ago(wait); wait > data.WaitTrouble && q.PausedAt == nil {
			oldest = t.Paint.Alarm.Render(oldest + "!")
		}
	}
	if t.Facts.FailedOfLate(q.Name) > 0 {
		failed = t.Paint.Alarm.Render(failed + "!")
	}
	return t.Paint.Row(columns, t.cells, t.marks(selected), map[string]string{
		"NAME": name, "SLOTS": format.Number(q.Slots), "RUN": runs, "AVAIL": format.Available(q),
		"SCHED": format.Capped(q.Scheduled), "RETRY": format.Capped(q.Retrying), "FAIL": failed, "OLDEST": oldest,
		"/s": format.Rate(t.Facts.Rates(q.Name).Completed), "60 MIN": t.Paint.Spark(t.Facts.Series(q.Name, false), widget.Cells(columns, "60 MIN")),
	})
}

func (t *queueTable) toldQueues() []string {
	lines := make([]string, len(t.Facts.Queues))
	now := t.Paint.Now()
	for i, q := range t.Facts.Queues {
		text := fmt.Sprintf("%s, %s running, %s available, %s scheduled, %s retrying, %s failed", widget.Clean(q.Name), format.Number(q.Running),
			format.Available(q), format.Capped(q.Scheduled), format.Capped(q.Retrying), format.Capped(q.Failed))
		if q.MaxRunning > 0 {
			text += ", limit " + format.Number(int64(q.MaxRunning))
		}
		if q.KeyLimit > 0 {
			text += ", limit of each partition key " + format.Number(int64(q.KeyLimit))
		}
		if q.KeyOrder != jobq.KeyOrderNone {
			text += ", keys in order, " + string(q.KeyOrder)
		}
		if q.KeySeparator != "" {
			text += ", " + widget.Clean(format.KeyGroups(q.KeySeparator))
		}
		if q.KeyRate != nil {
			text += ", rate of each partition key " + format.QueueRate(q.KeyRate)
		}
		if q.ThrottledUntil != nil {
			text += ", throttled until " + t.Paint.Clock(*q.ThrottledUntil)
		}
		if kept := kept(q); kept != "" {
			text += ", kept: " + kept
		}
		if q.HeadRunAt != nil {
			text += ", the oldest has waited for " + format.Ago(now.Sub(*q.HeadRunAt))
		}
		if q.PausedAt != nil {
			text += ", paused for " + format.Ago(now.Sub(*q.PausedAt))
		}
		lines[i] = toldRow(i, len(t.Facts.Queues), i == t.at(), text)
	}
	return lines
}
