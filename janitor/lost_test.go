package janitor_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/pgtest"
	"github.com/jobq-dev/jobq/janitor"
	"github.com/jobq-dev/jobq/operator"
)

// An operator says that a worker is lost, while the leader sleeps for an hour, with a lease of an hour: it puts the job back at once.
func TestLostWorkerWakesTheLeader(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	j, _ := f.start(janitor.Config{ScanInterval: time.Hour})
	require.Eventually(t, j.Leading, patience, 5*time.Millisecond)
	require.NoError(t, pgtest.InsertRunning(context.Background(), f.pool, 1, pgtest.Columns{
		"lease_owner": "'gone-1'", "max_attempts": "1", "lease_expires_at": "now() + interval '1 hour'",
	}))
	lost, err := operator.New(f.client, "ann").LoseWorker(context.Background(), "gone-1", "preempted")
	require.NoError(t, err)
	require.EqualValues(t, 1, lost.Jobs)
	f.eventually("select count(*) from jobq.job where state = 'available' and attempts = 0", 1)
}
