package tui

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/monitor"
	"github.com/jobq-dev/jobq/operator"
	"github.com/jobq-dev/jobq/tui/screen"
)

// In production, what is done at once elsewhere is asked about, and what is
// answered with y elsewhere is typed.
func TestProductionAsksToUndo(t *testing.T) {
	t.Parallel()
	b := newBench(120, 35)
	b.env.confirm = true
	b.press(Jobs, Requeue)
	b.tick(time.Second)
	b.press(Yes)
	require.Len(t, b.fake.written, 1)
	b.fake.audit = []monitor.AuditEntry{{ID: 2, Action: jobq.ActionDelete}, {ID: 1, At: noon, Actor: "ana", Action: jobq.ActionRequeue, Done: 1, JobIDs: []int64{48213911}}}
	b.press(Undo)
	require.Contains(t, b.plain(), "undo action 1, requeue, your last")
	require.Contains(t, b.plain(), "action    requeue 48213911, 1 job")
	require.Contains(t, b.plain(), "by        ana, 2026-11-21 14:02:31Z")
	b.tick(time.Second)
	b.press(No)
	require.Len(t, b.fake.written, 1)

	b.fake.audit = []monitor.AuditEntry{stoppedBulk}
	b.press(Audit, Resume)
	b.tick(time.Second)
	b.press(Yes, Leave, Undo)
	b.tick(time.Second)
	b.press(Yes)
	require.Len(t, b.fake.written, 1)
	b.press("backspace", "1", "7", Accept)
	require.Len(t, b.fake.written, 2)

	b.press(Workers, Down, Drain)
	b.tick(time.Second)
	b.press(Yes, Leave, Drain)
	b.tick(time.Second)
	b.press("drain", Accept)
	require.Equal(t, "drain web-7-991-k2", b.fake.written[2])
}

// In production an edit is typed as other actions are, and so is a clone.
func TestProductionAsksToEdit(t *testing.T) {
	t.Parallel()
	for key, verb := range map[string]string{Edit: "edit", Clone: "clone"} {
		b := newEditBench(`"priority": 0`, `"priority": -5`)
		b.env.confirm = true
		b.press(key)
		require.Contains(t, b.plain(), "Type 1, the number of jobs,")
		require.Contains(t, b.plain(), "and press enter to "+verb+" it: ")
		b.tick(time.Second)
		b.press(Yes, Accept)
		require.Empty(t, b.fake.written, key)
		b.press("backspace", "1", Accept)
		require.Len(t, b.fake.written, 1, key)
		require.Zero(t, b.pending)
	}
}

// What was counted when all jobs were selected is what the action is about,
// however much later it is confirmed; and what was selected meanwhile stays.
func TestAllMatchingIsFixedWhenSelected(t *testing.T) {
	t.Parallel()
	b := newBench(120, 35)
	selected := operator.BulkSnapshot{At: noon, IDMax: b.fake.jobs[0].ID, Count: 250}
	b.press(Jobs, SelectAll)
	b.fake.jobs = append([]*jobq.Job{{ID: 48219999, State: jobq.StateFailed}}, b.fake.jobs...)
	b.tick(time.Minute)
	b.press(Delete)
	require.Contains(t, b.plain(), "counted   14:02:31Z; jobs that came later are left alone")
	require.Contains(t, b.plain(), "Type 250, the number of jobs,")
	require.Contains(t, b.plain(), "and press enter to delete them: ")
	b.tick(time.Second)
	b.press("250", Accept)
	require.Equal(t, selected, b.fake.snapshot)

	b.fake.err = jobq.ErrTimeout
	b.press(SelectAll)
	require.Equal(t, "select-all: timed out", b.toast)
	require.Nil(t, b.jobs().All)
	b.fake.err = nil
	answer := b.hold(SelectAll)
	require.Contains(t, b.plain(), "counting all that match")
	written := len(b.fake.written)
	b.press(Requeue)
	require.Contains(t, b.toast, "still being counted", "it would be about one job only")
	require.Len(t, b.fake.written, written)
	b.do(answer)
	require.NotNil(t, b.jobs().All)
	for _, meanwhile := range []string{Mark, NextTab} {
		answer := b.hold(SelectAll)
		b.press(meanwhile)
		b.do(answer)
		require.Nil(t, b.jobs().All, meanwhile)
	}
}

// An action on a few jobs opens as a list of them, whatever its row has room for.
func TestOpenAudit(t *testing.T) {
	t.Parallel()
	b := newBench(120, 35)
	b.fake.audit = []monitor.AuditEntry{
		{ID: 9, At: noon, Action: jobq.ActionDelete, JobIDs: []int64{4, 5, 6, 7}, Done: 4},
		{ID: 8, At: noon, Action: jobq.ActionDelete, JobIDs: []int64{48213904}, Done: 1},
	}
	b.press(Audit)
	require.Contains(t, b.plain(), "4 5 6 ...")
	b.press(Open)
	require.Equal(t, screen.Jobs, b.at)
	require.Equal(t, "id:4,5,6,7", b.match())
	b.press(Audit, Down, Open)
	require.Equal(t, screen.Job, b.at)
	require.Equal(t, int64(48213904), b.selected().Cursor)
}

// What the database would refuse to undo is refused before it is asked about.
func TestUndoRefusedBeforeTheQuestion(t *testing.T) {
	t.Parallel()
	for action, want := range map[jobq.Action]string{jobq.ActionUndo: "act again instead", jobq.ActionDrain: "start another"} {
		b := newBench(120, 35)
		b.fake.audit = []monitor.AuditEntry{{ID: 7, At: noon, Action: action}}
		b.press(Audit, Undo)
		require.Contains(t, b.toast, want)
		require.Nil(t, b.overlay)
	}
}

// A question says which database it is about, also where that has no name.
func TestQuestionNamesTheDatabase(t *testing.T) {
	t.Parallel()
	b := newBench(120, 35)
	b.press(Jobs, Delete)
	require.Contains(t, b.plain(), "│ database  staging  db-1/app")
	b.press(Leave)
	b.env.name = ""
	b.press(Delete)
	require.Contains(t, b.plain(), "│ database  db-1/app")
}

// A filter that matches nothing in one state says that there are others.
func TestNothingMatchesInThisState(t *testing.T) {
	t.Parallel()
	b := newBench(120, 35)
	b.fake.jobs = nil
	b.press(Jobs, NextTab, NextTab, NextTab, Filter, "tag:eu", Accept)
	b.tick(time.Second)
	require.Contains(t, b.plain(), "no running job matches; "+PreviousTab+" and "+NextTab+" show other states, "+Back+" clears the filter")
}

// Where the audit has no entry yet, undo takes back the last action.
func TestUndoOnAnEmptyAudit(t *testing.T) {
	t.Parallel()
	b := newBench(120, 35)
	b.press(Jobs, Requeue, Audit, Undo)
	require.Equal(t, []string{"requeue 48213911:failed/5", "undo 1"}, b.fake.written)
}
