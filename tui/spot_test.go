package tui

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/monitor"
)

// A key acts on the row that it was pressed on, also when rows come in above
// although nobody has moved the cursor yet.
func TestRowsStayUnderTheCursor(t *testing.T) {
	t.Parallel()
	b := newBench(120, 35)
	b.press(Workers)
	b.fake.workers = append([]monitor.Worker{{ID: "a-new-one"}}, b.fake.workers...)
	b.tick(6 * time.Second)
	require.Equal(t, "img-1-881-q2", b.selected().Worker.ID)

	b.fake.audit = []monitor.AuditEntry{{ID: 7, At: noon, Actor: "ana", Action: jobq.ActionDelete, Done: 3}}
	b.press(Audit)
	b.fake.audit = append([]monitor.AuditEntry{{ID: 8, At: noon, Actor: "bob", Action: jobq.ActionCancel, Done: 1}}, b.fake.audit...)
	b.tick(6 * time.Second)
	b.press(Undo)
	require.Contains(t, b.plain(), "undo action 7, delete")
	require.Contains(t, b.plain(), "3 jobs")
	require.Contains(t, b.plain(), "by        ana")

	b = newBench(120, 35)
	b.tick(3 * time.Second) // by now it is known which queues have failures
	b.fake.queues[0].HeadRunAt = &noon
	first := b.selected().Queue.Name
	b.fake.failures = []monitor.Failure{{Queue: "default", Error: "new", Failed: 9}}
	b.tick(10 * time.Second)
	require.Equal(t, first, b.selected().Queue.Name)
}

// When the row under the cursor has gone, the cursor is on the one that has
// taken its place, or on the last one; and what a key acts on then is that.
func TestCursorOfARowThatHasGone(t *testing.T) {
	t.Parallel()
	b := newBench(120, 35)
	names := func(ids ...string) (workers []monitor.Worker) {
		for _, id := range ids {
			workers = append(workers, monitor.Worker{ID: id})
		}
		return workers
	}
	at := func() string { return b.selected().Worker.ID }
	b.fake.workers = names("a", "b", "c", "d")
	b.press(Workers)
	b.tick(6 * time.Second)
	b.press(Down, Down)
	require.Equal(t, "c", at())
	b.fake.workers = names("a", "b", "d")
	b.tick(6 * time.Second)
	require.Equal(t, "d", at(), "what was below")
	b.fake.workers = names("a", "b")
	b.tick(6 * time.Second)
	require.Equal(t, "b", at(), "there is none below")
	b.fake.workers = nil
	b.tick(6 * time.Second)
	b.fake.workers = names("a", "b", "c")
	b.tick(6 * time.Second)
	require.Equal(t, "b", at(), "its row is back")

	b.press(Queues, Down)
	require.Equal(t, b.facts.Queues[1].Name, b.selected().Queue.Name)
	b.fake.queues = slices.DeleteFunc(b.fake.queues, func(q monitor.Queue) bool { return q.Name == b.facts.Queues[1].Name })
	next := b.facts.Queues[2].Name
	b.tick(3 * time.Second)
	require.Equal(t, next, b.selected().Queue.Name)

	b.fake.audit = []monitor.AuditEntry{{ID: 9, At: noon}, {ID: 8, At: noon}, {ID: 7, At: noon}}
	b.press(Audit, Down)
	b.fake.audit = []monitor.AuditEntry{{ID: 9, At: noon}, {ID: 7, At: noon}}
	b.tick(6 * time.Second)
	require.Equal(t, int64(7), b.selected().Entry.ID)

	b.press(Jobs, Down, Down)
	gone, below := b.jobs().Cursor, b.fake.jobs[3].ID
	b.fake.jobs = slices.DeleteFunc(b.fake.jobs, func(job *jobq.Job) bool { return job.ID == gone })
	b.tick(3 * time.Second)
	require.Equal(t, gone, b.jobs().Cursor, "a job that has gone stays in sight until the cursor leaves it")
	b.press(Down)
	require.Equal(t, below, b.jobs().Cursor)
	require.False(t, b.shows(gone))
}
