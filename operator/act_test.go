package operator_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/jobtest"
	"github.com/jobq-dev/jobq/internal/pgtest"
	"github.com/jobq-dev/jobq/operator"
)

// Whatever an action does to a job in any state, an undo takes it back to the
// last detail, if nothing has happened to the job meanwhile. Method: compare
// all that is stored before the action and after the undo.
func TestUndo(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	w := jobtest.NewWorker(t)
	ana := operator.New(w.Client, "ana@laptop via jobq")
	for _, action := range []jobq.Action{jobq.ActionRequeue, jobq.ActionCancel, jobq.ActionDelete} {
		for _, state := range jobq.States() {
			if state == jobq.StateRunning {
				continue
			}
			name := fmt.Sprint(action, " ", state)
			id := w.InState(state, jobq.EnqueueOptions{
				Queue: name, Tags: []string{"a"}, Metadata: json.RawMessage(`{"m": "1"}`), UniqueKey: name, Priority: 3,
			})
			before := w.Story(id)
			acted, err := ana.Act(ctx, action, operator.Target{ID: id})
			require.NoError(t, err, name)
			require.Empty(t, acted.Problems(), name)
			if acted.Changed() == 0 {
				require.Equal(t, before, w.Story(id), name)
				continue
			}
			undone, err := ana.Undo(ctx, acted.AuditID)
			require.NoError(t, err, name)
			require.Empty(t, undone.Problems(), name)
			require.Equal(t, before, w.Story(id), name)
			_, err = ana.Undo(ctx, acted.AuditID)
			require.ErrorIs(t, err, jobq.ErrConflict, "an action is undone once")
			_, err = ana.Undo(ctx, undone.AuditID)
			require.ErrorIs(t, err, jobq.ErrConflict, "an undo is not undone")
		}
	}
	_, err := ana.Undo(ctx, 1<<40)
	require.ErrorIs(t, err, jobq.ErrNotFound)
}

// A job with large args comes back from a delete with them.
func TestUndoDeleteWithPayload(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	w := jobtest.NewWorker(t)
	ana := operator.New(w.Client, "ana@laptop via jobq")
	args := jobtest.JSON(t, make([]int, 3000))
	job, err := w.Client.Enqueue(ctx, jobq.RawArgs{Name: "k", JSON: args}, nil)
	require.NoError(t, err)
	acted, err := ana.Act(ctx, jobq.ActionDelete, operator.Target{ID: job.ID})
	require.NoError(t, err)
	require.EqualValues(t, jobq.StateDeleted, acted.Jobs[0].After)
	_, err = w.Client.Get(ctx, job.ID)
	require.ErrorIs(t, err, jobq.ErrNotFound)
	_, err = ana.Undo(ctx, acted.AuditID)
	require.NoError(t, err)
	restored, err := w.Client.Get(ctx, job.ID)
	require.NoError(t, err)
	require.JSONEq(t, string(args), string(restored.Args))
}

// Args of null are args, and come back as such.
func TestUndoDeleteWithNullArgs(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	w := jobtest.NewWorker(t)
	ana := operator.New(w.Client, "ana@laptop via jobq")
	job, err := w.Client.Enqueue(ctx, jobq.RawArgs{Name: "k", JSON: json.RawMessage("null")}, nil)
	require.NoError(t, err)
	acted, err := ana.Act(ctx, jobq.ActionDelete, operator.Target{ID: job.ID})
	require.NoError(t, err)
	undone, err := ana.Undo(ctx, acted.AuditID)
	require.NoError(t, err)
	require.Empty(t, undone.Jobs[0].Problem)
	restored, err := w.Client.Get(ctx, job.ID)
	require.NoError(t, err)
	require.JSONEq(t, "null", string(restored.Args))
}

// An edit that came after a requeue keeps that from being undone, although the
// edit is of an action on many jobs that began before.
func TestUndoSeesTheOrderOfEvents(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	w := jobtest.NewWorker(t)
	ana := operator.New(w.Client, "ana@laptop via jobq")
	id := w.InState(jobq.StateFailed, jobq.EnqueueOptions{})
	var many int64
	require.NoError(t, w.Client.Pool().QueryRow(ctx, `select jobq.audit_begin_many('me', 'edit', '', '{"tags": ["late"]}')`).Scan(&many))
	requeued, err := ana.Act(ctx, jobq.ActionRequeue, operator.Target{ID: id})
	require.NoError(t, err)
	_, err = w.Client.Pool().Exec(ctx, "select * from jobq.act('me', 'edit', array[$1::bigint], array[null::text], null, null, $2, null)", id, many)
	require.NoError(t, err)

	undone, err := ana.Undo(ctx, requeued.AuditID)
	require.NoError(t, err)
	require.Contains(t, undone.Jobs[0].Problem, "edited meanwhile")
	job, err := w.Client.Get(ctx, id)
	require.NoError(t, err)
	require.Equal(t, jobq.StateAvailable, job.State)
	require.Equal(t, []string{"late"}, job.Tags)
	undone, err = ana.Undo(ctx, many)
	require.NoError(t, err)
	require.Empty(t, undone.Problems())
}

// What has happened to a job since is never undone with the action, nor acted
// on when the operator saw something else; and the answer says so.
func TestActAndUndoAreGuarded(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	w := jobtest.NewWorker(t)
	ana := operator.New(w.Client, "ana@laptop via jobq")
	failed := w.InState(jobq.StateFailed, jobq.EnqueueOptions{Queue: "q"})
	other := w.InState(jobq.StateFailed, jobq.EnqueueOptions{Queue: "other"})
	acted, err := ana.Act(ctx, jobq.ActionRequeue, operator.Target{ID: other}, operator.Target{ID: failed}, operator.Target{ID: 1 << 40})
	require.NoError(t, err)
	require.Equal(t, 2, acted.Changed())
	require.Equal(t, "no such job", acted.Problems()[0].Problem)
	require.ErrorIs(t, acted.Problems()[0].Err(), jobq.ErrNotFound)
	job := w.Claim("q", 1)[0]
	undone, err := ana.Undo(ctx, acted.AuditID)
	require.NoError(t, err)
	require.Equal(t, 1, undone.Changed())
	require.Equal(t, []operator.ActedJob{{ID: failed, Before: jobq.StateAvailable, After: jobq.StateFailed, Problem: "it has changed meanwhile, and is running now", Code: operator.CodeConflict}}, undone.Problems())
	require.Equal(t, jobq.StateFailed, jobtest.State(t, w.Client, other))
	w.Complete(job)

	acted, err = ana.Act(ctx, jobq.ActionDelete, operator.Target{ID: failed, State: jobq.StateFailed, LeaseToken: 1})
	require.NoError(t, err)
	require.Equal(t, "it has changed meanwhile, and is completed now", acted.Problems()[0].Problem)

	running := w.InState(jobq.StateRunning, jobq.EnqueueOptions{Queue: "r"})
	acted, err = ana.Act(ctx, jobq.ActionRequeue, operator.Target{ID: running})
	require.NoError(t, err)
	require.Contains(t, acted.Problems()[0].Problem, "is running")
	acted, err = ana.Act(ctx, jobq.ActionCancel, operator.Target{ID: running})
	require.NoError(t, err)
	require.Equal(t, 1, acted.Changed())
	undone, err = ana.Undo(ctx, acted.AuditID)
	require.NoError(t, err)
	require.Equal(t, "its worker has been told to stop it", undone.Problems()[0].Problem)
	w.Complete(w.Claimed(running))

	_, err = ana.Act(ctx, jobq.ActionPause, operator.Target{ID: 1})
	require.ErrorIs(t, err, jobq.ErrInvalid)
	_, err = ana.Act(ctx, jobq.ActionRequeue)
	require.ErrorIs(t, err, jobq.ErrInvalid)
}

// A pause is taken back, but never the pause that somebody else has made since:
// that one is about something else.
func TestUndoPause(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	w := jobtest.NewWorker(t)
	ana := operator.New(w.Client, "ana@laptop via jobq")
	latest := func() int64 {
		entries, err := w.Monitor.Audit(ctx, 0, 1)
		require.NoError(t, err)
		return entries[0].ID
	}
	pause := func(by string) int64 {
		_, err := operator.New(w.Client, by).PauseQueue(ctx, "email", "")
		require.NoError(t, err)
		return latest()
	}
	pausedBy := func(who string) int {
		return w.Count("select count(*) from jobq.queue where paused_by = '" + who + "'")
	}
	undone, err := ana.Undo(ctx, pause("ann"))
	require.NoError(t, err)
	require.Equal(t, &operator.Acted{AuditID: latest()}, undone)
	require.Zero(t, pausedBy("ann"))

	first := pause("ann")
	_, err = ana.ResumeQueue(ctx, "email")
	require.NoError(t, err)
	resume := latest()
	incident := pause("cid")
	for _, id := range []int64{first, resume} {
		_, err = ana.Undo(ctx, id)
		require.ErrorIs(t, err, jobq.ErrConflict)
		require.ErrorContains(t, err, "queue email has had a ")
	}
	require.Equal(t, 1, pausedBy("cid"))
	_, err = ana.Undo(ctx, incident)
	require.NoError(t, err)
	require.Zero(t, pausedBy("cid"))

	_, err = ana.PauseQueue(ctx, "email", "smtp down")
	require.NoError(t, err)
	_, err = ana.ResumeQueue(ctx, "email")
	require.NoError(t, err)
	_, err = ana.Undo(ctx, latest())
	require.NoError(t, err)
	require.Equal(t, 1, w.Count("select count(*) from jobq.queue where name = 'email' and pause_reason = 'smtp down'"), "paused again, for the same reason")
}

// The audit tells every action with who took it, and what was undone by what.
func TestAudit(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	w := jobtest.NewWorker(t)
	ana := operator.New(w.Client, "ana@laptop via jobq")
	id := w.InState(jobq.StateFailed, jobq.EnqueueOptions{})
	acted, err := ana.Act(ctx, jobq.ActionRequeue, operator.Target{ID: id})
	require.NoError(t, err)
	undone, err := ana.Undo(ctx, acted.AuditID)
	require.NoError(t, err)
	for _, change := range []bool{true, false} { // the second time is no news
		paused, err := ana.PauseQueue(ctx, "email", "smtp down")
		require.NoError(t, err)
		require.Equal(t, change, paused.Changed)
	}
	entries, err := w.Monitor.Audit(ctx, 0, 10)
	require.NoError(t, err)
	require.Len(t, entries, 3)
	pause, undo, requeue := entries[0], entries[1], entries[2]
	require.Equal(t, []any{jobq.ActionPause, "email", "smtp down", "ana@laptop via jobq"}, []any{pause.Action, pause.Target, pause.Note, pause.Actor})
	require.Equal(t, []any{jobq.ActionUndo, acted.AuditID, []int64{id}, 1}, []any{undo.Action, undo.Undoes, undo.JobIDs, undo.Done})
	require.Equal(t, []any{jobq.ActionRequeue, undone.AuditID, []int64{id}, 1}, []any{requeue.Action, requeue.UndoneBy, requeue.JobIDs, requeue.Done})
	older, err := w.Monitor.Audit(ctx, undo.ID, 10)
	require.NoError(t, err)
	require.Equal(t, entries[2:], older)
	_, err = ana.Undo(ctx, pause.ID)
	require.NoError(t, err)
	require.Zero(t, w.Count("select count(*) from jobq.queue where paused_at is not null"))
	actions, err := w.Monitor.JobActions(ctx, id)
	require.NoError(t, err)
	require.Equal(t, jobq.ActionRequeue, actions[0].Action)
	require.Equal(t, jobq.ActionUndo, actions[1].Action)
	require.Equal(t, jobq.StateFailed, actions[1].After)
}

// Cancel, requeue and delete do what they say in every state that a job can
// have without a worker.
func TestActions(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	client := jobtest.Client(t)
	available, scheduled := jobtest.Enqueue(t, client, nil), jobtest.Enqueue(t, client, &jobq.EnqueueOptions{Delay: time.Hour})

	after, err := client.Cancel(ctx, available)
	require.NoError(t, err)
	require.Equal(t, jobq.StateCancelled, after)
	after, err = client.Cancel(ctx, available)
	require.NoError(t, err)
	require.Equal(t, jobq.StateCancelled, after, "a second cancel finds it cancelled")

	require.NoError(t, jobtest.Requeue(client, available))
	require.Equal(t, jobq.StateAvailable, jobtest.State(t, client, available))
	require.NoError(t, jobtest.Requeue(client, available), "a requeue of an available job changes nothing")
	require.NoError(t, jobtest.Requeue(client, scheduled))
	require.Equal(t, jobq.StateAvailable, jobtest.State(t, client, scheduled))

	require.NoError(t, jobtest.Delete(client, available))
	for _, err := range []error{
		jobtest.Requeue(client, available), jobtest.Delete(client, available), jobtest.ErrorOf(client.Cancel(ctx, available)), jobtest.ErrorOf(client.Get(ctx, available)),
	} {
		require.ErrorIs(t, err, jobq.ErrNotFound)
	}

	// A running job is neither requeued nor deleted, and is only asked to stop.
	running := scheduled
	require.NoError(t, pgtest.MakeRunning(ctx, client.Pool(), running))
	require.ErrorIs(t, jobtest.Requeue(client, running), jobq.ErrConflict)
	require.ErrorIs(t, jobtest.Delete(client, running), jobq.ErrConflict)
	after, err = client.Cancel(ctx, running)
	require.NoError(t, err)
	require.Equal(t, jobq.StateRunning, after)
	job, err := client.Get(ctx, running)
	require.NoError(t, err)
	require.NotNil(t, job.CancelRequestedAt)
}
