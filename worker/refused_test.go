package worker_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/pgtest"
	"github.com/jobq-dev/jobq/worker"
)

// Whatever the server says when it does not take a result, other than that the
// value is bad, is no fault of the run: the result is kept until the server takes
// it. Unless it is trouble of the whole connection, others are stored meanwhile. A
// trigger of the test's refuses one job's completion, with each code, until its
// table is empty.
func TestTroubleIsNoFailedRun(t *testing.T) {
	t.Parallel()
	for _, code := range []string{"42P05", "26000", "42501", "42P01", "P0001", "XX000", "55000", "25P02", "23505", "22P03"} {
		t.Run(code, func(t *testing.T) {
			t.Parallel()
			ctx := context.Background()
			client := newClient(t)
			refused := enqueue(t, client, 1, nil)
			_, err := client.Pool().Exec(ctx, fmt.Sprintf(`
				create table public.trouble (id bigint);
				insert into public.trouble values (%d);
				create sequence public.refused`, refused))
			require.NoError(t, err)
			require.NoError(t, pgtest.BeforeCompletion(ctx, client.Pool(), fmt.Sprintf(`
				if exists (select from public.trouble t where t.id = job) then
				  perform nextval('public.refused');
				  raise sqlstate '%s';
				end if;`, code)))
			ran := make(chan int, 10)
			start(t, client, &worker.Config{PollInterval: 50 * time.Millisecond}, func(_ context.Context, job *worker.Job[task]) error {
				ran <- job.Args.N
				return job.SetResult(job.Args.N) // which ends on its own row
			})
			require.Eventually(t, func() bool {
				var count int64
				require.NoError(t, client.Pool().QueryRow(ctx, "select last_value from public.refused").Scan(&count))
				return count > 3
			}, hung, 10*time.Millisecond, "the result is not sent again")
			other := enqueue(t, client, 2, nil)
			if !db.IsTransient(&pgconn.PgError{Code: code}) {
				awaitState(t, client, other, jobq.StateCompleted)
			}
			_, err = client.Pool().Exec(ctx, "delete from public.trouble")
			require.NoError(t, err)
			job := awaitState(t, client, refused, jobq.StateCompleted)
			require.Zero(t, job.Attempts)
			require.Empty(t, attempts(t, client, refused))
			awaitState(t, client, other, jobq.StateCompleted)
			require.Len(t, ran, 2, "runs")
		})
	}
}
