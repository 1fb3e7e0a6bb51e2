package janitor_test

import (
	"testing"

	"github.com/jobq-dev/jobq/janitor"
)

// What a run reported in the moment in which it ended is forgotten; what a run
// has reported that goes on is not.
func TestPrunesProgress(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	f.running(1, "1 hour", 25)
	f.exec("insert into jobq.progress (job_id, lease_id, percent) select id, lease_id, 50 from jobq.run")
	f.exec("insert into jobq.progress (job_id, lease_id, percent) select 1000000 + i, i, 50 from generate_series(1, 6000) i")
	f.start(janitor.Config{})
	f.eventually("select count(*) from jobq.progress", 1)
	f.eventually("select count(*) from jobq.job where progress_percent = 50", 1)
}
