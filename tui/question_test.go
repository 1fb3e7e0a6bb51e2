package tui

import (
	"slices"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/jobedit"
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
	b.fake.audit = []jobq.AuditEntry{{ID: 2, Action: jobq.ActionDelete}, {ID: 1, At: noon, Actor: "ana", Action: jobq.ActionRequeue, Done: 1, JobIDs: []int64{48213911}}}
	b.press("u")
	require.Contains(t, b.plain(), "undo action 1, requeue, your last")
	require.Contains(t, b.plain(), "action    requeue 48213911, 1 jobs")
	require.Contains(t, b.plain(), "by        ana, 2026-11-21 14:02:31Z")
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

// In production an edit is typed as other actions are, and so is a clone.
func TestProductionAsksToEdit(t *testing.T) {
	t.Parallel()
	for key, verb := range map[string]string{"e": "edit", "C": "clone"} {
		b := newEditBench(`"priority": 0`, `"priority": -5`)
		b.env.confirm = true
		b.press(key)
		require.Contains(t, b.plain(), "Type 1, the number of jobs,")
		require.Contains(t, b.plain(), "and press enter to "+verb+" it: _")
		b.tick(time.Second)
		b.press("y", "enter")
		require.Empty(t, b.fake.written, key)
		b.press("backspace", "1", "enter")
		require.Len(t, b.fake.written, 1, key)
		require.Zero(t, b.pending)
	}
}

// The key of an action pressed again before its answer begins nothing twice,
// and leaves nothing pending: there is one editor at a time, and what is the
// last action, which u takes back, is known before u does.
func TestKeysPressedTwice(t *testing.T) {
	t.Parallel()
	key := func(b *bench, name rune) tea.Cmd {
		_, command := b.Update(tea.KeyPressMsg{Code: name, Text: string(name)})
		return command
	}
	for _, name := range "eC" {
		b := newEditBench(`"priority": 0`, `"priority": -5`)
		editors := 0
		edit := b.env.edit
		b.env.edit = func(file *jobedit.File, done func(error) tea.Msg) tea.Cmd {
			editors++
			return edit(file, done)
		}
		first, second := key(b, name), key(b, name)
		require.Contains(t, b.toast, underWay)
		b.do(first)
		b.do(second)
		require.Equal(t, 1, editors)
		require.Zero(t, b.pending, "the question is nothing under way")
		b.tick(time.Second)
		b.press("y")
		require.Len(t, b.fake.written, 1)
		require.Zero(t, b.pending)
	}
	for _, production := range []bool{false, true} {
		b := newBench(120, 35)
		b.fake.audit = []jobq.AuditEntry{{ID: 1, Action: jobq.ActionRequeue}}
		b.press("2", "r")
		b.env.confirm = production
		first, second := key(b, 'u'), key(b, 'u')
		require.Contains(t, b.toast, underWay)
		b.do(first)
		b.do(second)
		b.tick(time.Second)
		b.press("y")
		require.Equal(t, []string{"requeue 48213911:failed/5", "undo 1"}, b.fake.written)
		require.Zero(t, b.pending)
	}
	// Whatever is begun twice at once, all of it is counted off again.
	for _, name := range "rcDpx" {
		b := newBench(120, 35)
		b.press("2")
		first, second := key(b, name), key(b, name)
		b.do(second)
		b.do(first)
		b.press("esc", "esc")
		require.Zero(t, b.pending, string(name))
	}
}

// A question that takes the place of another one leaves nothing of it pending.
func TestQuestionsReplaced(t *testing.T) {
	t.Parallel()
	b := newEditBench(`"priority": 0`, `"priority": -5`)
	b.press("e")
	first := b.overlay
	b.undoSeen(undoSeenMsg{entry: stoppedBulk})
	require.NotSame(t, first, b.overlay)
	b.press("esc")
	require.Zero(t, b.pending)
}

// What an action at the database before has come to changes nothing of the
// database that the screen shows now, and is nothing that is waited for.
func TestAnswersOfTheDatabaseBefore(t *testing.T) {
	t.Parallel()
	for _, keys := range [][]string{{"2", "r"}, {"2", "space", "r"}, {"3", "p"}, {"2", "x", "j"}} {
		b := newBench(120, 35)
		b.other()
		b.press(keys[:len(keys)-1]...)
		last := keys[len(keys)-1]
		_, acting := b.Update(tea.KeyPressMsg{Code: rune(last[0]), Text: last})
		require.Equal(t, 1, b.pending)
		b.do(b.connect("prod")) // which goTo would refuse
		require.Equal(t, "prod", b.env.name)
		b.press("2")
		before := b.plain()
		b.toast = ""
		b.do(acting)
		require.Zero(t, b.pending)
		require.Zero(t, b.lastAudit)
		if last == "j" {
			require.Contains(t, b.toast, "wrote 100 jobs")
		} else {
			require.Contains(t, b.toast, "an action ended at staging after that was left")
		}
		b.say("this is prod")
		require.Equal(t, before, b.plain())
	}
}

// When the row under the cursor has gone, the cursor is on the one that has
// taken its place, or on the last one; and what a key acts on then is that.
func TestCursorOfARowThatHasGone(t *testing.T) {
	t.Parallel()
	b := newBench(120, 35)
	names := func(ids ...string) (workers []jobq.Worker) {
		for _, id := range ids {
			workers = append(workers, jobq.Worker{ID: id})
		}
		return workers
	}
	at := func() string { return b.workers[b.workerAt()].ID }
	b.fake.workers = names("a", "b", "c", "d")
	b.press("4")
	b.tick(6 * time.Second)
	b.press("j", "j")
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

	b.press("3", "j")
	require.Equal(t, 1, b.queueAt())
	b.fake.queues = slices.DeleteFunc(b.fake.queues, func(q jobq.Queue) bool { return q.Name == b.queues[1].Name })
	next := b.queues[2].Name
	b.tick(3 * time.Second)
	require.Equal(t, next, b.queues[b.queueAt()].Name)

	b.fake.audit = []jobq.AuditEntry{{ID: 9, At: noon}, {ID: 8, At: noon}, {ID: 7, At: noon}}
	b.press("6", "j")
	b.fake.audit = []jobq.AuditEntry{{ID: 9, At: noon}, {ID: 7, At: noon}}
	b.tick(6 * time.Second)
	require.Equal(t, int64(7), b.undoID())

	b.press("2", "j", "j")
	gone, below := b.jobs.cursor, b.jobs.rows[3].ID
	b.fake.jobs = slices.DeleteFunc(b.fake.jobs, func(job *jobq.Job) bool { return job.ID == gone })
	b.tick(3 * time.Second)
	require.Equal(t, gone, b.jobs.cursor, "a job that has gone stays in sight until the cursor leaves it")
	b.press("j")
	require.Equal(t, below, b.jobs.cursor)
	require.Negative(t, b.jobs.indexOf(gone))
}

// What was counted when all jobs were selected is what the action is about,
// however much later it is confirmed; and what was selected meanwhile stays.
func TestAllMatchingIsFixedWhenSelected(t *testing.T) {
	t.Parallel()
	b := newBench(120, 35)
	selected := jobq.BulkSnapshot{At: noon, IDMax: b.fake.jobs[0].ID, Count: 250}
	b.press("2", "A")
	b.fake.jobs = append([]*jobq.Job{{ID: 48219999, State: jobq.Failed}}, b.fake.jobs...)
	b.tick(time.Minute)
	b.press("D")
	require.Contains(t, b.plain(), "counted   14:02:31Z; jobs that came later are left alone")
	require.Contains(t, b.plain(), "Type 250, the number of jobs,")
	require.Contains(t, b.plain(), "and press enter to delete them: _")
	b.tick(time.Second)
	b.press("250", "enter")
	require.Equal(t, selected, b.fake.snapshot)

	b.fake.err = jobq.ErrTimeout
	b.press("A")
	require.Equal(t, "select-all: timed out", b.toast)
	require.Nil(t, b.jobs.all)
	b.fake.err = nil
	_, answer := b.Update(tea.KeyPressMsg{Code: 'A', Text: "A"})
	written := len(b.fake.written)
	b.press("r")
	require.Contains(t, b.toast, "still being counted", "it would be about one job only")
	require.Len(t, b.fake.written, written)
	b.do(answer)
	require.NotNil(t, b.jobs.all)
	for _, meanwhile := range []string{"space", "l"} {
		_, answer := b.Update(tea.KeyPressMsg{Code: 'A', Text: "A"})
		b.press(meanwhile)
		b.do(answer)
		require.Nil(t, b.jobs.all, meanwhile)
	}
}

// An action on a few jobs opens as a list of them, whatever its row has room for.
func TestOpenAudit(t *testing.T) {
	t.Parallel()
	b := newBench(120, 35)
	b.fake.audit = []jobq.AuditEntry{
		{ID: 9, At: noon, Action: jobq.ActionDelete, JobIDs: []int64{4, 5, 6, 7}, Done: 4},
		{ID: 8, At: noon, Action: jobq.ActionDelete, JobIDs: []int64{48213904}, Done: 1},
	}
	b.press("6")
	require.Contains(t, b.plain(), "4 5 6 ...")
	b.press("enter")
	require.Equal(t, screenJobs, b.screen)
	require.Equal(t, "id:4,5,6,7", b.jobs.match)
	b.press("6", "j", "enter")
	require.Equal(t, screenJob, b.screen)
	require.Equal(t, int64(48213904), b.job.id)
}
