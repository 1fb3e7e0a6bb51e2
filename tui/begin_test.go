package tui

import (
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/jobedit"
	"github.com/jobq-dev/jobq/monitor"
	"github.com/jobq-dev/jobq/tui/overlay"
	"github.com/jobq-dev/jobq/tui/request"
)

// What is under way is counted once, whatever is asked and answered meanwhile:
// else another database is refused for ever, or entered too early.
func TestPendingThroughQuestions(t *testing.T) {
	t.Parallel()
	b := newBench(120, 35)
	b.press(Jobs)
	answer := b.hold(Requeue) // under way, and not answered yet
	require.Equal(t, 1, b.pending)
	b.hold(Delete)
	require.Equal(t, 1, b.pending, "a question is nothing under way")
	b.do(answer)
	require.Zero(t, b.pending)
	b.press(Leave)
	require.Zero(t, b.pending)
	b.press(Delete)
	b.tick(time.Second)
	b.press(Yes)
	require.Zero(t, b.pending)
	require.Len(t, b.fake.written, 2)
}

// The key of an action pressed again before its answer begins nothing twice,
// and leaves nothing pending: there is one editor at a time, and what is the
// last action, which u takes back, is known before u does.
func TestKeysPressedTwice(t *testing.T) {
	t.Parallel()
	for _, name := range []string{Edit, Clone} {
		b := newEditBench(`"priority": 0`, `"priority": -5`)
		editors := 0
		edit := b.env.edit
		b.env.edit = func(file *jobedit.File, done func(error) tea.Msg) tea.Cmd {
			editors++
			return edit(file, done)
		}
		first, second := b.hold(name), b.hold(name)
		require.Contains(t, b.toast, underWay)
		b.do(first)
		b.do(second)
		require.Equal(t, 1, editors)
		require.Zero(t, b.pending, "the question is nothing under way")
		b.tick(time.Second)
		b.press(Yes)
		require.Len(t, b.fake.written, 1)
		require.Zero(t, b.pending)
	}
	for _, production := range []bool{false, true} {
		b := newBench(120, 35)
		b.fake.audit = []monitor.AuditEntry{{ID: 1, Action: jobq.ActionRequeue}}
		b.press(Jobs, Requeue)
		b.env.confirm = production
		first, second := b.hold(Undo), b.hold(Undo)
		require.Contains(t, b.toast, underWay)
		b.do(first)
		b.do(second)
		b.tick(time.Second)
		b.press(Yes)
		require.Equal(t, []string{"requeue 48213911:failed/5", "undo 1"}, b.fake.written)
		require.Zero(t, b.pending)
	}
	// Whatever is begun twice at once, all of it is counted off again.
	for _, name := range []string{Requeue, Cancel, Delete, Pause, Export} {
		b := newBench(120, 35)
		b.press(Jobs)
		first, second := b.hold(name), b.hold(name)
		b.do(second)
		b.do(first)
		b.press(Back, Back)
		require.Zero(t, b.pending, name)
	}
}

// A question to which an answer of the database has led waits until what is open
// has been closed: what is typed there is neither lost nor an answer to it.
func TestLateQuestionsWait(t *testing.T) {
	t.Parallel()
	b := newBench(120, 35)
	b.env.confirm = true
	b.fake.audit = []monitor.AuditEntry{{ID: 1, At: noon, Actor: "ana", Action: jobq.ActionRequeue, Done: 1, JobIDs: []int64{48213911}}}
	b.acted(1)
	b.press(Jobs)
	answer := b.hold(Undo)
	b.press(Filter, "kind:Send")
	b.do(answer)
	b.tick(time.Second)
	b.press("y", Accept)
	require.Empty(t, b.fake.written)
	require.Equal(t, "kind:Sendy", b.match())
	require.Contains(t, b.plain(), "undo action 1", "now it is asked")
	b.press(Copy)
	require.Empty(t, b.fake.written, "typed before it could be read")
	b.tick(time.Second)
	b.press(Yes)
	require.Equal(t, []string{"undo 1"}, b.fake.written)

	b = newEditBench(`"priority": 0`, `"priority": -5`)
	b.press(Edit)
	first := b.overlay
	b.request(request.Later{Overlay: request.Ask{Title: "another one"}})
	require.Same(t, first, b.overlay)
	b.press(Leave)
	require.NotNil(t, b.overlay)
	require.NotSame(t, first, b.overlay)
	b.press(Leave)
	require.Nil(t, b.overlay)
	require.Zero(t, b.pending)
}

// Why a job is not running is told once: the next key closes it for good.
func TestWhyIsToldOnce(t *testing.T) {
	t.Parallel()
	b := newEditBench()
	for _, keys := range [][]string{{Why}, {Open, Why}} {
		b.press(keys...)
		require.IsType(t, &overlay.Note{}, b.overlay)
		b.tick(time.Second) // not typed ahead
		b.press(Leave)
		require.Nil(t, b.overlay)
	}
}

// An undo that ends with an error may have undone a part, which is shown, and u
// goes on with the rest; it has minutes, as other actions on many jobs.
func TestUndoStopsOnTheWay(t *testing.T) {
	t.Parallel()
	b := newBench(120, 35)
	b.press(Jobs, Requeue, Down, Mark)
	require.Equal(t, 1, b.marked())
	b.fake.err = jobq.ErrTimeout
	b.press(Undo)
	require.Equal(t, "undo: timed out; some jobs may be undone already, "+Undo+" undoes the rest", b.toast)
	require.Zero(t, b.marked())
	require.Greater(t, b.fake.undoLimit, time.Minute)
	b.fake.err = nil
	b.press(Undo)
	require.Equal(t, []string{"requeue 48213911:failed/5", "undo 1", "undo 1"}, b.fake.written)
	b.press(Requeue)
	b.fake.err = jobq.ErrConflict
	b.press(Undo)
	require.NotContains(t, b.toast, "the rest")
}

// What an action at the database before has come to changes nothing of the
// database that the screen shows now, and is nothing that is waited for.
func TestAnswersOfTheDatabaseBefore(t *testing.T) {
	t.Parallel()
	for _, keys := range [][]string{{Jobs, Requeue}, {Jobs, Mark, Requeue}, {Queues, Down, Pause}, {Jobs, Export, "j"}} {
		b := newBench(120, 35)
		b.other()
		b.press(keys[:len(keys)-1]...)
		last := keys[len(keys)-1]
		acting := b.hold(last)
		require.Equal(t, 1, b.pending)
		b.do(b.connect("prod")) // which goTo would refuse
		require.Equal(t, "prod", b.env.name)
		b.press(Jobs)
		before := b.plain()
		b.toast = ""
		b.do(acting)
		require.Zero(t, b.pending)
		if last == "j" {
			require.Contains(t, b.toast, "wrote 100 jobs")
		} else {
			require.Contains(t, b.toast, "an action ended at staging after you had left it")
		}
		toast := b.toast
		b.press(Undo)
		require.Contains(t, b.toast, "there is nothing to undo")
		b.toast = toast
		b.say("this is prod")
		require.Equal(t, before, b.plain())
	}
}

// What the role may do is not said before the database has said it.
func TestAccessIsUnknownAtFirst(t *testing.T) {
	t.Parallel()
	f := newFake()
	e := &env{now: func() time.Time { return f.now }, send: &sender{}}
	e.use(&link{Context: Context{Name: "staging"}, reader: f, writer: f, host: "db-1", schema: "jobq"})
	b := &bench{fake: f, Model: newModel(e)}
	b.resize(120, 35)
	require.Contains(t, b.headLine(), "--  ")
	b.do(b.poll())
	require.Contains(t, b.headLine(), "RW  ")
	f.session.MayAct = false
	b.facts.Session = &f.session
	require.Contains(t, b.headLine(), "RO")
}
