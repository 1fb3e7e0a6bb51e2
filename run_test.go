package jobq_test

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/pgtest"
)

// worker is what these tests run jobs with: the statements that package
// worker uses, one at a time.
type worker struct {
	*testing.T
	schema  *db.Schema
	queries *db.Queries
	client  *jobq.Client
}

func newWorker(t *testing.T) *worker {
	t.Helper()
	client := newClient(t)
	schema, err := db.NewSchema("")
	require.NoError(t, err)
	return &worker{T: t, schema: schema, queries: schema.Queries(client.Pool()), client: client}
}

// claim takes up to count greetings of the queue, by id.
func (w *worker) claim(queue string, count int32) []db.JobClaimRow {
	w.Helper()
	answer, err := w.schema.Exchange(context.Background(), w.client.Pool(), db.Exchange{Owner: "w", Claim: &db.JobClaimParams{
		Lease: db.Interval(time.Hour), Owner: "w", Queue: queue, Kinds: []string{"greeting"}, JobCount: count,
	}})
	require.NoError(w, err)
	slices.SortFunc(answer.Claimed, func(a, b db.JobClaimRow) int { return cmp.Compare(a.ID, b.ID) })
	return answer.Claimed
}

// at is a job's place in its lease.
func at(job db.JobClaimRow) db.Slot {
	return db.Slot{ID: job.ID, Token: job.LeaseToken, Slot: job.Slot, ClaimedAt: job.StartedAt.Time}
}

func (w *worker) complete(job db.JobClaimRow) {
	w.Helper()
	answer, err := w.schema.Exchange(context.Background(), w.client.Pool(), db.Exchange{
		Owner: "w", Completions: []db.Completion{{Slot: at(job), Result: json.RawMessage(`{"done": true}`), Output: "said"}},
	})
	require.NoError(w, err)
	require.Equal(w, []int64{job.ID}, answer.Completed)
}

// end ends a run in the way given, for another run at once where there is one.
func (w *worker) end(job db.JobClaimRow, outcome string, final bool) {
	w.Helper()
	answer, err := w.schema.Exchange(context.Background(), w.client.Pool(), db.Exchange{Owner: "w", Endings: []db.Ending{{
		Slot: at(job), Outcome: outcome, Error: "no luck", Delay: db.DelayOf(0), Final: final, Started: true,
	}}})
	require.NoError(w, err)
	require.Len(w, answer.Ended, 1)
}

// lose lets all leases expire and reaps them.
func (w *worker) lose() {
	w.Helper()
	require.NoError(w, pgtest.ExpireLeases(context.Background(), w.client.Pool()))
	_, err := w.schema.Reap(context.Background(), w.client.Pool(), nil, 1000, "test")
	require.NoError(w, err)
}

func (w *worker) count(sql string, args ...any) (count int) {
	w.Helper()
	require.NoError(w, w.client.Pool().QueryRow(context.Background(), sql, args...).Scan(&count))
	return count
}

// inState makes a job in that state. It needs a queue without others waiting.
func (w *worker) inState(want jobq.State, options jobq.EnqueueOptions) int64 {
	w.Helper()
	ctx := context.Background()
	if options.Queue == "" {
		options.Queue = "to be " + string(want)
	}
	if want == jobq.Scheduled {
		options.Delay = time.Hour
	}
	id := enqueue(w.T, w.client, &options)
	switch want {
	case jobq.Running:
		require.Len(w, w.claim(options.Queue, 1), 1)
	case jobq.Completed:
		w.complete(w.claim(options.Queue, 1)[0])
	case jobq.Failed:
		w.end(w.claim(options.Queue, 1)[0], "failed", true)
	case jobq.Cancelled:
		_, err := w.client.Cancel(ctx, id)
		require.NoError(w, err)
	case jobq.Scheduled, jobq.Available:
	}
	require.Equal(w, want, state(w.T, w.client, id))
	return id
}

// claimed is the lease of a running job.
func (w *worker) claimed(id int64) db.JobClaimRow {
	w.Helper()
	job, err := w.client.Get(context.Background(), id)
	require.NoError(w, err)
	require.Equal(w, jobq.Running, job.State)
	return db.JobClaimRow{ID: id, LeaseToken: job.LeaseToken, StartedAt: db.Timestamp(*job.StartedAt)}
}

func second[T any](_ T, err error) error { return err }
