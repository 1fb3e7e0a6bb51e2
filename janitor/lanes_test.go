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

// Which job of a key was claimed last is forgotten when nothing is left of the key.
func TestForgetsHeadsOfKeys(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	f.exec("insert into jobq.queue (name, key_limit, key_order) values ('q', 1, 'hold')")
	f.exec("insert into jobq.lane_head (queue, key, job_id, lease_id) select 'q', 'key ' || i, 1000 + i, 1 from generate_series(1, 1200) i")
	f.exec("insert into jobq.pending (id, kind, queue, partition_key, run_at) values (1007, 'k', 'q', 'key 7', now() + interval '1 hour')")
	f.start(janitor.Config{}, janitor.ChoreTimes(0, 0, 100*time.Millisecond))
	f.eventually("select count(*) from jobq.lane_head", 1)
	f.eventually("select count(*) from jobq.lane_head where key = 'key 7'", 1)
}
