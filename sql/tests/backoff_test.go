package tests

import (
	"context"
	"fmt"
	"math"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
)

// The wait after each failure is drawn between nothing and the base, doubled with each further failure, up to the cap; and
// what docs/failures.md says of all waits of a job together follows from it. Method: the function with the ends of
// what random() draws in its place.
func TestBackoffBounds(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	q := setUp(t)
	for name, drawn := range map[string]string{"shortest": "0::double precision", "longest": "1::double precision"} {
		q.exec(`do $$ begin
			execute replace(replace(pg_get_functiondef('jobq.backoff_delay'::regproc), 'jobq.backoff_delay', 'public.backoff_` + name + `'), 'random()', '` + drawn + `');
		end $$`)
	}
	bounds := func(failures int, base, limit *time.Duration) (shortest, longest, drawn float64) {
		require.NoError(t, q.pool.QueryRow(ctx, `select extract(epoch from public.backoff_shortest($1, $2, $3)), extract(epoch from public.backoff_longest($1, $2, $3)),
			extract(epoch from jobq.backoff_delay($1, $2, $3))`, failures, base, limit).Scan(&shortest, &longest, &drawn))
		return shortest, longest, drawn
	}
	const day = 24 * time.Hour
	together := 0.0
	for _, c := range []struct{ base, limit *time.Duration }{{nil, nil}, {new(10 * time.Second), nil}, {nil, new(time.Minute)}, {new(time.Hour), new(time.Minute)}, {new(time.Duration), nil}} {
		base, limit := time.Second, day
		if c.base != nil {
			base = *c.base
		}
		if c.limit != nil {
			limit = *c.limit
		}
		for failures := -1; failures <= 40; failures++ {
			doublings := min(max(failures-1, 0), 20)
			want := min(limit.Seconds(), base.Seconds()*math.Pow(2, float64(doublings)))
			shortest, longest, drawn := bounds(failures, c.base, c.limit)
			require.Zero(t, shortest)
			require.InDelta(t, want, longest, 1e-6, "failure %d, base %s, cap %s", failures, base, limit)
			require.GreaterOrEqual(t, drawn, 0.0)
			require.LessOrEqual(t, drawn, want)
			if c.base == nil && c.limit == nil && failures > 0 && failures < jobq.DefaultMaxAttempts {
				together += longest
			}
		}
	}
	page, err := os.ReadFile("../../docs/retries.md")
	require.NoError(t, err)
	require.InDelta(t, 4, together/2/day.Seconds(), 0.5)
	require.Contains(t, string(page), fmt.Sprintf("the 24 waits add up to about four days, at most %.1f days", together/day.Seconds()))
}
