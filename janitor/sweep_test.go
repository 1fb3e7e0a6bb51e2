package janitor_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/pgtest"
	"github.com/jobq-dev/jobq/janitor"
)

// Janitors delete from a day what is kept for less long than others of it, and go on where a janitor before it has stopped;
// args and steps go with the jobs. When all is gone the day goes, long before its time.
func TestSweepsDays(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	f.exec("select jobq.partition_add('" + pgtest.History + "', (now() at time zone 'UTC')::date - 20)")
	f.finished(3000, "20 days", true)
	f.exec("update jobq.run set queue = 'audit' where id % 10 = 0")
	f.exec("insert into jobq.step (job_id, started_at, lease_token, claimed_at, number, type, name) select id, now() - interval '20 days', lease_id, now(), 1, 'step', 's' from jobq.run")
	f.exec(`select jobq.act_queue_set('ann', 'audit', '{"retention": "90 days"}')`)
	quick := janitor.ChoreTimes(0, 0, 50*time.Millisecond)
	_, stop := f.start(janitor.Config{}, quick)
	f.eventually("select count(*) from jobq.sweep", 1)
	stop()
	f.start(janitor.Config{}, quick)
	f.eventually("select count(*) from jobq.run", 300)
	f.eventually("select count(*) from jobq.step", 300)
	require.Equal(t, 300, f.number("select count(*) from jobq.run where queue = 'audit'"))
	require.Equal(t, 300, f.number("select count(*) from jobq.payload"))

	f.exec(`select jobq.act_queue_set('ann', 'audit', '{"retention": "8 days"}')`)
	f.exec(`select jobq.act_queue_set('ann', 'other', '{"retention": "90 days"}')`)
	f.eventually("select count(*) from jobq.run", 0)
	_, err := f.pool.Exec(context.Background(), "vacuum jobq.run")
	require.NoError(t, err)
	f.eventually("select count(*) from pg_class where relname ~ to_char((now() at time zone 'UTC')::date - 20, 'YYYYMMDD')", 0)
	f.eventually("select count(*) from jobq.payload", 0)
}
