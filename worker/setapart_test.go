package worker_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/jobtest"
	"github.com/jobq-dev/jobq/internal/pgtest"
	"github.com/jobq-dev/jobq/operator"
	"github.com/jobq-dev/jobq/worker"
)

// A job that no claim can read does not keep the other jobs of its queue from running: it fails for good, names why,
// and uses no attempt. Method: rows as a superuser can plant them past the triggers and CHECKs, one kind of
// oddity each, at the head of the line, with and without partition keys.
func TestUnreadableRowIsSetApart(t *testing.T) {
	t.Parallel()
	for key, test := range map[string]struct{ change, want string }{
		"customer 1": {
			"insert into jobq.payload select id, ('[1e131071' || repeat(',1e131071', 50000) || ']')::jsonb from jobq.pending where kind = 'odd'; update jobq.pending set args = null, args_apart = true where kind = 'odd'",
			"args must be at most",
		},
		"": {"update jobq.pending set metadata = ('[1e131071' || repeat(',1e131071', 15000) || ']')::jsonb where kind = 'odd'", "metadata must be at most"},
	} {
		t.Run("partition key "+key, func(t *testing.T) {
			t.Parallel()
			ctx, pool := context.Background(), pgtest.Pool(t)
			client := clientWith(t, pool, nil)
			odd, err := client.Enqueue(ctx, jobq.RawArgs{Name: "odd", JSON: []byte(`{"n": 1}`)}, &jobq.EnqueueOptions{PartitionKey: key})
			require.NoError(t, err)
			var healthy []int64
			for n := range 5 {
				healthy = append(healthy, enqueue(t, client, n, &jobq.EnqueueOptions{PartitionKey: key}))
			}
			plant(t, pool, test.change)
			log := new(logged)
			w, err := worker.New(client, &worker.Config{NoJanitor: true, Logger: slog.New(slog.NewTextHandler(log, nil))})
			require.NoError(t, err)
			require.NoError(t, worker.HandleRaw(w, "odd", func(context.Context, *worker.Job[jobq.RawArgs]) error { return nil }, nil))
			require.NoError(t, worker.Handle(w, func(context.Context, *worker.Job[task]) error { return nil }, nil))
			run(t, w)
			for _, id := range healthy {
				awaitState(t, client, id, jobq.StateCompleted)
			}
			awaitSetApart(t, pool, odd.ID)
			var state, lastError string
			var attempts int
			require.NoError(t, pool.QueryRow(ctx, "select state::text, last_error, attempts from jobq.run where id = $1", odd.ID).Scan(&state, &lastError, &attempts))
			require.Equal(t, "failed", state)
			require.Contains(t, lastError, "the job cannot be read: ")
			require.Contains(t, lastError, test.want)
			require.Zero(t, attempts)
			require.Eventually(t, func() bool { return log.count("job cannot be read, it has failed for good") == 1 }, patience, 10*time.Millisecond)
		})
	}
}

// With short leases, a claim may not take as long as the server needs to find that a job has too long a text. It is set apart all
// the same, beside claims of other workers that lock it again and again.
func TestUnreadableRowIsSetApartWithShortLeases(t *testing.T) {
	t.Parallel()
	ctx, pool := context.Background(), pgtest.Pool(t)
	client, lease := clientWith(t, pool, nil), time.Second
	require.NoError(t, jobtest.ErrorOf(operator.New(client, "test").SetQueue(ctx, "default", operator.QueueChange{Lease: &lease})))
	odd, err := client.Enqueue(ctx, jobq.RawArgs{Name: "task", JSON: []byte(`{"n": 1}`)}, &jobq.EnqueueOptions{Priority: -1})
	require.NoError(t, err)
	plant(t, pool, "update jobq.pending set metadata = ('[1e131071' || repeat(',1e131071', 15000) || ']')::jsonb where priority = -1")
	var healthy []int64
	for n := range 20 {
		healthy = append(healthy, enqueue(t, client, n, nil))
	}
	for range 3 {
		w, err := worker.New(client, &worker.Config{NoJanitor: true})
		require.NoError(t, err)
		require.NoError(t, worker.Handle(w, func(context.Context, *worker.Job[task]) error { return nil }, nil))
		run(t, w)
	}
	awaitSetApart(t, pool, odd.ID)
	for _, id := range healthy {
		awaitState(t, client, id, jobq.StateCompleted)
	}
}

// awaitSetApart waits until a job has failed. The client's Get has an error for it, beside what can be read.
func awaitSetApart(t *testing.T, pool *pgxpool.Pool, id int64) {
	t.Helper()
	require.Eventually(t, func() bool {
		var failed bool
		err := pool.QueryRow(context.Background(), "select exists (select from jobq.run where id = $1 and state = 'failed')", id).Scan(&failed)
		return err == nil && failed
	}, patience, 10*time.Millisecond)
}

// plant changes rows past the triggers and CHECKs that refuse odd values, as a superuser can.
func plant(t *testing.T, pool *pgxpool.Pool, change string) {
	t.Helper()
	_, err := pool.Exec(context.Background(), `begin; set local session_replication_role = replica;
		alter table jobq.payload drop constraint "args must be at most args_bytes_max() bytes, 1 MiB by default";
		`+change+`; commit`)
	require.NoError(t, err)
}
