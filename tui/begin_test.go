package tui

import (
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/jobedit"
	"github.com/jobq-dev/jobq/tui/request"
)

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

// A question to which an answer of the database has led waits until what is open
// has been closed: what is typed there is neither lost nor an answer to it.
func TestLateQuestionsWait(t *testing.T) {
	t.Parallel()
	b := newBench(120, 35)
	b.env.confirm = true
	b.fake.audit = []jobq.AuditEntry{{ID: 1, At: noon, Actor: "ana", Action: jobq.ActionRequeue, Done: 1, JobIDs: []int64{48213911}}}
	b.acted(1)
	b.press("2")
	_, answer := b.Update(tea.KeyPressMsg{Code: 'u', Text: "u"})
	b.press("/", "kind:Send")
	b.do(answer)
	b.tick(time.Second)
	b.press("y", "enter")
	require.Empty(t, b.fake.written)
	require.Equal(t, "kind:Sendy", b.match())
	require.Contains(t, b.plain(), "undo action 1", "now it is asked")
	b.press("y")
	require.Empty(t, b.fake.written, "typed before it could be read")
	b.tick(time.Second)
	b.press("y")
	require.Equal(t, []string{"undo 1"}, b.fake.written)

	b = newEditBench(`"priority": 0`, `"priority": -5`)
	b.press("e")
	first := b.overlay
	b.request(request.Later{Overlay: request.Ask{Title: "another one"}})
	require.Same(t, first, b.overlay)
	b.press("esc")
	require.NotNil(t, b.overlay)
	require.NotSame(t, first, b.overlay)
	b.press("esc")
	require.Nil(t, b.overlay)
	require.Zero(t, b.pending)
}

// An undo that ends with an error may have undone a part, which is shown, and u
// goes on with the rest; it has minutes, as other actions on many jobs.
func TestUndoStopsOnTheWay(t *testing.T) {
	t.Parallel()
	b := newBench(120, 35)
	b.press("2", "r", "j", "space")
	require.Equal(t, 1, b.marked())
	b.fake.err = jobq.ErrTimeout
	b.press("u")
	require.Equal(t, "undo: timed out; some jobs may be undone already, u undoes the rest", b.toast)
	require.Zero(t, b.marked())
	require.Greater(t, b.fake.undoLimit, time.Minute)
	b.fake.err = nil
	b.press("u")
	require.Equal(t, []string{"requeue 48213911:failed/5", "undo 1", "undo 1"}, b.fake.written)
	b.press("r")
	b.fake.err = jobq.ErrConflict
	b.press("u")
	require.NotContains(t, b.toast, "the rest")
}

// What an action at the database before has come to changes nothing of the
// database that the screen shows now, and is nothing that is waited for.
func TestAnswersOfTheDatabaseBefore(t *testing.T) {
	t.Parallel()
	for _, keys := range [][]string{{"2", "r"}, {"2", "space", "r"}, {"3", "j", "p"}, {"2", "x", "j"}} {
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
		if last == "j" {
			require.Contains(t, b.toast, "wrote 100 jobs")
		} else {
			require.Contains(t, b.toast, "an action ended at staging after you had left it")
		}
		toast := b.toast
		b.press("u")
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
