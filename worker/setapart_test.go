package worker_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/pgtest"
	"github.com/jobq-dev/jobq/worker"
)

// A job that no claim can read does not keep the other jobs of its queue from running: it fails for good, names why,
// and uses no attempt. Method: rows as a superuser can plant them past the triggers and CHECKs, one kind of
// oddity each, at the head of the line, with and without partition keys.
func TestUnreadableRowIsSetApart(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ change, want string }{
		"args of 6 GB as text": {
			"insert into jobq.payload select id, (select jsonb_agg('1e131071'::numeric) from generate_series(1, 20000)) from jobq.pending where kind = 'odd'; update jobq.pending set args = null, args_apart = true where kind = 'odd'",
			"args must be at most",
		},
		"metadata of 2 GB as text": {"update jobq.pending set metadata = (select jsonb_agg('1e131071'::numeric) from generate_series(1, 15000)) where kind = 'odd'", "metadata must be at most"},
	} {
		for _, key := range []string{"", "customer 1"} {
			t.Run(name+" "+key, func(t *testing.T) {
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
				var state, lastError string
				var attempts int
				require.NoError(t, pool.QueryRow(ctx, "select state::text, last_error, attempts from jobq.run where id = $1", odd.ID).Scan(&state, &lastError, &attempts))
				require.Equal(t, "failed", state)
				require.Contains(t, lastError, "the job cannot be read: ")
				require.Contains(t, lastError, test.want)
				require.Zero(t, attempts)
				require.Equal(t, 1, log.count("job cannot be read, it has failed for good"), strings.Join(log.lines, ""))
			})
		}
	}
}

// plant changes rows past the triggers and CHECKs that refuse odd values, as a superuser can.
func plant(t *testing.T, pool *pgxpool.Pool, change string) {
	t.Helper()
	_, err := pool.Exec(context.Background(), `begin; set local session_replication_role = replica;
		alter table jobq.payload drop constraint "args must be at most args_bytes_max() bytes, 1 MiB by default";
		`+change+`; commit`)
	require.NoError(t, err)
}
