package jobq_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

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
	job := w.claim("q", 1)[0]
	undone, err := operator.Undo(ctx, acted.AuditID)
	require.NoError(t, err)
	require.Equal(t, 1, undone.Changed())
	require.Equal(t, []jobq.ActedJob{{ID: failed, Before: jobq.Available, After: jobq.Failed, Problem: "it has changed meanwhile, and is running now"}}, undone.Problems())
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
		changed, err := operator.PauseQueue(ctx, "email", "", "smtp down")
		require.NoError(t, err)
		require.Equal(t, change, changed)
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

// A bulk action is about the jobs that matched when it began, keeps to its
// limits, goes on where it was stopped, and is undone as one.
func TestBulk(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	w := newWorker(t)
	operator := newOperator(w)
	for range 12 {
		w.inState(jobq.Failed, jobq.EnqueueOptions{Queue: "email"})
	}
	w.inState(jobq.Failed, jobq.EnqueueOptions{Queue: "sms"})
	filter := jobq.Filter{Match: "state:failed queue:email"}
	count, err := operator.Count(ctx, filter, 1000)
	require.NoError(t, err)
	require.EqualValues(t, 12, count)
	count, err = operator.Count(ctx, filter, 5)
	require.NoError(t, err)
	require.EqualValues(t, 5, count)

	progress, err := operator.Bulk(ctx, jobq.BulkParams{Action: jobq.ActionRequeue, Filter: filter, Max: 4})
	require.NoError(t, err)
	require.Equal(t, 4, progress.Done)
	stopped, stop := context.WithCancel(ctx)
	var late int64
	progress, err = operator.Bulk(stopped, jobq.BulkParams{
		Action: jobq.ActionRequeue, Filter: filter, RatePerSecond: 3,
		OnBatch: func(jobq.BulkProgress) { // a job that fails while the action runs is not among those meant
			stop()
			late = w.inState(jobq.Failed, jobq.EnqueueOptions{Queue: "late"})
			_, err := w.client.Pool().Exec(ctx, "update jobq.finished set queue = 'email' where id = $1", late)
			require.NoError(t, err)
		},
	})
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, 3, progress.Done)
	again, err := operator.Bulk(ctx, jobq.BulkParams{Resume: progress.AuditID})
	require.NoError(t, err)
	require.Equal(t, jobq.BulkProgress{AuditID: progress.AuditID, Done: 8}, again)
	require.Equal(t, jobq.Failed, state(t, w.client, late))

	undone, err := operator.Undo(ctx, progress.AuditID)
	require.NoError(t, err)
	require.Equal(t, 8, undone.Changed())
	_, err = operator.Bulk(ctx, jobq.BulkParams{Action: jobq.ActionRequeue, Filter: jobq.Filter{Match: "foo:"}})
	require.ErrorIs(t, err, jobq.ErrInvalid)
}

// Max is of one call, and ends nothing: what is left is for the next one. Only
// when nothing is, has the action come to its end.
func TestBulkMax(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	w := newWorker(t)
	operator := newOperator(w)
	for range 7 {
		enqueue(t, w.client, &jobq.EnqueueOptions{Queue: "email"})
	}
	progress, err := operator.Bulk(ctx, jobq.BulkParams{Action: jobq.ActionCancel, Filter: jobq.Filter{Match: "queue:email"}, Max: 3})
	require.NoError(t, err)
	require.Equal(t, 3, progress.Done)
	resume := jobq.BulkParams{Resume: progress.AuditID, Max: 2}
	for _, test := range []struct {
		done int
		more bool
	}{{5, true}, {7, false}} {
		progress, err = operator.Bulk(ctx, resume)
		require.NoError(t, err)
		require.Equal(t, test.done, progress.Done)
		entries, err := operator.Audit(ctx, 0, 1)
		require.NoError(t, err)
		require.Equal(t, test.more, entries[0].NoResume() == "")
	}
	_, err = operator.Bulk(ctx, resume)
	require.ErrorContains(t, err, "has come to its end")
	undone, err := operator.Undo(ctx, progress.AuditID)
	require.NoError(t, err)
	require.Equal(t, 7, undone.Changed())
}

// An action goes on with the bound that it began with, unless another is given:
// with what an interruption has left of it, then with all of it again.
func TestBulkKeepsMax(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	w := newWorker(t)
	operator := newOperator(w)
	for range 9 {
		enqueue(t, w.client, &jobq.EnqueueOptions{Queue: "email"})
	}
	stopped, stop := context.WithCancel(ctx)
	progress, err := operator.Bulk(stopped, jobq.BulkParams{
		Action: jobq.ActionCancel, Filter: jobq.Filter{Match: "queue:email"}, Max: 4, RatePerSecond: 1, OnBatch: func(jobq.BulkProgress) { stop() },
	})
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, 1, progress.Done)
	entries, err := operator.Audit(ctx, 0, 1)
	require.NoError(t, err)
	require.Equal(t, 4, entries[0].Max)
	for _, done := range []int{4, 8, 9} {
		progress, err = operator.Bulk(ctx, jobq.BulkParams{Resume: progress.AuditID})
		require.NoError(t, err)
		require.Equal(t, done, progress.Done)
	}
}

// An action is about the jobs that were counted before it began: one that was
// enqueued meanwhile, or has ended, is left alone. A snapshot of nowhere is no
// wider than the moment.
func TestBulkSnapshot(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	w := newWorker(t)
	operator := newOperator(w)
	filter := jobq.Filter{Match: "queue:email"}
	w.inState(jobq.Failed, jobq.EnqueueOptions{Queue: "email"})
	waits := enqueue(t, w.client, &jobq.EnqueueOptions{Queue: "email"})
	snapshot, err := operator.BulkSnapshot(ctx, jobq.ActionDelete, filter)
	require.NoError(t, err)
	require.EqualValues(t, 2, snapshot.Count)
	_, err = operator.Act(ctx, jobq.ActionCancel, jobq.Target{ID: waits}) // it has ended since
	require.NoError(t, err)
	late := enqueue(t, w.client, &jobq.EnqueueOptions{Queue: "email"})
	progress, err := operator.Bulk(ctx, jobq.BulkParams{Action: jobq.ActionDelete, Filter: filter, Snapshot: snapshot})
	require.NoError(t, err)
	require.Equal(t, 1, progress.Done)
	require.Equal(t, jobq.Cancelled, state(t, w.client, waits))
	require.Equal(t, jobq.Available, state(t, w.client, late))

	snapshot.At, snapshot.IDMax = snapshot.At.Add(time.Hour), snapshot.IDMax+1000
	progress, err = operator.Bulk(ctx, jobq.BulkParams{Action: jobq.ActionDelete, Filter: filter, Snapshot: snapshot})
	require.NoError(t, err)
	require.Equal(t, 2, progress.Done)
	entries, err := operator.Audit(ctx, 0, 1)
	require.NoError(t, err)
	require.Equal(t, late, entries[0].IDMax)
	require.True(t, entries[0].SnapshotAt.Before(snapshot.At))
	_, err = operator.BulkSnapshot(ctx, jobq.ActionDelete, jobq.Filter{Match: "foo:"})
	require.ErrorIs(t, err, jobq.ErrInvalid)
}

// An action by filter leaves jobs alone in states in which it does nothing: it
// neither counts them nor looks at them, however many there are.
func TestBulkStates(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	w := newWorker(t)
	operator := newOperator(w)
	change := jobq.JobChange{Priority: new(int16(3))}
	for action, want := range map[jobq.Action]int{jobq.ActionCancel: 3, jobq.ActionRequeue: 4, jobq.ActionDelete: 5, jobq.ActionEdit: 2} {
		var ids []string
		for _, state := range jobq.States() {
			ids = append(ids, strconv.FormatInt(w.inState(state, jobq.EnqueueOptions{Queue: string(action) + " " + string(state)}), 10))
		}
		filter := jobq.Filter{Match: "id:" + strings.Join(ids, ",")}
		all, err := operator.BulkSnapshot(ctx, "", filter)
		require.NoError(t, err)
		require.EqualValues(t, 6, all.Count)
		snapshot, err := operator.BulkSnapshot(ctx, action, filter)
		require.NoError(t, err)
		require.EqualValues(t, want, snapshot.Count, action)
		progress, err := operator.Bulk(ctx, jobq.BulkParams{Action: action, Change: change, Filter: filter, Snapshot: snapshot})
		require.NoError(t, err)
		require.Equal(t, jobq.BulkProgress{AuditID: progress.AuditID, Done: want}, progress, action)
	}
}

// What a list takes as a filter, an action takes too, though it is stored with
// quotes; and a bound below zero is no bound to any of them.
func TestBulkBounds(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	w := newWorker(t)
	operator := newOperator(w)
	id := enqueue(t, w.client, &jobq.EnqueueOptions{UniqueKey: "a-b"})
	filter := jobq.Filter{Match: "key:a-b" + strings.Repeat(",11111111-1111-1111-1111-111111111111", 110)}
	_, err := operator.List(ctx, filter)
	require.NoError(t, err)
	for _, params := range []jobq.BulkParams{{Max: -1}, {RatePerSecond: -1}} {
		params.Action, params.Filter = jobq.ActionDelete, filter
		_, err := operator.Bulk(ctx, params)
		require.ErrorIs(t, err, jobq.ErrInvalid)
	}
	require.Equal(t, jobq.Available, state(t, w.client, id))
	snapshot, err := operator.BulkSnapshot(ctx, jobq.ActionDelete, filter)
	require.NoError(t, err)
	require.EqualValues(t, 1, snapshot.Count)
	progress, err := operator.Bulk(ctx, jobq.BulkParams{Action: jobq.ActionDelete, Filter: filter})
	require.NoError(t, err)
	require.Equal(t, 1, progress.Done)
}

// One at a time works on an action by filter: who resumes one that runs is told
// so, whoever stops lets go, and who dies keeps it only until the lease ends.
// Method: the second tries between two batches of the first; then somebody else
// has the lease between two batches, and dies.
func TestBulkRunsOnce(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	w := newWorker(t)
	operator, colleague := newOperator(w), newOperator(w)
	for range 5 {
		enqueue(t, w.client, &jobq.EnqueueOptions{Queue: "email"})
	}
	stopped, stop := context.WithCancel(ctx)
	refused := 0
	progress, err := operator.Bulk(stopped, jobq.BulkParams{
		Action: jobq.ActionCancel, Filter: jobq.Filter{Match: "queue:email"}, RatePerSecond: 2,
		OnBatch: func(progress jobq.BulkProgress) {
			again, err := colleague.Bulk(ctx, jobq.BulkParams{Resume: progress.AuditID})
			require.ErrorIs(t, err, jobq.ErrConflict)
			require.ErrorContains(t, err, "it runs")
			require.Zero(t, again)
			refused++
			stop()
		},
	})
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, 1, refused)
	require.Equal(t, 2, progress.Done)

	_, err = colleague.Bulk(ctx, jobq.BulkParams{Resume: progress.AuditID, RatePerSecond: 1, OnBatch: func(jobq.BulkProgress) {
		_, err := w.client.Pool().Exec(ctx, "update jobq.audit set held_by = 'somebody else' where id = $1 and held_until > now()", progress.AuditID)
		require.NoError(t, err)
	}})
	require.ErrorIs(t, err, jobq.ErrConflict)
	require.Equal(t, 3, w.count("select count(*) from jobq.finished"), "it stops before the next batch")
	_, err = operator.Bulk(ctx, jobq.BulkParams{Resume: progress.AuditID})
	require.ErrorContains(t, err, "it runs")
	_, err = w.client.Pool().Exec(ctx, "update jobq.audit set held_until = now() - interval '1 s' where id = $1", progress.AuditID)
	require.NoError(t, err)
	_, err = colleague.Bulk(ctx, jobq.BulkParams{Resume: progress.AuditID, RatePerSecond: 1, OnBatch: func(jobq.BulkProgress) {
		// Somebody else has gone on with it, and let go, while this one was asleep.
		_, err := w.client.Pool().Exec(ctx, "update jobq.audit set held_by = null, held_until = null where id = $1", progress.AuditID)
		require.NoError(t, err)
	}})
	require.ErrorIs(t, err, jobq.ErrConflict)
	require.ErrorContains(t, err, "somebody else has gone on with it")
	require.Equal(t, 4, w.count("select count(*) from jobq.finished"))
	again, err := operator.Bulk(ctx, jobq.BulkParams{Resume: progress.AuditID})
	require.NoError(t, err)
	require.Equal(t, 5, again.Done)
}
