package tests

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/db"
)

// When a job could run is stored once in the history, if it was to run at once: as when
// it was added. Whoever reads it sees no difference, and a run that goes back to the line
// brings it back. That of any other job is kept beside.
func TestTimeOfAJobThatRunsAtOnce(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	const waited = `created_at - run_at = case kind when 'late' then interval '1 hour' else interval '0' end`
	asAdded := func() {
		t.Helper()
		require.Equal(t, 2, q.number("select count(*) from jobq.job where "+waited))
		rows, err := q.schema.JobList(context.Background(), q.pool, db.JobPage{
			States: []string{"available", "running", "completed", "failed", "cancelled"}, Sort: db.SortDue, Ascending: true, Size: 10,
		})
		require.NoError(t, err)
		require.Len(t, rows, 2)
		require.Equal(t, "late", rows[0].Kind)
		require.Equal(t, time.Hour, rows[0].CreatedAt.Time.Sub(rows[0].RunAt.Time))
		require.True(t, rows[1].CreatedAt.Time.Equal(rows[1].RunAt.Time))
	}
	inHistory := func() {
		t.Helper()
		require.Equal(t, 1, q.number("select count(*) from jobq.run where run_at is null and kind = 'at once'"))
		require.Equal(t, 1, q.number("select count(*) from jobq.run where run_at is not null and kind = 'late'"))
		asAdded()
	}
	waits := map[string]time.Duration{"at once": 0, "late": time.Hour} // of the kinds, when they were added
	for _, each := range []bool{false, true} {
		q.exec(`insert into jobq.pending (kind, run_at) values ('at once', now()), ('late', now() - interval '1 hour')`)
		asAdded()
		claimed := q.exchange(db.Exchange{Owner: "a", Claim: &db.JobClaimParams{
			LeasePerJob: each,
			Lease:       hour, Owner: "a", Queue: "default", Kinds: []string{"at once", "late"}, JobCount: 2,
		}}).Claimed
		require.Len(t, claimed, 2)
		for _, job := range claimed {
			require.Equal(t, waits[job.Kind], job.CreatedAt.Time.Sub(job.RunAt.Time), job.Kind)
		}
		inHistory()
		for _, job := range claimed {
			require.Equal(t, "available", q.end(job, db.Ending{Outcome: "released"}))
		}
		asAdded()

		act := func(action string) {
			q.exec("select * from jobq.act('me', '" + action + "', array(select id from jobq.job), null, null, null, null, null)")
		}
		undo := func() { q.exec("select * from jobq.undo('me', (select max(id) from jobq.audit))") }
		act("cancel")
		inHistory()
		undo()
		asAdded()
		act("cancel")
		act("delete")
		require.Zero(t, q.number("select count(*) from jobq.job"))
		undo()
		inHistory()
		require.Zero(t, q.number("select count(*) from jobq.audit_job where before -> 'row' -> 'run_at' = 'null'"))
		q.exec("delete from jobq.run")
	}
}
