package operator_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/jobtest"
	"github.com/jobq-dev/jobq/operator"
)

// everyChange changes all that can be.
func everyChange(runAt time.Time) operator.JobChange {
	return operator.JobChange{
		Args: json.RawMessage(`{"name": "<edited>", "n": 12345678901234567890.10}`), Queue: new("other"), Priority: new(int16(-7)),
		RunAt: &runAt, MaxAttempts: new(3), Tags: &[]string{"b", `"c"`}, Metadata: json.RawMessage(`{"m": 2}`),
	}
}

// An edit changes all that it names and nothing else, the audit says what, and
// an undo takes it back to the last detail.
func TestEdit(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	w := jobtest.NewWorker(t)
	ana := operator.New(w.Client, "ana@laptop via jobq")
	for _, from := range []jobq.State{jobq.StateAvailable, jobq.StateScheduled} {
		for _, delay := range []time.Duration{-time.Hour, 2 * time.Hour} {
			name := fmt.Sprint(from, delay)
			id := w.InState(from, jobq.EnqueueOptions{Queue: name, UniqueKey: name, Tags: []string{"a"}, Metadata: json.RawMessage(`{"m": 1}`)})
			before := w.Story(id)
			runAt := time.Now().Add(delay).UTC().Truncate(time.Microsecond)
			acted, err := ana.Edit(ctx, everyChange(runAt), operator.Target{ID: id})
			require.NoError(t, err, name)
			require.Empty(t, acted.Problems(), name)
			require.Equal(t, 1, acted.Changed())
			job, err := w.Client.Get(ctx, id)
			require.NoError(t, err)
			require.Equal(t, map[bool]jobq.State{true: jobq.StateScheduled, false: jobq.StateAvailable}[delay > 0], job.State, name)
			require.JSONEq(t, `{"name": "<edited>", "n": 12345678901234567890.10}`, string(job.Args))
			require.Contains(t, string(job.Args), "12345678901234567890.10", "numbers are not rounded")
			require.JSONEq(t, `{"m": 2}`, string(job.Metadata))
			require.Equal(t, []any{"other", int16(-7), runAt, 3, []string{"b", `"c"`}, name},
				[]any{job.Queue, job.Priority, job.RunAt, job.MaxAttempts, job.Tags, job.UniqueKey}, name)

			again, err := ana.Edit(ctx, everyChange(runAt), operator.Target{ID: id})
			require.NoError(t, err)
			require.Zero(t, again.Changed(), "it is so already")
			undone, err := ana.Undo(ctx, acted.AuditID)
			require.NoError(t, err, name)
			require.Equal(t, 1, undone.Changed(), "%v", undone.Problems())
			require.Equal(t, before, w.Story(id), name)
		}
	}
	id := w.InState(jobq.StateAvailable, jobq.EnqueueOptions{Queue: "lists", Tags: []string{"a"}, Metadata: json.RawMessage(`{"m": 1}`)})
	_, err := ana.Edit(ctx, operator.JobChange{Tags: &[]string{}, Metadata: json.RawMessage("null")}, operator.Target{ID: id})
	require.NoError(t, err)
	require.Equal(t, 1, w.Count("select count(*) from jobq.pending where id = $1 and tags is null and metadata is null", id))
	entries, err := w.Monitor.Audit(ctx, 0, 1)
	require.NoError(t, err)
	require.Equal(t, jobq.ActionEdit, entries[0].Action)
	require.JSONEq(t, `{"tags": null, "metadata": null}`, string(entries[0].Change))
}

// Only a job that waits is edited; the answer says what the job is instead.
func TestEditRefusals(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	w := jobtest.NewWorker(t)
	ana := operator.New(w.Client, "ana@laptop via jobq")
	change := operator.JobChange{Priority: new(int16(1))}
	for _, state := range []jobq.State{jobq.StateRunning, jobq.StateCompleted, jobq.StateFailed, jobq.StateCancelled} {
		id := w.InState(state, jobq.EnqueueOptions{})
		acted, err := ana.Edit(ctx, change, operator.Target{ID: id})
		require.NoError(t, err)
		require.Equal(t, fmt.Sprintf("job %d is %s", id, state), acted.Problems()[0].Problem)
		require.Zero(t, w.Count("select count(*) from jobq.job where priority = 1"))
	}
	acted, err := ana.Edit(ctx, change, operator.Target{ID: 1 << 40})
	require.NoError(t, err)
	require.Equal(t, "no such job", acted.Problems()[0].Problem)

	id := w.InState(jobq.StateAvailable, jobq.EnqueueOptions{Queue: "tried", MaxAttempts: 5})
	w.End(w.Claim("tried", 1)[0], "failed", false)
	acted, err = ana.Edit(ctx, operator.JobChange{MaxAttempts: new(1)}, operator.Target{ID: id})
	require.NoError(t, err)
	require.Equal(t, "it has used 1 attempts: max_attempts must be more", acted.Problems()[0].Problem)

	before := w.Story(id)
	for want, change := range map[string]operator.JobChange{
		"nothing to change":                 {},
		"max_attempts must be 1 to 32767":   {MaxAttempts: new(0)},
		"queue must be 1 to 128 characters": {Queue: new("")},
		"queue must be valid UTF-8":         {Queue: new("caf\xe9")},
		"args must be at most":              {Args: jobtest.JSON(t, jobtest.LongText(1<<20))},
		"tags must be at most 32":           {Tags: new(make([]string, 33))},
		"metadata must be at most 64 KiB":   {Metadata: jobtest.JSON(t, jobtest.LongText(64<<10))},
		"NUL":                               {Args: json.RawMessage(`"\u0000"`)},
		"unexpected end of JSON":            {Args: json.RawMessage(`{"a":`)},
	} {
		_, err := ana.Edit(ctx, change, operator.Target{ID: id})
		require.ErrorIs(t, err, jobq.ErrInvalid, want)
		require.ErrorContains(t, err, want)
	}
	require.Equal(t, before, w.Story(id))
}

// What was changed since the operator looked is not overwritten, nor undone;
// what the change is not about may have changed.
func TestEditIsGuarded(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	w := jobtest.NewWorker(t)
	ana := operator.New(w.Client, "ana@laptop via jobq")
	id := w.InState(jobq.StateScheduled, jobq.EnqueueOptions{Queue: "q"})
	seen, err := w.Client.Get(ctx, id)
	require.NoError(t, err)
	edit := func(change operator.JobChange) *operator.Acted {
		acted, err := ana.Edit(ctx, change, operator.Target{ID: id, State: seen.State, LeaseToken: seen.LeaseToken, Seen: seen})
		require.NoError(t, err)
		return acted
	}
	first := edit(everyChange(seen.RunAt))
	require.Equal(t, 1, first.Changed())
	for field, change := range map[string]operator.JobChange{
		"priority": {Priority: new(int16(9))}, "queue": {Queue: new("third")}, "args": {Args: json.RawMessage(`{}`)},
		"max_attempts": {MaxAttempts: new(9)}, "tags": {Tags: &[]string{}}, "metadata": {Metadata: json.RawMessage(`1`)},
	} {
		require.Equal(t, "its "+field+" has changed meanwhile", edit(change).Problems()[0].Problem)
	}
	later := seen.RunAt.Add(time.Hour)
	second := edit(operator.JobChange{RunAt: &later})
	require.Equal(t, 1, second.Changed(), "the first edit left run_at alone: %v", second.Problems())
	undone, err := ana.Undo(ctx, first.AuditID)
	require.NoError(t, err)
	require.Equal(t, fmt.Sprintf("it was edited meanwhile, by action %d", second.AuditID), undone.Problems()[0].Problem)
	_, err = w.Client.Pool().Exec(ctx, "update jobq.pending set run_at = run_at + interval '1 s' where id = $1", id)
	require.NoError(t, err)
	undone, err = ana.Undo(ctx, second.AuditID)
	require.NoError(t, err)
	require.Equal(t, "its run_at has changed meanwhile", undone.Problems()[0].Problem)

	// A run is something that has happened, even if the job waits again.
	id = w.InState(jobq.StateAvailable, jobq.EnqueueOptions{Queue: "r"})
	acted, err := ana.Edit(ctx, operator.JobChange{Tags: &[]string{"x"}}, operator.Target{ID: id})
	require.NoError(t, err)
	w.End(w.Claim("r", 1)[0], "failed", false)
	undone, err = ana.Undo(ctx, acted.AuditID)
	require.NoError(t, err)
	require.Contains(t, undone.Problems()[0].Problem, "it has changed meanwhile, and is ")

	// A requeue that was followed by an edit is not undone without it.
	id = w.InState(jobq.StateFailed, jobq.EnqueueOptions{Queue: "s"})
	requeued, err := ana.Act(ctx, jobq.ActionRequeue, operator.Target{ID: id})
	require.NoError(t, err)
	acted, err = ana.Edit(ctx, operator.JobChange{Tags: &[]string{"x"}}, operator.Target{ID: id})
	require.NoError(t, err)
	for _, auditID := range []int64{acted.AuditID, requeued.AuditID} {
		undone, err = ana.Undo(ctx, auditID)
		require.NoError(t, err)
		require.Equal(t, 1, undone.Changed(), "%v", undone.Problems())
	}
	require.Equal(t, jobq.StateFailed, jobtest.State(t, w.Client, id))
}

// Args move between the row and the payload table as they grow and shrink, and
// the next run gets them either way.
func TestEditLargeArgs(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	w := jobtest.NewWorker(t)
	ana := operator.New(w.Client, "ana@laptop via jobq")
	small, large, larger := json.RawMessage(`{"name": "s"}`), jobtest.JSON(t, jobtest.Greeting{Name: jobtest.LongText(2000)}), jobtest.JSON(t, jobtest.Greeting{Name: jobtest.LongText(3000)})
	id := w.InState(jobq.StateAvailable, jobq.EnqueueOptions{Queue: "q"})
	for i, args := range []json.RawMessage{large, larger, small, large} {
		acted, err := ana.Edit(ctx, operator.JobChange{Args: args}, operator.Target{ID: id})
		require.NoError(t, err)
		require.Equal(t, 1, acted.Changed(), i)
		job, err := w.Client.Get(ctx, id)
		require.NoError(t, err)
		require.JSONEq(t, string(args), string(job.Args))
		apart := 0
		if len(args) > 1000 {
			apart = 1
		}
		require.Equal(t, apart, w.Count("select count(*) from jobq.payload where job_id = $1", id), i)
		require.Equal(t, apart, w.Count("select count(*) from jobq.pending where id = $1 and args_apart and args is null", id), i)
		entries, err := w.Monitor.Audit(ctx, 0, 1)
		require.NoError(t, err)
		if require.Less(t, len(entries[0].Change), 1000); apart > 0 {
			require.JSONEq(t, `{"args": "..."}`, string(entries[0].Change))
		}
		if i == 2 {
			_, err := ana.Undo(ctx, acted.AuditID)
			require.NoError(t, err)
			job, err := w.Client.Get(ctx, id)
			require.NoError(t, err)
			require.JSONEq(t, string(larger), string(job.Args))
		}
	}
	require.JSONEq(t, string(large), string(w.Claim("q", 1)[0].Args))
}

// An edited job has a place in the line where claims that look only beyond
// what they have had find it; another edit leaves the place alone.
func TestEditKeepsTheLine(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	w := jobtest.NewWorker(t)
	ana := operator.New(w.Client, "ana@laptop via jobq")
	place := func(id int64) int {
		return w.Count("select coalesce(position, 0) from jobq.pending where id = $1", id)
	}
	first := jobtest.Enqueue(t, w.Client, &jobq.EnqueueOptions{Queue: "q", Priority: 5})
	last := jobtest.Enqueue(t, w.Client, &jobq.EnqueueOptions{Queue: "q"})
	was := place(first)
	past := time.Now().Add(-time.Hour)
	for name, test := range map[string]struct {
		change operator.JobChange
		moves  bool
	}{
		"tags":             {operator.JobChange{Tags: &[]string{"x"}}, false},
		"args":             {operator.JobChange{Args: json.RawMessage(`{"name": "x"}`)}, false},
		"a past run_at":    {operator.JobChange{RunAt: &past}, false},
		"another priority": {operator.JobChange{Priority: new(int16(4))}, true},
		"another queue":    {operator.JobChange{Queue: new("r")}, true},
	} {
		acted, err := ana.Edit(ctx, test.change, operator.Target{ID: first})
		require.NoError(t, err)
		require.Equal(t, 1, acted.Changed(), name)
		require.Equal(t, test.moves, place(first) != was, name)
		require.Equal(t, test.moves, place(first) > place(last), name)
		_, err = ana.Undo(ctx, acted.AuditID)
		require.NoError(t, err)
		was = place(first)
		_, err = w.Client.Pool().Exec(ctx, "update jobq.pending set position = nextval('jobq.position_seq') where id = $1", last)
		require.NoError(t, err)
	}
	future := time.Now().Add(time.Hour)
	_, err := ana.Edit(ctx, operator.JobChange{RunAt: &future}, operator.Target{ID: first})
	require.NoError(t, err)
	require.Zero(t, place(first), "it is scheduled")
	_, err = ana.Edit(ctx, operator.JobChange{RunAt: &past}, operator.Target{ID: first})
	require.NoError(t, err)
	require.Greater(t, place(first), place(last))
	require.Len(t, w.Claim("q", 10), 2)
}

// A worker and an operator go for the same jobs at once. Each job is either
// edited and then claimed as edited, or claimed as it was, and then refused.
func TestEditRacesClaim(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	w := jobtest.NewWorker(t)
	ana := operator.New(w.Client, "ana@laptop via jobq")
	const jobs = 300
	targets := make([]operator.Target, jobs)
	for i := range targets {
		targets[i] = operator.Target{ID: jobtest.Enqueue(t, w.Client, &jobq.EnqueueOptions{Queue: "q"})}
	}
	claimed := make(map[int64]string)
	edited := make(map[int64]bool)
	var group errgroup.Group
	group.Go(func() error {
		for len(claimed) < jobs {
			for _, job := range w.Claim("q", 7) {
				claimed[job.ID] = string(job.Args)
			}
		}
		return nil
	})
	group.Go(func() error {
		for _, target := range targets {
			acted, err := ana.Edit(ctx, operator.JobChange{Args: json.RawMessage(`{"name":"edited"}`), Priority: new(int16(-1))}, target)
			if err != nil {
				return err
			}
			if edited[target.ID] = acted.Changed() == 1; !edited[target.ID] {
				if want := fmt.Sprintf("job %d is running", target.ID); acted.Problems()[0].Problem != want {
					return fmt.Errorf("%q is not %q", acted.Problems()[0].Problem, want)
				}
			}
		}
		return nil
	})
	require.NoError(t, group.Wait())
	for id, args := range claimed {
		require.Equal(t, edited[id], args == `{"name": "edited"}`, "job %d: %s", id, args)
	}
}

// An edit that comes while a claim is about to commit waits for it, and then
// says that the job runs: it never reports a change that went nowhere.
func TestEditWaitsForTheClaim(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	w := jobtest.NewWorker(t)
	id := jobtest.Enqueue(t, w.Client, nil)
	tx, err := w.Client.Pool().Begin(ctx)
	require.NoError(t, err)
	claimed, err := w.Schema.Queries(tx).JobClaim(ctx, db.JobClaimParams{
		Lease: db.Interval(time.Hour), Owner: "w", Queue: "default", Kinds: []string{"greeting"}, JobCount: 1,
		FromPriorities: []int32{math.MinInt16}, FromPositions: []int64{0}, ToPriorities: []int32{math.MaxInt16},
	})
	require.NoError(t, err)
	require.Len(t, claimed, 1)
	var acted *operator.Acted
	var group errgroup.Group
	group.Go(func() (err error) {
		acted, err = w.Operator.Edit(ctx, operator.JobChange{Queue: new("other")}, operator.Target{ID: id})
		return err
	})
	require.Eventually(t, func() bool {
		return w.Count("select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'") == 1
	}, 30*time.Second, 5*time.Millisecond)
	require.NoError(t, tx.Commit(ctx))
	require.NoError(t, group.Wait())
	require.Equal(t, fmt.Sprintf("job %d is running", id), acted.Problems()[0].Problem)
	require.Equal(t, 1, w.Count("select count(*) from jobq.job where queue = 'default'"))
}

// A clone is a new job that is made as the old one was, from any state; its
// undo removes it, unless a worker has had it.
func TestClone(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	w := jobtest.NewWorker(t)
	ana := operator.New(w.Client, "ana@laptop via jobq")
	for _, from := range jobq.States() {
		name := "from " + string(from)
		id := w.InState(from, jobq.EnqueueOptions{
			Queue: name, Priority: 4, MaxAttempts: 6, Timeout: time.Minute, BackoffBase: time.Second, BackoffMax: time.Hour, UniqueKey: name,
			Tags: []string{"a"}, Metadata: json.RawMessage(`{"m": 1}`),
		})
		old, err := w.Client.Get(ctx, id)
		require.NoError(t, err)
		clone, err := ana.Clone(ctx, id, operator.JobChange{})
		require.NoError(t, err)
		require.Equal(t, jobq.StateAvailable, clone.State)
		job, err := w.Client.Get(ctx, clone.ID)
		require.NoError(t, err)
		require.Equal(t, []any{old.Kind, old.Queue, old.Priority, old.Args, 6, old.Timeout, old.Tags, old.Metadata, 0, "", int64(0)},
			[]any{job.Kind, job.Queue, job.Priority, job.Args, job.MaxAttempts, job.Timeout, job.Tags, job.Metadata, job.Attempts, job.UniqueKey, job.LeaseToken})
		require.Equal(t, 1, w.Count("select count(*) from jobq.job where id = $1 and backoff_base = '1 s' and backoff_max = '1 h'", clone.ID))
		unchanged, err := w.Client.Get(ctx, id)
		require.NoError(t, err)
		require.Equal(t, old, unchanged)

		undone, err := ana.Undo(ctx, clone.AuditID)
		require.NoError(t, err)
		require.Equal(t, 1, undone.Changed())
		_, err = w.Client.Get(ctx, clone.ID)
		require.ErrorIs(t, err, jobq.ErrNotFound)
	}
	id := w.InState(jobq.StateFailed, jobq.EnqueueOptions{Queue: "q"})
	later := time.Now().Add(time.Hour).UTC().Truncate(time.Microsecond)
	large := jobtest.JSON(t, jobtest.Greeting{Name: jobtest.LongText(2000)})
	clone, err := ana.Clone(ctx, id, operator.JobChange{RunAt: &later, Args: large, Tags: &[]string{"again"}})
	require.NoError(t, err)
	require.Equal(t, jobq.StateScheduled, clone.State)
	job, err := w.Client.Get(ctx, clone.ID)
	require.NoError(t, err)
	require.Equal(t, []any{later, []string{"again"}}, []any{job.RunAt, job.Tags})
	require.JSONEq(t, string(large), string(job.Args))

	clone, err = ana.Clone(ctx, clone.ID, operator.JobChange{})
	require.NoError(t, err)
	require.JSONEq(t, string(large), string(w.Claim("q", 1)[0].Args))
	undone, err := ana.Undo(ctx, clone.AuditID)
	require.NoError(t, err)
	require.Equal(t, "it has changed meanwhile, and is running now", undone.Problems()[0].Problem)
	entries, err := w.Monitor.Audit(ctx, 0, 2)
	require.NoError(t, err)
	require.Equal(t, []any{jobq.ActionClone, []int64{clone.ID}, 1}, []any{entries[1].Action, entries[1].JobIDs, entries[1].Done})
	require.Contains(t, entries[1].Note, "of job ")
	_, err = ana.Clone(ctx, 1<<40, operator.JobChange{})
	require.ErrorIs(t, err, jobq.ErrNotFound)
	_, err = ana.Clone(ctx, id, operator.JobChange{Queue: new("")})
	require.ErrorIs(t, err, jobq.ErrInvalid)
}

// An edit by filter changes what waits, goes on where it was stopped with the
// change that it began with, and is undone as one.
func TestBulkEdit(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	w := jobtest.NewWorker(t)
	ana := operator.New(w.Client, "ana@laptop via jobq")
	for range 9 {
		jobtest.Enqueue(t, w.Client, &jobq.EnqueueOptions{Queue: "email"})
	}
	stopped, stop := context.WithCancel(ctx)
	params := operator.BulkParams{
		Action: jobq.ActionEdit, Filter: jobq.Filter{Match: "queue:email"}, RatePerSecond: 4,
		Change:  operator.JobChange{Queue: new("sms"), Priority: new(int16(2))},
		OnBatch: func(operator.BulkProgress) { stop() },
	}
	progress, err := ana.Bulk(stopped, params)
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, 4, progress.Done)
	entries, err := w.Monitor.Audit(ctx, 0, 1)
	require.NoError(t, err)
	require.Empty(t, entries[0].NoResume())
	require.JSONEq(t, `{"queue": "sms", "priority": 2}`, string(entries[0].Change))

	again, err := ana.Bulk(ctx, operator.BulkParams{Resume: progress.AuditID})
	require.NoError(t, err)
	require.Equal(t, operator.BulkProgress{AuditID: progress.AuditID, Done: 9}, again)
	require.Equal(t, 9, w.Count("select count(*) from jobq.pending where queue = 'sms' and priority = 2"))
	_, err = ana.Bulk(ctx, operator.BulkParams{Resume: progress.AuditID})
	require.ErrorIs(t, err, jobq.ErrConflict)
	require.ErrorContains(t, err, "has come to its end")
	entries, err = w.Monitor.Audit(ctx, 0, 1)
	require.NoError(t, err)
	require.Equal(t, "it has come to its end", entries[0].NoResume())
	require.Equal(t, "resumed by ana@laptop via jobq", entries[0].Note)

	undone, err := ana.Undo(ctx, progress.AuditID)
	require.NoError(t, err)
	require.Equal(t, 9, undone.Changed())
	require.Equal(t, 9, w.Count("select count(*) from jobq.pending where queue = 'email' and priority = 0"))
	_, err = ana.Bulk(ctx, operator.BulkParams{Action: jobq.ActionEdit})
	require.ErrorIs(t, err, jobq.ErrInvalid)
	_, err = ana.Bulk(ctx, operator.BulkParams{Resume: 1 << 40})
	require.ErrorIs(t, err, jobq.ErrNotFound)

	// An action that is undone while it runs does not go on.
	params.OnBatch = func(progress operator.BulkProgress) {
		_, err := ana.Undo(ctx, progress.AuditID)
		require.NoError(t, err)
	}
	_, err = ana.Bulk(ctx, params)
	require.ErrorIs(t, err, jobq.ErrConflict)
	require.ErrorContains(t, err, "is undone")
	require.Equal(t, 9, w.Count("select count(*) from jobq.pending where queue = 'email'"))
}

// No tags are no tags, however they were given, and can be edited.
func TestEditEmptyTags(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	w := jobtest.NewWorker(t)
	ana := operator.New(w.Client, "ana@laptop via jobq")
	ids := []int64{jobtest.Enqueue(t, w.Client, &jobq.EnqueueOptions{Tags: []string{}})}
	for _, sql := range []string{"select jobq.enqueue('k', tags => '{}')", "insert into jobq.pending (kind, tags) values ('k', '{}') returning id"} {
		var id int64
		require.NoError(t, w.Client.Pool().QueryRow(ctx, sql).Scan(&id))
		ids = append(ids, id)
	}
	require.Equal(t, 2, w.Count("select count(*) from jobq.pending where tags is null"), "but for what is written past the functions")
	for _, id := range ids {
		job, err := w.Client.Get(ctx, id)
		require.NoError(t, err)
		acted, err := ana.Edit(ctx, operator.JobChange{Tags: &[]string{"x"}}, operator.Target{ID: id, State: job.State, LeaseToken: job.LeaseToken, Seen: job})
		require.NoError(t, err)
		require.Empty(t, acted.Problems())
	}
}
