package janitor_test

import (
	"testing"
	"time"

	"github.com/jobq-dev/jobq/janitor"
)

// Partition keys of queues that nobody claims from are forgotten, and their hints, however many
// there are.
func TestForgetsKeysOfAbandonedQueues(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	f.exec("select jobq.enqueue('k', queue => 'queue ' || i % 2, partition_key => 'key ' || i) from generate_series(1, 2400) i")
	f.exec("delete from jobq.pending where partition_key <> 'key 1'")
	f.start(janitor.Config{}, janitor.ChoreTimes(0, 0, 100*time.Millisecond))
	f.eventually("select count(*) from jobq.lane_hint", 0)
	f.eventually("select count(*) from jobq.lane where key <> ''", 1)
}
