package janitor_test

import (
	"testing"

	"github.com/jobq-dev/jobq/janitor"
)

// What is old is forgotten, however much of it there is, and the rest is kept:
// stats after 30 days, events after 7, and what people did after 90.
func TestForgetsWhatIsOld(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	f.exec(`insert into jobq.stat (minute, queue, kind, completed, failed, retried, lost, cancelled, run_seconds, wait_seconds)
		select date_trunc('minute', now()) - age - i * interval '1 minute', 'q', 'k', 1, 0, 0, 0, 0, 0, 0
		from generate_series(0, 11999) i, unnest(array[interval '31 days', '1 day']) age where age > '1 day' or i < 100`)
	f.exec(`insert into jobq.event (at, type, source)
		select now() - age - i * interval '1 s', 'stalled', 'old' from generate_series(0, 11999) i, unnest(array[interval '8 days', '1 day']) age where age > '1 day' or i < 100`)
	f.exec("insert into jobq.audit (at, actor, action) select now() - age, 'ann', 'cancel' from unnest(array[interval '92 days', '91 days', '1 day']) age")
	f.exec(`insert into jobq.audit_job (audit_id, job_id, lease_token, state_before, state_after, before)
		select a.id, i, 1, 'failed', 'available', '{}' from jobq.audit a, generate_series(1, 2500) i`)
	f.start(janitor.Config{})
	f.eventually("select count(*) from jobq.stat", 100)
	f.eventually("select count(*) from jobq.event where source = 'old'", 100)
	f.eventually("select count(*) from jobq.audit", 1)
	f.eventually("select count(*) from jobq.audit_job", 2500)
}
