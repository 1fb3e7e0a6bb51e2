package janitor_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/janitor"
)

// Steps of jobs that are gone go, however many there are, and old events that no job waits
// for; jobs that emit has left asleep are woken. The rest is kept.
func TestStepsAndEvents(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	f.exec("select jobq.enqueue('k', run_at => now() + interval '1 day') from generate_series(1, 2500)")
	f.exec(`insert into jobq.step (job_id, started_at, finished_at, lease_token, claimed_at, number, type, name, result)
		select 10000 + i, now() - interval '8 days', now(), 1, now(), 1, 'step', 's', '1' from generate_series(1, 2500) i`)
	f.exec(`insert into jobq.step (job_id, started_at, lease_token, claimed_at, number, type, name)
		select j.id, now() - interval '8 days', 0, now(), 1, 'event', 'common' from jobq.job j`)
	f.exec("insert into jobq.emitted (name, emitted_at, payload) select 'e' || i, now() - interval '8 days', '1' from generate_series(1, 2500) i")
	f.exec("insert into jobq.emitted (name, emitted_at, payload) values ('young', now(), '1')")
	f.exec("select jobq.emit('common')")
	f.exec("update jobq.emitted set emitted_at = now() - interval '8 days' where name = 'common'")
	require.Equal(t, 1000, f.number("select count(*) from jobq.job where state = 'available'"))
	f.start(janitor.Config{}, janitor.ChoreTimes(0, 0, 100*time.Millisecond))
	f.eventually("select count(*) from jobq.job where state = 'available'", 2500)
	f.eventually("select count(*) from jobq.step where name = 's'", 0)
	f.eventually("select count(*) from jobq.emitted where name like 'e%'", 0)
	require.Equal(t, 2500, f.number("select count(*) from jobq.step"))
	f.eventually("select count(*) from jobq.emitted where woken_to is null", 2)
}
