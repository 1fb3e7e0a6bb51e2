package jobq_test

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/jobtest"
)

// Pages over jobs in all states have no gaps and no repeats, whatever the
// filter, and the filters agree with what the database says.
func TestListAllStates(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	w := jobtest.NewWorker(t)
	random := rand.New(rand.NewPCG(1, 2)) // #nosec G404 -- a test
	states := jobq.States()
	for range 60 {
		w.InState(states[random.IntN(len(states))], jobq.EnqueueOptions{Tags: []string{[]string{"x", "y"}[random.IntN(2)], "z"}})
	}
	walk := func(filter jobq.Filter) (ids []int64) {
		for {
			page, err := w.Client.List(ctx, filter)
			require.NoError(t, err)
			require.LessOrEqual(t, len(page.Jobs), filter.Limit)
			for _, job := range page.Jobs {
				require.Nil(t, job.Args, "a list has no args")
				ids = append(ids, job.ID)
			}
			if page.Next == 0 {
				return ids
			}
			require.Len(t, page.Jobs, filter.Limit, "only the last page is short")
			filter.Before = page.Next
		}
	}
	want := func(where string) (ids []int64) {
		rows, err := w.Client.Pool().Query(ctx, "select id from jobq.job where "+where+" order by id desc")
		require.NoError(t, err)
		for rows.Next() {
			var id int64
			require.NoError(t, rows.Scan(&id))
			ids = append(ids, id)
		}
		require.NoError(t, rows.Err())
		return ids
	}
	for _, limit := range []int{1, 7, 60, 1000} {
		require.Equal(t, want("true"), walk(jobq.Filter{Limit: limit}))
		require.Equal(t, want("tags @> '{x}'"), walk(jobq.Filter{Limit: limit, Tag: "x"}))
	}
	total := 0
	for _, state := range states {
		ids := walk(jobq.Filter{Limit: 3, States: []jobq.State{state}})
		require.Equal(t, want("state = '"+string(state)+"'"), ids)
		require.Equal(t, ids, walk(jobq.Filter{Limit: 1000, Queue: "to be " + string(state), Kind: "greeting"}))
		total += len(ids)
	}
	require.Equal(t, 60, total)
	require.Equal(t, want("state in ('failed', 'scheduled') and tags @> '{y}'"),
		walk(jobq.Filter{Limit: 2, States: []jobq.State{jobq.StateFailed, jobq.StateScheduled}, Tag: "y"}))
	_, err := w.Client.List(ctx, jobq.Filter{States: []jobq.State{"asleep"}})
	require.ErrorIs(t, err, jobq.ErrInvalid)
	require.ErrorContains(t, err, "asleep")
}

// A list with values has of each job what Get has, in every state.
func TestListValues(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	w := jobtest.NewWorker(t)
	for _, state := range jobq.States() {
		w.InState(state, jobq.EnqueueOptions{Metadata: json.RawMessage(`{"by": 1.50}`)})
	}
	// Args over 1000 bytes are kept apart.
	_, err := w.Client.Enqueue(ctx, jobq.RawArgs{Name: "big", JSON: jobtest.JSON(t, make([]int, 1000))}, nil)
	require.NoError(t, err)
	_, err = w.Client.Pool().Exec(ctx, "update jobq.run set result = '{\"loss\": 0.50}', checkpoint = '[2]' where state is null")
	require.NoError(t, err)
	page, err := w.Client.List(ctx, jobq.Filter{Values: true})
	require.NoError(t, err)
	require.Len(t, page.Jobs, len(jobq.States())+1)
	results := 0
	for _, job := range page.Jobs {
		got, err := w.Client.Get(ctx, job.ID)
		require.NoError(t, err)
		require.NotNil(t, job.Args)
		require.Equal(t, []string{string(got.Args), string(got.Checkpoint)}, []string{string(job.Args), string(job.Checkpoint)}, job.State)
		if job.State == jobq.StateRunning {
			require.Nil(t, job.Result, "it has not ended")
			continue
		}
		require.Equal(t, string(got.Result), string(job.Result), job.State)
		results += min(len(job.Result), 1)
	}
	require.Positive(t, results)
}

// The grammar chooses what it says, in every stage that a job can be in; the
// figures come from the same conditions written by hand.
func TestListMatch(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	w := jobtest.NewWorker(t)
	for i, state := range append(jobq.States(), jobq.States()...) {
		w.InState(state, jobq.EnqueueOptions{Tags: []string{[]string{"eu", "us"}[i%2]}, Metadata: jobtest.JSON(t, map[string]any{"trace": i}), Priority: int16(i - 3)})
	}
	big := map[string]any{"tenant": 4411, "size": 70_000.5, "user": map[string]any{"name": "Ann Lee"}, "filler": make([]int, 2000)}
	_, err := w.Client.Enqueue(ctx, jobq.RawArgs{Name: "Send100%", JSON: jobtest.JSON(t, big)}, &jobq.EnqueueOptions{Queue: "email"})
	require.NoError(t, err)
	for match, where := range map[string]string{
		"":                           "true",
		"state:failed":               "state = 'failed'",
		"-state:failed,running":      "state not in ('failed', 'running')",
		"state:retrying":             "state = 'scheduled' and attempts > 0",
		"-state:retrying":            "not (state = 'scheduled' and attempts > 0)",
		"queue:email":                "queue = 'email'",
		"queue:*e*,email -queue:em*": "queue like '%e%' and queue not like 'em%'",
		`kind:"Send100%"`:            "kind = 'Send100%'",
		"kind:Send*%":                "kind like 'Send%'",
		"tag:eu":                     "tags @> '{eu}'",
		"-tag:eu":                    "tags @> '{eu}' is not true",
		"args.tenant=4411":           "kind = 'Send100%'",
		`args.user.name="Ann Lee"`:   "kind = 'Send100%'",
		"args.user.name=Ann*":        "kind = 'Send100%'",
		"args.size>70000 ":           "kind = 'Send100%'",
		"args.size>70001":            "false",
		"args.tenant>x*":             "",
		"meta.trace=3":               "metadata ->> 'trace' = '3'",
		"age:<1h":                    "true",
		"age:>1h":                    "false",
		"err:BOOM":                   "last_error ilike '%boom%'",
		"send100%":                   "kind = 'Send100%'",
		"id:1,2,3":                   "id in (1, 2, 3)",
		"id:>4 attempts:>=1":         "id > 4 and attempts >= 1",
		"priority:<=-1":              "priority <= -1",
		"worker:*":                   "lease_owner is not null",
		"2":                          "id = 2",
	} {
		page, err := w.Client.List(ctx, jobq.Filter{Match: match, Limit: 1000})
		if where == "" {
			require.ErrorIs(t, err, jobq.ErrInvalid, match)
			continue
		}
		require.NoError(t, err, match)
		require.EqualValues(t, w.Count("select count(*) from jobq.job where "+where), len(page.Jobs), match)
	}
}

// The other orders page without gaps too, and only where they exist.
func TestListSorted(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	w := jobtest.NewWorker(t)
	for range 7 {
		w.InState(jobq.StateFailed, jobq.EnqueueOptions{})
		w.InState(jobq.StateCancelled, jobq.EnqueueOptions{})
		w.InState(jobq.StateScheduled, jobq.EnqueueOptions{})
		w.InState(jobq.StateRunning, jobq.EnqueueOptions{})
	}
	// The job with the lowest id is not the one that has run longest.
	// Some were claimed ahead, and have not begun.
	_, err := w.Client.Pool().Exec(ctx, "update jobq.lease set claimed_at = claimed_at - job_ids[1] % 3 * interval '1 hour', begun = case when job_ids[1] % 5 < 2 then 0 else begun end")
	require.NoError(t, err)
	for _, test := range []struct {
		filter jobq.Filter
		sql    string
	}{
		{jobq.Filter{Match: "state:failed,cancelled", Sort: jobq.SortFinished}, "select array_agg(id order by finished_at desc, id desc) from jobq.job where finished_at is not null"},
		{jobq.Filter{Match: "state:failed", Sort: jobq.SortFinished, Reverse: true}, "select array_agg(id order by finished_at, id) from jobq.job where state = 'failed'"},
		{jobq.Filter{Match: "state:scheduled", Sort: jobq.SortDue}, "select array_agg(id order by run_at, id) from jobq.pending"},
		{jobq.Filter{Match: "state:running", Sort: jobq.SortStarted}, "select array_agg(id order by started_at, id) from jobq.job where state = 'running'"},
		{jobq.Filter{Match: "state:running", Sort: jobq.SortStarted, Reverse: true}, "select array_agg(id order by started_at desc, id desc) from jobq.job where state = 'running'"},
		{jobq.Filter{Reverse: true}, "select array_agg(id order by id) from jobq.job"},
	} {
		var want, got []int64
		require.NoError(t, w.Client.Pool().QueryRow(ctx, test.sql).Scan(&want))
		for filter := test.filter; ; {
			filter.Limit = 3
			page, err := w.Client.List(ctx, filter)
			require.NoError(t, err)
			for _, job := range page.Jobs {
				got = append(got, job.ID)
				one, err := w.Client.Get(ctx, job.ID)
				require.NoError(t, err)
				require.Equal(t, one.StartedAt, job.StartedAt, "of job %d in a list, and alone", job.ID)
			}
			if filter.After = page.Cursor; page.Cursor == "" {
				break
			}
		}
		require.Equal(t, want, got, test.sql)
	}
	for _, wrong := range []jobq.Filter{
		{Sort: jobq.SortFinished},
		{Sort: jobq.SortDue, Match: "state:failed"},
		{Sort: jobq.SortStarted, Match: "state:available"},
		{Sort: "kind"},
		{After: "x"},
		{After: "1.2"},
		{Sort: jobq.SortDue, Match: "state:scheduled", After: "7"},
		{Match: "foo:bar"},
		{States: []jobq.State{"gone"}},
	} {
		_, err := w.Client.List(ctx, wrong)
		require.ErrorIs(t, err, jobq.ErrInvalid)
	}
}
