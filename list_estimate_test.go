package jobq_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/jobtest"
)

// It is known without a look at the jobs about how many are in a state, also of a queue and a kind, once the tables were
// analyzed. Method: 60,000 jobs in known numbers.
func TestEstimate(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	client := jobtest.Client(t)
	exec := func(sql string) {
		t.Helper()
		_, err := client.Pool().Exec(ctx, sql)
		require.NoError(t, err)
	}
	exec(`insert into jobq.pending (kind, queue, position, waits) select 'k', case when i <= 8000 then 'a' else 'b' end, null, case when i > 15000 then true end from generate_series(1, 20000) i`)
	exec(`insert into jobq.run (id, lease_id, slot, state, finished_at, run_at, created_at, priority, attempts, max_attempts, crashes, args_apart, queue, kind)
		select 100000 + i, jobq.lease_id_next(), 0, case when i <= 12000 then 'failed'::jobq.job_state when i <= 14000 then 'cancelled' end, case when i <= 14000 then now() end, now(), now(), 0, 0, 1, 0, false, 'a', 'k' || i % 2
		from generate_series(1, 40000) i`)
	estimate := func(match string) int64 {
		t.Helper()
		about, err := client.Estimate(ctx, jobq.Filter{Match: match})
		require.NoError(t, err, match)
		return about
	}
	exec("analyze")
	for match, want := range map[string]float64{
		"": 60_000, "state:scheduled": 15_000, "state:waiting": 5_000, "state:scheduled queue:a": 8_000, "state:failed": 12_000, "state:failed,cancelled": 14_000,
		"state:completed": 26_000, "state:completed kind:k1": 13_000, "state:failed,scheduled": 27_000, "-state:failed": 48_000,
	} {
		require.InEpsilon(t, want, estimate(match), 0.25, match)
	}
	require.LessOrEqual(t, estimate("state:available"), int64(1_000))
	require.Zero(t, estimate("state:running"), "they are counted")
	require.Zero(t, estimate("state:failed args.a=1"), "not known")
	_, err := client.Estimate(ctx, jobq.Filter{Match: "nonsense:"})
	require.ErrorIs(t, err, jobq.ErrInvalid)
	other := jobtest.Client(t)
	_, err = other.Pool().Exec(ctx, "select jobq.enqueue('k')")
	require.NoError(t, err)
	about, err := other.Estimate(ctx, jobq.Filter{})
	require.NoError(t, err)
	require.Zero(t, about, "never analyzed")
}
