package jobq_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
)

// newOperator is a client that acts as somebody, on the worker's database.
func newOperator(w *worker) *jobq.Client {
	w.Helper()
	operator, err := jobq.NewClient(w.client.Pool(), &jobq.Config{Actor: "ana@laptop via jobq"})
	require.NoError(w, err)
	return operator
}

// story is all that is stored about a job, as text.
func (w *worker) story(id int64) string {
	w.Helper()
	var story string
	require.NoError(w, w.client.Pool().QueryRow(context.Background(), `
		select (to_jsonb(j) - array['run_at_fraction'])::text || coalesce((select jsonb_agg(to_jsonb(a))::text from jobq.attempt a where a.job_id = j.id), '')
			|| exists (select from jobq.unique_key u where u.job_id = j.id)
		from jobq.job j where j.id = $1`, id).Scan(&story))
	return story
}

// Whatever an action does to a job in any state, an undo takes it back to the
// last detail, if nothing has happened to the job meanwhile. Method: compare
// all that is stored before the action and after the undo.
func TestUndo(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	w := newWorker(t)
	operator := newOperator(w)
	for _, action := range []jobq.Action{jobq.ActionRequeue, jobq.ActionCancel, jobq.ActionDelete} {
		for _, state := range jobq.States() {
			if state == jobq.Running {
				continue
			}
			name := fmt.Sprint(action, " ", state)
			id := w.inState(state, jobq.EnqueueOptions{
				Queue: name, Tags: []string{"a"}, Metadata: json.RawMessage(`{"m": "1"}`), UniqueKey: name, Priority: 3,
			})
			before := w.story(id)
			acted, err := operator.Act(ctx, action, jobq.Target{ID: id})
			require.NoError(t, err, name)
			require.Empty(t, acted.Problems(), name)
			if acted.Changed() == 0 {
				require.Equal(t, before, w.story(id), name)
				continue
			}
			undone, err := operator.Undo(ctx, acted.AuditID)
			require.NoError(t, err, name)
			require.Empty(t, undone.Problems(), name)
			require.Equal(t, before, w.story(id), name)
			_, err = operator.Undo(ctx, acted.AuditID)
			require.ErrorIs(t, err, jobq.ErrConflict, "an action is undone once")
			_, err = operator.Undo(ctx, undone.AuditID)
			require.ErrorIs(t, err, jobq.ErrConflict, "an undo is not undone")
		}
	}
	_, err := operator.Undo(ctx, 1<<40)
	require.ErrorIs(t, err, jobq.ErrNotFound)
}

// A job with large args comes back from a delete with them.
func TestUndoDeleteWithPayload(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	w := newWorker(t)
	operator := newOperator(w)
	args := toJSON(t, make([]int, 3000))
	job, err := w.client.Enqueue(ctx, jobq.RawArgs{Name: "k", JSON: args}, nil)
	require.NoError(t, err)
	acted, err := operator.Act(ctx, jobq.ActionDelete, jobq.Target{ID: job.ID})
	require.NoError(t, err)
	require.EqualValues(t, jobq.Deleted, acted.Jobs[0].After)
	_, err = w.client.Get(ctx, job.ID)
	require.ErrorIs(t, err, jobq.ErrNotFound)
	_, err = operator.Undo(ctx, acted.AuditID)
	require.NoError(t, err)
	restored, err := w.client.Get(ctx, job.ID)
	require.NoError(t, err)
	require.JSONEq(t, string(args), string(restored.Args))
}

// Args of null are args, and come back as such.
func TestUndoDeleteWithNullArgs(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	w := newWorker(t)
	operator := newOperator(w)
	job, err := w.client.Enqueue(ctx, jobq.RawArgs{Name: "k", JSON: json.RawMessage("null")}, nil)
	require.NoError(t, err)
	acted, err := operator.Act(ctx, jobq.ActionDelete, jobq.Target{ID: job.ID})
	require.NoError(t, err)
	undone, err := operator.Undo(ctx, acted.AuditID)
	require.NoError(t, err)
	require.Empty(t, undone.Jobs[0].Problem)
	restored, err := w.client.Get(ctx, job.ID)
	require.NoError(t, err)
	require.JSONEq(t, "null", string(restored.Args))
}

// An edit that came after a requeue keeps that from being undone, although the
// edit is of an action on many jobs that began before.
func TestUndoSeesTheOrderOfEvents(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	w := newWorker(t)
	operator := newOperator(w)
	id := w.inState(jobq.Failed, jobq.EnqueueOptions{})
	var many int64
	require.NoError(t, w.client.Pool().QueryRow(ctx, `select jobq.audit_begin_many('me', 'edit', '', '{"tags": ["late"]}')`).Scan(&many))
	requeued, err := operator.Act(ctx, jobq.ActionRequeue, jobq.Target{ID: id})
	require.NoError(t, err)
	_, err = w.client.Pool().Exec(ctx, "select * from jobq.act('me', 'edit', array[$1::bigint], array[null::text], null, null, $2, null)", id, many)
	require.NoError(t, err)

	undone, err := operator.Undo(ctx, requeued.AuditID)
	require.NoError(t, err)
	require.Contains(t, undone.Jobs[0].Problem, "edited meanwhile")
	job, err := w.client.Get(ctx, id)
	require.NoError(t, err)
	require.Equal(t, jobq.Available, job.State)
	require.Equal(t, []string{"late"}, job.Tags)
	undone, err = operator.Undo(ctx, many)
	require.NoError(t, err)
	require.Empty(t, undone.Problems())
}

// What has happened to a job since is never undone with the action, nor acted
// on when the operator saw something else; and the answer says so.
func TestActAndUndoAreGuarded(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	w := newWorker(t)
	operator := newOperator(w)
	failed := w.inState(jobq.Failed, jobq.EnqueueOptions{Queue: "q"})
	other := w.inState(jobq.Failed, jobq.EnqueueOptions{Queue: "other"})
	acted, err := operator.Act(ctx, jobq.ActionRequeue, jobq.Target{ID: other}, jobq.Target{ID: failed}, jobq.Target{ID: 1 << 40})
	require.NoError(t, err)
	require.Equal(t, 2, acted.Changed())
	require.Equal(t, "no such job", acted.Problems()[0].Problem)
	require.ErrorIs(t, acted.Problems()[0].Err(), jobq.ErrNotFound)
	job := w.claim("q", 1)[0]
	undone, err := operator.Undo(ctx, acted.AuditID)
	require.NoError(t, err)
	require.Equal(t, 1, undone.Changed())
	require.Equal(t, []jobq.ActedJob{{ID: failed, Before: jobq.Available, After: jobq.Failed, Problem: "it has changed meanwhile, and is running now", Code: jobq.CodeConflict}}, undone.Problems())
	require.Equal(t, jobq.Failed, state(t, w.client, other))
	w.complete(job)

	acted, err = operator.Act(ctx, jobq.ActionDelete, jobq.Target{ID: failed, State: jobq.Failed, LeaseToken: 1})
	require.NoError(t, err)
	require.Equal(t, "it has changed meanwhile, and is completed now", acted.Problems()[0].Problem)

	running := w.inState(jobq.Running, jobq.EnqueueOptions{Queue: "r"})
	acted, err = operator.Act(ctx, jobq.ActionRequeue, jobq.Target{ID: running})
	require.NoError(t, err)
	require.Contains(t, acted.Problems()[0].Problem, "is running")
	acted, err = operator.Act(ctx, jobq.ActionCancel, jobq.Target{ID: running})
	require.NoError(t, err)
	require.Equal(t, 1, acted.Changed())
	undone, err = operator.Undo(ctx, acted.AuditID)
	require.NoError(t, err)
	require.Equal(t, "its worker has been told to stop it", undone.Problems()[0].Problem)
	w.complete(w.claimed(running))

	_, err = operator.Act(ctx, jobq.ActionPause, jobq.Target{ID: 1})
	require.ErrorIs(t, err, jobq.ErrInvalid)
	_, err = operator.Act(ctx, jobq.ActionRequeue)
	require.ErrorIs(t, err, jobq.ErrInvalid)
}

// A pause is taken back, but never the pause that somebody else has made since:
// that one is about something else.
func TestUndoPause(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	w := newWorker(t)
	operator := newOperator(w)
	latest := func() int64 {
		entries, err := operator.Audit(ctx, 0, 1)
		require.NoError(t, err)
		return entries[0].ID
	}
	pause := func(by string) int64 {
		_, err := operator.PauseQueue(ctx, "email", by, "")
		require.NoError(t, err)
		return latest()
	}
	pausedBy := func(who string) int {
		return w.count("select count(*) from jobq.queue where paused_by = '" + who + "'")
	}
	undone, err := operator.Undo(ctx, pause("ann"))
	require.NoError(t, err)
	require.Equal(t, &jobq.Acted{AuditID: latest()}, undone)
	require.Zero(t, pausedBy("ann"))

	first := pause("ann")
	_, err = operator.ResumeQueue(ctx, "email")
	require.NoError(t, err)
	resume := latest()
	incident := pause("cid")
	for _, id := range []int64{first, resume} {
		_, err = operator.Undo(ctx, id)
		require.ErrorIs(t, err, jobq.ErrConflict)
		require.ErrorContains(t, err, "queue email has had a ")
	}
	require.Equal(t, 1, pausedBy("cid"))
	_, err = operator.Undo(ctx, incident)
	require.NoError(t, err)
	require.Zero(t, pausedBy("cid"))
}

// The audit tells every action with who took it, and what was undone by what.
func TestAudit(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	w := newWorker(t)
	operator := newOperator(w)
	id := w.inState(jobq.Failed, jobq.EnqueueOptions{})
	acted, err := operator.Act(ctx, jobq.ActionRequeue, jobq.Target{ID: id})
	require.NoError(t, err)
	undone, err := operator.Undo(ctx, acted.AuditID)
	require.NoError(t, err)
	for _, change := range []bool{true, false} { // the second time is no news
		paused, err := operator.PauseQueue(ctx, "email", "", "smtp down")
		require.NoError(t, err)
		require.Equal(t, change, paused.Changed)
	}
	entries, err := operator.Audit(ctx, 0, 10)
	require.NoError(t, err)
	require.Len(t, entries, 3)
	pause, undo, requeue := entries[0], entries[1], entries[2]
	require.Equal(t, []any{jobq.ActionPause, "email", "smtp down", "ana@laptop via jobq"}, []any{pause.Action, pause.Target, pause.Note, pause.Actor})
	require.Equal(t, []any{jobq.ActionUndo, acted.AuditID, []int64{id}, 1}, []any{undo.Action, undo.Undoes, undo.JobIDs, undo.Done})
	require.Equal(t, []any{jobq.ActionRequeue, undone.AuditID, []int64{id}, 1}, []any{requeue.Action, requeue.UndoneBy, requeue.JobIDs, requeue.Done})
	older, err := operator.Audit(ctx, undo.ID, 10)
	require.NoError(t, err)
	require.Equal(t, entries[2:], older)
	_, err = operator.Undo(ctx, pause.ID)
	require.NoError(t, err)
	require.Zero(t, w.count("select count(*) from jobq.queue where paused_at is not null"))
	actions, err := operator.JobActions(ctx, id)
	require.NoError(t, err)
	require.Equal(t, jobq.ActionRequeue, actions[0].Action)
	require.Equal(t, jobq.ActionUndo, actions[1].Action)
	require.Equal(t, jobq.Failed, actions[1].After)
}
