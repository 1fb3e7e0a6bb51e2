package tui

import (
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
)

// A key acts on the row that it was pressed on, also when rows come in above
// although nobody has moved the cursor yet.
func TestRowsStayUnderTheCursor(t *testing.T) {
	t.Parallel()
	b := newBench(120, 35)
	b.press("4")
	b.fake.workers = append([]jobq.Worker{{ID: "a-new-one"}}, b.fake.workers...)
	b.tick(6 * time.Second)
	require.Equal(t, "img-1-881-q2", b.workers[b.workerAt()].ID)

	b.fake.audit = []jobq.AuditEntry{{ID: 7, At: noon, Actor: "ana", Action: jobq.ActionDelete, Done: 3}}
	b.press("6")
	b.fake.audit = append([]jobq.AuditEntry{{ID: 8, At: noon, Actor: "bob", Action: jobq.ActionCancel, Done: 1}}, b.fake.audit...)
	b.tick(6 * time.Second)
	b.press("u")
	require.Contains(t, b.plain(), "undo action 7, delete")
	require.Contains(t, b.plain(), "3 jobs")
	require.Contains(t, b.plain(), "by        ana")

	b = newBench(120, 35)
	b.tick(3 * time.Second) // by now it is known which queues have failures
	b.fake.queues[0].HeadRunAt = &noon
	first := b.queues[b.queueAt()].Name
	b.fake.failures = []jobq.Failure{{Queue: "default", Error: "new", Jobs: 9, Since: noon}}
	b.tick(10 * time.Second)
	require.Equal(t, first, b.queues[b.queueAt()].Name)
}

// What is under way is counted once, whatever is asked and answered meanwhile:
// else another database is refused for ever, or entered too early.
func TestPendingThroughQuestions(t *testing.T) {
	t.Parallel()
	b := newBench(120, 35)
	b.press("2")
	key := func(name rune) tea.Cmd {
		_, command := b.Update(tea.KeyPressMsg{Code: name, Text: string(name)})
		return command
	}
	answer := key('r') // under way, and not answered yet
	require.Equal(t, 1, b.pending)
	key('D')
	require.Equal(t, 1, b.pending, "a question is nothing under way")
	b.do(answer)
	require.Zero(t, b.pending)
	b.press("esc")
	require.Zero(t, b.pending)
	b.press("D")
	b.tick(time.Second)
	b.press("y")
	require.Zero(t, b.pending)
	require.Len(t, b.fake.written, 2)
}

// In production, what is done at once elsewhere is asked about, and what is
// answered with y elsewhere is typed.
func TestProductionAsksToUndo(t *testing.T) {
	t.Parallel()
	b := newBench(120, 35)
	b.env.confirm = true
	b.press("2", "r")
	b.tick(time.Second)
	b.press("y")
	require.Len(t, b.fake.written, 1)
	b.press("u")
	require.Contains(t, b.plain(), "your last")
	b.tick(time.Second)
	b.press("n")
	require.Len(t, b.fake.written, 1)

	b.fake.audit = []jobq.AuditEntry{stoppedBulk}
	b.press("6", "R")
	b.tick(time.Second)
	b.press("y", "esc", "u")
	b.tick(time.Second)
	b.press("y")
	require.Len(t, b.fake.written, 1)
	b.press("backspace", "1", "7", "enter")
	require.Len(t, b.fake.written, 2)

	b.press("4", "j", "d")
	b.tick(time.Second)
	b.press("y", "esc", "d")
	b.tick(time.Second)
	b.press("d", "r", "a", "i", "n", "enter")
	require.Equal(t, "drain web-7-991-k2", b.fake.written[2])
}
