package operator_test

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/jobtest"
	"github.com/jobq-dev/jobq/internal/pgtest"
	"github.com/jobq-dev/jobq/operator"
)

// A bulk action is about the jobs that matched when it began, keeps to its
// limits, goes on where it was stopped, and is undone as one.
func TestBulk(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	w := jobtest.NewWorker(t)
	ana := operator.New(w.Client, "ana@laptop via jobq")
	for range 12 {
		w.InState(jobq.StateFailed, jobq.EnqueueOptions{Queue: "email"})
	}
	w.InState(jobq.StateFailed, jobq.EnqueueOptions{Queue: "sms"})
	filter := jobq.Filter{Match: "state:failed queue:email"}
	count, err := w.Client.Count(ctx, filter, 1000)
	require.NoError(t, err)
	require.EqualValues(t, 12, count)
	count, err = w.Client.Count(ctx, filter, 5)
	require.NoError(t, err)
	require.EqualValues(t, 5, count)

	progress, err := ana.Bulk(ctx, operator.BulkParams{Action: jobq.ActionRequeue, Filter: filter, Max: 4})
	require.NoError(t, err)
	require.Equal(t, 4, progress.Done)
	stopped, stop := context.WithCancel(ctx)
	var late int64
	progress, err = ana.Bulk(stopped, operator.BulkParams{
		Action: jobq.ActionRequeue, Filter: filter, RatePerSecond: 3,
		OnBatch: func(operator.BulkProgress) { // a job that fails while the action runs is not among those meant
			stop()
			late = w.InState(jobq.StateFailed, jobq.EnqueueOptions{Queue: "late"})
			require.NoError(t, pgtest.UpdateFinished(ctx, w.Client.Pool(), pgtest.Columns{"queue": "'email'"}, "id = $1", late))
		},
	})
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, 3, progress.Done)
	again, err := ana.Bulk(ctx, operator.BulkParams{Resume: progress.AuditID})
	require.NoError(t, err)
	require.Equal(t, operator.BulkProgress{AuditID: progress.AuditID, Done: 8}, again)
	require.Equal(t, jobq.StateFailed, jobtest.State(t, w.Client, late))

	undone, err := ana.Undo(ctx, progress.AuditID)
	require.NoError(t, err)
	require.Equal(t, 8, undone.Changed())
	_, err = ana.Bulk(ctx, operator.BulkParams{Action: jobq.ActionRequeue, Filter: jobq.Filter{Match: "foo:"}})
	require.ErrorIs(t, err, jobq.ErrInvalid)
}

// Max is of one call, and ends nothing: what is left is for the next one. Only
// when nothing is, has the action come to its end.
func TestBulkMax(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	w := jobtest.NewWorker(t)
	ana := operator.New(w.Client, "ana@laptop via jobq")
	for range 7 {
		jobtest.Enqueue(t, w.Client, &jobq.EnqueueOptions{Queue: "email"})
	}
	progress, err := ana.Bulk(ctx, operator.BulkParams{Action: jobq.ActionCancel, Filter: jobq.Filter{Match: "queue:email"}, Max: 3})
	require.NoError(t, err)
	require.Equal(t, 3, progress.Done)
	resume := operator.BulkParams{Resume: progress.AuditID, Max: 2}
	for _, test := range []struct {
		done int
		more bool
	}{{5, true}, {7, false}} {
		progress, err = ana.Bulk(ctx, resume)
		require.NoError(t, err)
		require.Equal(t, test.done, progress.Done)
		entries, err := w.Monitor.Audit(ctx, 0, 1)
		require.NoError(t, err)
		require.Equal(t, test.more, entries[0].NoResume() == "")
	}
	_, err = ana.Bulk(ctx, resume)
	require.ErrorContains(t, err, "has come to its end")
	undone, err := ana.Undo(ctx, progress.AuditID)
	require.NoError(t, err)
	require.Equal(t, 7, undone.Changed())
}

// Ages are those that jobs had when the action began, however long it takes: what was
// meant is not too old later, and what was too young is not meant later. Method: the
// action is stopped, an hour passes, which is taken off all times that are stored, and
// it is resumed.
func TestBulkAges(t *testing.T) {
	t.Parallel()
	for match, action := range map[string]jobq.Action{
		"state:available age:<1h": jobq.ActionCancel,
		"state:available age:>1h": jobq.ActionCancel,
		"state:failed age:<1h":    jobq.ActionRequeue,
	} {
		t.Run(match, func(t *testing.T) {
			t.Parallel()
			ctx := context.Background()
			w := jobtest.NewWorker(t)
			ana := operator.New(w.Client, "ana@laptop via jobq")
			exec := func(sql string) {
				_, err := w.Client.Pool().Exec(ctx, sql)
				require.NoError(t, err, sql)
			}
			for range 3 {
				for _, queue := range []string{"young", "old"} {
					if action == jobq.ActionRequeue {
						w.InState(jobq.StateFailed, jobq.EnqueueOptions{Queue: queue})
					} else {
						jobtest.Enqueue(t, w.Client, &jobq.EnqueueOptions{Queue: queue})
					}
				}
			}
			exec("update jobq.pending set created_at = created_at - case queue when 'old' then interval '70 minutes' else interval '50 minutes' end")
			exec("update jobq.run set finished_at = finished_at - case queue when 'old' then interval '70 minutes' else interval '50 minutes' end")
			stopped, stop := context.WithCancel(ctx)
			progress, err := ana.Bulk(stopped, operator.BulkParams{
				Action: action, Filter: jobq.Filter{Match: match}, RatePerSecond: 1, OnBatch: func(operator.BulkProgress) { stop() },
			})
			require.ErrorIs(t, err, context.Canceled)
			require.Equal(t, 1, progress.Done)
			exec("update jobq.pending set created_at = created_at - interval '1 hour'")
			exec("update jobq.run set finished_at = finished_at - interval '1 hour'")
			exec("update jobq.audit set snapshot_at = snapshot_at - interval '1 hour'")
			again, err := ana.Bulk(ctx, operator.BulkParams{Resume: progress.AuditID})
			require.NoError(t, err)
			require.Equal(t, operator.BulkProgress{AuditID: progress.AuditID, Done: 3}, again)
		})
	}
}

// An action goes on with the bound that it began with, unless another is given:
// with what an interruption has left of it, then with all of it again.
func TestBulkKeepsMax(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	w := jobtest.NewWorker(t)
	ana := operator.New(w.Client, "ana@laptop via jobq")
	for range 9 {
		jobtest.Enqueue(t, w.Client, &jobq.EnqueueOptions{Queue: "email"})
	}
	stopped, stop := context.WithCancel(ctx)
	progress, err := ana.Bulk(stopped, operator.BulkParams{
		Action: jobq.ActionCancel, Filter: jobq.Filter{Match: "queue:email"}, Max: 4, RatePerSecond: 1, OnBatch: func(operator.BulkProgress) { stop() },
	})
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, 1, progress.Done)
	entries, err := w.Monitor.Audit(ctx, 0, 1)
	require.NoError(t, err)
	require.Equal(t, 4, entries[0].Max)
	for _, done := range []int{4, 8, 9} {
		progress, err = ana.Bulk(ctx, operator.BulkParams{Resume: progress.AuditID})
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
	w := jobtest.NewWorker(t)
	ana := operator.New(w.Client, "ana@laptop via jobq")
	filter := jobq.Filter{Match: "queue:email"}
	w.InState(jobq.StateFailed, jobq.EnqueueOptions{Queue: "email"})
	waits := jobtest.Enqueue(t, w.Client, &jobq.EnqueueOptions{Queue: "email"})
	snapshot, err := ana.BulkSnapshot(ctx, jobq.ActionDelete, filter)
	require.NoError(t, err)
	require.EqualValues(t, 2, snapshot.Count)
	_, err = ana.Act(ctx, jobq.ActionCancel, operator.Target{ID: waits}) // it has ended since
	require.NoError(t, err)
	late := jobtest.Enqueue(t, w.Client, &jobq.EnqueueOptions{Queue: "email"})
	progress, err := ana.Bulk(ctx, operator.BulkParams{Action: jobq.ActionDelete, Filter: filter, Snapshot: snapshot})
	require.NoError(t, err)
	require.Equal(t, 1, progress.Done)
	require.Equal(t, jobq.StateCancelled, jobtest.State(t, w.Client, waits))
	require.Equal(t, jobq.StateAvailable, jobtest.State(t, w.Client, late))

	snapshot.At, snapshot.IDMax = snapshot.At.Add(time.Hour), snapshot.IDMax+1000
	progress, err = ana.Bulk(ctx, operator.BulkParams{Action: jobq.ActionDelete, Filter: filter, Snapshot: snapshot})
	require.NoError(t, err)
	require.Equal(t, 2, progress.Done)
	entries, err := w.Monitor.Audit(ctx, 0, 1)
	require.NoError(t, err)
	require.Equal(t, late, entries[0].IDMax)
	require.True(t, entries[0].SnapshotAt.Before(snapshot.At))
	_, err = ana.BulkSnapshot(ctx, jobq.ActionDelete, jobq.Filter{Match: "foo:"})
	require.ErrorIs(t, err, jobq.ErrInvalid)
}

// An action by filter says exactly how many jobs it is about, above CountMax too.
func TestBulkSnapshotIsExact(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	client := jobtest.NewWorker(t).Client
	const jobs = jobq.CountMax + 7
	_, err := client.Pool().Exec(ctx, "select jobq.enqueue('a') from generate_series(1, $1::integer)", jobs)
	require.NoError(t, err)
	for action, want := range map[jobq.Action]int64{jobq.ActionCancel: jobs, jobq.ActionRequeue: 0} {
		snapshot, err := operator.New(client, "ana").BulkSnapshot(ctx, action, jobq.Filter{})
		require.NoError(t, err)
		require.Equal(t, want, snapshot.Count, action)
		require.False(t, snapshot.More)
	}
}

// An action by filter leaves jobs alone in states in which it does nothing: it
// neither counts them nor looks at them, however many there are.
func TestBulkStates(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	w := jobtest.NewWorker(t)
	ana := operator.New(w.Client, "ana@laptop via jobq")
	change := operator.JobChange{Priority: new(int16(3))}
	for action, want := range map[jobq.Action]int{jobq.ActionCancel: 4, jobq.ActionRequeue: 4, jobq.ActionDelete: 6, jobq.ActionEdit: 3} {
		var ids []string
		for _, state := range jobq.States() {
			ids = append(ids, strconv.FormatInt(w.InState(state, jobq.EnqueueOptions{Queue: string(action) + " " + string(state)}), 10))
		}
		filter := jobq.Filter{Match: "id:" + strings.Join(ids, ",")}
		all, err := ana.BulkSnapshot(ctx, "", filter)
		require.NoError(t, err)
		require.EqualValues(t, len(jobq.States()), all.Count)
		snapshot, err := ana.BulkSnapshot(ctx, action, filter)
		require.NoError(t, err)
		require.EqualValues(t, want, snapshot.Count, action)
		params := operator.BulkParams{Action: action, Filter: filter, Snapshot: snapshot}
		if action == jobq.ActionEdit {
			params.Change = change
		}
		progress, err := ana.Bulk(ctx, params)
		require.NoError(t, err)
		require.Equal(t, operator.BulkProgress{AuditID: progress.AuditID, Done: want}, progress, action)
	}
}

// What a list takes as a filter, an action takes too, though it is stored with
// quotes; and a bound below zero is no bound to any of them.
func TestBulkBounds(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	w := jobtest.NewWorker(t)
	ana := operator.New(w.Client, "ana@laptop via jobq")
	id := jobtest.Enqueue(t, w.Client, &jobq.EnqueueOptions{UniqueKey: "a-b"})
	filter := jobq.Filter{Match: "key:a-b" + strings.Repeat(",11111111-1111-1111-1111-111111111111", 110)}
	_, err := w.Client.List(ctx, filter)
	require.NoError(t, err)
	for _, params := range []operator.BulkParams{{Max: -1}, {RatePerSecond: -1}} {
		params.Action, params.Filter = jobq.ActionDelete, filter
		_, err := ana.Bulk(ctx, params)
		require.ErrorIs(t, err, jobq.ErrInvalid)
	}
	require.Equal(t, jobq.StateAvailable, jobtest.State(t, w.Client, id))
	snapshot, err := ana.BulkSnapshot(ctx, jobq.ActionDelete, filter)
	require.NoError(t, err)
	require.EqualValues(t, 1, snapshot.Count)
	progress, err := ana.Bulk(ctx, operator.BulkParams{Action: jobq.ActionDelete, Filter: filter})
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
	w := jobtest.NewWorker(t)
	ana, colleague := operator.New(w.Client, "ana"), operator.New(w.Client, "bob")
	for range 5 {
		jobtest.Enqueue(t, w.Client, &jobq.EnqueueOptions{Queue: "email"})
	}
	stopped, stop := context.WithCancel(ctx)
	refused := 0
	progress, err := ana.Bulk(stopped, operator.BulkParams{
		Action: jobq.ActionCancel, Filter: jobq.Filter{Match: "queue:email"}, RatePerSecond: 2,
		OnBatch: func(progress operator.BulkProgress) {
			again, err := colleague.Bulk(ctx, operator.BulkParams{Resume: progress.AuditID})
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

	_, err = colleague.Bulk(ctx, operator.BulkParams{Resume: progress.AuditID, RatePerSecond: 1, OnBatch: func(operator.BulkProgress) {
		_, err := w.Client.Pool().Exec(ctx, "update jobq.audit set held_by = 'somebody else' where id = $1 and held_until > now()", progress.AuditID)
		require.NoError(t, err)
	}})
	require.ErrorIs(t, err, jobq.ErrConflict)
	require.Equal(t, 3, w.Count("select count(*) from jobq.job where finished_at is not null"), "it stops before the next batch")
	_, err = ana.Bulk(ctx, operator.BulkParams{Resume: progress.AuditID})
	require.ErrorContains(t, err, "it runs")
	_, err = w.Client.Pool().Exec(ctx, "update jobq.audit set held_until = now() - interval '1 s' where id = $1", progress.AuditID)
	require.NoError(t, err)
	_, err = colleague.Bulk(ctx, operator.BulkParams{Resume: progress.AuditID, RatePerSecond: 1, OnBatch: func(operator.BulkProgress) {
		// Somebody else has gone on with it, and let go, while this one was asleep.
		_, err := w.Client.Pool().Exec(ctx, "update jobq.audit set held_by = null, held_until = null where id = $1", progress.AuditID)
		require.NoError(t, err)
	}})
	require.ErrorIs(t, err, jobq.ErrConflict)
	require.ErrorContains(t, err, "somebody else has gone on with it")
	require.Equal(t, 4, w.Count("select count(*) from jobq.job where finished_at is not null"))
	again, err := ana.Bulk(ctx, operator.BulkParams{Resume: progress.AuditID})
	require.NoError(t, err)
	require.Equal(t, 5, again.Done)
}
