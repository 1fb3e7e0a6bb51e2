package jobtest

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
	"github.com/jobq-dev/jobq/monitor"
	"github.com/jobq-dev/jobq/operator"
)

// Worker is what these tests run jobs with: the statements that package
// worker uses, one at a time.
type Worker struct {
	*testing.T
	Schema   *db.Schema
	Queries  *db.Queries
	Client   *jobq.Client
	Monitor  *monitor.Monitor
	Operator *operator.Operator // acts as "test"
}

func NewWorker(t *testing.T) *Worker {
	t.Helper()
	client := Client(t)
	schema, err := db.NewSchema("")
	require.NoError(t, err)
	return &Worker{T: t, Schema: schema, Queries: schema.Queries(client.Pool()), Client: client, Monitor: monitor.New(client), Operator: operator.New(client, "test")}
}

// Claim takes up to count greetings of the queue, by id.
func (w *Worker) Claim(queue string, count int32) []db.JobClaimRow {
	w.Helper()
	answer, err := w.Schema.Exchange(context.Background(), w.Client.Pool(), db.Exchange{Owner: "w", Claim: &db.JobClaimParams{
		Lease: db.Interval(time.Hour), Owner: "w", Queue: queue, Kinds: []string{"greeting"}, JobCount: count,
	}})
	require.NoError(w, err)
	slices.SortFunc(answer.Claimed, func(a, b db.JobClaimRow) int { return cmp.Compare(a.ID, b.ID) })
	return answer.Claimed
}

// At is a job's place in its lease.
func At(job db.JobClaimRow) db.Slot {
	return db.Slot{ID: job.ID, Token: job.LeaseToken, Slot: job.Slot, ClaimedAt: job.StartedAt.Time}
}

func (w *Worker) Complete(job db.JobClaimRow) {
	w.Helper()
	answer, err := w.Schema.Exchange(context.Background(), w.Client.Pool(), db.Exchange{
		Owner: "w", Completions: []db.Completion{{Slot: At(job), Result: json.RawMessage(`{"done": true}`), Output: "said"}},
	})
	require.NoError(w, err)
	require.Equal(w, []int64{job.ID}, answer.Completed)
}

// End ends a run in the way given, for another run at once where there is one.
func (w *Worker) End(job db.JobClaimRow, outcome string, final bool) {
	w.Helper()
	answer, err := w.Schema.Exchange(context.Background(), w.Client.Pool(), db.Exchange{Owner: "w", Endings: []db.Ending{{
		Slot: At(job), Outcome: outcome, Error: "no luck", Delay: db.DelayOf(0), Final: final, Started: true,
	}}})
	require.NoError(w, err)
	require.Len(w, answer.Ended, 1)
}

// Lose lets all leases expire and reaps them.
func (w *Worker) Lose() {
	w.Helper()
	require.NoError(w, pgtest.ExpireLeases(context.Background(), w.Client.Pool()))
	_, err := w.Schema.Reap(context.Background(), w.Client.Pool(), nil, 1000, "test")
	require.NoError(w, err)
}

func (w *Worker) Count(sql string, args ...any) (count int) {
	w.Helper()
	require.NoError(w, w.Client.Pool().QueryRow(context.Background(), sql, args...).Scan(&count))
	return count
}

// InState makes a job in that state. It needs a queue without others waiting.
func (w *Worker) InState(want jobq.State, options jobq.EnqueueOptions) int64 {
	w.Helper()
	ctx := context.Background()
	if options.Queue == "" {
		options.Queue = "to be " + string(want)
	}
	switch want {
	case jobq.StateScheduled:
		options.Delay = time.Hour
	case jobq.StateWaiting:
		// For one that never completes, and that leaves nothing else behind.
		parent := Enqueue(w.T, w.Client, &jobq.EnqueueOptions{Queue: "to be waited for"})
		options.After, options.OnParentFailure = []int64{parent}, jobq.ParentFailureWait
		defer func() { w.Count("select jobq.delete_job($1)::integer", parent) }()
	default:
	}
	id := Enqueue(w.T, w.Client, &options)
	switch want {
	case jobq.StateRunning:
		require.Len(w, w.Claim(options.Queue, 1), 1)
	case jobq.StateCompleted:
		w.Complete(w.Claim(options.Queue, 1)[0])
	case jobq.StateFailed:
		w.End(w.Claim(options.Queue, 1)[0], "failed", true)
	case jobq.StateCancelled:
		_, err := w.Client.Cancel(ctx, id)
		require.NoError(w, err)
	case jobq.StateWaiting, jobq.StateScheduled, jobq.StateAvailable:
	}
	require.Equal(w, want, State(w.T, w.Client, id))
	return id
}

// Claimed is the lease of a running job.
func (w *Worker) Claimed(id int64) db.JobClaimRow {
	w.Helper()
	job, err := w.Client.Get(context.Background(), id)
	require.NoError(w, err)
	require.Equal(w, jobq.StateRunning, job.State)
	return db.JobClaimRow{ID: id, LeaseToken: job.LeaseToken, StartedAt: db.Timestamp(*job.StartedAt)}
}

// Run claims a job of the queue and kind that it enqueues.
func (w *Worker) Run(queue, kind string) db.JobClaimRow {
	w.Helper()
	ctx := context.Background()
	_, err := w.Client.Pool().Exec(ctx, "select jobq.enqueue($1, queue => $2)", kind, queue)
	require.NoError(w, err)
	answer, err := w.Schema.Exchange(ctx, w.Client.Pool(), db.Exchange{Owner: "w", Claim: &db.JobClaimParams{
		Lease: db.Interval(time.Hour), Owner: "w", Queue: queue, Kinds: []string{kind}, JobCount: 1,
	}})
	require.NoError(w, err)
	require.Len(w, answer.Claimed, 1)
	return answer.Claimed[0]
}

// Fail runs such a job, which fails for good.
func (w *Worker) Fail(queue, kind, reason string) int64 {
	w.Helper()
	job := w.Run(queue, kind)
	_, err := w.Schema.Exchange(context.Background(), w.Client.Pool(), db.Exchange{Owner: "w", Endings: []db.Ending{{
		Slot: At(job), Outcome: string(jobq.OutcomeFailed), Error: reason, Final: true, Started: true,
	}}})
	require.NoError(w, err)
	return job.ID
}

// Story is all that is stored about a job, as text.
func (w *Worker) Story(id int64) string {
	w.Helper()
	var story string
	require.NoError(w, w.Client.Pool().QueryRow(context.Background(), `
		select (to_jsonb(j) - array['run_at_fraction'])::text || coalesce((select jsonb_agg(to_jsonb(a))::text from jobq.attempt a where a.job_id = j.id), '')
			|| exists (select from jobq.unique_key u where u.job_id = j.id)
		from jobq.job j where j.id = $1`, id).Scan(&story))
	return story
}

// RunToken is what a program calls jobq.complete and its like with, for the run of a job
// that was claimed.
func RunToken(job db.JobClaimRow) string {
	return db.RunToken(pgtest.RunKey, job.LeaseToken, job.StartedAt.Time, job.Slot)
}
