package operator_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/jobtest"
	"github.com/jobq-dev/jobq/monitor"
	"github.com/jobq-dev/jobq/operator"
)

// An undo that could take nothing back leaves the action as it was: when what was
// in the way has gone, another one takes it back.
func TestUndoThatTookNothingBack(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	client := jobtest.Client(t)
	id := jobtest.Enqueue(t, client, &jobq.EnqueueOptions{UniqueKey: "k"})
	acted, err := operator.New(client, "test").Act(ctx, jobq.ActionCancel, operator.Target{ID: id})
	require.NoError(t, err)
	holder := jobtest.Enqueue(t, client, &jobq.EnqueueOptions{UniqueKey: "k"})
	for range 2 {
		undone, err := operator.New(client, "test").Undo(ctx, acted.AuditID)
		require.NoError(t, err)
		require.Len(t, undone.Problems(), 1)
		require.ErrorIs(t, undone.Problems()[0].Err(), jobq.ErrDuplicate)
		entries, err := monitor.New(client).Audit(ctx, 0, 1)
		require.NoError(t, err)
		require.Equal(t, []any{undone.AuditID, jobq.ActionUndo, 0, 1, int64(0)},
			[]any{entries[0].ID, entries[0].Action, entries[0].Done, entries[0].Refused, entries[0].Undoes})
		require.Equal(t, fmt.Sprintf("undo of action %d: nothing could be taken back", acted.AuditID), entries[0].Note)
	}
	require.NoError(t, jobtest.Delete(client, holder))
	undone, err := operator.New(client, "test").Undo(ctx, acted.AuditID)
	require.NoError(t, err)
	require.Equal(t, 1, undone.Changed())
	require.Equal(t, jobq.StateAvailable, jobtest.State(t, client, id))
	_, err = operator.New(client, "test").Undo(ctx, acted.AuditID)
	require.ErrorIs(t, err, jobq.ErrConflict, "once it has been taken back, it is undone")
	jobtest.RequireKeysRight(t, client.Pool())
}

// The undo of an action on many jobs works in transactions of 1000 jobs, is one
// entry of the audit, and goes on where one was stopped.
func TestUndoInSteps(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	client := jobtest.Client(t)
	const jobs = 2500
	_, err := client.Pool().Exec(ctx, "insert into jobq.pending (kind, unique_key) select 'k', i::text from generate_series(1, $1) i", jobs)
	require.NoError(t, err)
	progress, err := operator.New(client, "test").Bulk(ctx, operator.BulkParams{Action: jobq.ActionCancel})
	require.NoError(t, err)
	require.Equal(t, jobs, progress.Done)
	var rows, undoID int
	var ended bool
	require.NoError(t, client.Pool().QueryRow(ctx, "select count(*), min(audit), bool_and(ended) from jobq.undo('me', $1)", progress.AuditID).
		Scan(&rows, &undoID, &ended))
	require.Equal(t, []any{1000, false}, []any{rows, ended})
	undone, err := operator.New(client, "test").Undo(ctx, progress.AuditID)
	require.NoError(t, err)
	require.EqualValues(t, undoID, undone.AuditID)
	require.Len(t, undone.Jobs, 1500)
	require.Equal(t, 1500, undone.Changed())
	entries, err := monitor.New(client).Audit(ctx, 0, 10)
	require.NoError(t, err)
	require.Len(t, entries, 2)
	require.Equal(t, []any{jobs, 0, progress.AuditID}, []any{entries[0].Done, entries[0].Refused, entries[0].Undoes})
	require.NotNil(t, entries[0].EndedAt)
	var pending int
	require.NoError(t, client.Pool().QueryRow(ctx, "select count(*) from jobq.pending").Scan(&pending))
	require.Equal(t, jobs, pending)
	_, err = operator.New(client, "test").Undo(ctx, progress.AuditID)
	require.ErrorIs(t, err, jobq.ErrConflict)
	jobtest.RequireKeysRight(t, client.Pool())
}

// An undo that an error stops in its second step returns what the first has taken
// back, and goes on when it is called again.
func TestUndoStopped(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	client := jobtest.Client(t)
	const jobs = 1500
	_, err := client.Pool().Exec(ctx, "insert into jobq.pending (kind) select 'k' from generate_series(1, $1)", jobs)
	require.NoError(t, err)
	progress, err := operator.New(client, "test").Bulk(ctx, operator.BulkParams{Action: jobq.ActionCancel})
	require.NoError(t, err)
	_, err = client.Pool().Exec(ctx, `create function public.refuse() returns trigger language plpgsql as $$
		begin
			if (select count(*) from jobq.pending) >= 1200 then
				raise sqlstate '53100' using message = 'the disk is full';
			end if;
			return new;
		end $$;
		create trigger refuse before insert on jobq.pending for each row execute function public.refuse()`)
	require.NoError(t, err)
	undone, err := operator.New(client, "test").Undo(ctx, progress.AuditID)
	require.ErrorContains(t, err, "the disk is full")
	require.Equal(t, 1000, undone.Changed())
	require.Len(t, undone.Jobs, 1000)
	again, err := operator.New(client, "test").Undo(ctx, progress.AuditID)
	require.Error(t, err)
	require.Empty(t, again.Jobs)
	_, err = client.Pool().Exec(ctx, "drop trigger refuse on jobq.pending; drop function public.refuse()")
	require.NoError(t, err)
	rest, err := operator.New(client, "test").Undo(ctx, progress.AuditID)
	require.NoError(t, err)
	require.Equal(t, jobs-1000, rest.Changed())
	require.Equal(t, undone.AuditID, rest.AuditID)
}

// What no requeue can bring back leaves no key behind that nobody gives up.
func TestKeysAreGivenBack(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	client := jobtest.Client(t)
	large := jobq.RawArgs{Name: "k", JSON: jobtest.JSON(t, jobtest.LongText(5000))}
	enqueued, err := client.Enqueue(ctx, large, &jobq.EnqueueOptions{UniqueKey: "args gone"})
	require.NoError(t, err)
	changed := jobtest.Enqueue(t, client, &jobq.EnqueueOptions{UniqueKey: "changed"})
	for _, id := range []int64{enqueued.ID, changed} {
		_, err = client.Cancel(ctx, id)
		require.NoError(t, err)
	}
	_, err = client.Pool().Exec(ctx, "delete from jobq.payload")
	require.NoError(t, err)
	acted, err := operator.New(client, "test").Act(ctx, jobq.ActionRequeue, operator.Target{ID: enqueued.ID},
		operator.Target{ID: changed, State: jobq.StateFailed, LeaseToken: 7}, operator.Target{ID: 9999})
	require.NoError(t, err)
	require.Len(t, acted.Problems(), 3)
	require.ErrorIs(t, jobtest.Requeue(client, enqueued.ID), jobq.ErrConflict)
	jobtest.RequireKeysRight(t, client.Pool())
	again := jobtest.Enqueue(t, client, &jobq.EnqueueOptions{UniqueKey: "changed"})
	require.NotEqual(t, changed, again)
}

// What operators call refuses bad input as what producers call does.
func TestOperatorInputs(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	client := jobtest.Client(t)
	id := jobtest.Enqueue(t, client, nil)
	const act, edit = "select * from jobq.act(%s, %s, %s, null, null, %s, null, null)", "select * from jobq.act('me', 'edit', array[%d]::bigint[], null, null, null, null, %s)"
	for _, test := range []struct{ sql, argument, limit string }{
		{fmt.Sprintf(act, "''", "'cancel'", "array[1]", "null"), "actor", "1 to 255 characters, not 0"},
		{fmt.Sprintf(act, "repeat('a', 256)", "'cancel'", "array[1]", "null"), "actor", "1 to 255 characters, not 256"},
		{fmt.Sprintf(act, "'me'", "'burn'", "array[1]", "null"), "action", "requeue, cancel, delete or edit, not burn"},
		{fmt.Sprintf(act, "'me'", "null", "array[1]", "null"), "action", "not null"},
		{fmt.Sprintf(act, "'me'", "'cancel'", "null", "null"), "ids", "1 to 1000 jobs"},
		{fmt.Sprintf(act, "'me'", "'cancel'", "'{}'", "null"), "ids", "1 to 1000 jobs"},
		{fmt.Sprintf(act, "'me'", "'cancel'", "array[1, null]", "null"), "ids", "without nulls"},
		{fmt.Sprintf(act, "'me'", "'cancel'", "array(select generate_series(1, 1001))", "null"), "ids", "1 to 1000 jobs, not 1001"},
		{fmt.Sprintf(act, "'me'", "'cancel'", "array[1]", "repeat('t', 9000)"), "target", "at most 8192 characters, not 9000"},
		{fmt.Sprintf(edit, id, "null"), "change", "must be a JSON object"},
		{fmt.Sprintf(edit, id, "'[]'"), "change", "must be a JSON object"},
		{fmt.Sprintf(edit, id, `'{"arg": {}}'`), "change", `unknown member "arg"`},
		{fmt.Sprintf(edit, id, `'{"arg": null}'`), "change", `unknown member "arg"`},
		{fmt.Sprintf(edit, id, `'{"kind": "other"}'`), "change", `unknown member "kind"`},
		{fmt.Sprintf(edit, id, `'{"priority": 40000}'`), "change", "priority must be -32768 to 32767, not 40000"},
		{fmt.Sprintf(edit, id, `'{"priority": null}'`), "change", "priority must not be null"},
		{fmt.Sprintf(edit, id, `'{"queue": ""}'`), "change", "queue must be 1 to 128 characters"},
		{fmt.Sprintf(edit, id, `'{"tags": "a"}'`), "change", "tags must be an array of texts"},
		{"select jobq.act_clone('me', null, '{}')", "job_id", "must not be null"},
		{fmt.Sprintf("select jobq.act_clone('me', %d, '{\"state\": 1}')", id), "change", `unknown member "state"`},
		{fmt.Sprintf("select jobq.act_clone('me', %d, '{\"timeout\": \"no\"}')", id), "change", "timeout must be an interval"},
		{"select jobq.act_drain('me', null)", "worker", "must not be null"},
		{"select jobq.act_host('me', 'stop', 'h', null)", "action", "host_hold or host_release, not stop"},
		{"select jobq.act_host('me', 'host_hold', '', null)", "host", "1 to 255 characters, not 0"},
		{"select jobq.act_host('me', 'host_release', null, null)", "host", "1 to 255 characters, not null"},
		{"select jobq.act_host('me', 'host_hold', 'h', repeat('n', 2000))", "note", "at most 1024 characters, not 2000"},
		{"select jobq.act_queue('me', 'stop', 'q', null)", "action", "pause or resume, not stop"},
		{"select jobq.act_queue('me', 'pause', null, null)", "queue", "1 to 128 characters, not null"},
		{"select jobq.act_queue('me', 'pause', repeat('q', 129), null)", "queue", "1 to 128 characters, not 129"},
		{"select jobq.act_queue('me', 'pause', 'q', repeat('n', 2000))", "note", "at most 1024 characters, not 2000"},
		{"select jobq.act_queue_set('me', null, '{}')", "queue", "1 to 128 characters, not null"},
		{"select jobq.act_queue_set('me', 'q', '[]')", "change", "must be a JSON object"},
		{"select jobq.act_queue_set('me', 'q', null)", "change", "must be a JSON object"},
		{"select jobq.act_queue_set('me', 'q', '{\"paused_by\": \"me\"}')", "change", `unknown member "paused_by"`},
		{"select jobq.act_queue_set('me', 'q', '{\"lease\": null}')", "change", "lease must not be null"},
		{"select jobq.act_queue_set('me', 'q', '{\"lease\": \"no\"}')", "change", "invalid input syntax for type interval"},
		{"select jobq.act_queue_set('me', 'q', '{\"lease\": \"0 s\"}')", "lease", "1 second to 30 days"},
		{"select jobq.act_queue_set('me', 'q', '{\"lease\": \"1 minute\", \"extend_every\": \"31 s\"}')", "extend_every", "positive and at most half of lease"},
		{"select jobq.act_queue_set('me', 'q', '{\"heartbeat\": \"no\"}')", "heartbeat", "ticker, progress, both or off"},
		{"select jobq.act_queue_set('me', 'q', '{\"stale_grace\": \"-1 s\"}')", "stale_grace", "0 to 30 days"},
		{"select jobq.act_queue_set('me', 'q', '{\"redelivery\": \"middle\"}')", "redelivery", "head or tail"},
		{"select jobq.act_queue_set('me', 'q', '{\"redelivery\": \"head\", \"redelivery_delay\": \"1 s\"}')", "redelivery_delay", "needs redelivery tail"},
		{"select jobq.act_queue_set('me', 'q', '{\"key_separator\": \"\"}')", "key_separator", "1 to 8 characters"},
		{"select jobq.act_queue_set('me', 'q', '{\"key_separator\": \"123456789\"}')", "key_separator", "1 to 8 characters"},
		{"select jobq.act_settings('me', '1 hour')", "finished_retention", "1 day to 10 years, not 01:00:00"},
		{"select jobq.act_settings('me', failed_retention => '1 hour')", "failed_retention", "1 day to 10 years"},
	} {
		_, err := client.Pool().Exec(ctx, test.sql)
		jobtest.RequireRefusal(t, err, test.argument, test.limit, test.sql)
	}
	entries, err := monitor.New(client).Audit(ctx, 0, 10)
	require.NoError(t, err)
	require.Empty(t, entries)
	queues, err := monitor.New(client).Queues(ctx)
	require.NoError(t, err)
	require.Len(t, queues, 1, "only that of the job")
}

// A change of a queue's settings is in the audit with what it set, an undo puts back
// what was set before, also the extend_every that a shorter lease has put back to its
// default, and a change that somebody has made since stays.
func TestUndoSetQueue(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	w := jobtest.NewWorker(t)
	settings := func() monitor.QueueSettings {
		queues, err := w.Monitor.Queues(ctx)
		require.NoError(t, err)
		require.Len(t, queues, 1)
		return queues[0].QueueSettings
	}
	first, err := w.Operator.SetQueue(ctx, "q", operator.QueueChange{Lease: new(time.Hour), ExtendEvery: new(20 * time.Minute), ResetOnReap: new(true)})
	require.NoError(t, err)
	before := settings()
	again, err := w.Operator.SetQueue(ctx, "q", operator.QueueChange{Lease: new(time.Hour)})
	require.NoError(t, err)
	require.Zero(t, again, "it was so already")
	require.NoError(t, w.Client.Pool().QueryRow(ctx, `select coalesce(jobq.act_queue_set('me', 'q', '{"lease": "60 minutes", "stale_grace": "0 days"}'), 0)`).Scan(&again))
	require.Zero(t, again, "in other words too")

	change, err := w.Operator.SetQueue(ctx, "q", operator.QueueChange{Lease: new(30 * time.Second)})
	require.NoError(t, err)
	require.Equal(t, 10*time.Second, settings().ExtendEvery)
	entries, err := w.Monitor.Audit(ctx, 0, 1)
	require.NoError(t, err)
	require.Equal(t, change, entries[0].ID)
	require.Equal(t, []any{jobq.ActionSettings, "q", "test"}, []any{entries[0].Action, entries[0].Target, entries[0].Actor})
	require.JSONEq(t, `{"lease": "00:00:30", "extend_every": null}`, string(entries[0].Change))

	_, err = w.Operator.Undo(ctx, first)
	require.ErrorIs(t, err, jobq.ErrConflict)
	require.ErrorContains(t, err, fmt.Sprintf("the settings of queue q have been changed meanwhile, by action %d", change))
	_, err = w.Operator.Undo(ctx, change)
	require.NoError(t, err)
	require.Equal(t, before, settings())

	paused, err := w.Operator.PauseQueue(ctx, "q", "")
	require.NoError(t, err)
	of, err := w.Operator.SetQueue(ctx, "q", operator.QueueChange{Heartbeat: new(jobq.HeartbeatBoth)})
	require.NoError(t, err)
	_, err = w.Operator.Undo(ctx, paused.AuditID)
	require.NoError(t, err, "a pause is not undone by settings")
	_, err = w.Operator.Undo(ctx, of)
	require.NoError(t, err)
	require.Equal(t, before, settings())
}
