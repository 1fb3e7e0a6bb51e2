package operator

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/pgtest"
)

// Where all jobs cannot be counted within the time, it is said that there may be more.
// Method: the condition sleeps in a statement that has a timeout, which is the second one.
func TestBulkCountSaysMore(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	client, err := jobq.NewClient(pgtest.Pool(t), nil)
	require.NoError(t, err)
	_, err = client.Pool().Exec(ctx, "select jobq.enqueue('a') from generate_series(1, $1::integer)", jobq.CountMax+7)
	require.NoError(t, err)
	soon, cancel := context.WithTimeout(ctx, time.Minute) // leaves no time for a second count
	defer cancel()
	page := db.JobPage{States: []string{"available"}, Sort: db.SortID, Condition: func(db.Stage, int) (string, []any) {
		return "(current_setting('statement_timeout') = '0' or pg_sleep(3600)::text = '')", nil
	}}
	for _, ctx := range []context.Context{ctx, soon} {
		count, more, err := New(client, "ana").bulkCount(ctx, page, countLimits{all: 10 * time.Millisecond, answer: time.Hour})
		require.NoError(t, err)
		require.EqualValues(t, jobq.CountMax, count)
		require.True(t, more)
	}
}
