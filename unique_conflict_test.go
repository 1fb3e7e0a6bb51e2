package jobq_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/jobtest"
	"github.com/jobq-dev/jobq/internal/pgtest"
)

// Of 64 that enqueue at once with one key, one adds a job, whatever the others are to do.
func TestUniqueConflictRace(t *testing.T) {
	t.Parallel()
	for name, options := range map[string]jobq.EnqueueOptions{
		"skip":    {UniqueKey: "one", OnConflict: jobq.ConflictSkip},
		"replace": {UniqueKey: "one", OnConflict: jobq.ConflictReplace},
		"fail":    {UniqueKey: "one", OnConflict: jobq.ConflictFail},
		"for":     {UniqueKey: "one", UniqueFor: time.Hour},
		"by":      {UniqueBy: []string{"tenant"}, OnConflict: jobq.ConflictReplace},
		"window":  {UniqueBy: []string{"tenant"}, UniqueWindow: 24 * 365 * time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := context.Background()
			client := jobtest.Client(t)
			results := make([]jobq.Enqueued, 64)
			failures := make([]error, len(results))
			var group errgroup.Group
			for i := range results {
				group.Go(func() error {
					args := jobq.RawArgs{Name: "k", JSON: json.RawMessage(fmt.Sprintf(`{"tenant": 7, "i": %d}`, i))}
					results[i], failures[i] = client.Enqueue(ctx, args, &options)
					return nil
				})
			}
			require.NoError(t, group.Wait())
			page, err := client.List(ctx, jobq.Filter{})
			require.NoError(t, err)
			require.Len(t, page.Jobs, 1)
			id, added := page.Jobs[0].ID, 0
			for i, result := range results {
				switch {
				case failures[i] != nil:
					require.ErrorIs(t, failures[i], jobq.ErrDuplicate)
					require.ErrorContains(t, failures[i], fmt.Sprintf("is held by unfinished job %d", id))
					require.Equal(t, jobq.ConflictFail, options.OnConflict)
				case result == jobq.Enqueued{ID: id}:
					added++
				default:
					require.Equal(t, jobq.Enqueued{ID: id, Duplicate: true, Replaced: options.OnConflict == jobq.ConflictReplace}, result)
					require.NotEqual(t, jobq.ConflictFail, options.OnConflict)
				}
			}
			require.Equal(t, 1, added)
		})
	}
}

// A job that has not begun gets the new args, priority and start, and keeps all else, whether it is available,
// scheduled, waits for its retry or for another job. Args go between the row and the
// payload as they grow and shrink.
func TestReplaceOnConflict(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	w := jobtest.NewWorker(t)
	later := time.Now().Add(time.Hour).UTC().Truncate(time.Microsecond)
	for name, options := range map[string]jobq.EnqueueOptions{
		"available": {}, "scheduled": {Delay: time.Hour}, "retry": {},
		"waiting": {After: []int64{jobtest.Enqueue(t, w.Client, &jobq.EnqueueOptions{Queue: "parent"})}},
	} {
		options.UniqueKey, options.Queue, options.Tags = name, name, []string{"kept"}
		id := jobtest.Enqueue(t, w.Client, &options)
		if name == "retry" {
			w.End(w.Claim(name, 1)[0], "failed", false)
		}
		for i, text := range []string{"small", jobtest.LongText(2000), jobtest.LongText(3000), "small again"} {
			got, err := w.Client.Enqueue(ctx, jobtest.Greeting{Name: text},
				&jobq.EnqueueOptions{UniqueKey: name, Priority: int16(i), RunAt: later, Tags: []string{"new"}, OnConflict: jobq.ConflictReplace})
			require.NoError(t, err, name)
			require.Equal(t, jobq.Enqueued{ID: id, Duplicate: true, Replaced: true}, got, name)
			job, err := w.Client.Get(ctx, id)
			require.NoError(t, err)
			require.JSONEq(t, string(jobtest.JSON(t, jobtest.Greeting{Name: text})), string(job.Args), name)
			require.Equal(t, []any{int16(i), later, name, []string{"kept"}}, []any{job.Priority, job.RunAt.UTC(), job.Queue, job.Tags}, name)
			require.Equal(t, name == "waiting", job.State == jobq.StateWaiting)
		}
		// What the enqueue leaves out is the default, as it would be for a new job: it is due.
		_, err := w.Client.Enqueue(ctx, jobtest.Greeting{Name: "last"}, &jobq.EnqueueOptions{UniqueKey: name, OnConflict: jobq.ConflictReplace})
		require.NoError(t, err)
		if name == "waiting" {
			require.Equal(t, jobq.StateWaiting, jobtest.State(t, w.Client, id))
			continue
		}
		claimed := w.Claim(name, 1)
		require.Len(t, claimed, 1, name)
		require.JSONEq(t, string(jobtest.JSON(t, jobtest.Greeting{Name: "last"})), string(claimed[0].Args), name)
		require.Zero(t, claimed[0].Priority)
	}
	left, err := pgtest.ArgsApart(ctx, w.Client.Pool())
	require.NoError(t, err)
	require.Zero(t, left)
}

// A job that has begun is left as it is, and the caller is told: one that runs, one that will go on from
// a checkpoint or from its steps, and one that has ended and keeps its key.
func TestReplaceLeavesWhatHasBegun(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	w := jobtest.NewWorker(t)
	for name, begin := range map[string]func(id int64){
		"running": func(int64) { w.Claim("running", 1) },
		"checkpoint": func(id int64) {
			w.End(w.Claim("checkpoint", 1)[0], "failed", false)
			_, err := w.Client.Pool().Exec(ctx, "update jobq.pending set checkpoint = '7' where id = $1", id)
			require.NoError(t, err)
		},
		"step": func(id int64) {
			job := w.Claim("step", 1)[0]
			w.Count("select 1 from jobq.step_put($1, $2, 'charged', '1')", id, jobtest.RunToken(job))
			w.End(job, "failed", false)
		},
		"sleep": func(id int64) {
			w.Count("select 1 from jobq.step_sleep($1, $2, 'a while', '1 h')", id, jobtest.RunToken(w.Claim("sleep", 1)[0]))
		},
		"over": func(int64) { w.Complete(w.Claim("over", 1)[0]) },
	} {
		options := &jobq.EnqueueOptions{UniqueKey: name, Queue: name, UniqueFor: time.Hour, OnConflict: jobq.ConflictReplace}
		added, err := w.Client.Enqueue(ctx, jobtest.Greeting{Name: "old"}, options)
		require.NoError(t, err)
		begin(added.ID)
		before := w.Story(added.ID)
		got, err := w.Client.Enqueue(ctx, jobtest.Greeting{Name: "new"}, options)
		require.NoError(t, err)
		require.Equal(t, jobq.Enqueued{ID: added.ID, Duplicate: true}, got, name)
		require.Equal(t, before, w.Story(added.ID), name)
	}
}

// Of several jobs of one call with the same key, the last one counts where they replace one another, and
// none is added where one is to fail.
func TestConflictsWithinACall(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	client := jobtest.Client(t)
	jobs := func(conflict jobq.Conflict) (jobs []jobq.EnqueueParams) {
		for i := range 3 {
			jobs = append(jobs, jobtest.Raw("k", fmt.Sprint(i), &jobq.EnqueueOptions{UniqueKey: string(conflict), OnConflict: conflict}))
		}
		return append(jobs, jobtest.Raw("k", "0", nil))
	}
	_, err := client.EnqueueMany(ctx, jobs(jobq.ConflictFail))
	require.EqualError(t, err, "enqueue: unique key is held by another job: jobs[1]: unique_key 'fail' of kind 'k' is that of jobs[0]")
	jobtest.RequireNothingStored(t, client)
	got, err := client.EnqueueMany(ctx, jobs(jobq.ConflictReplace))
	require.NoError(t, err)
	id := got[0].ID
	replaced := jobq.Enqueued{ID: id, Duplicate: true, Replaced: true}
	require.Equal(t, []jobq.Enqueued{{ID: id}, replaced, replaced, {ID: got[3].ID}}, got)
	job, err := client.Get(ctx, id)
	require.NoError(t, err)
	require.JSONEq(t, "2", string(job.Args))
}

// A replace and a claim at the same moment: whichever has the row first, the job runs with args that its
// last accepted enqueue has given, or that enqueue is told that it has begun.
func TestReplaceMeetsClaim(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	w := jobtest.NewWorker(t)
	options := &jobq.EnqueueOptions{UniqueKey: "u", OnConflict: jobq.ConflictReplace}
	enqueue := func(name string) (jobq.Enqueued, error) {
		return w.Client.Enqueue(ctx, jobtest.Greeting{Name: name}, options)
	}
	first, err := enqueue("old")
	require.NoError(t, err)

	// The replace has it: the claim passes it by, and afterwards has the new args.
	tx, err := w.Client.Pool().Begin(ctx)
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(ctx) }()
	got, err := w.Client.EnqueueTx(ctx, tx, jobtest.Greeting{Name: "new"}, options)
	require.NoError(t, err)
	require.True(t, got.Replaced)
	require.Empty(t, w.Claim("default", 1))
	require.NoError(t, tx.Commit(ctx))

	// The claim has it, and has not committed yet: the replace waits, and is told.
	claim, err := w.Client.Pool().Begin(ctx)
	require.NoError(t, err)
	defer func() { _ = claim.Rollback(ctx) }()
	claimed, err := w.Schema.Queries(claim).JobClaim(ctx, db.JobClaimParams{
		FromPriorities: []int32{-32769}, FromPositions: []int64{0}, ToPriorities: []int32{32767},
		Queue: "default", Kinds: []string{"greeting"}, JobCount: 1, Lease: db.Interval(time.Hour), Owner: "w",
	})
	require.NoError(t, err)
	require.Len(t, claimed, 1)
	require.JSONEq(t, `{"name": "new"}`, string(claimed[0].Args))
	done := make(chan error, 1)
	go func() {
		var err error
		got, err = enqueue("late")
		done <- err
	}()
	jobtest.AwaitWaiting(t, w.Client.Pool(), 1)
	require.NoError(t, claim.Commit(ctx))
	require.NoError(t, <-done)
	require.Equal(t, jobq.Enqueued{ID: first.ID, Duplicate: true}, got)
	job, err := w.Client.Get(ctx, first.ID)
	require.NoError(t, err)
	require.JSONEq(t, `{"name": "new"}`, string(job.Args))
}

// Whatever claims and replaces meet, of the args that were accepted before a run begins the last ones run.
// Method: one enqueues numbers with one key while another runs what there is; each run must have the
// last number that was accepted before the next job was added.
func TestReplaceIsNeverLost(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	w := jobtest.NewWorker(t)
	const count = 300
	last := make(map[int64]string) // the args that were accepted last, by job
	begun := 0                     // enqueues that were told that the job had begun
	producing := make(chan struct{})
	var group errgroup.Group
	group.Go(func() error {
		defer close(producing)
		for i := range count {
			name := fmt.Sprint(i)
			got, err := w.Client.Enqueue(ctx, jobtest.Greeting{Name: name}, &jobq.EnqueueOptions{UniqueKey: "u", OnConflict: jobq.ConflictReplace})
			if err != nil {
				return err
			}
			if got.Duplicate && !got.Replaced {
				begun++
				continue
			}
			last[got.ID] = name
		}
		return nil
	})
	ran := make(map[int64]string)
	for more := true; more; {
		select {
		case <-producing:
			more = false
		default:
		}
		for _, job := range w.Claim("default", 10) {
			var args jobtest.Greeting
			require.NoError(t, json.Unmarshal(job.Args, &args))
			require.NotContains(t, ran, job.ID)
			ran[job.ID] = args.Name
			w.Complete(job)
		}
	}
	require.NoError(t, group.Wait())
	require.Equal(t, last, ran)
	t.Logf("%d jobs, %d enqueues were told that the job had begun, %d have replaced", len(ran), begun, count-begun-len(ran))
}
